//! Reports of jobs: sums over the run of each job, and the report made from them. Pure: time comes from the caller.
//!
//! [`JobReports`] sums up samples to a [`JobRecord`] for each job, from which a [`Report`] is made. [`markdown()`]
//! and [`text()`] show one, and [`usage()`] sums up several.

mod advice;
mod application;
mod chat;
mod faults;
mod record;
mod summary;
mod tail;
mod text;
mod totals;
mod tracked;
mod units;
mod usage;

pub use chat::{Chat, code_block, message};
pub use faults::NodeFaults;
use nodeglass_protocol::field::{Field as _, Row};
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, HistorySample, NodePicture};
pub use nodeglass_protocol::report::NodeFault;
pub use nodeglass_protocol::report::{Accounting, Advice, Cost, GpuReport, Report, Throttled, Totals};
use nodeglass_protocol::{Cell, GpuField, GpuUuid, HostField, JobField, JobId, NodeName};
use nodeglass_rules::run::{REQUEUED, Submission, end_found_at, has_run, ms_of};
pub use record::{Factors, JobRecord, ReportNotes, Resized};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
pub use text::{FormatTime, markdown, text};
pub use totals::{GpuTotals, IDLE_PCT, Integral, NodeTotals};
use tracked::Tracked;
pub use units::aligned;
pub use usage::usage;

/// Maximum number of jobs with sums; further ones have none.
const MAX_JOBS: usize = 4_096;
/// Maximum number of GPUs of a job on one node.
const MAX_GPUS: usize = 128;
/// Maximum number of finished records that wait to be stored; the oldest is dropped first. One list of jobs may state the
/// end of all that have sums, and of others.
const MAX_FINISHED: usize = 2 * MAX_JOBS;

/// Time after the end of a job in which a list may have it as running again, in s.
const REOPEN_S: i64 = 3_600;

/// Sums of all running jobs.
#[derive(Debug, Default)]
pub struct JobReports {
    jobs: BTreeMap<JobId, Tracked>,
    nodes: BTreeMap<NodeName, NodeClock>,
    /// Records of ended jobs that nobody took yet.
    finished: VecDeque<JobRecord>,
    /// Number of finished records that were dropped.
    lost: usize,
    /// Final records of the last hour, as the jobs ran: a controller that has fallen back to an older state may have called
    /// a running job ended.
    closed: BTreeMap<JobId, JobRecord>,
    /// Ended jobs of the list whose records were finished.
    observed: BTreeSet<JobId>,
    /// Ended jobs of the list that no earlier list had as active, as last recorded.
    unobserved: BTreeMap<JobId, Job>,
    /// Records stored by an earlier run of the relay, until the first job list.
    restored: Vec<JobRecord>,
    has_list: bool,
    factors: Factors,
}

/// A node with running jobs.
#[derive(Debug, Default)]
struct NodeClock {
    /// Time of its newest sample.
    last_ms: Option<u64>,
    /// Maximum time for which that sample holds.
    hold_ms: u64,
    /// The newest time without samples, of which late ones may fill a part, from and to.
    gap: Option<(u64, u64)>,
    jobs: Vec<JobOnNode>,
}

/// A running job on one of its nodes.
#[derive(Debug)]
struct JobOnNode {
    job: JobId,
    /// Time of its first sample, which only starts the clock.
    joined_ms: Option<u64>,
    totals: NodeTotals,
    /// Sums of an earlier relay, which are included in the sums.
    restored: NodeTotals,
    /// Sums of what the probe kept from before the first sample; `None` if an earlier relay has counted it.
    before: Option<Before>,
    /// Sums that certainly belong to the job, and the time of their newest sample: the sums at the second-last list
    /// that had the job.
    confirmed: Option<(u64, NodeTotals)>,
    /// Sums at the last list, which was read some time before it was handled. The job may have ended in between.
    listed: Option<(u64, NodeTotals)>,
    /// Whether the job continues without the node.
    has_left: bool,
}

