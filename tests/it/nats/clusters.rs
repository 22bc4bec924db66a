//! One view-only relay shows several clusters whose nodes and jobs have the same names.

use super::is_live;
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Picture;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::nats::NatsServer;
use nodeglass_tests::relay::TestRelay;
use std::collections::BTreeMap;
use std::fs;

/// Two publishing relays, and one that views both.
pub(crate) struct TwoClusters {
    _server: NatsServer,
    _scenarios: tempfile::TempDir,
    _publishers: Vec<TestRelay>,
    pub(crate) viewer: TestRelay,
}

/// Nodes of a cluster, and its jobs with their nodes.
pub(super) type Cluster<'a> = (&'a str, &'a str, &'a [(u32, &'a str)]);

/// Node `n2` and job 101 are in both.
const CLUSTERS: [Cluster<'_>; 2] =
    [("alpha", "n[1-2]", &[(101, "n1"), (102, "n2")]), ("beta", "n[2-3]", &[(101, "n2"), (103, "n3")])];

pub(super) fn scenario((cluster, nodes, jobs): Cluster<'_>) -> String {
    let job = |(id, nodes): &(u32, &str)| {
        format!(
            "[[job]]\nid = {id}\nname = \"{cluster} {id}\"\npartition = \"gpu\"\nsubmitted = \"-2h\"\nstart = \"-1h\"\n\
             limit = \"1d\"\nnodes = \"{nodes}\"\nbehaviour = \"training\"\nmemory_pct = 50\nargs = \"train.py\"\n"
        )
    };
    let jobs: String = jobs.iter().map(job).collect();
    let seed = cluster.len();
    format!(
        "cluster = \"{cluster}\"\nuser = \"alice\"\nseed = {seed}\n\n[[node]]\nname = \"{nodes}\"\nmodel = \"h100\"\ngpus = 2\n\
         cpus = 8\nmem_gib = 64\n\n{jobs}"
    )
}

impl TwoClusters {
    /// Starts all; `None` if there is no nats-server.
    pub(crate) fn start(view: &[&str]) -> Result<Option<Self>> {
        let Some(server) = NatsServer::start(&[])? else { return Ok(None) };
        let (url, scenarios) = (server.url(), tempfile::tempdir()?);
        let mut publishers = Vec::new();
        for cluster in CLUSTERS {
            let file = scenarios.path().join(cluster.0);
            fs::write(&file, scenario(cluster))?;
            let file = file.to_str().context("a path in UTF-8")?;
            publishers.push(TestRelay::start(&["--scenario", file, "--nats", &url])?);
        }
        let viewer = TestRelay::start(&[&["--view-only", "--nats", &url], view].concat())?;
        Ok(Some(Self { _server: server, _scenarios: scenarios, _publishers: publishers, viewer }))
    }
}

/// The names of the jobs by their labels.
pub(super) fn jobs(picture: &Picture) -> BTreeMap<&str, &str> {
    picture.jobs.iter().map(|job| (job.label.as_str(), job.name.as_str())).collect()
}

async fn both(client: &mut Client) -> Result<&Picture> {
    let all =
        [("101.alpha", "alpha 101"), ("101.beta", "beta 101"), ("102", "alpha 102"), ("103", "beta 103")];
    client
        .until(&Topic::Overview, "the jobs of both", |known: &Known| jobs(&known.picture) == all.into())
        .await
}

#[tokio::test]
async fn jobs_and_nodes_of_two_clusters_are_in_one_fleet() -> Result<()> {
    let Some(clusters) = TwoClusters::start(&[])? else { return Ok(()) };
    let mut client = Client::connect(clusters.viewer.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let mut ids = BTreeMap::new();
    for job in &both(&mut client).await?.jobs {
        ids.insert(job.label.as_str().to_owned(), job.id);
    }
    ensure!(ids["101.alpha"] != ids["101.beta"], "{ids:?}");
    for (node, label) in [("n1", "101.alpha"), ("n2.alpha", "102"), ("n2.beta", "101.beta"), ("n3", "103")] {
        let topic = Topic::Node(NodeName::new(node)?);
        client.subscribe(&[topic.clone(), Topic::Overview]).await?;
        let of_job = |known: &Known| {
            let processes = known.picture.nodes.iter().flat_map(|node| &node.processes);
            let mut jobs = processes.filter_map(|process| process.facts.job).peekable();
            is_live(known) && jobs.peek().is_some() && jobs.all(|job| job == ids[label])
        };
        client.until(&topic, &format!("{node} with processes of job {label}"), of_job).await?;
    }
    Ok(())
}

#[tokio::test]
async fn only_the_named_clusters_are_viewed() -> Result<()> {
    let Some(clusters) = TwoClusters::start(&["--cluster", "beta"])? else { return Ok(()) };
    let mut client = Client::connect(clusters.viewer.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let beta = [("101", "beta 101"), ("103", "beta 103")];
    client
        .until(&Topic::Overview, "the jobs of beta", |known: &Known| jobs(&known.picture) == beta.into())
        .await?;
    let topic = Topic::Node(NodeName::new("n2")?);
    client.subscribe(std::slice::from_ref(&topic)).await?;
    client.until(&topic, "a live node", is_live).await?;
    Ok(())
}

/// What a command of a relay prints, whether it succeeds or not.
fn prints(relay: &TestRelay, args: &[&str]) -> Result<(bool, String)> {
    let output = TestRelay::command(relay.home())?.args(args).output()?;
    let text = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8(text)?))
}

#[tokio::test]
async fn commands_take_the_cluster_of_a_job_and_ask_for_it_where_two_have_one() -> Result<()> {
    let Some(clusters) = TwoClusters::start(&[])? else { return Ok(()) };
    let relay = &clusters.viewer;
    let mut client = Client::connect(relay.link(), Form::Json).await?;
    client.subscribe(&[Topic::Overview]).await?;
    both(&mut client).await?;
    for (cluster, other) in [("alpha", "beta"), ("beta", "alpha")] {
        let named = format!("101.{cluster}");
        let (is_found, text) = prints(relay, &["jobs", "--job", &named, "--json"])?;
        let (own, others) = (format!("{cluster} 101"), format!("{other} 101"));
        ensure!(is_found && text.contains(&own) && !text.contains(&others), "{named}: {text}");
        let (_, text) = prints(relay, &["wait", &named, "--until", "start"])?;
        ensure!(text.contains(&format!("job {named}: RUNNING")), "{named}: {text}");
    }
    let choices = "several clusters have a job 101; choose 101.alpha or 101.beta";
    for args in
        [&["jobs", "--job", "101"][..], &["wait", "101"], &["list", "--job", "101"], &["report", "101"]]
    {
        let (is_found, text) = prints(relay, args)?;
        ensure!(!is_found && text.contains(choices), "{args:?}: {text}");
    }
    let (is_found, text) = prints(relay, &["list", "--node", "n2"])?;
    ensure!(!is_found && text.contains("choose n2.alpha or n2.beta"), "{text}");
    let (is_found, text) = prints(relay, &["list", "--node", "n2.beta"])?;
    ensure!(is_found, "{text}");
    Ok(())
}
