//! `relay wait`: returns once a job starts, ends or stalls.

use super::source::Source;
use super::{Answer, clock, exit_code};
use crate::api::{Job, Snapshot};
use crate::config::{Until, WaitArgs};
use crate::report::IDLE_PCT;
use nodeglass_protocol::GpuField;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Interval of checks.
const POLL: Duration = Duration::from_secs(2);

/// Waits.
///
/// # Errors
/// The relay cannot be reached any more.
pub async fn answer(source: &Source, args: &WaitArgs) -> anyhow::Result<Answer> {
    let started = Instant::now();
    let mut idle_since = None;
    loop {
        let snapshot = source.snapshot().await?;
        let job = snapshot.jobs.iter().find(|job| job.id == args.job.0);
        if let Some(answer) = done(job, args) {
            return Ok(answer);
        }
        let is_idle = job.is_some_and(|job| is_idle(job, &snapshot));
        idle_since = if is_idle { idle_since.or(Some(Instant::now())) } else { None };
        if let (Some(since), Some(stall)) = (idle_since, args.stall)
            && since.elapsed() >= stall
        {
            let how_long = clock(since.elapsed().as_secs());
            let notice = Some(format!("job {}: all of its GPUs have been idle for {how_long}", args.job));
            return Ok(Answer { notice, code: exit_code::STALLED, ..Answer::default() });
        }
        let left = args.timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            let state = job.map_or("not in the list", |job| job.state.as_str());
            return Ok(Answer::not_met(format!("job {}: still {state}", args.job)));
        }
        sleep(left.map_or(POLL, |left| POLL.min(left))).await;
    }
}

/// The answer, once what is waited for has happened, or cannot happen any more.
fn done(job: Option<&Job>, args: &WaitArgs) -> Option<Answer> {
    let Some(job) = job else {
        return Some(Answer::not_met(format!("job {} is not in the list of jobs", args.job)));
    };
    let has_ended = !job.is_active && job.state != "PENDING";
    let exit = job.exit_code.as_ref().map_or(String::new(), |code| format!(", exit code {code}"));
    let text = format!("job {}: {}{exit}\n", job.label, job.state);
    match args.until {
        Until::Start if job.is_active && job.state != "CONFIGURING" => Some(Answer::text(text)),
        _ if !has_ended => None,
        // It ran between two polls.
        Until::Start if has_run(job) => Some(Answer::text(text)),
        Until::End if matches!(job.state.as_str(), "COMPLETED" | "ENDED") => Some(Answer::text(text)),
        Until::Start | Until::End => Some(Answer { text, code: exit_code::JOB_FAILED, ..Answer::default() }),
    }
}

/// Whether a job that has ended was started. SLURM states the same time as start and end of one that was not.
fn has_run(job: &Job) -> bool {
    let times = job.started_at.zip(job.ended_at);
    job.state == "COMPLETED" || times.is_some_and(|(started, ended)| started.as_millis() < ended.as_millis())
}

/// Whether all GPUs of a running job are idle; unknown readings are not.
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
    use nodeglass_protocol::JobId;

    fn outcome(state: &str, is_active: bool, until: Until) -> Option<u8> {
        let job = Job { state: state.to_owned(), is_active, ..snapshot().jobs[0].clone() };
        let args = WaitArgs { job: JobId(17), until, stall: None, timeout: None, which: Default::default() };
        done(Some(&job), &args).map(|answer| answer.code)
    }

    #[test]
    fn the_exit_code_says_how_it_went() {
        assert_eq!(outcome("PENDING", false, Until::Start), None);
        assert_eq!(outcome("CONFIGURING", true, Until::Start), None);
        assert_eq!(outcome("RUNNING", true, Until::Start), Some(0));
        assert_eq!(outcome("CANCELLED", false, Until::Start), Some(exit_code::JOB_FAILED));
        assert_eq!(outcome("COMPLETED", false, Until::Start), Some(0), "it ran between two polls");
        assert_eq!(outcome("RUNNING", true, Until::End), None);
        assert_eq!(outcome("COMPLETING", true, Until::End), None);
        assert_eq!(outcome("COMPLETED", false, Until::End), Some(0));
        assert_eq!(outcome("TIMEOUT", false, Until::End), Some(exit_code::JOB_FAILED));
        let at = |ms| Some(crate::api::Timestamp::from_millis(ms));
        let failed = |start_ms, end_ms| Job {
            state: "FAILED".to_owned(),
            is_active: false,
            started_at: at(start_ms),
            ended_at: at(end_ms),
            ..snapshot().jobs[0].clone()
        };
        assert!(has_run(&failed(1_000, 2_000)) && !has_run(&failed(2_000, 2_000)));
        let args = WaitArgs {
            job: JobId(99),
            until: Until::End,
            stall: None,
            timeout: None,
            which: Default::default(),
        };
        assert_eq!(done(None, &args).map(|answer| answer.code), Some(exit_code::NOT_MET));
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
