//! The relay's clock is told from the page's own, so that ages do not depend on anybody's time of day.

use nodeglass_protocol::live::Welcome;

/// The relay's clock as seen from here.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Relay's clock less page's clock, in ms: the largest seen, for a message can only be late.
    ahead_ms: f64,
    /// Time of day less relay's clock, in ms.
    wall_ahead_ms: i64,
}

impl Clock {
    /// By how much the best offset may be wrong a message later: 1 ms, which is far more than clocks
    /// drift in a second and lets the page follow one that was set up wrongly.
    const FORGET_MS: f64 = 1.0;

    /// Sets it from the first message of a connection.
    pub fn set(&mut self, welcome: &Welcome, page_ms: f64) {
        self.ahead_ms = welcome.at_ms as f64 - page_ms;
        self.wall_ahead_ms = welcome.wall_ms.cast_signed() - welcome.at_ms.cast_signed();
    }

    /// Corrects it by a message that says `relay_ms` and arrived at `page_ms`.
    pub fn hear(&mut self, relay_ms: u64, page_ms: f64) {
        self.ahead_ms = (self.ahead_ms - Self::FORGET_MS).max(relay_ms as f64 - page_ms);
    }

    /// The relay's clock at a moment of the page's.
    pub fn relay_ms(&self, page_ms: f64) -> u64 {
        (page_ms + self.ahead_ms).max(0.0) as u64
    }

    /// The cluster's time of day at a moment of the page's, in seconds since 1970.
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
        clock.hear(3_000, 5_000.0);
        assert_eq!(clock.relay_ms(5_000.0), 5_999);
        clock.hear(6_100, 5_000.0);
        assert_eq!(clock.relay_ms(5_000.0), 6_100);
    }
}
