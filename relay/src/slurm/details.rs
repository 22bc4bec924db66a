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
/// So many are asked one by one in quick succession, which takes about as long as a changed list is polled at the usual pace;
/// then one in a poll, so that the polls of a settled list keep to what [`super::Cadence`] spreads them for.
const BURST: usize = 32;
/// What is known is asked again after so many polls, for GPUs can change under the same nodes, which is very rare.
const REFRESH_POLLS: u32 = 40;
/// Of all jobs of which something is known, one is asked again in so many polls: with hundreds of jobs, refreshing each
/// after [`REFRESH_POLLS`] would be most of what SLURM is asked.
const REFRESH_ONE_IN: u32 = 8;
/// What could not be learnt is asked again after so many polls, then after twice as many, up to [`REFRESH_POLLS`].
const RETRY_POLLS: u32 = 4;

/// What scontrol said of each job so far. Pure: it says what to ask and is told the answers.
#[derive(Debug, Default)]
pub struct Details {
    known: HashMap<JobId, Known>,
    asked_all: bool,
    /// Polls until something known is asked again.
    refresh_in: u32,
    /// Jobs that were asked one by one, less one for each such poll since.
    recent: usize,
}

#[derive(Debug)]
struct Known {
    nodes: Vec<NodeName>,
    phase: Phase,
    detail: Option<Detail>,
    /// Polls until it is asked again.
    rest: u32,
    /// How often in a row there was no answer.
    misses: u32,
}

/// Why a job is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Want {
    /// Nothing is known of it as it is now.
    News,
    /// There was no answer, so many times in a row.
    Retry(u32),
    /// What is known is old.
    Refresh,
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
        self.refresh_in = self.refresh_in.saturating_sub(1);
        let (mut waiting, mut started, mut missed, mut old) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for job in jobs {
            match self.wants(job) {
                Some(Want::News) if job.state == JobState::Pending => waiting.push(job.id),
                Some(Want::News) => started.push(job.id),
                Some(Want::Retry(misses)) => missed.push((misses, job.id)),
                Some(Want::Refresh) => old.push(job.id),
                None => {}
            }
        }
        if started.len().max(waiting.len()) > ONE_BY_ONE && !self.asked_all {
            self.asked_all = true;
            return Plan::All;
        }
        // What the request for all did not tell is asked one by one, a few in each poll.
        self.asked_all = false;
        let mut wanted = started;
        wanted.truncate(BURST.saturating_sub(self.recent).clamp(1, ONE_BY_ONE));
        if wanted.is_empty() {
            wanted.extend(waiting.into_iter().take(WAITING_A_POLL));
        }
        if wanted.is_empty() {
            // The one that was asked least often, so that none waits for ever.
            wanted.extend(missed.into_iter().min().map(|(_, id)| id));
        }
        if wanted.is_empty() && self.refresh_in == 0 && !old.is_empty() {
            wanted.push(old[0]);
            self.refresh_in = REFRESH_ONE_IN;
        }
        self.recent = (self.recent + wanted.len()).saturating_sub(1);
        Plan::Each(wanted)
    }

    fn wants(&mut self, job: &Job) -> Option<Want> {
        if job.is_active() && job.nodes.is_empty() {
            return None;
        }
        let phase = Phase::of(job);
        let Some(known) = self.known.get_mut(&job.id) else { return Some(Want::News) };
        known.rest = known.rest.saturating_sub(1);
        // A completing job loses its nodes one by one; what was known of it stays true.
        let moved = known.nodes != job.nodes && job.state != JobState::Completing && phase != Phase::Ended;
        if known.phase != phase || moved {
            return Some(Want::News);
        }
        match (known.rest, known.misses) {
            (1.., _) => None,
            (0, misses @ 1..) => Some(Want::Retry(misses)),
            // How a job ended does not change any more.
            (0, 0) => (phase != Phase::Ended).then_some(Want::Refresh),
        }
    }

    /// Takes the answer about `job`: `None` if there was none, or a doubtful one.
    pub fn learn(&mut self, job: &Job, detail: Option<Detail>) {
        let phase = Phase::of(job);
        let old = self.known.remove(&job.id);
        let misses = if detail.is_some() { 0 } else { old.as_ref().map_or(0, |old| old.misses) + 1 };
        let rest = match misses {
            0 => REFRESH_POLLS,
            misses => (RETRY_POLLS << (misses - 1).min(8)).min(REFRESH_POLLS),
        };
        let old = old.filter(|old| phase.continues(old.phase)).and_then(|old| old.detail);
        let detail = match (detail, old) {
            // SLURM forgets which GPUs a job had as soon as it has ended.
            (Some(new), Some(old)) if phase == Phase::Ended => {
                Some(Detail { gpus: old.gpus, gpu_count: old.gpu_count, ..new })
            }
            (new, old) => new.or(old),
        };
        self.known.insert(job.id, Known { nodes: job.nodes.clone(), phase, detail, rest, misses });
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
