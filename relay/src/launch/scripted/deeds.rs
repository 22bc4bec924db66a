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
pub(super) struct Deeds {
    /// Whether anything was done at all: a scenario is asked for every reading of every card.
    any: AtomicBool,
    done: Mutex<Done>,
}

#[derive(Debug, Default)]
struct Done {
    /// Processes that were ended, and when.
    ended: Vec<(Victim, i64)>,
    fates: BTreeMap<JobId, Fate>,
}

/// A process that was ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Victim {
    /// The job that it is of.
    pub job: JobId,
    /// Its node.
    pub node: usize,
    /// Its seat there.
    pub seat: usize,
    /// When the processes of the job began, in ms since the scenario's start: later ones are others.
    pub began_ms: i64,
}

/// What an ended process means for another one of its job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Loss {
    /// Nothing was ended.
    None,
    /// It is itself gone.
    Itself,
    /// Another one is gone, and it waits for that one in vain.
    Peer,
}

/// What becomes of a job by orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Fate {
    /// When it was cancelled.
    pub cancelled_ms: Option<i64>,
    /// Whether it is held, or until when it does not start: the time of the order, and that time.
    pub waits: Option<(i64, i64)>,
    /// How often it was requeued.
    pub restarts: u32,
}

impl Fate {
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

impl Deeds {
    fn done(&self) -> MutexGuard<'_, Done> {
        self.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A process ends.
    pub fn end(&self, victim: Victim, t_ms: i64) {
        self.done().ended.push((victim, t_ms));
        self.any.store(true, Ordering::Release);
    }

    /// What ended processes mean for this one at `t_ms`.
    pub fn loss(&self, of: Victim, t_ms: i64) -> Loss {
        if !self.any.load(Ordering::Acquire) {
            return Loss::None;
        }
        let done = self.done();
        let before = done.ended.iter().filter(|(_, ended_ms)| *ended_ms <= t_ms).map(|(victim, _)| victim);
        let mut kin = before.filter(|victim| victim.job == of.job && victim.began_ms == of.began_ms);
        match (kin.clone().any(|victim| *victim == of), kin.next()) {
            (true, _) => Loss::Itself,
            (false, Some(_)) => Loss::Peer,
            (false, None) => Loss::None,
        }
    }

    /// What orders have made of a job.
    pub fn fate(&self, job: JobId) -> Fate {
        if !self.any.load(Ordering::Acquire) {
            return Fate::default();
        }
        self.done().fates.get(&job).copied().unwrap_or_default()
    }

    /// Carries out an order.
    pub fn order(&self, job: JobId, order: JobOrder, t_ms: i64) {
        let mut done = self.done();
        let fate = done.fates.entry(job).or_default();
        match order {
            JobOrder::Cancel => fate.cancelled_ms = Some(fate.cancelled_ms.unwrap_or(t_ms)),
            JobOrder::Hold => fate.waits = Some((t_ms, i64::MAX)),
            JobOrder::Release => fate.waits = Some((t_ms, t_ms + RELEASED_MS)),
            JobOrder::Requeue => {
                fate.waits = Some((t_ms, t_ms + REQUEUED_MS));
                fate.restarts += 1;
            }
        }
        drop(done);
        self.any.store(true, Ordering::Release);
    }
}
