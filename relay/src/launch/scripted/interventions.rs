//! Besides the time, only what its owner has done to a scenario changes it: signals to processes, orders about jobs.

use nodeglass_protocol::JobId;
use nodeglass_protocol::ask::JobOrder;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long a job waits before it starts once it is released, in ms.
const RELEASED_MS: i64 = 8_000;
/// How long it waits once it is requeued, in ms.
const REQUEUED_MS: i64 = 25_000;

/// What was done, and when; nothing of it is ever undone in the past.
#[derive(Debug, Default)]
pub(super) struct Interventions {
    /// Whether anything was done at all: a scenario is asked for every reading of every card.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Processes that were ended, and when.
    ended: Vec<(ProcessKey, i64)>,
    overrides: BTreeMap<JobId, JobOverride>,
}

/// A process that was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ProcessKey {
    /// The job that it is of.
    pub job: JobId,
    /// Its node.
    pub node: usize,
    /// Its seat there.
    pub gres_index: usize,
    /// When the processes of the job began, in ms since the scenario's start: later ones are others.
    pub began_ms: i64,
}

/// What an ended process means for another one of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum KillEffect {
    /// Nothing was ended.
    None,
    /// It is itself gone.
    Itself,
    /// Another one is gone, and it waits for that one in vain.
    Peer,
}

/// What becomes of a job by orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct JobOverride {
    /// When it was cancelled.
    pub cancelled_ms: Option<i64>,
    /// Whether it is held, or until when it does not start: the time of the order, and that time.
    pub waits: Option<(i64, i64)>,
    /// How often it was requeued.
    pub restarts: u32,
}

impl JobOverride {
    /// When a job that would start at `start_ms` does start, as it is known at `t_ms`.
    pub fn start_ms(&self, start_ms: i64, t_ms: i64) -> i64 {
        match self.waits {
            Some((since_ms, until_ms)) if t_ms >= since_ms => start_ms.max(until_ms),
            _ => start_ms,
        }
    }

    /// When it was cancelled, if that was before `t_ms`.
    pub fn cancelled_by(&self, t_ms: i64) -> Option<i64> {
        self.cancelled_ms.filter(|cancelled| *cancelled <= t_ms)
    }

    /// Whether its owner holds it.
    pub fn is_held(&self) -> bool {
        self.waits.is_some_and(|(_, until_ms)| until_ms == i64::MAX)
    }
}

impl Interventions {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process ends.
    pub fn end(&self, process: ProcessKey, t_ms: i64) {
        self.state().ended.push((process, t_ms));
        self.any.store(true, Ordering::Release);
    }

    /// What ended processes mean for this one at `t_ms`.
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

    /// What orders have made of a job.
    pub fn job_override(&self, job: JobId) -> JobOverride {
        if !self.any.load(Ordering::Acquire) {
            return JobOverride::default();
        }
        self.state().overrides.get(&job).copied().unwrap_or_default()
    }

    /// Carries out an order.
    pub fn order(&self, job: JobId, order: JobOrder, t_ms: i64) {
        let mut state = self.state();
        let job_override = state.overrides.entry(job).or_default();
        match order {
            JobOrder::Cancel => job_override.cancelled_ms = Some(job_override.cancelled_ms.unwrap_or(t_ms)),
            JobOrder::Hold => job_override.waits = Some((t_ms, i64::MAX)),
            JobOrder::Release => job_override.waits = Some((t_ms, t_ms + RELEASED_MS)),
            JobOrder::Requeue => {
                job_override.waits = Some((t_ms, t_ms + REQUEUED_MS));
                job_override.restarts += 1;
            }
        }
        drop(state);
        self.any.store(true, Ordering::Release);
    }
}
