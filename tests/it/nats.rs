//! Several relays that share nodes over a real NATS server.

pub(crate) mod clusters;
mod outages;
mod replicas;
mod same_name;
mod secured;
mod unleased;

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{JobsHealth, Link, Picture};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::nats::NatsServer;
use nodeglass_tests::relay::TestRelay;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::time::{Duration, Instant};

/// A node of the demo on which everything changes with each sample.
const NODE: &str = "gpu-h05";

fn publishing(server: &NatsServer, more: &[&str]) -> Result<TestRelay> {
    relay_of(&server.url(), "demo", more)
}

/// A relay that watches this machine. Of two probes on it for one cluster and user, the newer replaces the older, so that
/// each test has a cluster of its own.
fn local(server: &NatsServer) -> Result<TestRelay> {
    relay_of(&server.url(), &own_cluster(server), &["--local"])
}

fn own_cluster(server: &NatsServer) -> String {
    server.authority().replace(['.', ':'], "-")
}

fn relay_of(url: &str, cluster: &str, more: &[&str]) -> Result<TestRelay> {
    TestRelay::start(&[&["--nats", url, "--cluster", cluster], more].concat())
}

fn viewing(server: &NatsServer) -> Result<TestRelay> {
    publishing(server, &["--view-only"])
}

async fn subscribed(relay: &TestRelay, topic: &Topic) -> Result<Client> {
    let mut client = Client::connect(relay.link(), Form::Json).await?;
    client.subscribe(&[topic.clone(), Topic::Overview]).await?;
    Ok(client)
}

/// The readings of a node, without times, which differ between relays.
fn readings(picture: &Picture) -> Option<String> {
    let node = picture.nodes.first()?;
    let processes: Vec<_> = node.processes.iter().map(|process| &process.facts).collect();
    node.sampled_at_ms?;
    serde_json::to_string(&(&node.gpus, &node.host, &node.cores, processes)).ok()
}

fn is_live(known: &Known) -> bool {
    known.picture.nodes.first().is_some_and(|node| matches!(node.head.link, Link::Live))
}

fn newest(known: &Known) -> Option<u64> {
    known.picture.nodes.first()?.sampled_at_ms
}

/// Collects the readings of a node over some samples.
async fn collect(client: &mut Client, topic: &Topic, samples: usize) -> Result<BTreeSet<String>> {
    let mut all = BTreeSet::new();
    let start = Instant::now();
    while all.len() < samples {
        ensure!(start.elapsed() < TIMEOUT, "{} of {samples} samples", all.len());
        client.step().await?;
        all.extend(client.picture(topic).and_then(readings));
    }
    Ok(all)
}

#[tokio::test]
async fn a_view_only_relay_shows_what_the_publishing_relay_shows() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = publishing(&server, &["--demo"])?;
    let viewer = viewing(&server)?;
    let (mut own, mut other) = (subscribed(&publisher, &topic).await?, subscribed(&viewer, &topic).await?);
    own.until(&topic, "a live node", is_live).await?;
    other.until(&topic, "a live node over NATS", is_live).await?;
    let has_history = |known: &Known| {
        let node = known.picture.nodes.first();
        node.is_some_and(|node| node.history.is_some() && !node.processes.is_empty())
    };
    other.until(&topic, "processes and history over NATS", has_history).await?;

    // Frames arrive at both in different portions; each complete state that the one shows, the other showed as well.
    let (own_states, other_states) =
        tokio::join!(collect(&mut own, &topic, 24), collect(&mut other, &topic, 8));
    let (own_states, other_states) = (own_states?, other_states?);
    let common = other_states.intersection(&own_states).count();
    ensure!(common >= 5, "{common} of {} states are the publisher's", other_states.len());

    let has_jobs = |known: &Known| !known.picture.jobs.is_empty();
    let jobs = |picture: &Picture| {
        picture.jobs.iter().map(|job| (job.id, job.name.clone())).collect::<BTreeSet<_>>()
    };
    let mut shown = jobs(other.until(&Topic::Overview, "jobs over NATS", has_jobs).await?);
    let start = Instant::now();
    // Tasks of an array begin and end meanwhile.
    loop {
        let published = jobs(own.picture(&Topic::Overview).context("an overview")?);
        if shown == published {
            break;
        }
        ensure!(start.elapsed() < TIMEOUT, "{shown:?}\n{published:?}");
        own.step().await?;
        other.step().await?;
        shown = jobs(other.picture(&Topic::Overview).context("an overview over NATS")?);
    }
    ensure!(!other.welcome().may_act, "a view-only relay has no actions");
    Ok(())
}

