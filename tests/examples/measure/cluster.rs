//! Compares nvnodetop and a relay on the same jobs of the same namespaced cluster, one after the
//! other, by cgroup accounting.

use crate::cgroup::Cgroup;
use crate::report::Report;
use crate::site::program;
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_tests::lab::Site;
use nodeglass_tests::process::Process;
use nodeglass_tests::{Client, SlurmLab};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tokio::time::{sleep, timeout};

/// GPU nodes, with four GPUs each.
const NODES: u32 = 2;
const WATCHED: Duration = Duration::from_secs(45);
/// Waiting time until start-up work is over.
const SETTLE: Duration = Duration::from_secs(10);
/// Path of nvnodetop's script on the login host.
const PEER: &str = "/opt/nvnodetop.sh";
/// An `nvidia-smi` that responds at once: the real one costs more.
const NVIDIA_SMI: &str = "case \"$1\" in \
    --query-gpu=index,gpu_uuid) for i in 0 1 2 3; do echo \"$i, GPU-$i\"; done;; \
    --query-gpu=*) for i in 0 1 2 3; do echo \"$i, A100, 97, 61440, 81920, 61, 301.5, 400.0, 1380, 1593, Not Active, Not Active, 0\"; done;; \
    --query-compute-apps=*) for i in 0 1 2 3; do echo \"GPU-$i, 1, 20480, python3\"; done;; esac";

/// Measures the requested figures.
pub async fn measure(report: &Report) -> Result<()> {
    if let Some(why) = SlurmLab::why_not() {
        println!("nvnodetop is not measured: {why}");
        return Ok(());
    }
    let Some(script) = peer() else {
        println!("nvnodetop is not here (no python3)");
        return Ok(());
    };
    let Some(site) = Site::up_or_skip(NODES)? else { return Ok(()) };
    site.train("alice", &["-N2", "--gres=gpu:4"])?;
    prepare(&site, &script)?;
    let hosts = Hosts::of(&site)?;
    let theirs = theirs(&site, &hosts).await?;
    let ours = ours(&site, &hosts).await?;
    println!("nvnodetop: {theirs}");
    println!("nodeglass: {ours}");
    let note = format!("{NODES} nodes, login and nodes together; theirs {theirs}; ours {ours}");
    report.value("probe.vs_nvnodetop_poll_cpu_ratio", ours.total() / theirs.total(), &note);
    Ok(())
}

/// nvnodetop's script inside its package.
fn peer() -> Option<PathBuf> {
    let bin = PathBuf::from(std::env::var_os("NODEGLASS_PEERS")?);
    let pythons = fs::read_dir(bin.parent()?.join("lib")).ok()?;
    let place = |entry: fs::DirEntry| entry.path().join("site-packages/nvnodetop/nvnodetop.sh");
    pythons.flatten().map(place).find(|script| script.is_file())
}

fn prepare(site: &Site, script: &Path) -> Result<()> {
    site.lab.put("login", script, PEER, 0o755)?;
    let folder = tempfile::tempdir()?;
    let tool = program(folder.path(), "nvidia-smi", NVIDIA_SMI)?;
    site.lab.nodes().iter().try_for_each(|node| site.lab.put(node, &tool, "/usr/bin/nvidia-smi", 0o755))
}

/// CPU time per second, in ms, on login host and nodes.
struct Cost {
    login: f64,
    node: f64,
}

impl Cost {
    fn total(&self) -> f64 {
        self.login + self.node * f64::from(NODES)
    }
}

impl std::fmt::Display for Cost {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:.2} ms/s on login, {:.2} ms/s a node", self.login, self.node)
    }
}

/// The control groups: the monitor on the login host, and each node's sshd with all that it starts.
struct Hosts {
    login: Cgroup,
    nodes: Cgroup,
}

impl Hosts {
    fn of(site: &Site) -> Result<Self> {
        let (login, nodes) = (Cgroup::new("login")?, Cgroup::new("nodes")?);
        for node in site.lab.nodes() {
            nodes.take(sshd_of(&site.lab.host_path(&node)?)?)?;
        }
        Ok(Self { login, nodes })
    }

    /// CPU time from now on, while `watching` continues.
    async fn watch(&self, watching: impl Future<Output = ()>) -> Result<Cost> {
        let before = (Instant::now(), self.login.used()?, self.nodes.used()?);
        // It never ends by itself.
        let _ = timeout(WATCHED, watching).await;
        let seconds = before.0.elapsed().as_secs_f64();
        let login = (self.login.used()? - before.1).as_secs_f64() * 1e3 / seconds;
        let nodes = (self.nodes.used()? - before.2).as_secs_f64() * 1e3 / seconds;
        Ok(Cost { login, node: nodes / f64::from(NODES) })
    }
}

/// The sshd of a host: it shares the namespace of the host's first process. `root` is `/proc/PID/root`.
fn sshd_of(root: &Path) -> Result<Vec<u32>> {
    let first = root.parent().context("a host's root is a process's")?;
    let namespace = fs::read_link(first.join("ns/pid"))?;
    let pids = fs::read_dir("/proc")?.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    let is_sshd = |pid: &u32| {
        let inside = fs::read_link(format!("/proc/{pid}/ns/pid")).is_ok_and(|link| link == namespace);
        inside && fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|name| name.trim() == "sshd")
    };
    let found: Vec<_> = pids.filter(is_sshd).collect();
    ensure!(!found.is_empty(), "no sshd runs on the host at {}", root.display());
    Ok(found)
}

/// nvnodetop with its defaults in its own terminal.
async fn theirs(site: &Site, hosts: &Hosts) -> Result<Cost> {
    // It waits until it is accounted for, and for keys that never come.
    let script = format!("sleep 3; sleep 600 | TERM=xterm script -qfc 'bash {PEER}' /dev/null >/dev/null");
    let running = site.lab.spawn("login", "alice", &["sh", "-c", &script])?;
    account(hosts, &running)?;
    sleep(SETTLE).await;
    hosts.watch(std::future::pending()).await
}

/// A relay with one page that shows the job.
async fn ours(site: &Site, hosts: &Hosts) -> Result<Cost> {
    let relay = site.relay("alice")?;
    account(hosts, &relay.process)?;
    let mut client = Client::connect(&relay.link, Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let seen = |known: &nodeglass_tests::client::Known| !known.picture.jobs.is_empty();
    let picture = client.until(&Topic::Overview, "the job", seen).await?;
    let job = picture.jobs.first().context("the job is there")?.id;
    client.subscribe(&[Topic::Overview, Topic::Job(job)]).await?;
    let live = |known: &nodeglass_tests::client::Known| {
        let sampled = known.picture.nodes.iter().filter(|node| node.sampled_at_ms.is_some());
        sampled.count() == NODES as usize
    };
    client.until(&Topic::Job(job), "both nodes", live).await?;
    let reading = async move { while client.frame().await.is_ok() {} };
    tokio::pin!(reading);
    let _ = timeout(SETTLE, &mut reading).await;
    hosts.watch(reading).await
}

/// Accounts for a program on the login host, and all that it starts, from now on.
fn account(hosts: &Hosts, running: &Process) -> Result<()> {
    hosts.login.take([SlurmLab::inner_pid(running)?])
}
