//! `relay wait`: returns once a job starts, ends or stalls; of an array, once all of its tasks have.

use super::source::Source;
use super::{Answer, clock, exit_code};
use nodeglass_api::{Job, Snapshot};
use nodeglass_app::terminal;
use nodeglass_config::{Until, WaitArgs};
use nodeglass_protocol::GpuField;
use nodeglass_report::IDLE_PCT;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Interval of checks.
const POLL: Duration = Duration::from_secs(2);

/// Waits.
///
/// # Errors
/// The relay cannot be reached any more.
pub async fn answer(source: &mut Source, args: &WaitArgs) -> anyhow::Result<Answer> {
    let end = args.timeout.map(|timeout| Instant::now() + timeout);
    let mut watched = Watched::default();
    let mut list = JobList::default();
    loop {
        let snapshot = source.patient_state(end).await?;
        let snapshot = match watched.is_unknown(&snapshot, args) || watched.has_lost_one(&snapshot, args) {
            true => list.renewed(source, args, end).await?,
            false => {
                // A connection that was lost is found again by the next turn.
                list.report(source.slurm().await.ok().and_then(|slurm| slurm.staleness()));
                Some(snapshot)
            }
        };
        if let Some(snapshot) = &snapshot
            && let Some(answer) = watched.check(snapshot, args, Instant::now())
        {
            return watched.printed(answer, args.json);
        }
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            let late = match &snapshot {
                Some(snapshot) => watched.late(snapshot, args),
                None => Answer::not_met(list.outage.unwrap_or_default()),
            };
            return watched.printed(late, args.json);
        }
        sleep(left.map_or(POLL, |left| POLL.min(left))).await;
    }
}

/// The list of jobs, which SLURM may fail to renew.
#[derive(Debug, Default)]
struct JobList {
    /// Reason for not renewing it last, as it was printed.
    outage: Option<String>,
}

impl JobList {
    /// Returns the state from a list of jobs that is newer than the question, until `end`; `None` while SLURM does
    /// not respond and the job is unknown therefore.
    async fn renewed(
        &mut self,
        source: &mut Source,
        args: &WaitArgs,
        end: Option<Instant>,
    ) -> anyhow::Result<Option<Snapshot>> {
        let far = Duration::from_secs(86_400);
        let renewed = timeout_at(end.unwrap_or_else(|| Instant::now() + far), source.renew_jobs(&args.job));
        match renewed.await {
            Ok(Ok(_)) => source.patient_state(end).await.map(Some),
            Ok(Err(why)) => {
                self.report(Some(format!("{why:#}")));
                Ok(None)
            }
            Err(_) => {
                let why =
                    format!("job {} is not in the list of jobs, and SLURM did not respond in time", args.job);
                self.outage.get_or_insert(why);
                Ok(None)
            }
        }
    }

    /// Prints why the list is not renewed, once for each outage: its numbers change.
    fn report(&mut self, outage: Option<String>) {
        if let (None, Some(outage)) = (&self.outage, &outage) {
            terminal::complain(format_args!("{outage}; waiting"));
        }
        self.outage = outage;
    }
}

/// State of the jobs that are waited for, by raw id.
#[derive(Debug, Default)]
struct Watched {
    /// Those that were seen and for which what is waited for may still happen.
    waiting: BTreeMap<u32, Job>,
    /// Those for which it has happened, or cannot happen any more. Ended jobs leave the list after a while.
    done: BTreeMap<u32, Outcome>,
    /// Since when all GPUs of a job are idle.
    idle_since: BTreeMap<u32, Instant>,
}

/// The state of a job that only left the list: it may have succeeded or failed.
const UNKNOWN_OUTCOME: &str = "ENDED";

/// Outcome of one job.
#[derive(Clone, Debug)]
struct Outcome {
    job: Job,
    has_succeeded: bool,
}

impl Watched {
    /// Returns whether the list has no job that is meant, and never had.
    fn is_unknown(&self, snapshot: &Snapshot, args: &WaitArgs) -> bool {
        self.waiting.is_empty() && self.done.is_empty() && args.job.select(&snapshot.jobs).is_empty()
    }

    /// Returns whether a job is missing that was listed before. A relay that was started anew may not have a list yet.
    fn has_lost_one(&self, snapshot: &Snapshot, args: &WaitArgs) -> bool {
        let listed = args.job.select(&snapshot.jobs);
        self.waiting.keys().any(|id| !listed.iter().any(|job| job.id == *id && self.is_same(job)))
    }

