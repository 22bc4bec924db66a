//! The job list: keeps ended jobs for a while, with the last picture of their nodes.

use nodeglass_protocol::job::{GpuSet, Job, JobState};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_rules::run::{Submission, end_found_at};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Number of ended jobs that the list keeps after SLURM has dropped them.
const KEPT_JOBS: usize = 200;
/// Maximum number of ended jobs in the list: SLURM lists those of some minutes, and an array may end at once.
pub(super) const MAX_ENDED: usize = 2_000;
/// Maximum number of last pictures of nodes, oldest dropped first.
const KEPT_NODES: usize = 256;

/// Jobs that SLURM lists, and ended ones that it listed before.
#[derive(Debug, Default)]
pub struct JobList {
    list: Vec<Job>,
    /// Ended jobs that SLURM lists beyond [`MAX_ENDED`].
    surplus: Vec<Job>,
    kept: BTreeMap<JobId, Vec<NodePicture>>,
    /// Nodes that running jobs got after their start, with the time of the list that first had them, in s since 1970.
    joined: BTreeMap<JobId, BTreeMap<NodeName, i64>>,
    /// Jobs with the number of an earlier one, with the time of their submission in s since 1970.
    reused: BTreeMap<JobId, i64>,
    /// Ended jobs that are new, or about which SLURM reported more.
    updated: BTreeSet<JobId>,
}

impl JobList {
    /// All jobs: active, then pending, then ended with the newest first.
    pub fn list(&self) -> &[Job] {
        &self.list
    }

    /// Ended jobs that SLURM lists as well, and which are too many for the list.
    pub fn surplus(&self) -> &[Job] {
        &self.surplus
    }

    /// A job by its id.
    pub fn get(&self, id: JobId) -> Option<&Job> {
        self.list.iter().find(|job| job.id == id)
    }

    /// The last picture of the nodes of a job that ended, or was requeued and waits; empty if that was long ago.
    pub fn last_picture_of(&self, id: JobId) -> &[NodePicture] {
        self.kept.get(&id).map_or(&[], Vec::as_slice)
    }

    /// Returns when a job was submitted that has the number of an earlier one, in s since 1970.
    pub fn number_reused_at(&self, id: JobId) -> Option<i64> {
        self.reused.get(&id).copied()
    }

    /// Applies SLURM's new list; a job that left it has ended at `wall_s`. Returns whether anything
    /// changed, and notes in `switched` the jobs whose last picture was added or dropped.
    pub fn replace(
        &mut self,
        mut jobs: Vec<Job>,
        wall_s: i64,
        picture_of: impl Fn(&Job, &NodeName) -> Option<NodePicture>,
        switched: &mut BTreeSet<JobId>,
    ) -> bool {
        let listed: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
        for old in &self.list {
            if !listed.contains(&old.id) {
                jobs.push(ended(old.clone(), wall_s));
            }
        }
        for job in &mut jobs {
            if self.keep_or_release(job, wall_s, &picture_of) {
                switched.insert(job.id);
            }
        }
        jobs.sort_by_key(order);
        let ended = jobs.split_off(jobs.partition_point(|job| !is_ended(job)));
        let is_listed = |job: &Job| listed.contains(&job.id);
        let kept = ended.into_iter().enumerate().filter(|(at, job)| *at < KEPT_JOBS || is_listed(job));
        jobs.extend(kept.map(|(_, job)| job));
        let shown = jobs.partition_point(|job| !is_ended(job)) + MAX_ENDED;
        self.surplus = jobs.split_off(shown.min(jobs.len()));
        self.forget_oldest(&jobs, switched);
        self.record_updates(&jobs);
        self.record_joined(&jobs, wall_s);
        self.record_reused(&jobs, wall_s);
        let changed = self.list != jobs;
        self.list = jobs;
        changed
    }

