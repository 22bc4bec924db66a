//! Exponential back-off: how long to wait after failures in a row.

use core::time::Duration;

/// The pause after a number of failures in a row: `first` after one, doubled by each further one, at most
/// `max`; none without a failure.
pub fn exponential(first: Duration, failures: u32, max: Duration) -> Duration {
    let doublings = failures.checked_sub(1).map(|doublings| 1_u32.checked_shl(doublings));
    doublings.map_or(Duration::ZERO, |factor| first.saturating_mul(factor.unwrap_or(u32::MAX)).min(max))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pause_doubles_up_to_its_maximum_and_never_overflows() {
        let (first, max) = (Duration::from_secs(10), Duration::from_secs(60));
        let pauses =
            [0, 1, 2, 3, 4, 5, 33, u32::MAX].map(|failures| exponential(first, failures, max).as_secs());
        assert_eq!(pauses, [0, 10, 20, 40, 60, 60, 60, 60]);
    }
}
