//! Starts a real relay on a cluster whose SLURM commands and nodes are simulated.

use anyhow::{Context, Result};
use nodeglass_protocol::JobId;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Link as Reach;
use nodeglass_tests::relay::{Link, binary};
use nodeglass_tests::{Client, TestRelay};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The one job.
pub const JOB: JobId = JobId(7);
/// Its name.
const CLUSTER: &str = "played";
/// Time limit until every node is live, on a busy machine.
const TIMEOUT: Duration = Duration::from_secs(180);

/// Behaviour of the simulated nodes.
#[derive(Clone, Copy, Debug, Default)]
pub struct NodeOptions {
    /// Fixed sampling interval in ms, for any requested interval.
    pub fixed_ms: Option<u32>,
    /// Each line holds the time at which it was written.
    pub stamped: bool,
}

/// A relay and its simulated cluster.
pub struct SimulatedCluster {
    relay: TestRelay,
    nodes: usize,
    started: Instant,
    _slurm: TempDir,
}

impl SimulatedCluster {
    /// Starts a relay with one job on `nodes` nodes, each a process of its own behind a pipe.
    pub fn start(nodes: usize, options: NodeOptions) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let probe = binary("examples/node")?;
        let arguments = ["--launcher", "local", "--probe", &probe.display().to_string()];
        Self::start_with(nodes, folder, &arguments, options)
    }

    /// Starts it with other relay arguments; `folder` comes first in the search path.
    pub fn start_with(
        nodes: usize,
        folder: TempDir,
        arguments: &[&str],
        options: NodeOptions,
    ) -> Result<Self> {
        let fixed = options.fixed_ms.map(|ms| OsString::from(ms.to_string()));
        let mut environment = Vec::new();
        environment.extend(fixed.as_ref().map(|ms| ("NODEGLASS_NODE_MS", ms.as_os_str())));
        environment.extend(options.stamped.then(|| ("NODEGLASS_NODE_STAMPED", "yes".as_ref())));
        Self::start_at(nodes, folder, arguments, &environment)
    }

    /// Starts it with other environment variables of the relay.
    pub fn start_at(
        nodes: usize,
        folder: TempDir,
        arguments: &[&str],
        environment: &[(&str, &OsStr)],
    ) -> Result<Self> {
        write_slurm_stubs(folder.path(), nodes)?;
        let path = path_with(folder.path());
        let environment = environment.iter().copied().chain([("PATH", path.as_os_str())]);
        let started = Instant::now();
        let relay = TestRelay::start_in(arguments, environment)?;
        Ok(Self { relay, nodes, started, _slurm: folder })
    }

    /// Starts a view-only relay that shows the same cluster from a NATS server.
    pub fn viewing(nodes: usize, url: &str) -> Result<Self> {
        let started = Instant::now();
        let relay = TestRelay::start(&["--view-only", "--cluster", CLUSTER, "--nats", url])?;
        Ok(Self { relay, nodes, started, _slurm: tempfile::tempdir()? })
    }

    /// Ends the relay, which completes what it writes.
    pub fn terminate(self) -> Result<()> {
        self.relay.terminate().map(drop)
    }

    /// The relay's pid.
    pub fn pid(&self) -> u32 {
        self.relay.pid()
    }

    /// The home of its owner.
    pub fn home(&self) -> &Path {
        self.relay.home()
    }

    /// Its link.
    pub fn link(&self) -> &Link {
        self.relay.link()
    }

    /// The topics of a page that shows the job.
    pub fn topics() -> [Topic; 2] {
        [Topic::Overview, Topic::Job(JOB)]
    }

    /// Connects a client that shows the job.
    pub async fn client(&self) -> Result<Client> {
        let mut client = Client::connect(self.relay.link(), Form::Binary).await?;
        client.subscribe(&Self::topics()).await?;
        Ok(client)
    }

    /// Waits until a client sees every node live with a sample; returns the time since the start.
    pub async fn settled(&self, client: &mut Client) -> Result<Duration> {
        let all_live = async {
            while !self.is_settled(client) {
                client.step().await?;
            }
            anyhow::Ok(self.started.elapsed())
        };
        tokio::time::timeout(TIMEOUT, all_live).await.context("not all nodes became live in time")?
    }

    fn is_settled(&self, client: &Client) -> bool {
        client.picture(&Topic::Job(JOB)).is_some_and(|picture| {
            let fresh = |node: &&nodeglass_protocol::picture::NodePicture| {
                node.head.link == Reach::Live && node.sampled_at_ms.is_some()
            };
            picture.nodes.iter().filter(fresh).count() == self.nodes
        })
    }
}

/// Writes a squeue and a scontrol that report one job on nodes `n0001` and so on.
fn write_slurm_stubs(folder: &Path, nodes: usize) -> Result<()> {
    let uid = rustix::process::geteuid().as_raw();
    let fields = [
        ("A", "7"),
        ("i", "7"),
        ("F", "7"),
        ("K", "N/A"),
        ("U", &uid.to_string()),
        ("u", "alice"),
        ("T", "RUNNING"),
        ("r", "None"),
        ("P", "gpu"),
        ("q", "normal"),
        ("a", "science"),
        ("V", "1763700000"),
        ("S", "1763700000"),
        ("e", "N/A"),
        ("l", "1-00:00:00"),
        ("D", &nodes.to_string()),
        ("C", &(nodes * 64).to_string()),
        ("N", &format!("n[0001-{nodes:04}]")),
        ("b", "gres:gpu:8"),
        ("E", "(null)"),
        ("B", "n0001"),
        ("Z", "/home/alice"),
        ("o", "/home/alice/train.sh"),
        ("j", "train"),
    ]
    .map(|(letter, value)| format!("-e 's|%{letter}|{value}|'"))
    .join(" ");
    // The titles of the columns come first; the relay reads the columns of the job's number and of its user.
    // A file lets it fail.
    let fails = folder.join("slurm-fails").display().to_string();
    let squeue = format!(
        "[ -e {fails} ] && {{ echo 'slurm_load_jobs error: Unable to contact slurm controller' >&2; exit 1; }}; \
         for word; do case $word in --format=*) format=\"${{word#--format=}}\"; \
         printf '%s\\n' \"$format\" | sed -e 's|%A|JOBID|' -e 's|%U|UID|'; \
         printf '%s\\n' \"$format\" | sed {fields};; esac; done"
    );
    program(folder, "squeue", &squeue)?;
    let config = format!("case \"$*\" in 'show config') echo 'ClusterName = {CLUSTER}';; esac");
    program(folder, "scontrol", &config).map(drop)
}

/// A shell script as a program.
pub fn program(folder: &Path, name: &str, script: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    fs::write(&path, format!("#!/bin/sh\n{script}\n"))?;
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    Ok(path)
}

fn path_with(folder: &Path) -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::iter::once(folder.to_owned()).chain(std::env::split_paths(&path));
    std::env::join_paths(folders).unwrap_or(path)
}
