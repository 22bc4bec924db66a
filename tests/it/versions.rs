//! Probes of other builds and versions, as processes: they work with this relay, or it states exactly what to do.

use anyhow::{Context as _, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::probe::MAGIC;
use nodeglass_protocol::{GpuField, Picture};
use nodeglass_tests::client::Client;
use nodeglass_tests::oracle::Oracle;
use nodeglass_tests::rack::Rack;
use nodeglass_tests::relay::{TestRelay, binary};
use rustix::process::{Signal, kill_process};
use std::fs::{self, Permissions};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Lines of the probe as version 2 of the wire has frozen them, in an order in which a probe prints them.
const FROZEN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../protocol/tests/frozen/v2");
const LINES: [&str; 11] = [
    "hello",
    "health",
    "link-rates",
    "processes",
    "process-readings",
    "job-devices",
    "sample",
    "sample-since",
    "event",
    "notes",
    "usage",
];

fn frozen(line: &str) -> Result<String> {
    let path = format!("{FROZEN}/probe-{line}.json");
    fs::read_to_string(&path).with_context(|| format!("read {path}"))
}

/// Writes a program that prints lines, then a heartbeat each second, and counts its starts in a file beside it.
fn program(folder: &Path, lines: &str) -> Result<PathBuf> {
    fs::set_permissions(folder, Permissions::from_mode(0o755))?;
    fs::write(folder.join("lines"), lines)?;
    fs::write(folder.join("heartbeat"), frozen("heartbeat")? + "\n")?;
    let (path, at) = (folder.join("node-probe"), folder.display());
    let script = format!(
        "#!/bin/sh\necho >>{at}/starts\ncat {at}/lines\nwhile sleep 1; do cat {at}/heartbeat || exit; done\n"
    );
    fs::write(&path, script)?;
    fs::set_permissions(&path, Permissions::from_mode(0o755))?;
    Ok(path)
}

/// Watches a relay whose probe is a program that prints `lines`, until its only node is as expected; returns that and
/// the relay.
async fn shown(
    folder: &Path,
    lines: &str,
    is_expected: impl Fn(&NodePicture) -> bool,
) -> Result<(NodePicture, TestRelay)> {
    let probe = program(folder, lines)?;
    let relay = TestRelay::start(&["--local", "--probe", probe.to_str().context("a path")?])?;
    let mut client = Client::connect(relay.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let node = |picture: &Picture| picture.nodes.first().filter(|node| is_expected(node)).cloned();
    let picture = client.until(&Topic::Overview, "the node", |known| node(&known.picture).is_some()).await?;
    Ok((node(picture).context("as above")?, relay))
}

#[tokio::test]
async fn f22_the_frozen_lines_of_a_probe_are_all_read_by_this_relay() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let lines: Vec<String> = LINES.into_iter().map(frozen).collect::<Result<_>>()?;
    let is_sampled = |node: &NodePicture| node.head.link == Link::Live && node.sampled_at_ms.is_some();
    let (node, relay) = shown(folder.path(), &format!("{MAGIC}{}\n", lines.join("\n")), is_sampled).await?;
    let [gpu] = &node.gpus[..] else { anyhow::bail!("{:?}", node.gpus) };
    let name = gpu.facts.name.value().map(ToString::to_string);
    ensure!(name.as_deref() == Some("NVIDIA A100-SXM4-80GB"), "{:?}", gpu.facts);
    ensure!(gpu.row.value(GpuField::Util).is_some() && node.head.facts.is_some(), "{gpu:?}");
    let oracle = Oracle::watch(relay.link(), Topic::Overview, 1).await?;
    let connections = oracle.status().await?["connections"].clone();
    ensure!(connections[0]["unreadable_lines"] == 0 && connections[0]["attempts"] == 1, "{connections}");
    Ok(())
}

#[tokio::test]
async fn f22_a_probe_of_the_version_before_is_refused_once_with_what_to_do() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let hello = frozen("hello")?.replace(r#""proto":{"min":2,"max":2}"#, r#""proto":{"min":1,"max":1}"#);
    let is_refused = |node: &NodePicture| matches!(node.head.link, Link::Refused { .. });
    let (node, relay) = shown(folder.path(), &format!("{MAGIC}{hello}\n"), is_refused).await?;
    let Link::Refused { reason, advice } = &node.head.link else { anyhow::bail!("{node:?}") };
    ensure!(reason.as_str().contains("speaks version 1 and this relay version 2"), "{reason}");
    ensure!(advice.as_str() == "restart the relay to upload its own probe", "{advice}");
    relay.terminate()?;
    ensure!(fs::read(folder.path().join("starts"))? == b"\n", "it was started again");
    Ok(())
}

/// An update replaces the files of a relay that runs.
#[tokio::test]
async fn f22_a_probe_that_an_update_replaced_is_not_started_and_the_fix_is_named() -> Result<()> {
    let folder = tempfile::tempdir()?;
    fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
    let probe = folder.path().join("node-probe");
    fs::copy(binary("node-probe")?, &probe)?;
    let path = probe.to_str().context("a path")?.to_owned();
    let Some(rack) = Rack::start(2, &["--probe", &path]).await? else { return Ok(()) };
    let mut oracle = Oracle::watch(rack.relay().link(), Topic::Overview, 2).await?;
    let node = rack.names(0..1)?;

    // As a package manager does; another byte makes another build.
    let (before, newer) = (folder.path().join("before"), folder.path().join("newer"));
    fs::copy(&probe, &before)?;
    fs::copy(&probe, &newer)?;
    fs::OpenOptions::new().append(true).open(&newer)?.write_all(b"\n")?;
    fs::rename(&newer, &probe)?;
    oracle.fault(&node).await?;
    let [running] = rack.probes(0)[..] else { anyhow::bail!("one probe: {:?}", rack.probes(0)) };
    kill_process(running, Signal::KILL)?;
    let names_the_fix = |node: &NodePicture| {
        let (Link::Down { reason, .. } | Link::Refused { reason, .. }) = &node.head.link else {
            return false;
        };
        reason.as_str().contains("restart the relay")
    };
    let named = oracle.until("the fix", names_the_fix).await?;
    ensure!(rack.probes(0).is_empty(), "a probe of another build runs: {:?}", rack.probes(0));

    // A relay of the update works with its probe, beside this one.
    let newer = TestRelay::start(&["--new", "--local", "--probe", &path])?;
    drop(Oracle::watch(newer.link(), Topic::Overview, 1).await?);
    fs::rename(&before, &probe)?;
    rack.relay().run(&["retry"])?;
    let healed = oracle.healed().await?;
    println!("a replaced probe is named after {named:?}; live {healed:?} after it was back");
    Ok(())
}
