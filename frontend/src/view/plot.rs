//! A plot is lines of GPUs on one scale and one stretch of time, ready to be drawn, read and compared.

use super::roll::{Entry, Group};
use crate::chart::{Band, Series, Window, outliers};
use crate::fleet::Scene;
use crate::metric::Metric;
use crate::time::Pick;
use std::sync::Arc;

/// Up to this many GPUs have a line each; of more, only those that stand out.
const MOST_LINES: usize = 16;

/// Lines of GPUs. Clones are the same plot, and another one is never equal.
#[derive(Clone)]
pub struct Plot(Arc<Inner>);

/// What a plot is made of.
pub struct Inner {
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

impl PartialEq for Plot {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl std::ops::Deref for Plot {
    type Target = Inner;

    fn deref(&self) -> &Inner {
        &self.0
    }
}

impl Plot {
    /// The plot of a metric of some GPUs.
    pub fn of(scene: &Scene, groups: &[Group], metric: Metric, window: Window) -> Self {
        let all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
        let line = |(group, gpu): (&Group, &Entry)| {
            let past = group.past(scene, gpu, metric, |picture, trace| {
                (metric.top(picture), window.series_of(trace, |steps| metric.measure(steps)))
            });
            let (top, values) = past.unwrap_or_default();
            (top, Line { pick: group.pick(gpu), name: group.name(scene, gpu), values })
        };
        let (tops, lines): (Vec<Option<f32>>, Vec<Line>) = all.map(line).unzip();
        let top = tops.into_iter().flatten().fold(0.0, f32::max);
        let band = (lines.len() > 2).then(|| Band::of(lines.iter().map(|line| line.values.as_slice())));
        let far = band.as_ref().map_or_else(Vec::new, |band| {
            // The last minute: who left once and came back is no news.
            let recent = (60_000 / window.step_ms()) as usize;
            outliers(lines.iter().map(|line| line.values.as_slice()), &band.mid, recent, top * metric.far())
        });
        Self(Arc::new(Inner { window, top, lines, band, far }))
    }

    /// Whether each GPU has its line.
    pub fn shows_every_line(&self) -> bool {
        self.lines.len() <= MOST_LINES
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
