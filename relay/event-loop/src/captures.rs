//! Requests captures for findings that begin.

use super::EventLoop;
use crate::capturer::Capturer;

impl EventLoop {
    /// Captures what the processes of jobs do when a finding begins.
    pub fn with_captures(self, capturer: Option<Capturer>) -> Self {
        Self { capturer, ..self }
    }

    pub(super) fn request_captures(&mut self, now_ms: u64) {
        if let Some(capturer) = &self.capturer {
            let orders = self.fleet.due_captures(capturer.user(), now_ms);
            orders.into_iter().for_each(|order| capturer.capture(order));
        }
    }
}
