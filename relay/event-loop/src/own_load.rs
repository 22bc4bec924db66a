//! The relay's own load: keeps it within the limits of CPU time and memory, and ends a relay that nobody uses.

use super::EventLoop;
use crate::cpu_pace::CpuPace;
pub use crate::cpu_pace::CpuUse;
use crate::memory_pace::{MemoryPace, used_pct};
use nodeglass_api::{AutoExit, LimitedBy, OwnLoad};
use nodeglass_fleet::{Event, Limit};
use nodeglass_platform::cgroup::{Cgroups, MemoryUse};
use nodeglass_platform::{cpu_time, memory};
use nodeglass_protocol::Text;
use nodeglass_protocol::job::JobState;
use nodeglass_protocol::picture::JobsHealth;
use std::fmt::Debug;
use std::time::Duration;
use tokio::sync::oneshot;

/// Limits of a relay, and how they are kept.
#[derive(Debug)]
pub struct OwnLimits {
    /// The limits as the owner reads them.
    pub load: OwnLoad,
    /// Memory for the history in bytes, as configured.
    pub history_mem: usize,
    /// Time without jobs, viewers and requests after which the relay exits, and who is notified then.
    pub auto_exit: Option<(Duration, oneshot::Sender<()>)>,
    /// Measures the use.
    pub meter: Box<dyn Meter>,
}

/// Measures the use of this process.
pub trait Meter: Debug + Send {
    /// CPU time.
    fn cpu(&self) -> CpuUse;
    /// Memory, if it is limited.
    fn memory(&self) -> Option<MemoryUse>;
}

/// The kernel's measurements.
#[derive(Debug)]
pub struct KernelMeter {
    cgroups: Cgroups,
    /// Limit of the private memory of this process in bytes, if there is one besides those of control groups.
    memory_max: Option<u64>,
}

impl KernelMeter {
    /// Measures this process, whose private memory is limited to `memory_max` bytes, besides control groups.
    pub fn new(cgroups: Cgroups, memory_max: Option<u64>) -> Self {
        Self { cgroups, memory_max }
    }
}

impl Meter for KernelMeter {
    fn cpu(&self) -> CpuUse {
        CpuUse { used_ms: cpu_time::process_ms(), throttled_us: self.cgroups.throttled_us() }
    }

    fn memory(&self) -> Option<MemoryUse> {
        let own = self.memory_max.zip(memory::private_bytes());
        let own = own.map(|(limit_bytes, used_bytes)| MemoryUse { used_bytes, limit_bytes });
        self.cgroups.memory().into_iter().chain(own).max_by_key(|memory| used_pct(*memory))
    }
}

/// The state of [`OwnLimits`] in the event loop.
#[derive(Debug)]
pub(super) struct OwnState {
    load: OwnLoad,
    meter: Box<dyn Meter>,
    cpu: CpuPace,
    memory: MemoryPace,
    auto_exit: Option<(Duration, oneshot::Sender<()>)>,
    /// When a job, a viewer or a request last used the relay.
    pub(super) last_used_ms: u64,
}

impl OwnState {
    fn new(limits: OwnLimits, now_ms: u64) -> Self {
        let OwnLimits { load, history_mem, auto_exit, meter } = limits;
        let is_self_limited = load.cpu_limited_by == Some(LimitedBy::SlowerSampling);
        let cpu = CpuPace::new(load.cpu_max_pct.filter(|_| is_self_limited));
        Self { load, meter, cpu, memory: MemoryPace::new(history_mem), auto_exit, last_used_ms: now_ms }
    }

    /// The shortest sampling interval at present, in ms.
    pub(super) fn min_interval_ms(&self) -> u32 {
        self.cpu.min_interval_ms()
    }

    /// The limits of the relay, and what it does to keep them.
    pub(super) fn status(&self, now_ms: u64) -> OwnLoad {
        let auto_exit = self.auto_exit.as_ref().map(|(after, _)| AutoExit {
            after_s: after.as_secs(),
            unused_s: now_ms.saturating_sub(self.last_used_ms) / 1_000,
        });
        let text = |notice: Option<Text>| notice.map(|notice| notice.to_string());
        OwnLoad {
            slower_sampling: text(self.cpu.notice()),
            dropped_history: text(self.memory.notice()),
            auto_exit,
            ..self.load.clone()
        }
    }
}

impl EventLoop {
    /// Keeps these limits.
    #[must_use]
    pub fn limited(mut self, limits: OwnLimits) -> Self {
        self.own = Some(OwnState::new(limits, self.clock.now_ms()));
        self
    }

    /// Measures the load, and reacts to it.
    pub(super) fn observe_own_load(&mut self, now_ms: u64) {
        // While a recording is played, nothing is sampled and the clock is that of the recording.
        if self.fleet.status().replay.is_some() {
            return;
        }
        let is_used = self.is_used();
        let Some(own) = &mut self.own else { return };
        if own.cpu.observe(now_ms, || own.meter.cpu()) {
            let notice = own.cpu.notice();
            report("CPU time", notice.as_ref());
            self.fleet.handle(Event::Limited(Limit::Cpu, notice), now_ms);
        }
        if own.memory.is_due(now_ms)
            && let Some(memory) = own.meter.memory()
        {
            let before = own.memory.notice();
            if let Some(budget) = own.memory.observe(now_ms, memory, || self.fleet.history().len()) {
                self.fleet.history_mut().set_budget(budget, now_ms);
                drop(tokio::task::spawn_blocking(memory::trim));
            }
            let notice = own.memory.notice();
            if notice != before {
                report("memory", notice.as_ref());
                self.fleet.handle(Event::Limited(Limit::Memory, notice), now_ms);
            }
        }
        if is_used {
            own.last_used_ms = now_ms;
        } else if let Some((_, exit)) = own
            .auto_exit
            .take_if(|(after, _)| u128::from(now_ms.saturating_sub(own.last_used_ms)) >= after.as_millis())
        {
            // It fails only while the relay shuts down.
            let _ = exit.send(());
        }
    }

    /// Returns whether somebody watches, or a job has not ended, or the job list is unknown.
    fn is_used(&self) -> bool {
        let is_known = matches!(self.fleet.status().jobs, JobsHealth::Fresh { .. } | JobsHealth::NoSlurm);
        let has_job = || self.fleet.jobs().iter().any(|job| !matches!(job.state, JobState::Ended(_)));
        !self.subscribers.is_empty() || !is_known || has_job()
    }
}

/// Logs that something is short, or is no longer.
fn report(of: &str, notice: Option<&Text>) {
    match notice {
        Some(notice) => tracing::warn!("{notice}"),
        None => tracing::info!("{of} is no longer short"),
    }
}
