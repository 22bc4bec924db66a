//! Relays that are killed, cut off from the server, or lose messages; graphs show none of it afterwards.

use super::same_name::{self, FIRST};
use super::{
    NODE, children, is_live, local, newest, own_cluster, publishing, relay_of, subscribed, this_machine,
};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Link;
use nodeglass_protocol::{HostField, NodeName};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::nats::NatsServer;
use nodeglass_tests::nats_proxy::NatsProxy;
use nodeglass_tests::relay::TestRelay;
use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::time::{Duration, Instant};
use tokio::time::timeout;

/// Maximum gap after a relay was killed, in s: a probe starts in that time, and its predecessor's ring has the 5.5 s before.
const KILLED_GAP: usize = 4;
/// Maximum gap after a relay was cut off, in s: it stops its probe before another relay may start one.
const CUT_OFF_GAP: usize = 10;
/// Number of messages that are lost: those of at least five seconds.
const LOST: usize = 30;
/// Renewals of two relays in the time that one needs to receive the lease of the other on a busy machine.
const RENEWALS: usize = 8;
/// Seconds without a sample that a busy machine may cause.
const BUSY_GAP: usize = 1;

/// Waits until as many renewals of leases have been stored, of all relays together.
fn leases_renewed(server: &NatsServer, renewals: usize) -> Result<()> {
    let mut monitor = server.client()?;
    monitor.subscribe("$KV.*.relay.*")?;
    monitor.wait_for("", renewals)
}

/// The longest gap of the graph since a time, in s, except the newest two, which may be on their way.
fn longest_gap(known: &Known, from_ms: u64) -> Option<usize> {
    let trace = known.picture.nodes.first()?.history.as_ref()?.host.get(HostField::MemUsed)?;
    let missing: Vec<_> = trace.since(from_ms).map(|(_, cell)| cell.is_none()).collect();
    let old = &missing[..missing.len().saturating_sub(2)];
    old.split(|is_missing| !is_missing).map(<[bool]>::len).max()
}

/// Returns whether a node is live, with a sample.
fn has_sample(known: &Known) -> bool {
    is_live(known) && newest(known).is_some()
}

/// Returns whether a node is live, and its graph has no longer gap since a time.
fn is_complete(from_ms: u64, max_gap: usize) -> impl Fn(&Known) -> bool {
    move |known| has_sample(known) && longest_gap(known, from_ms).is_some_and(|gap| gap <= max_gap)
}

/// A relay that reaches the server through a proxy, and a viewer.
struct Member {
    relay: TestRelay,
    proxy: NatsProxy,
    viewer: Client,
}

impl Member {
    async fn start(server: &NatsServer, topic: &Topic) -> Result<Self> {
        let proxy = NatsProxy::open(&server.authority()).await?;
        let relay = relay_of(&proxy.url(), &own_cluster(server), &["--local"])?;
        let mut viewer = subscribed(&relay, topic).await?;
        viewer.until(topic, "a sample", has_sample).await?;
        Ok(Self { relay, proxy, viewer })
    }

    fn watches(&self) -> Result<bool> {
        Ok(!children(self.relay.pid())?.is_empty())
    }

    /// When its viewer's newest sample was taken.
    fn newest(&self, topic: &Topic) -> Result<u64> {
        self.viewer.known(topic).and_then(newest).context("a sample")
    }

    /// Follows until this relay's viewer has the graph since `from_ms`, with samples that are new.
    async fn completes(&mut self, topic: &Topic, from_ms: u64, max_gap: usize) -> Result<()> {
        let until_ms = self.newest(topic)? + 3_000;
        let complete = is_complete(from_ms, max_gap);
        let is_expected = |known: &Known| complete(known) && newest(known) > Some(until_ms);
        self.viewer.until(topic, "a graph without a gap", is_expected).await.map(drop)
    }
}

/// Waits until one of these relays watches the node, and returns which.
async fn taken_over(members: &mut [Member]) -> Result<usize> {
    let start = Instant::now();
    loop {
        for (index, member) in members.iter_mut().enumerate() {
            if member.watches()? {
                return Ok(index);
            }
            // Its viewer reads what has arrived.
            let _ = timeout(Duration::from_millis(50), member.viewer.step()).await;
        }
        ensure!(start.elapsed() < TIMEOUT, "no other relay took the node over");
    }
}

