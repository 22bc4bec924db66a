//! Position in the driver's buffer of utilization samples.

use super::ffi::Utilization;
use std::collections::HashMap;

/// Time span of the first query in µs, and of the first one after the clock was set.
const INITIAL_WINDOW_US: u64 = 2_000_000;
/// Maximum clock difference of the driver in µs, beyond which a timestamp counts as in the future.
const SLACK_US: u64 = 1_000_000;

/// Timestamps of the samples already used, so that each is used once.
///
/// NVML uses the wall clock, which may be set. A timestamp in the future must not become the start
/// of the next query, because nothing would be newer until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCursor {
    /// Timestamp of the newest sample not in the future, in µs since 1970; 0 before the first.
    until_us: u64,
    /// Timestamp of the newest sample in the future.
    ahead_us: u64,
}

impl SampleCursor {
    /// Returns the start time of the next query, at `now_us` of the wall clock.
    pub fn since_us(&mut self, now_us: u64) -> u64 {
        if self.until_us > now_us.saturating_add(SLACK_US) {
            // The clock was set back: samples used so far are now in the future.
            self.ahead_us = self.ahead_us.max(self.until_us);
            self.until_us = 0;
        }
        if self.until_us == 0 {
            self.until_us = now_us.saturating_sub(INITIAL_WINDOW_US);
        }
        self.until_us
    }

    /// Selects the latest new sample per process. One in the future counts only if the process has
    /// no other: its timestamp is wrong, its values are not.
    pub fn latest(&mut self, samples: &[Utilization], now_us: u64) -> HashMap<u32, Utilization> {
        let cursor = *self;
        let is_ahead = |sample: &Utilization| sample.timestamp_us > now_us.saturating_add(SLACK_US);
        let mut latest: HashMap<u32, Utilization> = HashMap::new();
        for sample in samples {
            let newest = if is_ahead(sample) { &mut self.ahead_us } else { &mut self.until_us };
            *newest = sample.timestamp_us.max(*newest);
            let is_new =
                sample.timestamp_us > if is_ahead(sample) { cursor.ahead_us } else { cursor.until_us };
            let is_later = latest.get(&sample.pid).is_none_or(|known| {
                (!is_ahead(sample), sample.timestamp_us) > (!is_ahead(known), known.timestamp_us)
            });
            if is_new && is_later {
                latest.insert(sample.pid, *sample);
            }
        }
        latest
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * SECOND;

    fn sample(pid: u32, timestamp_us: u64, sm: u32) -> Utilization {
        Utilization { pid, timestamp_us, sm, mem: 1, enc: 0, dec: 0 }
    }

    /// Returns the reported utilization of process 1 if the driver has `samples`.
    fn query(cursor: &mut SampleCursor, now_us: u64, samples: &[Utilization]) -> Option<u32> {
        let since = cursor.since_us(now_us);
        let reported_value: Vec<_> =
            samples.iter().copied().filter(|sample| sample.timestamp_us > since).collect();
        cursor.latest(&reported_value, now_us).get(&1).map(|sample| sample.sm)
    }

    #[test]
    fn each_sample_counts_once_and_the_latest_wins() {
        let mut cursor = SampleCursor::default();
        let samples = [sample(1, NOW - 3 * SECOND, 99), sample(1, NOW - 100, 30), sample(1, NOW - 200, 20)];
        assert_eq!(query(&mut cursor, NOW, &samples), Some(30));
        assert_eq!(query(&mut cursor, NOW + SECOND, &samples), None);
    }

    #[test]
    fn a_sample_in_the_future_hides_no_later_one() {
        let mut cursor = SampleCursor::default();
        let ahead = sample(1, NOW + 3_600 * SECOND, 40);
        assert_eq!(query(&mut cursor, NOW, &[ahead]), Some(40));
        for second in 1..60 {
            let now = NOW + second * SECOND;
            assert_eq!(query(&mut cursor, now, &[ahead, sample(1, now, 50)]), Some(50), "{second}");
        }
        // By itself it has been used already.
        assert_eq!(query(&mut cursor, NOW + 60 * SECOND, &[ahead]), None);
    }

    #[test]
    fn utilization_continues_when_the_clock_is_set() {
        for step in [-40_i64, 40, -3_600, 3_600] {
            let mut cursor = SampleCursor::default();
            let mut samples = Vec::new();
            for second in 0..20_u64 {
                let stepped = if second < 6 { 0 } else { step };
                let now = (NOW + second * SECOND).saturating_add_signed(stepped * SECOND as i64);
                samples.push(sample(1, now, 40 + second as u32));
                assert_eq!(query(&mut cursor, now, &samples), Some(40 + second as u32), "{step} {second}");
            }
            // The process becomes idle: samples from before the clock was set do not reappear.
            let now = (NOW + 21 * SECOND).saturating_add_signed(step * SECOND as i64);
            assert_eq!(query(&mut cursor, now, &samples), None, "{step}");
        }
    }
}
