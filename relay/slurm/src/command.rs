//! Runs SLURM's commands with a clean environment, a time limit and a size limit, leaving no process
//! behind.

use async_trait::async_trait;
use nodeglass_platform::program;
use rustix::process::{Pid, Signal, kill_process_group};
use std::{ffi::OsString, fmt, io, path::PathBuf, process::Stdio, time::Duration};
use tokio::{
    io::{AsyncRead, AsyncReadExt},
    process::{Child, Command},
    time::timeout,
};

/// SLURM's commands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Program {
    /// Lists jobs.
    Squeue,
    /// Shows details of a job and the configuration; holds, releases and requeues jobs.
    Scontrol,
    /// Cancels a job.
    Scancel,
    /// Lists accounts.
    Sacctmgr,
    /// Reads the accounting of jobs.
    Sacct,
    /// Says when a job would start, without submitting it.
    Sbatch,
}

impl Program {
    /// All of them.
    const ALL: [Self; 6] =
        [Self::Squeue, Self::Scontrol, Self::Scancel, Self::Sacctmgr, Self::Sacct, Self::Sbatch];

    fn name(self) -> &'static str {
        match self {
            Self::Squeue => "squeue",
            Self::Scontrol => "scontrol",
            Self::Scancel => "scancel",
            Self::Sacctmgr => "sacctmgr",
            Self::Sacct => "sacct",
            Self::Sbatch => "sbatch",
        }
    }
}

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The output of a command that exited with 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Output {
    /// Standard output.
    pub out: Vec<u8>,
    /// The beginning of standard error.
    pub err: String,
}

/// Error of running a command. The messages are complete sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommandError {
    /// It is not on the `PATH`.
    #[error("{0} is not on the PATH: is SLURM installed on this machine?")]
    Missing(Program),
    /// It failed to start for another reason.
    #[error("{0} could not be started: {1}")]
    NotStarted(Program, String),
    /// It exceeded its time limit, in seconds, and was killed.
    #[error("{0} did not respond within {1} s")]
    TimedOut(Program, u64),
    /// It exceeded the size limit, in MiB, and was killed.
    #[error("{0} printed more than {1} MiB")]
    OutputTooLarge(Program, usize),
    /// It exited with an error and this message.
    #[error("{0} failed: {1}")]
    Failed(Program, String),
}

/// Runs SLURM's commands: on this machine, or scripted.
#[async_trait]
pub trait Client: Send + 'static {
    /// Runs a command and waits for it to exit.
    ///
    /// # Errors
    /// [`CommandError`]; no process is left behind.
    async fn run(&mut self, program: Program, args: &[String]) -> Result<Output, CommandError>;
}

/// Runs the commands on this machine.
#[derive(Clone, Debug)]
pub struct Commands {
    time_limit: Duration,
    max_bytes: usize,
    environment: Vec<(OsString, OsString)>,
    cluster: Option<String>,
}

/// Variables that locate SLURM; any other could change the output (`SQUEUE_*`, `TZ`, …).
const KEPT_VARIABLES: [&str; 5] = ["PATH", "HOME", "SLURM_CONF", "SLURM_CONF_SERVER", "LD_LIBRARY_PATH"];
/// Maximum length of standard error; the rest is discarded.
const MAX_ERR_BYTES: u64 = 16 << 10;

impl Commands {
    /// Time limit of a command. By itself, squeue hangs for 18 to 99 s when the controller is unreachable.
    pub const TIME_LIMIT: Duration = Duration::from_secs(10);
    /// Size limit of standard output. A list of 100,000 jobs has about 25 MiB.
    pub const MAX_BYTES: usize = 64 << 20;

    /// Uses commands found on this process's `PATH`.
    pub fn new() -> Self {
        let environment =
            KEPT_VARIABLES.iter().filter_map(|name| Some(((*name).into(), std::env::var_os(name)?)));
        let mut commands = Self {
            time_limit: Self::TIME_LIMIT,
            max_bytes: Self::MAX_BYTES,
            environment: environment.collect(),
            cluster: None,
        };
        commands.environment.push(("LC_ALL".into(), "C".into()));
        commands.environment.push(("SLURM_TIME_FORMAT".into(), "%s".into()));
        commands
    }

    /// Runs the commands for another cluster than this machine's; `None` for this machine's.
    #[must_use]
    pub fn for_cluster(self, cluster: Option<String>) -> Self {
        Self { cluster, ..self }
    }

    /// Sets another `PATH`.
    #[must_use]
    pub fn with_path(mut self, path: impl Into<OsString>) -> Self {
        self.environment.retain(|(name, _)| name != "PATH");
        self.environment.push(("PATH".into(), path.into()));
        self
    }

    /// Sets other limits.
    #[must_use]
    pub fn with_limits(self, time_limit: Duration, max_bytes: usize) -> Self {
        Self { time_limit, max_bytes, ..self }
    }

