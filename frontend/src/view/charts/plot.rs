//! A plot: lines of GPUs on one scale and one time range, ready to be drawn, read and compared.

use super::gpu_groups::{GpuEntry, NodeGroup, is_over, is_unsupported};
use crate::chart::{Band, Extreme, Point, Series, Window, WindowCache};
use crate::domain::metric::GraphMetric;
use crate::fleet::TopicStore;
use crate::state::time::GpuRef;
use nodeglass_protocol::field::Vendors;

/// Maximum number of GPUs with a line each; of more, only the outliers have one.
const MAX_LINES: usize = 16;
/// Maximum number of outliers that are drawn.
const MAX_OUTLIERS: usize = 16;

/// Lines of GPUs.
pub struct Plot {
    /// The steps.
    pub window: Window,
    /// The maximum of the scale in the metric's unit.
    pub top: f32,
    /// A line per GPU, in the metric's unit.
    pub lines: Vec<Line>,
    /// The vendors of these GPUs.
    pub vendors: Vendors,
    /// Minimum, median and maximum, if there are several.
    pub band: Option<Band>,
    /// Whether its history is still to come.
    pub is_loading: bool,
    /// Whether none of these GPUs supports the metric.
    pub is_unsupported: bool,
    /// Positions of the lines of outliers in any metric, and their deviation in %.
    pub outliers: Vec<(usize, f32)>,
    is_over: bool,
    metric: GraphMetric,
    cache: WindowCache,
    programs: u64,
}

/// The line of a GPU.
pub struct Line {
    /// The GPU.
    pub gpu_ref: GpuRef,
    /// Its name.
    pub name: String,
    /// Its values; means, if a step summarizes several samples.
    pub values: Series,
    /// Lowest and highest values in the steps of the long-term history; empty otherwise.
    pub extremes: (Series, Series),
}

impl Line {
    /// Returns the line of a GPU, without values.
    fn new(gpu_ref: GpuRef) -> Self {
        Self { gpu_ref, name: String::new(), values: Series::new(), extremes: Default::default() }
    }

    /// Keeps the cached steps and appends new ones; a GPU without data has no values.
    fn advance(&mut self, (gone, first): (usize, usize), points: &[Point], steps: usize) {
        self.values.drain(..gone.min(self.values.len()));
        self.values.truncate(first);
        self.values.resize(first, None);
        self.values.extend(points.iter().map(|point| point.value()));
        self.values.resize(steps, None);
    }
}

impl Plot {
    /// Updates the plot of a metric of some GPUs from the valid part of the previous one; returns whether it changed.
    /// `history_revision` grows when a history is replaced, or when the set of GPUs changes.
    pub fn update(
        before: Option<Self>,
        store: &TopicStore,
        groups: &[NodeGroup],
        metric: GraphMetric,
        window: Window,
        history_revision: u64,
    ) -> (Self, bool) {
        let same = before.filter(|before| before.metric == metric);
        let mut plot = same.unwrap_or_else(|| Self::empty(metric, window));
        let Some(step) = plot.cache.advance(window, history_revision) else { return (plot, false) };
        plot.window = window;
        let is_loaded = |field| store.long_history().covers(field, &window);
        plot.is_loading = window.is_long() && !metric.field().is_some_and(is_loaded);
        plot.is_over = is_over(store, groups);
        plot.is_unsupported = is_unsupported(store, groups, metric);
        plot.vendors = groups.iter().flat_map(|group| group.gpus.iter().map(|gpu| gpu.vendor)).collect();
        // The names contain the rank that runs there.
        let programs = groups.iter().map(|group| group.node.process_set().count()).sum();
        let same_names = std::mem::replace(&mut plot.programs, programs) == programs && step.1 > 0;
        plot.top = 0.0;
        let all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
        let mut lines = std::mem::take(&mut plot.lines).into_iter().filter(|_| step.1 > 0);
        let line = |(group, gpu): (&NodeGroup, &GpuEntry)| {
            let mut line = lines.next().unwrap_or_else(|| Line::new(group.gpu_ref(gpu)));
            if !same_names {
                line.name = group.name(store, gpu);
            }
            let (top, points) = group.values(store, gpu, metric, &window, step.1);
            plot.top = top.unwrap_or(0.0).max(plot.top);
            line.advance(step, &points, window.steps());
            line.extremes = match window.is_long() {
                true => extremes(group, store, gpu, metric, &window),
                false => Default::default(),
            };
            line
        };
        plot.lines = all.map(line).collect();
        plot.update_band(step);
        // The only GPU of a graph has nothing there to stand out from.
        plot.outliers = if plot.lines.len() > 1 { outliers(store, groups) } else { Vec::new() };
        (plot, true)
    }

    /// Returns a plot without lines.
    fn empty(metric: GraphMetric, window: Window) -> Self {
        Self {
            window,
            top: 0.0,
            lines: Vec::new(),
            vendors: Vendors::Unknown,
            band: None,
            is_loading: false,
            is_unsupported: false,
            outliers: Vec::new(),
            is_over: false,
            metric,
            cache: WindowCache::default(),
            programs: 0,
        }
    }

    /// Updates minimum, median and maximum from the lines.
    fn update_band(&mut self, step: (usize, usize)) {
        let before = self.band.take().filter(|_| step.1 > 0);
        let rows = || self.lines.iter().map(|line| line.values.as_slice());
        self.band = (self.lines.len() > 2).then(|| {
            let mut band = before.unwrap_or_default();
            band.advance(step, rows());
            if self.window.is_long() {
                band.widen(self.lines.iter().map(|line| (&*line.extremes.0, &*line.extremes.1)));
            }
            band
        });
    }

