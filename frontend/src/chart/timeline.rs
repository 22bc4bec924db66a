//! Resamples traces to a fixed time grid, so that a chart shifts without flickering.

use nodeglass_protocol::Cell;
use nodeglass_protocol::range::Summaries;
use nodeglass_protocol::trace::Trace;

/// Values on the grid of a [`Window`], oldest first; `None` is a gap.
pub type Series = Vec<Option<f32>>;

/// The time range that a chart shows, in whole steps of the relay's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of the newest step.
    newest: u64,
    /// Length of a step in ms.
    step_ms: u64,
    /// Number of steps.
    steps: usize,
    /// Whether it reaches beyond the recent history, so that the long-term history is shown.
    is_long: bool,
    /// The moment from which on values are shown, in ms: those before the start of a job are not the job's.
    since_ms: u64,
}

/// The value of a slot that is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extreme {
    /// The mean.
    Mean,
    /// The lowest.
    Low,
    /// The highest.
    High,
}

/// Value of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Point {
    /// No sample.
    #[default]
    Gap,
    /// The GPU does not offer this reading.
    Unsupported,
    /// The query failed.
    Failed,
    /// The mean of the samples.
    Value(f32),
}

impl Point {
    /// Returns the value, if there is one.
    pub fn value(self) -> Option<f32> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }
}

impl Window {
    /// Length of a step of [`Self::ten_minutes`], in ms: about the resolution of a sparkline.
    pub const STEP_MS: u64 = 3_000;
    /// Possible step lengths, in ms.
    const STEPS_MS: [u64; 18] = [
        1_000, 2_000, 3_000, 5_000, 10_000, 20_000, 30_000, 60_000, 120_000, 300_000, 600_000, 1_200_000,
        1_800_000, 3_600_000, 7_200_000, 14_400_000, 43_200_000, 86_400_000,
    ];

    /// Returns the ten minutes that end with the last complete step at `now_ms`.
    pub fn ten_minutes(now_ms: u64) -> Self {
        Self {
            newest: (now_ms / Self::STEP_MS).saturating_sub(1),
            step_ms: Self::STEP_MS,
            steps: 200,
            is_long: false,
            since_ms: 0,
        }
    }

    /// Returns its end, no longer than `span_ms`.
    pub fn at_most(self, span_ms: u64) -> Self {
        let steps = usize::try_from(span_ms.div_ceil(self.step_ms)).unwrap_or(usize::MAX).max(1);
        Self { steps: self.steps.min(steps), ..self }
    }

    /// Returns the `span_ms` that end with the last complete step at `end_ms`, in at most `most` steps if
    /// possible.
    pub fn over(end_ms: u64, span_ms: u64, most: usize) -> Self {
        let fits = |step_ms: &&u64| span_ms.div_ceil(**step_ms) <= most.max(1) as u64;
        let step_ms = Self::STEPS_MS.iter().find(fits).copied().unwrap_or(86_400_000);
        let steps = (span_ms / step_ms).max(1) as usize;
        Self { newest: (end_ms / step_ms).saturating_sub(1), step_ms, steps, is_long: false, since_ms: 0 }
    }

    /// Returns a window of the long-term history with the same steps that also has the incomplete step at
    /// `end_ms`: it may be hours long.
    pub fn of_long_history(self, end_ms: u64) -> Self {
        Self { is_long: true, newest: end_ms.div_ceil(self.step_ms).saturating_sub(1), ..self }
    }

    /// Returns a window with the same steps that ends with the step at a moment, complete or not.
    pub fn up_to(self, at_ms: u64) -> Self {
        Self { newest: at_ms / self.step_ms, ..self }
    }

    /// Returns a window with the same steps that shows no values before a moment.
    pub fn since(self, since_ms: u64) -> Self {
        Self { since_ms, ..self }
    }

    /// Returns the moment within it from which on values are shown, in ms.
    pub fn shown_from_ms(&self) -> u64 {
        self.start_ms().max(self.since_ms)
    }