/// Sums of the samples of a job from before the relay's first one.
#[derive(Debug)]
struct Before {
    totals: NodeTotals,
    /// When the job started; earlier samples are not its own.
    start_ms: u64,
    /// Time of the oldest sample.
    from_ms: Option<u64>,
}

impl JobOnNode {
    /// A job that no earlier relay observed, and that started at `start_ms`.
    fn new(job: JobId, node: NodeName, start_ms: u64) -> Self {
        let before = Before { totals: NodeTotals::new(node.clone()), start_ms, from_ms: None };
        Self { before: Some(before), ..Self::restored(job, NodeTotals::new(node)) }
    }

    fn restored(job: JobId, restored: NodeTotals) -> Self {
        let totals = restored.clone();
        Self {
            job,
            joined_ms: None,
            totals,
            restored,
            before: None,
            confirmed: None,
            listed: None,
            has_left: false,
        }
    }

    /// Returns the sums to which a late sample belongs, and the time for which it counts; `None` if it is not the job's.
    fn sums_at(&mut self, sample: &HistorySample, span_ms: u64) -> Option<(&mut NodeTotals, u64)> {
        if self.joined_ms? < sample.at_ms {
            return Some((&mut self.totals, span_ms));
        }
        let before = self.before.as_mut()?;
        let since_start_ms = sample.at_ms.checked_sub(before.start_ms).filter(|since_ms| *since_ms > 0)?;
        before.from_ms = Some(before.from_ms.map_or(sample.at_ms, |from_ms| from_ms.min(sample.at_ms)));
        Some((&mut before.totals, span_ms.min(since_start_ms)))
    }

    /// Returns since when it is observed, in ms of the relay's clock.
    fn observed_from_ms(&self) -> Option<u64> {
        self.before.as_ref().and_then(|before| before.from_ms).or(self.joined_ms)
    }

    /// Returns all that is known of it, or only what it had used when SLURM last listed it.
    fn sums(&self, until: Until) -> NodeTotals {
        let mut sums = match (until, &self.listed) {
            (Until::Now, _) => self.totals.clone(),
            (Until::Listed, Some((_, sums))) => sums.clone(),
            (Until::Listed, None) => self.restored.clone(),
        };
        if let Some(before) = self.before.as_ref().filter(|before| before.from_ms.is_some()) {
            sums.merge(&before.totals);
        }
        sums
    }
}

/// The samples that count in the sums of a running job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Until {
    /// All.
    Now,
    /// Those before SLURM last listed the job: later ones may be another job's by now, which is not a guest's to see.
    Listed,
}

impl JobReports {
    /// Sets what GPU hours and energy cost from now on.
    pub fn set_factors(&mut self, factors: Factors) {
        self.factors = factors;
    }

