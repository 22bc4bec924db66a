//! Requests early polls of the job list.

use std::sync::Arc;
use tokio::sync::Notify;

/// Why an early poll is requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PollReason {
    /// The owner ordered a change of a job, which SLURM applies a moment later.
    Order,
    /// The list may be outdated: a node closed its link, or the owner opened a page.
    Doubt,
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
    retry: Notify,
}

impl PollTrigger {
    /// Requests a poll, at the time that [`super::PollSchedule::requested`] allows.
    pub fn send(&self, reason: PollReason) {
        let Pending { order, doubt, retry } = &*self.0;
        match reason {
            PollReason::Order => order,
            PollReason::Doubt => doubt,
            PollReason::Retry => retry,
        }
        .notify_one();
    }

    /// Waits for the next request.
    pub async fn next(&self) -> PollReason {
        let Pending { order, doubt, retry } = &*self.0;
        tokio::select! {
            () = retry.notified() => PollReason::Retry,
            () = order.notified() => PollReason::Order,
            () = doubt.notified() => PollReason::Doubt,
        }
    }
}
