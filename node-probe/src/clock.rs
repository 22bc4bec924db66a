//! Clocks: a monotonic one for durations, and the wall clock for aligning samples across nodes.

use rustix::time::{ClockId, clock_gettime};
use std::time::Duration;

/// Returns `CLOCK_BOOTTIME` in ns, which is monotonic and continues during suspend.
pub fn mono_ns() -> u64 {
    nanoseconds(ClockId::Boottime)
}

/// Returns `CLOCK_REALTIME` in ms since 1970.
pub fn wall_ms() -> u64 {
    nanoseconds(ClockId::Realtime) / 1_000_000
}

fn nanoseconds(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    (time.tv_sec as u64).wrapping_mul(1_000_000_000).wrapping_add(time.tv_nsec as u64)
}

/// Returns the time of day a duration before a time in ns since 1970, as `14:03:12 UTC`.
pub fn time_of_day(wall_ns: u64, ago: Duration) -> String {
    let second = (wall_ns / 1_000_000_000).saturating_sub(ago.as_secs()) % 86_400;
    format!("{:02}:{:02}:{:02} UTC", second / 3_600, second / 60 % 60, second % 60)
}

/// Returns `CLOCK_REALTIME` in ns since 1970.
pub fn wall_ns() -> u64 {
    nanoseconds(ClockId::Realtime)
}

/// Returns the time from `wall_ns` to the next multiple of `interval_ms` plus `phase_ms`.
///
/// Multiples of the wall clock align the lines of all nodes of a cluster, or of groups of nodes in
/// very large ones. A slightly early wake-up yields the multiple after the intended one, not the
/// same one again.
pub fn until_next(wall_ns: u64, interval_ms: u32, phase_ms: u32) -> Duration {
    let interval = u64::from(interval_ms.max(1)) * 1_000_000;
    let phase = u64::from(phase_ms) * 1_000_000 % interval;
    let wait = interval - (wall_ns + interval - phase) % interval;
    Duration::from_nanos(if wait < interval / 4 { wait + interval } else { wait })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_next_sample_is_on_the_grid_and_not_the_one_just_taken(wall in 0u64..1 << 61, interval in 1u32..120_000, phase in 0u32..) {
            let wait = until_next(wall, interval, phase).as_nanos() as u64;
            let (interval_ns, phase_ns) = (u64::from(interval) * 1_000_000, u64::from(phase) * 1_000_000);
            prop_assert_eq!((wall + wait) % interval_ns, phase_ns % interval_ns);
            prop_assert!(wait >= interval_ns / 4 && wait <= interval_ns + interval_ns / 4);
        }
    }

    #[test]
    fn boot_time_goes_forward() {
        let first = mono_ns();
        assert!(mono_ns() >= first && first > 0);
    }
}
