//! Requests captures for findings that begin.

use super::EventLoop;

impl EventLoop {
    pub(super) fn request_captures(&mut self, now_ms: u64) {
        if let Some(capturer) = &self.sinks.capturer {
            let orders = self.fleet.due_captures(capturer.user(), now_ms);
            orders.into_iter().for_each(|order| capturer.capture(order));
        }
    }
}
