//! A scenario begins when it is loaded and continues by the monotonic clock; its wall clock never
//! jumps.

use nodeglass_sim::ScenarioTime;
use std::time::Duration;
use tokio::time::Instant;

/// The clock of a running scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScenarioClock {
    start: Instant,
    start_wall_ms: i64,
}

impl ScenarioClock {
    /// A scenario that begins now, on a whole second, so that each run has its samples at the same
    /// times.
    pub fn start() -> Self {
        let wall_ms = nodeglass_platform::clock::Clock::wall_ms();
        let into_second = wall_ms % 1_000;
        // The clock may be younger than a second where the machine has just booted.
        let start =
            Instant::now().checked_sub(Duration::from_millis(into_second)).unwrap_or_else(Instant::now);
        Self { start, start_wall_ms: (wall_ms - into_second) as i64 }
    }

    /// The current time.
    pub fn now(&self) -> ScenarioTime {
        ScenarioTime { t_ms: self.start.elapsed().as_millis() as i64, start_wall_ms: self.start_wall_ms }
    }

    /// The instant at `t_ms` after the start; the start itself for negative times.
    pub fn instant(&self, t_ms: i64) -> Instant {
        self.start + Duration::from_millis(u64::try_from(t_ms).unwrap_or(0))
    }
}
