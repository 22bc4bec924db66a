//! Resolves GPU processes in `/proc`: user, job, rank and host resource usage.
//!
//! Runs on a separate thread ([`Inspector`]), because files in `/proc` of a stuck process may
//! block.

mod container;
pub(crate) mod info;
mod inspector;
mod job_devices;
pub(crate) mod stat;
pub(crate) mod user;

use crate::clock;
use crate::source::bound;
use crate::source::{GpuProcess, GpuProcessList, UnreadList};
use info::{ProcContext, ProcessInfo};
use job_devices::DeviceSearch;
use nodeglass_protocol::probe::{
    MAX_PROCESSES, ProbeUsage, ProcessFacts, ProcessKind, ProcessList, ProcessReadings, ProcessSample,
};
use nodeglass_protocol::{GpuUuid, Reading};
use stat::{Stat, TICK_MS};
use std::{
    collections::{HashMap, HashSet, hash_map::Entry},
    path::{Path, PathBuf},
    sync::OnceLock,
};

pub use inspector::Inspector;
pub use user::name as user_name;

/// Failure reason for a pid that does not exist here: another pid namespace, or just ended.
pub const NO_SUCH_PROCESS: &str = "no such process here";
/// Failure reason for a process that exists but is not in `/proc`.
pub const HIDDEN_BY_HIDEPID: &str = "hidden by the mount option hidepid of /proc";
/// Failure reason for arguments and folders of other users' processes, which even a probe of root
/// does not read.
pub const OF_ANOTHER_USER: &str = "hidden: belongs to another user";

/// Returns the resource usage of this process; `None` if `/proc` does not state it.
pub fn own_usage() -> Option<ProbeUsage> {
    let stat = Stat::of(Path::new("/proc"), std::process::id())?;
    Some(ProbeUsage {
        cpu_ms: stat.cpu_ticks.saturating_mul(TICK_MS),
        rss_bytes: stat.rss_pages.saturating_mul(rustix::param::page_size() as u64),
    })
}

/// Boot time in ms since 1970; read once, because start times must not change when the clock is
/// set.
pub fn boot_ms() -> Option<u64> {
    static BOOT_MS: OnceLock<Option<u64>> = OnceLock::new();
    *BOOT_MS.get_or_init(|| stat::boot_ms(Path::new("/proc")))
}

/// Cache of the processes in the last list, so that static facts are read once.
#[derive(Debug)]
pub struct ProcessTable {
    context: ProcContext,
    page_bytes: u64,
    known: HashMap<u32, TrackedProcess>,
    /// Entries of the last list, for GPUs whose list cannot be read.
    listed: Vec<(GpuUuid, u32, ProcessKind)>,
    device_search: DeviceSearch,
}

/// A process in the last list.
#[derive(Debug)]
struct TrackedProcess {
    info: ProcessInfo,
    /// Time of the last update, in ns of `CLOCK_BOOTTIME`, and the CPU time then.
    updated_ns: u64,
    cpu_ticks: u64,
    now: ProcessReadings,
}

impl Default for ProcessTable {
    fn default() -> Self {
        Self::new()
    }
}

impl ProcessTable {
    /// Creates a table for this machine.
    pub fn new() -> Self {
        Self::of("/proc".into(), "/sys/fs/cgroup".into(), boot_ms())
    }

    /// Creates a table for other folders.
    fn of(proc: PathBuf, cgroups: PathBuf, boot_ms: Option<u64>) -> Self {
        let own_uid = rustix::process::geteuid().as_raw();
        let context = ProcContext { proc, cgroups, own_uid, boot_ms, jobs_by_sluid: HashMap::new() };
        let page_bytes = rustix::param::page_size() as u64;
        let device_search = DeviceSearch::default();
        Self { context, page_bytes, known: HashMap::new(), listed: Vec::new(), device_search }
    }

    /// Resolves all processes and removes those that are gone.
    pub fn update(&mut self, gpu_process_list: GpuProcessList) -> ProcessList {
        self.update_at(clock::mono_ns(), gpu_process_list)
    }

    fn update_at(&mut self, now_ns: u64, mut gpu_process_list: GpuProcessList) -> ProcessList {
        self.restore_unread(&mut gpu_process_list);
        let mut known = std::mem::take(&mut self.known);
        for gpu_process in &gpu_process_list.processes {
            // A process on several GPUs is read once.
            if let Entry::Vacant(vacant) = self.known.entry(gpu_process.pid)
                && let Some(stat) = Stat::of(&self.context.proc, gpu_process.pid)
            {
                // Pids are reused: only the same start time means the same process.
                let previous = known.remove(&gpu_process.pid);
                let previous = previous.filter(|old| old.info.started_ticks == stat.started_ticks);
                let mut tracked = match previous {
                    Some(mut tracked) => {
                        tracked.info.refresh(&mut self.context, gpu_process.pid, &stat);
                        tracked
                    }
                    None => TrackedProcess::new(ProcessInfo::read(&mut self.context, gpu_process.pid, &stat)),
                };
                tracked.update(now_ns, &stat, self.page_bytes);
                vacant.insert(tracked);
            }
        }
        let GpuProcessList { mono_ns, processes: gpu_processes, gaps, .. } = gpu_process_list;
        self.listed = gpu_processes
            .iter()
            .map(|gpu_process| (gpu_process.gpu.clone(), gpu_process.pid, gpu_process.kind))
            .collect();
        let processes = gpu_processes.into_iter().map(|gpu_process| self.sample(gpu_process)).collect();
        let job_devices = self.device_search.devices(now_ns, &mut self.context).to_vec();
        ProcessList { mono_ns, processes, gaps, job_devices }
    }

