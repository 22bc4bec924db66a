//! Watches the logs of the owner's jobs for messages and progress.

use super::{Logs, Recipient, TailReader};
use nodeglass_findings::job_log::{FollowedLog, JobLog, JobLogs, LogPatterns, ReadTime};
use nodeglass_fleet::Event;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::request::{LogRef, LogStream};
use nodeglass_protocol::{JobId, Text};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Polling interval: a shared file system serves two requests per job and interval.
const POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Maximum number of jobs whose logs are watched; the last started ones count.
const MAX_JOBS: usize = 32;
/// Maximum number of jobs whose logs are read at the same time.
const MAX_READS: usize = 4;
/// Pause after searching logs, as a multiple of the search time: an expensive pattern of the settings takes at most a
/// quarter of a core.
const REST: u32 = 3;
/// Maximum length of such a rest.
const MAX_REST: Duration = Duration::from_secs(600);
/// Time after its end in which a job's logs are read, in s: the last lines explain how it ended.
const AFTER_END_S: i64 = 120;
/// Time after its end for which the content of its logs is kept, in s.
const KEPT_S: i64 = 3_600;

/// Watches the logs of the owner's running jobs, and of jobs that just ended.
#[derive(Debug)]
pub struct LogWatch {
    logs: Logs,
    /// The recipient of what they contain.
    recipient: Recipient,
    events: mpsc::Sender<Event>,
    patterns: Arc<LogPatterns>,
    clock: Clock,
    jobs: BTreeMap<JobId, WatchedJob>,
    reported: JobLogs,
    /// Time spent on searching logs since the last rest, in all threads.
    searched: Duration,
}

/// The logs of a job.
#[derive(Debug)]
struct WatchedJob {
    /// When this run of the job started, in s since 1970: a requeued one writes new logs.
    start_s: Option<i64>,
    logs: Vec<WatchedLog>,
    state: JobLog,
    /// Time spent on searching its logs in the last reading.
    searched: Duration,
}

/// One log of a job.
#[derive(Debug)]
struct WatchedLog {
    reader: TailReader,
    content: FollowedLog,
    /// Reason for which it was last not read by the rules for others, to log each reason once.
    refused: Option<Text>,
}

impl LogWatch {
    pub(crate) fn new(
        (logs, recipient): (Logs, Recipient),
        events: mpsc::Sender<Event>,
        patterns: LogPatterns,
        clock: Clock,
    ) -> Self {
        let patterns = Arc::new(patterns);
        Self {
            logs,
            recipient,
            events,
            patterns,
            clock,
            jobs: BTreeMap::new(),
            reported: JobLogs::new(),
            searched: Duration::ZERO,
        }
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
            sleep(rest(std::mem::take(&mut self.searched))).await;
        }
    }

    async fn poll(&mut self, mut jobs: Vec<Job>) {
        let wall_s = (Clock::wall_ms() / 1_000).cast_signed();
        jobs.retain(|job| is_watched(job, wall_s));
        // Ended jobs must not displace a running one.
        jobs.sort_by_key(|job| (job.ended.is_some(), std::cmp::Reverse(job.start)));
        jobs.truncate(MAX_JOBS);
        self.jobs.retain(|id, watched| jobs.iter().any(|job| job.id == *id && job.start == watched.start_s));
        let mut reads = JoinSet::new();
        for job in jobs {
            let is_over = job.ended.is_some_and(|ended| ended + AFTER_END_S < wall_s);
            if is_over && self.jobs.contains_key(&job.id) {
                continue;
            }
            let watched = self.jobs.remove(&job.id);
            let watched = watched.unwrap_or_else(|| {
                WatchedJob::new((&self.logs, self.recipient), &self.patterns, &job, self.clock)
            });
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
        if let Some(Ok((id, mut job))) = read {
            self.searched += std::mem::take(&mut job.searched);
            self.jobs.insert(id, job);
        }
    }
}

/// Returns the pause after searching logs for this long.
fn rest(searched: Duration) -> Duration {
    (searched * REST).min(MAX_REST)
}

/// Returns whether a job writes logs, or has just stopped.
fn is_watched(job: &Job, wall_s: i64) -> bool {
    match job.state {
        JobState::Pending | JobState::Configuring => false,
        JobState::Ended(_) => job.start.is_some() && job.ended.is_some_and(|ended| ended + KEPT_S >= wall_s),
        // A suspended job resumes; its messages are kept.
        _ => true,
    }
}

