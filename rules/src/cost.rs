//! Cost of a finding in GPU-hours.

use crate::text;
use nodeglass_protocol::finding::{FindingKind, FindingTrait};

/// Returns what a finding has cost: `≥ 1.6 GPU-h idle`. `None` below a twentieth of a GPU-hour. `is_least` if it may have
/// begun earlier than is known.
pub fn text(kind: FindingKind, gpu_hours: f64, is_least: bool) -> Option<String> {
    let least = if is_least { "≥ " } else { "" };
    let label = if kind.is(FindingTrait::Lost) { "lost" } else { "idle" };
    (gpu_hours >= 0.05).then(|| format!("{least}{} GPU-h {label}", text::tenths(gpu_hours)))
}
