//! A lab cluster as user alice sees it: GPUs in NVML, jobs that use them, a relay on the login host.

use super::{LabOptions, SlurmLab, Tunnel};
use crate::process::Process;
use crate::relay::{Link, binary};
use anyhow::{Context, Result};
use nodeglass_protocol::JobId;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use std::fs::File;
use std::path::Path;
use tempfile::TempDir;

/// The folder of relay and probe on the login host; nodes do not see it.
const RELAY: &str = "/opt/nodeglass/relay";
/// The jobs' program: one process per GPU that NVML lists for the step.
const TRAINING: &str = "exec srun bash -c 'exec python3 -c \"import time; time.sleep(900)\" \
                        --gpus=${SLURM_STEP_GPUS:-$CUDA_VISIBLE_DEVICES} --gpu-mem=20G'";

/// The way users log in to nodes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Logins {
    /// At any time.
    Free,
    /// While they have a job there, which adopts the login.
    Adopted,
    /// While they have a job there, and the login sees the GPUs of that job only.
    Confined,
}

/// A cluster of nodes with four fake GPUs each.
#[derive(Debug)]
pub struct Site {
    /// The cluster.
    pub lab: SlurmLab,
    /// Files that are put on its nodes.
    state: TempDir,
    /// Held while the cluster has cgroups, whose names do not differ between clusters.
    _cgroups: Option<File>,
}

/// A relay started by alice on the login host, with a tunnel to it.
#[derive(Debug)]
pub struct LoginRelay {
    /// The relay, or rather its wrapper inside the host.
    pub process: Process,
    /// Its link through the tunnel.
    pub link: Link,
    _tunnel: Tunnel,
}

impl LoginRelay {
    /// Terminates the relay; the tunnel stays open.
    ///
    /// # Errors
    /// If it has exited already.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends a signal to the relay itself, not its wrapper.
    ///
    /// # Errors
    /// If it has exited already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(SlurmLab::inner_pid(&self.process)?)?;
        Ok(kill_process(Pid::from_raw(pid).context("a pid is not zero")?, signal)?)
    }
}

impl Site {
    /// Starts a cluster, or skips the test.
    ///
    /// # Errors
    /// If it does not start.
    pub fn up_or_skip(nodes: u32) -> Result<Option<Self>> {
        Self::with(nodes, Logins::Free)
    }

    /// Starts it with `pam_slurm_adopt`: users may log in to a node only while they have a job there.
    ///
    /// # Errors
    /// If it does not start.
    pub fn adopting_or_skip(nodes: u32) -> Result<Option<Self>> {
        Self::with(nodes, Logins::Adopted)
    }

    /// Starts it with `pam_slurm_adopt` and confinement: a job's processes, including the logins that it adopts, see
    /// the job's GPUs only.
    ///
    /// # Errors
    /// If it does not start.
    pub fn confining_or_skip(nodes: u32) -> Result<Option<Self>> {
        Self::with(nodes, Logins::Confined)
    }

    /// Starts it with slurmdbd, so that sacct works.
    ///
    /// # Errors
    /// If it does not start.
    pub fn accounting_or_skip(nodes: u32) -> Result<Option<Self>> {
        if let Some(why) = SlurmLab::why_not().or_else(SlurmLab::why_not_accounting) {
            crate::skip::skip(&why);
            return Ok(None);
        }
        Self::start(nodes, Logins::Free, true)
    }

    fn with(nodes: u32, logins: Logins) -> Result<Option<Self>> {
        Self::start(nodes, logins, false)
    }