impl WatchedJob {
    fn new(
        (logs, recipient): (&Logs, Recipient),
        patterns: &Arc<LogPatterns>,
        job: &Job,
        clock: Clock,
    ) -> Self {
        let has_stderr = job.stderr.is_some() && job.stderr != job.stdout;
        let streams = [Some(LogStream::Stdout), has_stderr.then_some(LogStream::Stderr)];
        let log = |stream| WatchedLog {
            reader: TailReader::in_background(logs.clone(), LogRef { job: job.id, stream }, recipient),
            content: FollowedLog::new(patterns.clone(), job.start, clock.now_ms()),
            refused: None,
        };
        let logs = streams.into_iter().flatten().map(log).collect();
        Self { start_s: job.start, logs, state: JobLog::default(), searched: Duration::ZERO }
    }

    /// Reads what is new in its logs.
    async fn read(mut self, job: Job, wall_s: i64, clock: Clock) -> (JobId, Self) {
        let mut states = Vec::new();
        let mut logs = Vec::new();
        for log in self.logs {
            if let Some((log, state, searched)) = log.read(&job, wall_s, clock).await {
                states.push(state);
                logs.push(log);
                self.searched += searched;
            }
        }
        self.logs = logs;
        self.state = JobLog::merge(states.into_iter());
        (job.id, self)
    }
}

impl WatchedLog {
    /// Reads new lines, and returns the log with its content and the time of the search. An unreadable log keeps its
    /// last content; `None` if the search panicked.
    async fn read(mut self, job: &Job, wall_s: i64, clock: Clock) -> Option<(Self, JobLog, Duration)> {
        let tail = self.reader.read(job).await;
        self.log_refusal(job.id, tail.as_ref().err());
        let utc_offset_s = LocalTime::utc_offset_s(wall_s.unsigned_abs());
        let now =
            ReadTime { relay_ms: clock.now_ms(), wall_s, utc_offset_s, written_s: self.reader.written_s };
        // Patterns are matched on up to 64 KiB.
        let scanned = tokio::task::spawn_blocking(move || {
            let began = std::time::Instant::now();
            let state = self.content.read(tail.as_ref().ok(), now);
            (self, state, began.elapsed())
        });
        scanned.await.ok()
    }

