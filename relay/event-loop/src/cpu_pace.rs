//! Slower sampling while the relay gets too little CPU time, or uses more than it may; pure.
//!
//! A login node that throttles its users, or is overloaded, gets less work from the relay instead of late frames: nodes are
//! sampled more rarely, which saves the lines, frames and drawing of the samples between.

use nodeglass_protocol::Text;

/// Sampling intervals in ms, from the fastest that is chosen here to the slowest of a probe.
const INTERVALS_MS: [u32; 4] = [5_000, 10_000, 30_000, 60_000];
/// Time over which the observations are summed up, in ms.
const WINDOW_MS: u64 = 10_000;
/// Time between two observations, in ms.
const TICK_MS: u64 = 1_000;
/// Part of a window, in %, from which the relay counts as throttled.
const THROTTLED_PCT: u64 = 10;
/// The relay counts as late if half of the ticks of a window are late by this time in ms: a single stall, as of a machine
/// that was suspended, does not count.
const LATE_MS: u64 = 1_000;
/// Minimum number of ticks of a window.
const MIN_TICKS: u64 = 3;
/// Time without any such window after which sampling becomes faster by a step, in ms.
const RECOVERY_MS: u64 = 60_000;
/// Maximum of that time, which doubles whenever sampling has to become slower again soon after, in ms.
const LONGEST_RECOVERY_MS: u64 = 960_000;

/// CPU time of the relay at a tick.
#[derive(Clone, Copy, Debug, Default)]
pub struct CpuUse {
    /// CPU time of this process, in ms since its start.
    pub used_ms: u64,
    /// Time for which control groups throttled it, in µs since some time.
    pub throttled_us: u64,
}

/// Reason for sampling more slowly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    /// A control group throttled the relay for this part of the time, in %.
    Throttled(u64),
    /// The relay ran late by this time, in a window of that length, in ms.
    Late(u64, u64),
    /// It used this part of a core, in %, and may use that.
    OverLimit(u64, u32),
}

/// Decides how slowly to sample.
#[derive(Debug, Default)]
pub(super) struct CpuPace {
    /// CPU time that this process may use, in % of a core, if no control group limits it.
    limit_pct: Option<u32>,
    /// Beginning of the window, with the use at that time.
    began: Option<(u64, CpuUse)>,
    /// When the last tick was, in ms.
    ticked_ms: u64,
    /// Number of ticks in the window.
    ticks: u64,
    /// Number of those that were late by [`LATE_MS`].
    late_ticks: u64,
    /// Time by which all of them were late, in ms.
    late_ms: u64,
    /// The number of steps by which sampling is slower: the position in [`INTERVALS_MS`], from 1; 0 while it is not.
    slowed: usize,
    cause: Option<Cause>,
    /// When the time without a cause began, in ms: with the last window that had one, or the last shorter interval.
    caused_ms: u64,
    /// When the interval last changed, in ms.
    changed_ms: u64,
    /// When it last became shorter, in ms; `None` if it has become longer since.
    recovered_ms: Option<u64>,
    /// Time without a cause after which it becomes shorter, in ms.
    recovery_ms: u64,
}

impl CpuPace {
    pub fn new(limit_pct: Option<u32>) -> Self {
        Self { limit_pct, recovery_ms: RECOVERY_MS, ..Self::default() }
    }

    /// The shortest sampling interval at present, in ms; 0 if any is fine.
    pub fn min_interval_ms(&self) -> u32 {
        self.slowed.checked_sub(1).map_or(0, |step| INTERVALS_MS[step])
    }

    /// The notice while sampling is slower, a complete sentence.
    pub fn notice(&self) -> Option<Text> {
        let interval_s = self.min_interval_ms() / 1_000;
        let why = match self.cause.filter(|_| interval_s > 0)? {
            Cause::Throttled(pct) => format!(
                "this machine limits the CPU time of the relay, which was throttled for {pct} % of {} s",
                WINDOW_MS / 1_000
            ),
            Cause::Late(ms, elapsed_ms) => format!(
                "this machine is overloaded: the relay ran {} s late within {} s",
                ms / 1_000,
                elapsed_ms / 1_000
            ),
            Cause::OverLimit(used, limit) => {
                format!("the relay used {used} % of a core, and cpu-max allows {limit} %")
            }
        };
        Some(format!("{why}; until that is over, nodes are sampled every {interval_s} s").into())
    }

    /// Observes a tick; `cpu` is read at the end of each window. Returns whether [`CpuPace::notice`] changed.
    pub fn observe(&mut self, now_ms: u64, cpu: impl FnOnce() -> CpuUse) -> bool {
        let late_ms = now_ms.saturating_sub(self.ticked_ms).saturating_sub(TICK_MS);
        if self.ticked_ms > 0 {
            self.ticks += 1;
            self.late_ticks += u64::from(late_ms >= LATE_MS);
            self.late_ms += late_ms;
        }
        self.ticked_ms = now_ms;
        let Some((began_ms, before)) = self.began else {
            self.began = Some((now_ms, cpu()));
            return false;
        };
        let elapsed_ms = now_ms.saturating_sub(began_ms);
        if elapsed_ms < WINDOW_MS || self.ticks < MIN_TICKS {
            return false;
        }
        let cpu = cpu();
        let cause = self.cause_of(elapsed_ms, before, cpu);
        (self.ticks, self.late_ticks, self.late_ms) = (0, 0, 0);
        self.began = Some((now_ms, cpu));
        match cause {
            Some(cause) => self.slow_down(cause, now_ms),
            None => self.recover(now_ms),
        }
    }