    /// The path of a program on the `PATH`; its bare name if it is not found.
    ///
    /// With a bare name the child searches the `PATH` itself and must be forked, which copies all page
    /// tables of the relay; with a path it can be spawned without copying.
    fn path_of(&self, program: Program) -> PathBuf {
        let name = program.to_string();
        let given = self.environment.iter().find(|(variable, _)| variable == "PATH");
        let folders = given.map(|(_, folders)| folders.as_os_str()).unwrap_or_default();
        program::find_on(folders, &name).unwrap_or_else(|| name.into())
    }

    fn start(&self, program: Program, args: &[String]) -> Result<Running, CommandError> {
        // sacctmgr does not have the option: its accounts belong to all clusters.
        let cluster = self.cluster.iter().filter(|_| program != Program::Sacctmgr);
        let child = Command::new(self.path_of(program))
            .args(cluster.map(|cluster| format!("--clusters={cluster}")))
            .args(args)
            .env_clear()
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .kill_on_drop(true)
            .spawn();
        child.map(Running).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => CommandError::Missing(program),
            _ => CommandError::NotStarted(program, error.to_string()),
        })
    }
}

impl Default for Commands {
    fn default() -> Self {
        Self::new()
    }
}

#[async_trait]
impl Client for Commands {
    async fn run(&mut self, program: Program, args: &[String]) -> Result<Output, CommandError> {
        let mut running = self.start(program, args)?;
        match timeout(self.time_limit, running.wait_with_output(self.max_bytes)).await {
            Err(_) => Err(CommandError::TimedOut(program, self.time_limit.as_secs())),
            Ok(Err(error)) if error.kind() == io::ErrorKind::FileTooLarge => {
                Err(CommandError::OutputTooLarge(program, self.max_bytes >> 20))
            }
            Ok(Err(error)) => Err(CommandError::Failed(program, error.to_string())),
            Ok(Ok((true, output))) => Ok(output),
            Ok(Ok((false, output))) => Err(CommandError::Failed(program, error_message(&output.err))),
        }
    }
}

/// A command in its own process group; dropping it kills the whole group.
struct Running(Child);

impl Running {
    /// Waits for the command to exit; returns whether it exited with 0, and its output.
    ///
    /// # Errors
    /// [`io::ErrorKind::FileTooLarge`] as soon as it has printed more than `max_bytes`.
    async fn wait_with_output(&mut self, max_bytes: usize) -> io::Result<(bool, Output)> {
        let (Some(out), Some(err)) = (self.0.stdout.take(), self.0.stderr.take()) else {
            return Err(io::Error::other("it has no output"));
        };
        // Both are read at the same time, because a full pipe would block the command; too much output ends both.
        let (out, err) = tokio::try_join!(read_all(out, max_bytes as u64), read_prefix(err))?;
        let status = self.0.wait().await?;
        Ok((status.success(), Output { out, err: String::from_utf8_lossy(&err).into_owned() }))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // `id` is `None` after the child was reaped, so the pid cannot have been reused.
        let pid = self.0.id().and_then(|id| Pid::from_raw(i32::try_from(id).ok()?));
        if let Some(pid) = pid {
            let _ = kill_process_group(pid, Signal::KILL);
        }
    }
}

async fn read_all(from: impl AsyncRead + Unpin, max: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    from.take(max + 1).read_to_end(&mut bytes).await?;
    if bytes.len() as u64 > max { Err(io::ErrorKind::FileTooLarge.into()) } else { Ok(bytes) }
}

async fn read_prefix(mut from: impl AsyncRead + Unpin) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    (&mut from).take(MAX_ERR_BYTES).read_to_end(&mut bytes).await?;
    tokio::io::copy(&mut from, &mut tokio::io::sink()).await?;
    Ok(bytes)
}

