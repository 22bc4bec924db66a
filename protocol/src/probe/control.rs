//! Control lines that a relay sends to a probe.

use crate::JobId;
use crate::request::ProbeRequest;
use serde::{Deserialize, Serialize};

fn is_zero(number: &u32) -> bool {
    *number == 0
}

/// A control line to the probe. Every line counts as a ping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Control {
    /// Keep-alive.
    Ping,
    /// Sets the interval; samples are aligned to its multiples by `CLOCK_REALTIME`, plus the phase.
    Interval {
        /// Interval in ms, 500 to 60,000.
        ms: u32,
        /// Phase in ms, less than `ms`.
        #[serde(default, skip_serializing_if = "is_zero")]
        phase_ms: u32,
    },
    /// Requests all samples after a number of a stream as `replay` samples, oldest first.
    Backfill {
        /// [`super::Hello::stream`] of the samples.
        stream: u64,
        /// Last sequence number received.
        after_seq: u64,
    },
    /// A request; answered by [`super::ProbeLine::Response`] with the same number.
    Request {
        /// Number of the request.
        number: u32,
        /// The request.
        request: ProbeRequest,
    },
    /// Exit now.
    Stop,
    /// Sets the jobs whose spool files are read.
    Notes {
        /// Jobs on the node.
        jobs: Vec<JobId>,
    },
}
