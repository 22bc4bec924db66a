//! A real SLURM cluster with sshd on every host, removed without a trace when [`SlurmLab`] is dropped.

use crate::TIMEOUT;
use crate::process::Process;
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::JobId;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

pub mod site;
mod tunnel;

pub use site::{LoginRelay, Site};
pub use tunnel::Tunnel;

/// The configuration of a cluster.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// Number of GPU nodes: `gpu-node-01` and so on.
    pub nodes: u32,
    /// GPUs of the nodes, assigned round robin: `a100:4`, `a100:4 h100:8 :2 none`.
    pub gpus: String,
    /// The `libnvidia-ml.so.1` of every GPU node.
    pub nvml: Option<PathBuf>,
    /// The `/etc/fake-nvml.json` of every GPU node.
    pub nvml_state: Option<PathBuf>,
    /// Seconds until SLURM considers a silent node down (`SlurmdTimeout`).
    pub slurmd_timeout_s: u32,
    /// Whether users may log in to a node only while they have a job there (`pam_slurm_adopt`). Only one
    /// such cluster can run at a time.
    pub adopts: bool,
    /// With `adopts`: whether the processes of a job may open its GPUs only (`ConstrainDevices`).
    pub confines: bool,
    /// Whether jobs are accounted by slurmdbd, so that sacct works.
    pub accounts: bool,
    /// Folders of the machine that every host sees at the same path.
    pub bind: Vec<PathBuf>,
}

impl Default for LabOptions {
    fn default() -> Self {
        Self {
            nodes: 2,
            gpus: "a100:4".to_owned(),
            nvml: None,
            nvml_state: None,
            slurmd_timeout_s: 10,
            adopts: false,
            confines: false,
            accounts: false,
            bind: Vec::new(),
        }
    }
}

/// A running cluster: hosts `login`, `slurm-ctl` and `gpu-node-01`…, users `alice` (2001), `bob`, `carol`, `dave` and
/// `svc` (2005), the account of a service.
#[derive(Debug)]
pub struct SlurmLab {
    place: PathBuf,
    nodes: u32,
}

/// Required programs, all from Debian packages.
const PROGRAMS: [&str; 11] = [
    "slurmctld",
    "slurmd",
    "squeue",
    "munged",
    "sshd",
    "ssh",
    "ssh-keygen",
    "ip",
    "unshare",
    "nsenter",
    "setpriv",
];

impl SlurmLab {
    /// Returns why no cluster can be started here, if so.
    pub fn why_not() -> Option<String> {
        if !rustix::process::geteuid().is_root() {
            return Some("a SLURM cluster in namespaces needs root".to_owned());
        }
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs: Vec<_> = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/sbin".into()]).collect();
        if let Some(program) = PROGRAMS.iter().find(|name| !dirs.iter().any(|dir| dir.join(name).is_file())) {
            return Some(format!(
                "{program} is not installed (tests/slurm-lab/README.md names the packages)"
            ));
        }
        if !Path::new("/etc/munge/munge.key").exists() {
            return Some("/etc/munge/munge.key is missing; the package munge makes it".to_owned());
        }
        let unshare = Command::new("unshare").args(["-n", "-m", "-u", "-i", "-p", "--fork", "true"]).output();
        let allowed = unshare.is_ok_and(|output| output.status.success());
        (!allowed).then(|| "this machine does not let us make namespaces".to_owned())
    }

    /// Returns why no cluster with `pam_slurm_adopt` can be started here, if so.
    pub fn why_not_adopting() -> Option<String> {
        // Debian's package installs it here on any architecture.
        let has_module = ["/lib", "/usr/lib", "/usr/lib64"]
            .iter()
            .any(|lib| Path::new(lib).join("security/pam_slurm_adopt.so").exists());
        if !has_module {
            return Some("pam_slurm_adopt is not installed (Debian: libpam-slurm-adopt)".to_owned());
        }
        let has_freezer = Path::new("/sys/fs/cgroup/freezer").is_dir();
        (!has_freezer).then(|| "this machine has no cgroups of version 1".to_owned())
    }

    /// Returns why no cluster with accounting can be started here, if so.
    pub fn why_not_accounting() -> Option<String> {
        let missing = ["slurmdbd", "mariadbd"]
            .into_iter()
            .find(|name| !["/usr/sbin", "/usr/bin"].iter().any(|dir| Path::new(dir).join(name).is_file()));
        missing.map(|program| {
            format!("{program} is not installed (tests/slurm-lab/README.md names the packages)")
        })
    }

    /// Starts a cluster, or skips the test if that is impossible here.
    ///
    /// # Errors
    /// As [`SlurmLab::up`].
    pub fn up_or_skip(options: &LabOptions) -> Result<Option<Self>> {
        if let Some(why) = Self::why_not() {
            crate::skip::skip(&why);
            return Ok(None);
        }
        Self::up(options).map(Some)
    }

