//! Reads the logs of simulated jobs, as the relay's task does.

use nodeglass_findings::job_log::{FollowedLog, JobLog, JobLogs, LogPatterns, ReadTime};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::request::{Audience, ProbeRequest, Response};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_sim::{Scenario, ScenarioTime};
use std::collections::BTreeMap;
use std::sync::Arc;

/// The logs of all jobs that run or have ended.
pub(super) struct Logs {
    patterns: Arc<LogPatterns>,
    jobs: BTreeMap<JobId, Vec<Log>>,
}

/// One log of a job.
struct Log {
    path: String,
    /// Offset at which the last read ended.
    after: u64,
    content: FollowedLog,
}

impl Logs {
    pub(super) fn new() -> Self {
        Self { patterns: Arc::new(LogPatterns::new(&[])), jobs: BTreeMap::new() }
    }

    /// Reads what is new, by the probe of a node, and returns what the logs state.
    pub(super) fn poll(
        &mut self,
        scenario: &Scenario,
        node: &NodeName,
        at: ScenarioTime,
        now_ms: u64,
    ) -> JobLogs {
        let wall_s = (at.wall_ms() / 1_000).cast_signed();
        let jobs = scenario.jobs(at);
        for job in jobs.iter().filter(|job| job.state != JobState::Pending && job.start.is_some()) {
            self.jobs.entry(job.id).or_insert_with(|| logs_of(job, &self.patterns, now_ms));
        }
        let states = self.jobs.iter_mut().map(|(id, logs)| {
            let read = |log: &mut Log| log.read(scenario, node, at, wall_s, now_ms);
            (*id, JobLog::merge(logs.iter_mut().map(read)))
        });
        states.collect()
    }
}

fn logs_of(job: &Job, patterns: &Arc<LogPatterns>, now_ms: u64) -> Vec<Log> {
    let paths = [&job.stdout, &job.stderr].into_iter().flatten();
    let log = |path: &nodeglass_protocol::LongText| Log {
        path: path.to_string(),
        after: 0,
        content: FollowedLog::new(patterns.clone(), job.start, now_ms),
    };
    paths.map(log).collect()
}

impl Log {
    fn read(
        &mut self,
        scenario: &Scenario,
        node: &NodeName,
        at: ScenarioTime,
        wall_s: i64,
        now_ms: u64,
    ) -> JobLog {
        let (path, after) = (self.path.clone(), self.after);
        let request = ProbeRequest::Tail { path, after, audience: Audience::Owner };
        let tail = match scenario.respond(node, at, &request) {
            Some(Response::Tail(tail)) if tail.error.is_none() => Some(tail),
            _ => None,
        };
        self.after = tail.as_ref().map_or(self.after, |tail| tail.end);
        self.content
            .read(tail.as_ref(), ReadTime { relay_ms: now_ms, wall_s, utc_offset_s: 0, written_s: None })
    }
}