/// Returns the most informative line of SLURM's standard error, without the name of the command.
pub fn error_message(err: &str) -> String {
    let is_informative = |line: &&str| line.contains("fatal:") || line.contains("error");
    let mut lines = err.lines().map(str::trim).filter(|line| !line.is_empty());
    let line = lines.clone().rfind(is_informative).or_else(|| lines.next());
    let line = line.unwrap_or("no message on standard error");
    let without_name = Program::ALL
        .iter()
        .find_map(|program| line.strip_prefix(program.name()).and_then(|rest| rest.strip_prefix(':')));
    without_name.unwrap_or(line).trim().chars().take(200).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, os::unix::fs::PermissionsExt, path::Path, time::Instant};

    /// A folder with a `squeue` that is this shell script.
    fn stub(script: &str) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        write_stub(dir.path(), "squeue", script);
        dir
    }

    fn write_stub(dir: &Path, name: &str, script: &str) {
        let path = dir.join(name);
        fs::write(&path, format!("#!/bin/sh\nPATH=/usr/bin:/bin\n{script}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    async fn run(dir: &tempfile::TempDir, limit: Duration, args: &[&str]) -> Result<Output, CommandError> {
        let args: Vec<String> = args.iter().map(ToString::to_string).collect();
        let commands = Commands::new().with_path(dir.path()).with_limits(limit, 1 << 20);
        // Another test's fork may still hold the freshly written script open for writing.
        for _ in 0..50 {
            match commands.clone().run(Program::Squeue, &args).await {
                Err(CommandError::NotStarted(_, why)) if why.contains("Text file busy") => {
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
                result => return result,
            }
        }
        panic!("the stub stayed busy");
    }

    const LONG: Duration = Duration::from_secs(60);

    #[tokio::test]
    async fn t16_arguments_arrive_as_they_are_and_the_environment_is_clean() {
        let dir = stub("printf '%s|' \"$@\"; env | grep -E 'SQUEUE|TZ=|LC_ALL|SLURM' | sort");
        let output = run(&dir, LONG, &["a b", "$(x)", "'\"", "-o\u{1e}%A"]).await.unwrap();
        let text = String::from_utf8(output.out).unwrap();
        assert_eq!(text, "a b|$(x)|'\"|-o\u{1e}%A|LC_ALL=C\nSLURM_TIME_FORMAT=%s\n");
    }

    #[tokio::test]
    async fn the_cluster_is_passed_to_every_client_but_sacctmgr() {
        let dir = tempfile::tempdir().unwrap();
        let programs = [Program::Squeue, Program::Scontrol, Program::Scancel, Program::Sacctmgr];
        for program in programs {
            write_stub(dir.path(), &program.to_string(), "printf '%s|' \"$@\"");
        }
        let cluster = Some("hopper".to_owned());
        let mut commands = Commands::new().with_path(dir.path()).for_cluster(cluster);
        for program in programs {
            let output = loop {
                match commands.run(program, &["17".to_owned()]).await {
                    Err(CommandError::NotStarted(_, why)) if why.contains("Text file busy") => {
                        tokio::task::yield_now().await;
                    }
                    result => break result.unwrap(),
                }
            };
            let want = if program == Program::Sacctmgr { "17|" } else { "--clusters=hopper|17|" };
            assert_eq!(String::from_utf8(output.out).unwrap(), want);
        }
    }

    #[tokio::test]
    async fn f10_a_command_that_hangs_is_killed_with_its_children() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        write_stub(dir.path(), "squeue", &format!("sleep 600 & echo $! $$ > {}; wait", pids.display()));
        let started = Instant::now();
        let result = run(&dir, Duration::from_secs(1), &[]).await;
        assert_eq!(result, Err(CommandError::TimedOut(Program::Squeue, 1)));
        assert!(started.elapsed() < LONG);
        for pid in fs::read_to_string(&pids).unwrap().split_whitespace() {
            assert!(gone(pid).await, "{pid} is still running");
        }
    }

    #[tokio::test]
    async fn dropping_a_running_command_kills_it() {
        let dir = tempfile::tempdir().unwrap();
        let pids = dir.path().join("pids");
        write_stub(dir.path(), "squeue", &format!("echo $$ > {}; sleep 600", pids.display()));
        let dropped = timeout(Duration::from_secs(1), run(&dir, LONG, &[])).await;
        assert!(dropped.is_err());
        assert!(gone(fs::read_to_string(&pids).unwrap().trim()).await);
    }

    /// Returns whether a process is gone or only waits to be reaped.
    async fn gone(pid: &str) -> bool {
        for _ in 0..100 {
            match fs::read_to_string(format!("/proc/{pid}/stat")) {
                Ok(stat) if !stat.contains(") Z ") => tokio::time::sleep(Duration::from_millis(20)).await,
                _ => return true,
            }
        }
        false
    }

    #[tokio::test]
    async fn t18_a_flood_on_standard_output_is_cut_short() {
        let dir = stub("yes 0123456789 | head -c 100000000");
        assert_eq!(run(&dir, LONG, &[]).await, Err(CommandError::OutputTooLarge(Program::Squeue, 1)));
    }

    #[tokio::test]
    async fn t18_a_flood_on_standard_error_neither_blocks_nor_fills_the_memory() {
        let dir = stub("yes error | head -c 5000000 >&2; echo list");
        let output = run(&dir, LONG, &[]).await.unwrap();
        assert_eq!(output.out, b"list\n");
        assert_eq!(output.err.len() as u64, MAX_ERR_BYTES);
    }

    #[tokio::test]
    async fn a_failure_is_reported_with_slurms_message() {
        let dir = stub(
            "echo 'slurm_load_jobs error: Unable to contact slurm controller (connect failure)' >&2; exit 1",
        );
        let why = run(&dir, LONG, &[]).await.unwrap_err().to_string();
        let want =
            "squeue failed: slurm_load_jobs error: Unable to contact slurm controller (connect failure)";
        assert_eq!(why, want);
    }

    #[tokio::test]
    async fn a_missing_command_is_reported_as_missing() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run(&dir, LONG, &[]).await, Err(CommandError::Missing(Program::Squeue)));
    }

    #[test]
    fn the_last_error_line_is_the_informative_one() {
        let err = "squeue: error: resolve_ctls_from_dns_srv: res_nsearch error: Unknown host\n\
                   squeue: fatal: Could not establish a configuration source\n";
        assert_eq!(error_message(err), "fatal: Could not establish a configuration source");
        assert_eq!(error_message("\n  hello\n"), "hello");
        assert_eq!(error_message(""), "no message on standard error");
    }
}
