//! Relays on a server without JetStream, which gives no leases.

use super::{children, is_live, local, newest, subscribed, this_machine};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::live::Topic;
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::Known;
use nodeglass_tests::nats::NatsServer;
use nodeglass_tests::relay::TestRelay;
use rustix::process::{Pid, Signal, kill_process};
use std::collections::BTreeSet;
use std::time::Instant;

/// Number of announcements of two relays during which nothing must change: more than ten seconds.
const STEADY: usize = 12;

/// The probes of both relays.
fn probes(relays: [&TestRelay; 2]) -> Result<BTreeSet<u32>> {
    let mut probes = children(relays[0].pid())?;
    probes.extend(children(relays[1].pid())?);
    Ok(probes)
}

#[tokio::test]
async fn without_leases_a_relay_views_the_node_that_another_one_watches() -> Result<()> {
    let Some(server) = NatsServer::start_without_jetstream()? else { return Ok(()) };
    let mut monitor = server.client()?;
    monitor.subscribe("nodeglass.>")?;
    let topic = Topic::Node(this_machine()?);
    let first = local(&server)?;
    let mut on_first = subscribed(&first, &topic).await?;
    on_first.until(&topic, "a live node", is_live).await?;
    let second = local(&server)?;
    let mut on_second = subscribed(&second, &topic).await?;
    on_second.until(&topic, "a live node of the other relay", is_live).await?;
    second.wait_for_text("NATS gives no leases")?;

    let before = probes([&first, &second])?;
    let of_second = children(second.pid())?;
    ensure!(
        before.len() == 1 && of_second.is_empty(),
        "two relays watch one node: {before:?}, {of_second:?}"
    );
    let announced = monitor.count(".announce");
    monitor.wait_for(".announce", announced + STEADY)?;
    ensure!(probes([&first, &second])? == before, "the probe was replaced");
    let shown = on_second.known(&topic).and_then(newest);
    on_second.until(&topic, "further samples", |known: &Known| newest(known) > shown).await?;

    kill_process(Pid::from_raw(first.pid().cast_signed()).context("a pid")?, Signal::KILL)?;
    let start = Instant::now();
    while children(second.pid())?.is_empty() {
        ensure!(start.elapsed() < TIMEOUT, "the other relay does not take over");
        on_second.step().await?;
    }
    let shown = on_second.known(&topic).and_then(newest);
    let goes_on = |known: &Known| is_live(known) && newest(known) > shown;
    on_second.until(&topic, "a live node again", goes_on).await?;
    Ok(())
}

#[tokio::test]
async fn of_relays_that_start_at_once_without_leases_one_keeps_its_probe() -> Result<()> {
    let Some(server) = NatsServer::start_without_jetstream()? else { return Ok(()) };
    let mut monitor = server.client()?;
    monitor.subscribe("nodeglass.>")?;
    let topic = Topic::Node(this_machine()?);
    let (first, second) = std::thread::scope(|scope| {
        let first = scope.spawn(|| local(&server));
        let second = local(&server);
        (first.join(), second)
    });
    let (first, second) = (first.ok().context("a relay")??, second?);
    let (mut on_first, mut on_second) =
        (subscribed(&first, &topic).await?, subscribed(&second, &topic).await?);
    on_first.until(&topic, "a live node", is_live).await?;
    on_second.until(&topic, "a live node of the other relay", is_live).await?;

    let start = Instant::now();
    loop {
        let (before, announced) = (probes([&first, &second])?, monitor.count(".announce"));
        monitor.wait_for(".announce", announced + STEADY)?;
        if before.len() == 1 && probes([&first, &second])? == before {
            return Ok(());
        }
        ensure!(start.elapsed() < TIMEOUT, "the relays take each other's probe over");
    }
}
