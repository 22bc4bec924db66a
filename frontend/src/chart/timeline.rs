//! A trace is laid on a grid of time that stands still, so that a chart shifts and never shimmers.

use nodeglass_protocol::Cell;
use nodeglass_protocol::trace::Trace;

/// Values on the grid of a [`Window`], oldest first; `None` is a gap.
pub type Series = Vec<Option<f32>>;

/// The stretch of time a chart shows, in whole steps of the relay's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Number of the newest step.
    newest: u64,
    /// Length of a step in ms.
    step_ms: u64,
    /// How many steps.
    steps: usize,
}

/// What is known of one step.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Mark {
    /// No sample: nothing was heard.
    #[default]
    Gap,
    /// The card does not offer this reading.
    Unsupported,
    /// Reading failed.
    Failed,
    /// The mean of what was read.
    Value(f32),
}

impl Mark {
    /// The value, if there is one.
    pub fn value(self) -> Option<f32> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }
}

impl Window {
    /// Length of a step of [`Self::ten_minutes`], in ms: about what a sparkline can resolve.
    pub const STEP_MS: u64 = 3_000;
    /// Lengths that a step may have, in ms.
    const STEPS_MS: [u64; 6] = [1_000, 2_000, 3_000, 5_000, 10_000, 20_000];

    /// Ten minutes that end with the last step that is over at `now_ms`, so that none is half empty.
    pub fn ten_minutes(now_ms: u64) -> Self {
        Self { newest: (now_ms / Self::STEP_MS).saturating_sub(1), step_ms: Self::STEP_MS, steps: 200 }
    }

    /// The `span_ms` that end with the last step that is over at `end_ms`, in at most `most` steps if it can be.
    pub fn over(end_ms: u64, span_ms: u64, most: usize) -> Self {
        let fits = |step_ms: &&u64| span_ms.div_ceil(**step_ms) <= most.max(1) as u64;
        let step_ms = Self::STEPS_MS.iter().find(fits).copied().unwrap_or(20_000);
        let steps = (span_ms / step_ms).max(1) as usize;
        Self { newest: (end_ms / step_ms).saturating_sub(1), step_ms, steps }
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// Where it begins, in ms.
    pub fn start_ms(&self) -> u64 {
        self.oldest() * self.step_ms
    }

    /// Where it ends, in ms.
    pub fn end_ms(&self) -> u64 {
        (self.newest + 1) * self.step_ms
    }

    /// The beginning of a step, in ms.
    pub fn at_ms(&self, step: usize) -> u64 {
        self.start_ms() + step as u64 * self.step_ms
    }

    /// The step of a moment, if it lies within.
    pub fn step_of(&self, at_ms: u64) -> Option<usize> {
        let step = (at_ms / self.step_ms).checked_sub(self.oldest())? as usize;
        (step < self.steps).then_some(step)
    }

    /// Length of a step in ms.
    pub fn step_ms(&self) -> u64 {
        self.step_ms
    }

    /// By how many steps it is later than another one of the same kind that it overlaps.
    pub fn ahead_of(&self, older: &Self) -> Option<usize> {
        let same = (self.step_ms, self.steps) == (older.step_ms, older.steps);
        let ahead = self.newest.checked_sub(older.newest).filter(|_| same)? as usize;
        (ahead < self.steps).then_some(ahead)
    }

    fn oldest(&self) -> u64 {
        (self.newest + 1).saturating_sub(self.steps as u64)
    }

    /// The mean of a trace's values in each step.
    pub fn series(&self, trace: &Trace) -> Series {
        self.series_of(trace, |steps| steps as f32)
    }

    /// The mean of what `measure` makes of a trace's values in each step.
    pub fn series_of(&self, trace: &Trace, measure: impl Fn(u32) -> f32) -> Series {
        self.marks(trace, 0, measure).into_iter().map(Mark::value).collect()
    }

    /// What is known of each step from the `first` on.
    pub fn marks(&self, trace: &Trace, first: usize, measure: impl Fn(u32) -> f32) -> Vec<Mark> {
        // A relay younger than the window leaves its left empty.
        let empty = self.steps - ((self.newest + 1 - self.oldest()) as usize).min(self.steps);
        let mut marks = vec![Mark::Gap; self.steps.saturating_sub(first)];
        let mut counts = vec![0u16; marks.len()];
        let from = self.oldest() + first.saturating_sub(empty) as u64;
        for (at_ms, cell) in trace.since(from * self.step_ms) {
            let step = at_ms / self.step_ms;
            if step > self.newest {
                break;
            }
            let index = (step - self.oldest()) as usize + empty - first;
            let (mark, count) = (&mut marks[index], &mut counts[index]);
            match (cell.map(|cell| (cell, cell.value())), *mark) {
                (Some((_, Some(steps))), Mark::Value(mean)) => {
                    *count += 1;
                    *mark = Mark::Value(mean + (measure(steps) - mean) / f32::from(*count));
                }
                (Some((_, Some(steps))), _) => {
                    *count = 1;
                    *mark = Mark::Value(measure(steps));
                }
                (_, Mark::Value(_)) | (None, _) => {}
                (Some((Cell::UNSUPPORTED, _)), _) => *mark = Mark::Unsupported,
                (Some(_), _) => *mark = Mark::Failed,
            }
        }
        marks
    }
}

/// How far what was worked out of a window's steps still holds when the window moves on.
#[derive(Clone, Copy, Debug, Default)]
pub struct Kept {
    window: Option<Window>,
    stamp: u64,
}

impl Kept {
    /// Steps that are worked out again although they stay, for nodes do not tell at the same moment.
    const LATE: usize = 3;

