//! Conclusions of the relay about a running job, besides findings.

use crate::{JobId, Text};
use serde::{Deserialize, Serialize};

/// Conclusions about one running job.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobInsight {
    /// The job.
    pub job: JobId,
    /// Progress of its program, by the counters in its logs; `None` if they state none.
    #[serde(default)]
    pub progress: Option<JobProgress>,
    /// The limit of its GPUs' speed; `None` if there is no clear one.
    #[serde(default)]
    pub bottleneck: Option<Bottleneck>,
}

/// The limit of the speed of a job's GPUs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bottleneck {
    /// The kind of limit.
    pub kind: BottleneckKind,
    /// The readings that show it: `SM activity 78 % · tensor cores 41 %`.
    pub evidence: Text,
}

/// A resource that can limit the speed of GPUs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum BottleneckKind {
    /// The arithmetic of the GPUs: as it should be.
    Compute,
    /// The bandwidth of the GPUs' memory.
    MemoryBandwidth,
    /// Traffic between GPUs.
    Communication,
    /// Data that CPUs or disks provide.
    Input,
    /// The time between and within kernels that occupy little of a GPU.
    Latency,
}

/// Progress of a program by a counter in its log.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct JobProgress {
    /// Unit of the counter as the log names it, masked: `epoch`, `step`, `%`; empty for a bar without a name.
    pub label: Text,
    /// Number of units that are done. Within an epoch, if the number of epochs is known, it includes the part of the
    /// epoch: 2.25 in the third one.
    pub done: f64,
    /// Total number of units, greater than 1; `None` if the log does not state it.
    #[serde(default)]
    pub total: Option<f64>,
    /// The epoch that runs; `None` if the log does not state how far it is.
    #[serde(default)]
    pub epoch: Option<EpochProgress>,
    /// Units per second; `None` until they can be measured.
    pub rate_per_s: Option<f64>,
    /// When `done` last grew, by the relay's clock.
    pub advanced_at_ms: u64,
    /// When all will be done: by the program's own estimate, or by the measured rate. `None` until either is known.
    pub end: Option<ProgressEnd>,
    /// End of a bar that may count a part of the run, as one is drawn for each epoch; `end` is then `None`.
    #[serde(default)]
    pub part_end: Option<ProgressEnd>,
}

/// Progress within one epoch.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct EpochProgress {
    /// Its number, as the log states it.
    pub number: f64,
    /// Number of its steps that are done.
    pub done: f64,
    /// Total number of its steps.
    pub total: f64,
}

/// When a program will be done: the program's own estimate, or by the fastest and the slowest part of the time observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProgressEnd {
    /// The earliest time, by the relay's clock.
    pub earliest_at_ms: u64,
    /// The latest time, by the relay's clock.
    pub latest_at_ms: u64,
}

impl JobProgress {
    /// Returns the part of the program that is done, from 0 to 1; `None` if the log does not state the total.
    pub fn ratio(&self) -> Option<f64> {
        let total = self.total.filter(|total| *total > 0.0)?;
        Some((self.done / total).clamp(0.0, 1.0))
    }
}

impl EpochProgress {
    /// Returns the part of the epoch that is done, from 0 to 1.
    pub fn ratio(&self) -> f64 {
        if self.total > 0.0 { (self.done / self.total).clamp(0.0, 1.0) } else { 0.0 }
    }
}
