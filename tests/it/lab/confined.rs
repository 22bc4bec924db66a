//! Where SLURM confines each job to its GPUs, probes in all jobs of a user on a node form one picture.

use super::page::LabPage;
use anyhow::{Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Evidence, GpuPicture, Link, NodePicture, Picture};
use nodeglass_protocol::{GpuField, JobId, NodeName};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::lab::{LoginRelay, Site};
use rustix::process::Signal;
use std::time::{Duration, Instant};

const NODE: &str = "gpu-node-01";
/// Job lists are up to date soon.
const POLLS: [&str; 2] = ["--slurm-interval", "5s"];
/// Trains until a file appears, and ends by itself.
const UNTIL_DONE: &str = "srun --overlap bash -c 'exec python3 -c \"import time; time.sleep(900)\" \
                          --gpus=$SLURM_STEP_GPUS --gpu-mem=20G' & \
                          until [ -e ~/done ]; do sleep 0.2; done";

/// The jobs of GPUs and of processes on a node, if it is live and each GPU has one owner and one process: `(minor,
/// owner)` in the order of the GPUs.
fn owners(picture: &Picture) -> Option<Vec<(u32, JobId)>> {
    let node = picture.nodes.iter().find(|node| node.name.as_str() == NODE)?;
    if node.head.link != Link::Live || node.processes.len() != node.gpus.len() {
        return None;
    }
    let gpu = |gpu: &GpuPicture| {
        let [owner] = &*gpu.owners else { return None };
        let processes: Vec<_> =
            node.processes.iter().filter(|process| process.facts.gpu == gpu.facts.uuid).collect();
        let is_busy = gpu.row.value(GpuField::Util).is_some() && owner.by == Evidence::GresIndex;
        let has_process = matches!(&*processes, [one] if one.facts.job == Some(owner.job));
        let minor = *gpu.facts.minor.value()?;
        (is_busy && has_process && gpu.facts.index == minor).then_some((minor, owner.job))
    };
    node.gpus.iter().map(gpu).collect()
}

/// Returns the statements about invisible GPUs.
fn limits(node: &NodePicture) -> Vec<String> {
    let sources = node.head.facts.iter().flat_map(|facts| &facts.sources);
    sources.filter_map(|source| Some(source.confinement()?.to_string())).collect()
}

/// Waits until the node's GPUs belong to these jobs, in this order.
async fn until_owned(client: &mut Client, jobs: &[JobId]) -> Result<NodePicture> {
    let is = |known: &Known| {
        owners(&known.picture)
            .is_some_and(|gpus| gpus.is_sorted_by_key(|gpu| gpu.0) && gpus.iter().map(|gpu| &gpu.1).eq(jobs))
    };
    let picture = client.until(&node_topic()?, &format!("GPUs of jobs {jobs:?}"), is).await?;
    Ok(picture.nodes[0].clone())
}

fn node_topic() -> Result<Topic> {
    Ok(Topic::Node(NodeName::new(NODE)?))
}

async fn connect(relay: &LoginRelay) -> Result<Client> {
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[node_topic()?]).await?;
    Ok(client)
}

/// The jobs with a step of a probe.
fn steps(site: &Site) -> Result<Vec<String>> {
    let steps = site.lab.text("login", "alice", &["squeue", "--steps", "--noheader", "--format=%i %j"])?;
    let ours = steps.lines().filter_map(|line| line.trim().strip_suffix(" nodeglass"));
    Ok(ours.filter_map(|id| Some(id.split_once('.')?.0.to_owned())).collect())
}