    /// Returns whether it shows the long-term history.
    pub fn is_long(&self) -> bool {
        self.is_long
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Start in ms.
    pub fn start_ms(&self) -> u64 {
        self.oldest() * self.step_ms
    }

    /// End in ms.
    pub fn end_ms(&self) -> u64 {
        (self.newest + 1) * self.step_ms
    }

    /// Start of a step, in ms.
    pub fn at_ms(&self, step: usize) -> u64 {
        self.start_ms() + step as u64 * self.step_ms
    }

    /// Returns the step that contains a moment, if it lies within the window.
    pub fn step_at(&self, at_ms: u64) -> Option<usize> {
        let step = (at_ms / self.step_ms).checked_sub(self.oldest())? as usize;
        (step < self.steps).then_some(step)
    }

    /// Length of a step in ms.
    pub fn step_ms(&self) -> u64 {
        self.step_ms
    }

    /// Returns by how many steps this window is later than an overlapping one of the same kind.
    pub fn ahead_of(&self, older: &Self) -> Option<usize> {
        let kind = |window: &Self| (window.step_ms, window.steps, window.is_long, window.since_ms);
        let same = kind(self) == kind(older);
        let ahead = self.newest.checked_sub(older.newest).filter(|_| same)? as usize;
        (ahead < self.steps).then_some(ahead)
    }

    fn oldest(&self) -> u64 {
        (self.newest + 1).saturating_sub(self.steps as u64)
    }

    /// Returns what is known of each step from `first` on, of summaries in slots of `slot_ms`. A slot that is
    /// longer than a step covers several.
    pub fn long_points(
        &self,
        summaries: &Summaries,
        slot_ms: u64,
        first: usize,
        extreme: Extreme,
        measure: impl Fn(u32) -> f32,
    ) -> Vec<Point> {
        let mut points = vec![Point::Gap; self.steps.saturating_sub(first)];
        let mut counts = vec![0u16; points.len()];
        let from_ms = self.at_ms(first);
        for (slot, summary) in summaries.since(from_ms.max(self.since_ms) / slot_ms) {
            let (start_ms, Some(summary)) = (slot * slot_ms, summary) else { continue };
            if start_ms >= self.end_ms() {
                break;
            }
            let cell = match extreme {
                Extreme::Mean => summary.mean,
                Extreme::Low => summary.min,
                Extreme::High => summary.max,
            };
            let begin = start_ms.max(from_ms).saturating_sub(from_ms) / self.step_ms;
            let end = (start_ms + slot_ms).saturating_sub(from_ms).div_ceil(self.step_ms);
            let covered = (begin as usize).min(points.len())..(end as usize).min(points.len());
            for (mark, count) in points[covered.clone()].iter_mut().zip(&mut counts[covered]) {
                *count += 1;
                *mark = match (cell, cell.value().map(&measure), *mark) {
                    (_, Some(value), Point::Value(known)) => Point::Value(match extreme {
                        Extreme::Mean => known + (value - known) / f32::from(*count),
                        Extreme::Low => known.min(value),
                        Extreme::High => known.max(value),
                    }),
                    (_, Some(value), _) => {
                        *count = 1;
                        Point::Value(value)
                    }
                    (_, None, Point::Value(known)) => Point::Value(known),
                    (Cell::UNSUPPORTED, None, _) => Point::Unsupported,
                    (_, None, _) => Point::Failed,
                };
            }
        }
        points
    }

    /// Returns the mean of a trace's values in each step.
    pub fn series(&self, trace: &Trace) -> Series {
        self.series_with(trace, |steps| steps as f32)
    }

    /// Returns the mean of a trace's values, converted with `measure`, in each step.
    pub fn series_with(&self, trace: &Trace, measure: impl Fn(u32) -> f32) -> Series {
        self.points(trace, 0, measure).into_iter().map(Point::value).collect()
    }

    /// Returns what is known of each step from `first` on.
    pub fn points(&self, trace: &Trace, first: usize, measure: impl Fn(u32) -> f32) -> Vec<Point> {
        // While the relay is younger than the window, the left part is empty.
        let empty = self.steps - ((self.newest + 1 - self.oldest()) as usize).min(self.steps);
        let mut points = vec![Point::Gap; self.steps.saturating_sub(first)];
        let mut counts = vec![0u16; points.len()];
        let from = self.oldest() + first.saturating_sub(empty) as u64;
        for (at_ms, cell) in trace.since((from * self.step_ms).max(self.since_ms)) {
            let step = at_ms / self.step_ms;
            if step > self.newest {
                break;
            }
            let index = (step - self.oldest()) as usize + empty - first;
            let (mark, count) = (&mut points[index], &mut counts[index]);
            match (cell.map(|cell| (cell, cell.value())), *mark) {
                (Some((_, Some(steps))), Point::Value(mean)) => {
                    *count += 1;
                    *mark = Point::Value(mean + (measure(steps) - mean) / f32::from(*count));
                }
                (Some((_, Some(steps))), _) => {
                    *count = 1;
                    *mark = Point::Value(measure(steps));
                }
                (_, Point::Value(_)) | (None, _) => {}
                (Some((Cell::UNSUPPORTED, _)), _) => *mark = Point::Unsupported,
                (Some(_), _) => *mark = Point::Failed,
            }
        }
        points
    }
}

/// Tracks which steps of a cached row stay valid when the window advances.
#[derive(Clone, Copy, Debug, Default)]
pub struct WindowCache {
    window: Option<Window>,
    stamp: u64,
}

impl WindowCache {
    /// Steps that are recomputed although they are cached, because samples of different nodes arrive at
    /// different times.
    const RECOMPUTED_STEPS: usize = 3;

