//! The time range that all graphs of a page share: it follows the current time, or is fixed.

use super::Window;
use nodeglass_protocol::live::MAX_HISTORY_DAYS;
use nodeglass_protocol::trace::Trace;

/// A range of the relay's time within the kept history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    /// Length in ms.
    span_ms: u64,
    /// End in ms of the relay's clock; `None` while it follows the current time.
    end_ms: Option<u64>,
}

/// A change of the range by a button or key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RangeStep {
    /// Pan to the past.
    Earlier,
    /// Pan to the present.
    Later,
    /// Zoom out.
    Wider,
    /// Zoom in.
    Narrower,
}

/// Reason why a [`RangeStep`] has no effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// The range reaches the present.
    Live,
    /// The range reaches the beginning of the history, in ms of the relay's clock.
    HistoryBegins(u64),
    /// The range has its maximum length, in ms.
    Longest(u64),
    /// The range is as short as the resolution allows.
    Shortest,
}

impl Default for Range {
    fn default() -> Self {
        Self { span_ms: Self::RECENT_MS, end_ms: None }
    }
}

impl Range {
    /// The recent history, one sample per second, which every page has.
    pub const RECENT_MS: u64 = Trace::CAPACITY as u64 * Trace::STEP_MS;
    /// The long-term history that every relay keeps, and of which the page loads what it shows.
    pub const WEEK_MS: u64 = 7 * Self::DAY_MS;
    /// Longest range of any relay: that of a long-term storage.
    pub const LONGEST_MS: u64 = MAX_HISTORY_DAYS as u64 * Self::DAY_MS;
    /// Shortest range; a shorter one would show no more detail.
    pub const SHORTEST_MS: u64 = 30_000;

    const DAY_MS: u64 = 24 * 3_600_000;
    /// Longest interval between samples of the recent history, in ms: the interval of nodes while no page shows them.
    const SLOWEST_MS: u64 = 10_000;
    /// Length of a range in ms from which a cell of a heat map is at least [`Self::SLOWEST_MS`] long.
    const COARSE_MS: u64 = 120_000;
    /// Maximum age of a step that is shown incomplete, in ms: by then, it has samples.
    const SAMPLED_MS: u64 = 3_000;

    /// Lengths that a user selects directly, in ms. Those beyond a week need a long-term storage.
    pub const PRESETS_MS: [u64; 9] = [
        60_000,
        Self::RECENT_MS,
        3_600_000,
        6 * 3_600_000,
        Self::DAY_MS,
        Self::WEEK_MS,
        30 * Self::DAY_MS,
        90 * Self::DAY_MS,
        365 * Self::DAY_MS,
    ];

    /// Returns the last `span_ms`, following the current time.
    pub fn last(span_ms: u64) -> Self {
        Self { span_ms: span_ms.clamp(Self::SHORTEST_MS, Self::LONGEST_MS), end_ms: None }
    }

    /// Returns the range between two moments in either order; one shorter than possible is extended on both
    /// sides.
    pub fn between(one_ms: u64, other_ms: u64, now_ms: u64) -> Self {
        let (from_ms, to_ms) = (one_ms.min(other_ms), one_ms.max(other_ms));
        let span_ms = (to_ms - from_ms).next_multiple_of(1_000).clamp(Self::SHORTEST_MS, Self::LONGEST_MS);
        let middle_ms = from_ms.midpoint(to_ms);
        Self::clamped(span_ms, middle_ms + span_ms / 2, now_ms)
    }

    /// Returns the range if it is within the last `longest_ms`, or else the nearest one that is.
    pub fn limited(self, longest_ms: u64, now_ms: u64) -> Self {
        let span_ms = self.span_ms.min(longest_ms);
        match self.end_ms {
            None => Self { span_ms, end_ms: None },
            Some(end_ms) => Self::within(longest_ms, span_ms, end_ms, now_ms),
        }
    }

