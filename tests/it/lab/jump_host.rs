//! A node that only a jump host leads to is reached with the user's own `ssh`, and left without traces.

use super::adopting::{NODE, link};
use super::page::LabPage;
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Link;
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::lab::Site;
use rustix::process::Signal;
use std::time::{Duration, Instant};

const GATE: &str = "gpu-node-01";

/// Number of `ssh` processes on the login host.
fn ssh_processes(site: &Site) -> Result<usize> {
    let proc = site.lab.host_path("login")?.join("proc");
    let processes = std::fs::read_dir(proc)?.flatten();
    let is_ssh = |path: &std::path::Path| {
        let cmdline = std::fs::read(path.join("cmdline")).unwrap_or_default();
        cmdline.split(|byte| *byte == 0).next() == Some(b"ssh")
    };
    Ok(processes.filter(|process| is_ssh(&process.path())).count())
}

#[tokio::test]
async fn a_node_behind_a_jump_host_is_reached_with_the_users_ssh() -> Result<()> {
    let Some(site) = Site::up_or_skip(2)? else { return Ok(()) };
    let job = site.train("alice", &["-w", NODE, "--gres=gpu:1"])?;
    site.lab.wait_until(job, "RUNNING")?;
    // No packet from the login host reaches the node.
    let route = format!("ip route add prohibit $(getent ahostsv4 {NODE} | cut -d' ' -f1 | head -1)");
    site.lab.text("login", "root", &["sh", "-c", &route])?;
    let config = format!("Host {NODE}\\n ProxyJump {GATE}\\n");
    let script = format!("mkdir -p ~/.ssh && printf '{config}' > ~/.ssh/config && chmod 600 ~/.ssh/config");
    site.lab.text("login", "alice", &["bash", "-c", &script])?;

    let mut relay = site.relay("alice")?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let is_live = |known: &Known| link(&known.picture) == Some(&Link::Live);
    let picture = client.until(&Topic::Overview, "a live node", is_live).await?;
    let launcher = picture.relay.launcher.clone().context("the launcher is known")?;
    let reason = launcher.reason.context("a reason")?;
    ensure!(launcher.name.as_str() == "openssh", "{}", launcher.name);
    ensure!(reason.as_str().starts_with(&format!("{NODE} is reached through {GATE}")), "{reason}");
    relay.process.wait_for("a line in the terminal", |text| {
        text.contains("starting probes with openssh from now on, because gpu-node-02").then_some(())
    })?;
    ensure!(
        ssh_processes(&site)? == 2 && site.probes(NODE)?.len() == 1,
        "one for the node, one for the gate"
    );

    if let Some(page) = LabPage::open_or_skip(&relay).await? {
        let path = format!("/job/{job}/node/{NODE}");
        let why = format!("{NODE} is reached through {GATE}");
        let texts = ["A100-SXM4-80GB", "python3", "Σ of 80", "probes started with openssh", &why];
        page.shows(&path, &texts, "lab-jump-host").await?;
        page.close().await?;
    }

    // The jump host dies: its node says so, and is back with it.
    site.lab.svc(GATE, "stop", "sshd")?;
    site.lab.text(GATE, "root", &["pkill", "-KILL", "-u", "alice", "sshd"])?;
    let says_why = |known: &Known| match link(&known.picture) {
        Some(Link::Down { reason, .. }) => {
            reason.as_str().starts_with(&format!("{NODE} could not be reached through {GATE}: "))
        }
        _ => false,
    };
    client.until(&Topic::Overview, "the failure of the jump host", says_why).await?;
    site.lab.svc(GATE, "start", "sshd")?;
    client.until(&Topic::Overview, "a live node", is_live).await?;

    relay.signal(Signal::KILL)?;
    let since = Instant::now();
    while ssh_processes(&site)? > 0 || !site.probes(NODE)?.is_empty() {
        ensure!(since.elapsed() < TIMEOUT, "ssh or a probe outlives the relay");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
