//! Resource usage of probes, as resources.

use nodeglass_fleet::Fleet;
use nodeglass_protocol::probe::ProbeUsage;
use nodeglass_protocol::{JobId, NodeName};
use serde::Serialize;
use utoipa::ToSchema;

/// CPU and memory of a connected probe.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProbeStatus {
    /// Its node.
    pub node: String,
    /// The job in which it runs, if it runs beside the node's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<u32>,
    /// CPU time since its start, in ms.
    pub cpu_ms: u64,
    /// Memory in RAM, in bytes.
    pub rss_bytes: u64,
}

impl ProbeStatus {
    /// All connected probes of a fleet that have reported, by node.
    pub fn all(fleet: &Fleet) -> Vec<Self> {
        let of = |(node, job, usage): (&NodeName, Option<JobId>, ProbeUsage)| Self {
            node: node.to_string(),
            job: job.map(|job| job.0),
            cpu_ms: usage.cpu_ms,
            rss_bytes: usage.rss_bytes,
        };
        fleet.probe_usages().map(of).collect()
    }
}
