//! Simulates SLURM's schedule: pending, running and ended jobs, and the job of each GPU.

use crate::scenario::validate::NUMBER_STEP;
use crate::scenario::{ArrayScript, Assignment, JobScript, Scenario, ScenarioTime};
use nodeglass_protocol::job::{GpuSet, Job, JobState, NodeGpus, Parent, TimeLimit};
use nodeglass_protocol::{JobId, Text};

/// Time for which ended jobs are listed (`MinJobAge`).
const LISTED_MS: i64 = 300_000;
/// SLURM's reason of a job that its user holds.
const HELD: &str = "JobHeldUser";
/// Duration of the completing state.
const COMPLETING_MS: i64 = 6_000;

/// A running job or array task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    /// Job id.
    pub id: JobId,
    /// Start time in ms since the scenario's start.
    pub start_ms: i64,
}

/// Returns the job on a GPU at `t_ms`.
pub(crate) fn running_job(
    scenario: &Scenario,
    assignments: &[Assignment],
    t_ms: i64,
) -> Option<(Assignment, Run)> {
    assignments.iter().find_map(|assignment| {
        Some((*assignment, run(scenario, &scenario.jobs[assignment.job], assignment.slot, t_ms)?))
    })
}

/// Returns the run of a job on one of its GPUs at `t_ms`, unless it was cancelled or delayed.
fn run(scenario: &Scenario, job: &JobScript, slot: usize, t_ms: i64) -> Option<Run> {
    let (planned, whole) = planned(job, slot, t_ms)?;
    let job_override = scenario.interventions.job_override(planned.id);
    let gone = job_override.cancelled_by(t_ms).is_some();
    // Cancelling the pending rest of an array does not affect running tasks.
    let never_began =
        scenario.interventions.job_override(whole).cancelled_by(t_ms).is_some_and(|at| at < planned.start_ms);
    let start_ms = job_override.start_ms(planned.start_ms, t_ms);
    (!gone && !never_began && t_ms >= start_ms).then_some(Run { start_ms, ..planned })
}

/// Returns the scheduled run of a job on one of its GPUs at `t_ms`, and the id of the whole job.
fn planned(job: &JobScript, slot: usize, t_ms: i64) -> Option<(Run, JobId)> {
    let start_ms = job.start_ms?;
    let Some(array) = job.array else {
        let turn = job.every_ms.map_or(0, |every| (t_ms - start_ms).div_euclid(every));
        let turn_ms = turn * job.every_ms.unwrap_or(0);
        let runs = t_ms >= start_ms + turn_ms && job.end_ms.is_none_or(|end| t_ms < end + turn_ms);
        let id = number(job.id, turn);
        return runs.then(|| (Run { id, start_ms: start_ms + turn_ms }, id));
    };
    let first_ms = start_ms + stagger_ms(job, array, slot);
    let turn = job.every_ms.map_or(0, |every| (t_ms - first_ms).div_euclid(every));
    let since_ms = t_ms - first_ms - turn * job.every_ms.unwrap_or(0);
    let task =
        u32::try_from(since_ms.div_euclid(array.task_ms) * job.locations.len() as i64 + slot as i64).ok()?;
    let runs = since_ms >= 0 && task < array.tasks;
    let id = number(task_number(job, array, task), turn);
    let start_ms = t_ms - since_ms.rem_euclid(array.task_ms);
    runs.then(|| (Run { id, start_ms }, number(job.id, turn)))
}

/// Staggers the ends of array tasks.
fn stagger_ms(job: &JobScript, array: ArrayScript, slot: usize) -> i64 {
    array.task_ms * slot as i64 / job.locations.len().max(1) as i64
}

/// SLURM assigns ids to tasks as they start; the last one keeps the id of the array.
fn task_number(job: &JobScript, array: ArrayScript, task: u32) -> u32 {
    if task + 1 == array.tasks { job.id } else { job.id.saturating_add(1 + task) }
}

fn number(id: u32, turn: i64) -> JobId {
    let number = i64::from(id) + turn.saturating_mul(i64::from(NUMBER_STEP));
    JobId(u32::try_from(number.rem_euclid(i64::from(u32::MAX))).unwrap_or(id))
}

/// Returns the owner's jobs as listed by SLURM: pending, running, completing, and recently ended.
pub(crate) fn jobs(scenario: &Scenario, at: ScenarioTime) -> Vec<Job> {
    let mut listed = Vec::new();
    for script in scenario.jobs.iter().filter(|job| job.user == scenario.user) {
        for turn in turns(script, at.t_ms) {
            let entry = Entry { scenario, script, at, turn };
            match script.array {
                Some(array) => entry.tasks(array, &mut listed),
                None => listed.extend(entry.job()),
            }
        }
    }
    listed.sort_by_key(|job| job.id);
    listed
}