/// Waits until exactly these jobs have a step of a probe: SLURM ends a step some time after its processes.
async fn until_steps(site: &Site, jobs: &[JobId]) -> Result<()> {
    let mut expected: Vec<_> = jobs.iter().map(ToString::to_string).collect();
    expected.sort();
    let since = Instant::now();
    loop {
        let mut found = steps(site)?;
        found.sort();
        if found == expected {
            return Ok(());
        }
        ensure!(since.elapsed() < TIMEOUT, "steps of {found:?} instead of {expected:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

/// Waits until so many probes run on the node.
async fn until_probes(site: &Site, count: usize) -> Result<()> {
    let since = Instant::now();
    while site.probes(NODE)?.len() != count {
        ensure!(since.elapsed() < TIMEOUT, "{:?} instead of {count} probes", site.probes(NODE)?);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Looks at the node's page, and at the pages of both jobs there: each has its GPU and its process.
async fn look_at_both(page: &LabPage<'_>, jobs: [JobId; 2]) -> Result<()> {
    let limits = format!("2 of 4 GPUs visible: those of jobs {}, {}", jobs[0], jobs[1]);
    page.shows(
        &format!("/node/{NODE}"),
        &["A100-SXM4-80GB", "python3", "Σ of 160", &limits],
        "lab-confined-node",
    )
    .await?;
    let rows = "[...document.querySelectorAll('.grid--gpus tbody tr:not(.grid__space)')].length";
    ensure!(page.text(rows).await? == "2", "a GPU of each job");
    for (own, picture) in [(0, "lab-confined-first"), (1, "lab-confined-second")] {
        let path = format!("/job/{}/node/{NODE}", jobs[own]);
        let other = format!("of {} · ", jobs[1 - own]);
        page.shows(&path, &["Σ of 80", "python3", &other], picture).await?;
    }
    Ok(())
}

fn run(site: &Site, user: &str, gpus: u32) -> Result<JobId> {
    let job = site.train(user, &["-w", NODE, &format!("--gres=gpu:{gpus}")])?;
    site.lab.wait_until(job, "RUNNING")?;
    Ok(job)
}

#[tokio::test]
async fn gpus_of_all_jobs_of_a_user_are_shown_although_a_login_sees_those_of_one() -> Result<()> {
    let Some(site) = Site::confining_or_skip(1)? else { return Ok(()) };
    let first = run(&site, "alice", 1)?;
    let ending = site.lab.sbatch("alice", &["-w", NODE, "--gres=gpu:1"], UNTIL_DONE)?;
    site.lab.wait_until(ending, "RUNNING")?;
    run(&site, "bob", 1)?;
    let relay = site.relay_with("alice", &POLLS)?;
    let mut client = connect(&relay).await?;
    let node = until_owned(&mut client, &[first, ending]).await?;
    ensure!(limits(&node) == [format!("2 of 4 GPUs visible: those of jobs {first}, {ending}")], "{node:?}");
    // The login was adopted into the first job.
    until_steps(&site, &[ending]).await?;
    if let Some(page) = LabPage::open_or_skip(&relay).await? {
        look_at_both(&page, [first, ending]).await?;
        page.close().await?;
    }

    // A further job joins the picture; an ending job is not delayed, and its GPU leaves.
    let last = run(&site, "alice", 1)?;
    until_owned(&mut client, &[first, ending, last]).await?;
    site.lab.text("login", "alice", &["touch", "/home/alice/done"])?;
    site.lab.wait_until(ending, "COMPLETED")?;
    until_owned(&mut client, &[first, last]).await?;
    until_probes(&site, 2).await?;

    // With the first job, the login ends; the next one is adopted into the last job, which needs no second probe.
    site.lab.scancel("alice", first)?;
    let node = until_owned(&mut client, &[last]).await?;
    ensure!(
        limits(&node) == [format!("1 of 4 GPUs visible: this probe was adopted into job {last}")],
        "{node:?}"
    );
    until_probes(&site, 1).await?;
    until_steps(&site, &[]).await?;

    let next = run(&site, "alice", 2)?;
    until_owned(&mut client, &[next, next, last]).await?;
    relay.signal(Signal::KILL)?;
    until_probes(&site, 0).await?;
    for job in [last, next] {
        site.lab.wait_until(job, "RUNNING")?;
    }
    Ok(())
}

#[tokio::test]
async fn steps_of_all_jobs_of_a_user_are_shown_where_nodes_run_no_sshd() -> Result<()> {
    let Some(site) = Site::confining_or_skip(1)? else { return Ok(()) };
    site.lab.svc(NODE, "stop", "sshd")?;
    let jobs = [run(&site, "alice", 1)?, run(&site, "alice", 2)?];
    let relay = site.relay_with("alice", &[&POLLS[..], &["--launcher", "srun"]].concat())?;
    let mut client = connect(&relay).await?;
    until_owned(&mut client, &[jobs[0], jobs[1], jobs[1]]).await?;
    until_steps(&site, &jobs).await?;
    relay.stop()?;
    until_probes(&site, 0).await
}
