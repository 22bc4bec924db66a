//! The relay's clock, derived from the page's, so that ages do not depend on the browser's time of day.

use nodeglass_protocol::live::Welcome;

/// Estimate of the relay's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Relay's clock minus page's clock, in ms: the largest observed, because a message can only be late.
    ahead_ms: f64,
    /// Time of day minus relay's clock, in ms.
    wall_ahead_ms: i64,
    /// Where it stands, on the page's clock in ms, while the connection is lost: the last picture is as of
    /// then, and its nodes did not become silent.
    stopped_at_ms: Option<f64>,
}

impl Clock {
    /// Decay of the best offset per message, in ms: far more than clocks drift in a second, so the estimate
    /// recovers from a wrong offset.
    const FORGET_MS: f64 = 1.0;

    /// Initialises it from the first message of a connection.
    pub fn set(&mut self, welcome: &Welcome, page_ms: f64) {
        self.ahead_ms = welcome.at_ms as f64 - page_ms;
        self.wall_ahead_ms = welcome.wall_ms.cast_signed() - welcome.at_ms.cast_signed();
        self.stopped_at_ms = None;
    }

    /// Stops it at a moment of the page's clock until the next connection. Later calls change nothing.
    pub fn stop(&mut self, page_ms: f64) {
        self.stopped_at_ms.get_or_insert(page_ms);
    }

    /// Corrects it with a message that carries `relay_ms` and arrived at `page_ms`.
    pub fn observe(&mut self, relay_ms: u64, page_ms: f64) {
        self.ahead_ms = (self.ahead_ms - Self::FORGET_MS).max(relay_ms as f64 - page_ms);
    }

    /// Returns the relay's clock at a moment of the page's clock.
    pub fn relay_ms(&self, page_ms: f64) -> u64 {
        (self.stopped_at_ms.map_or(page_ms, |stopped| stopped.min(page_ms)) + self.ahead_ms).max(0.0) as u64
    }

    /// Returns the cluster's time of day at a moment of the page's clock, in seconds since 1970.
    pub fn wall_s(&self, page_ms: f64) -> i64 {
        (self.relay_ms(page_ms).cast_signed() + self.wall_ahead_ms) / 1_000
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_message_does_not_make_samples_look_young() {
        let mut clock = Clock { ahead_ms: 1_000.0, ..Clock::default() };
        clock.observe(3_000, 5_000.0);
        assert_eq!(clock.relay_ms(5_000.0), 5_999);
        clock.observe(6_100, 5_000.0);
        assert_eq!(clock.relay_ms(5_000.0), 6_100);
    }

    #[test]
    fn a_stopped_clock_stays_at_the_last_message() {
        let mut clock = Clock { ahead_ms: 1_000.0, ..Clock::default() };
        clock.stop(5_000.0);
        clock.stop(9_000.0);
        assert_eq!([4_000.0, 5_000.0, 99_000.0].map(|at| clock.relay_ms(at)), [5_000, 6_000, 6_000]);
        assert_eq!(clock.wall_s(99_000.0), 6);
    }
}