#[tokio::test]
async fn what_nobody_watches_is_not_sent() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let mut monitor = server.client()?;
    monitor.subscribe("nodeglass.>")?;
    let _publisher = publishing(&server, &["--demo"])?;
    let viewer = viewing(&server)?;
    // The relays are in touch.
    monitor.wait_for(".announce", 4)?;
    monitor.wait_for(".jobs", 1)?;
    monitor.wait_for(".interest", 3)?;
    ensure!(monitor.count(".lines") == 0, "nobody watches, and lines are sent");

    let topic = Topic::Node(NodeName::new(NODE)?);
    let mut client = subscribed(&viewer, &topic).await?;
    client.until(&topic, "a live node over NATS", is_live).await?;
    monitor.wait_for(".lines", 10)?;
    drop(client);

    let start = Instant::now();
    loop {
        let (lines, announcements) = (monitor.count(".lines"), monitor.count(".announce"));
        monitor.wait_for(".announce", announcements + 3)?;
        if monitor.count(".lines") == lines {
            return Ok(());
        }
        ensure!(start.elapsed() < TIMEOUT, "lines are sent although the last viewer left");
    }
}

#[tokio::test]
async fn when_a_relay_dies_another_one_watches_its_nodes() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let first = local(&server)?;
    let topic = Topic::Node(this_machine()?);
    let mut on_first = subscribed(&first, &topic).await?;
    on_first.until(&topic, "a live node", is_live).await?;
    let second = local(&server)?;
    let mut on_second = subscribed(&second, &topic).await?;
    on_second.until(&topic, "a live node of the other relay", is_live).await?;
    let probes = |relay: &TestRelay| children(relay.pid()).map(|probes| probes.len());
    ensure!(probes(&first)? == 1 && probes(&second)? == 0, "two relays watch one node");

    kill_process(Pid::from_raw(first.pid().cast_signed()).context("a pid")?, Signal::KILL)?;
    let killed_at = Instant::now();
    let before = on_second.known(&topic).and_then(newest);
    while probes(&second)? == 0 || on_second.known(&topic).and_then(newest) == before {
        ensure!(killed_at.elapsed() < TIMEOUT, "the other relay does not take over");
        on_second.step().await?;
    }
    on_second.until(&topic, "a live node again", is_live).await?;
    Ok(())
}

