//! What is known of running jobs besides findings: how far their programs are.

use super::job_log::{JobLogs, Progress};
use nodeglass_protocol::insight::{JobInsight, JobProgress, ProgressEnd};
use nodeglass_protocol::job::Job;

/// Returns what is known of the jobs that hold nodes, by id; those of which nothing is known are left out.
pub(super) fn of_jobs(logs: &JobLogs, jobs: &[Job]) -> Vec<JobInsight> {
    let is_running = |id| jobs.iter().any(|job| job.id == id && job.is_active());
    let insight = |(id, progress): (_, &Progress)| JobInsight { job: id, progress: Some(wire(progress)) };
    let stated = logs.iter().filter_map(|(id, log)| Some((*id, log.progress.as_ref()?)));
    stated.filter(|(id, _)| is_running(*id)).map(insight).collect()
}

fn wire(progress: &Progress) -> JobProgress {
    let end = |(earliest_at_ms, latest_at_ms)| ProgressEnd { earliest_at_ms, latest_at_ms };
    JobProgress {
        label: progress.label.clone(),
        done: progress.done,
        total: progress.total,
        rate_per_s: progress.rate,
        advanced_at_ms: progress.advanced_ms,
        end: progress.end_ms.map(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::findings::job_log::JobLog;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::JobState;

    #[test]
    fn a_running_job_has_the_progress_that_its_logs_state() {
        let progress = Progress {
            label: "epoch".into(),
            done: 3.0,
            total: 10.0,
            advanced_ms: 5_000,
            rate: Some(0.5),
            end_ms: Some((19_000, 21_000)),
            steady_ms: 60_000,
            advances: 3,
        };
        let log = |progress| JobLog { progress, ..JobLog::default() };
        let logs = JobLogs::from([
            (JobId(1), log(Some(progress.clone()))),
            (JobId(2), log(None)),
            (JobId(3), log(Some(progress))),
        ]);
        let job = |id, state| Job::new(JobId(id), "alice".into(), state);
        let ended = JobState::Ended("COMPLETED".into());
        let jobs = [job(1, JobState::Running), job(2, JobState::Running), job(3, ended)];
        let insights = of_jobs(&logs, &jobs);
        let [only] = insights.as_slice() else { panic!("{insights:?}") };
        let progress = only.progress.as_ref().unwrap();
        assert_eq!((only.job, progress.ratio()), (JobId(1), 0.3));
        assert_eq!(progress.end, Some(ProgressEnd { earliest_at_ms: 19_000, latest_at_ms: 21_000 }));
    }
}
