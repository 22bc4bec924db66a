//! A scenario begins when it is loaded and goes on by the monotonic clock; its wall clock never jumps.

use super::scenario::ScenarioTime;
use std::time::Duration;
use tokio::time::Instant;

/// The clock of a running scenario.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScenarioClock {
    start: Instant,
    start_wall_ms: i64,
}

impl ScenarioClock {
    /// A scenario that begins now, on a whole second, so that each run has its samples at the same times.
    pub fn start() -> Self {
        let wall_ms = crate::clock::Clock::wall_ms();
        let into_second = wall_ms % 1_000;
        // The clock may be younger than a second where the machine has just booted.
        let start =
            Instant::now().checked_sub(Duration::from_millis(into_second)).unwrap_or_else(Instant::now);
        Self { start, start_wall_ms: (wall_ms - into_second) as i64 }
    }

    /// This moment.
    pub fn now(&self) -> ScenarioTime {
        ScenarioTime { t_ms: self.start.elapsed().as_millis() as i64, start_wall_ms: self.start_wall_ms }
    }

    /// The moment of a wall-clock time in ms since 1970.
    pub fn scenario_time(&self, wall_ms: u64) -> ScenarioTime {
        ScenarioTime { t_ms: self.t_ms(wall_ms), start_wall_ms: self.start_wall_ms }
    }

    /// A wall-clock time, in ms since 1970, as ms since the scenario's start.
    pub fn t_ms(&self, wall_ms: u64) -> i64 {
        wall_ms as i64 - self.start_wall_ms
    }

    /// When it is so many ms since the start; the start itself for times before.
    pub fn instant(&self, t_ms: i64) -> Instant {
        self.start + Duration::from_millis(u64::try_from(t_ms).unwrap_or(0))
    }
}
