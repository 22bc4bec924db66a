//! When free memory is returned to the system; the allocator returns only the end of its heaps by itself.

/// Time after the last subscriber left: not for every reload of a page, as trimming visits all free memory.
const AFTER_DEPARTURE_MS: u64 = 5_000;
/// Time after the start, when nodes have sent what their probes kept.
const AFTER_START_MS: u64 = 60_000;
/// Interval of looking at the size of the process.
const CHECK_MS: u64 = 60_000;
/// Growth since memory was last returned, in bytes and in percent, from which it is returned again: nodes that return
/// together, and pages that lag together, take much memory for a moment.
const MIN_GROWTH_BYTES: u64 = 32 << 20;
const MIN_GROWTH_PCT: u64 = 25;

/// Decides when free memory is returned.
#[derive(Debug)]
pub(super) struct TrimSchedule {
    /// When it is returned after the start; `None` once it was.
    start_ms: Option<u64>,
    /// When it is returned after the last departure of a subscriber.
    departure_ms: Option<u64>,
    check_ms: u64,
    /// Size of the process at the first look after it was returned; `None` until then.
    base_bytes: Option<u64>,
}

impl TrimSchedule {
    pub(super) fn new(now_ms: u64) -> Self {
        let start_ms = Some(now_ms.saturating_add(AFTER_START_MS));
        Self { start_ms, departure_ms: None, check_ms: now_ms, base_bytes: None }
    }

    /// A subscriber left.
    pub(super) fn departed(&mut self, now_ms: u64) {
        self.departure_ms = Some(now_ms.saturating_add(AFTER_DEPARTURE_MS));
    }

    /// Returns whether free memory is to be returned now, where `bytes` reads the size of the process.
    pub(super) fn is_due(&mut self, now_ms: u64, bytes: impl FnOnce() -> Option<u64>) -> bool {
        let is_over = |at: &mut Option<u64>| at.take_if(|at_ms| now_ms >= *at_ms).is_some();
        let is_expected = is_over(&mut self.start_ms) | is_over(&mut self.departure_ms);
        let is_due = is_expected || self.has_grown(now_ms, bytes);
        if is_due {
            self.check_ms = now_ms;
            self.base_bytes = None;
        }
        is_due
    }

    fn has_grown(&mut self, now_ms: u64, bytes: impl FnOnce() -> Option<u64>) -> bool {
        if now_ms.saturating_sub(self.check_ms) < CHECK_MS {
            return false;
        }
        self.check_ms = now_ms;
        let Some(bytes) = bytes() else { return false };
        let base = *self.base_bytes.get_or_insert(bytes);
        bytes.saturating_sub(base) >= MIN_GROWTH_BYTES.max(base / 100 * MIN_GROWTH_PCT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1 << 20;

    /// A schedule that has returned what the start left over.
    fn started() -> TrimSchedule {
        let mut schedule = TrimSchedule::new(0);
        assert!(!schedule.is_due(AFTER_START_MS - 1, || None));
        assert!(schedule.is_due(AFTER_START_MS, || None));
        schedule
    }

    #[test]
    fn memory_is_returned_once_after_the_last_departure() {
        let (mut schedule, left) = (started(), 2 * AFTER_START_MS);
        schedule.departed(left);
        schedule.departed(left + 1_000);
        let due: Vec<_> =
            (left..left + 20_000).step_by(1_000).filter(|now| schedule.is_due(*now, || None)).collect();
        assert_eq!(due, [left + 1_000 + AFTER_DEPARTURE_MS]);
    }

    #[test]
    fn memory_is_returned_after_growth_and_what_stays_is_the_next_base() {
        let mut schedule = started();
        // Size at each look, and whether memory is returned then.
        let looks = [
            (400, false),
            (430, false),
            (499, false),
            (500, true),
            (480, false),
            (590, false),
            (600, true),
            (100, false),
            (126, false),
            (132, true),
        ];
        for (index, (size, expected)) in looks.into_iter().enumerate() {
            let now_ms = AFTER_START_MS + (index as u64 + 1) * CHECK_MS;
            assert!(!schedule.is_due(now_ms - 1, || panic!("it looks once a minute")), "{size}");
            assert_eq!(schedule.is_due(now_ms, || Some(size * MB)), expected, "{size}");
        }
    }
}
