//! The relay's clock, derived from the page's, so that ages do not depend on the browser's time of day.

use nodeglass_protocol::live::Welcome;
use nodeglass_protocol::replay::REAL_TIME_PCT;

/// Estimate of the relay's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clock {
    /// Relay's clock minus page's clock, in ms: the largest observed, because a message can only be late.
    ahead_ms: f64,
    /// Time of day minus relay's clock, in ms.
    wall_ahead_ms: i64,
    /// The time at which it stands, on the page's clock in ms, while the connection is lost: the last picture is from
    /// then, and its nodes did not become silent.
    stopped_at_ms: Option<f64>,
    /// Set while the relay plays a recording, whose time runs at another speed, or is set.
    recording: Option<Recording>,
}

/// The time of a recording.
#[derive(Clone, Copy, Debug)]
struct Recording {
    /// When the last message arrived, on the page's clock in ms; [`Clock::ahead_ms`] is as of then.
    page_ms: f64,
    /// Seconds of the recording per second.
    speed: f64,
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
        self.recording = None;
    }

    /// Stops it at a moment of the page's clock until the next connection. Later calls change nothing.
    pub fn stop(&mut self, page_ms: f64) {
        self.stopped_at_ms.get_or_insert(page_ms);
    }

    /// Corrects it with a message that carries `relay_ms` and arrived at `page_ms`.
    pub fn observe(&mut self, relay_ms: u64, page_ms: f64) {
        self.ahead_ms = (self.ahead_ms - Self::FORGET_MS).max(relay_ms as f64 - page_ms);
    }

    /// Sets it by a message of a relay that plays a recording: its time may run backwards.
    pub fn follow_recording(&mut self, relay_ms: u64, page_ms: f64, speed_pct: u32) {
        self.ahead_ms = relay_ms as f64 - page_ms;
        let speed = f64::from(speed_pct) / f64::from(REAL_TIME_PCT);
        self.recording = Some(Recording { page_ms, speed });
    }

    /// Returns the relay's clock at a moment of the page's clock.
    pub fn relay_ms(&self, page_ms: f64) -> u64 {
        let page_ms = self.stopped_at_ms.map_or(page_ms, |stopped| stopped.min(page_ms));
        // At the recording's speed since the last message.
        let faster = |recording: Recording| (page_ms - recording.page_ms) * (recording.speed - 1.0);
        (page_ms + self.ahead_ms + self.recording.map_or(0.0, faster)).max(0.0) as u64
    }

    /// Returns how far Unix time by the login node's clock is ahead of the relay's clock, in ms.
    pub fn wall_ahead_ms(&self) -> i64 {
        self.wall_ahead_ms
    }

    /// Returns Unix time by the login node's clock at a moment of the page's clock, in s.
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
    fn the_time_of_a_recording_runs_at_its_speed_and_can_go_back() {
        let mut clock = Clock { ahead_ms: 1_000.0, ..Clock::default() };
        clock.follow_recording(60_000, 5_000.0, 400);
        assert_eq!([5_000.0, 5_500.0].map(|at| clock.relay_ms(at)), [60_000, 62_000]);
        clock.follow_recording(20_000, 6_000.0, 0);
        assert_eq!([6_000.0, 9_000.0].map(|at| clock.relay_ms(at)), [20_000, 20_000]);
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
