//! CPU time of this process.

use rustix::time::{ClockId, clock_gettime};

/// CPU time of this process, user and system, in ms (`CLOCK_PROCESS_CPUTIME_ID`).
pub fn process_ms() -> u64 {
    #[cfg(feature = "test-support")]
    if crate::clock::simulated::wall_ms().is_some() {
        return 0;
    }
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec.cast_unsigned() * 1_000 + time.tv_nsec.cast_unsigned() / 1_000_000
}