    /// Goes on to a window. So many steps are gone at the left, and from the second number on they are to be worked out
    /// anew: all of them if `stamp`, which grows when a past is another one, is not what it was. Nothing when nothing is
    /// new.
    pub fn go_on(&mut self, window: Window, stamp: u64) -> Option<(usize, usize)> {
        let before = self.window.replace(window).filter(|_| self.stamp == stamp);
        self.stamp = stamp;
        match before.and_then(|before| window.ahead_of(&before)) {
            Some(0) => None,
            Some(ahead) => match window.steps().saturating_sub(ahead + Self::LATE) {
                0 => Some((window.steps(), 0)),
                first => Some((ahead, first)),
            },
            None => Some((window.steps(), 0)),
        }
    }
}

/// Takes over of a row what stays when its window goes on, and adds what is worked out anew.
pub(super) fn go_on<T>(row: &mut Vec<T>, (gone, first): (usize, usize), new: impl IntoIterator<Item = T>) {
    row.drain(..gone.min(row.len()));
    row.truncate(first);
    row.extend(new);
}

/// A series as shares of a whole; without a whole there is nothing to draw.
pub fn share(series: &[Option<f32>], whole: f32) -> Series {
    let whole = (whole > 0.0).then_some(whole);
    series.iter().map(|value| Some((*value)? / whole?)).collect()
}

/// Several rows of the same window as one: the sum of what is there over the sum of its wholes, so that a GPU without
/// data at a moment neither lowers nor raises the line.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    kept: Kept,
    sums: Vec<(f32, f32)>,
}

impl Sums {
    /// Goes on to a window, and says from which step on everybody is to be added; none when nothing is new.
    pub fn go_on(&mut self, window: Window, stamp: u64) -> Option<usize> {
        let step = self.kept.go_on(window, stamp)?;
        go_on(&mut self.sums, step, std::iter::repeat_n((0.0, 0.0), window.steps() - step.1));
        Some(step.1)
    }

    /// Adds somebody's steps from the `first` on, of a whole.
    pub fn add(&mut self, first: usize, marks: &[Mark], whole: f32) {
        for ((sum, wholes), mark) in self.sums.iter_mut().skip(first).zip(marks) {
            if let Mark::Value(value) = mark {
                *sum += value;
                *wholes += whole;
            }
        }
    }

