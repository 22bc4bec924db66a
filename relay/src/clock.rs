//! The relay's monotonic clock in milliseconds; all ages are measured by it.

use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use tokio::time::Instant;

/// The relay's monotonic clock. Cheap to copy.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
}

impl Clock {
    /// A clock that reads [`CLOCK_STARTS_AT_MS`] now.
    pub fn start() -> Self {
        Self { start: Instant::now() }
    }

    /// Milliseconds since the relay started, plus [`CLOCK_STARTS_AT_MS`].
    pub fn now_ms(&self) -> u64 {
        CLOCK_STARTS_AT_MS + self.start.elapsed().as_millis() as u64
    }

    /// Unix time in milliseconds by the system clock; for display, never for measuring.
    pub fn wall_ms() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