/// Returns the repetitions of a job that may be listed at `t_ms`.
fn turns(job: &JobScript, t_ms: i64) -> std::ops::RangeInclusive<i64> {
    let Some(every) = job.every_ms else { return 0..=0 };
    let newest = (t_ms - job.submitted_ms).div_euclid(every);
    let listed_ms = job.end_ms.unwrap_or(job.submitted_ms) - job.submitted_ms + LISTED_MS;
    newest - listed_ms.div_euclid(every) - 1..=newest
}

/// One repetition of a job at a given time.
struct Entry<'a> {
    scenario: &'a Scenario,
    script: &'a JobScript,
    at: ScenarioTime,
    turn: i64,
}

impl Entry<'_> {
    fn turn_ms(&self) -> i64 {
        self.turn * self.script.every_ms.unwrap_or(0)
    }

    /// Seconds since 1970.
    fn wall_s(&self, t_ms: i64) -> i64 {
        (self.at.start_wall_ms + t_ms).div_euclid(1_000)
    }

    /// Returns the job if it is not an array.
    fn job(&self) -> Option<Job> {
        let script = self.script;
        let mut job = self.pending(number(script.id, self.turn));
        job.label = Text::new(job.id.to_string());
        let id = job.id.to_string();
        self.set_log_paths(&mut job, &id);
        if let Some((leader, offset)) = script.het {
            job.label = Text::new(format!("{leader}+{offset}"));
            job.part_of = Some(Parent::Het { job: leader, offset });
        }
        let Some(start_ms) = script.start_ms.filter(|_| !script.nodes.is_empty()) else {
            job.start = self.slipping_estimate();
            return if self.is_submitted() { self.waiting(job) } else { None };
        };
        let end_ms = script.end_ms.map(|end| end + self.turn_ms());
        self.settle(job, start_ms + self.turn_ms(), end_ms, 0..script.locations.len())
    }

    /// Returns the started tasks of an array, and the pending rest as one entry.
    fn tasks(&self, array: ArrayScript, listed: &mut Vec<Job>) {
        let Some(start_ms) = self.script.start_ms else { return };
        let (slots, mut waiting) = (self.script.locations.len(), None);
        for task in 0..array.tasks {
            let (round, slot) = (i64::from(task) / slots as i64, task as usize % slots);
            let from_ms =
                start_ms + self.turn_ms() + stagger_ms(self.script, array, slot) + round * array.task_ms;
            if self.at.t_ms < from_ms {
                waiting.get_or_insert(task);
                continue;
            }
            let mut job = self.pending(number(task_number(self.script, array, task), self.turn));
            job.label = Text::new(format!("{}_{task}", number(self.script.id, self.turn)));
            let whole = number(self.script.id, self.turn);
            job.part_of = Some(Parent::Array { job: whole, task: Some(task) });
            let rest_ends_ms = self.scenario.interventions.job_override(whole).cancelled_by(self.at.t_ms);
            if rest_ends_ms.is_some_and(|at| at < from_ms) {
                continue;
            }
            self.set_log_paths(&mut job, &format!("{whole}_{task}"));
            listed.extend(self.settle(job, from_ms, Some(from_ms + array.task_ms), slot..slot + 1));
        }
        let rest = waiting.filter(|_| self.is_submitted()).map(|first| self.waiting_rest(array, first));
        listed.extend(rest.and_then(|rest| self.waiting(rest)));
    }

    /// Returns a pending job: waiting, held, or cancelled before its start.
    fn waiting(&self, mut job: Job) -> Option<Job> {
        let t_ms = self.at.t_ms;
        let job_override = self.scenario.interventions.job_override(job.id);
        if let Some(cancelled) = job_override.cancelled_by(t_ms) {
            job.state = JobState::Ended("CANCELLED".into());
            (job.start, job.reason) = (None, None);
            job.ended = Some(self.wall_s(cancelled));
            return (t_ms < cancelled + LISTED_MS).then_some(job);
        }
        if job_override.is_held() {
            (job.start, job.reason) = (None, Some(HELD.into()));
        } else if job_override.is_released_by(t_ms)
            && job.reason.as_ref().is_some_and(|why| why.as_str() == HELD)
        {
            job.reason = Some("Priority".into());
        }
        Some(job)
    }

    /// Sets the log paths; `id` is the job id in file names.
    fn set_log_paths(&self, job: &mut Job, id: &str) {
        let folder = self.script.workdir();
        job.command = Some(format!("{folder}/{}", self.script.script).into());
        job.stdout = Some(format!("{folder}/slurm-{id}.out").into());
        job.stderr = Some(format!("{folder}/slurm-{id}.err").into());
        job.workdir = Some(folder.into());
    }

    fn waiting_rest(&self, array: ArrayScript, first: u32) -> Job {
        let id = number(self.script.id, self.turn);
        let (last, slots) = (array.tasks - 1, self.script.locations.len());
        let range = if first == last { format!("{last}") } else { format!("{first}-{last}%{slots}") };
        Job {
            label: Text::new(format!("{id}_[{range}]")),
            part_of: Some(Parent::Array { job: id, task: None }),
            reason: if first == 0 { self.script.reason.clone() } else { Some("JobArrayTaskLimit".into()) },
            node_count: 1,
            gpu_count: Some(1),
            ..self.pending(id)
        }
    }

    fn is_submitted(&self) -> bool {
        self.at.t_ms >= self.script.submitted_ms + self.turn_ms()
    }

    /// Returns the expected start of a job that never starts, which is postponed repeatedly.
    fn slipping_estimate(&self) -> Option<i64> {
        let (hoped, cycle) = (self.script.start_ms?, self.script.cycle_ms);
        let late = (self.at.t_ms - hoped).max(-1).div_euclid(cycle) + 1;
        Some(self.wall_s(hoped + late * cycle))
    }

    /// Returns the job in its pending state.
    fn pending(&self, id: JobId) -> Job {
        let script = self.script;
        Job {
            label: Text::default(),
            name: script.name.clone(),
            account: script.account.clone(),
            partition: script.partition.clone(),
            qos: script.qos.clone(),
            reason: script.reason.clone(),
            dependency: script.dependency.clone(),
            mem_bytes: self.mem_bytes(),
            submitted: Some(self.wall_s(script.submitted_ms + self.turn_ms())),
            limit: script
                .limit_ms
                .map_or(TimeLimit::Unlimited, |limit| TimeLimit::Seconds(limit as u64 / 1_000)),
            node_count: script.asks_nodes,
            gpu_count: Some(script.asks_gpus),
            ..Job::new(id, script.user.clone(), JobState::Pending)
        }
    }

    /// Returns its memory: a share of the node's proportional to its GPUs.
    fn mem_bytes(&self) -> Option<u64> {
        let script = self.script;
        let first = script.nodes.first().or_else(|| (!self.scenario.nodes.is_empty()).then_some(&0))?;
        let node = &self.scenario.nodes[*first];
        let gpus = if script.array.is_some() { 1 } else { script.asks_gpus };
        Some(node.mem_bytes / 100 * 95 / (node.assignments.len() as u64).max(1) * u64::from(gpus))
    }

    /// Returns the job in its current state, with its GPUs (`slots`) once it has started; `None` if
    /// it is not listed.
    fn settle(
        &self,
        mut job: Job,
        start_ms: i64,
        end_ms: Option<i64>,
        slots: std::ops::Range<usize>,
    ) -> Option<Job> {
        let t_ms = self.at.t_ms;
        let job_override = self.scenario.interventions.job_override(job.id);
        let start_ms = job_override.start_ms(start_ms, t_ms);
        let cancelled = job_override.cancelled_by(t_ms);
        job.start = (start_ms < i64::MAX).then(|| self.wall_s(start_ms));
        job.restarts = job_override.restarts;
        if t_ms < start_ms || cancelled.is_some_and(|at| at < start_ms) {
            if job_override.restarts > 0 && !job_override.is_held() {
                job.reason = Some("BeginTime".into());
            }
            return if self.is_submitted() { self.waiting(job) } else { None };
        }
        (job.reason, job.dependency) = (None, None);
        let end_ms = cancelled.or(end_ms);
        job.state = match end_ms {
            Some(end) if t_ms >= end => {
                // Jobs that ended before the scenario's start are not listed.
                if t_ms >= end + LISTED_MS || end < 0 {
                    return None;
                }
                job.ended = Some(self.wall_s(end));
                let word = if cancelled.is_some() { "CANCELLED".into() } else { self.script.ends_as.clone() };
                job.exit = Some(exit_code(word.as_str()).into());
                JobState::Ended(word)
            }
            Some(end) if t_ms >= end - COMPLETING_MS => JobState::Completing,
            _ => JobState::Running,
        };
        self.assign(&mut job, slots);
        Some(job)
    }

    fn assign(&self, job: &mut Job, slots: std::ops::Range<usize>) {
        let mut cpus = 0;
        for location in &self.script.locations[slots.clone()] {
            let node = &self.scenario.nodes[location.node];
            cpus += node.cpus / (node.assignments.len() as u32).max(1);
            match job.gpus.last_mut().filter(|last| last.node == node.name) {
                Some(NodeGpus { set: GpuSet::Indices(indices), .. }) => indices.push(location.gpu),
                _ => {
                    let set = GpuSet::Indices(vec![location.gpu]);
                    job.gpus.push(NodeGpus { node: node.name.clone(), set });
                    job.nodes.push(node.name.clone());
                }
            }
        }
        if job.gpus.is_empty() {
            job.nodes =
                self.script.nodes.iter().map(|node| self.scenario.nodes[*node].name.clone()).collect();
        }
        job.node_count = job.nodes.len() as u32;
        job.batch_host = job.nodes.first().cloned();
        job.gpu_count = Some(slots.len() as u32);
        job.cpus = (cpus > 0).then_some(cpus);
    }
}

/// Returns the exit code for SLURM's end state: status, then signal.
fn exit_code(word: &str) -> &'static str {
    match word {
        "COMPLETED" => "0:0",
        "CANCELLED" | "TIMEOUT" => "0:15",
        "OUT_OF_MEMORY" => "0:125",
        _ => "1:0",
    }
}