    /// Advances to a window. Returns how many steps are gone at the left, and from which step on to
    /// recompute: all of them if `stamp`, which grows when a history is replaced, differs. Returns `None` if
    /// nothing is new.
    pub fn advance(&mut self, window: Window, stamp: u64) -> Option<(usize, usize)> {
        let before = self.window.replace(window).filter(|_| self.stamp == stamp);
        self.stamp = stamp;
        match before.and_then(|before| window.ahead_of(&before)) {
            Some(0) => None,
            Some(ahead) => match window.steps().saturating_sub(ahead + Self::RECOMPUTED_STEPS) {
                0 => Some((window.steps(), 0)),
                first => Some((ahead, first)),
            },
            None => Some((window.steps(), 0)),
        }
    }
}

/// Drops the steps that are gone from a cached row and appends the recomputed ones.
pub(super) fn advance<T>(row: &mut Vec<T>, (gone, first): (usize, usize), new: impl IntoIterator<Item = T>) {
    row.drain(..gone.min(row.len()));
    row.truncate(first);
    row.extend(new);
}

/// Returns a series as fractions of `whole`; a gap everywhere if `whole` is zero.
pub fn share(series: &[Option<f32>], whole: f32) -> Series {
    let whole = (whole > 0.0).then_some(whole);
    series.iter().map(|value| Some((*value)? / whole?)).collect()
}

/// Aggregates several series of one window: the sum of present values over the sum of their maxima, so that a
/// GPU without data at a moment neither lowers nor raises the line.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    cache: WindowCache,
    sums: Vec<(f32, f32)>,
}

impl Sums {
    /// Advances to a window and returns the step from which on to add rows; `None` if nothing is new.
    pub fn advance(&mut self, window: Window, stamp: u64) -> Option<usize> {
        let step = self.cache.advance(window, stamp)?;
        advance(&mut self.sums, step, std::iter::repeat_n((0.0, 0.0), window.steps() - step.1));
        Some(step.1)
    }

    /// Adds a row's steps from `first` on, with its maximum.
    pub fn add(&mut self, first: usize, points: &[Point], whole: f32) {
        for ((sum, wholes), mark) in self.sums.iter_mut().skip(first).zip(points) {
            if let Point::Value(value) = mark {
                *sum += value;
                *wholes += whole;
            }
        }
    }

