//! Details of a job are asked once, again when its nodes change, and rarely otherwise, so that SLURM is left in peace.

use super::scontrol::Detail;
use nodeglass_protocol::{
    JobId, NodeName,
    job::{GpuSet, Job, JobState, NodeGpus},
};
use std::collections::{HashMap, HashSet};

/// So many jobs are asked one by one in a poll; more are asked with one request for all jobs.
const ONE_BY_ONE: usize = 8;
/// What is known is asked again after so many polls (ten minutes at the usual interval), for GPUs
/// can change under the same nodes.
const REFRESH_POLLS: u32 = 40;
/// What could not be learnt is asked again after so many polls.
const RETRY_POLLS: u32 = 4;

/// What scontrol said of each job so far. Pure: it says what to ask and is told the answers.
#[derive(Debug, Default)]
pub struct Details {
    known: HashMap<JobId, Known>,
    asked_all: bool,
}

#[derive(Debug)]
struct Known {
    nodes: Vec<NodeName>,
    start: Option<i64>,
    detail: Option<Detail>,
    /// Polls until it is asked again.
    rest: u32,
}

/// What to ask scontrol now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// These jobs, one by one; mostly none.
    Each(Vec<JobId>),
    /// All jobs at once.
    All,
}

impl Details {
    /// Decides what to ask after a new list, and forgets jobs that are not in it.
    pub fn plan(&mut self, jobs: &[Job]) -> Plan {
        let listed: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
        self.known.retain(|id, _| listed.contains(id));
        let mut wanted: Vec<JobId> = jobs.iter().filter(|job| self.wants(job)).map(|job| job.id).collect();
        if wanted.len() > ONE_BY_ONE && !self.asked_all {
            self.asked_all = true;
            return Plan::All;
        }
        // What the request for all did not tell is asked one by one, a few in each poll.
        self.asked_all = false;
        wanted.truncate(ONE_BY_ONE);
        Plan::Each(wanted)
    }

    fn wants(&mut self, job: &Job) -> bool {
        if !job.is_active() || job.nodes.is_empty() {
            return false;
        }
        let Some(known) = self.known.get_mut(&job.id) else { return true };
        known.rest = known.rest.saturating_sub(1);
        // A completing job loses its nodes one by one; what was known of it stays true.
        let changed =
            known.start != job.start || (known.nodes != job.nodes && job.state != JobState::Completing);
        changed || known.rest == 0
    }

    /// Takes the answer about `job`: `None` if there was none, or a doubtful one.
    pub fn learn(&mut self, job: &Job, detail: Option<Detail>) {
        let rest = if detail.is_some() { REFRESH_POLLS } else { RETRY_POLLS };
        let old = self.known.remove(&job.id).filter(|old| old.start == job.start);
        let detail = detail.or_else(|| old.and_then(|old| old.detail));
        self.known.insert(job.id, Known { nodes: job.nodes.clone(), start: job.start, detail, rest });
    }

    /// Writes what is known into the jobs. A node of which nothing is known says so.
    pub fn fill(&self, jobs: &mut [Job]) {
        for job in jobs.iter_mut().filter(|job| !job.nodes.is_empty() && job.state != JobState::Pending) {
            let known = self.known.get(&job.id).filter(|known| known.start == job.start);
            let detail = known.and_then(|known| known.detail.as_ref());
            let told: HashMap<&NodeName, &GpuSet> =
                detail.iter().flat_map(|detail| &detail.gpus).map(|gpus| (&gpus.node, &gpus.set)).collect();
            let set = |node| told.get(node).map_or(GpuSet::Unknown, |set| (*set).clone());
            job.gpus = job.nodes.iter().map(|node| NodeGpus { node: node.clone(), set: set(node) }).collect();
            job.gpu_count = detail.and_then(|detail| detail.gpu_count).or(job.gpu_count);
        }
    }
}

#[cfg(test)]
#[path = "details_tests.rs"]
mod tests;
