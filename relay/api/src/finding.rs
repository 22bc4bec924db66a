//! A finding as a resource.

use super::Timestamp;
use super::capture::Capture;
use nodeglass_protocol::finding::{self, FindingGpu, FindingKind, FindingSeverity};
use nodeglass_protocol::{GpuUuid, JobId, NodeName, Text};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Milliseconds of an hour.
const HOUR_MS: f64 = 3_600_000.0;

/// A conclusion of the relay from readings, with evidence, meaning and advice.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Finding {
    /// Kind and subject, the same for as long as it lasts.
    pub key: String,
    /// Kind.
    pub kind: FindingKind,
    /// Severity.
    pub severity: FindingSeverity,
    /// Whether it is active; ended findings are listed for an hour.
    pub is_active: bool,
    /// Confidence in %.
    pub confidence_pct: u8,
    /// Numeric ids of the jobs that it affects; empty for a machine without a job.
    pub jobs: Vec<u32>,
    /// Names of the nodes on which it was found.
    pub nodes: Vec<String>,
    /// GPUs that it is about.
    pub gpus: Vec<AffectedGpu>,
    /// The problem and its place, one sentence without a full stop.
    pub title: String,
    /// The problem in a few words.
    pub reason: String,
    /// The numbers that show it.
    pub evidence: Vec<String>,
    /// Usual meaning.
    pub meaning: String,
    /// Advice on how to solve it.
    pub advice: String,
    /// When it began.
    pub since: Timestamp,
    /// Whether it may have begun earlier, before it could be seen.
    pub or_earlier: bool,
    /// When it was found.
    pub found_at: Timestamp,
    /// When it ended; `null` while it lasts.
    pub ended_at: Option<Timestamp>,
    /// Until when it is silenced; `null` if it is not.
    pub silenced_until: Option<Timestamp>,
    /// Number of GPUs that do no useful work because of it.
    pub wasted_gpus: u32,
    /// GPU-time lost to it while `wasted_gpus` was another number, or that its detector measures instead; `null` if
    /// `wasted_gpus` and the time since its start state it.
    #[serde(default)]
    pub wasted_before: Option<WastedBefore>,
    /// The places of the job's processes when it began; `null` if not captured, and for guests.
    pub capture: Option<Capture>,
}

/// GPU-time lost to a finding up to a moment; from then on, `wasted_gpus` counts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct WastedBefore {
    /// GPU-hours.
    pub gpu_hours: f64,
    /// The moment. It is in the future while the detector measures the loss itself, or while the finding is not seen and may
    /// be over.
    pub until: Timestamp,
}

/// A GPU that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AffectedGpu {
    /// Name of its node.
    pub node: String,
    /// Its UUID.
    pub uuid: String,
    /// The metric whose history shows it.
    pub metric: Option<String>,
}

impl Finding {
    pub(super) fn new(finding: &nodeglass_protocol::finding::Finding) -> Self {
        let gpus = finding.gpus.iter().map(|gpu| AffectedGpu {
            node: gpu.node.to_string(),
            uuid: gpu.uuid.to_string(),
            metric: gpu.metric.as_ref().map(ToString::to_string),
        });
        Self {
            key: finding.key.to_string(),
            kind: finding.kind,
            severity: finding.severity,
            is_active: finding.is_active(),
            confidence_pct: finding.confidence_pct,
            jobs: finding.jobs.iter().map(|job| job.0).collect(),
            nodes: finding.nodes.iter().map(ToString::to_string).collect(),
            gpus: gpus.collect(),
            title: finding.title.to_string(),
            reason: finding.reason.to_string(),
            evidence: finding.evidence.iter().map(ToString::to_string).collect(),
            meaning: finding.kind.meaning().to_owned(),
            advice: finding.advice.to_string(),
            since: Timestamp::from_millis(finding.since_ms),
            or_earlier: finding.or_earlier,
            found_at: Timestamp::from_millis(finding.found_ms),
            ended_at: finding.ended_ms.map(Timestamp::from_millis),
            silenced_until: finding.silenced_until_ms.map(Timestamp::from_millis),
            wasted_gpus: finding.wasted_gpus,
            wasted_before: finding.wasted_before.map(|before| WastedBefore {
                gpu_hours: before.gpu_ms as f64 / HOUR_MS,
                until: Timestamp::from_millis(before.until_ms),
            }),
            capture: finding.capture.as_deref().map(Capture::new),
        }
    }

    /// The finding as the page receives it, without its capture: what the rules of page and terminal are about.
    pub fn to_protocol(&self) -> finding::Finding {
        let node = |name: &String| NodeName::new(name.as_str()).ok();
        let gpus = self.gpus.iter().filter_map(|gpu| {
            let (node, uuid) = (node(&gpu.node)?, GpuUuid::new(gpu.uuid.as_str()));
            Some(FindingGpu { node, uuid, metric: gpu.metric.as_deref().map(Text::new) })
        });
        finding::Finding {
            key: self.key.as_str().into(),
            kind: self.kind,
            severity: self.severity,
            confidence_pct: self.confidence_pct,
            jobs: self.jobs.iter().copied().map(JobId).collect(),
            nodes: self.nodes.iter().filter_map(node).collect(),
            gpus: gpus.collect(),
            title: self.title.as_str().into(),
            reason: self.reason.as_str().into(),
            evidence: self.evidence.iter().map(|line| Text::new(line.as_str())).collect(),
            advice: self.advice.as_str().into(),
            since_ms: self.since.as_millis(),
            or_earlier: self.or_earlier,
            found_ms: self.found_at.as_millis(),
            ended_ms: self.ended_at.map(Timestamp::as_millis),
            silenced_until_ms: self.silenced_until.map(Timestamp::as_millis),
            wasted_gpus: self.wasted_gpus,
            capture: None,
            wasted_before: self.wasted_before.as_ref().map(|before| finding::WastedBefore {
                gpu_ms: (before.gpu_hours * HOUR_MS).round() as u64,
                until_ms: before.until.as_millis(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_finding_read_back_says_the_same() {
        let wasted_before = Some(finding::WastedBefore { gpu_ms: 12_345_678, until_ms: 90_000 });
        let finding =
            finding::Finding { wasted_gpus: 3, wasted_before, ..crate::fixtures::finding("thermal/17") };
        assert_eq!(Finding::new(&finding).to_protocol(), finding);
    }
}
