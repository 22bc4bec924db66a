//! A control group of this process (version 2) with limits: below its own where that is delegated, or by systemd.

use rustix::process::getpid;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

/// Period of the limit of CPU time, in µs.
const PERIOD_US: u64 = 100_000;
/// Time for which systemd may take to move this process.
const SYSTEMD: Duration = Duration::from_secs(3);
/// Interval of checks.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Limits of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupLimits {
    /// CPU time in % of a core.
    pub cpu_pct: Option<u32>,
    /// Memory in bytes.
    pub memory_bytes: Option<u64>,
}

impl GroupLimits {
    /// Returns whether nothing is limited.
    pub fn is_empty(self) -> bool {
        self.cpu_pct.is_none() && self.memory_bytes.is_none()
    }
}

/// Creates a group below `own`, the folder of this process' group, moves this process there, and limits it.
///
/// # Errors
/// The group is not delegated to this user, other processes are in it, or a controller is missing. This process is in its
/// former group then.
pub fn enter(own: &Path, limits: GroupLimits) -> io::Result<()> {
    let pid = getpid().as_raw_nonzero().to_string();
    let group = own.join(format!("nodeglass-{pid}"));
    fs::create_dir(&group)?;
    let entered = fs::write(group.join("cgroup.procs"), &pid).and_then(|()| limit(own, &group, limits));
    if entered.is_err() {
        // Only an empty group can be removed.
        let _ = fs::write(own.join("cgroup.procs"), &pid);
        let _ = fs::remove_dir(&group);
    }
    entered
}

/// Lets the group `own` distribute its controllers, which it may once no process is directly in it, and limits the group in it.
fn limit(own: &Path, group: &Path, limits: GroupLimits) -> io::Result<()> {
    if let Some(pct) = limits.cpu_pct {
        fs::write(own.join("cgroup.subtree_control"), "+cpu")?;
        let quota_us = u64::from(pct) * PERIOD_US / 100;
        fs::write(group.join("cpu.max"), format!("{quota_us} {PERIOD_US}"))?;
    }
    if let Some(bytes) = limits.memory_bytes {
        fs::write(own.join("cgroup.subtree_control"), "+memory")?;
        fs::write(group.join("memory.max"), bytes.to_string())?;
    }
    Ok(())
}

/// Requests a scope of the user's systemd, which moves this process there. Blocks for some seconds at most.
///
/// # Errors
/// There is no systemd of the user, or it refuses; in its words.
pub fn request_scope(limits: GroupLimits) -> io::Result<()> {
    if std::env::var_os("XDG_RUNTIME_DIR").is_none_or(|dir| !Path::new(&dir).join("systemd").is_dir()) {
        return Err(io::Error::other("systemd does not run for this user"));
    }
    let pid = getpid().as_raw_nonzero().to_string();
    let scope = format!("nodeglass-{pid}.scope");
    let cpu = limits.cpu_pct.map(|pct| ("CPUQuotaPerSecUSec", u64::from(pct) * 10_000));
    let memory = limits.memory_bytes.map(|bytes| ("MemoryMax", bytes));
    let numbers: Vec<_> = cpu.into_iter().chain(memory).collect();
    let mut command = Command::new("busctl");
    command.args(["--user", "--timeout=3", "call", "org.freedesktop.systemd1", "/org/freedesktop/systemd1"]);
    command.args([
        "org.freedesktop.systemd1.Manager",
        "StartTransientUnit",
        "ssa(sv)a(sa(sv))",
        &scope,
        "fail",
    ]);
    command.arg((1 + numbers.len()).to_string()).args(["PIDs", "au", "1", &pid]);
    for (name, number) in numbers {
        command.args([name, "t", &number.to_string()]);
    }
    command.arg("0");
    run(command)?;
    wait_for(|| membership().contains(&scope))
        .then_some(())
        .ok_or_else(|| io::Error::other("systemd did not move this process in time"))
}

fn membership() -> String {
    fs::read_to_string("/proc/self/cgroup").unwrap_or_default()
}

/// Runs a short command; its first line of stderr is the error.
fn run(mut command: Command) -> io::Result<()> {
    let output = command.stdin(Stdio::null()).output()?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(io::Error::other(stderr.lines().next().unwrap_or("busctl failed").to_owned()))
}

fn wait_for(condition: impl Fn() -> bool) -> bool {
    let began = Instant::now();
    while began.elapsed() < SYSTEMD {
        if condition() {
            return true;
        }
        thread::sleep(CHECK_INTERVAL);
    }
    false
}

/// The folder of this process' group of version 2; `None` without that version.
pub fn folder() -> Option<PathBuf> {
    super::cgroup::own_folder(&membership(), &fs::read_to_string("/proc/self/mountinfo").ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_that_cannot_be_limited_is_left_again() {
        let own = tempfile::tempdir().unwrap();
        // As for a controller that is not delegated: the file of the parent cannot be written.
        fs::create_dir(own.path().join("cgroup.subtree_control")).unwrap();
        let limits = GroupLimits { cpu_pct: Some(50), memory_bytes: None };
        assert!(enter(own.path(), limits).is_err());
        let pid = getpid().as_raw_nonzero().to_string();
        assert_eq!(fs::read_to_string(own.path().join("cgroup.procs")).unwrap(), pid);
    }

    #[test]
    fn a_group_of_its_own_has_the_limits() {
        let own = tempfile::tempdir().unwrap();
        enter(own.path(), GroupLimits { cpu_pct: Some(150), memory_bytes: Some(1 << 20) }).unwrap();
        let group = fs::read_dir(own.path()).unwrap().find_map(|entry| {
            let path = entry.unwrap().path();
            path.is_dir().then_some(path)
        });
        let read = |name| fs::read_to_string(group.as_ref().unwrap().join(name)).unwrap();
        assert_eq!((read("cpu.max"), read("memory.max")), ("150000 100000".into(), "1048576".into()));
        assert_eq!(read("cgroup.procs"), getpid().as_raw_nonzero().to_string());
    }
}
