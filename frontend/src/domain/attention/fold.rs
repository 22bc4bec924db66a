//! Folds findings that say the same: a slow GPU and why its clock is lowered are one line of the list.

use super::{MAY_WAIT, Since};
use nodeglass_protocol::finding::{self, Finding, FindingKind};
use nodeglass_protocol::{GpuUuid, JobId};

/// Kinds about a lowered clock, which explain a slow GPU.
const LOWERED_CLOCK: [FindingKind; 3] =
    [FindingKind::Thermal, FindingKind::PowerBrake, FindingKind::Slowdown];

/// A finding that is listed, and those that it stands for.
#[derive(Debug)]
pub struct Folded<'a> {
    /// The finding.
    pub finding: &'a Finding,
    /// The findings that are not listed because of it.
    pub others: Vec<&'a Finding>,
}

impl<'a> Folded<'a> {
    /// A finding that stands for itself.
    pub fn alone(finding: &'a Finding) -> Self {
        Self { finding, others: Vec::new() }
    }

    /// Returns the earliest start of all of them: that of a lowered clock is read from a longer history.
    pub fn since(&self) -> Since {
        let all = self.others.iter().copied().chain([self.finding]);
        let first = all.min_by_key(|finding| finding.since_ms).unwrap_or(self.finding);
        Since { at_ms: first.since_ms, or_earlier: first.or_earlier }
    }

    /// Returns the evidence of the finding, and what the slow GPUs that it explains cost their job.
    pub fn evidence(&self) -> Vec<&'a str> {
        let own = self.finding.evidence.iter().map(|line| line.as_str());
        let slow = self.others.iter().filter(|other| other.kind == FindingKind::Straggler);
        // The last line of a slow GPU is its cost, and names the GPUs that may wait: only the highest is kept.
        let worst = slow.min_by(|a, b| finding::order(a, b));
        match worst.and_then(|slow| slow.evidence.last()) {
            Some(cost) => own.filter(|line| !line.ends_with(MAY_WAIT)).chain([cost.as_str()]).collect(),
            None => own.collect(),
        }
    }
}

/// Folds findings of one state, such as all that are active or all that are silenced.
pub fn fold(findings: Vec<&Finding>) -> Vec<Folded<'_>> {
    let (slow, rest): (Vec<_>, Vec<_>) =
        findings.into_iter().partition(|finding| finding.kind == FindingKind::Straggler);
    let (causes, rest): (Vec<_>, Vec<_>) =
        rest.into_iter().partition(|finding| LOWERED_CLOCK.contains(&finding.kind));
    let mut slow: Vec<Folded<'_>> = slow.into_iter().map(Folded::alone).collect();
    // The title of a slow GPU states its cause, and its evidence the temperature.
    let mut listed: Vec<Folded<'_>> = Vec::new();
    for cause in causes {
        if is_stated_by(cause, &slow) {
            let about = slow.iter_mut().filter(|one| shares_gpu(one.finding, cause));
            about.for_each(|one| one.others.push(cause));
        } else {
            listed.push(Folded::alone(cause));
        }
    }
    let mut alone = Vec::new();
    // A cause with further GPUs says more than that some of them are slow.
    for one in slow {
        let cause = listed.iter_mut().find(|cause| has_all_gpus(cause.finding, one.finding));
        match cause.filter(|_| one.others.is_empty()) {
            Some(cause) => cause.others.push(one.finding),
            None => alone.push(one),
        }
    }
    listed.into_iter().chain(alone).chain(rest.into_iter().map(Folded::alone)).collect()
}

/// Returns whether slow GPUs are all of those whose clock is lowered, in all jobs that this affects.
fn is_stated_by(cause: &Finding, slow: &[Folded<'_>]) -> bool {
    let slow = || slow.iter().map(|one| one.finding).filter(|one| one.severity >= cause.severity);
    let is_slow = |uuid: &GpuUuid| slow().any(|one| one.gpus.iter().any(|gpu| gpu.uuid == *uuid));
    let is_affected = |job: &JobId| slow().any(|one| one.jobs.contains(job) && shares_gpu(one, cause));
    !cause.gpus.is_empty()
        && cause.gpus.iter().all(|gpu| is_slow(&gpu.uuid))
        && cause.jobs.iter().all(is_affected)
}

fn shares_gpu(one: &Finding, other: &Finding) -> bool {
    one.gpus.iter().any(|gpu| other.gpus.iter().any(|known| known.uuid == gpu.uuid))
}

fn has_all_gpus(one: &Finding, other: &Finding) -> bool {
    other.gpus.iter().all(|gpu| one.gpus.iter().any(|known| known.uuid == gpu.uuid))
}