    /// Returns whether each GPU has its line.
    pub fn shows_every_line(&self) -> bool {
        self.lines.len() <= MAX_LINES
    }

    /// Returns the newest step with a value, and whether that is the end of a job. The last steps may still
    /// be in transit; older ones are not current, unless the job has ended.
    pub fn newest(&self) -> (usize, bool) {
        let rows = self.lines.iter().map(|line| line.values.as_slice());
        newest(rows, self.window.steps().saturating_sub(1), self.is_over)
    }

    /// Returns the first and the last step with a value of a GPU, or of any without one.
    pub fn known(&self, gpu_ref: Option<&GpuRef>) -> Option<(usize, usize)> {
        let one =
            gpu_ref.and_then(|gpu_ref| self.line_for(gpu_ref)).map(|(_, line)| std::slice::from_ref(line));
        let lines = one.unwrap_or(&self.lines);
        known(lines.iter().map(|line| line.values.as_slice()))
    }

    /// Returns the line nearest to a value at a step.
    pub fn nearest(&self, step: usize, value: f32) -> Option<&Line> {
        let away = |line: &&Line| line.values.get(step).copied().flatten().map(|here| (here - value).abs());
        let having_value = self.lines.iter().filter(|line| away(line).is_some());
        having_value.min_by(|a, b| away(a).unwrap_or(f32::MAX).total_cmp(&away(b).unwrap_or(f32::MAX)))
    }

    /// Returns the line of a GPU.
    pub fn line_for(&self, gpu_ref: &GpuRef) -> Option<(usize, &Line)> {
        self.lines.iter().enumerate().find(|(_, line)| line.gpu_ref == *gpu_ref)
    }
}

/// Returns the lowest and the highest values of a GPU in the steps of the long-term history.
fn extremes(
    group: &NodeGroup,
    store: &TopicStore,
    gpu: &GpuEntry,
    metric: GraphMetric,
    window: &Window,
) -> (Series, Series) {
    let extreme = |extreme| {
        let points = group.long_values(store, gpu, metric, window, 0, extreme);
        points.into_iter().map(Point::value).collect()
    };
    (extreme(Extreme::Low), extreme(Extreme::High))
}

/// Returns the positions of the outliers among the GPUs of some nodes, and their deviation in %.
fn outliers(store: &TopicStore, groups: &[NodeGroup]) -> Vec<(usize, f32)> {
    let all = groups.iter().flat_map(|group| group.gpus.iter().map(move |gpu| (group, gpu)));
    store.comparison(|comparison| {
        let outlier = |(at, (group, gpu)): (usize, (&NodeGroup, &GpuEntry))| {
            let (node, gpu) = (group.node.position(), gpu.cell.position());
            comparison.outlier(node, gpu)?;
            Some((at, comparison.deviation(node, gpu).map_or(0.0, |away| away.percent as f32)))
        };
        all.enumerate().filter_map(outlier).take(MAX_OUTLIERS).collect()
    })
}

/// Returns the first and the last step with a value of any row.
fn known<'a>(rows: impl Iterator<Item = &'a [Option<f32>]>) -> Option<(usize, usize)> {
    let of_row =
        |row: &[Option<f32>]| row.iter().position(Option::is_some).zip(row.iter().rposition(Option::is_some));
    rows.filter_map(of_row).reduce(|(first, last), (from, to)| (first.min(from), last.max(to)))
}

/// Number of the last steps that may be in transit.
const IN_TRANSIT_STEPS: usize = 5;

fn newest<'a>(
    rows: impl Iterator<Item = &'a [Option<f32>]> + Clone,
    last: usize,
    is_over: bool,
) -> (usize, bool) {
    let has_value = |step: &usize| rows.clone().any(|row| row.get(*step).is_some_and(Option::is_some));
    let from = if is_over { 0 } else { last.saturating_sub(IN_TRANSIT_STEPS) };
    let step = (from..=last).rev().find(has_value);
    (step.unwrap_or(last), is_over && step.is_some_and(|step| step < last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_and_the_last_step_have_a_value() {
        let (one, other) = ([None, None, Some(1.0), None, None], [None, None, None, Some(1.0), None]);
        assert_eq!(known([one.as_slice(), &other].into_iter()), Some((2, 3)));
        assert_eq!(known([[None; 3].as_slice()].into_iter()), None, "a GPU that cannot be read");
        assert_eq!(known(std::iter::empty()), None);
    }

    #[test]
    fn the_newest_step_is_the_end_of_an_ended_job_but_not_of_a_silent_node() {
        let row = |having_value: usize| {
            (0..20).map(|step| (step < having_value).then_some(1.0)).collect::<Series>()
        };
        let having_value =
            |having_value: usize, is_over| newest([row(having_value).as_slice()].into_iter(), 19, is_over);
        assert_eq!(having_value(20, false), (19, false));
        assert_eq!(having_value(17, false), (16, false), "the last steps may be in transit");
        assert_eq!(having_value(3, false), (19, false), "a silent node has no newest value");
        assert_eq!(having_value(3, true), (2, true));
        assert_eq!(having_value(20, true), (19, false), "the range ends before the job did");
        assert_eq!(having_value(0, true), (19, false));
    }
}
