//! The relay's clock, derived from the page's, so that ages do not depend on the browser's time of day.

use nodeglass_protocol::live::Welcome;

/// Estimate of the relay's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Relay's clock minus page's clock, in ms: the largest observed, because a message can only be late.
    ahead_ms: f64,
    /// Time of day minus relay's clock, in ms.
    wall_ahead_ms: i64,
}

impl Clock {
    /// Decay of the best offset per message, in ms: far more than clocks drift in a second, so the estimate
    /// recovers from a wrong offset.
    const FORGET_MS: f64 = 1.0;

    /// Initialises it from the first message of a connection.
    pub fn set(&mut self, welcome: &Welcome, page_ms: f64) {
        self.ahead_ms = welcome.at_ms as f64 - page_ms;
        self.wall_ahead_ms = welcome.wall_ms.cast_signed() - welcome.at_ms.cast_signed();
    }

    /// Corrects it with a message that carries `relay_ms` and arrived at `page_ms`.
    pub fn observe(&mut self, relay_ms: u64, page_ms: f64) {
        self.ahead_ms = (self.ahead_ms - Self::FORGET_MS).max(relay_ms as f64 - page_ms);
    }

    /// Returns the relay's clock at a moment of the page's clock.
    pub fn relay_ms(&self, page_ms: f64) -> u64 {
        (page_ms + self.ahead_ms).max(0.0) as u64
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
        let mut clock = Clock { ahead_ms: 1_000.0, wall_ahead_ms: 0 };
        clock.observe(3_000, 5_000.0);
        assert_eq!(clock.relay_ms(5_000.0), 5_999);
        clock.observe(6_100, 5_000.0);
        assert_eq!(clock.relay_ms(5_000.0), 6_100);
    }
}