    /// Stores the nodes of a job that just ended, or was requeued; drops the stored nodes of one that runs again, and of an earlier
    /// job with the number. Returns
    /// whether its topic has another content now.
    fn keep_or_release(
        &mut self,
        job: &mut Job,
        wall_s: i64,
        picture_of: impl Fn(&Job, &NodeName) -> Option<NodePicture>,
    ) -> bool {
        if job.is_active() {
            return self.kept.remove(&job.id).is_some();
        }
        let Some(old) = self.list.iter().find(|old| old.id == job.id) else { return false };
        if Submission::of(job).reuses_number_of(&Submission::of(old)) {
            return self.kept.remove(&job.id).is_some();
        }
        let last_picture = |job: &Job| old.nodes.iter().filter_map(|node| picture_of(job, node)).collect();
        match (&job.state, &old.state) {
            // It has no nodes, but its report is that of its last run.
            (JobState::Pending, JobState::Ended(_)) => true,
            (JobState::Pending, _) => {
                if old.is_active() {
                    self.kept.insert(job.id, last_picture(job));
                }
                false
            }
            (_, JobState::Ended(_)) => {
                keep_place(job, old);
                false
            }
            _ => {
                keep_place(job, old);
                job.ended = job.ended.or(Some(end_found_at(job, wall_s)));
                // One that was requeued, and did not run again, has the picture of its run.
                if old.is_active() || !self.kept.contains_key(&job.id) {
                    self.kept.insert(job.id, last_picture(job));
                }
                true
            }
        }
    }

    /// Returns since when a job certainly had a node, in s since 1970: since its start, unless it was expanded; `None` if that is
    /// not known.
    pub fn on_node_since(&self, job: &Job, node: &NodeName) -> Option<i64> {
        let joined = self.joined.get(&job.id).and_then(|nodes| nodes.get(node).copied());
        job.start.map(|start| joined.map_or(start, |joined| joined.max(start)))
    }

    fn record_joined(&mut self, jobs: &[Job], wall_s: i64) {
        let before: BTreeMap<JobId, &Job> = self.list.iter().map(|job| (job.id, job)).collect();
        let mut known = std::mem::take(&mut self.joined);
        for job in jobs {
            let is_same_run = |old: &&&Job| old.start == job.start && old.user == job.user;
            let Some(old) = before.get(&job.id).filter(is_same_run) else { continue };
            let mut nodes = known.remove(&job.id).unwrap_or_default();
            // A list that could not be read has no nodes.
            let had_nodes = old.is_active() && old.state != JobState::Configuring && !old.nodes.is_empty();
            if job.is_active() && had_nodes {
                let added = job.nodes.iter().filter(|node| !old.nodes.contains(node));
                nodes.extend(added.map(|node| (node.clone(), wall_s)));
            }
            if !nodes.is_empty() {
                self.joined.insert(job.id, nodes);
            }
        }
    }

    fn record_reused(&mut self, jobs: &[Job], wall_s: i64) {
        let before: BTreeMap<JobId, &Job> = self.list.iter().map(|job| (job.id, job)).collect();
        let is_reused = |job: &&Job| {
            before.get(&job.id).is_some_and(|old| Submission::of(job).reuses_number_of(&Submission::of(old)))
        };
        let reused = jobs.iter().filter(is_reused).map(|job| (job.id, job.submitted.unwrap_or(wall_s)));
        self.reused.extend(reused);
        if !self.reused.is_empty() {
            let listed: BTreeSet<JobId> = jobs.iter().map(|job| job.id).collect();
            self.reused.retain(|id, _| listed.contains(id));
        }
    }

    /// Lists jobs that an earlier relay saw end, with the last picture of their nodes.
    pub fn restore(&mut self, jobs: impl IntoIterator<Item = (Job, Vec<NodePicture>)>) {
        for (job, nodes) in jobs {
            match self.get(job.id) {
                None => {
                    self.kept.insert(job.id, nodes);
                    self.list.push(job);
                }
                Some(listed) if Submission::of(listed).reuses_number_of(&Submission::of(&job)) => {
                    let submitted = listed.submitted;
                    self.reused.extend(submitted.map(|submitted| (job.id, submitted)));
                }
                Some(_) => {}
            }
        }
        self.list.sort_by_key(order);
    }

