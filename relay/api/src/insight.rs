//! Further conclusions about a running job, as resources.

use super::{Clock, Timestamp};
use nodeglass_protocol::insight::{self, BottleneckKind, EpochProgress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Progress of a job's program by a counter in its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// Unit of the counter as the log names it, masked: `epoch`, `step`, `%`; empty for a bar without a name.
    pub label: String,
    /// Number of units that are done. Within an epoch, if the number of epochs is known, it includes the part of the
    /// epoch: 2.25 in the third one.
    pub done: f64,
    /// Total number of units; `null` if the log does not state it.
    pub total: Option<f64>,
    /// The part that is done, in %; `null` if the log does not state the total.
    pub pct: Option<f64>,
    /// The epoch that runs; `null` if the log does not state how far it is.
    pub epoch: Option<EpochProgress>,
    /// Units per second; `null` until they can be measured.
    pub rate_per_s: Option<f64>,
    /// When `done` last grew.
    pub advanced_at: Timestamp,
    /// When all will be done at the earliest: the program's own estimate, or by the fastest part of the time observed.
    pub earliest_end_at: Option<Timestamp>,
    /// When all will be done at the latest: the program's own estimate, or by the slowest part of the time observed.
    pub latest_end_at: Option<Timestamp>,
    /// When the bar will be full at the earliest, if it may count only a part of the run, as one is drawn for each epoch; `pct`
    /// is then of this part, and `earliest_end_at` is `null`.
    #[serde(default)]
    pub part_earliest_end_at: Option<Timestamp>,
    /// When such a bar will be full at the latest.
    #[serde(default)]
    pub part_latest_end_at: Option<Timestamp>,
}

impl JobProgress {
    pub(super) fn new(progress: &insight::JobProgress, clock: Clock) -> Self {
        let (end, part_end) = (progress.end, progress.part_end);
        Self {
            label: progress.label.to_string(),
            done: progress.done,
            total: progress.total,
            pct: progress.ratio().map(|ratio| (1_000.0 * ratio).round() / 10.0),
            epoch: progress.epoch,
            rate_per_s: progress.rate_per_s,
            advanced_at: clock.timestamp(progress.advanced_at_ms),
            earliest_end_at: end.map(|end| clock.timestamp(end.earliest_at_ms)),
            latest_end_at: end.map(|end| clock.timestamp(end.latest_at_ms)),
            part_earliest_end_at: part_end.map(|end| clock.timestamp(end.earliest_at_ms)),
            part_latest_end_at: part_end.map(|end| clock.timestamp(end.latest_at_ms)),
        }
    }
}

/// The limit of the speed of a job's GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobBottleneck {
    /// The kind of limit.
    pub kind: BottleneckKind,
    /// The readings that show it: `SM activity 78 % · tensor cores 41 %`.
    pub evidence: String,
}

impl JobBottleneck {
    pub(super) fn new(bottleneck: &insight::Bottleneck) -> Self {
        Self { kind: bottleneck.kind, evidence: bottleneck.evidence.to_string() }
    }
}
