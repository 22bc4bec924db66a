//! On nodes without sshd, probes run as steps of the user's jobs, and end with them.

use super::adopting::{NODE, link};
use super::page::LabPage;
use anyhow::{Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Link;
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::lab::Site;
use rustix::process::Signal;
use std::time::{Duration, Instant};

/// Waits until no probe runs on the node.
async fn until_no_probe(site: &Site) -> Result<()> {
    let since = Instant::now();
    while !site.probes(NODE)?.is_empty() {
        ensure!(since.elapsed() < TIMEOUT, "a probe outlives its job or its relay");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

#[tokio::test]
async fn a_node_without_sshd_is_watched_through_a_step_of_its_job() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    site.lab.svc(NODE, "stop", "sshd")?;
    let jobs = [
        site.train("alice", &["-w", NODE, "--gres=gpu:1"])?,
        site.train("alice", &["-w", NODE, "--gres=gpu:1"])?,
    ];
    for job in jobs {
        site.lab.wait_until(job, "RUNNING")?;
    }
    let relay = site.relay_with("alice", &["--launcher", "srun"])?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let is_live = |known: &Known| {
        let has_gpus = known.picture.nodes.iter().any(|node| !node.gpus.is_empty());
        has_gpus && link(&known.picture) == Some(&Link::Live)
    };
    let picture = client.until(&Topic::Overview, "a live node", is_live).await?;
    ensure!(picture.relay.launcher.as_ref().is_some_and(|launcher| launcher.name.as_str() == "srun"));
    let steps = site.lab.text("login", "alice", &["squeue", "--steps", "--noheader", "--format=%i %j"])?;
    let steps: Vec<&str> = steps.lines().filter(|line| line.ends_with("nodeglass")).collect();
    ensure!(
        steps.len() == 1 && steps[0].starts_with(&format!("{}.", jobs[1])),
        "one step, of the newest job: {steps:?}"
    );

    if let Some(page) = LabPage::open_or_skip(&relay).await? {
        let texts = ["A100-SXM4-80GB", "python3", "Σ of 80", "probes started with srun"];
        page.shows(&format!("/job/{}/node/{NODE}", jobs[0]), &texts, "lab-srun").await?;
        page.close().await?;
    }

    // The step ends with its job, and the next one is a step of the job that is left.
    site.lab.scancel("alice", jobs[1])?;
    site.lab.wait_until(jobs[1], "CANCELLED")?;
    let is_down = |known: &Known| link(&known.picture) != Some(&Link::Live);
    client.until(&Topic::Overview, "the end of the step", is_down).await?;
    client.until(&Topic::Overview, "a step of the other job", is_live).await?;

    site.lab.scancel("alice", jobs[0])?;
    let is_over = |known: &Known| matches!(link(&known.picture), None | Some(Link::Ended));
    client.until(&Topic::Overview, "the end of the last job", is_over).await?;
    until_no_probe(&site).await?;

    let job = site.train("alice", &["-w", NODE, "--gres=gpu:1"])?;
    site.lab.wait_until(job, "RUNNING")?;
    client.until(&Topic::Overview, "the next job's node", is_live).await?;
    relay.signal(Signal::KILL)?;
    until_no_probe(&site).await
}
