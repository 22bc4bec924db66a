//! What is known of a running job besides findings, as resources.

use super::{Clock, Timestamp};
use nodeglass_protocol::insight::{self, BottleneckKind, EpochProgress};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How far a job's program is by a counter in its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobProgress {
    /// What is counted, as the log names it, masked: `epoch`, `step`, `%`; empty for a bar without a name.
    pub label: String,
    /// How many are done. Within an epoch whose number of epochs is known, epochs with their parts: 2.25 in the third one.
    pub done: f64,
    /// Of how many; `null` if the log does not state it.
    pub total: Option<f64>,
    /// How much is done, in %; `null` if the log does not state how much there is.
    pub pct: Option<f64>,
    /// The epoch that runs; `null` if the log does not state how far it is.
    pub epoch: Option<EpochProgress>,
    /// How many are done per second; `null` until it can be measured.
    pub rate_per_s: Option<f64>,
    /// When `done` last grew.
    pub advanced_at: Timestamp,
    /// When all will be done at the earliest: the program's own estimate, or by the fastest part of the time observed.
    pub earliest_end_at: Option<Timestamp>,
    /// When all will be done at the latest: the program's own estimate, or by the slowest part of the time observed.
    pub latest_end_at: Option<Timestamp>,
}

impl JobProgress {
    pub(super) fn new(progress: &insight::JobProgress, clock: Clock) -> Self {
        let end = progress.end;
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
        }
    }
}

/// What limits the speed of a job's GPUs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct JobBottleneck {
    /// What it is.
    pub kind: BottleneckKind,
    /// The readings that show it: `SM activity 78 % · tensor cores 41 %`.
    pub evidence: String,
}

impl JobBottleneck {
    pub(super) fn new(bottleneck: &insight::Bottleneck) -> Self {
        Self { kind: bottleneck.kind, evidence: bottleneck.evidence.to_string() }
    }
}
