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

impl Window {
    /// Length of a step of [`Self::ten_minutes`], in ms: about what a sparkline can resolve.
    pub const STEP_MS: u64 = 3_000;

    /// Ten minutes that end with the last step that is over at `now_ms`, so that none is half empty.
    pub fn ten_minutes(now_ms: u64) -> Self {
        Self { newest: (now_ms / Self::STEP_MS).saturating_sub(1), step_ms: Self::STEP_MS, steps: 200 }
    }

    /// How many steps there are.
    pub fn steps(&self) -> usize {
        self.steps
    }

    /// The mean of a trace's values in each step.
    pub fn series(&self, trace: &Trace) -> Series {
        let mut sums = vec![(0.0f32, 0u16); self.steps];
        let oldest = (self.newest + 1).saturating_sub(self.steps as u64);
        let empty = self.steps as u64 - (self.newest + 1 - oldest);
        for (at_ms, cell) in trace.points() {
            let (step, value) = (at_ms / self.step_ms, cell.and_then(Cell::value));
            let Some(value) = value.filter(|_| step >= oldest && step <= self.newest) else { continue };
            let (sum, count) = &mut sums[(step - oldest + empty) as usize];
            *sum += value as f32;
            *count += 1;
        }
        sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / f32::from(count))).collect()
    }
}

/// A series as shares of a whole; without a whole there is nothing to draw.
pub fn share(series: &[Option<f32>], whole: f32) -> Series {
    let whole = (whole > 0.0).then_some(whole);
    series.iter().map(|value| Some((*value)? / whole?)).collect()
}

/// Several series of the same window as one: the sum of what is there over the sum of its wholes, so
/// that a GPU without data at a moment neither lowers nor raises the line.
pub fn merged<'a>(parts: impl IntoIterator<Item = (&'a [Option<f32>], f32)>) -> Series {
    let mut sums: Vec<(f32, f32)> = Vec::new();
    for (series, whole) in parts {
        sums.resize(sums.len().max(series.len()), (0.0, 0.0));
        for ((sum, wholes), value) in sums.iter_mut().zip(series) {
            if let Some(value) = value {
                *sum += value;
                *wholes += whole;
            }
        }
    }
    sums.into_iter().map(|(sum, whole)| (whole > 0.0).then(|| sum / whole)).collect()
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
    fn a_missing_gpu_does_not_dent_the_sum() {
        let (a, b) = ([Some(50.0), Some(50.0)], [Some(100.0), None]);
        assert_eq!(merged([(&a[..], 100.0), (&b[..], 100.0)]), [Some(0.75), Some(0.5)]);
    }

    #[test]
    fn shares_need_a_whole() {
        assert_eq!(share(&[Some(40.0), None], 80.0), [Some(0.5), None]);
        assert_eq!(share(&[Some(40.0)], 0.0), [None]);
    }
}
