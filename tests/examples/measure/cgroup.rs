//! A control group accounts for the CPU time of all its processes, including short-lived ones.

use anyhow::{Context, Result};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The hierarchy that accounts for CPU, of version 1 or 2.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup/cpuacct", "/sys/fs/cgroup"];

/// A control group; on drop, its remaining processes return to the root group.
#[derive(Debug)]
pub struct Cgroup(PathBuf);

impl Cgroup {
    /// Creates one.
    ///
    /// # Errors
    /// If this machine does not permit it.
    pub fn new(name: &str) -> Result<Self> {
        let root = ROOTS.into_iter().find(|root| Path::new(root).join("cgroup.procs").is_file());
        let root = root.context("no control groups are mounted here")?;
        let path = Path::new(root).join(format!("nodeglass-bench-{}-{name}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("make the control group {}", path.display()))?;
        Ok(Self(path))
    }

    /// Moves processes into it, with all that they will start.
    ///
    /// # Errors
    /// If the kernel refuses a running one.
    pub fn take(&self, pids: impl IntoIterator<Item = u32>) -> Result<()> {
        for pid in pids {
            let taken = fs::write(self.0.join("cgroup.procs"), pid.to_string());
            // One that has exited meanwhile needs no accounting.
            if Path::new(&format!("/proc/{pid}")).exists() {
                taken.with_context(|| format!("take process {pid} in"))?;
            }
        }
        Ok(())
    }

    /// CPU time of all its processes since they joined.
    ///
    /// # Errors
    /// If the kernel does not report it.
    pub fn used(&self) -> Result<Duration> {
        if let Ok(nanos) = fs::read_to_string(self.0.join("cpuacct.usage")) {
            return Ok(Duration::from_nanos(nanos.trim().parse()?));
        }
        let stat = fs::read_to_string(self.0.join("cpu.stat"))?;
        let micros = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        Ok(Duration::from_micros(micros.context("a control group has a usage counter")?.trim().parse()?))
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
