//! Passes the samples that a probe kept while no relay read them to everything that compares or sums readings.

use super::node::Node;
use nodeglass_findings::Findings;
use nodeglass_history::LongHistory;
use nodeglass_report::JobReports;

/// Enters backfilled samples of a node into the long-term history, the sums of its jobs, and what findings compare.
pub fn record(history: &mut LongHistory, reports: &mut JobReports, findings: &mut Findings, node: &mut Node) {
    let samples = node.take_late_samples();
    if !samples.is_empty() {
        history.backfill(node.picture(), &samples);
        reports.record_late(node.picture(), &samples);
        findings.backfill(node.picture(), &samples);
    }
}
