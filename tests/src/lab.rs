//! A real SLURM cluster with a real sshd on every host is up while a [`SlurmLab`] lives, and gone without a trace after it.

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

/// What the cluster is to be like.
#[derive(Clone, Debug)]
pub struct LabOptions {
    /// How many GPU nodes: `gpu-node-01` and so on.
    pub nodes: u32,
    /// GPUs of the nodes, dealt out round robin: `a100:4`, `a100:4 h100:8 :2 none`.
    pub gpus: String,
    /// The `libnvidia-ml.so.1` of every GPU node.
    pub nvml: Option<PathBuf>,
    /// The `/etc/fake-nvml.json` of every GPU node.
    pub nvml_state: Option<PathBuf>,
    /// After how many seconds of silence SLURM gives a node up (`SlurmdTimeout`).
    pub slurmd_timeout_s: u32,
    /// Whether users get onto a node only beside a job of theirs, and leave with it (`pam_slurm_adopt`). Of such clusters only
    /// one can be up at a time.
    pub adopts: bool,
    /// Folders of the machine that every host sees at the same place, as they change.
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
            bind: Vec::new(),
        }
    }
}

/// A running cluster: hosts `login`, `slurm-ctl` and `gpu-node-01`…, users `alice` (2001), `bob` (2002) and `carol` (2003).
#[derive(Debug)]
pub struct SlurmLab {
    place: PathBuf,
    nodes: u32,
}