    /// What it comes to.
    pub fn series(&self) -> Series {
        self.sums.iter().map(|(sum, whole)| (*whole > 0.0).then(|| sum / whole)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(points: &[(u64, u32)]) -> Trace {
        let mut trace = Trace::default();
        for (second, value) in points {
            trace.push(second * 1_000, Cell::steps(*value), 0);
        }
        trace
    }

    fn window(newest: u64, steps: usize) -> Window {
        Window { newest, step_ms: 3_000, steps }
    }

    #[test]
    fn a_step_is_the_mean_of_its_seconds() {
        let trace = trace(&[(3, 10), (4, 20), (5, 30), (6, 40)]);
        assert_eq!(window(2, 3).series(&trace), [None, Some(20.0), Some(40.0)]);
    }

    #[test]
    fn steps_stand_still_when_time_goes_on() {
        let mut trace = trace(&[(3, 10), (4, 20), (5, 30), (6, 40)]);
        let before = window(2, 3).series(&trace);
        trace.push(9_000, Cell::steps(1), 0);
        let after = window(3, 3).series(&trace);
        assert_eq!(before[1], after[0]);
    }

    #[test]
    fn a_gap_and_what_lies_outside_are_not_drawn() {
        let trace = trace(&[(0, 5), (9, 7)]);
        assert_eq!(window(3, 3).series(&trace), [None, None, Some(7.0)]);
    }

    #[test]
    fn a_relay_younger_than_the_window_leaves_the_left_empty() {
        assert_eq!(window(0, 3).series(&trace(&[(1, 5)])), [None, None, Some(5.0)]);
    }

    #[test]
    fn a_failure_a_lack_and_a_gap_are_told_apart() {
        let mut trace = Trace::default();
        for (second, cell) in
            [(0, Cell::FAILED), (3, Cell::UNSUPPORTED), (9, Cell::steps(4)), (10, Cell::FAILED)]
        {
            trace.push(second * 1_000, cell, 0);
        }
        let marks = window(3, 4).marks(&trace, 0, |steps| steps as f32);
        assert_eq!(marks, [Mark::Failed, Mark::Unsupported, Mark::Gap, Mark::Value(4.0)]);
        assert_eq!(window(3, 4).marks(&trace, 2, |steps| steps as f32), marks[2..]);
    }

    #[test]
    fn steps_are_as_fine_as_there_is_room_for() {
        let steps = |span_s: u64, most| {
            let window = Window::over(4_000_000, span_s * 1_000, most);
            (window.step_ms, window.steps)
        };
        assert_eq!(
            [steps(600, 700), steps(600, 320), steps(60, 320)],
            [(1_000, 600), (2_000, 300), (1_000, 60)]
        );
        assert_eq!(steps(600, 90), (10_000, 60));
    }

    #[test]
    fn a_later_window_of_the_same_kind_says_how_far_it_moved() {
        assert_eq!(window(9, 5).ahead_of(&window(7, 5)), Some(2));
        assert_eq!(window(9, 5).ahead_of(&window(9, 4)), None);
        assert_eq!(window(7, 5).ahead_of(&window(9, 5)), None);
        assert_eq!(window(99, 5).ahead_of(&window(9, 5)), None);
    }

    #[test]
    fn of_a_window_that_goes_on_only_the_newest_steps_are_worked_out_anew() {
        let mut kept = Kept::default();
        assert_eq!(kept.go_on(window(9, 8), 1), Some((8, 0)));
        assert_eq!(kept.go_on(window(9, 8), 1), None);
        assert_eq!(kept.go_on(window(11, 8), 1), Some((2, 3)));
        assert_eq!(kept.go_on(window(12, 8), 2), Some((8, 0)));
        assert_eq!(kept.go_on(window(18, 8), 2), Some((8, 0)));
    }

    #[test]
    fn a_row_that_goes_on_is_what_it_would_be_from_the_beginning() {
        let mut trace = trace(&[(0, 1), (3, 2), (6, 3), (9, 4), (12, 5), (15, 6), (18, 7)]);
        let mut kept = Kept::default();
        let mut row: Vec<Mark> = Vec::new();
        for newest in [5, 6, 7, 9, 20] {
            trace.push(newest * 3_000, Cell::steps(newest as u32 * 10), 0);
            let window = window(newest, 6);
            let step = kept.go_on(window, 0).unwrap();
            go_on(&mut row, step, window.marks(&trace, step.1, |steps| steps as f32));
            assert_eq!(row, window.marks(&trace, 0, |steps| steps as f32), "{newest}");
        }
    }

    #[test]
    fn moments_and_steps_lead_to_each_other() {
        let window = window(9, 5);
        assert_eq!((window.start_ms(), window.end_ms()), (15_000, 30_000));
        assert_eq!(window.step_of(window.at_ms(3) + 2_999), Some(3));
        assert_eq!([window.step_of(14_999), window.step_of(30_000)], [None, None]);
    }

    #[test]
    fn a_missing_gpu_does_not_dent_the_sum() {
        let mut sums = Sums::default();
        assert_eq!(sums.go_on(window(9, 2), 0), Some(0));
        sums.add(0, &[Mark::Value(50.0), Mark::Value(50.0)], 100.0);
        sums.add(0, &[Mark::Value(100.0), Mark::Gap], 100.0);
        assert_eq!(sums.series(), [Some(0.75), Some(0.5)]);
    }

    #[test]
    fn sums_that_go_on_keep_what_they_have() {
        let mut sums = Sums::default();
        sums.go_on(window(9, 8), 0);
        sums.add(0, &[Mark::Value(10.0); 8], 100.0);
        assert_eq!(sums.go_on(window(10, 8), 0), Some(4));
        sums.add(4, &[Mark::Value(20.0); 4], 100.0);
        let series: Vec<f32> = sums.series().into_iter().flatten().collect();
        assert_eq!(series, [0.1, 0.1, 0.1, 0.1, 0.2, 0.2, 0.2, 0.2]);
    }

    #[test]
    fn shares_need_a_whole() {
        assert_eq!(share(&[Some(40.0), None], 80.0), [Some(0.5), None]);
        assert_eq!(share(&[Some(40.0)], 0.0), [None]);
    }
}
