//! Findings: what the relay concludes from readings, each with its evidence, meaning and advice.

mod catalogue;

use crate::capture::FindingCapture;
use crate::{GpuField, GpuUuid, JobId, LongText, NodeName, Text};
pub use catalogue::{FindingKind, FindingTrait};
use serde::{Deserialize, Serialize};
use std::cmp::{Ordering, Reverse};

/// Maximum number of findings that a relay keeps: active ones, and those that ended within the last hour.
pub const MAX_FINDINGS: usize = 512;
/// Maximum number of lines of evidence of a finding.
pub const MAX_EVIDENCE: usize = 8;

/// Severity of a finding, least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum FindingSeverity {
    /// Information; no work is lost.
    Info,
    /// Work goes on, but slower or at risk, or GPUs are wasted.
    Warning,
    /// Work stands still, or results may be wrong.
    Error,
}

impl FindingSeverity {
    /// Returns its name in the API and in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One finding.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReportFinding))]
pub struct Finding {
    /// Kind and subject, the same for as long as it lasts: `straggler/17/GPU-2f…`.
    pub key: Text,
    /// Kind.
    pub kind: FindingKind,
    /// Severity.
    pub severity: FindingSeverity,
    /// Confidence in %.
    pub confidence_pct: u8,
    /// Jobs that it affects; empty for a machine without a job.
    pub jobs: Vec<JobId>,
    /// Nodes on which it was found.
    pub nodes: Vec<NodeName>,
    /// GPUs that it is about.
    pub gpus: Vec<FindingGpu>,
    /// The problem and its place, one sentence without a full stop.
    pub title: LongText,
    /// The problem in a few words: `GPU 3 too hot`.
    pub reason: Text,
    /// The numbers that show it, a statement each.
    pub evidence: Vec<Text>,
    /// Advice on how to solve it.
    pub advice: LongText,
    /// When it began, in ms since 1970 by the login node's clock.
    pub since_ms: u64,
    /// Whether it may have begun earlier, before it could be seen.
    pub or_earlier: bool,
    /// When it was found, in ms since 1970.
    pub found_ms: u64,
    /// When it ended, in ms since 1970; `None` while it lasts.
    pub ended_ms: Option<u64>,
    /// Until when it is silenced, in ms since 1970; `None` if it is not.
    #[serde(default)]
    pub silenced_until_ms: Option<u64>,
    /// Number of GPUs that do no useful work because of it.
    pub wasted_gpus: u32,
    /// The places of the job's processes when it began, if captured; never sent to guests.
    #[serde(default)]
    pub capture: Option<Box<FindingCapture>>,
    /// GPU-time lost to it while `wasted_gpus` was another number, or that its detector measures instead; `None` if
    /// `wasted_gpus` and the time since its start state it.
    #[serde(default)]
    pub wasted_before: Option<WastedBefore>,
}

/// GPU-time lost to a finding up to a moment; from then on, `wasted_gpus` counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(as = ReportWastedBefore))]
pub struct WastedBefore {
    /// GPU-time in ms.
    pub gpu_ms: u64,
    /// The moment, in ms since 1970. It is in the future while the detector measures the loss itself, or while the finding is
    /// not seen and may be over.
    pub until_ms: u64,
}

/// GPUs that do no useful work because of a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waste {
    /// Their number.
    pub gpus: u32,
    /// Since when it is this number, in ms since 1970.
    pub since_ms: u64,
    /// GPU-time in ms that was lost before that.
    pub before_gpu_ms: u64,
}

impl Waste {
    /// Returns the GPU-time lost by `until_ms`, in ms since 1970, in ms.
    pub fn gpu_ms(&self, until_ms: u64) -> u64 {
        let since = u64::from(self.gpus).saturating_mul(until_ms.saturating_sub(self.since_ms));
        self.before_gpu_ms.saturating_add(since)
    }

    /// Returns the GPU-hours lost by `until_ms`, in ms since 1970.
    pub fn gpu_hours(&self, until_ms: u64) -> f64 {
        self.gpu_ms(until_ms) as f64 / 3_600_000.0
    }
}

