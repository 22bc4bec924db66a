//! A site is the cluster as alice meets it: GPUs that NVML tells of, jobs that use them, a relay on the login host.

use super::{LabOptions, SlurmLab, Tunnel};
use crate::process::Process;
use crate::relay::{Link, binary};
use anyhow::{Context, Result};
use nodeglass_protocol::JobId;
use rustix::process::{Pid, Signal, kill_process};
use std::path::Path;
use tempfile::TempDir;

/// Where the relay and its probe lie on the login host; the nodes do not see it.
const RELAY: &str = "/opt/nodeglass/relay";
/// What jobs run: one process per node that NVML lists on the step's own GPUs.
const TRAINING: &str = "exec srun bash -c 'exec python3 -c \"import time; time.sleep(900)\" \
                        --gpus=${SLURM_STEP_GPUS:-$CUDA_VISIBLE_DEVICES} --gpu-mem=20G'";

/// A cluster of nodes with four GPUs each, whose NVML is the stand-in of these tests.
#[derive(Debug)]
pub struct Site {
    /// The cluster.
    pub lab: SlurmLab,
    _state: TempDir,
}

/// A relay that alice started on the login host, and the way to it.
#[derive(Debug)]
pub struct LoginRelay {
    /// The relay, or rather what runs it inside the host.
    pub process: Process,
    /// Its link, as it opens through the tunnel.
    pub link: Link,
    _tunnel: Tunnel,
}

impl LoginRelay {
    /// Ends the relay as `kill` does; the tunnel stays open and leads nowhere.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn stop(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Sends the relay itself a signal, not what runs it inside the host.
    ///
    /// # Errors
    /// When it is gone already.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let pid = i32::try_from(SlurmLab::inner_pid(&self.process)?)?;
        Ok(kill_process(Pid::from_raw(pid).context("a pid is not zero")?, signal)?)
    }
}

impl Site {
    /// Starts one, or says that the running test is skipped.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn up_or_skip(nodes: u32) -> Result<Option<Self>> {
        Self::with(nodes, false)
    }

    /// The same, where users get onto a node only beside a job of theirs, and leave with it (`pam_slurm_adopt`).
    ///
    /// # Errors
    /// When it does not come up.
    pub fn adopting_or_skip(nodes: u32) -> Result<Option<Self>> {
        Self::with(nodes, true)
    }

    fn with(nodes: u32, adopts: bool) -> Result<Option<Self>> {
        let why_not = SlurmLab::why_not().or_else(|| SlurmLab::why_not_adopting().filter(|_| adopts));
        if let Some(why) = why_not {
            crate::skip::skip(&why);
            return Ok(None);
        }
        let state = tempfile::tempdir()?;
        let file = state.path().join("state.json");
        let gpu = r#"{"name": "NVIDIA A100-SXM4-80GB"}"#;
        let gpus = [gpu; 4].join(",");
        std::fs::write(&file, format!(r#"{{"motion": true, "train_processes": true, "gpus": [{gpus}]}}"#))?;
        let options = LabOptions {
            nodes,
            nvml: Some(binary("libfake_nvml.so")?),
            nvml_state: Some(file),
            // SLURM's own default: a pulled cable must not end the jobs that are watched.
            slurmd_timeout_s: 300,
            adopts,
            ..LabOptions::default()
        };
        let lab = SlurmLab::up(&options)?;
        for name in ["relay", "node-probe"] {
            lab.put("login", &binary(name)?, &format!("/opt/nodeglass/{name}"), 0o755)?;
        }
        Ok(Some(Self { lab, _state: state }))
    }

    /// Submits a job that trains on its GPUs.
    ///
    /// # Errors
    /// When SLURM refuses.
    pub fn train(&self, user: &str, args: &[&str]) -> Result<JobId> {
        self.lab.sbatch(user, args, TRAINING)
    }

    /// Starts a relay as `user` on the login host, and opens a tunnel to it.
    ///
    /// # Errors
    /// When it prints no link.
    pub fn relay(&self, user: &str) -> Result<LoginRelay> {
        self.relay_with(user, &[])
    }

    /// The same with further arguments.
    ///
    /// # Errors
    /// When it prints no link.
    pub fn relay_with(&self, user: &str, args: &[&str]) -> Result<LoginRelay> {
        let argv = [&[RELAY, "--bind", "127.0.0.1:8080", "--log", "debug"], args].concat();
        let mut process = self.lab.spawn("login", user, &argv)?;
        let there = process.wait_for("a link", Link::find)?;
        let tunnel = self.lab.tunnel(user, &there.authority)?;
        let link = there.at(&format!("127.0.0.1:{}", tunnel.port()));
        Ok(LoginRelay { process, link, _tunnel: tunnel })
    }

    /// What `relay ARGS…` prints when `user` runs it on the login host.
    ///
    /// # Errors
    /// When it fails, with what it said.
    pub fn run_relay(&self, user: &str, args: &[&str]) -> Result<String> {
        self.lab.text("login", user, &[&[RELAY], args].concat())
    }

    /// A way for `user` to the relay on the login host, as their own laptop opens it.
    ///
    /// # Errors
    /// When ssh refuses.
    pub fn tunnel(&self, user: &str) -> Result<Tunnel> {
        self.lab.tunnel(user, "127.0.0.1:8080")
    }

    /// Pids of the probes on a node, as the node numbers them.
    ///
    /// # Errors
    /// When the node is not up.
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

/// Whether a process runs the probe's program, whatever its name has been cut to.
fn is_probe(process: &Path) -> bool {
    let cmdline = std::fs::read(process.join("cmdline")).unwrap_or_default();
    let program = cmdline.split(|byte| *byte == 0).next().unwrap_or_default();
    String::from_utf8_lossy(program).contains("node-probe")
}
