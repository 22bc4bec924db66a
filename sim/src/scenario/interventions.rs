//! Actions of the owner that change a scenario: signals to processes and job control.

use nodeglass_protocol::JobId;
use nodeglass_protocol::request::JobAction;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Time until a released job starts, in ms.
const RELEASED_MS: i64 = 8_000;
/// Time until a requeued job starts, in ms.
const REQUEUED_MS: i64 = 25_000;

/// All actions with their times. They never affect earlier times.
#[derive(Debug, Default)]
pub(crate) struct Interventions {
    /// Fast path: whether there are any actions, because every reading checks them.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Killed processes with the time.
    ended: Vec<(ProcessKey, i64)>,
    overrides: BTreeMap<JobId, JobOverride>,
}

/// Identifies a process of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ProcessKey {
    /// Its job.
    pub job: JobId,
    /// Its node.
    pub node: usize,
    /// Index of its GPU on the node.
    pub gres_index: usize,
    /// Start time of the job's processes, in ms since the scenario's start, which distinguishes
    /// restarts.
    pub began_ms: i64,
}

/// Effect of killed processes on a process of the same job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KillEffect {
    /// No process was killed.
    None,
    /// The process itself was killed.
    Itself,
    /// Another rank was killed, which this one waits for indefinitely.
    Peer,
}

/// Changes of a job by job control.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct JobOverride {
    /// Time of its cancellation.
    pub cancelled_ms: Option<i64>,
    /// Whether it is held or delayed: the time of the operation, and the earliest start.
    pub waits: Option<(i64, i64)>,
    /// Number of requeues.
    pub restarts: u32,
}

impl JobOverride {
    /// Returns the actual start of a job scheduled for `start_ms`, as known at `t_ms`.
    pub fn start_ms(&self, start_ms: i64, t_ms: i64) -> i64 {
        match self.waits {
            Some((since_ms, until_ms)) if t_ms >= since_ms => start_ms.max(until_ms),
            _ => start_ms,
        }
    }

    /// Returns the time of its cancellation, if before `t_ms`.
    pub fn cancelled_by(&self, t_ms: i64) -> Option<i64> {
        self.cancelled_ms.filter(|cancelled| *cancelled <= t_ms)
    }

    /// Returns whether the job was released before `t_ms`, and not held again.
    pub fn is_released_by(&self, t_ms: i64) -> bool {
        self.waits.is_some_and(|(since_ms, until_ms)| since_ms <= t_ms && until_ms != i64::MAX)
    }

    /// Returns whether the job is held.
    pub fn is_held(&self) -> bool {
        self.waits.is_some_and(|(_, until_ms)| until_ms == i64::MAX)
    }
}

impl Interventions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Kills a process.
    pub fn end(&self, process: ProcessKey, t_ms: i64) {
        self.state().ended.push((process, t_ms));
        self.any.store(true, Ordering::Release);
    }

    /// Returns the effect of killed processes on this one at `t_ms`.
    pub fn kill_effect(&self, of: ProcessKey, t_ms: i64) -> KillEffect {
        if !self.any.load(Ordering::Acquire) {
            return KillEffect::None;
        }
        let state = self.state();
        let before = state.ended.iter().filter(|(_, ended_ms)| *ended_ms <= t_ms).map(|(process, _)| process);
        let mut peers = before.filter(|process| process.job == of.job && process.began_ms == of.began_ms);
        match (peers.clone().any(|process| *process == of), peers.next()) {
            (true, _) => KillEffect::Itself,
            (false, Some(_)) => KillEffect::Peer,
            (false, None) => KillEffect::None,
        }
    }

    /// Returns the changes of a job.
    pub fn job_override(&self, job: JobId) -> JobOverride {
        if !self.any.load(Ordering::Acquire) {
            return JobOverride::default();
        }
        self.state().overrides.get(&job).copied().unwrap_or_default()
    }

    /// Performs a job control operation.
    pub fn order(&self, job: JobId, order: JobAction, t_ms: i64) {
        let mut state = self.state();
        let job_override = state.overrides.entry(job).or_default();
        match order {
            JobAction::Cancel => job_override.cancelled_ms = Some(job_override.cancelled_ms.unwrap_or(t_ms)),
            JobAction::Hold => job_override.waits = Some((t_ms, i64::MAX)),
            JobAction::Release => job_override.waits = Some((t_ms, t_ms + RELEASED_MS)),
            JobAction::Requeue => {
                job_override.waits = Some((t_ms, t_ms + REQUEUED_MS));
                job_override.restarts += 1;
            }
        }
        drop(state);
        self.any.store(true, Ordering::Release);
    }
}
