//! CPU time of a process from the kernel's per-process clock, in ns, independent of other load.

use anyhow::{Context, Result};
use nix::time::{ClockId, clock_getcpuclockid};
use nix::unistd::Pid;
use std::time::{Duration, Instant};

/// The CPU-time clock of a process, over all cores.
#[derive(Clone, Copy, Debug)]
pub struct CpuClock(ClockId);

impl CpuClock {
    /// The clock of a process; includes threads that have ended, but not children.
    pub fn of(pid: u32) -> Result<Self> {
        let pid = Pid::from_raw(i32::try_from(pid)?);
        Ok(Self(clock_getcpuclockid(pid).with_context(|| format!("find the clock of process {pid}"))?))
    }

    /// CPU used so far.
    pub fn used(self) -> Result<Duration> {
        Ok(self.0.now().context("read the clock of a process that has ended")?.into())
    }

    /// Share of a core used during a time, in %.
    pub fn share(self, during: Duration) -> Result<f64> {
        let (used, began) = (self.used()?, Instant::now());
        std::thread::sleep(during);
        let used = self.used()? - used;
        Ok(100.0 * used.as_secs_f64() / began.elapsed().as_secs_f64())
    }
}

/// Resident memory of a process in MB (10⁶ bytes).
pub fn rss_mb(pid: u32) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let kib = status.lines().find_map(|line| line.strip_prefix("VmRSS:")?.split_whitespace().next());
    let kib: f64 = kib.context("a process that runs has resident memory")?.parse()?;
    Ok(kib * 1_024.0 / 1e6)
}
