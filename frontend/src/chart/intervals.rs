//! Draws intervals of time as bars, with one path for all of them.

use super::Window;
use std::fmt::Write;

/// Returns intervals as bars in a box of 1000 × 1 that spans the window; each is wide enough to be visible.
pub fn interval_path(runs: &[(u64, u64)], window: &Window) -> String {
    let (start, span) = (window.start_ms(), (window.end_ms() - window.start_ms()).max(1));
    let position = |at_ms: u64| (at_ms.clamp(start, start + span) - start) * 1_000 / span;
    let mut d = String::new();
    for (from, to) in runs.iter().filter(|(from, to)| *to > start && *from < start + span) {
        let (left, right) = (position(*from), position(*to));
        let _ = write!(d, "M{left} 0h{}v1h-{0}z", (right - left).max(3));
    }
    d
}

/// Returns the intervals of such a path: where each begins and how long it is, as fractions of the window.
pub fn intervals(path: &str) -> Vec<[f64; 2]> {
    let interval = |part: &str| {
        let (left, rest) = part.split_once(" 0h")?;
        let (width, _) = rest.split_once('v')?;
        // Whole numbers: parsing others takes a table of 10 kB that does not compress.
        Some([left, width].map(|number| f64::from(number.parse::<u32>().unwrap_or_default()) / 1_000.0))
    };
    path.split('M').filter_map(interval).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_lie_at_their_time_and_are_never_too_thin() {
        let window = Window::over(4_000_000, 100_000, 100);
        let start = window.start_ms();
        let runs = [(start + 10_000, start + 30_000), (start + 50_000, start + 50_001)];
        let path = interval_path(&runs, &window);
        assert_eq!(path, "M100 0h200v1h-200zM500 0h3v1h-3z");
        assert_eq!(intervals(&path), [[0.1, 0.2], [0.5, 0.003]]);
        assert!(intervals("").is_empty());
    }

    #[test]
    fn parts_outside_the_window_are_cut() {
        let window = Window::over(4_000_000, 100_000, 100);
        let start = window.start_ms();
        assert_eq!(interval_path(&[(start - 50_000, start + 10_000), (0, 5)], &window), "M0 0h100v1h-100z");
    }
}