    /// Follows the job list at `wall_s`, in s since 1970: sums of new jobs begin, sums of ended jobs are final.
    /// Samples after the end of a job are left out if `picture_of` its nodes has a history. `relay_ms` converts s
    /// since 1970 to ms of the relay's clock.
    pub fn set_jobs<'a>(
        &mut self,
        jobs: &[Job],
        wall_s: i64,
        relay_ms: impl Fn(i64) -> u64,
        picture_of: impl Fn(&NodeName) -> Option<&'a NodePicture>,
    ) {
        self.date_observations(wall_s, relay_ms(wall_s));
        let listed: BTreeMap<JobId, &Job> = jobs.iter().map(|job| (job.id, job)).collect();
        let is_same = |job: &Job, old: &Job| !Submission::of(job).reuses_number_of(&Submission::of(old));
        let runs_on = |old: &Job| {
            let listed = listed.get(&old.id);
            listed.is_some_and(|job| job.is_active() && job.start == old.start && is_same(job, old))
        };
        let over: Vec<JobId> = self
            .jobs
            .values()
            .map(|known| &known.job)
            .filter(|job| !runs_on(job))
            .map(|job| job.id)
            .collect();
        for id in over {
            let Some(tracked) = self.jobs.get_mut(&id) else { continue };
            // The start of a job moves while its nodes are configured.
            let is_configuring = tracked.job.state == JobState::Configuring;
            let has_start =
                |job: &Job| is_configuring || tracked.job.start.is_none_or(|start| Some(start) == job.start);
            // A requeued job is not the ended one, nor did this run end as a later one.
            let same = listed.get(&id).filter(|job| is_same(job, &tracked.job));
            let ended = same.filter(|job| matches!(job.state, JobState::Ended(_)) && has_start(job));
            if ended.is_none() && same.is_some() && !is_configuring {
                if tracked.job.state == JobState::Suspended {
                    tracked.job.ended = tracked.job.suspension.map(|suspension| suspension.at);
                }
                tracked.job.state = JobState::Ended(REQUEUED.into());
            }
            // Of a requeued one, the end was stated while it was completing.
            if let Some(ended_s) = ended.map_or(tracked.job.ended, |job| job.ended) {
                self.cut(id, relay_ms(ended_s), &picture_of);
            }
            self.finish(id, ended.copied(), wall_s);
            if ended.is_none() {
                // The run that is listed is not the observed one.
                self.observed.remove(&id);
            }
        }
        self.closed.retain(|_, record| wall_s.saturating_sub(record.at_s) < REOPEN_S);
        for job in jobs.iter().filter(|job| job.is_active()) {
            if self.jobs.len() >= MAX_JOBS && !self.jobs.contains_key(&job.id) {
                continue;
            }
            for name in &job.nodes {
                let node = self.nodes.entry(name.clone()).or_default();
                if !node.jobs.iter().any(|known| known.job == job.id) {
                    let start_ms = relay_ms(job.start.unwrap_or(wall_s));
                    node.jobs.push(JobOnNode::new(job.id, name.clone(), start_ms));
                }
            }
            let tracked = self.jobs.entry(job.id).or_insert_with(|| Tracked::new(job));
            if let Some(closed) = self.closed.remove(&job.id) {
                self.restored.push(closed);
            }
            if tracked.job.nodes != job.nodes {
                let on_nodes = self.nodes.iter_mut().flat_map(|(name, node)| {
                    node.jobs.iter_mut().filter(|known| known.job == job.id).map(move |known| (name, known))
                });
                on_nodes.for_each(|(name, known)| known.has_left = !job.nodes.contains(name));
            }
            tracked.resized = tracked.resized.updated(&tracked.job, job, wall_s);
            tracked.job.clone_from(job);
        }
        self.has_list = true;
        self.record_unobserved(jobs, wall_s);
        self.merge_restored();
        self.confirm();
    }

    /// Marks jobs that an earlier relay saw end, so that they get no second record.
    pub fn restore_ended(&mut self, jobs: impl IntoIterator<Item = JobId>) {
        self.observed.extend(jobs);
    }

    /// Records jobs that started and ended between two lists, so that their reports state at least how they ended.
    fn record_unobserved(&mut self, jobs: &[Job], wall_s: i64) {
        let has_ended = |job: &&Job| matches!(job.state, JobState::Ended(_)) && has_run(job);
        let ended: BTreeMap<JobId, &Job> = jobs.iter().filter(has_ended).map(|job| (job.id, job)).collect();
        self.unobserved.retain(|id, _| ended.contains_key(id));
        self.observed.retain(|id| ended.contains_key(id));
        for (id, job) in ended {
            if !self.observed.contains(&id) && self.unobserved.get(&id) != Some(job) {
                self.unobserved.insert(id, job.clone());
                let (factors, job) = (self.factors.clone(), job.clone());
                self.push_finished([JobRecord { factors, is_final: true, ..JobRecord::of(job, wall_s) }]);
            }
        }
    }

    /// States since when jobs are observed; `now_ms` of the relay's clock is `wall_s`.
    fn date_observations(&mut self, wall_s: i64, now_ms: u64) {
        for on_node in self.nodes.values().flat_map(|node| &node.jobs) {
            let (Some(from_ms), Some(tracked)) =
                (on_node.observed_from_ms(), self.jobs.get_mut(&on_node.job))
            else {
                continue;
            };
            let age_s = i64::try_from(now_ms.saturating_sub(from_ms) / 1_000).unwrap_or(i64::MAX);
            let from_s = wall_s.saturating_sub(age_s);
            tracked.observed_from_s = Some(tracked.observed_from_s.map_or(from_s, |known| known.min(from_s)));
        }
    }

    /// Keeps the sums of jobs that still run.
    fn confirm(&mut self) {
        for node in self.nodes.values_mut() {
            let Some(last_ms) = node.last_ms else { continue };
            for on_node in &mut node.jobs {
                // The end of a job that ends while it is suspended is that suspension.
                let runs = self.jobs.get(&on_node.job).is_some_and(|tracked| {
                    !matches!(tracked.job.state, JobState::Completing | JobState::Suspended)
                });
                if on_node.joined_ms.is_some() && runs {
                    let before = on_node.listed.replace((last_ms, on_node.totals.clone()));
                    on_node.confirmed = before.or(on_node.confirmed.take());
                }
            }
        }
    }

    /// Removes the samples after a job's end from its sums: begins with the sums that were last confirmed, and adds the
    /// history up to the end.
    fn cut<'a>(
        &mut self,
        id: JobId,
        ended_ms: u64,
        picture_of: impl Fn(&NodeName) -> Option<&'a NodePicture>,
    ) {
        for (name, node) in &mut self.nodes {
            if node.last_ms.is_none_or(|last_ms| last_ms <= ended_ms) {
                continue;
            }
            let Some(on_node) = node.jobs.iter_mut().find(|known| known.job == id) else { continue };
            // No list may have had the job since its first sample.
            let unconfirmed = on_node.joined_ms.map(|joined_ms| (joined_ms, on_node.restored.clone()));
            // The newest sums without a sample after the end. What is confirmed belongs to the job, although its end seems
            // earlier where the clocks of this machine and of the controller differ.
            let listed = on_node.listed.take().filter(|(at_ms, _)| *at_ms <= ended_ms);
            let kept = listed.or_else(|| on_node.confirmed.take()).or(unconfirmed);
            let Some((from_ms, mut totals)) = kept else { continue };
            if let Some(picture) = picture_of(name) {
                tail::add_history(&mut totals, picture, (from_ms, ended_ms), |sums, position| {
                    let gpu = picture.gpus.get(position).filter(|gpu| gpu.is_owned_by(id))?;
                    gpu_totals(sums, position, gpu)
                });
            }
            // The history has no Xids; they are rare, so those after the end hardly matter.
            for sums in &mut totals.gpus {
                let counted = on_node.totals.gpus.iter().find(|counted| counted.uuid == sums.uuid);
                sums.xids = counted.map_or(sums.xids, |counted| counted.xids);
            }
            on_node.totals = totals;
        }
    }

    /// Adds the newest sample of a node. It represents the time since the previous sample, at most the time for which
    /// that one holds. Allocates nothing, except for a GPU that a job did not have before.
    pub fn record(&mut self, picture: &NodePicture) {
        let Some(at_ms) = picture.sampled_at_ms else { return };
        let Some(node) = self.nodes.get_mut(&picture.name) else { return };
        let hold_ms = picture.hold_ms();
        // A sample after a change of the interval may be as late as with the longer one.
        let longest_ms = hold_ms.max(std::mem::replace(&mut node.hold_ms, hold_ms));
        let since_ms = match node.last_ms {
            Some(last_ms) if last_ms >= at_ms => return,
            last_ms => last_ms.map_or(0, |last_ms| at_ms - last_ms),
        };
        let span_ms = since_ms.min(longest_ms);
        if node.last_ms.is_none() {
            // What the probe kept from before fills it.
            node.gap = Some((0, at_ms));
        } else if since_ms > span_ms {
            node.gap = Some((at_ms - since_ms, at_ms - span_ms));
        }
        node.last_ms = Some(at_ms);
        let booted_ms = booted_ms(picture, at_ms);
        let here = node.jobs.iter_mut().filter(|known| !known.has_left);
        for JobOnNode { job, joined_ms, totals, .. } in here {
            // No job survives a boot of its node, which SLURM may state much later.
            if joined_ms.zip(booted_ms).is_some_and(|(joined_ms, booted_ms)| joined_ms < booted_ms) {
                continue;
            }
            let is_suspended =
                self.jobs.get(job).is_some_and(|tracked| tracked.job.state == JobState::Suspended);
            // Neither its run time nor its GPU hours count then; another job may use its GPUs.
            let span_ms = joined_ms.filter(|_| !is_suspended).map_or(0, |_| span_ms);
            joined_ms.get_or_insert(at_ms);
            let usage = picture.job_usage.iter().find(|usage| usage.job == *job).map(|usage| &usage.row);
            totals.cpus = picture.head.facts.as_ref().map(|facts| facts.cpus).or(totals.cpus);
            totals.add(&picture.host, usage, span_ms);
            for (position, gpu) in picture.gpus.iter().enumerate() {
                if gpu.is_owned_by(*job)
                    && let Some(sums) = gpu_totals(&mut totals.gpus, position, gpu)
                {
                    sums.add(&gpu.row, gpu.fault.is_some(), span_ms);
                }
            }
        }
    }

    /// Adds samples that were taken while the link was broken, or before the first one, oldest first, if they fill the
    /// newest gap.
    pub fn record_late(&mut self, picture: &NodePicture, samples: &[HistorySample]) {
        let Some(node) = self.nodes.get_mut(&picture.name) else { return };
        for sample in samples {
            let Some((from_ms, to_ms)) = node.gap else { return };
            if sample.at_ms <= from_ms || sample.at_ms > to_ms {
                continue;
            }
            let span_ms = (sample.at_ms - from_ms).min(sample.hold_ms);
            node.gap = Some((sample.at_ms, to_ms));
            let is_known = |cells: &[Cell]| cells.iter().any(|cell| cell.value().is_some());
            if !is_known(&sample.host) && !sample.gpus.iter().any(|cells| is_known(cells)) {
                // Without readings, as in a recording of one job of several on the node, nothing was observed.
                continue;
            }
            let mut host = Row::<HostField>::default();
            HostField::HISTORY
                .iter()
                .zip(sample.host.iter())
                .for_each(|(field, cell)| host.set(*field, *cell));
            for on_node in &mut node.jobs {
                let job = on_node.job;
                let Some((totals, span_ms)) = on_node.sums_at(sample, span_ms) else { continue };
                totals.add(&host, None::<&Row<JobField>>, span_ms);
                for (position, (gpu, cells)) in picture.gpus.iter().zip(sample.gpus.iter()).enumerate() {
                    let mut row = Row::<GpuField>::default();
                    GpuField::HISTORY
                        .iter()
                        .zip(cells.iter())
                        .for_each(|(field, cell)| row.set(*field, *cell));
                    if gpu.is_owned_by(job)
                        && is_known(cells)
                        && let Some(sums) = gpu_totals(&mut totals.gpus, position, gpu)
                    {
                        sums.add(&row, false, span_ms);
                    }
                }
            }
        }
    }

    /// Counts an Xid of a GPU for the jobs that have it.
    pub fn count_xid(&mut self, node: &NodeName, gpu: &GpuUuid) {
        let jobs = self.nodes.get_mut(node).into_iter().flat_map(|node| &mut node.jobs);
        let sums = jobs.flat_map(|job| &mut job.totals.gpus).filter(|sums| sums.uuid == *gpu);
        sums.for_each(|sums| sums.xids += 1);
    }

    /// Keeps what was found of running jobs, but not of an earlier run of one.
    pub fn record_findings(&mut self, findings: &[Finding]) {
        for finding in findings {
            for id in &finding.jobs {
                let is_of_run = |tracked: &&mut Tracked| {
                    let started_ms = tracked.job.start.map_or(0, ms_of);
                    finding.ended_ms.is_none_or(|ended_ms| ended_ms >= started_ms)
                };
                if let Some(tracked) = self.jobs.get_mut(id).filter(is_of_run) {
                    tracked.add(finding);
                }
            }
        }
    }

    /// Detects the applications of jobs from a new list of processes.
    pub fn detect(&mut self, picture: &NodePicture) {
        for process in &picture.processes {
            if let Some(tracked) = process.facts.job.and_then(|job| self.jobs.get_mut(&job)) {
                tracked.application = application::better(tracked.application, &process.facts);
            }
        }
    }

    /// Adds the sums of an earlier run of the relay to the sums of jobs that still run, once there is a job list.
    pub fn restore(&mut self, records: Vec<JobRecord>) {
        self.restored = records;
        if self.has_list {
            self.merge_restored();
        }
    }

    fn merge_restored(&mut self) {
        let mut finished = Vec::new();
        for record in std::mem::take(&mut self.restored) {
            let Some(tracked) = self.jobs.get_mut(&record.job.id) else {
                // It may have ended while no relay ran.
                let ended = self.unobserved.get(&record.job.id).filter(|job| job.start == record.job.start);
                let ended = ended.filter(|_| !record.is_final).cloned();
                self.push_finished(ended.map(|job| record.ended(job)));
                continue;
            };
            if tracked.job.start.is_none() || tracked.job.start != record.job.start {
                let is_requeued =
                    !Submission::of(&tracked.job).reuses_number_of(&Submission::of(&record.job));
                // The start of a job moves while its nodes are configured.
                let has_run = record.job.state != JobState::Configuring && !record.is_final;
                if is_requeued && has_run && tracked.job.start > record.job.start {
                    let ended = Some(record.at_s);
                    let run = Job { state: JobState::Ended(REQUEUED.into()), ended, ..record.job.clone() };
                    finished.push(record.ended(run));
                }
                continue;
            }
            tracked.false_end_s = if record.is_final { Some(record.at_s) } else { record.false_end_s };
            let known = record.application.as_deref().and_then(application::known);
            tracked.application = tracked.application.or(known);
            let known_until_ms = ms_of(record.at_s);
            tracked.resized = record.resized.updated(&record.job, &tracked.job, record.at_s);
            tracked.restore(record.findings, known_until_ms);
            // Records of earlier versions do not state it.
            tracked.observed_from_s = Some(record.observed_from_s.unwrap_or(i64::MIN));
            for earlier in record.nodes {
                let node = self.nodes.entry(earlier.node.clone()).or_default();
                match node.jobs.iter_mut().find(|known| known.job == record.job.id) {
                    Some(known) => {
                        known.before = None;
                        let lists = known.confirmed.iter_mut().chain(&mut known.listed).map(|(_, sums)| sums);
                        lists
                            .chain([&mut known.totals, &mut known.restored])
                            .for_each(|sums| sums.merge(&earlier));
                    }
                    None => {
                        let has_left = !tracked.job.nodes.contains(&earlier.node);
                        let earlier = JobOnNode::restored(record.job.id, earlier);
                        node.jobs.push(JobOnNode { has_left, ..earlier });
                    }
                }
            }
        }
        self.push_finished(finished);
    }

    /// The sums of a running job at `wall_s`.
    pub fn of(&self, id: JobId, wall_s: i64, until: Until) -> Option<JobRecord> {
        Some(self.record_of(self.jobs.get(&id)?, wall_s, until))
    }

    /// The sums of all running jobs at `wall_s`.
    pub fn running(&self, wall_s: i64) -> Vec<JobRecord> {
        self.jobs.values().map(|tracked| self.record_of(tracked, wall_s, Until::Now)).collect()
    }

    /// Takes the records of jobs that ended since the last call.
    pub fn take_finished(&mut self) -> Vec<JobRecord> {
        std::mem::take(&mut self.finished).into()
    }

    /// Number of finished records that were dropped.
    pub fn lost(&self) -> usize {
        self.lost
    }

    /// Returns records that could not be stored, to be taken again.
    pub fn put_back(&mut self, records: Vec<JobRecord>) {
        let newer = std::mem::replace(&mut self.finished, records.into());
        self.push_finished(newer);
    }

    fn push_finished(&mut self, records: impl IntoIterator<Item = JobRecord>) {
        self.finished.extend(records);
        let over = self.finished.len().saturating_sub(MAX_FINISHED);
        self.finished.drain(..over);
        self.lost += over;
    }

    fn record_of(&self, tracked: &Tracked, wall_s: i64, until: Until) -> JobRecord {
        let id = tracked.job.id;
        let on_nodes = self.nodes.values().flat_map(|node| node.jobs.iter().filter(move |job| job.job == id));
        JobRecord {
            application: tracked.application.map(str::to_owned),
            nodes: on_nodes.map(|on_node| on_node.sums(until)).collect(),
            findings: tracked.findings.clone(),
            observed_from_s: tracked.observed_from_s,
            resized: tracked.resized,
            false_end_s: tracked.false_end_s,
            factors: self.factors.clone(),
            ..JobRecord::of(tracked.job.clone(), wall_s)
        }
    }

    fn finish(&mut self, id: JobId, ended: Option<&Job>, wall_s: i64) {
        let Some(record) = self.of(id, wall_s, Until::Now) else { return };
        let mut job = ended.unwrap_or(&record.job).clone();
        job.ended = job.ended.or_else(|| Some(end_found_at(&job, wall_s)));
        self.jobs.remove(&id);
        self.observed.insert(id);
        self.nodes.values_mut().for_each(|node| node.jobs.retain(|job| job.job != id));
        self.nodes.retain(|_, node| !node.jobs.is_empty());
        if self.closed.len() < MAX_JOBS {
            self.closed.insert(id, JobRecord { is_final: true, ..record.clone() });
        }
        self.push_finished([record.ended(job)]);
    }
}

/// Returns a time before the boot of a node, in ms of the relay's clock: its uptime has steps of a minute.
fn booted_ms(picture: &NodePicture, at_ms: u64) -> Option<u64> {
    let uptime_s = picture.host.value(HostField::Uptime)?;
    Some(at_ms.saturating_sub(uptime_s.saturating_add(60).saturating_mul(1_000)))
}

/// The sums of a GPU, which is usually at the same position as on the node.
fn gpu_totals<'a>(
    sums: &'a mut Vec<GpuTotals>,
    position: usize,
    gpu: &GpuPicture,
) -> Option<&'a mut GpuTotals> {
    let uuid = &gpu.facts.uuid;
    let is_there = sums.get(position).is_some_and(|sums| sums.uuid == *uuid);
    let found = if is_there { Some(position) } else { sums.iter().position(|sums| sums.uuid == *uuid) };
    let found = match found {
        Some(found) => found,
        None if sums.len() >= MAX_GPUS => return None,
        None => {
            sums.push(GpuTotals::new(gpu));
            sums.len() - 1
        }
    };
    sums.get_mut(found)
}

#[cfg(test)]
mod tests;
