//! Whatever starts and ends in a control group is counted by the kernel, however short it lives.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where the hierarchy that accounts for CPU is: the one of version 1, or the one of version 2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"];

/// A group of processes; when it is dropped, those that are left go back to where all are.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes one.
    ///
    /// # Errors
    /// When this machine does not let us.
    pub fn new(name: &str) -> Result<Self> {
        let root = ROOTS.into_iter().find(|root| Path::new(root).join("cgroup.procs").is_file());
        let root = root.context("no control groups are mounted here")?;
        let path = Path::new(root).join(format!("nodeglass-bench-{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make the control group {}", path.display()))?;
        Ok(Self(path))
    }

    /// Takes processes in, with all that they will start.
    ///
    /// # Errors
    /// When the kernel refuses one that is there.
    pub fn take(&self, pids: impl IntoIterator<Item = u32>) -> Result<()> {
        for pid in pids {
            let taken = fs::write(self.0.join("cgroup.procs"), pid.to_string());
            // One that has ended meanwhile needs no accounting.
            if Path::new(&format!("/proc/{pid}")).exists() {
                taken.with_context(|| format!("take process {pid} in"))?;
            }
        }
        Ok(())
    }

    /// CPU used by all that were ever in it, since they were.
    ///
    /// # Errors
    /// When the kernel does not tell.
    pub fn used(&self) -> Result<Duration> {
        if let Ok(nanos) = fs::read_to_string(self.0.join("cpuacct.usage")) {
            return Ok(Duration::from_nanos(nanos.trim().parse()?));
        }
        let stat = fs::read_to_string(self.0.join("cpu.stat"))?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(Duration::from_micros(micros.context("a control group tells its usage")?.trim().parse()?))
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let left = fs::read_to_string(self.0.join("cgroup.procs")).unwrap_or_default();
        let home = self.0.parent().map(|root| root.join("cgroup.procs")).unwrap_or_default();
        for pid in left.lines() {
            let _ = fs::write(&home, pid);
        }
        let _ = fs::remove_dir(&self.0);
    }
}
