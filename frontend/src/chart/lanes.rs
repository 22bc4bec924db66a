//! When something held becomes bars on a lane, one path for all of them.

use super::Window;
use std::fmt::Write;

/// Stretches of time as bars in a box of 1000 by 1 that is as long as the window; each can be seen, however short.
pub fn lane(runs: &[(u64, u64)], window: &Window) -> String {
    let (start, span) = (window.start_ms(), (window.end_ms() - window.start_ms()).max(1));
    let place = |at_ms: u64| (at_ms.clamp(start, start + span) - start) * 1_000 / span;
    let mut d = String::new();
    for (from, to) in runs.iter().filter(|(from, to)| *to > start && *from < start + span) {
        let (left, right) = (place(*from), place(*to));
        let _ = write!(d, "M{left} 0h{}v1h-{0}z", (right - left).max(3));
    }
    d
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lie_where_their_time_is_and_are_never_too_thin_to_see() {
        let window = Window::over(4_000_000, 100_000, 100);
        let start = window.start_ms();
        let runs = [(start + 10_000, start + 30_000), (start + 50_000, start + 50_001)];
        assert_eq!(lane(&runs, &window), "M100 0h200v1h-200zM500 0h3v1h-3z");
    }

    #[test]
    fn what_lies_outside_is_cut() {
        let window = Window::over(4_000_000, 100_000, 100);
        let start = window.start_ms();
        assert_eq!(lane(&[(start - 50_000, start + 10_000), (0, 5)], &window), "M0 0h100v1h-100z");
    }
}
