//! Rate limit for a node's output, with a burst for the backlog of a broken link; excess closes the link.

use nodeglass_platform::token_bucket::TokenBucket;
use tokio::time::Instant;

/// Burst in bytes: a probe keeps 3 MiB of samples to resend, plus process lists.
const BURST_BYTES: f64 = 16.0 * 1024.0 * 1024.0;
/// Sustained bytes per second. A node with thousands of processes sends about 300 kB; if they change all
/// the time, also the complete list, up to 4 MiB, every 2 s.
const BYTES_PER_S: f64 = 3.0 * 1024.0 * 1024.0;
/// Burst in lines: the samples of ten minutes in their shortest form are fewer.
const BURST_LINES: f64 = 20_000.0;
/// Sustained lines per second; a probe prints about five.
const LINES_PER_S: f64 = 100.0;
/// Cost of a hello in lines: the relay and every page reset the node.
pub(super) const HELLO_LINES: usize = 400;

/// The remaining input of a link.
#[derive(Clone, Debug)]
pub(super) struct InputLimit {
    bytes: TokenBucket,
    lines: TokenBucket,
}

impl InputLimit {
    /// Full buckets.
    pub(super) fn new(now: Instant) -> Self {
        Self {
            bytes: TokenBucket::full(BURST_BYTES, BYTES_PER_S, now),
            lines: TokenBucket::full(BURST_LINES, LINES_PER_S, now),
        }
    }

    /// Charges the input and returns whether it was within the limit.
    pub(super) fn admits(&mut self, bytes: usize, lines: usize, now: Instant) -> bool {
        self.bytes.take(bytes as f64, now) & self.lines.take(lines as f64, now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::probe::{MAX_WHOLE, ProcessFacts, ProcessKind};
    use nodeglass_protocol::{GpuUuid, JobId, Reading, Text};
    use std::time::Duration;

    /// How long this rate is admitted, in s.
    fn lasts(bytes: usize, lines: usize) -> Option<u64> {
        let start = Instant::now();
        let mut input_limit = InputLimit::new(start);
        (1..=600).find(|s| !input_limit.admits(bytes, lines, start + Duration::from_secs(*s)))
    }

    #[test]
    fn a_busy_node_is_never_cut_off_and_a_flood_within_seconds() {
        assert_eq!(lasts(300_000, 12), None, "4,000 processes");
        assert_eq!(lasts(3_000_000, 99), None);
        assert!(lasts(50_000_000, 1).is_some_and(|s| s <= 1), "endless bytes");
        assert!(lasts(5_000_000, 15_000).is_some_and(|s| s <= 2), "lines without pause");
        assert!(lasts(10_000, HELLO_LINES).is_some_and(|s| s <= 70), "a hello each second");
    }

    #[test]
    fn full_process_lists_that_change_every_time_are_within_the_limit() {
        let text = |prefix: &str| Reading::Value(Text::new(format!("{prefix}{}", "x".repeat(240))));
        let facts = |pid| ProcessFacts {
            parent: Reading::Value(1),
            started_ms: Reading::Value(1_700_000_000_000),
            user: Reading::Value("alice".into()),
            command: Reading::Value("python3.11".into()),
            args: text("python train.py --config "),
            cwd: text("/home/alice/"),
            job: Some(JobId(1_234_567)),
            step: Some("batch".into()),
            ..ProcessFacts::new(
                GpuUuid::new("GPU-8d3c5f0a-1b2c-4d5e-8f90-a1b2c3d4e5f6"),
                pid,
                ProcessKind::default(),
            )
        };
        let list: Vec<ProcessFacts> = (100_000..102_500).map(facts).collect();
        let list_bytes = serde_json::to_vec(&list).unwrap().len();
        assert!((1 << 20..MAX_WHOLE).contains(&list_bytes), "{list_bytes}");
        for bytes in [list_bytes, MAX_WHOLE] {
            let start = Instant::now();
            let mut input_limit = InputLimit::new(start);
            // Plus a sample per second, with the readings of all these processes.
            let admits = |s| {
                input_limit.admits(
                    300_000 + if s % 2 == 0 { bytes } else { 0 },
                    20,
                    start + Duration::from_secs(s),
                )
            };
            assert!((1..=3_600).all(admits), "{bytes} bytes each 2 s");
        }
    }

    #[test]
    fn a_backlog_of_a_broken_link_is_within_the_limit() {
        let start = Instant::now();
        let mut input_limit = InputLimit::new(start);
        assert!(input_limit.admits(6 << 20, 4_000, start));
    }
}