/// Everything that must be installed, all from Debian's own packages.
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
    /// Why no cluster can be started here, if so.
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

    /// Why no cluster that adopts can be started here, if so.
    pub fn why_not_adopting() -> Option<String> {
        // Debian's package puts it here, whatever the machine's kind.
        let has_module = ["/lib", "/usr/lib", "/usr/lib64"]
            .iter()
            .any(|lib| Path::new(lib).join("security/pam_slurm_adopt.so").exists());
        if !has_module {
            return Some("pam_slurm_adopt is not installed (Debian: libpam-slurm-adopt)".to_owned());
        }
        let has_freezer = Path::new("/sys/fs/cgroup/freezer").is_dir();
        (!has_freezer).then(|| "this machine has no cgroups of version 1".to_owned())
    }

    /// Starts a cluster, or says that the running test is skipped because there can be none here.
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

    /// Starts a cluster and waits until every node is idle and takes ssh. Several can be up at once.
    ///
    /// # Errors
    /// When it does not come up, with what it said; nothing is left then.
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
            // However this process ends, the cluster does not outlive it.
            .env("OWNER", pid.to_string())
            .output()
            .context("run the cluster script")?;
        ensure!(output.status.success(), "the cluster did not come up:\n{}", said(&output));
        Ok(lab)
    }

    /// Names of the GPU nodes.
    pub fn nodes(&self) -> Vec<String> {
        (1..=self.nodes).map(|number| format!("gpu-node-{number:02}")).collect()
    }

    /// Runs a command on a host and waits for its end; whatever its exit status is.
    ///
    /// # Errors
    /// When it cannot be run at all.
    pub fn exec(&self, host: &str, user: &str, argv: &[&str]) -> Result<Output> {
        let output = self.on(host, user, argv).stdin(Stdio::null()).output();
        output.with_context(|| format!("run {argv:?} on {host}"))
    }

    /// Runs a command on a host and gives what it printed.
    ///
    /// # Errors
    /// When it does not exit with 0; with what it said.
    pub fn text(&self, host: &str, user: &str, argv: &[&str]) -> Result<String> {
        let output = self.exec(host, user, argv)?;
        ensure!(
            output.status.success(),
            "{argv:?} on {host} ended with {}: {}",
            output.status,
            said(&output)
        );
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// Starts a command on a host; dropping it ends it and everything that it started.
    ///
    /// Signals go to a wrapper, which ends the command with SIGTERM; [`SlurmLab::inner_pid`] is the
    /// command's own pid.
    ///
    /// # Errors
    /// When it cannot be started.
    pub fn spawn(&self, host: &str, user: &str, argv: &[&str]) -> Result<Process> {
        Process::start(&mut self.on(host, user, argv))
    }

    /// The pid, as the machine sees it, of a command that [`SlurmLab::spawn`] started: the wrapper's child.
    ///
    /// # Errors
    /// When it has ended.
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

    /// Submits a batch script (without its first line) as a user, with these arguments for `sbatch`.
    ///
    /// # Errors
    /// When SLURM refuses it; with its words.
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
        id.with_context(|| format!("sbatch said: {}", said(&output)))
    }

    /// Cancels a job.
    ///
    /// # Errors
    /// When SLURM refuses; with its words.
    pub fn scancel(&self, user: &str, job: JobId) -> Result<()> {
        self.text("login", user, &["scancel", &job.to_string()]).map(drop)
    }

    /// Waits until SLURM gives a job this state (`RUNNING`, `CANCELLED`, …).
    ///
    /// # Errors
    /// When it does not within [`TIMEOUT`]; with the state that it has instead.
    pub fn wait_until(&self, job: JobId, state: &str) -> Result<()> {
        let (start, id) = (Instant::now(), job.to_string());
        loop {
            let argv = ["timeout", "5", "squeue", "-h", "-t", "all", "-j", &id, "-o", "%T"];
            let output = self.exec("login", "root", &argv)?;
            let now = said(&output);
            if now.lines().any(|line| line.trim() == state) {
                return Ok(());
            }
            ensure!(start.elapsed() < TIMEOUT, "job {job} does not become {state}; it is {now}");
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Pulls a host's network cable: packets vanish without a word.
    ///
    /// # Errors
    /// When there is no such host. So for the verbs below.
    pub fn cut(&self, host: &str) -> Result<()> {
        self.verb(["cut", host])
    }

    /// Plugs it in again.
    ///
    /// # Errors
    /// When there is no such host.
    pub fn mend(&self, host: &str) -> Result<()> {
        self.verb(["mend", host])
    }

    /// Takes a host's power away.
    ///
    /// # Errors
    /// When it has none.
    pub fn crash(&self, host: &str) -> Result<()> {
        self.verb(["crash", host])
    }

    /// Switches a crashed host on again.
    ///
    /// # Errors
    /// When it does not come up.
    pub fn boot(&self, host: &str) -> Result<()> {
        self.verb(["boot", host])
    }

    /// Stops a service (`sshd`, `slurmd`, `slurmctld`, `munged`) with SIGSTOP, so that it hangs.
    ///
    /// # Errors
    /// When it does not run there.
    pub fn freeze(&self, host: &str, service: &str) -> Result<()> {
        self.verb(["freeze", host, service])
    }

    /// Lets it go on.
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

    /// Gives a node a `libnvidia-ml.so.1` and, if given, a `/etc/fake-nvml.json`, which it keeps when it is booted again.
    ///
    /// # Errors
    /// When a file is missing or the host is not up.
    pub fn nvml(&self, host: &str, library: &Path, state: Option<&Path>) -> Result<()> {
        let mut command = self.cluster(["nvml", host]);
        finish(command.arg(library).args(state))
    }

    /// Copies a file of the machine into a host, as root's, with this mode (`0o755`).
    ///
    /// # Errors
    /// When the file is missing or the host is not up.
    pub fn put(&self, host: &str, from: &Path, to: &str, mode: u32) -> Result<()> {
        let mut command = self.cluster(["put", host]);
        finish(command.arg(from).arg(to).arg(format!("{mode:o}")))
    }

    /// Where the machine sees a host's `/`. Absolute symbolic links in it lead astray: write with [`SlurmLab::put`].
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

    /// Opens an ssh tunnel as a laptop would: from a port of this machine to `remote` (`127.0.0.1:8080`) seen from `login`.
    ///
    /// # Errors
    /// When ssh refuses; with its words.
    pub fn tunnel(&self, user: &str, remote: &str) -> Result<Tunnel> {
        Tunnel::open(&self.place, user, remote)
    }

    fn verb<const N: usize>(&self, args: [&str; N]) -> Result<()> {
        finish(&mut self.cluster(args))
    }

    fn cluster<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> Command {
        let mut command = Command::new("bash");
        command.arg(script()).args(args).env("LAB", &self.place);
        // A setting of the caller's must not change the cluster.
        for name in ["SPEC", "CPUS", "MEM", "USERS", "CGROUP", "DBD", "PAM", "BIND", "NVML_LIB", "NVML_STATE"]
        {
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
    ensure!(output.status.success(), "{command:?} failed:\n{}", said(&output));
    Ok(())
}

fn said(output: &Output) -> String {
    let both = [&output.stdout[..], &output.stderr[..]].concat();
    String::from_utf8_lossy(&both).trim().to_owned()
}