    /// Returns why a step would change nothing, if so. `longest_ms` is the longest possible range, `history_ms` the
    /// moment at which the known history begins.
    pub fn limit(
        self,
        step: RangeStep,
        now_ms: u64,
        longest_ms: u64,
        history_ms: Option<u64>,
    ) -> Option<Limit> {
        let kept_from_ms = now_ms.saturating_sub(longest_ms);
        let begin_ms = history_ms.map_or(kept_from_ms, |history_ms| history_ms.max(kept_from_ms));
        let is_at_begin = self.start_ms(now_ms) <= begin_ms;
        match step {
            RangeStep::Later => self.is_live().then_some(Limit::Live),
            RangeStep::Earlier => is_at_begin.then_some(Limit::HistoryBegins(begin_ms)),
            RangeStep::Narrower => (self.span_ms <= Self::SHORTEST_MS).then_some(Limit::Shortest),
            RangeStep::Wider if self.span_ms >= longest_ms => Some(Limit::Longest(longest_ms)),
            RangeStep::Wider => (is_at_begin && self.is_live()).then_some(Limit::HistoryBegins(begin_ms)),
        }
    }

    /// Length in ms.
    pub fn span_ms(self) -> u64 {
        self.span_ms
    }

    /// Returns whether it follows the current time.
    pub fn is_live(self) -> bool {
        self.end_ms.is_none()
    }

    /// Returns the moment that has the place in this range which `at_ms` has in `other`.
    pub fn at_place_in(self, other: Self, at_ms: u64, now_ms: u64) -> u64 {
        let share = at_ms.saturating_sub(other.start_ms(now_ms)) as f64 / other.span_ms.max(1) as f64;
        self.start_ms(now_ms).saturating_add((share.min(1.0) * self.span_ms as f64) as u64)
    }

    /// Returns where it ends.
    pub fn end_ms(self, now_ms: u64) -> u64 {
        self.end_ms.map_or(now_ms, |end_ms| end_ms.min(now_ms))
    }

    /// Returns where it begins.
    pub fn start_ms(self, now_ms: u64) -> u64 {
        self.end_ms(now_ms).saturating_sub(self.span_ms)
    }

    /// Returns its window with at most `most` steps if possible.
    pub fn window(self, now_ms: u64, most: usize) -> Window {
        let oldest_ms = now_ms.saturating_sub(Self::RECENT_MS + Trace::STEP_MS);
        let window = Window::over(self.end_ms(now_ms), self.span_ms, most);
        match self.start_ms(now_ms) < oldest_ms {
            true => window.of_long_history(self.end_ms(now_ms)),
            false => window,
        }
    }

    /// Returns its window for the cells of a heat map, at most `most` if possible. They are as long as the longest interval
    /// between samples, so that samples which were taken more often look the same; the newest one may be incomplete.
    pub fn cells(self, now_ms: u64, most: usize) -> Window {
        let window = self.window(now_ms, most);
        if window.is_long() || self.span_ms < Self::COARSE_MS {
            return window;
        }
        let most = most.min((self.span_ms / Self::SLOWEST_MS) as usize);
        let end_ms = self.end_ms(now_ms);
        Window::over(end_ms, self.span_ms, most).up_to(end_ms.saturating_sub(Self::SAMPLED_MS))
    }

    /// Returns the part of a live range that shows a job which ran for `run_ms` and has ended: before it, there is nothing.
    pub fn within_run(self, run_ms: Option<u64>) -> Self {
        match run_ms.filter(|run_ms| self.is_live() && *run_ms < self.span_ms) {
            Some(run_ms) => Self::last(run_ms.next_multiple_of(1_000)),
            None => self,
        }
    }

    /// Returns a range of the same length that follows the current time.
    pub fn live(self) -> Self {
        Self { end_ms: None, ..self }
    }

