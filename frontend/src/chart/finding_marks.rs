//! Spans of findings in a graph: each from its start to its end, or to now.

use super::timeline::Window;

/// The part of a graph that a finding takes, as shares of the width.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SpanMark {
    /// Its begin, or the left edge.
    pub left: f64,
    /// Its end, or the right edge.
    pub right: f64,
    /// Whether its end is in the graph.
    pub ends: bool,
}

/// Returns the mark of a finding that began at `from_ms` and ended at `to_ms` or lasts, in ms of the relay's clock;
/// `None` if it is not within the window.
pub fn span_mark(window: &Window, from_ms: i64, to_ms: Option<i64>) -> Option<SpanMark> {
    let (start_ms, end_ms) = (window.start_ms().cast_signed(), window.end_ms().cast_signed());
    // What has just begun is in the step that is not complete yet.
    let is_later = from_ms >= end_ms + window.step_ms().cast_signed();
    if is_later || to_ms.is_some_and(|to_ms| to_ms <= start_ms) {
        return None;
    }
    let share =
        |at_ms: i64| (at_ms.clamp(start_ms, end_ms) - start_ms) as f64 / (end_ms - start_ms).max(1) as f64;
    let ends = to_ms.is_some_and(|to_ms| to_ms < end_ms);
    Some(SpanMark { left: share(from_ms), right: to_ms.map_or(1.0, share), ends })
}

/// Returns whether a finding that began at `from_ms` and ended at `to_ms` or lasts holds in the step of a window that
/// begins at `at_ms`.
pub fn holds_at(window: &Window, from_ms: i64, to_ms: Option<i64>, at_ms: u64) -> bool {
    let (at_ms, step_ms) = (at_ms.cast_signed(), window.step_ms().cast_signed());
    from_ms < at_ms + step_ms && to_ms.is_none_or(|to_ms| to_ms >= at_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes that end at 1,000 s.
    fn window() -> Window {
        Window::over(1_000_000, 600_000, 200)
    }

    fn shares(from_ms: i64, to_ms: Option<i64>) -> Option<(f64, f64, bool)> {
        let mark = span_mark(&window(), from_ms, to_ms)?;
        let tenth = |share: f64| (share * 10.0).round() / 10.0;
        Some((tenth(mark.left), tenth(mark.right), mark.ends))
    }

    #[test]
    fn a_finding_that_lasts_reaches_the_end_of_the_graph() {
        let start_ms = window().start_ms().cast_signed();
        assert_eq!(shares(start_ms + 300_000, None), Some((0.5, 1.0, false)));
        assert_eq!(shares(0, None), Some((0.0, 1.0, false)), "it began before");
        let end_ms = window().end_ms().cast_signed();
        assert_eq!(shares(end_ms + 1_000, None), Some((1.0, 1.0, false)), "it has just begun");
        assert_eq!(shares(end_ms + 60_000, None), None, "the graph is of an earlier time");
    }

    #[test]
    fn a_finding_that_is_over_has_an_end_unless_that_is_later() {
        let start_ms = window().start_ms().cast_signed();
        assert_eq!(shares(start_ms + 60_000, Some(start_ms + 300_000)), Some((0.1, 0.5, true)));
        assert_eq!(shares(start_ms + 60_000, Some(start_ms + 900_000)), Some((0.1, 1.0, false)));
        assert_eq!(shares(0, Some(start_ms - 1)), None);
        assert_eq!(shares(i64::MIN, Some(i64::MAX)), Some((0.0, 1.0, false)));
    }

    #[test]
    fn a_finding_holds_from_its_start_to_its_end() {
        let start_ms = window().start_ms().cast_signed();
        let holds = |to_ms, at_ms: i64| holds_at(&window(), start_ms + 60_000, to_ms, at_ms.unsigned_abs());
        assert!(!holds(None, start_ms + 30_000) && holds(None, start_ms + 60_000));
        let ended = Some(start_ms + 90_000);
        assert!(holds(ended, start_ms + 90_000) && !holds(ended, start_ms + 93_000));
    }
}
