//! Applies parts of a probe's lines to the entries of a picture.

use nodeglass_protocol::field::Row;
use nodeglass_protocol::picture::{GpuPicture, JobUsagePicture};
use nodeglass_protocol::probe::GpuGap;
use nodeglass_protocol::probe::delta::{JobUsageDelta, RowsDelta};
use nodeglass_protocol::{GpuField, JobId};
use std::collections::HashMap;

/// Maximum number of process list gaps per GPU.
const MAX_GAPS: usize = 4;

/// Sets the process list gaps of the GPUs at these positions; returns whether they changed.
pub(super) fn apply_gaps(gpus: &mut [GpuPicture], sampled: &[usize], gaps: Vec<GpuGap>) -> bool {
    let mut by_gpu: HashMap<_, Vec<_>> = HashMap::new();
    for GpuGap { gpu, gap } in gaps {
        let of_it = by_gpu.entry(gpu).or_default();
        // One reason per NVML list, and a count.
        if of_it.len() < MAX_GAPS {
            of_it.push(gap);
        }
    }
    let mut changed = false;
    for position in sampled {
        let Some(gpu) = gpus.get_mut(*position) else { continue };
        let gaps = by_gpu.remove(&gpu.facts.uuid).unwrap_or_default();
        changed |= gpu.gaps != gaps;
        gpu.gaps = gaps;
    }
    changed
}

/// Sets the faults of GPUs, and clears others of those at the positions `sampled` as a whole; returns whether they
/// changed.
pub(super) fn apply_faults(gpus: &mut [GpuPicture], delta: &RowsDelta<GpuField>, sampled: &[usize]) -> bool {
    let before: Vec<_> =
        sampled.iter().map(|position| gpus.get_mut(*position).and_then(|gpu| gpu.fault.take())).collect();
    let mut changed = false;
    for (row, fault) in &delta.faults {
        if let Some(gpu) = gpus.get_mut(*row as usize).filter(|gpu| gpu.fault != *fault) {
            gpu.fault.clone_from(fault);
            changed = true;
        }
    }
    if sampled.is_empty() {
        return changed;
    }
    let after = sampled.iter().map(|position| gpus.get(*position).and_then(|gpu| gpu.fault.clone()));
    !after.eq(before)
}

/// Sets the usage of jobs; returns whether the set of jobs changed.
pub(super) fn apply_job_usage(
    usages: &mut Vec<JobUsagePicture>,
    delta: &[JobUsageDelta],
    is_whole: bool,
) -> bool {
    let before = std::mem::take(usages);
    // Probes list jobs by id; a list in another order is invalid and replaces all.
    let known = |job: JobId| before.binary_search_by_key(&job, |usage| usage.job).ok().filter(|_| !is_whole);
    usages.extend(delta.iter().map(|JobUsageDelta { job, now }| {
        let mut row = known(*job).map_or_else(Row::default, |index| before[index].row.clone());
        now.apply(&mut row);
        JobUsagePicture { job: *job, row }
    }));
    !before.iter().map(|usage| usage.job).eq(usages.iter().map(|usage| usage.job))
}