    /// Returns whether a listed job is the one that is waited for, rather than another that got its number.
    fn is_same(&self, job: &Job) -> bool {
        let earlier = self.waiting.get(&job.id);
        earlier.is_none_or(|earlier| !job.submission().reuses_number_of(&earlier.submission()))
    }

    /// The answer, once there is one.
    fn check(&mut self, snapshot: &Snapshot, args: &WaitArgs, now: Instant) -> Option<Answer> {
        let mut jobs = args.job.select(&snapshot.jobs);
        if self.is_unknown(snapshot, args) {
            return Some(Answer::not_met(format!("there is no job {} in the list", args.job)));
        }
        if let Err(several) = args.job.of_one_cluster(&snapshot.jobs) {
            return Some(Answer::not_met(several.to_string()));
        }
        jobs.retain(|job| self.is_same(job));
        let listed: BTreeSet<u32> = jobs.iter().map(|job| job.id).collect();
        let waiting = std::mem::take(&mut self.waiting);
        let gone: Vec<String> =
            waiting.into_values().filter(|job| !listed.contains(&job.id)).map(|job| job.label).collect();
        let mut has_pending = false;
        for job in jobs.iter().copied() {
            if let Some(outcome) = outcome(job, args.until) {
                self.done.insert(job.id, outcome);
                self.idle_since.remove(&job.id);
                continue;
            }
            has_pending = true;
            // The pending rest of an array is not a job that ends: its last task takes its id.
            if job.array.as_ref().is_none_or(|array| array.task.is_some()) {
                self.waiting.insert(job.id, job.clone());
            }
            if !is_idle(job, snapshot) {
                self.idle_since.remove(&job.id);
                continue;
            }
            let since = *self.idle_since.entry(job.id).or_insert(now);
            if args.stall.is_some_and(|stall| now.duration_since(since) >= stall) {
                let how_long = clock(now.duration_since(since).as_secs());
                let notice =
                    Some(format!("job {}: all of its GPUs have been idle for {how_long}", job.label));
                return Some(Answer { notice, code: exit_code::STALLED, ..Answer::default() });
            }
        }
        if !gone.is_empty() {
            return Some(Answer::not_met(format!(
                "job {} left the list of jobs before the relay saw its end",
                gone.join(", ")
            )));
        }
        if args.stall.is_some() && has_pending && jobs.iter().all(|job| job.gpu_count == Some(0)) {
            return Some(Answer::not_met(format!("job {} has no GPUs and cannot stall", args.job)));
        }
        (!has_pending).then(|| self.answer())
    }

    fn answer(&self) -> Answer {
        let line = |Outcome { job, .. }: &Outcome| {
            let exit = job.exit_code.as_ref().map_or(String::new(), |code| format!(", exit code {code}"));
            format!("job {}: {}{exit}\n", job.label, job.state)
        };
        let text = self.done.values().map(line).collect();
        let other =
            || self.done.values().filter(|outcome| !outcome.has_succeeded).map(|outcome| &outcome.job);
        let unknown: Vec<&str> =
            other().filter(|job| job.state == UNKNOWN_OUTCOME).map(|job| job.label.as_str()).collect();
        if !unknown.is_empty() && unknown.len() == other().count() {
            let notice = format!("SLURM does not state how job {} ended", unknown.join(", "));
            return Answer { text, ..Answer::not_met(notice) };
        }
        Answer {
            text,
            code: if other().next().is_none() { 0 } else { exit_code::JOB_FAILED },
            ..Answer::default()
        }
    }

    /// An answer as it is printed: in JSON the jobs for which it has happened.
    fn printed(&self, answer: Answer, json: bool) -> anyhow::Result<Answer> {
        let jobs: Vec<&Job> = self.done.values().map(|outcome| &outcome.job).collect();
        Ok(if json { Answer { text: Answer::json(&jobs)?.text, ..answer } } else { answer })
    }

    /// The answer when the time is over.
    fn late(&self, snapshot: &Snapshot, args: &WaitArgs) -> Answer {
        let jobs = args.job.select(&snapshot.jobs);
        let still = jobs.iter().filter(|job| !self.done.contains_key(&job.id));
        let lines: Vec<_> = still.map(|job| format!("job {}: still {}", job.label, job.state)).collect();
        Answer::not_met(lines.join("\n"))
    }
}

