//! Relays on a cluster of three servers, of which one fails.

use super::{children, is_live, local, newest, subscribed, this_machine};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::live::Topic;
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::Known;
use nodeglass_tests::nats::{NatsClient, NatsServer};
use serde_json::Value;
use std::time::{Duration, Instant};

/// Requests the state of the stream of the leases until it is as wanted.
fn stream(client: &mut NatsClient, name: &str, is_wanted: impl Fn(&Value) -> bool) -> Result<Value> {
    let start = Instant::now();
    client.subscribe("test.replicas")?;
    loop {
        client.request(&format!("$JS.API.STREAM.INFO.{name}"), "test.replicas", b"")?;
        std::thread::sleep(Duration::from_millis(200));
        let newest =
            client.newest("test.replicas").and_then(|text| serde_json::from_slice::<Value>(&text).ok());
        if let Some(state) = newest.filter(&is_wanted) {
            return Ok(state);
        }
        ensure!(start.elapsed() < TIMEOUT, "the stream {name} is not as wanted");
    }
}

#[tokio::test]
async fn leases_outlast_one_of_three_servers() -> Result<()> {
    let Some(mut servers) = NatsServer::cluster()? else { return Ok(()) };
    let topic = Topic::Node(this_machine()?);
    let relay = local(&servers[0])?;
    let mut viewer = subscribed(&relay, &topic).await?;
    viewer.until(&topic, "a live node", is_live).await?;
    let cluster = super::own_cluster(&servers[0]);
    let name = format!("KV_nodeglass-v1-{cluster}");
    let has_three =
        |state: &Value| state["cluster"]["replicas"].as_array().is_some_and(|others| others.len() == 2);
    let state = stream(&mut servers[0].client()?, &name, has_three)?;
    let leader = state["cluster"]["leader"].as_str().context("a leader")?.to_owned();
    let failed = servers.iter().position(|server| server.name() == leader).context("one of them")?;
    servers[failed].kill()?;

    let other = &servers[(failed + 1) % servers.len()];
    let has_another = |state: &Value| {
        state["cluster"]["leader"].as_str().is_some_and(|now| !now.is_empty() && now != leader)
    };
    stream(&mut other.client()?, &name, has_another)?;
    let shown = viewer.known(&topic).and_then(newest);
    let goes_on = |known: &Known| is_live(known) && newest(known) > shown;
    viewer.until(&topic, "a live node again", goes_on).await?;
    ensure!(!children(relay.pid())?.is_empty(), "the relay does not watch the node itself");
    Ok(())
}
