//! The relay's monotonic clock in milliseconds; all ages are measured by it.

use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::replay::REAL_TIME_PCT;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// A smaller change of the system clock is not followed: between two readings of both clocks it is rounding.
const STEP_MS: u64 = 100;

/// The relay's monotonic clock. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Difference between the system clock and this one, in ms. One value for all times, so a moment is always
    /// displayed as the same time.
    wall_ahead_ms: &'static AtomicI64,
    /// Clock of a relay that plays a recording: replaces real time.
    playback: Option<&'static Playback>,
}

/// The time of a recording that is being played: it runs at any speed, and can be set.
#[derive(Debug)]
pub struct Playback {
    state: Mutex<State>,
    /// Time of day minus the recording relay's clock, in ms.
    wall_ahead_ms: i64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The recording's time at `since`, in ms.
    at_ms: u64,
    since: Instant,
    speed_pct: u32,
    /// The time at which it waits.
    limit_ms: u64,
}

impl Clock {
    /// A clock that reads [`CLOCK_STARTS_AT_MS`] now.
    pub fn start() -> Self {
        Self::new(None)
    }

    /// The clock of a recording.
    pub fn of(playback: &'static Playback) -> Self {
        Self::new(Some(playback))
    }

    /// There is one per process, which lives as long.
    fn new(playback: Option<&'static Playback>) -> Self {
        Self { start: Instant::now(), wall_ahead_ms: Box::leak(Box::new(AtomicI64::new(0))), playback }
    }

    /// Milliseconds since the relay started, plus [`CLOCK_STARTS_AT_MS`]; of a recording, its time.
    pub fn now_ms(&self) -> u64 {
        match self.playback {
            Some(playback) => playback.now_ms(),
            None => CLOCK_STARTS_AT_MS + self.start.elapsed().as_millis() as u64,
        }
    }

    /// Unix time in milliseconds that belongs to [`Clock::now_ms`]: of a recording, when it was recorded.
    pub fn displayed_wall_ms(&self) -> u64 {
        self.now_ms().saturating_add_signed(self.displayed_wall_ahead_ms())
    }

    /// Returns the difference between [`Clock::displayed_wall_ms`] and [`Clock::now_ms`], in ms.
    pub fn displayed_wall_ahead_ms(&self) -> i64 {
        self.playback.map_or_else(|| self.wall_ahead_ms(), |playback| playback.wall_ahead_ms)
    }

    /// Returns the difference between the system clock, in ms since 1970, and this one. It changes only if the system
    /// clock is set.
    pub fn wall_ahead_ms(&self) -> i64 {
        let known_ms = self.wall_ahead_ms.load(Ordering::Relaxed);
        let is_step = |(ahead_ms, error_ms): (i64, u64)| ahead_ms.abs_diff(known_ms) >= STEP_MS + error_ms;
        if !is_step(self.compare_clocks()) {
            return known_ms;
        }
        let readings = std::iter::repeat_with(|| self.compare_clocks()).take(3);
        match readings.min_by_key(|(_, error_ms)| *error_ms).filter(|reading| is_step(*reading)) {
            Some((ahead_ms, _)) => {
                self.wall_ahead_ms.store(ahead_ms, Ordering::Relaxed);
                ahead_ms
            }
            None => known_ms,
        }
    }

    /// Returns the difference between the system clock and this one in ms, and by how much it may be too large: for so long
    /// the thread may have waited for a CPU between the two readings.
    fn compare_clocks(&self) -> (i64, u64) {
        let before_ms = self.now_ms();
        let wall_ms = Self::wall_ms();
        let error_ms = self.now_ms().saturating_sub(before_ms);
        (wall_ms.cast_signed().saturating_sub(before_ms.cast_signed()), error_ms)
    }

    /// Unix time in milliseconds by the system clock; for display, never for measuring.
    pub fn wall_ms() -> u64 {
        #[cfg(feature = "test-support")]
        if let Some(wall_ms) = simulated::wall_ms() {
            return wall_ms;
        }
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}

impl Playback {
    /// Pauses at `at_ms` of a recording. There is one per process, which lives as long.
    pub fn paused_at(at_ms: u64, wall_ahead_ms: i64) -> &'static Self {
        let state = State { at_ms, since: Instant::now(), speed_pct: 0, limit_ms: u64::MAX };
        Box::leak(Box::new(Self { state: Mutex::new(state), wall_ahead_ms }))
    }