    /// Starts a cluster and waits until every node is idle and accepts ssh. Several can run at once.
    ///
    /// # Errors
    /// If it does not start, with its output; nothing is left behind.
    pub fn up(options: &LabOptions) -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let (pid, number) = (std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let lab = Self { place: format!("/run/nodeglass-lab-{pid}-{number}").into(), nodes: options.nodes };
        let text =
            |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
        let (pam, cgroup) = if options.adopts { ("pam_slurm_adopt", "1") } else { ("", "0") };
        let bind: Vec<String> = options.bind.iter().map(|path| path.display().to_string()).collect();
        let output = lab
            .cluster(["up", &options.nodes.to_string()])
            .env("SPEC", &options.gpus)
            .env("NVML_LIB", text(&options.nvml))
            .env("NVML_STATE", text(&options.nvml_state))
            .env("SLURMD_TIMEOUT", options.slurmd_timeout_s.to_string())
            .env("BIND", bind.join(" "))
            .env("PAM", pam)
            .env("CGROUP", cgroup)
            .env("CONFINE", if options.confines { "1" } else { "0" })
            .env("DBD", if options.accounts { "1" } else { "0" })
            // The cluster does not outlive this process, however it ends.
            .env("OWNER", pid.to_string())
            .output()
            .context("run the cluster script")?;
        ensure!(output.status.success(), "the cluster did not come up:\n{}", output_text(&output));
        Ok(lab)
    }