    /// Takes the ended jobs that have a last picture and are new or changed since the last call.
    pub fn take_updated(&mut self) -> Vec<(Job, Vec<NodePicture>)> {
        let ids = std::mem::take(&mut self.updated);
        let ended = ids.iter().filter_map(|id| self.get(*id)).filter(|job| is_ended(job));
        ended.filter_map(|job| Some((job.clone(), self.kept.get(&job.id)?.clone()))).collect()
    }

    fn record_updates(&mut self, jobs: &[Job]) {
        let is_new =
            |job: &&Job| is_ended(job) && self.kept.contains_key(&job.id) && self.get(job.id) != Some(*job);
        let updated: Vec<_> = jobs.iter().filter(is_new).map(|job| job.id).collect();
        self.updated.extend(updated);
        self.updated.retain(|id| self.kept.contains_key(id));
    }

    fn forget_oldest(&mut self, jobs: &[Job], switched: &mut BTreeSet<JobId>) {
        self.kept.retain(|id, _| jobs.iter().any(|job| job.id == *id));
        let mut nodes: usize = self.kept.values().map(Vec::len).sum();
        for job in jobs.iter().rev() {
            if nodes <= KEPT_NODES {
                break;
            }
            if let Some(kept) = self.kept.remove(&job.id) {
                nodes -= kept.len();
                switched.insert(job.id);
            }
        }
    }
}

fn is_ended(job: &Job) -> bool {
    matches!(job.state, JobState::Ended(_))
}

/// Keeps the nodes and GPUs that an ended job had: SLURM forgets its GPUs, and empties some lists of nodes.
fn keep_place(job: &mut Job, old: &Job) {
    let is_known = job.gpus.iter().any(|gpus| gpus.set != GpuSet::Unknown);
    if job.nodes.is_empty() || job.nodes == old.nodes && !is_known {
        job.nodes.clone_from(&old.nodes);
        job.gpus.clone_from(&old.gpus);
    }
}

fn ended(mut job: Job, wall_s: i64) -> Job {
    if !matches!(job.state, JobState::Ended(_)) {
        if matches!(job.state, JobState::Pending) {
            // It never ran: the start was the one that SLURM expected, and the reason why it waited.
            job.start = None;
            job.reason = None;
        }
        job.state = JobState::Ended(Text::default());
        job.ended = Some(end_found_at(&job, wall_s));
    }
    job
}