    fn log_refusal(&mut self, job: JobId, why: Option<&Text>) {
        let Some(why) = why.filter(|why| self.refused.as_ref() != Some(why)) else { return };
        match self.reader.recipient {
            Recipient::Owner => tracing::debug!(job.id = %job, %why, "log not read"),
            Recipient::Guest => {
                tracing::info!(job.id = %job, %why, "log not read, because notices contain its lines")
            }
        }
        self.refused = Some(why.clone());
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{harness, job};
    use super::*;
    use std::fs::Permissions;
    use std::io::Write;
    use std::os::unix::fs::PermissionsExt;
    use std::path::Path;

    fn wall_s() -> i64 {
        (Clock::wall_ms() / 1_000).cast_signed()
    }

    fn watch(jobs: Vec<Job>) -> LogWatch {
        watch_for(Recipient::Owner, jobs)
    }

    fn watch_for(recipient: Recipient, jobs: Vec<Job>) -> LogWatch {
        let harness = harness(jobs);
        let events = mpsc::channel(8).0;
        LogWatch::new((harness.logs.clone(), recipient), events, LogPatterns::new(&[]), Clock::start())
    }

    fn messages(watch: &LogWatch, id: u32) -> Vec<&str> {
        let state = &watch.jobs[&JobId(id)].state;
        state.messages.iter().map(|message| message.pattern.name.as_str()).collect()
    }

    #[tokio::test]
    async fn what_is_new_in_the_log_of_a_running_job_is_scanned() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"step 10/1000\n").unwrap();
        let ten_minutes_ago = std::time::SystemTime::now() - Duration::from_secs(600);
        file.as_file().set_modified(ten_minutes_ago).unwrap();
        let job = Job { start: Some(wall_s() - 3_600), ..job(file.path().to_str().unwrap()) };
        let mut watch = watch(vec![job.clone()]);
        watch.poll(vec![job.clone()]).await;
        let state = &watch.jobs[&job.id].state;
        let age_ms = watch.clock.now_ms() - state.written_ms.expect("the time of the file");
        assert!(age_ms.abs_diff(600_000) < 60_000, "{age_ms}");
        assert_eq!(state.progress.as_ref().map(|progress| progress.done), Some(10.0));
        assert_eq!((state.grown_ms, messages(&watch, 1).len()), (None, 0));
        file.write_all(b"step 11/1000\nRuntimeError: CUDA out of memory. Tried\n").unwrap();
        watch.poll(vec![job.clone()]).await;
        assert_eq!(messages(&watch, 1), ["cuda_out_of_memory"]);
        assert!(watch.jobs[&job.id].state.grown_ms.is_some());
        // What another run of the same job wrote is not this one's.
        let again = Job { start: Some(wall_s()), ..job };
        watch.poll(vec![again]).await;
        assert!(messages(&watch, 1).is_empty());
    }

    #[tokio::test]
    async fn a_log_that_is_replaced_is_scanned_anew() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        file.write_all(b"RuntimeError: CUDA out of memory. Tried\n").unwrap();
        let job = Job { start: Some(wall_s() - 3_600), ..job(file.path().to_str().unwrap()) };
        let mut watch = watch(vec![job.clone()]);
        watch.poll(vec![job.clone()]).await;
        assert_eq!(messages(&watch, 1), ["cuda_out_of_memory"]);
        std::fs::write(file.path(), "begin\n").unwrap();
        watch.poll(vec![job]).await;
        assert!(messages(&watch, 1).is_empty());
    }

    #[test]
    fn t19_searching_logs_takes_a_quarter_of_a_core_at_most() {
        let rest_s = |searched_ms| rest(Duration::from_millis(searched_ms)).as_secs();
        assert_eq!((rest_s(50), rest_s(64 * 500)), (0, 96));
        assert_eq!(rest_s(3_600_000), 600, "but logs are searched every ten minutes");
    }

    #[tokio::test]
    async fn t09_of_a_job_that_ended_no_older_file_is_read() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "the end of a file of the owner\n").unwrap();
        let now_s = wall_s();
        let ended = |start_s| Job {
            state: JobState::Ended("FAILED".into()),
            start: Some(start_s),
            ended: Some(now_s),
            ..job(file.path().to_str().unwrap())
        };
        let lines = async |start_s| {
            let mut watch = watch(vec![ended(start_s)]);
            watch.poll(vec![ended(start_s)]).await;
            watch.jobs[&JobId(1)].state.last_lines.clone()
        };
        assert_eq!(lines(now_s - 60).await.len(), 1);
        // Others who may write to the folder may have put it there.
        assert_eq!(lines(now_s + 3_600).await, Vec::<String>::new());
    }

    #[tokio::test]
    async fn t09_a_file_that_others_may_have_put_in_the_place_of_a_log_is_in_no_notice() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slurm-1.out");
        std::fs::write(&path, "RuntimeError: CUDA out of memory. Tried\n").unwrap();
        let mode = |path: &Path, mode| std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        mode(&path, 0o600);
        let user =
            nodeglass_access::user::name_of(rustix::process::geteuid().as_raw()).expect("a login name");
        let start = Some(wall_s() - 3_600);
        let job = Job { start, user, state: JobState::Running, ..job(path.to_str().unwrap()) };
        for (of_folder, recipient, found) in
            [(0o755, Recipient::Guest, 1), (0o777, Recipient::Guest, 0), (0o777, Recipient::Owner, 1)]
        {
            mode(folder.path(), of_folder);
            let mut watch = watch_for(recipient, vec![job.clone()]);
            watch.poll(vec![job.clone()]).await;
            assert_eq!(messages(&watch, 1).len(), found, "{of_folder:o} {recipient:?}");
        }
    }

    #[tokio::test]
    async fn ended_jobs_do_not_displace_running_ones() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let template = job(file.path().to_str().unwrap());
        let running = Job { start: Some(wall_s() - 86_400), ..template.clone() };
        let ended = (2..100).map(|id| Job {
            id: JobId(id),
            state: JobState::Ended("COMPLETED".into()),
            start: Some(wall_s() - 60),
            ended: Some(wall_s() - 10),
            ..template.clone()
        });
        let jobs: Vec<Job> = ended.chain([running]).collect();
        let mut watch = watch(jobs.clone());
        watch.poll(jobs).await;
        assert!(watch.jobs.contains_key(&JobId(1)));
        assert_eq!(watch.jobs.len(), MAX_JOBS);
    }
}
