//! A fault of a node across jobs as a row of a table.

use crate::domain::severity::Severity;
use crate::domain::text::{self, ABSENT};
use nodeglass_protocol::report::NodeFault;

/// The cells of a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FaultRow {
    /// Severity.
    pub severity: Severity,
    /// The latest title.
    pub title: String,
    /// The GPU; of the node as a whole, a dash.
    pub gpu: String,
    /// Number of findings.
    pub times: String,
    /// Number of jobs that it affected.
    pub jobs: String,
    /// When it began first.
    pub first: String,
    /// When it was last seen.
    pub last: String,
    /// For how long it lasted in all; of an event, a dash.
    pub lasted: String,
}

/// Returns the cells of a fault. `time` formats a time in s since 1970.
pub fn row(fault: &NodeFault, time: impl Fn(i64) -> String) -> FaultRow {
    let clock = |at_ms: u64| time((at_ms / 1_000).cast_signed());
    FaultRow {
        severity: fault.severity.into(),
        title: fault.title.to_string(),
        gpu: fault.gpu.map_or_else(|| ABSENT.to_owned(), |gpu| format!("GPU {gpu}")),
        times: text::grouped(fault.times.into()),
        jobs: text::grouped(fault.jobs.into()),
        first: clock(fault.first_ms),
        last: if fault.is_active { "now".to_owned() } else { clock(fault.last_ms) },
        lasted: if fault.kind.is_event() { ABSENT.to_owned() } else { text::span(fault.lasted_s) },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::NodeName;
    use nodeglass_protocol::finding::{FindingKind, FindingSeverity};

    #[test]
    fn a_fault_that_lasts_ends_now_and_an_event_has_no_length() {
        let hot = NodeFault {
            node: NodeName::new("n1").unwrap(),
            gpu: Some(3),
            kind: FindingKind::Thermal,
            severity: FindingSeverity::Warning,
            title: "n1 GPU 3 is too hot".into(),
            times: 1_200,
            jobs: 2,
            first_ms: 60_000,
            last_ms: 720_000,
            lasted_s: 660,
            is_active: true,
        };
        let cells = |fault: &NodeFault| {
            let FaultRow { gpu, times, first, last, lasted, .. } = row(fault, |at_s| format!("{at_s} s"));
            [gpu, times, first, last, lasted]
        };
        assert_eq!(cells(&hot), ["GPU 3", "1,200", "60 s", "now", "11 min"]);
        let xid = NodeFault { gpu: None, kind: FindingKind::Xid, is_active: false, ..hot };
        assert_eq!(cells(&xid), [ABSENT, "1,200", "60 s", "720 s", ABSENT]);
    }
}
