//! Fixtures for unit tests: a finding of which a test changes what it is about.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking, and so do its parts")]

use nodeglass_protocol::finding::{Finding, FindingKind, FindingSeverity};
use nodeglass_protocol::{JobId, NodeName};

/// A warning about a hot GPU of job 17.
pub fn finding(key: &str) -> Finding {
    Finding {
        key: key.into(),
        kind: FindingKind::Thermal,
        severity: FindingSeverity::Warning,
        confidence_pct: 95,
        jobs: vec![JobId(17)],
        nodes: vec![NodeName::new("n1").unwrap()],
        gpus: Vec::new(),
        title: "Rank 3 (n1 GPU 3) is too hot".into(),
        reason: "GPU 3 too hot".into(),
        evidence: vec!["87 °C".into()],
        advice: "Report it to the administrators".into(),
        since_ms: 60_000,
        or_earlier: false,
        found_ms: 80_000,
        ended_ms: None,
        silenced_until_ms: None,
        wasted_gpus: 0,
        capture: None,
        wasted_before: None,
    }
}
