//! The relay's monotonic clock in milliseconds; all ages are measured by it.

use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::replay::REAL_TIME_PCT;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::time::Instant;

/// The relay's monotonic clock. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    /// Of a relay that plays a recording: replaces real time.
    playback: Option<&'static Playback>,
}

/// The time of a recording that is being played: it runs at any speed, and can be set.
#[derive(Debug)]
pub struct Playback {
    state: Mutex<State>,
    /// Time of day minus the recording relay's clock, in ms.
    wall_ahead_ms: u64,
}

#[derive(Clone, Copy, Debug)]
struct State {
    /// The recording's time at `since`, in ms.
    at_ms: u64,
    since: Instant,
    speed_pct: u32,
}

impl Clock {
    /// A clock that reads [`CLOCK_STARTS_AT_MS`] now.
    pub fn start() -> Self {
        Self { start: Instant::now(), playback: None }
    }

    /// The clock of a recording.
    pub fn of(playback: &'static Playback) -> Self {
        Self { start: Instant::now(), playback: Some(playback) }
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
        self.playback.map_or_else(Self::wall_ms, |playback| playback.now_ms() + playback.wall_ahead_ms)
    }

    /// How far the system clock, in ms since 1970, is ahead of this one.
    pub fn wall_ahead_ms(&self) -> i64 {
        Self::wall_ms().cast_signed().saturating_sub(self.now_ms().cast_signed())
    }

    /// Unix time in milliseconds by the system clock; for display, never for measuring.
    pub fn wall_ms() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}

impl Playback {
    /// Pauses at `at_ms` of a recording. There is one per process, which lives as long.
    pub fn paused_at(at_ms: u64, wall_ahead_ms: u64) -> &'static Self {
        let state = State { at_ms, since: Instant::now(), speed_pct: 0 };
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
        *state = State { at_ms: state.now_ms(), since: Instant::now(), speed_pct };
    }

    /// Sets the time of the recording; the speed stays.
    pub fn set_now_ms(&self, at_ms: u64) {
        let mut state = self.state();
        *state = State { at_ms, since: Instant::now(), ..*state };
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn now_ms(&self) -> u64 {
        let elapsed = self.since.elapsed().as_millis() as u64;
        self.at_ms + elapsed * u64::from(self.speed_pct) / u64::from(REAL_TIME_PCT)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

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
}