    /// Returns a range `factor` times as long that keeps the moment at the position `at` (0 to 1) in place.
    pub fn zoomed(self, factor: f64, at: f64, now_ms: u64) -> Self {
        let span_ms = (self.span_ms as f64 * factor / 1_000.0).round() as u64 * 1_000;
        let span_ms = span_ms.clamp(Self::SHORTEST_MS, Self::LONGEST_MS);
        let moment = self.start_ms(now_ms) as f64 + at * self.span_ms as f64;
        Self::clamped(span_ms, (moment + (1.0 - at) * span_ms as f64) as u64, now_ms)
    }

    /// Returns the range moved by a fraction of its length; positive values move forward.
    pub fn panned(self, fraction: f64, now_ms: u64) -> Self {
        let end_ms = self.end_ms(now_ms) as f64 + fraction * self.span_ms as f64;
        Self::clamped(self.span_ms, end_ms.max(0.0) as u64, now_ms)
    }

    fn clamped(span_ms: u64, end_ms: u64, now_ms: u64) -> Self {
        Self::within(Self::LONGEST_MS, span_ms, end_ms, now_ms)
    }

    /// Limits a range to the last `longest_ms`; where it reaches the current time, it follows it.
    fn within(longest_ms: u64, span_ms: u64, end_ms: u64, now_ms: u64) -> Self {
        let earliest = now_ms.saturating_sub(longest_ms) + span_ms;
        let end_ms = end_ms.clamp(earliest.min(now_ms), now_ms);
        Self { span_ms, end_ms: (end_ms + Trace::STEP_MS < now_ms).then_some(end_ms) }
    }

    /// Returns the value of the URL parameter: `120`, or `120-1763725200` with the end in seconds since 1970.
    /// `wall_offset_s` is the wall clock minus the relay's clock.
    pub fn text(self, wall_offset_s: i64) -> Option<String> {
        let seconds = self.span_ms / 1_000;
        match self.end_ms {
            None if self == Self::default() => None,
            None => Some(seconds.to_string()),
            Some(end_ms) => Some(format!("{seconds}-{}", (end_ms / 1_000).cast_signed() + wall_offset_s)),
        }
    }

    /// Returns the value of the URL parameter of the range between two times of day, in ms since 1970.
    pub fn text_between(from_ms: u64, to_ms: u64) -> String {
        let span_ms = to_ms.saturating_sub(from_ms).clamp(Self::SHORTEST_MS, Self::LONGEST_MS);
        format!("{}-{}", span_ms / 1_000, to_ms / 1_000)
    }

