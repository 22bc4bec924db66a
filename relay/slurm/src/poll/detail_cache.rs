//! Caches job details: queried once while a job is pending, once it runs, when its nodes change or it
//! ends, and rarely otherwise.

use crate::scontrol::Detail;
use nodeglass_protocol::{
    JobId, NodeName,
    job::{GpuSet, Job, JobState, NodeGpus},
};
use std::collections::{HashMap, HashSet};

/// Maximum number of new jobs that are queried one by one; for more, one request returns all jobs. Each query also
/// makes scontrol load all nodes, so that three of them cost the controller more than one request for all jobs.
const MAX_NEW_SINGLE: usize = 2;
/// Maximum number of jobs that the request for all jobs left out, which are queried one by one per poll.
const MAX_SINGLE: usize = 8;
/// Pending jobs queried per poll; their details are not urgent.
const MAX_PENDING_PER_POLL: usize = 1;
/// Burst of single queries, about as long as a changed list is polled at the usual interval; after that
/// one per poll, so that polls of a settled list stay within the budget of [`super::PollSchedule`].
const BURST: usize = 32;
/// Known details are refreshed after this many polls: GPUs can change on the same nodes, but very rarely
/// do.
const REFRESH_POLLS: u32 = 40;
/// One of all known jobs is refreshed per this many polls: with hundreds of jobs, refreshing each after
/// [`REFRESH_POLLS`] would dominate the load.
const REFRESH_ONE_IN: u32 = 8;
/// Failed queries are repeated after this many polls, doubling up to [`REFRESH_POLLS`].
const RETRY_POLLS: u32 = 4;

/// The details of each job as last queried. Pure: returns what to query and records the results.
#[derive(Debug, Default)]
pub struct DetailCache {
    known: HashMap<JobId, Known>,
    /// Whether the jobs are of many users: some always change, so a poll makes one request at most.
    is_of_many: bool,
    /// The new jobs that requests for all jobs were made for; what is still new then was left out.
    asked: HashMap<JobId, Phase>,
    /// Polls until the next refresh.
    refresh_in: u32,
    /// Recent single queries, decreasing by one per poll.
    recent: usize,
}

#[derive(Debug)]
struct Known {
    nodes: Vec<NodeName>,
    phase: Phase,
    detail: Option<Detail>,
    /// Polls until the next query.
    wait_polls: u32,
    /// Consecutive failures.
    failures: u32,
}

/// Reason for querying a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum QueryReason {
    /// The job is new, or its phase or nodes have changed.
    Changed,
    /// The query failed this many times in a row.
    Retry(u32),
    /// Its details have not been refreshed for a while.
    Refresh,
}

/// The phase of a job on which details depend. It omits the expected start of a pending job, which changes with
/// almost every poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Pending,
    Started {
        start: Option<i64>,
        /// SLURM states when a job was suspended and resumed with its details only.
        is_suspended: bool,
    },
    Ended,
}

impl Phase {
    fn of(job: &Job) -> Self {
        match job.state {
            JobState::Pending => Self::Pending,
            JobState::Ended(_) => Self::Ended,
            _ => Self::Started { start: job.start, is_suspended: job.state == JobState::Suspended },
        }
    }

    /// Returns whether GPUs known from `earlier` are still valid in this phase: an ended job keeps the GPUs that
    /// it had.
    fn continues(self, earlier: Self) -> bool {
        match (self, earlier) {
            (Self::Started { start, .. }, Self::Started { start: earlier, .. }) => start == earlier,
            (Self::Ended, Self::Started { .. }) => true,
            _ => self == earlier,
        }
    }
}

/// A query of scontrol.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DetailQuery {
    /// These jobs, one by one; usually none.
    Each(Vec<JobId>),
    /// All jobs with one request.
    All,
}

impl DetailCache {
    /// Details of the jobs of one user, or of many.
    pub fn new(is_of_many: bool) -> Self {
        Self { is_of_many, ..Self::default() }
    }