/// A time in which some findings are not reported: listed as silenced, and never a notice.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Silence {
    /// The kind that is silenced; all kinds if absent.
    #[serde(default)]
    pub kind: Option<FindingKind>,
    /// The job, array or heterogeneous job that is silenced; everything if absent.
    #[serde(default)]
    pub job: Option<JobId>,
    /// When it ends, in ms since 1970.
    pub until_ms: u64,
}

/// Silences findings for a time from now.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(deny_unknown_fields)]
pub struct SilenceRequest {
    /// See [`Silence::kind`]; kind or job must be present.
    #[serde(default)]
    pub kind: Option<FindingKind>,
    /// See [`Silence::job`].
    #[serde(default)]
    pub job: Option<JobId>,
    /// For how long, in s; 0 ends the silence of this kind and job.
    pub for_s: u32,
}

impl Silence {
    /// Maximum number of silences.
    pub const MAX: usize = 64;
    /// Longest time of a silence, in s: thirty days.
    pub const MAX_S: u32 = 30 * 86_400;

    /// Returns whether it silences a finding. A finding that also affects other jobs is not silenced. `whole` returns
    /// the array or heterogeneous job that a job is a part of.
    pub fn covers(&self, finding: &Finding, whole: impl Fn(JobId) -> Option<JobId>) -> bool {
        let is_of = |affected: JobId, job| affected == job || whole(affected) == Some(job);
        let is_of_job =
            |job| !finding.jobs.is_empty() && finding.jobs.iter().all(|affected| is_of(*affected, job));
        self.kind.is_none_or(|kind| kind == finding.kind) && self.job.is_none_or(is_of_job)
    }
}

/// A GPU that a finding is about.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct FindingGpu {
    /// Its node.
    pub node: NodeName,
    /// Its UUID.
    pub uuid: GpuUuid,
    /// The metric whose graph shows it, by name in the catalogue.
    pub metric: Option<Text>,
}

/// Compares findings for display: active ones first, errors of what runs before failures of ended jobs, these before
/// warnings, and remarks last; then by severity and by the number of wasted GPUs, and failures from the latest on.
pub fn order(a: &Finding, b: &Finding) -> Ordering {
    let rank = |finding: &Finding| {
        let is_failure = finding.kind == FindingKind::Failed;
        let is_error = finding.severity == FindingSeverity::Error;
        (
            !finding.is_active(),
            finding.severity == FindingSeverity::Info,
            is_failure || !is_error,
            !is_failure,
            Reverse(finding.severity),
            Reverse(finding.wasted_gpus),
            Reverse(finding.ended_ms),
            if is_failure { u64::MAX - finding.since_ms } else { finding.since_ms },
        )
    };
    rank(a).cmp(&rank(b)).then_with(|| a.key.cmp(&b.key))
}

impl Finding {
    /// Returns whether it still lasts.
    pub fn is_active(&self) -> bool {
        self.ended_ms.is_none()
    }

    /// Returns the GPUs that do no useful work because of it.
    pub fn waste(&self) -> Waste {
        let (since_ms, before_gpu_ms) =
            self.wasted_before.map_or((self.since_ms, 0), |before| (before.until_ms, before.gpu_ms));
        Waste { gpus: self.wasted_gpus, since_ms, before_gpu_ms }
    }

    /// Returns the GPU-hours lost to it by `now_ms`, in ms since 1970.
    pub fn wasted_gpu_hours(&self, now_ms: u64) -> f64 {
        self.waste().gpu_hours(self.ended_ms.unwrap_or(now_ms))
    }

    /// Removes what was captured, and the advice that follows from it: stacks, arguments and paths of processes are for the
    /// owner.
    #[must_use]
    pub fn without_capture(mut self) -> Self {
        if self.capture.take().is_some() {
            self.advice = self.kind.advice().into();
        }
        self
    }
}

impl FindingGpu {
    /// A GPU whose graph of `field` shows the finding.
    pub fn new(node: &NodeName, uuid: &GpuUuid, field: Option<GpuField>) -> Self {
        use crate::field::Field as _;
        let metric = field.map(|field| Text::new(field.metric().name));
        Self { node: node.clone(), uuid: uuid.clone(), metric }
    }
}
