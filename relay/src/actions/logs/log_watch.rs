//! Watches the logs of the owner's jobs for messages and progress.

use super::{Logs, Recipient, TailReader};
use crate::clock::Clock;
use crate::findings::job_log::{JobLog, JobLogs, LogPatterns, LogScanner};
use crate::fleet::Event;
use nodeglass_protocol::JobId;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::request::{LogRef, LogStream};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval};

/// Polling interval: a shared file system answers two requests per job and interval.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of jobs whose logs are watched, those that started last.
const MAX_JOBS: usize = 32;
/// Maximum number of jobs whose logs are read at the same time.
const MAX_READS: usize = 4;
/// How long after its end a job's logs are read, in s: the last lines explain how it ended.
const AFTER_END_S: i64 = 120;
/// How long after its end what its logs stated is kept, in s.
const KEPT_S: i64 = 3_600;
/// Lines that are first read when a job has run this long, in s, may be older.
const NEW_S: i64 = 60;

/// Watches the logs of the owner's running jobs, and of those that just ended.
#[derive(Debug)]
pub struct LogWatch {
    logs: Logs,
    events: mpsc::Sender<Event>,
    patterns: Arc<LogPatterns>,
    clock: Clock,
    jobs: BTreeMap<JobId, WatchedJob>,
    reported: JobLogs,
}

/// The logs of a job.
#[derive(Debug)]
struct WatchedJob {
    /// When this run of the job started, in s since 1970: a requeued one writes new logs.
    start_s: Option<i64>,
    scanner: LogScanner,
    readers: Vec<TailReader>,
    state: JobLog,
}

impl LogWatch {
    pub(in crate::actions) fn new(
        logs: Logs,
        events: mpsc::Sender<Event>,
        patterns: LogPatterns,
        clock: Clock,
    ) -> Self {
        let patterns = Arc::new(patterns);
        Self { logs, events, patterns, clock, jobs: BTreeMap::new(), reported: JobLogs::new() }
    }

    /// Polls until the relay shuts down.
    pub async fn run(mut self) {
        let mut ticks = interval(POLL_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let Some(jobs) = self.logs.0.hub.jobs_of(self.logs.0.owner.clone()).await else { return };
            self.poll(jobs).await;
            let states = self.jobs.iter().map(|(id, job)| (*id, job.state.clone())).collect();
            if states != self.reported {
                self.reported = states;
                if self.events.send(Event::JobLogs(self.reported.clone())).await.is_err() {
                    return;
                }
            }
        }
    }

    async fn poll(&mut self, mut jobs: Vec<Job>) {
        let wall_s = (Clock::wall_ms() / 1_000).cast_signed();
        jobs.retain(|job| is_watched(job, wall_s));
        jobs.sort_by_key(|job| std::cmp::Reverse(job.start));
        jobs.truncate(MAX_JOBS);
        self.jobs.retain(|id, watched| jobs.iter().any(|job| job.id == *id && job.start == watched.start_s));
        let mut reads = JoinSet::new();
        for job in jobs {
            let is_over = job.ended.is_some_and(|ended| ended + AFTER_END_S < wall_s);
            if is_over && self.jobs.contains_key(&job.id) {
                continue;
            }
            let watched = self.jobs.remove(&job.id);
            let watched =
                watched.unwrap_or_else(|| WatchedJob::new(&self.logs, &self.patterns, &job, self.clock));
            if reads.len() >= MAX_READS {
                self.keep(reads.join_next().await);
            }
            reads.spawn(watched.read(job, wall_s, self.clock));
        }
        while let Some(read) = reads.join_next().await {
            self.keep(Some(read));
        }
    }

    /// Keeps what was read; a job whose reading panicked begins anew.
    fn keep(&mut self, read: Option<Result<(JobId, WatchedJob), tokio::task::JoinError>>) {
        if let Some(Ok((id, job))) = read {
            self.jobs.insert(id, job);
        }
    }
}

/// Returns whether a job writes logs, or has just stopped.
fn is_watched(job: &Job, wall_s: i64) -> bool {
    match job.state {
        JobState::Running => true,
        JobState::Ended(_) => job.start.is_some() && job.ended.is_some_and(|ended| ended + KEPT_S >= wall_s),
        _ => false,
    }
}

impl WatchedJob {
    fn new(logs: &Logs, patterns: &Arc<LogPatterns>, job: &Job, clock: Clock) -> Self {
        let has_stderr = job.stderr.is_some() && job.stderr != job.stdout;
        let streams = [Some(LogStream::Stdout), has_stderr.then_some(LogStream::Stderr)];
        let reader = |stream| TailReader::new(logs.clone(), LogRef { job: job.id, stream }, Recipient::Owner);
        Self {
            start_s: job.start,
            scanner: LogScanner::new(patterns.clone(), clock.now_ms()),
            readers: streams.into_iter().flatten().map(reader).collect(),
            state: JobLog::default(),
        }
    }

    /// Reads what is new in its logs. A log that cannot be read states nothing.
    async fn read(mut self, job: Job, wall_s: i64, clock: Clock) -> (JobId, Self) {
        for reader in &mut self.readers {
            let is_first = reader.after == 0 && job.start.is_none_or(|start_s| start_s + NEW_S < wall_s);
            match reader.read(&job).await {
                Ok(tail) => self.scanner.read(&tail.lines, tail.partial.as_ref(), is_first, clock.now_ms()),
                Err(why) => tracing::debug!(job.id = %job.id, %why, "log not read"),
            }
        }
        self.state = self.scanner.state(clock.now_ms());
        (job.id, self)
    }
}