    /// The time of the recording, in ms.
    pub fn now_ms(&self) -> u64 {
        self.state().now_ms()
    }

    /// The speed in % of real time.
    pub fn speed_pct(&self) -> u32 {
        self.state().speed_pct
    }

    /// Continues at a speed in % of real time.
    pub fn set_speed(&self, speed_pct: u32) {
        let mut state = self.state();
        *state = State { at_ms: state.now_ms(), since: Instant::now(), speed_pct, ..*state };
    }

    /// Sets the time of the recording; the speed stays.
    pub fn set_now_ms(&self, at_ms: u64) {
        let mut state = self.state();
        *state = State { at_ms, since: Instant::now(), ..*state };
    }

    /// Lets the time pass up to `limit_ms`, and no further, until there is another limit. It does not make up for what it waited.
    pub fn wait_at(&self, limit_ms: u64) {
        let mut state = self.state();
        if state.now_ms() >= state.limit_ms {
            *state = State { at_ms: state.now_ms(), since: Instant::now(), ..*state };
        }
        state.limit_ms = limit_ms;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn now_ms(&self) -> u64 {
        let elapsed = self.since.elapsed().as_millis() as u64;
        let now_ms = self.at_ms + elapsed * u64::from(self.speed_pct) / u64::from(REAL_TIME_PCT);
        // It may have been set to a later time.
        now_ms.min(self.limit_ms.max(self.at_ms))
    }
}

/// The system clock of a simulation.
#[cfg(feature = "test-support")]
pub mod simulated {
    use std::sync::OnceLock;

    static WALL: OnceLock<fn() -> u64> = OnceLock::new();

    /// Replaces the system clock of this process, in ms since 1970, and its CPU time, which is 0 from now on. Only the
    /// first call has an effect.
    pub fn replace(wall_ms: fn() -> u64) {
        WALL.get_or_init(|| wall_ms);
    }

    /// The simulated time of day, if it is simulated.
    pub fn wall_ms() -> Option<u64> {
        WALL.get().map(|wall_ms| wall_ms())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[tokio::test(start_paused = true)]
    async fn a_moment_has_one_time_of_day_until_the_system_clock_is_set() {
        let clock = Clock::start();
        let ahead_ms = clock.wall_ahead_ms();
        // As if the two clocks were read a few milliseconds apart.
        tokio::time::advance(Duration::from_millis(7)).await;
        assert_eq!((clock.wall_ahead_ms(), clock.displayed_wall_ahead_ms()), (ahead_ms, ahead_ms));
        // Here, time passes without the system clock, as if that were set back by an hour.
        tokio::time::advance(Duration::from_secs(3_600)).await;
        assert!((ahead_ms - clock.wall_ahead_ms()).abs_diff(3_600_000) < 60_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_recordings_time_runs_at_its_speed_and_can_be_set() {
        let playback = Playback::paused_at(1_000, 50);
        let clock = Clock::of(playback);
        tokio::time::advance(Duration::from_secs(5)).await;
        assert_eq!((clock.now_ms(), clock.displayed_wall_ms()), (1_000, 1_050));
        playback.set_speed(400);
        tokio::time::advance(Duration::from_secs(2)).await;
        assert_eq!(clock.now_ms(), 9_000);
        playback.set_now_ms(2_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(clock.now_ms(), 6_000);
    }

    #[tokio::test(start_paused = true)]
    async fn a_recordings_time_waits_at_its_limit_and_goes_on_from_there() {
        let playback = Playback::paused_at(1_000, 50);
        playback.set_speed(200);
        playback.wait_at(4_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(playback.now_ms(), 3_000);
        tokio::time::advance(Duration::from_secs(60)).await;
        assert_eq!(playback.now_ms(), 4_000);
        playback.wait_at(9_000);
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(playback.now_ms(), 6_000, "what it waited is not made up for");
    }
}
