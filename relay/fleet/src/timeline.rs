//! Maps a node's clock to the relay's, without assuming that either is accurate.

/// Maps one node's `CLOCK_BOOTTIME` to the relay's clock.
///
/// The smallest delay between sampling and arrival seen in the last five to ten minutes is taken for
/// none, so that queueing makes a sample late but not wrong, and slow drift is followed.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timeline {
    offset_ms: Option<i64>,
    window_started_ms: u64,
    window_min: Option<i64>,
}

const WINDOW_MS: u64 = 300_000;

impl Timeline {
    /// Returns whether a sample has arrived; before that nothing can be mapped.
    pub fn is_known(&self) -> bool {
        self.offset_ms.is_some()
    }

    /// Records that what was sampled at `mono_ns` arrived at `now_ms`.
    pub fn observe(&mut self, mono_ns: u64, now_ms: u64) {
        let offset = now_ms as i64 - (mono_ns / 1_000_000) as i64;
        let window_min = self.window_min.map_or(offset, |min| min.min(offset));
        self.window_min = Some(window_min);
        self.offset_ms = Some(self.offset_ms.map_or(offset, |known| known.min(offset)));
        if now_ms.saturating_sub(self.window_started_ms) >= WINDOW_MS {
            self.offset_ms = Some(window_min);
            self.window_min = None;
            self.window_started_ms = now_ms;
        }
    }

    /// The relay's time of what was sampled at `mono_ns`, never in the future.
    pub fn relay_ms(&self, mono_ns: u64, now_ms: u64) -> u64 {
        let at = (mono_ns / 1_000_000) as i64 + self.offset_ms.unwrap_or(0);
        u64::try_from(at).unwrap_or(0).min(now_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delayed_sample_keeps_its_time() {
        let mut line = Timeline::default();
        line.observe(1_000_000_000_000, 500);
        line.observe(1_001_000_000_000, 9_500);
        assert_eq!(line.relay_ms(1_001_000_000_000, 9_500), 1_500);
    }

    #[test]
    fn f08_a_sample_is_never_from_the_future() {
        let mut line = Timeline::default();
        line.observe(0, 100);
        assert_eq!(line.relay_ms(5_000_000_000, 200), 200);
    }

    #[test]
    fn f08_a_slow_node_clock_is_followed() {
        let mut line = Timeline::default();
        // The node loses 1 ms a second; after an hour its samples must not look seconds old.
        for second in 0..3_600u64 {
            line.observe(second * 999_000_000, second * 1_000);
        }
        let at = line.relay_ms(3_599 * 999_000_000, 3_599_000);
        assert!(3_599_000 - at <= 600, "{at}");
    }
}
