//! Details of a job are asked once while it waits, once it runs, again when its nodes change or it ends, and rarely otherwise.

use super::scontrol::Detail;
use nodeglass_protocol::{
    JobId, NodeName,
    job::{GpuSet, Job, JobState, NodeGpus},
};
use std::collections::{HashMap, HashSet};

/// So many jobs are asked one by one in a poll; more are asked with one request for all jobs.
const ONE_BY_ONE: usize = 8;
/// So many waiting jobs are asked in a poll: what is asked of them can wait.
const WAITING_A_POLL: usize = 1;
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
    phase: Phase,
    detail: Option<Detail>,
    /// Polls until it is asked again.
    rest: u32,
}

/// What a job is in, as far as its details change with it. The expected start of a waiting job changes all the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Started(Option<i64>),
    Ended,
}

impl Phase {
    fn of(job: &Job) -> Self {
        match job.state {
            JobState::Pending => Self::Waiting,
            JobState::Ended(_) => Self::Ended,
            _ => Self::Started(job.start),
        }
    }

    /// Whether GPUs that were told in `earlier` are those of this phase: an ended job is known by what it had.
    fn continues(self, earlier: Self) -> bool {
        self == earlier || (self == Self::Ended && matches!(earlier, Self::Started(_)))
    }
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
        let wanting: Vec<&Job> = jobs.iter().filter(|job| self.wants(job)).collect();
        let (waiting, others): (Vec<&Job>, Vec<&Job>) =
            wanting.into_iter().partition(|job| job.state == JobState::Pending);
        let mut wanted: Vec<JobId> = others.iter().map(|job| job.id).collect();
        if wanted.len() > ONE_BY_ONE && !self.asked_all {
            self.asked_all = true;
            return Plan::All;
        }
        // What the request for all did not tell is asked one by one, a few in each poll.
        self.asked_all = false;
        wanted.truncate(ONE_BY_ONE);
        if wanted.is_empty() {
            wanted.extend(waiting.iter().take(WAITING_A_POLL).map(|job| job.id));
        }
        Plan::Each(wanted)
    }

    fn wants(&mut self, job: &Job) -> bool {
        if job.is_active() && job.nodes.is_empty() {
            return false;
        }
        let phase = Phase::of(job);
        let Some(known) = self.known.get_mut(&job.id) else { return true };
        known.rest = known.rest.saturating_sub(1);
        // A completing job loses its nodes one by one; what was known of it stays true.
        let moved = known.nodes != job.nodes && job.state != JobState::Completing && phase != Phase::Ended;
        // How a job ended does not change any more.
        let again = known.rest == 0 && (phase != Phase::Ended || known.detail.is_none());
        known.phase != phase || moved || again
    }

    /// Takes the answer about `job`: `None` if there was none, or a doubtful one.
    pub fn learn(&mut self, job: &Job, detail: Option<Detail>) {
        let rest = if detail.is_some() { REFRESH_POLLS } else { RETRY_POLLS };
        let phase = Phase::of(job);
        let old = self.known.remove(&job.id).filter(|old| phase.continues(old.phase));
        let old = old.and_then(|old| old.detail);
        let detail = match (detail, old) {
            // SLURM forgets which GPUs a job had as soon as it has ended.
            (Some(new), Some(old)) if phase == Phase::Ended => {
                Some(Detail { gpus: old.gpus, gpu_count: old.gpu_count, ..new })
            }
            (new, old) => new.or(old),
        };
        self.known.insert(job.id, Known { nodes: job.nodes.clone(), phase, detail, rest });
    }

    /// Writes what is known into the jobs. A node of which nothing is known says so.
    pub fn fill(&self, jobs: &mut [Job]) {
        for job in jobs {
            let known = self.known.get(&job.id);
            // Where its logs are was true before it started, and stays so.
            if let Some(detail) = known.and_then(|known| known.detail.as_ref()) {
                detail.facts.fill(job);
            }
            let detail = known
                .filter(|known| Phase::of(job).continues(known.phase))
                .and_then(|known| known.detail.as_ref());
            job.gpu_count = detail.and_then(|detail| detail.gpu_count).or(job.gpu_count);
            if !job.nodes.is_empty() && job.state != JobState::Pending {
                fill_gpus(job, detail);
            }
        }
    }
}

fn fill_gpus(job: &mut Job, detail: Option<&Detail>) {
    let told: HashMap<&NodeName, &GpuSet> =
        detail.iter().flat_map(|detail| &detail.gpus).map(|gpus| (&gpus.node, &gpus.set)).collect();
    let set = |node| told.get(node).map_or(GpuSet::Unknown, |set| (*set).clone());
    job.gpus = job.nodes.iter().map(|node| NodeGpus { node: node.clone(), set: set(node) }).collect();
}

#[cfg(test)]
#[path = "details_tests.rs"]
mod tests;
