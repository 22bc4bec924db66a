//! Captures of a job's processes, as a part of a finding.

use super::Timestamp;
use nodeglass_protocol::Text;
use nodeglass_protocol::capture::{CaptureGroup, FindingCapture};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The places where the processes of a job stood when a finding began.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Capture {
    /// When it was captured.
    pub at: Timestamp,
    /// Processes that stood at the same place, most first.
    pub groups: Vec<ProcessGroup>,
    /// Number of processes in further groups.
    pub others: u32,
    /// Number of processes without any information.
    pub missing: u32,
    /// Limits of the capture, with their reasons.
    pub notes: Vec<String>,
    /// Files on the nodes that may explain more, such as dumps of NCCL's flight recorder.
    pub files: Vec<String>,
}

/// Processes that stood at the same place.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProcessGroup {
    /// The group in one line.
    pub summary: String,
    /// Number of processes.
    pub count: u32,
    /// Their ranks in short, such as `0-34, 36-63`; empty if unknown.
    pub ranks: String,
    /// Places of some of them.
    pub places: Vec<String>,
    /// The Python frame, or without one the kernel function and the system call in which they wait.
    pub frame: String,
    /// Innermost frame of the user's own code above it; `null` if unknown.
    pub caller: Option<String>,
    /// State, threads and connections of the first of them.
    pub details: Vec<String>,
    /// Python stack of the first of them, innermost frame first.
    pub stack: Vec<String>,
}

impl Capture {
    pub(super) fn new(capture: &FindingCapture) -> Self {
        Self {
            at: Timestamp::from_millis(capture.at_ms / 1_000 * 1_000),
            groups: capture.groups.iter().map(ProcessGroup::new).collect(),
            others: capture.others,
            missing: capture.missing,
            notes: texts(&capture.notes),
            files: texts(&capture.files),
        }
    }
}

impl ProcessGroup {
    fn new(group: &CaptureGroup) -> Self {
        Self {
            summary: group.line(),
            count: group.count,
            ranks: group.ranks.to_string(),
            places: texts(&group.places),
            frame: group.frame.to_string(),
            caller: (!group.caller.is_empty()).then(|| group.caller.to_string()),
            details: texts(&group.details),
            stack: texts(&group.stack),
        }
    }
}

fn texts(texts: &[Text]) -> Vec<String> {
    texts.iter().map(ToString::to_string).collect()
}