    fn cause_of(&self, elapsed_ms: u64, before: CpuUse, now: CpuUse) -> Option<Cause> {
        let pct = |ms: u64| ms.saturating_mul(100) / elapsed_ms;
        let throttled_pct = pct(now.throttled_us.saturating_sub(before.throttled_us) / 1_000);
        let used_pct = pct(now.used_ms.saturating_sub(before.used_ms));
        match self.limit_pct {
            _ if throttled_pct >= THROTTLED_PCT => Some(Cause::Throttled(throttled_pct.min(100))),
            Some(limit) if used_pct > u64::from(limit) => Some(Cause::OverLimit(used_pct, limit)),
            _ if 2 * self.late_ticks >= self.ticks => Some(Cause::Late(self.late_ms, elapsed_ms)),
            _ => None,
        }
    }

    fn slow_down(&mut self, cause: Cause, now_ms: u64) -> bool {
        self.caused_ms = now_ms;
        // A machine that is overloaded by others gains nothing from the slowest intervals.
        let slowest = if matches!(cause, Cause::Late(..)) { 1 } else { INTERVALS_MS.len() };
        // A window that began before the last change does not show its effect.
        let is_settled = self.slowed == 0 || now_ms.saturating_sub(self.changed_ms) >= 2 * WINDOW_MS;
        if self.slowed >= slowest || !is_settled {
            return false;
        }
        if let Some(at_ms) = self.recovered_ms.take() {
            let is_soon = now_ms.saturating_sub(at_ms) < 2 * self.recovery_ms;
            self.recovery_ms =
                if is_soon { (2 * self.recovery_ms).min(LONGEST_RECOVERY_MS) } else { RECOVERY_MS };
        }
        self.slowed += 1;
        self.changed_ms = now_ms;
        // Later windows do not replace it: a notice whose numbers change cannot be read.
        self.cause = Some(cause);
        true
    }

    fn recover(&mut self, now_ms: u64) -> bool {
        if self.slowed == 0 || now_ms.saturating_sub(self.caused_ms) < self.recovery_ms {
            return false;
        }
        self.slowed -= 1;
        self.caused_ms = now_ms;
        self.changed_ms = now_ms;
        self.recovered_ms = Some(now_ms);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes time in ticks; in each, so much is used and throttled, and the relay runs late by that, all in ms.
    struct Machine {
        pace: CpuPace,
        now_ms: u64,
        cpu: CpuUse,
    }

    impl Machine {
        fn new(limit_pct: Option<u32>) -> Self {
            Self { pace: CpuPace::new(limit_pct), now_ms: 5_000, cpu: CpuUse::default() }
        }

        /// Returns the intervals that were chosen.
        fn pass(&mut self, seconds: u64, used_ms: u64, throttled_ms: u64, late_ms: u64) -> Vec<u32> {
            let mut chosen = Vec::new();
            let until_ms = self.now_ms + seconds * 1_000;
            while self.now_ms < until_ms {
                self.now_ms += 1_000 + late_ms;
                self.cpu.used_ms += used_ms;
                self.cpu.throttled_us += throttled_ms * 1_000;
                if self.pace.observe(self.now_ms, || self.cpu) {
                    chosen.push(self.pace.min_interval_ms());
                }
            }
            chosen
        }
    }

    #[test]
    fn f21_a_throttled_relay_samples_slower_says_so_and_returns_when_it_is_over() {
        let mut machine = Machine::new(None);
        assert_eq!(machine.pass(60, 900, 50, 0), [] as [u32; 0], "a twentieth of the time is no matter");
        assert_eq!(machine.pass(15, 400, 430, 0), [5_000]);
        let notice = machine.pace.notice().unwrap();
        assert!(notice.as_str().contains("throttled for 43 % of 10 s"), "{notice}");
        assert!(notice.as_str().ends_with("nodes are sampled every 5 s"), "{notice}");
        assert_eq!(machine.pass(50, 400, 0, 0), [] as [u32; 0]);
        assert_eq!(machine.pass(30, 400, 0, 0), [0]);
        assert_eq!(machine.pace.notice(), None);
    }

    #[test]
    fn f21_an_overloaded_machine_is_noticed_by_late_ticks_and_slows_by_one_step() {
        let mut machine = Machine::new(None);
        assert_eq!(machine.pass(60, 10, 0, 700), [] as [u32; 0]);
        // Suspended for an hour.
        machine.now_ms += 3_600_000;
        assert_eq!(machine.pass(60, 10, 0, 0), [] as [u32; 0]);
        assert_eq!(machine.pass(120, 10, 0, 1_500), [5_000]);
        assert!(machine.pace.notice().unwrap().as_str().contains("overloaded"));
    }

    #[test]
    fn more_than_the_limit_is_used_by_ever_slower_sampling_only() {
        let mut machine = Machine::new(Some(20));
        assert_eq!(machine.pass(60, 190, 0, 0), [] as [u32; 0]);
        assert_eq!(machine.pass(100, 900, 0, 0), [5_000, 10_000, 30_000, 60_000]);
        assert!(machine.pace.notice().unwrap().as_str().contains("90 % of a core, and cpu-max allows 20 %"));
        assert_eq!(machine.pass(200, 1, 0, 0), [30_000, 10_000, 5_000]);
    }

    #[test]
    fn what_returns_as_soon_as_sampling_is_faster_is_tried_ever_more_rarely() {
        let mut machine = Machine::new(Some(20));
        let mut changes = 0;
        // It fits at 5 s, and never at the usual interval.
        for _ in 0..360 {
            let used_ms = if machine.pace.min_interval_ms() == 0 { 300 } else { 60 };
            changes += machine.pass(10, used_ms, 0, 0).len();
        }
        assert!((4..=14).contains(&changes), "{changes} changes in an hour");
    }
}