#[tokio::test]
async fn viewers_go_on_without_a_gap_when_relays_are_killed_and_cut_off() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(this_machine()?);
    let mut members = Vec::new();
    for _ in 0..3 {
        members.push(Member::start(&server, &topic).await?);
    }
    let view_only = relay_of(&server.url(), &own_cluster(&server), &["--view-only"])?;
    let mut on_view_only = subscribed(&view_only, &topic).await?;
    on_view_only.until(&topic, "a sample over NATS", has_sample).await?;
    let from_ms = on_view_only.known(&topic).and_then(newest).context("a sample")?;

    // The relay that watches the node is killed.
    let from = [members[1].newest(&topic)?, members[2].newest(&topic)?];
    let killed = members.remove(0);
    ensure!(killed.watches()?, "the first relay started the probe");
    kill_process(Pid::from_raw(killed.relay.pid().cast_signed()).context("a pid")?, Signal::KILL)?;
    let second = taken_over(&mut members).await?;
    for (member, from_ms) in members.iter_mut().zip(from) {
        member.completes(&topic, from_ms, KILLED_GAP).await?;
    }

    // The one that took over is cut off from the server.
    let mut cut_off = members.remove(second);
    let cut_off_from_ms = cut_off.newest(&topic)?;
    let from_ms_of_last = members[0].newest(&topic)?;
    cut_off.proxy.interrupt();
    taken_over(&mut members).await?;
    ensure!(!cut_off.watches()?, "two relays watch one node");
    members[0].completes(&topic, from_ms_of_last, CUT_OFF_GAP).await?;
    on_view_only.until(&topic, "a graph without a gap", is_complete(from_ms, CUT_OFF_GAP)).await?;

    // Back again, it views the node.
    cut_off.proxy.resume();
    cut_off.completes(&topic, cut_off_from_ms, CUT_OFF_GAP).await?;
    ensure!(!cut_off.watches()? && members[0].watches()?, "it took the node back");
    Ok(())
}

#[tokio::test]
async fn lost_messages_are_noticed_and_repaired() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = publishing(&server, &["--demo"])?;
    subscribed(&publisher, &topic).await?.until(&topic, "a live node", is_live).await?;
    let proxy = NatsProxy::open(&server.authority()).await?;
    let viewer = relay_of(&proxy.url(), "demo", &["--view-only"])?;
    let mut client = subscribed(&viewer, &topic).await?;
    client.until(&topic, "a sample over NATS", has_sample).await?;
    let from_ms = client.known(&topic).and_then(newest).context("a sample")?;

    proxy.lose_lines(LOST);
    while !proxy.has_lost_all() {
        client.step().await?;
    }
    let until_ms = client.known(&topic).and_then(newest).context("a sample")? + 10_000;
    let is_repaired = |known: &Known| newest(known) > Some(until_ms) && is_complete(from_ms, BUSY_GAP)(known);
    client.until(&topic, "a complete graph", is_repaired).await?;
    let log = viewer.home().join("nodeglass").join(format!("{}.log", viewer.pid()));
    let log = fs::read_to_string(log).context("the log of the relay")?;
    ensure!(log.contains("messages were lost over NATS"), "{log}");
    Ok(())
}

#[tokio::test]
async fn without_the_server_nodes_are_reconnecting_and_the_reason_is_stated() -> Result<()> {
    let Some(mut server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(this_machine()?);
    let members = [local(&server)?, local(&server)?];
    let mut viewers = Vec::new();
    for member in &members {
        let mut viewer = subscribed(member, &topic).await?;
        viewer.until(&topic, "a sample", has_sample).await?;
        viewers.push(viewer);
    }
    let link = |known: &Known| known.picture.nodes.first().map(|node| node.head.link.clone());
    let is_reconnecting = |known: &Known| matches!(link(known), Some(Link::Connecting { .. }));
    let is_stated = |known: &Known| {
        known.picture.relay.notices.iter().any(|one| one.as_str().contains("has stopped its probes"))
    };
    // A relay that has not received the lease of the other yet goes on: then it has, once the server is back.
    for attempt in 1.. {
        ensure!(attempt <= 3, "the reason is not stated");
        leases_renewed(&server, attempt * RENEWALS)?;
        server.kill()?;
        let stated = async {
            for viewer in &mut viewers {
                viewer.until(&Topic::Overview, "the reason", is_stated).await?;
            }
            anyhow::Ok(())
        };
        match timeout(Duration::from_secs(20), stated).await {
            Ok(stated) => {
                stated?;
                break;
            }
            Err(_) => server.restart()?,
        }
        for viewer in &mut viewers {
            viewer.until(&Topic::Overview, "no notice any more", |known| !is_stated(known)).await?;
            viewer.until(&topic, "a live node", is_live).await?;
        }
    }
    for viewer in &mut viewers {
        viewer.until(&topic, "a node that is reconnecting", is_reconnecting).await?;
        // Longer than the pause between two attempts.
        let failed =
            viewer.until(&topic, "a failure", |known| matches!(link(known), Some(Link::Down { .. })));
        ensure!(timeout(Duration::from_secs(10), failed).await.is_err(), "the node is said to be down");
    }
    server.restart()?;
    for viewer in &mut viewers {
        viewer.until(&topic, "a live node again", is_live).await?;
        viewer.until(&Topic::Overview, "no notice any more", |known| !is_stated(known)).await?;
    }
    Ok(())
}

#[tokio::test]
async fn leases_return_with_a_server_that_restarts_even_if_it_has_lost_the_bucket() -> Result<()> {
    let Some(mut server) = NatsServer::start(&[])? else { return Ok(()) };
    // The second one finds the bucket of the first.
    let relays = [same_name::publishing(&server, FIRST, &[])?, same_name::publishing(&server, FIRST, &[])?];
    for has_lost_it in [false, true] {
        for relay in &relays {
            same_name::runs(relay, 102).await?;
        }
        leases_renewed(&server, RENEWALS)?;
        server.kill()?;
        if has_lost_it {
            server.forget()?;
        }
        server.restart()?;
        leases_renewed(&server, RENEWALS)?;
    }
    for relay in &relays {
        same_name::runs(relay, 102).await?;
    }
    Ok(())
}
