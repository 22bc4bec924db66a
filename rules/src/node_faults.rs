//! Findings that a node or its hardware causes, and not what a job does.

use nodeglass_protocol::finding::FindingKind;

/// Returns whether a finding is a fault of its nodes. `is_error` is its severity: most Xids are errors of programs, which
/// are warnings.
pub fn is_node_fault(kind: FindingKind, is_error: bool) -> bool {
    match kind {
        FindingKind::GpuLost
        | FindingKind::DriverHang
        | FindingKind::NoGpu
        | FindingKind::NodeUnreachable
        | FindingKind::MemoryErrors
        | FindingKind::Thermal
        | FindingKind::PowerBrake
        | FindingKind::Slowdown
        | FindingKind::NvlinkDown
        | FindingKind::PcieNarrow
        | FindingKind::Straggler
        | FindingKind::SlowerThanModel
        | FindingKind::ClockSkew => true,
        FindingKind::Xid => is_error,
        _ => false,
    }
}