    /// Decides what to query after a new list, and drops jobs that are not in it.
    pub fn plan(&mut self, jobs: &[Job]) -> DetailQuery {
        let listed: HashSet<JobId> = jobs.iter().map(|job| job.id).collect();
        self.known.retain(|id, _| listed.contains(id));
        self.asked.retain(|id, _| listed.contains(id));
        self.refresh_in = self.refresh_in.saturating_sub(1);
        let (mut pending, mut started, mut failed, mut stale) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new());
        let (mut new_pending, mut new_started) = (0, 0);
        for job in jobs {
            let reason = self.query_reason(job);
            // What a request for all jobs left out is queried one by one, a few per poll.
            let is_new = self.asked.get(&job.id) != Some(&Phase::of(job));
            match reason {
                Some(QueryReason::Changed) if job.state == JobState::Pending => {
                    pending.push(job);
                    new_pending += usize::from(is_new);
                }
                Some(QueryReason::Changed) => {
                    started.push(job);
                    new_started += usize::from(is_new);
                }
                Some(QueryReason::Retry(failures)) => failed.push((failures, job.id)),
                Some(QueryReason::Refresh) => stale.push(job.id),
                None => {}
            }
        }
        let (max_new, max_single) = if self.is_of_many { (1, 1) } else { (MAX_NEW_SINGLE, MAX_SINGLE) };
        if new_started > max_new || new_pending > max_single {
            self.asked.extend(started.into_iter().chain(pending).map(|job| (job.id, Phase::of(job))));
            return DetailQuery::All;
        }
        let max_single = BURST.saturating_sub(self.recent).clamp(1, max_single);
        let mut queried: Vec<JobId> = started.into_iter().map(|job| job.id).take(max_single).collect();
        if queried.is_empty() {
            queried.extend(pending.into_iter().map(|job| job.id).take(MAX_PENDING_PER_POLL));
        }
        if queried.is_empty() {
            // The job with the fewest failures comes first, so that none starves.
            queried.extend(failed.into_iter().min().map(|(_, id)| id));
        }
        if queried.is_empty() && self.refresh_in == 0 && !stale.is_empty() {
            queried.push(stale[0]);
            self.refresh_in = REFRESH_ONE_IN;
        }
        self.recent = (self.recent + queried.len()).saturating_sub(1);
        DetailQuery::Each(queried)
    }

    fn query_reason(&mut self, job: &Job) -> Option<QueryReason> {
        if job.is_active() && job.nodes.is_empty() {
            return None;
        }
        let phase = Phase::of(job);
        let Some(known) = self.known.get_mut(&job.id) else { return Some(QueryReason::Changed) };
        known.wait_polls = known.wait_polls.saturating_sub(1);
        // A completing job loses its nodes one by one, but its details remain valid.
        let moved = known.nodes != job.nodes && job.state != JobState::Completing && phase != Phase::Ended;
        if known.phase != phase || moved {
            return Some(QueryReason::Changed);
        }
        match (known.wait_polls, known.failures) {
            (1.., _) => None,
            (0, failures @ 1..) => Some(QueryReason::Retry(failures)),
            // The details of an ended job do not change any more.
            (0, 0) => (phase != Phase::Ended).then_some(QueryReason::Refresh),
        }
    }

    /// Records the result for `job`: `None` if the query failed or was inconclusive.
    pub fn record(&mut self, job: &Job, detail: Option<Detail>) {
        let phase = Phase::of(job);
        let old = self.known.remove(&job.id);
        let failures = if detail.is_some() { 0 } else { old.as_ref().map_or(0, |old| old.failures) + 1 };
        let wait_polls = match failures {
            0 => REFRESH_POLLS,
            failures => (RETRY_POLLS << (failures - 1).min(8)).min(REFRESH_POLLS),
        };
        let old = old.filter(|old| phase.continues(old.phase)).and_then(|old| old.detail);
        let detail = match (detail, old) {
            // SLURM forgets the GPUs of a job as soon as it has ended.
            (Some(new), Some(old)) if phase == Phase::Ended => {
                Some(Detail { gpus: old.gpus, gpu_count: old.gpu_count, ..new })
            }
            (new, old) => new.or(old),
        };
        self.known.insert(job.id, Known { nodes: job.nodes.clone(), phase, detail, wait_polls, failures });
    }

    /// Fills known details into the jobs. Nodes without details get [`GpuSet::Unknown`].
    pub fn fill(&self, jobs: &mut [Job]) {
        for job in jobs {
            let known = self.known.get(&job.id);
            // The log paths were valid before the start, and remain so.
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
    let known_sets: HashMap<&NodeName, &GpuSet> =
        detail.iter().flat_map(|detail| &detail.gpus).map(|gpus| (&gpus.node, &gpus.set)).collect();
    let set = |node| known_sets.get(node).map_or(GpuSet::Unknown, |set| (*set).clone());
    job.gpus = job.nodes.iter().map(|node| NodeGpus { node: node.clone(), set: set(node) }).collect();
}

#[cfg(test)]
#[path = "detail_cache_tests.rs"]
mod tests;
