//! Requests early polls of the job list.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

/// Reason for requesting an early poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollReason {
    /// The owner ordered a change of a job, which SLURM applies a moment later.
    Order,
    /// The list may be outdated: a node closed its link, or the owner opened a page.
    Doubt,
    /// The owner named a job that the list does not have, perhaps because it is older than the job.
    Question,
    /// The owner requested a retry, even if SLURM does not respond.
    Retry,
}

/// Wakes the polling task. Cheap to clone; several requests of one reason are merged.
#[derive(Clone, Debug, Default)]
pub struct PollTrigger(Arc<Pending>);

#[derive(Debug, Default)]
struct Pending {
    order: Notify,
    doubt: Notify,
    question: Notify,
    retry: Notify,
    /// Number of polls that have begun.
    begun: AtomicU64,
}

impl PollTrigger {
    /// Requests a poll, at the time that [`super::PollSchedule::requested`] allows.
    pub fn send(&self, reason: PollReason) {
        let Pending { order, doubt, question, retry, .. } = &*self.0;
        match reason {
            PollReason::Order => order,
            PollReason::Doubt => doubt,
            PollReason::Question => question,
            PollReason::Retry => retry,
        }
        .notify_one();
    }

    /// Counts a poll, before it begins.
    pub fn begin(&self) {
        self.0.begun.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns whether anything is polled.
    pub fn is_polled(&self) -> bool {
        self.0.begun.load(Ordering::Acquire) > 0
    }

    /// Requests a list that is newer than this call. Returns the number of its poll, counted from 1; `None` if SLURM
    /// is not polled.
    pub fn request_newer(&self) -> Option<u64> {
        let begun = self.0.begun.load(Ordering::Acquire);
        self.send(PollReason::Question);
        (begun > 0).then_some(begun + 1)
    }

    /// Waits for the next request.
    pub async fn next(&self) -> PollReason {
        let Pending { order, doubt, question, retry, .. } = &*self.0;
        tokio::select! {
            () = retry.notified() => PollReason::Retry,
            () = question.notified() => PollReason::Question,
            () = order.notified() => PollReason::Order,
            () = doubt.notified() => PollReason::Doubt,
        }
    }
}
