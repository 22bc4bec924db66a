//! History as series on one grid of steps: minimum, mean and maximum of each.

use super::{Clock, Timestamp};
use nodeglass_protocol::range::{RangeHistory, RangeQuery, Summaries};
use nodeglass_protocol::{Cell, Field, GpuField, HostField};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// History of some metrics over a range of time. All series have the same steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct History {
    /// Start of the first step.
    pub start: Timestamp,
    /// Length of a step in s; it may be longer than requested, where only that is kept.
    pub step_s: u64,
    /// Number of steps.
    pub steps: u64,
    /// Start of the history that is kept, if there is any.
    pub kept_since: Option<Timestamp>,
    /// One series per metric and GPU or host that has a value in the range.
    pub series: Vec<Series>,
}

/// History of one metric of one GPU or host, a value per step; `null` for a step without a sample.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Series {
    /// The node.
    pub node: String,
    /// UUID of the GPU; `null` for the host.
    pub gpu: Option<String>,
    /// The metric, with its unit at its end: `util_pct`.
    pub metric: String,
    /// Mean values; of a bit mask, all bits that were set.
    pub mean: Vec<Option<u64>>,
    /// Lowest values; of a bit mask, the bits that were always set.
    pub min: Vec<Option<u64>>,
    /// Highest values; of a bit mask, all bits that were set.
    pub max: Vec<Option<u64>>,
}

/// The steps of all series.
#[derive(Clone, Copy, Debug)]
struct Grid {
    first: u64,
    steps: u64,
}

impl History {
    /// Converts the response to a query for these metrics, in their order.
    pub fn new(
        range: &RangeHistory,
        query: &RangeQuery,
        (gpu_fields, host_fields): (&[GpuField], &[HostField]),
        wall_ahead_ms: i64,
    ) -> Self {
        let (clock, step_ms) = (Clock { wall_ahead_ms }, range.step_ms.max(1));
        let first = query.from_ms / step_ms;
        let grid = Grid { first, steps: (query.to_ms / step_ms).saturating_sub(first) + 1 };
        let mut series = Vec::new();
        for node in &range.nodes {
            for gpu in &node.gpus {
                for (field, summaries) in gpu_fields.iter().zip(&gpu.fields) {
                    let gpu = Some(gpu.uuid.to_string());
                    series.extend(Series::new(node.node.to_string(), gpu, *field, summaries, grid));
                }
            }
            for (field, summaries) in host_fields.iter().zip(&node.host) {
                series.extend(Series::new(node.node.to_string(), None, *field, summaries, grid));
            }
        }
        Self {
            start: clock.timestamp(first.saturating_mul(step_ms)),
            step_s: step_ms.div_ceil(1_000),
            steps: grid.steps,
            kept_since: range.begins_ms.map(|at_ms| clock.timestamp(at_ms)),
            series,
        }
    }
}

impl Series {
    /// `None` if no step has a value.
    fn new<F: Field>(
        node: String,
        gpu: Option<String>,
        field: F,
        summaries: &Summaries,
        grid: Grid,
    ) -> Option<Self> {
        let value = |cell: Cell| cell.value().map(|steps| field.scale().value(u64::from(steps)));
        let empty = vec![None; usize::try_from(grid.steps).ok()?];
        let metric = field.name().to_owned();
        let mut series = Self { node, gpu, metric, mean: empty.clone(), min: empty.clone(), max: empty };
        let mut is_known = false;
        for (slot, summary) in summaries.since(grid.first) {
            let at = slot.checked_sub(grid.first).and_then(|at| usize::try_from(at).ok());
            let (Some(at), Some(summary)) = (at.filter(|at| *at < series.mean.len()), summary) else {
                continue;
            };
            series.mean[at] = value(summary.mean);
            series.min[at] = value(summary.min);
            series.max[at] = value(summary.max);
            is_known |= series.mean[at].is_some();
        }
        is_known.then_some(series)
    }
}
