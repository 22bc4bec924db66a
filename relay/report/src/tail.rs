//! The end of a job: SLURM reports it some seconds later, when the job's GPUs are idle already.

use super::JobRecord;
use super::totals::{GpuTotals, NodeTotals};
use nodeglass_protocol::field::{Field, Row};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{NodePicture, Traces};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{GpuField, HostField};
use nodeglass_rules::run::ms_of;

impl JobRecord {
    /// Returns the final record of a run whose end no relay saw: its own sums, and the end that `stated` has.
    #[must_use]
    pub fn ended_as(mut self, stated: &Self) -> Self {
        let Job { state, ended, exit, .. } = stated.job.clone();
        let ended_ms = ended.map_or(0, ms_of);
        for finding in &mut self.findings {
            finding.ended_ms = finding.ended_ms.or(Some(ended_ms.max(finding.since_ms)));
        }
        let mut accounting = stated.accounting.clone();
        if let Some(accounting) = &mut accounting
            && self.job.start.zip(stated.job.start).is_some_and(|(own, stated)| own.abs_diff(stated) > 1)
        {
            // That of the part since the job was resized.
            accounting.elapsed_s = None;
        }
        let job = Job { state, ended, exit, ..self.job };
        Self { job, is_final: true, accounting, ..self }
    }
}

/// Adds what the history of a node has between two moments, in ms of the relay's clock. `sums_of` returns the sums
/// of the GPU at a position, if it is the job's.
pub(super) fn add_history(
    totals: &mut NodeTotals,
    picture: &NodePicture,
    (from_ms, to_ms): (u64, u64),
    sums_of: impl Fn(&mut Vec<GpuTotals>, usize) -> Option<&mut GpuTotals>,
) {
    let Some(history) = &picture.history else { return };
    for host in known_rows::<HostField>(&history.host, from_ms, to_ms) {
        totals.add(&host, None, Trace::STEP_MS);
    }
    for (position, traces) in history.gpus.iter().enumerate() {
        if let Some(sums) = sums_of(&mut totals.gpus, position) {
            for row in known_rows::<GpuField>(traces, from_ms, to_ms) {
                sums.add(&row, false, Trace::STEP_MS);
            }
        }
    }
}

/// The slots within a time that have any value.
fn known_rows<F: Field>(
    traces: &Traces<F>,
    from_ms: u64,
    to_ms: u64,
) -> impl Iterator<Item = Row<F>> + use<F> {
    let first = from_ms.div_ceil(Trace::STEP_MS);
    let count = (to_ms / Trace::STEP_MS).saturating_sub(first).min(Trace::CAPACITY as u64);
    let mut rows = vec![(Row::default(), false); usize::try_from(count).unwrap_or(0)];
    for field in F::HISTORY {
        let points = traces.get(*field).into_iter().flat_map(|trace| trace.since(first * Trace::STEP_MS));
        for (at_ms, cell) in points {
            let slot =
                (at_ms / Trace::STEP_MS).checked_sub(first).and_then(|slot| usize::try_from(slot).ok());
            if let (Some((row, is_known)), Some(cell)) = (slot.and_then(|slot| rows.get_mut(slot)), cell) {
                row.set(*field, cell);
                *is_known = true;
            }
        }
    }
    rows.into_iter().filter(|(_, is_known)| *is_known).map(|(row, _)| row)
}