    /// Parses the value of the URL parameter; `None` if malformed. A range older than the history becomes the oldest
    /// range.
    pub fn from_text(text: &str, wall_offset_s: i64, now_ms: u64) -> Option<Self> {
        let (seconds, end) = text.split_once('-').map_or((text, None), |(span, end)| (span, Some(end)));
        let span_ms = seconds.parse::<u64>().ok()?.checked_mul(1_000)?;
        let span_ms = span_ms.clamp(Self::SHORTEST_MS, Self::LONGEST_MS);
        let Some(end) = end else { return Some(Self { span_ms, end_ms: None }) };
        let end_s = end.parse::<i64>().ok()?.checked_sub(wall_offset_s)?;
        Some(Self::clamped(span_ms, u64::try_from(end_s).unwrap_or(0).saturating_mul(1_000), now_ms))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = Range::LONGEST_MS + 904_000_000;

    #[test]
    fn zooming_keeps_the_moment_under_the_pointer() {
        let range = Range::default().zoomed(0.5, 0.25, NOW);
        let before = NOW - 600_000 + 150_000;
        assert_eq!(range.start_ms(NOW) + range.span_ms() / 4, before);
        assert!(!range.is_live());
    }

    #[test]
    fn a_pointer_is_at_the_same_place_of_another_range() {
        let (before, at_ms) = (Range::default(), NOW - 450_000);
        let zoomed = Range::between(NOW - 500_000, NOW - 420_000, NOW);
        assert_eq!(zoomed.at_place_in(before, at_ms, NOW), NOW - 480_000);
        assert_eq!(before.panned(-0.25, NOW).at_place_in(before, at_ms, NOW), at_ms - 150_000);
    }

    #[test]
    fn zooming_at_the_right_edge_stays_live() {
        let range = Range::default().zoomed(0.5, 1.0, NOW);
        assert_eq!((range.is_live(), range.span_ms()), (true, 300_000));
    }

    #[test]
    fn zooming_is_limited_to_the_shortest_and_longest_range() {
        assert_eq!(Range::default().zoomed(0.001, 1.0, NOW).span_ms(), Range::SHORTEST_MS);
        let longest = Range::last(Range::LONGEST_MS);
        assert_eq!(longest.zoomed(7.0, 0.5, NOW), longest);
    }

    #[test]
    fn a_panned_range_is_fixed_until_it_reaches_the_present() {
        let close = Range::default().zoomed(0.1, 1.0, NOW);
        let past = close.panned(-1.0, NOW);
        assert_eq!((past.is_live(), past.end_ms(NOW)), (false, NOW - 60_000));
        assert_eq!(past.end_ms(NOW + 5_000), NOW - 60_000);
        assert!(past.panned(2.0, NOW).is_live());
        assert_eq!(close.panned(-9_999_999.0, NOW).start_ms(NOW), NOW - Range::LONGEST_MS);
    }

    #[test]
    fn a_dragged_span_becomes_the_range_in_either_direction() {
        let range = Range::between(NOW - 400_000, NOW - 300_000, NOW);
        assert_eq!((range.start_ms(NOW), range.end_ms(NOW)), (NOW - 400_000, NOW - 300_000));
        assert_eq!(Range::between(NOW - 300_000, NOW - 400_000, NOW), range);
        assert!(Range::between(NOW - 60_000, NOW, NOW).is_live(), "it reaches the present");
    }

    #[test]
    fn a_short_dragged_span_is_extended_around_its_middle() {
        let range = Range::between(NOW - 304_000, NOW - 300_000, NOW);
        assert_eq!((range.start_ms(NOW), range.span_ms()), (NOW - 317_000, Range::SHORTEST_MS));
        let first = Range::between(NOW - Range::LONGEST_MS, NOW - Range::LONGEST_MS + 10, NOW);
        assert_eq!(first.start_ms(NOW), NOW - Range::LONGEST_MS);
    }

    #[test]
    fn steps_that_would_change_nothing_have_a_reason() {
        use RangeStep::{Earlier, Later, Narrower, Wider};
        let limits = |range: Range, history_ms| {
            [Earlier, Later, Wider, Narrower].map(|step| range.limit(step, NOW, Range::WEEK_MS, history_ms))
        };
        let all = Range::last(Range::WEEK_MS);
        let begin = Some(Limit::HistoryBegins(NOW - Range::WEEK_MS));
        let longest = Some(Limit::Longest(Range::WEEK_MS));
        assert_eq!(limits(all, None), [begin, Some(Limit::Live), longest, None]);
        assert_eq!(all.limit(Wider, NOW, Range::LONGEST_MS, None), None);
        let short = Range::last(60_000);
        assert_eq!(limits(short, None), [None, Some(Limit::Live), None, None]);
        let young = Some(NOW - 38_000);
        let begins = Some(Limit::HistoryBegins(NOW - 38_000));
        assert_eq!(limits(short, young), [begins, Some(Limit::Live), begins, None]);
        let past = Range::last(30_000).panned(-3.0, NOW);
        assert_eq!(limits(past, None), [None, None, None, Some(Limit::Shortest)]);
    }

    #[test]
    fn a_relay_without_a_storage_shows_a_week() {
        let limited = |range: Range| range.limited(Range::WEEK_MS, NOW);
        for range in [Range::default(), Range::last(Range::WEEK_MS), Range::between(NOW - 9_000, 0, NOW)] {
            let within = range.span_ms() <= Range::WEEK_MS;
            assert_eq!(limited(range) == range, within, "{range:?}");
        }
        assert_eq!(limited(Range::last(Range::LONGEST_MS)), Range::last(Range::WEEK_MS));
        let month_ago = Range::between(NOW - 2_600_000_000, NOW - 2_590_000_000, NOW);
        assert_eq!(month_ago.limited(Range::LONGEST_MS, NOW), month_ago);
        let oldest = limited(month_ago);
        assert_eq!((oldest.start_ms(NOW), oldest.span_ms()), (NOW - Range::WEEK_MS, 10_000_000));
    }

    #[test]
    fn what_exceeds_the_recent_history_is_shown_of_the_long_term_one() {
        let is_long = |range: Range| range.window(NOW, 600).is_long();
        assert!(!is_long(Range::default()));
        assert!(!is_long(Range::between(NOW - 500_000, NOW - 400_000, NOW)));
        assert!(is_long(Range::last(3_600_000)));
        assert!(is_long(Range::between(NOW - 700_000, NOW - 650_000, NOW)));
    }

    #[test]
    fn the_cells_of_a_heat_map_are_as_long_as_the_slowest_sampling() {
        let cells = |range: Range| {
            let window = range.cells(NOW, 600);
            (window.step_ms(), window.steps())
        };
        assert_eq!(cells(Range::default()), (10_000, 60));
        assert_eq!(cells(Range::between(NOW - 500_000, NOW - 250_000, NOW)), (10_000, 25));
        assert_eq!(cells(Range::last(60_000)), (1_000, 60), "a minute is soon sampled as often as possible");
        assert_eq!(Range::last(3_600_000).cells(NOW, 600), Range::last(3_600_000).window(NOW, 600));
        let end_ms = |now_ms| Range::default().cells(now_ms, 600).end_ms();
        assert_eq!([end_ms(NOW + 2_000), end_ms(NOW + 3_000)], [NOW, NOW + 10_000]);
    }

    #[test]
    fn the_time_before_an_ended_job_is_not_shown() {
        let (ten_minutes, past) = (Range::default(), Range::default().panned(-2.0, NOW));
        assert_eq!(ten_minutes.within_run(Some(180_000)), Range::last(180_000));
        assert_eq!(ten_minutes.within_run(Some(900_000)), ten_minutes);
        assert_eq!(ten_minutes.within_run(Some(2_000)).span_ms(), Range::SHORTEST_MS);
        assert_eq!((ten_minutes.within_run(None), past.within_run(Some(1_000))), (ten_minutes, past));
    }

    #[test]
    fn presets_are_possible_ranges() {
        for span_ms in Range::PRESETS_MS {
            assert_eq!(Range::last(span_ms).span_ms(), span_ms);
        }
        assert_eq!(Range::last(Range::RECENT_MS), Range::default());
    }

    #[test]
    fn a_range_round_trips_through_its_text() {
        let past = Range::default().zoomed(0.2, 0.5, NOW);
        for range in [Range::default().zoomed(0.5, 1.0, NOW), past] {
            let text = range.text(1_700_000_000).unwrap();
            assert_eq!(Range::from_text(&text, 1_700_000_000, NOW), Some(range), "{text}");
        }
        assert_eq!(Range::default().text(0), None);
    }

    #[test]
    fn the_text_of_two_times_of_day_is_the_range_between_them() {
        let wall_ms = NOW + 1_700_000_000_000;
        let text = Range::text_between(wall_ms - 400_000, wall_ms - 300_000);
        let range = Range::from_text(&text, 1_700_000_000, NOW);
        assert_eq!(range, Some(Range::between(NOW - 400_000, NOW - 300_000, NOW)));
    }

    #[test]
    fn a_malformed_text_is_no_range() {
        for text in ["", "x", "-5", "10-", "10-x", "99999999999999999999", "1e3"] {
            assert_eq!(Range::from_text(text, 0, NOW), None, "{text}");
        }
        let gone = Range::from_text("60-5", 0, NOW).unwrap();
        assert_eq!(gone.start_ms(NOW), NOW - Range::LONGEST_MS);
    }
}
