//! Losses of connections and disks, as resources.

use nodeglass_fleet::{ConnectionCounts, Fleet};
use nodeglass_protocol::{JobId, NodeName};
use serde::Serialize;
use utoipa::ToSchema;

/// Losses of the connections to a node since the relay began to watch it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ConnectionLosses {
    /// The node.
    pub node: String,
    /// The job in which the probe runs, if it runs beside the node's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// Number of attempts to start a probe, including the one that succeeded.
    pub attempts: u64,
    /// Number of lines of the probe that could not be read.
    pub unreadable_lines: u64,
    /// Number of samples that the probe took, and that neither arrived nor were recovered after an interruption. Samples
    /// of a probe that ended without a successor are not known.
    pub lost_samples: u64,
}

/// Number of records since the relay's start that could not be stored, because the disk failed or was too slow.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, ToSchema)]
pub struct UnstoredRecords {
    /// Parts of the history, of about a minute each, and last pictures of ended jobs.
    pub history: u64,
    /// Sums of what ended jobs used.
    pub jobs: u64,
    /// Entries of the audit log.
    pub audit: u64,
    /// Events of the recording.
    pub recording: u64,
}

/// All losses apart from frames for viewers, notices and remote write, which have counts of their own.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Losses {
    /// The connections to each node that is watched.
    pub connections: Vec<ConnectionLosses>,
    /// Number of records that could not be stored.
    pub unstored: UnstoredRecords,
}

impl ConnectionLosses {
    /// The connections of all probes of a fleet, by node.
    pub fn all(fleet: &Fleet) -> Vec<Self> {
        let of = |(node, job, counts): (&NodeName, Option<JobId>, ConnectionCounts)| Self {
            node: node.to_string(),
            job: job.map(|job| job.0),
            attempts: counts.attempts,
            unreadable_lines: counts.unreadable_lines,
            lost_samples: counts.lost_samples,
        };
        fleet.connection_counts().map(of).collect()
    }
}

impl UnstoredRecords {
    /// The number of each part, with its name in metrics.
    pub fn by_part(&self) -> [(&'static str, u64); 4] {
        [("history", self.history), ("jobs", self.jobs), ("audit", self.audit), ("recording", self.recording)]
    }
}