    /// Names of the GPU nodes.
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("gpu-node-{number:02}")).collect()
    }

    /// Runs a command on a host and waits for it, with any exit status.
    ///
    /// # Errors
    /// If it cannot be run at all.
    pub fn exec(&self, host: &str, user: &str, argv: &[&str]) -> Result<Output> {
        let output = self.on(host, user, argv).stdin(Stdio::null()).output();
        output.with_context(|| format!("run {argv:?} on {host}"))
    }

    /// Runs a command on a host and returns its output.
    ///
    /// # Errors
    /// If it fails, with its output.
    pub fn text(&self, host: &str, user: &str, argv: &[&str]) -> Result<String> {
        let output = self.exec(host, user, argv)?;
        ensure!(
            output.status.success(),
            "{argv:?} on {host} ended with {}: {}",
            output.status,
            output_text(&output)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a command on a host; dropping it kills it and all its descendants.
    ///
    /// Signals go to a wrapper, which terminates the command with SIGTERM; [`SlurmLab::inner_pid`] is the
    /// command's own pid.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn spawn(&self, host: &str, user: &str, argv: &[&str]) -> Result<Process> {
        Process::start(&mut self.on(host, user, argv))
    }

    /// The pid on this machine of a command that [`SlurmLab::spawn`] started: the wrapper's child.
    ///
    /// # Errors
    /// If it has exited.
    pub fn inner_pid(process: &Process) -> Result<u32> {
        let wrapper = process.pid();
        let start = Instant::now();
        loop {
            // Before it becomes `nsenter`, the wrapper is a shell with children of its own.
            let entered = std::fs::read_to_string(format!("/proc/{wrapper}/comm"))?.trim() == "nsenter";
            let children = std::fs::read_to_string(format!("/proc/{wrapper}/task/{wrapper}/children"))?;
            if let Some(child) = children.split_whitespace().next().filter(|_| entered) {
                return Ok(child.parse()?);
            }
            ensure!(start.elapsed() < TIMEOUT, "process {wrapper} has no child");
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// A command that runs `argv` on a host, to be changed before it is started.
    pub fn on(&self, host: &str, user: &str, argv: &[&str]) -> Command {
        let mut command = self.cluster(["exec", host, "-u", user, "--"]);
        command.args(argv);
        command
    }

    /// Submits a batch script (without its first line) as a user, with these `sbatch` arguments.
    ///
    /// # Errors
    /// If SLURM rejects it, with its message.
    pub fn sbatch(&self, user: &str, args: &[&str], script: &str) -> Result<JobId> {
        let mut child = self
            .on("login", user, &[&["sbatch", "--parsable"], args].concat())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let mut stdin = child.stdin.take().context("stdin was piped")?;
        write!(stdin, "#!/bin/bash\n{script}\n")?;
        drop(stdin);
        let output = child.wait_with_output()?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let id = printed.trim().split(';').next().unwrap_or_default().parse();
        id.with_context(|| format!("sbatch printed: {}", output_text(&output)))
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// If SLURM rejects it, with its message.
    pub fn scancel(&self, user: &str, job: JobId) -> Result<()> {
        self.text("login", user, &["scancel", &job.to_string()]).map(drop)
    }

    /// Waits until SLURM gives a job this state (`RUNNING`, `CANCELLED`, …).
    ///
    /// # Errors
    /// If it does not within [`TIMEOUT`], with its actual state.
    pub fn wait_until(&self, job: JobId, state: &str) -> Result<()> {
        let (start, id) = (Instant::now(), job.to_string());
        loop {
            let argv = ["timeout", "5", "squeue", "-h", "-t", "all", "-j", &id, "-o", "%T"];
            let output = self.exec("login", "root", &argv)?;
            let now = output_text(&output);
            if now.lines().any(|line| line.trim() == state) {
                return Ok(());
            }
            ensure!(start.elapsed() < TIMEOUT, "job {job} does not become {state}; it is {now}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Disconnects a host's network: packets are dropped silently.
    ///
    /// # Errors
    /// If there is no such host; likewise for the methods below.
    pub fn cut(&self, host: &str) -> Result<()> {
        self.verb(["cut", host])
    }

    /// Reconnects it.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn mend(&self, host: &str) -> Result<()> {
        self.verb(["mend", host])
    }

    /// Powers a host off.
    ///
    /// # Errors
    /// If it is off already.
    pub fn crash(&self, host: &str) -> Result<()> {
        self.verb(["crash", host])
    }

    /// Powers a host on again.
    ///
    /// # Errors
    /// If it does not boot.
    pub fn boot(&self, host: &str) -> Result<()> {
        self.verb(["boot", host])
    }

    /// Suspends a service (`sshd`, `slurmd`, `slurmctld`, `munged`) with SIGSTOP.
    ///
    /// # Errors
    /// If it is not running.
    pub fn freeze(&self, host: &str, service: &str) -> Result<()> {
        self.verb(["freeze", host, service])
    }

    /// Resumes it.
    ///
    /// # Errors
    /// When it does not run there.
    pub fn thaw(&self, host: &str, service: &str) -> Result<()> {
        self.verb(["thaw", host, service])
    }

    /// `stop`, `kill` or `start` of a service.
    ///
    /// # Errors
    /// When it does not run there.
    pub fn svc(&self, host: &str, what: &str, service: &str) -> Result<()> {
        self.verb(["svc", host, what, service])
    }

    /// Installs a `libnvidia-ml.so.1` and, if given, a `/etc/fake-nvml.json` on a node, which survive a
    /// reboot.
    ///
    /// # Errors
    /// When a file is missing or the host is not up.
    pub fn nvml(&self, host: &str, library: &Path, state: Option<&Path>) -> Result<()> {
        let mut command = self.cluster(["nvml", host]);
        finish(command.arg(library).args(state))
    }

    /// Copies a file into a host, owned by root, with this mode (`0o755`).
    ///
    /// # Errors
    /// When the file is missing or the host is not up.
    pub fn put(&self, host: &str, from: &Path, to: &str, mode: u32) -> Result<()> {
        let mut command = self.cluster(["put", host]);
        finish(command.arg(from).arg(to).arg(format!("{mode:o}")))
    }

    /// A host's `/` as seen from this machine. Do not follow absolute symbolic links in it: write with
    /// [`SlurmLab::put`].
    ///
    /// # Errors
    /// When the host is not up.
    pub fn host_path(&self, host: &str) -> Result<PathBuf> {
        let output = self.cluster(["pid", host]).output()?;
        let pid: u32 = String::from_utf8_lossy(&output.stdout)
            .trim()
            .parse()
            .with_context(|| format!("{host} is not up"))?;
        Ok(format!("/proc/{pid}/root").into())
    }

    /// Opens an ssh tunnel from a port of this machine to `remote` (`127.0.0.1:8080`) as seen from
    /// `login`.
    ///
    /// # Errors
    /// If ssh fails, with its message.
    pub fn tunnel(&self, user: &str, remote: &str) -> Result<Tunnel> {
        Tunnel::open(&self.place, user, remote)
    }

    fn verb<const N: usize>(&self, args: [&str; N]) -> Result<()> {
        finish(&mut self.cluster(args))
    }

    fn cluster<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new("bash");
        command.arg(script()).args(args).env("LAB", &self.place);
        // Environment settings of the caller must not affect the cluster.
        for name in [
            "SPEC",
            "CPUS",
            "MEM",
            "USERS",
            "CGROUP",
            "CONFINE",
            "DBD",
            "PAM",
            "BIND",
            "NVML_LIB",
            "NVML_STATE",
        ] {
            command.env_remove(name);
        }
        command
    }
}

impl Drop for SlurmLab {
    fn drop(&mut self) {
        if let Err(error) = self.verb(["down"]) {
            let _ = writeln!(
                std::io::stderr(),
                "the cluster in {} could not be taken down: {error:#}",
                self.place.display()
            );
        }
    }
}

fn script() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("slurm-lab/cluster.sh")
}

fn finish(command: &mut Command) -> Result<()> {
    let output = command.stdin(Stdio::null()).output().context("run the cluster script")?;
    ensure!(output.status.success(), "{command:?} failed:\n{}", output_text(&output));
    Ok(())
}

fn output_text(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}