    fn start(nodes: u32, logins: Logins, accounts: bool) -> Result<Option<Self>> {
        let (adopts, confines) = (logins != Logins::Free, logins == Logins::Confined);
        let why_not = SlurmLab::why_not().or_else(|| SlurmLab::why_not_adopting().filter(|_| adopts));
        if let Some(why) = why_not {
            crate::skip::skip(&why);
            return Ok(None);
        }
        let cgroups = adopts.then(lock_cgroups).transpose()?;
        let state = tempfile::tempdir()?;
        let file = state.path().join("state.json");
        let gpu = r#"{"name": "NVIDIA A100-SXM4-80GB"}"#;
        let gpus = [gpu; 4].join(",");
        std::fs::write(
            &file,
            format!(
                r#"{{"motion": true, "train_processes": true, "confined": {confines}, "fresh_ms": 100, "gpus": [{gpus}]}}"#
            ),
        )?;
        let options = LabOptions {
            nodes,
            nvml: Some(binary("libfake_nvml.so")?),
            nvml_state: Some(file),
            // SLURM's own default: a disconnected node must not end the jobs that are watched.
            slurmd_timeout_s: 300,
            adopts,
            confines,
            accounts,
            ..LabOptions::default()
        };
        let lab = SlurmLab::up(&options)?;
        for name in ["relay", "node-probe"] {
            lab.put("login", &binary(name)?, &format!("/opt/nodeglass/{name}"), 0o755)?;
        }
        Ok(Some(Self { lab, state, _cgroups: cgroups }))
    }

    /// Replaces what NVML reports of the GPUs of a node, which then do not vary by themselves.
    ///
    /// # Errors
    /// If the node is not up.
    pub fn set_gpus(&self, node: &str, gpus: &[Value]) -> Result<()> {
        let state = json!({ "train_processes": true, "fresh_ms": 100, "gpus": gpus });
        let file = self.state.path().join(format!("{node}.json"));
        std::fs::write(&file, state.to_string())?;
        self.lab.put(node, &file, fake_nvml::install::STATE_PATH, 0o644)
    }

    /// Submits a job that trains on its GPUs.
    ///
    /// # Errors
    /// If SLURM rejects it.
    pub fn train(&self, user: &str, args: &[&str]) -> Result<JobId> {
        self.lab.sbatch(user, args, TRAINING)
    }

    /// Starts a relay as `user` on the login host, and opens a tunnel to it.
    ///
    /// # Errors
    /// If it prints no link.
    pub fn relay(&self, user: &str) -> Result<LoginRelay> {
        self.relay_with(user, &[])
    }

    /// Starts a relay with additional arguments.
    ///
    /// # Errors
    /// If it prints no link.
    pub fn relay_with(&self, user: &str, args: &[&str]) -> Result<LoginRelay> {
        let argv = [&[RELAY, "--bind", "127.0.0.1:8080", "--log", "debug"], args].concat();
        let mut process = self.lab.spawn("login", user, &argv)?;
        let there = process.wait_for("a link", Link::find)?;
        let tunnel = self.lab.tunnel(user, &there.authority)?;
        let link = there.at(&format!("127.0.0.1:{}", tunnel.port()));
        Ok(LoginRelay { process, link, _tunnel: tunnel })
    }

    /// The output of `relay ARGS…`, run by `user` on the login host.
    ///
    /// # Errors
    /// If it fails, with its output.
    pub fn run_relay(&self, user: &str, args: &[&str]) -> Result<String> {
        self.lab.text("login", user, &[&[RELAY], args].concat())
    }

    /// A tunnel of `user` to the relay on the login host, as from their own laptop.
    ///
    /// # Errors
    /// If ssh fails.
    pub fn tunnel(&self, user: &str) -> Result<Tunnel> {
        self.lab.tunnel(user, "127.0.0.1:8080")
    }

    /// Pids of the probes on a node, in the node's pid namespace.
    ///
    /// # Errors
    /// If the node is not up.
    pub fn probes(&self, node: &str) -> Result<Vec<u32>> {
        let proc = self.lab.host_path(node)?.join("proc");
        let mut found = Vec::new();
        for entry in std::fs::read_dir(&proc).with_context(|| format!("list the processes of {node}"))? {
            let path = entry?.path();
            let pid: Option<u32> =
                path.file_name().and_then(|name| name.to_str()).and_then(|name| name.parse().ok());
            found.extend(pid.filter(|_| is_probe(&path)));
        }
        Ok(found)
    }
}

/// Waits until no other cluster on this machine has cgroups, until the file is closed.
fn lock_cgroups() -> Result<File> {
    let file = File::create("/run/nodeglass-lab-cgroups.lock")?;
    file.lock().context("wait for another cluster with cgroups")?;
    Ok(file)
}

/// Returns whether a process runs the probe's program, even if its name was truncated.
fn is_probe(process: &Path) -> bool {
    let cmdline = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let program = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(program).contains("node-probe")
}