/// Returns the outcome, once the event has happened, or cannot happen any more.
fn outcome(job: &Job, until: Until) -> Option<Outcome> {
    let has_started = until == Until::Start && job.is_active && job.state != "CONFIGURING";
    let has_succeeded = match until {
        // It may also have run between two polls.
        Until::Start => has_started || has_run(job),
        Until::End => job.state == "COMPLETED",
    };
    (has_started || job.has_ended()).then(|| Outcome { job: job.clone(), has_succeeded })
}

/// Returns whether an ended job was started. SLURM states equal times of start and end for a job that was not.
fn has_run(job: &Job) -> bool {
    let times = job.started_at.zip(job.ended_at);
    job.state == "COMPLETED" || times.is_some_and(|(started, ended)| started.as_millis() < ended.as_millis())
}

/// Returns whether all GPUs of a running job are idle; unknown readings are not.
fn is_idle(job: &Job, snapshot: &Snapshot) -> bool {
    let mut own =
        snapshot.gpus.iter().filter(|gpu| gpu.jobs.iter().any(|owner| owner.job == job.id)).peekable();
    job.state == "RUNNING"
        && own.peek().is_some()
        && own.all(|gpu| {
            gpu.connection.is_current()
                && gpu.readings.value(GpuField::Util).is_some_and(|pct| pct <= IDLE_PCT)
        })
}

#[cfg(test)]
mod tests {
    use super::super::tests::snapshot;
    use super::*;
    use nodeglass_api::{ArrayTask, Timestamp};

    fn args(job: &str, until: Until) -> WaitArgs {
        let (job, which) = (job.parse().unwrap(), Default::default());
        WaitArgs { job, until, stall: None, timeout: None, json: false, which }
    }

    fn code(state: &str, is_active: bool, until: Until) -> Option<u8> {
        let mut snapshot = snapshot();
        snapshot.jobs[0] = Job { state: state.to_owned(), is_active, ..snapshot.jobs[0].clone() };
        Watched::default().check(&snapshot, &args("17", until), Instant::now()).map(|answer| answer.code)
    }

    /// The tasks 1 and 2 of array 40 in these states, and what has not started.
    fn array(states: [&str; 2], has_rest: bool) -> Snapshot {
        let job = |id, label: &str, task, state: &str| Job {
            id,
            label: label.to_owned(),
            array: Some(ArrayTask { job: 40, task }),
            state: state.to_owned(),
            is_active: state == "RUNNING",
            ..snapshot().jobs[0].clone()
        };
        let mut jobs = vec![job(41, "40_1", Some(1), states[0]), job(42, "40_2", Some(2), states[1])];
        if has_rest {
            jobs.push(job(40, "40_[3-5%2]", None, "PENDING"));
        }
        Snapshot { jobs, ..Snapshot::default() }
    }

    #[test]
    fn the_exit_code_says_how_it_went() {
        assert_eq!(code("PENDING", false, Until::Start), None);
        assert_eq!(code("CONFIGURING", true, Until::Start), None);
        assert_eq!(code("RUNNING", true, Until::Start), Some(0));
        assert_eq!(code("CANCELLED", false, Until::Start), Some(exit_code::JOB_FAILED));
        assert_eq!(code("COMPLETED", false, Until::Start), Some(0), "it ran between two polls");
        assert_eq!(code("RUNNING", true, Until::End), None);
        assert_eq!(code("COMPLETING", true, Until::End), None);
        assert_eq!(code("COMPLETED", false, Until::End), Some(0));
        assert_eq!(code("TIMEOUT", false, Until::End), Some(exit_code::JOB_FAILED));
        assert_eq!(code("ENDED", false, Until::End), Some(exit_code::NOT_MET), "it may have failed");
        let unknown = Watched::default().check(&snapshot(), &args("99", Until::End), Instant::now()).unwrap();
        assert_eq!(unknown.code, exit_code::NOT_MET);
        assert_eq!(unknown.notice.as_deref(), Some("there is no job 99 in the list"));
    }

    #[test]
    fn an_array_is_waited_for_until_its_last_task() {
        let (order, now) = (args("40", Until::End), Instant::now());
        let mut watched = Watched::default();
        assert_eq!(watched.check(&array(["RUNNING", "RUNNING"], true), &order, now), None);
        assert_eq!(watched.check(&array(["COMPLETED", "RUNNING"], true), &order, now), None);
        // A task that has ended leaves the list; the others still count.
        let mut later = array(["COMPLETED", "FAILED"], true);
        later.jobs.remove(0);
        assert_eq!(watched.check(&later, &order, now), None);
        later.jobs.pop();
        let answer = watched.check(&later, &order, now).unwrap();
        assert_eq!((answer.text.as_str(), answer.code), ("job 40_1: COMPLETED\njob 40_2: FAILED\n", 4));
        let json: serde_json::Value =
            serde_json::from_str(&watched.printed(answer, true).unwrap().text).unwrap();
        assert_eq!((&json[0]["label"], &json[1]["state"]), (&"40_1".into(), &"FAILED".into()));
        // One task, by its label.
        let one =
            Watched::default().check(&array(["COMPLETED", "RUNNING"], true), &args("40_1", Until::End), now);
        assert_eq!(one.map(|answer| answer.code), Some(0));
        assert_eq!(
            Watched::default().check(&array(["RUNNING"; 2], true), &args("40_4", Until::Start), now),
            None
        );
    }