/// Active jobs by id, then pending ones by id, then ended ones with the newest first.
fn order(job: &Job) -> (u8, Reverse<i64>, JobId) {
    match job.state {
        JobState::Pending => (1, Reverse(0), job.id),
        JobState::Ended(_) => (2, Reverse(job.ended.unwrap_or(0)), job.id),
        _ => (0, Reverse(0), job.id),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pending_job_that_disappears_has_not_run() {
        let mut list = JobList::default();
        let mut pending = Job::new(JobId(1), "alice".into(), JobState::Pending);
        pending.start = Some(900);
        let mut switched = BTreeSet::new();
        list.replace(vec![pending], 500, |_, _| None, &mut switched);
        list.replace(Vec::new(), 1_000, |_, _| None, &mut switched);
        let job = list.get(JobId(1)).unwrap();
        assert_eq!((&job.state, job.start), (&JobState::Ended(Text::default()), None));
    }

    #[test]
    fn a_job_whose_start_is_later_by_the_clock_of_slurm_ends_with_its_start() {
        let (mut list, mut switched) = (JobList::default(), BTreeSet::new());
        let running = Job { start: Some(900), ..Job::new(JobId(1), "alice".into(), JobState::Running) };
        list.replace(vec![running.clone()], 500, |_, _| None, &mut switched);
        list.replace(Vec::new(), 600, |_, _| None, &mut switched);
        assert_eq!(list.get(JobId(1)).unwrap().ended, Some(900));
        list.replace(vec![running], 600, |_, _| None, &mut switched);
        list.replace(Vec::new(), 1_000, |_, _| None, &mut switched);
        assert_eq!(list.get(JobId(1)).unwrap().ended, Some(1_000));
    }

    #[test]
    fn an_expanded_job_has_its_later_nodes_since_they_were_listed() {
        let name = |name: &str| NodeName::new(name).unwrap();
        let job = |start, nodes: &[&str]| Job {
            start: Some(start),
            nodes: nodes.iter().map(|node| name(node)).collect(),
            ..Job::new(JobId(5), "alice".into(), JobState::Running)
        };
        let (mut list, mut switched) = (JobList::default(), BTreeSet::new());
        let mut since = |job: Job, wall_s| {
            list.replace(vec![job.clone()], wall_s, |_, _| None, &mut switched);
            ["n1", "n2"].map(|node| list.on_node_since(&job, &name(node)))
        };
        assert_eq!(since(job(100, &["n1"]), 300)[0], Some(100));
        assert_eq!(since(job(100, &["n1", "n2"]), 400), [Some(100), Some(400)]);
        assert_eq!(since(job(100, &["n1", "n2"]), 500), [Some(100), Some(400)]);
        assert_eq!(since(job(600, &["n1", "n2"]), 700), [Some(600); 2], "it was requeued");
    }

    #[test]
    fn a_job_with_the_number_of_an_earlier_one_does_not_get_its_gpus() {
        let lost = Job {
            nodes: vec![NodeName::new("n1").unwrap()],
            gpu_count: Some(2),
            submitted: Some(100),
            ..Job::new(JobId(5), "alice".into(), JobState::Running)
        };
        let ended = JobState::Ended("COMPLETED".into());
        let next = |name: &str| Job {
            name: name.into(),
            submitted: Some(200),
            ..Job::new(JobId(5), "alice".into(), ended.clone())
        };
        let nodes_of = |later: Job| {
            let (mut list, mut switched) = (JobList::default(), BTreeSet::new());
            list.replace(vec![lost.clone()], 300, |_, _| None, &mut switched);
            list.replace(vec![later], 400, |_, _| None, &mut switched);
            (list.get(JobId(5)).unwrap().nodes.len(), list.kept.contains_key(&JobId(5)))
        };
        assert_eq!(nodes_of(next("other")), (0, false));
        assert_eq!(nodes_of(next("")), (1, true), "it may be the same, requeued");
    }

    #[test]
    fn all_tasks_of_an_array_that_ends_at_once_stay_while_slurm_lists_them() {
        let tasks = |count: u32| -> Vec<Job> {
            let task = |id| Job {
                ended: Some(1_000),
                ..Job::new(JobId(id), "alice".into(), JobState::Ended("COMPLETED".into()))
            };
            (1..=count).map(task).collect()
        };
        let (mut list, mut switched) = (JobList::default(), BTreeSet::new());
        let mut counts = |jobs| {
            list.replace(jobs, 1_000, |_, _| None, &mut switched);
            (list.list().len(), list.surplus().len())
        };
        assert_eq!(counts(tasks(300)), (300, 0));
        assert_eq!(counts(tasks(2_300)), (MAX_ENDED, 300));
        assert_eq!(counts(Vec::new()), (KEPT_JOBS, 0));
    }

    #[test]
    fn ended_jobs_are_ordered_whatever_their_times_are() {
        let ended = |id, ended| Job {
            ended,
            ..Job::new(JobId(id), "mallory".into(), JobState::Ended("FAILED".into()))
        };
        let mut jobs = [ended(1, Some(i64::MIN)), ended(2, None), ended(3, Some(i64::MAX))];
        jobs.sort_by_key(order);
        assert_eq!(jobs.map(|job| job.id.0), [3, 2, 1]);
    }
}
