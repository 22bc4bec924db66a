//! A plot is lines of GPUs on one scale and one stretch of time, ready to be drawn, read and compared.

use super::roll::{Entry, Group, is_over};
use crate::chart::{Band, Kept, Mark, Series, Window, outliers};
use crate::fleet::Scene;
use crate::metric::Metric;
use crate::time::Pick;

/// Up to this many GPUs have a line each; of more, only those that stand out.
const MOST_LINES: usize = 16;

/// Lines of GPUs.
pub struct Plot {
    /// The steps.
    pub window: Window,
    /// The top of the scale in the metric's unit.
    pub top: f32,
    /// A line for each GPU, in the metric's unit.
    pub lines: Vec<Line>,
    /// Lowest, median and highest of all, where there are several.
    pub band: Option<Band>,
    /// Positions of the lines that leave the others, and how far.
    pub far: Vec<(usize, f32)>,
    is_over: bool,
    metric: Metric,
    kept: Kept,
    programs: u64,
}

/// The line of a GPU.
pub struct Line {
    /// Which GPU.
    pub pick: Pick,
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: Series,
}

impl Line {
    /// Takes over what stays, and adds what is new; who tells nothing has no values.
    fn go_on(&mut self, (gone, first): (usize, usize), marks: &[Mark], steps: usize) {
        self.values.drain(..gone.min(self.values.len()));
        self.values.truncate(first);
        self.values.resize(first, None);
        self.values.extend(marks.iter().map(|mark| mark.value()));
        self.values.resize(steps, None);
    }
}

impl Plot {
    /// The plot of a metric of some GPUs, made of the one before as far as that holds; and whether it is another one.
    /// `pasts` grows when a past is another one, or when there are other GPUs.
    pub fn of(
        before: Option<Self>,
        scene: &Scene,
        groups: &[Group],
        metric: Metric,
        window: Window,
        pasts: u64,
    ) -> (Self, bool) {
        let mut plot = before.filter(|before| before.metric == metric).unwrap_or_else(|| Self {
            window,
            top: 0.0,
            lines: Vec::new(),
            band: None,
            far: Vec::new(),
            is_over: false,
            metric,
            kept: Kept::default(),
            programs: 0,
        });
        let Some(step) = plot.kept.go_on(window, pasts) else { return (plot, false) };
        plot.window = window;
        plot.is_over = is_over(scene, groups);
        // The names say which rank runs there.
        let programs = groups.iter().map(|group| group.node.members().count()).sum();
        let same_names = std::mem::replace(&mut plot.programs, programs) == programs && step.1 > 0;
        plot.top = 0.0;
        let all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
        let mut lines = std::mem::take(&mut plot.lines).into_iter().filter(|_| step.1 > 0);
        let line = |(group, gpu): (&Group, &Entry)| {
            let mut line = lines.next().unwrap_or_else(|| Line {
                pick: group.pick(gpu),
                name: String::new(),
                values: Series::new(),
            });
            if !same_names {
                line.name = group.name(scene, gpu);
            }
            let past = group.past(scene, gpu, metric, |picture, trace| {
                (metric.top(picture), window.marks(trace, step.1, |steps| metric.measure(steps)))
            });
            let (top, marks) = past.unwrap_or_default();
            plot.top = top.unwrap_or(0.0).max(plot.top);
            line.go_on(step, &marks, window.steps());
            line
        };
        plot.lines = all.map(line).collect();
        let rows = || plot.lines.iter().map(|line| line.values.as_slice());
        plot.band = (plot.lines.len() > 2).then(|| {
            let mut band = plot.band.take().filter(|_| step.1 > 0).unwrap_or_default();
            band.go_on(step, rows());
            band
        });
        plot.far = plot.band.as_ref().map_or_else(Vec::new, |band| {
            // The last minute: who left once and came back is no news.
            let recent = (60_000 / window.step_ms()) as usize;
            outliers(rows(), &band.mid, recent, plot.top * metric.far())
        });
        (plot, true)
    }

    /// Whether each GPU has its line.
    pub fn shows_every_line(&self) -> bool {
        self.lines.len() <= MOST_LINES
    }

    /// The newest step that anybody tells of, and whether that is the end of a job. The last steps may still be on their
    /// way; what is older is not of now, but it is the end of what is over.
    pub fn newest(&self) -> (usize, bool) {
        let rows = self.lines.iter().map(|line| line.values.as_slice());
        newest(rows, self.window.steps().saturating_sub(1), self.is_over)
    }

    /// The line that is nearest to a value at a step.
    pub fn nearest(&self, step: usize, value: f32) -> Option<&Line> {
        let away = |line: &&Line| line.values.get(step).copied().flatten().map(|here| (here - value).abs());
        let told = self.lines.iter().filter(|line| away(line).is_some());
        told.min_by(|a, b| away(a).unwrap_or(f32::MAX).total_cmp(&away(b).unwrap_or(f32::MAX)))
    }

    /// The line of a GPU.
    pub fn line_of(&self, pick: &Pick) -> Option<(usize, &Line)> {
        self.lines.iter().enumerate().find(|(_, line)| line.pick == *pick)
    }
}

/// How many of the last steps may be on their way.
const ON_THEIR_WAY: usize = 5;

fn newest<'a>(
    rows: impl Iterator<Item = &'a [Option<f32>]> + Clone,
    last: usize,
    is_over: bool,
) -> (usize, bool) {
    let told_of = |step: &usize| rows.clone().any(|row| row.get(*step).is_some_and(Option::is_some));
    let from = if is_over { 0 } else { last.saturating_sub(ON_THEIR_WAY) };
    let step = (from..=last).rev().find(told_of);
    (step.unwrap_or(last), is_over && step.is_some_and(|step| step < last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_what_is_over_is_told_however_long_ago_and_a_silence_is_none() {
        let row = |told: usize| (0..20).map(|step| (step < told).then_some(1.0)).collect::<Series>();
        let told = |told: usize, is_over| newest([row(told).as_slice()].into_iter(), 19, is_over);
        assert_eq!(told(20, false), (19, false));
        assert_eq!(told(17, false), (16, false), "the last steps are on their way");
        assert_eq!(told(3, false), (19, false), "a node is silent: nothing is told");
        assert_eq!(told(3, true), (2, true));
        assert_eq!(told(20, true), (19, false), "a time before the end is looked at");
        assert_eq!(told(0, true), (19, false));
    }
}