#[tokio::test]
async fn without_the_server_a_relay_that_knows_of_another_stops_its_probes() -> Result<()> {
    let Some(mut server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(this_machine()?);
    let first = local(&server)?;
    subscribed(&first, &topic).await?.until(&topic, "a live node", is_live).await?;
    let second = local(&server)?;
    let mut on_second = subscribed(&second, &topic).await?;
    on_second.until(&topic, "a live node of the other relay", is_live).await?;

    let mut start = Instant::now();
    let mut attempts = 1;
    server.kill()?;
    while !children(first.pid())?.is_empty() {
        ensure!(
            children(second.pid())?.is_empty(),
            "the other relay cannot know that nobody watches the node"
        );
        tokio::time::sleep(Duration::from_millis(100)).await;
        if start.elapsed() > TIMEOUT / 3 {
            // A relay that has not received the lease of the other yet goes on: then it has, once the server is back.
            ensure!(attempts < 3, "the probe goes on although its lease has ended");
            on_second.until(&topic, "a node that is not live", |known| !is_live(known)).await?;
            server.restart()?;
            on_second.until(&topic, "a live node of the other relay", is_live).await?;
            server.kill()?;
            (start, attempts) = (Instant::now(), attempts + 1);
        }
    }
    server.restart()?;
    on_second.until(&topic, "a node that is not live", |known| !is_live(known)).await?;
    on_second.until(&topic, "a live node again", is_live).await?;
    let probes = children(first.pid())?.len() + children(second.pid())?.len();
    ensure!(probes == 1, "{probes} probes on one node");
    Ok(())
}

/// The name under which a relay watches this machine.
fn this_machine() -> Result<NodeName> {
    let name = rustix::system::uname().nodename().to_string_lossy().into_owned();
    Ok(NodeName::new(name)?)
}

/// Probes that a relay runs.
fn children(pid: u32) -> Result<BTreeSet<u32>> {
    let mut probes = BTreeSet::new();
    for task in fs::read_dir(format!("/proc/{pid}/task"))? {
        let children = fs::read_to_string(task?.path().join("children")).unwrap_or_default();
        let is_probe = |child: &&str| {
            let command = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            command.contains("node-probe")
        };
        probes.extend(
            children.split_whitespace().filter(is_probe).filter_map(|child| child.parse::<u32>().ok()),
        );
    }
    Ok(probes)
}

#[tokio::test]
async fn a_relay_with_wrong_credentials_says_so_and_serves_its_own_nodes() -> Result<()> {
    let Some(server) = NatsServer::start(&["--user", "nodeglass", "--pass", "right"])? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("credentials");
    fs::write(&file, "nodeglass:wrong\n")?;
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
    let credentials = file.display().to_string();
    let relay = publishing(&server, &["--demo", "--nats-credentials", &credentials])?;
    let topic = Topic::Node(NodeName::new(NODE)?);
    subscribed(&relay, &topic).await?.until(&topic, "a live node without NATS", is_live).await?;
    relay.wait_for_text("refuses these credentials: check --nats-credentials")?;

    fs::write(&file, "nodeglass:right\n")?;
    let viewer = publishing(&server, &["--view-only", "--nats-credentials", &credentials])?;
    let publisher = publishing(&server, &["--demo", "--nats-credentials", &credentials])?;
    subscribed(&publisher, &topic).await?.until(&topic, "a live node", is_live).await?;
    subscribed(&viewer, &topic).await?.until(&topic, "a live node over NATS", is_live).await?;
    Ok(())
}

#[tokio::test]
async fn when_the_server_is_killed_the_publisher_goes_on_and_viewers_return_with_it() -> Result<()> {
    let Some(mut server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = publishing(&server, &["--demo"])?;
    let viewer = viewing(&server)?;
    let (mut own, mut other) = (subscribed(&publisher, &topic).await?, subscribed(&viewer, &topic).await?);
    other.until(&topic, "a live node over NATS", is_live).await?;

    server.kill()?;
    viewer.wait_for_text("was lost")?;
    other.until(&topic, "a node that is not live", |known| !is_live(known)).await?;
    let lost_at = own.known(&topic).and_then(newest);
    own.until(&topic, "samples without NATS", |known| is_live(known) && newest(known) > lost_at).await?;

    server.restart()?;
    other.until(&topic, "a live node over NATS again", is_live).await?;
    viewer.wait_for_text("connected to NATS again")?;
    Ok(())
}

#[tokio::test]
async fn hostile_messages_change_nothing() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = publishing(&server, &["--demo"])?;
    let viewer = viewing(&server)?;
    let (mut own, mut other) = (subscribed(&publisher, &topic).await?, subscribed(&viewer, &topic).await?);
    other.until(&topic, "a live node over NATS", is_live).await?;
    own.until(&topic, "a live node", is_live).await?;

    let mut hostile = server.client()?;
    let (long, deep) = (vec![b'x'; 900_000], "[".repeat(200_000));
    let request = |node: &str| format!("nodeglass.v1.demo.node.{node}.request");
    let bodies: [&[u8]; 5] =
        [b"", b"\xff\xfe{", &long, deep.as_bytes(), br#"{"relay":"../../etc","nodes":7}"#];
    for body in bodies {
        for subject in ["jobs", "interest", "relay.0000000000000001.announce", "relay.x.announce"] {
            hostile.publish(
                &format!("nodeglass.v1.demo.{subject}"),
                &[("Nodeglass-Part", "1/9999999999")],
                body,
            )?;
        }
        for node in [NODE, "no-such-node", "-rf", "a=b=c"] {
            hostile.publish(&request(node), &[], body)?;
            // Lines without a link, or without a number, are not read.
            hostile.publish(
                &format!("nodeglass.v1.demo.node.{node}.lines"),
                &[("Nodeglass-Seq", "-1")],
                body,
            )?;
        }
    }
    // A valid request can set a schedule, within its bounds, and nothing else.
    let sampling = r#"{"interval_ms":0,"phase_ms":4294967295}"#;
    let valid = format!(
        r#"{{"relay":"00000000000000ff","sampling":{sampling},"backfill":{{"stream":1,"after_seq":0}}}}"#
    );
    (0..200).try_for_each(|_| hostile.publish(&request(NODE), &[], valid.as_bytes()))?;

    let (before, theirs) = (own.known(&topic).and_then(newest), other.known(&topic).and_then(newest));
    own.until(&topic, "further samples", |known| is_live(known) && newest(known) > before).await?;
    other
        .until(&topic, "further samples over NATS", |known| is_live(known) && newest(known) > theirs)
        .await?;
    let names = |client: &Client| -> Result<BTreeSet<NodeName>> {
        let overview = client.picture(&Topic::Overview).context("an overview")?;
        Ok(overview.nodes.iter().map(|node| node.name.clone()).collect())
    };
    let (shown, published) = (names(&other)?, names(&own)?);
    ensure!(shown.is_subset(&published), "nodes that nobody publishes: {shown:?}, {published:?}");
    Ok(())
}

#[tokio::test]
async fn a_view_only_relay_without_publishers_says_so() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let viewer = viewing(&server)?;
    let mut client = Client::connect(viewer.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let is_stated = |known: &Known| {
        let JobsHealth::Stale { reason, .. } = &known.picture.relay.jobs else { return false };
        reason.as_str().contains("no relay publishes the cluster demo over NATS")
    };
    client.until(&Topic::Overview, "the reason for having no jobs", is_stated).await?;
    Ok(())
}
