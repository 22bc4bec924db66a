//! The relay's clock counts milliseconds from before the relay started and never jumps; every age is measured by it.

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

    /// Milliseconds, [`CLOCK_STARTS_AT_MS`] more than since the relay started.
    pub fn now_ms(&self) -> u64 {
        CLOCK_STARTS_AT_MS + self.start.elapsed().as_millis() as u64
    }

    /// Milliseconds since 1970 by the login node's clock; to show, never to measure.
    pub fn wall_ms() -> u64 {
        let since = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        since.map_or(0, |since| since.as_millis() as u64)
    }
}
