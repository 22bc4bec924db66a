//! Further conclusions about running jobs: progress of their programs, and limits of their GPUs.

use super::job_log::{JobLogs, Progress};
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::insight::{Bottleneck, BottleneckKind, JobInsight, JobProgress, ProgressEnd};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::{JobId, Text};
use std::collections::BTreeMap;

/// Returns the conclusions about the jobs that hold nodes, by id, without jobs about which nothing is known.
/// `computing` has the readings of jobs whose GPUs are busy computing.
pub(super) fn of_jobs(
    logs: &JobLogs,
    findings: &[Finding],
    computing: &BTreeMap<JobId, String>,
    jobs: &[Job],
) -> Vec<JobInsight> {
    let mut bottlenecks = bottlenecks(findings, computing);
    let insight = |job: &Job| {
        let progress = logs.get(&job.id).and_then(|log| log.progress.as_ref()).map(wire);
        let bottleneck = bottlenecks.remove(&job.id);
        let is_known = progress.is_some() || bottleneck.is_some();
        is_known.then_some(JobInsight { job: job.id, progress, bottleneck })
    };
    let mut insights: Vec<_> = jobs.iter().filter(|job| job.is_active()).filter_map(insight).collect();
    insights.sort_by_key(|insight| insight.job);
    insights
}

/// Returns the limits of jobs: as stated by active findings, so both agree, or else computing.
fn bottlenecks(findings: &[Finding], computing: &BTreeMap<JobId, String>) -> BTreeMap<JobId, Bottleneck> {
    let stated = |finding: &Finding| match finding.jobs.as_slice() {
        [job] if finding.is_active() => Some((
            *job,
            kind_of(finding.kind)?,
            finding.evidence.iter().map(Text::as_str).collect::<Vec<_>>().join(" · "),
        )),
        _ => None,
    };
    let computes = computing.iter().map(|(job, evidence)| (*job, BottleneckKind::Compute, evidence.clone()));
    let all = computes.chain(findings.iter().filter_map(stated));
    all.map(|(job, kind, evidence)| (job, Bottleneck { kind, evidence: Text::new(evidence) })).collect()
}

fn kind_of(kind: FindingKind) -> Option<BottleneckKind> {
    match kind {
        FindingKind::InputBound => Some(BottleneckKind::Input),
        FindingKind::CommunicationBound => Some(BottleneckKind::Communication),
        FindingKind::MemoryBound => Some(BottleneckKind::MemoryBandwidth),
        FindingKind::LowEfficiency => Some(BottleneckKind::Latency),
        _ => None,
    }
}

fn wire(progress: &Progress) -> JobProgress {
    let end = |(earliest_at_ms, latest_at_ms)| ProgressEnd { earliest_at_ms, latest_at_ms };
    JobProgress {
        label: progress.label.clone(),
        done: progress.done,
        total: progress.total,
        epoch: progress.epoch,
        rate_per_s: progress.rate,
        advanced_at_ms: progress.advanced_ms,
        end: progress.end_ms.map(end),
        part_end: progress.part_end_ms.map(end),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job_log::JobLog;
    use nodeglass_protocol::job::JobState;

    #[test]
    fn a_running_job_has_the_progress_that_its_logs_state() {
        let progress = Progress {
            label: "epoch".into(),
            done: 3.0,
            total: Some(10.0),
            advanced_ms: 5_000,
            rate: Some(0.5),
            end_ms: Some((19_000, 21_000)),
            ..Progress::default()
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
        let insights = of_jobs(&logs, &[], &BTreeMap::new(), &jobs);
        let [only] = insights.as_slice() else { panic!("{insights:?}") };
        let progress = only.progress.as_ref().unwrap();
        assert_eq!((only.job, progress.ratio()), (JobId(1), Some(0.3)));
        assert_eq!(progress.end, Some(ProgressEnd { earliest_at_ms: 19_000, latest_at_ms: 21_000 }));
    }
}
