//! The limits of CPU time and memory that the relay sets for itself, by the strongest means that it may use.

use nodeglass_api::{LimitedBy, OwnLoad};
use nodeglass_config::Config;
use nodeglass_event_loop::own_load::{KernelMeter, OwnLimits};
use nodeglass_platform::cgroup::Cgroups;
use nodeglass_platform::own_cgroup::{self, GroupLimits};
use tokio::sync::oneshot;

/// Sets the limits that are configured, and returns how they are kept, with what resolves when the relay is to exit because
/// nobody uses it.
pub(super) fn apply(config: &Config) -> (OwnLimits, Option<oneshot::Receiver<()>>) {
    let wanted =
        GroupLimits { cpu_pct: config.cpu_max, memory_bytes: config.memory_max.map(|bytes| bytes as u64) };
    let mut cgroups = Cgroups::of_this_process();
    let mut by = LimitedBy::Cgroup;
    if !lacking(&cgroups, wanted).is_empty() {
        if let Some(means) = enter_group(lacking(&cgroups, wanted)) {
            by = means;
        }
        cgroups = Cgroups::of_this_process();
    }
    let lacking = lacking(&cgroups, wanted);
    let load = OwnLoad {
        cpu_max_pct: wanted.cpu_pct.or_else(|| cgroups.cpu_limit_pct()),
        memory_max_bytes: wanted.memory_bytes.or_else(|| Some(cgroups.memory()?.limit_bytes)),
        ..OwnLoad::default()
    };
    let load = OwnLoad {
        cpu_limited_by: load.cpu_max_pct.map(|_| lacking.cpu_pct.map_or(by, |_| LimitedBy::SlowerSampling)),
        memory_limited_by: load
            .memory_max_bytes
            .map(|_| lacking.memory_bytes.map_or(by, |_| LimitedBy::DroppedHistory)),
        ..load
    };
    let (auto_exit, exits) = match config.auto_exit {
        Some(after) => {
            let (exit, exits) = oneshot::channel();
            (Some((after, exit)), Some(exits))
        }
        None => (None, None),
    };
    let history_mem = config.history_mem;
    let meter = Box::new(KernelMeter::new(cgroups, lacking.memory_bytes));
    (OwnLimits { load, history_mem, auto_exit, meter }, exits)
}

/// The limits that no control group keeps.
fn lacking(cgroups: &Cgroups, wanted: GroupLimits) -> GroupLimits {
    let is_kept = |limit: Option<u64>, wanted: u64| limit.is_some_and(|limit| limit <= wanted);
    let (cpu, memory) = (cgroups.cpu_limit_pct(), cgroups.memory().map(|memory| memory.limit_bytes));
    GroupLimits {
        cpu_pct: wanted.cpu_pct.filter(|pct| !is_kept(cpu.map(u64::from), u64::from(*pct))),
        memory_bytes: wanted.memory_bytes.filter(|bytes| !is_kept(memory, *bytes)),
    }
}

/// Moves this process to a group with these limits; `None` if it may not.
fn enter_group(limits: GroupLimits) -> Option<LimitedBy> {
    let own =
        own_cgroup::folder().ok_or_else(|| std::io::Error::other("there are no control groups of version 2"));
    let error = match own.and_then(|own| own_cgroup::enter(&own, limits)) {
        Ok(()) => return Some(LimitedBy::Cgroup),
        Err(error) => error,
    };
    tracing::info!(%error, "no control group below that of the relay can be used");
    match own_cgroup::request_scope(limits) {
        Ok(()) => Some(LimitedBy::SystemdScope),
        Err(error) => {
            tracing::info!(%error, "no systemd scope can be used");
            None
        }
    }
}