    /// Adds processes from the last successful read of a list that failed now, unless they have
    /// ended: a failed list does not mean that they ended.
    fn restore_unread(&self, gpu_process_list: &mut GpuProcessList) {
        let is_unread = |(gpu, _, kind): &(GpuUuid, u32, ProcessKind)| {
            let of_it = |unread: &UnreadList| {
                kind.intersection(unread.kind) != ProcessKind::default() && unread.gpus.contains(gpu)
            };
            gpu_process_list.unread.iter().any(of_it)
        };
        if !self.listed.iter().any(is_unread) {
            return;
        }
        let gpu_processes = &mut gpu_process_list.processes;
        let mut positions: HashMap<_, _> =
            (0..).zip(&*gpu_processes).map(|(at, one)| ((one.gpu.clone(), one.pid), at)).collect();
        let ended = self.ended();
        for unread in &gpu_process_list.unread {
            let failed = || Reading::Failed(unread.why.clone().into());
            for (gpu, pid, listed) in &self.listed {
                let kind = listed.intersection(unread.kind);
                if kind == ProcessKind::default() || !unread.gpus.contains(gpu) || ended.contains(pid) {
                    continue;
                }
                let at: usize = *positions.entry((gpu.clone(), *pid)).or_insert_with(|| {
                    let now = ProcessReadings {
                        gpu_mem_bytes: failed(),
                        sm_pct: failed(),
                        mem_bw_pct: failed(),
                        enc_pct: failed(),
                        dec_pct: failed(),
                        ..ProcessReadings::default()
                    };
                    gpu_processes.push(GpuProcess { gpu: gpu.clone(), pid: *pid, now, kind });
                    gpu_processes.len() - 1
                });
                gpu_processes[at].kind = gpu_processes[at].kind.union(kind);
            }
        }
        let order: HashMap<_, _> = gpu_process_list.gpus.iter().zip(0..).collect();
        gpu_processes.sort_by_key(|one| (order.get(&one.gpu).copied().unwrap_or(usize::MAX), one.pid));
        let cap =
            bound::fair_cap(gpu_processes.chunk_by(|a, b| a.gpu == b.gpu).map(<[_]>::len), MAX_PROCESSES);
        bound::cut(gpu_processes, &mut gpu_process_list.gaps, cap, |one| &one.gpu);
    }

    /// Returns the pids of the last list that no longer exist or were reused.
    fn ended(&self) -> HashSet<u32> {
        let goes_on = |(pid, tracked): &(&u32, &TrackedProcess)| {
            Stat::of(&self.context.proc, **pid)
                .is_some_and(|stat| stat.started_ticks == tracked.info.started_ticks)
        };
        self.known.iter().filter(|one| !goes_on(one)).map(|(pid, _)| *pid).collect()
    }

    fn sample(&self, gpu_process: GpuProcess) -> ProcessSample {
        let GpuProcess { gpu, pid, now, kind } = gpu_process;
        let empty = ProcessFacts::new(gpu, pid, kind);
        match self.known.get(&pid) {
            Some(tracked) => {
                ProcessSample { facts: tracked.info.to_facts(empty), now: tracked.with_host(now) }
            }
            None => {
                let why = if exists(pid) { HIDDEN_BY_HIDEPID } else { NO_SUCH_PROCESS };
                let facts = ProcessFacts { command: Reading::Failed(why.into()), ..empty };
                ProcessSample { facts, now }
            }
        }
    }
}

/// Returns whether a process has this pid although it is not in `/proc`: `kill(2)` distinguishes missing
/// permission from a missing process.
fn exists(pid: u32) -> bool {
    let pid = i32::try_from(pid).ok().and_then(rustix::process::Pid::from_raw);
    pid.is_some_and(|pid| {
        matches!(rustix::process::test_kill_process(pid), Ok(()) | Err(rustix::io::Errno::PERM))
    })
}

impl TrackedProcess {
    fn new(info: ProcessInfo) -> Self {
        Self { info, updated_ns: 0, cpu_ticks: 0, now: ProcessReadings::default() }
    }

    /// Updates the host readings; CPU utilization is since the last update.
    fn update(&mut self, now_ns: u64, stat: &Stat, page_bytes: u64) {
        let past_ms = now_ns.saturating_sub(self.updated_ns) / 1_000_000;
        self.now.cpu_pct = match self.updated_ns {
            0 => Reading::NotYet,
            // Too short for ticks of 10 ms.
            _ if past_ms < 10 * TICK_MS => self.now.cpu_pct.clone(),
            _ => {
                let used_ms = stat.cpu_ticks.saturating_sub(self.cpu_ticks).saturating_mul(TICK_MS);
                Reading::Value((used_ms.saturating_mul(100) + past_ms / 2) / past_ms)
            }
        };
        if self.updated_ns == 0 || past_ms >= 10 * TICK_MS {
            (self.updated_ns, self.cpu_ticks) = (now_ns, stat.cpu_ticks);
        }
        self.now.rss_bytes = Reading::Value(stat.rss_pages.saturating_mul(page_bytes));
        self.now.threads = Reading::Value(stat.threads);
        self.now.state = Reading::Value(stat.state as u64);
    }

    /// Merges the readings of the source with the host's.
    fn with_host(&self, gpu: ProcessReadings) -> ProcessReadings {
        let ProcessReadings { cpu_pct, rss_bytes, threads, state, .. } = self.now.clone();
        ProcessReadings { cpu_pct, rss_bytes, threads, state, ..gpu }
    }
}

/// Returns whether the set of processes or the facts of one differ from the last list.
pub fn facts_changed(last: &[ProcessSample], now: &[ProcessSample]) -> bool {
    last.len() != now.len() || last.iter().zip(now).any(|(last, now)| last.facts != now.facts)
}

#[cfg(test)]
mod tests;
