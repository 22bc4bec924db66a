//! Whether a GPU still belongs to a job. SLURM's list is up to a minute old, and older while SLURM does not respond: meanwhile
//! the job may have ended, and the next job on the same GPU may be another user's.

use super::Visibility;
use nodeglass_fleet::Fleet;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{JobsHealth, NodePicture};
use nodeglass_protocol::{GpuUuid, NodeName};

/// Age of SLURM's list, in ms, up to which it is trusted while SLURM does not respond, if nothing on the node contradicts it.
const MAX_AGE_MS: u64 = 90_000;

impl Visibility {
    /// Returns whether a finding is made from the time for which it is certain that its GPUs, or its nodes, were used by its jobs.
    pub(super) fn is_certain(&self, finding: &Finding, fleet: &Fleet) -> bool {
        if !self.is_of_jobs() || finding.jobs.is_empty() {
            return true;
        }
        let jobs: Vec<&Job> = fleet.jobs().iter().filter(|job| finding.jobs.contains(&job.id)).collect();
        let ended_ms =
            finding.ended_ms.map_or(u64::MAX, |ended_ms| fleet.relay_ms((ended_ms / 1_000).cast_signed()));
        let is_within = |node: &NodeName, gpu: Option<&GpuUuid>| {
            fleet.node(node).is_none_or(|raw| ended_ms <= Self::certain_until(fleet, raw, gpu, &jobs))
        };
        match finding.gpus.as_slice() {
            [] => finding.nodes.iter().all(|node| is_within(node, None)),
            gpus => gpus.iter().all(|gpu| is_within(&gpu.node, Some(&gpu.uuid))),
        }
    }

    /// Returns the last moment, in ms of the relay's clock, for which it is certain that the node, or one of its GPUs, was used by
    /// some of `jobs`, which are in scope; `u64::MAX` if they still run there. A job runs where the node lists its usage, which
    /// it reads from the job's cgroup. Otherwise SLURM's list states it, unless that is too old, or a job or user that it
    /// does not have there has appeared since.
    pub fn certain_until(fleet: &Fleet, raw: &NodePicture, gpu: Option<&GpuUuid>, jobs: &[&Job]) -> u64 {
        let (listed_ms, max_age_ms) = match &fleet.status().jobs {
            // The interval of polls depends on the settings.
            JobsHealth::Fresh { at_ms } => (*at_ms, u64::MAX),
            JobsHealth::Stale { last_ms, .. } => (last_ms.unwrap_or_default(), MAX_AGE_MS),
            JobsHealth::NotYet | JobsHealth::NoSlurm => return u64::MAX,
        };
        let is_here = |job: &&Job| raw.job_usage.iter().any(|usage| usage.job == job.id);
        let age_ms = raw.sampled_at_ms.unwrap_or_default().saturating_sub(listed_ms);
        if age_ms == 0 || jobs.iter().any(is_here) {
            return u64::MAX;
        }
        let listed = || fleet.jobs().iter().filter(|job| job.is_active() && job.nodes.contains(&raw.name));
        let has_unlisted_job =
            || raw.job_usage.iter().any(|usage| listed().all(|listed| listed.id != usage.job));
        let has_new_process = || {
            let here = raw.processes.iter().map(|process| &process.facts);
            here.filter(|process| gpu.is_none_or(|gpu| process.gpu == *gpu)).any(|process| {
                let is_of_another = process
                    .user
                    .value()
                    .is_some_and(|user| user.as_str() != "root" && listed().all(|job| job.user != *user));
                let started_s =
                    process.started_ms.value().map(|started_ms| (started_ms / 1_000).cast_signed());
                is_of_another && started_s.is_some_and(|started_s| fleet.relay_ms(started_s) >= listed_ms)
            })
        };
        if age_ms > max_age_ms || has_unlisted_job() || has_new_process() { listed_ms } else { u64::MAX }
    }
}
