//! Requests to the relay that await their response, by number.

use futures_channel::oneshot::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Reasons why a request was not answered, as shown to the user.
pub mod messages {
    /// Sent while there is no connection.
    pub const NO_LINK: &str = "Not connected to the relay: nothing was sent.";
    /// The connection broke before the response.
    pub const LINK_LOST: &str =
        "The connection was lost before the relay responded. Check whether it was done.";
    /// No response in time.
    pub const NO_ANSWER: &str = "No answer within 20 s. Check whether it was done.";
}

/// Requests that await a response.
pub struct PendingRequests<T>(Mutex<Waiting<T>>);

struct Waiting<T> {
    last: u32,
    open: Vec<(u32, Sender<T>)>,
}

impl<T> Default for PendingRequests<T> {
    fn default() -> Self {
        Self(Mutex::new(Waiting { last: 0, open: Vec::new() }))
    }
}

impl<T> Waiting<T> {
    fn take(&mut self, number: u32) -> Option<Sender<T>> {
        let at = self.open.iter().position(|(open, _)| *open == number)?;
        Some(self.open.swap_remove(at).1)
    }
}

impl<T> PendingRequests<T> {
    /// Assigns a number to a request and returns the receiver of its response.
    pub fn register(&self) -> (u32, Receiver<T>) {
        let (sender, receiver) = channel();
        let mut waiting = self.waiting();
        waiting.last = waiting.last.wrapping_add(1);
        let number = waiting.last;
        waiting.open.push((number, sender));
        (number, receiver)
    }

    /// Delivers a response; drops it if the request was cancelled.
    pub fn resolve(&self, number: u32, answer: T) {
        if let Some(sender) = self.waiting().take(number) {
            let _ = sender.send(answer);
        }
    }

    /// Cancels every pending request, because the connection is lost.
    pub fn cancel_all(&self) {
        self.waiting().open.clear();
    }

    /// Cancels a request that has timed out.
    pub fn cancel(&self, number: u32) {
        drop(self.waiting().take(number));
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::request::Response;

    #[test]
    fn responses_match_their_requests_in_any_order() {
        let pending = PendingRequests::default();
        let ((one, mut first), (two, mut second)) = (pending.register(), pending.register());
        pending.resolve(two, Response::Done("b".into()));
        pending.resolve(one, Response::Done("a".into()));
        assert_eq!(first.try_recv(), Ok(Some(Response::Done("a".into()))));
        assert_eq!(second.try_recv(), Ok(Some(Response::Done("b".into()))));
    }

    #[test]
    fn a_lost_connection_cancels_every_pending_request() {
        let pending = PendingRequests::<Response>::default();
        let (_, mut open) = pending.register();
        pending.cancel_all();
        assert!(open.try_recv().is_err());
    }

    #[test]
    fn a_late_response_is_dropped() {
        let pending = PendingRequests::default();
        let (number, mut open) = pending.register();
        pending.cancel(number);
        pending.resolve(number, Response::Done("late".into()));
        assert!(open.try_recv().is_err());
    }
}
