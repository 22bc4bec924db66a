//! Two clusters that have the same name on one NATS server, with nodes and jobs of the same names.

use super::clusters::{Cluster, jobs, scenario};
use super::{NatsServer, is_live};
use anyhow::{Context, Result};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::relay::TestRelay;
use std::fs;

pub(super) const FIRST: Cluster<'_> = ("first", "n[1-2]", &[(101, "n1"), (102, "n2")]);
const SECOND: Cluster<'_> = ("second", "n[2-3]", &[(101, "n2"), (103, "n3")]);
const FIRST_JOBS: [(&str, &str); 2] = [("101", "first 101"), ("102", "first 102")];
const SECOND_JOBS: [(&str, &str); 2] = [("101", "second 101"), ("103", "second 103")];
/// What the relay that shares nothing says, and what a view-only relay says.
const GIVEN_UP: &str = "another cluster, with the controller ctl-first, has the name hpc on NATS";
const NOT_SHOWN: &str =
    "the one with the controller ctl-first is shown, the one with the controller ctl-second is not";

/// A relay of a cluster that is named `hpc` whatever the scenario is.
pub(super) fn publishing(server: &NatsServer, cluster: Cluster<'_>, more: &[&str]) -> Result<TestRelay> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("scenario.toml");
    let name = cluster.0;
    let named = format!("cluster = \"hpc\"\ncontroller = \"ctl-{name}\"");
    fs::write(&file, scenario(cluster).replace(&format!("cluster = \"{name}\""), &named))?;
    let file = file.to_str().context("a path in UTF-8")?;
    TestRelay::start(&[&["--scenario", file, "--nats", &server.url()], more].concat())
}

async fn overview(relay: &TestRelay) -> Result<Client> {
    let mut client = Client::connect(relay.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    Ok(client)
}

async fn shows(client: &mut Client, what: &str, wanted: &[(&str, &str)]) -> Result<()> {
    let wanted = wanted.iter().copied().collect();
    client.until(&Topic::Overview, what, |known: &Known| jobs(&known.picture) == wanted).await.map(drop)
}

async fn notes(client: &mut Client, notice: &str) -> Result<()> {
    let is_stated =
        |known: &Known| known.picture.relay.notices.iter().any(|one| one.as_str().contains(notice));
    client.until(&Topic::Overview, notice, is_stated).await.map(drop)
}

/// Waits until node `n2`, which both clusters have, is live with processes of this job only.
pub(super) async fn runs(relay: &TestRelay, job: u32) -> Result<()> {
    let mut client = Client::connect(relay.link(), Form::Json).await?;
    let topic = Topic::Node(NodeName::new("n2")?);
    client.subscribe(std::slice::from_ref(&topic)).await?;
    let of_job = |known: &Known| {
        let processes = known.picture.nodes.iter().flat_map(|node| &node.processes);
        let mut jobs = processes.filter_map(|process| process.facts.job).peekable();
        is_live(known) && jobs.peek().is_some() && jobs.all(|of| of.0 == job)
    };
    client.until(&topic, &format!("n2 with processes of job {job}"), of_job).await.map(drop)
}

#[tokio::test]
async fn the_second_cluster_of_a_name_is_neither_shared_nor_mixed_with_the_first() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let first = publishing(&server, FIRST, &[])?;
    let viewer = TestRelay::start(&["--view-only", "--nats", &server.url()])?;
    let mut on_viewer = overview(&viewer).await?;
    shows(&mut on_viewer, "the jobs of the first", &FIRST_JOBS).await?;
    // It has the name before it has a node.
    runs(&viewer, 102).await?;

    let second = publishing(&server, SECOND, &[])?;
    second.wait_for_text(GIVEN_UP)?;
    let mut on_second = overview(&second).await?;
    notes(&mut on_second, GIVEN_UP).await?;
    shows(&mut on_second, "its own jobs", &SECOND_JOBS).await?;
    runs(&second, 101).await?;
    notes(&mut on_viewer, NOT_SHOWN).await?;
    viewer.wait_for_text(NOT_SHOWN)?;
    shows(&mut on_viewer, "the jobs of the first only", &FIRST_JOBS).await?;
    runs(&viewer, 102).await?;
    runs(&first, 102).await?;
    anyhow::ensure!(!first.output().text().contains("another cluster"), "the first one has the name");

    let _renamed = publishing(&server, SECOND, &["--nats-cluster", "ml"])?;
    let both =
        [("101.hpc", "first 101"), ("102", "first 102"), ("101.ml", "second 101"), ("103", "second 103")];
    shows(&mut on_viewer, "the jobs of both, once they have two names", &both).await
}

#[tokio::test]
async fn without_leases_announcements_decide_which_cluster_has_a_name() -> Result<()> {
    let Some(server) = NatsServer::start_without_jetstream()? else { return Ok(()) };
    let first = publishing(&server, FIRST, &[])?;
    let viewer = TestRelay::start(&["--view-only", "--nats", &server.url()])?;
    let mut on_viewer = overview(&viewer).await?;
    shows(&mut on_viewer, "the jobs of the first", &FIRST_JOBS).await?;
    let second = publishing(&server, SECOND, &[])?;
    second.wait_for_text(GIVEN_UP)?;
    runs(&second, 101).await?;
    notes(&mut on_viewer, NOT_SHOWN).await?;
    shows(&mut on_viewer, "the jobs of the first only", &FIRST_JOBS).await?;
    runs(&viewer, 102).await?;

    drop(first);
    second.wait_for_text("no other cluster has the name of this one on NATS any more")?;
    // Those of the first are still listed as ended.
    let has_second = |known: &Known| {
        let shown = jobs(&known.picture);
        SECOND_JOBS.iter().all(|(label, name)| shown.get(label) == Some(name))
    };
    on_viewer.until(&Topic::Overview, "the jobs of the second", has_second).await?;
    runs(&viewer, 101).await
}

#[tokio::test]
async fn a_named_cluster_that_nobody_publishes_is_missed_until_somebody_does() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let _first = publishing(&server, FIRST, &[])?;
    let viewer = TestRelay::start(&["--view-only", "--cluster", "hpc,ml", "--nats", &server.url()])?;
    let missed = "no relay publishes the cluster ml over NATS";
    viewer.wait_for_text(missed)?;
    let _second = publishing(&server, SECOND, &["--nats-cluster", "ml"])?;
    viewer.wait_for_text(&format!("no longer: {missed}"))
}