    #[test]
    fn a_job_that_vanishes_has_not_succeeded() {
        let (order, now) = (args("40_1", Until::End), Instant::now());
        let mut watched = Watched::default();
        assert_eq!(watched.check(&array(["RUNNING", "RUNNING"], false), &order, now), None);
        // A newer list is awaited first: this one may be of a relay that was started anew.
        assert!(watched.has_lost_one(&Snapshot::default(), &order));
        assert!(!watched.has_lost_one(&array(["RUNNING", "RUNNING"], false), &order));
        let answer = watched.check(&Snapshot::default(), &order, now).unwrap();
        assert_eq!(answer.code, exit_code::NOT_MET);
        assert!(answer.notice.unwrap().contains("40_1 left the list"));
    }

    #[test]
    fn a_job_that_got_the_number_of_a_lost_one_is_not_it() {
        let (order, now) = (args("17", Until::End), Instant::now());
        let mut watched = Watched::default();
        let mut list = snapshot();
        list.jobs[0].submitted_at = Some(Timestamp::from_millis(100_000));
        assert_eq!(watched.check(&list, &order, now), None);
        let ended = Job {
            name: "other".to_owned(),
            submitted_at: Some(Timestamp::from_millis(200_000)),
            state: "COMPLETED".to_owned(),
            is_active: false,
            ..list.jobs[0].clone()
        };
        list.jobs[0] = ended;
        assert!(watched.has_lost_one(&list, &order));
        assert_eq!(watched.check(&list, &order, now).unwrap().code, exit_code::NOT_MET);
    }

    #[test]
    fn a_stall_is_reported_after_its_time() {
        let mut idle = snapshot();
        idle.gpus.retain(|gpu| gpu.uuid != "GPU-n1-0");
        let order = WaitArgs { stall: Some(Duration::from_secs(60)), ..args("17", Until::End) };
        let (mut watched, now) = (Watched::default(), Instant::now());
        assert_eq!(watched.check(&idle, &order, now), None);
        assert_eq!(watched.check(&idle, &order, now + Duration::from_secs(59)), None);
        let answer = watched.check(&idle, &order, now + Duration::from_secs(60)).unwrap();
        assert_eq!(
            (answer.code, answer.notice.unwrap().contains("idle for 1:00")),
            (exit_code::STALLED, true)
        );
    }

    #[test]
    fn a_job_without_gpus_cannot_stall() {
        let mut snapshot = snapshot();
        let order = WaitArgs { stall: Some(Duration::from_secs(60)), ..args("17", Until::End) };
        let check = |snapshot: &Snapshot| Watched::default().check(snapshot, &order, Instant::now());
        snapshot.jobs[0].gpu_count = None;
        assert_eq!(check(&snapshot), None, "it is not known");
        snapshot.jobs[0].gpu_count = Some(0);
        let answer = check(&snapshot).unwrap();
        assert_eq!(answer.notice.as_deref(), Some("job 17 has no GPUs and cannot stall"));
        assert_eq!(answer.code, exit_code::NOT_MET);
        (snapshot.jobs[0].state, snapshot.jobs[0].is_active) = ("COMPLETED".to_owned(), false);
        assert_eq!(check(&snapshot).map(|answer| answer.code), Some(0));
    }

    #[test]
    fn a_job_stalls_only_if_all_of_its_gpus_are_known_to_be_idle() {
        let mut idle = snapshot();
        let job = idle.jobs[0].clone();
        assert!(!is_idle(&job, &idle));
        idle.gpus.retain(|gpu| gpu.uuid != "GPU-n1-0");
        assert!(is_idle(&job, &idle), "the other GPU of the job is idle");
        idle.gpus.retain(|gpu| gpu.jobs.is_empty());
        assert!(!is_idle(&job, &idle), "no GPU is known");
    }
}
