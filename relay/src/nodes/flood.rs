//! A node may send as much as a probe has any reason to, with room for what a broken link held back; beyond that its link is cut.

use tokio::time::Instant;

/// Bytes that may come at once: a probe keeps 3 MiB of samples to send again, and lists of processes come besides.
const BURST_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Bytes per second in the long run; a node with thousands of processes sends some 300 kB.
const BYTES_PER_S: f64 = 1024.0 * 1024.0;
/// Lines that may come at once: the kept samples of ten minutes, in their shortest form, are fewer.
const BURST_LINES: f64 = 20_000.0;
/// Lines per second in the long run; a probe prints about five.
const LINES_PER_S: f64 = 100.0;
/// What a hello counts for, in lines: it makes the relay and every page begin the node anew.
pub(super) const HELLO_LINES: usize = 400;

/// What one link may still send: two token buckets.
#[derive(Clone, Debug)]
pub(super) struct Flood {
    bytes: f64,
    lines: f64,
    at: Instant,
}

impl Flood {
    /// Full buckets.
    pub(super) fn new(now: Instant) -> Self {
        Self { bytes: BURST_BYTES, lines: BURST_LINES, at: now }
    }

    /// Takes what came in; whether that was still within bounds.
    pub(super) fn admits(&mut self, bytes: usize, lines: usize, now: Instant) -> bool {
        let passed_s = now.saturating_duration_since(self.at).as_secs_f64();
        self.at = now;
        self.bytes = (self.bytes + passed_s * BYTES_PER_S).min(BURST_BYTES) - bytes as f64;
        self.lines = (self.lines + passed_s * LINES_PER_S).min(BURST_LINES) - lines as f64;
        self.bytes >= 0.0 && self.lines >= 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    /// For how long `bytes` and `lines` a second are admitted, in s.
    fn lasts(bytes: usize, lines: usize) -> Option<u64> {
        let start = Instant::now();
        let mut flood = Flood::new(start);
        (1..=600).find(|s| !flood.admits(bytes, lines, start + Duration::from_secs(*s)))
    }

    #[test]
    fn a_busy_node_is_never_cut_and_a_flood_within_seconds() {
        assert_eq!(lasts(300_000, 12), None, "4,000 processes");
        assert_eq!(lasts(1_000_000, 99), None);
        assert!(lasts(50_000_000, 1).is_some_and(|s| s <= 1), "endless bytes");
        assert!(lasts(3_000_000, 15_000).is_some_and(|s| s <= 2), "lines without pause");
        assert!(lasts(10_000, HELLO_LINES).is_some_and(|s| s <= 70), "a hello each second");
    }

    #[test]
    fn what_a_broken_link_held_back_fits() {
        let start = Instant::now();
        let mut flood = Flood::new(start);
        assert!(flood.admits(6 << 20, 4_000, start));
    }
}