    /// Returns the aggregate.
    pub fn series(&self) -> Series {
        self.sums.iter().map(|(sum, whole)| (*whole > 0.0).then(|| sum / whole)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::range::Summary;

    fn trace(points: &[(u64, u32)]) -> Trace {
        let mut trace = Trace::default();
        for (second, value) in points {
            trace.push(second * 1_000, Cell::steps(*value), 0);
        }
        trace
    }

    fn window(newest: u64, steps: usize) -> Window {
        Window { newest, step_ms: 3_000, steps, is_long: false, since_ms: 0 }
    }

    #[test]
    fn a_step_is_the_mean_of_its_seconds() {
        let trace = trace(&[(3, 10), (4, 20), (5, 30), (6, 40)]);
        assert_eq!(window(2, 3).series(&trace), [None, Some(20.0), Some(40.0)]);
    }

    #[test]
    fn the_window_of_a_short_job_that_ended_begins_with_it() {
        let ten_minutes = Window::ten_minutes(900_000);
        let short = ten_minutes.at_most(181_000);
        assert_eq!((short.start_ms(), short.end_ms(), short.steps()), (717_000, 900_000, 61));
        assert_eq!([ten_minutes.at_most(u64::MAX), ten_minutes.at_most(600_000)], [ten_minutes; 2]);
        assert_eq!(ten_minutes.at_most(0).steps(), 1);
    }

    #[test]
    fn the_window_of_a_running_job_shows_no_values_before_its_start() {
        let trace = trace(&[(0, 10), (3, 20), (4, 30), (5, 50)]);
        let whole = window(1, 2);
        let of_job = whole.since(4_000);
        assert_eq!((whole.series(&trace)[0], whole.shown_from_ms()), (Some(10.0), 0));
        assert_eq!((of_job.series(&trace), of_job.shown_from_ms()), (vec![None, Some(40.0)], 4_000));
        // Cached values of another job are not its own.
        assert_eq!(of_job.ahead_of(&whole), None);
    }

    #[test]
    fn the_grid_stays_fixed_as_time_advances() {
        let mut trace = trace(&[(3, 10), (4, 20), (5, 30), (6, 40)]);
        let before = window(2, 3).series(&trace);
        trace.push(9_000, Cell::steps(1), 0);
        let after = window(3, 3).series(&trace);
        assert_eq!(before[1], after[0]);
    }

    #[test]
    fn gaps_and_points_outside_the_window_are_not_drawn() {
        let trace = trace(&[(0, 5), (9, 7)]);
        assert_eq!(window(3, 3).series(&trace), [None, None, Some(7.0)]);
    }

    #[test]
    fn the_left_stays_empty_while_the_relay_is_younger_than_the_window() {
        assert_eq!(window(0, 3).series(&trace(&[(1, 5)])), [None, None, Some(5.0)]);
    }

    #[test]
    fn failed_unsupported_and_missing_are_distinguished() {
        let mut trace = Trace::default();
        for (second, cell) in
            [(0, Cell::FAILED), (3, Cell::UNSUPPORTED), (9, Cell::steps(4)), (10, Cell::FAILED)]
        {
            trace.push(second * 1_000, cell, 0);
        }
        let points = window(3, 4).points(&trace, 0, |steps| steps as f32);
        assert_eq!(points, [Point::Failed, Point::Unsupported, Point::Gap, Point::Value(4.0)]);
        assert_eq!(window(3, 4).points(&trace, 2, |steps| steps as f32), points[2..]);
    }

    #[test]
    fn longer_steps_combine_slots_and_shorter_ones_repeat_them() {
        let mut summaries = Summaries::default();
        let summary = |mean, min, max| Summary {
            mean: Cell::steps(mean),
            min: Cell::steps(min),
            max: Cell::steps(max),
        };
        [(100, 10, 5, 20), (101, 20, 0, 30), (103, 7, 7, 7)]
            .into_iter()
            .for_each(|(slot, mean, min, max)| summaries.push(slot, summary(mean, min, max)));
        summaries.push(104, Summary::of(Cell::UNSUPPORTED));
        let points = |end_ms, span_ms, most, extreme| {
            let window = Window::over(end_ms, span_ms, most);
            window.long_points(&summaries, 10_000, 0, extreme, |steps| steps as f32)
        };
        let all = |extreme| points(1_060_000, 60_000, 3, extreme);
        let value = Point::Value;
        assert_eq!(all(Extreme::Mean), [value(15.0), value(7.0), Point::Unsupported]);
        assert_eq!(all(Extreme::Low), [value(0.0), value(7.0), Point::Unsupported]);
        assert_eq!(all(Extreme::High), [value(30.0), value(7.0), Point::Unsupported]);
        let short = points(1_020_000, 10_000, 2, Extreme::High);
        assert_eq!(short, [value(30.0), value(30.0)]);
        assert_eq!(points(1_030_000, 10_000, 1, Extreme::Mean), [Point::Gap]);
    }

    #[test]
    fn the_step_length_fits_the_available_width() {
        let steps = |span_s: u64, most| {
            let window = Window::over(4_000_000, span_s * 1_000, most);
            (window.step_ms, window.steps)
        };
        assert_eq!(
            [steps(600, 700), steps(600, 320), steps(60, 320)],
            [(1_000, 600), (2_000, 300), (1_000, 60)]
        );
        assert_eq!([steps(86_400, 600), steps(604_800, 600)], [(300_000, 288), (1_200_000, 504)]);
        let days = |days: u64, most| {
            let window = Window::over(400 * 86_400_000, days * 86_400_000, most);
            (window.step_ms / 3_600_000, window.steps)
        };
        assert_eq!([days(30, 600), days(90, 600), days(365, 600)], [(2, 360), (4, 540), (24, 365)]);
        assert_eq!(steps(600, 90), (10_000, 60));
    }

    #[test]
    fn a_later_window_knows_how_far_it_advanced() {
        assert_eq!(window(9, 5).ahead_of(&window(7, 5)), Some(2));
        assert_eq!(window(9, 5).ahead_of(&window(9, 4)), None);
        assert_eq!(window(7, 5).ahead_of(&window(9, 5)), None);
        assert_eq!(window(99, 5).ahead_of(&window(9, 5)), None);
    }

    #[test]
    fn an_advanced_window_recomputes_only_the_newest_steps() {
        let mut cache = WindowCache::default();
        assert_eq!(cache.advance(window(9, 8), 1), Some((8, 0)));
        assert_eq!(cache.advance(window(9, 8), 1), None);
        assert_eq!(cache.advance(window(11, 8), 1), Some((2, 3)));
        assert_eq!(cache.advance(window(12, 8), 2), Some((8, 0)));
        assert_eq!(cache.advance(window(18, 8), 2), Some((8, 0)));
    }

    #[test]
    fn an_advanced_row_equals_a_recomputed_one() {
        let mut trace = trace(&[(0, 1), (3, 2), (6, 3), (9, 4), (12, 5), (15, 6), (18, 7)]);
        let mut cache = WindowCache::default();
        let mut row: Vec<Point> = Vec::new();
        for newest in [5, 6, 7, 9, 20] {
            trace.push(newest * 3_000, Cell::steps(newest as u32 * 10), 0);
            let window = window(newest, 6);
            let step = cache.advance(window, 0).unwrap();
            advance(&mut row, step, window.points(&trace, step.1, |steps| steps as f32));
            assert_eq!(row, window.points(&trace, 0, |steps| steps as f32), "{newest}");
        }
    }

    #[test]
    fn moments_and_steps_convert_both_ways() {
        let window = window(9, 5);
        assert_eq!((window.start_ms(), window.end_ms()), (15_000, 30_000));
        assert_eq!(window.step_at(window.at_ms(3) + 2_999), Some(3));
        assert_eq!([window.step_at(14_999), window.step_at(30_000)], [None, None]);
    }

    #[test]
    fn a_missing_gpu_does_not_change_the_aggregate() {
        let mut sums = Sums::default();
        assert_eq!(sums.advance(window(9, 2), 0), Some(0));
        sums.add(0, &[Point::Value(50.0), Point::Value(50.0)], 100.0);
        sums.add(0, &[Point::Value(100.0), Point::Gap], 100.0);
        assert_eq!(sums.series(), [Some(0.75), Some(0.5)]);
    }

    #[test]
    fn an_advanced_aggregate_keeps_cached_steps() {
        let mut sums = Sums::default();
        sums.advance(window(9, 8), 0);
        sums.add(0, &[Point::Value(10.0); 8], 100.0);
        assert_eq!(sums.advance(window(10, 8), 0), Some(4));
        sums.add(4, &[Point::Value(20.0); 4], 100.0);
        let series: Vec<f32> = sums.series().into_iter().flatten().collect();
        assert_eq!(series, [0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2]);
    }

    #[test]
    fn a_fraction_needs_a_maximum() {
        assert_eq!(share(&[Some(40.0), None], 80.0), [Some(0.5), None]);
        assert_eq!(share(&[Some(40.0)], 0.0), [None]);
    }
}
