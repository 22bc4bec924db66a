//! Reasons to ask SLURM before the next poll is due, from whoever has one.

use std::sync::Arc;
use tokio::sync::Notify;

/// Why the job list is wanted soon.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// The owner gave an order about a job, which SLURM carries out a moment later.
    Order,
    /// The list may be out of date: a node closed its link, or the owner opened a page.
    Doubt,
    /// The owner asks for another try, even of a SLURM that does not answer.
    Retry,
}

/// Wakes the poll of the job list. Cheap to clone; any number of nudges of one reason wake it once.
#[derive(Clone, Debug, Default)]
pub struct Nudge(Arc<Pending>);

#[derive(Debug, Default)]
struct Pending {
    order: Notify,
    doubt: Notify,
    retry: Notify,
}

impl Nudge {
    /// Asks for a list soon. It comes when [`super::Cadence::nudged`] allows it.
    pub fn send(&self, reason: Reason) {
        let Pending { order, doubt, retry } = &*self.0;
        match reason {
            Reason::Order => order,
            Reason::Doubt => doubt,
            Reason::Retry => retry,
        }
        .notify_one();
    }

    /// Waits for the next nudge.
    pub async fn next(&self) -> Reason {
        let Pending { order, doubt, retry } = &*self.0;
        tokio::select! {
            () = retry.notified() => Reason::Retry,
            () = order.notified() => Reason::Order,
            () = doubt.notified() => Reason::Doubt,
        }
    }
}
