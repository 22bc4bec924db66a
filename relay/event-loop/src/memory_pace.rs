//! Sheds history while memory is short, so that live data keeps its room; pure.

use nodeglass_platform::cgroup::MemoryUse;
use nodeglass_protocol::Text;

/// Time between two observations, in ms.
pub(super) const INTERVAL_MS: u64 = 5_000;
/// Part of the limit, in %, from which history is shed, and down to which.
const SHORT_PCT: u64 = 85;
const SHED_TO_PCT: u64 = 75;
/// Part of the limit, in %, below which the history may grow again.
const AMPLE_PCT: u64 = 60;
/// Time below it after which it may, in ms.
const AMPLE_FOR_MS: u64 = 600_000;
/// Memory for the history that is never shed, in bytes: the newest chunks stay in any case.
const MIN_HISTORY: usize = 4 << 20;

/// Decides how much memory the history may take.
#[derive(Debug)]
pub(super) struct MemoryPace {
    /// As configured, in bytes.
    configured: usize,
    budget: usize,
    observed_ms: u64,
    /// Since when memory is ample.
    ample_since_ms: Option<u64>,
    /// The use when memory was last found to be short.
    short: Option<MemoryUse>,
    /// Whether memory is short although there is no history left to shed.
    is_exhausted: bool,
}

impl MemoryPace {
    pub fn new(configured: usize) -> Self {
        Self {
            configured,
            budget: configured,
            observed_ms: 0,
            ample_since_ms: None,
            short: None,
            is_exhausted: false,
        }
    }

    /// Returns whether the next observation is due.
    pub fn is_due(&self, now_ms: u64) -> bool {
        now_ms.saturating_sub(self.observed_ms) >= INTERVAL_MS
    }

    /// Observes the use of memory, of which the history takes as many bytes as `history` returns. Returns the new budget of
    /// the history, if it changes.
    pub fn observe(
        &mut self,
        now_ms: u64,
        memory: MemoryUse,
        history: impl FnOnce() -> usize,
    ) -> Option<usize> {
        self.observed_ms = now_ms;
        let used_pct = used_pct(memory);
        if used_pct >= SHORT_PCT {
            self.ample_since_ms = None;
            return self.shed(memory, history());
        }
        // Not at once, or the notice would come and go around the limit.
        self.is_exhausted &= used_pct >= SHED_TO_PCT;
        if used_pct >= AMPLE_PCT || self.budget >= self.configured {
            self.ample_since_ms = None;
            return None;
        }
        let since_ms = *self.ample_since_ms.get_or_insert(now_ms);
        (now_ms.saturating_sub(since_ms) >= AMPLE_FOR_MS).then(|| {
            self.ample_since_ms = None;
            self.budget = self.budget.saturating_mul(2).min(self.configured);
            self.budget
        })
    }

    /// Sheds what is needed, at least a quarter: what is freed returns to the system in whole pages only.
    fn shed(&mut self, memory: MemoryUse, history: usize) -> Option<usize> {
        if history <= MIN_HISTORY {
            if !self.is_exhausted {
                (self.is_exhausted, self.short) = (true, Some(memory));
            }
            return None;
        }
        self.is_exhausted = false;
        let goal = memory.limit_bytes / 100 * SHED_TO_PCT;
        let over = usize::try_from(memory.used_bytes.saturating_sub(goal)).unwrap_or(usize::MAX);
        self.budget = history.saturating_sub(over.max(history / 4)).max(MIN_HISTORY).min(self.configured);
        self.short = Some(memory);
        Some(self.budget)
    }

    /// The notice while memory is short or the history has less than is configured, a complete sentence.
    pub fn notice(&self) -> Option<Text> {
        let mib = |bytes: u64| bytes >> 20;
        let MemoryUse { used_bytes, limit_bytes } =
            self.short.filter(|_| self.budget < self.configured || self.is_exhausted)?;
        let now = match self.is_exhausted {
            true => format!(
                "there is no history left to drop; close pages, watch fewer nodes, or raise the limit to {} MiB",
                enough(used_bytes) >> 20
            ),
            false => format!(
                "the oldest history was dropped, which now has {} MiB of {}",
                self.budget >> 20,
                self.configured >> 20
            ),
        };
        let use_of = format!("{} of {} MiB were in use", mib(used_bytes), mib(limit_bytes));
        Some(format!("memory is short ({use_of}): {now}").into())
    }
}

/// The limit of which this use is ample, a multiple of 16 MiB.
fn enough(used_bytes: u64) -> u64 {
    (used_bytes.saturating_mul(100) / AMPLE_PCT).next_multiple_of(16 << 20)
}

/// Memory in use in % of its limit.
pub(super) fn used_pct(memory: MemoryUse) -> u64 {
    memory.used_bytes.saturating_mul(100) / memory.limit_bytes.max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn used(mib: u64) -> MemoryUse {
        MemoryUse { used_bytes: mib << 20, limit_bytes: 200 << 20 }
    }

    #[test]
    fn f20_history_is_shed_before_the_limit_and_grows_again_once_memory_is_ample() {
        let mut pace = MemoryPace::new(64 * MIB);
        assert_eq!(pace.observe(5_000, used(160), || 64 * MIB), None);
        assert_eq!(
            (pace.observe(10_000, used(180), || 64 * MIB), pace.notice().is_some()),
            (Some(34 * MIB), true)
        );
        let notice = pace.notice().unwrap();
        assert!(notice.as_str().contains("180 of 200 MiB were in use"), "{notice}");
        assert!(notice.as_str().contains("34 MiB of 64"), "{notice}");
        // Somewhat less is used then, which is no reason to grow.
        assert_eq!(pace.observe(15_000, used(150), || 34 * MIB), None);
        let mut grown = Vec::new();
        for second in (20..2_000).step_by(5) {
            grown.extend(pace.observe(second * 1_000, used(100), || 34 * MIB));
        }
        assert_eq!((grown, pace.notice()), (vec![64 * MIB], None));
    }

    #[test]
    fn f20_without_history_to_shed_it_is_said_what_helps() {
        let mut pace = MemoryPace::new(64 * MIB);
        let mut history = 64 * MIB;
        for second in (5..100).step_by(5) {
            history = pace.observe(second * 1_000, used(195), || history).unwrap_or(history);
        }
        assert_eq!(history, MIN_HISTORY);
        let notice = pace.notice().unwrap();
        assert!(notice.as_str().ends_with("watch fewer nodes, or raise the limit to 336 MiB"), "{notice}");
        assert_eq!(pace.observe(150_000, used(160), || history), None);
        assert!(
            pace.notice().unwrap().as_str().contains("watch fewer nodes"),
            "it would come and go otherwise"
        );
        assert_eq!(pace.observe(200_000, used(140), || history), None);
        assert!(pace.notice().unwrap().as_str().contains("4 MiB of 64"));
    }
}
