//! A partition of a large cluster, which is too heavy for every run: `cargo test … -- --ignored partition`.

use super::cluster::none_left;
use anyhow::{Result, ensure};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Link;
use nodeglass_tests::lab::Site;
use nodeglass_tests::oracle::Oracle;
use std::time::Duration;

/// Number of nodes, unless `NODEGLASS_LAB_NODES` states another.
const NODES: u32 = 64;

#[tokio::test]
#[ignore = "64 nodes keep two cores busy for minutes"]
async fn f33_half_of_a_large_cluster_is_cut_off_for_a_minute_and_returns() -> Result<()> {
    let count =
        std::env::var("NODEGLASS_LAB_NODES").ok().and_then(|count| count.parse().ok()).unwrap_or(NODES);
    let Some(site) = Site::up_or_skip(count)? else { return Ok(()) };
    let nodes = format!("-N{count}");
    let id = site.train("alice", &[&nodes, "--ntasks-per-node=1", "--gres=gpu:1"])?;
    site.lab.wait_until(id, "RUNNING")?;
    let relay = site.relay("alice")?;
    let mut oracle = Oracle::watch(&relay.link, Topic::Job(id), count as usize).await?;
    let names = site.lab.nodes();
    let half = &names[..names.len() / 2];
    let affected = half.iter().map(|name| Ok(NodeName::new(name)?)).collect::<Result<Vec<_>>>()?;

    oracle.fault(&affected).await?;
    half.iter().try_for_each(|name| site.lab.cut(name))?;
    let late = oracle.until("nodes that are late", |node| node.head.link != Link::Live).await?;
    let silent = oracle
        .until("nodes that are away", |node| !matches!(node.head.link, Link::Live | Link::Late))
        .await?;
    oracle.pass(Duration::from_secs(60)).await?;
    half.iter().try_for_each(|name| site.lab.mend(name))?;
    let healed = oracle.healed().await?;
    println!(
        "half of {count} nodes: late after {late:?}, away after {silent:?}, live {healed:?} after the end"
    );
    let probes = names.iter().map(|name| site.probes(name)).collect::<Result<Vec<_>>>()?;
    ensure!(probes.iter().all(|probes| probes.len() == 1), "P7: {probes:?}");
    drop(relay);
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    none_left(&site, &names, Duration::from_secs(30)).await
}
