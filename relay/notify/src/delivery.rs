//! Delivers notices on one channel at a limited rate. One that fails is repeated with a growing pause, in which others
//! are delivered.

use super::command::{CommandError, NotifyCommand};
use super::counts::ChannelCounts;
use super::mail::{Mail, MailError};
use super::notice::{Notice, Sender};
use crate::webhook::{Payload, Webhook, WebhookFormat};
use nodeglass_http_client::HttpError;
use nodeglass_platform::token_bucket::TokenBucket;
use nodeglass_rules::backoff::exponential;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};

/// Maximum number of notices that wait for their channel, and of notices that are repeated; further ones are counted.
const WAITING: usize = 64;
/// Token bucket of a channel: burst size, and refill rate per second.
const BURST: f64 = 10.0;
const PER_S: f64 = 1.0 / 30.0;
/// Pause after the first failure.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
/// The longest pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(900);
/// Maximum number of attempts of a notice that may have arrived, because no response came in time.
const MAX_UNCERTAIN: u32 = 3;
/// Time for which a notice is tried.
const GIVE_UP_AFTER: Duration = Duration::from_secs(6 * 3_600);

/// The destination of notices.
#[derive(Clone, Debug)]
pub(super) enum Channel {
    Webhook(Webhook),
    Command(NotifyCommand),
    Mail(Box<Mail>),
}

/// Notices that wait for a channel: findings go before starts and ends of jobs, of which there may be many at once.
#[derive(Debug)]
pub(super) struct Queue {
    findings: mpsc::Sender<Notice>,
    jobs: mpsc::Sender<Notice>,
    /// Not yet reported.
    dropped: Arc<AtomicU64>,
    counts: Arc<ChannelCounts>,
}

/// Failure to deliver a notice.
#[derive(Debug)]
pub(super) struct Failure {
    reason: String,
    /// Whether another attempt may succeed.
    is_transient: bool,
    /// Whether it may have arrived all the same: no response came in time.
    may_have_arrived: bool,
    /// Time for which the receiver asks to wait.
    retry_after: Duration,
}

impl Failure {
    fn new(reason: String, is_transient: bool) -> Self {
        Self { reason, is_transient, may_have_arrived: false, retry_after: Duration::ZERO }
    }

    pub(super) fn into_reason(self) -> String {
        self.reason
    }
}

impl From<HttpError> for Failure {
    fn from(error: HttpError) -> Self {
        Self {
            may_have_arrived: matches!(error, HttpError::TimedOut(..)),
            retry_after: error.retry_after().unwrap_or_default().min(GIVE_UP_AFTER),
            ..Self::new(format!("failed to {error}"), error.is_transient())
        }
    }
}

impl From<CommandError> for Failure {
    fn from(error: CommandError) -> Self {
        Self::new(error.to_string(), error.is_transient())
    }
}

impl From<MailError> for Failure {
    fn from(error: MailError) -> Self {
        let may_have_arrived = matches!(error, MailError::TimedOut);
        Self { may_have_arrived, ..Self::new(error.to_string(), error.is_transient()) }
    }
}

impl Queue {
    /// Adds a notice; if too many wait, only counts it.
    pub(super) fn push(&self, notice: Notice) {
        let queue = if matches!(notice, Notice::Job(..)) { &self.jobs } else { &self.findings };
        if queue.try_send(notice).is_err() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            self.counts.dropped.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Returns the counts of its notices.
    pub(super) fn counts(&self) -> Arc<ChannelCounts> {
        self.counts.clone()
    }
}

/// Starts the task that delivers on a channel, until its queue is dropped.
pub(super) fn start(channel: Channel, sender: Sender) -> Queue {
    let ((findings, mut new_findings), (jobs, mut new_jobs)) =
        (mpsc::channel(WAITING), mpsc::channel(WAITING));
    let dropped = Arc::<AtomicU64>::default();
    let counts = Arc::new(ChannelCounts::new(channel.label()));
    let queue = Queue { findings, jobs, dropped: dropped.clone(), counts: counts.clone() };
    tokio::spawn(async move {
        let mut bucket = TokenBucket::full(BURST, PER_S, Instant::now());
        let mut retries: Vec<Attempt> = Vec::new();
        loop {
            let earliest = retries.iter().map(|attempt| attempt.at).min();
            // One that failed lets the others pass: the receiver may refuse that one alone.
            let has_room = retries.len() < WAITING;
            let first = tokio::select! {
                biased;
                () = sleep_until(earliest.unwrap_or_else(Instant::now)), if earliest.is_some() => None,
                Some(notice) = new_findings.recv(), if has_room => Some(notice),
                Some(notice) = new_jobs.recv(), if has_room => Some(notice),
                else => return,
            };
            let attempts: Vec<Attempt> = match first {
                Some(notice) => {
                    let missed = dropped.swap(0, Ordering::Relaxed);
                    let missed = (missed > 0).then_some(Notice::Dropped(missed));
                    missed.into_iter().chain([notice]).map(Attempt::first).collect()
                }
                None => retries.extract_if(.., |attempt| Some(attempt.at) == earliest).collect(),
            };
            for attempt in attempts {
                admit(&mut bucket).await;
                match attempt.make(&channel, &sender).await {
                    Outcome::Retry(attempt) => retries.push(attempt),
                    // Those were counted when they were left out.
                    Outcome::Delivered(Notice::Dropped(_)) => {}
                    Outcome::Failed(Notice::Dropped(count)) => {
                        dropped.fetch_add(count, Ordering::Relaxed);
                    }
                    Outcome::Delivered(_) => {
                        counts.delivered.fetch_add(1, Ordering::Relaxed);
                    }
                    Outcome::Failed(_) => {
                        counts.failed.fetch_add(1, Ordering::Relaxed);
                        dropped.fetch_add(1, Ordering::Relaxed);
                    }
                }
            }
        }
    });
    queue
}

/// The next attempt to deliver a notice.
struct Attempt {
    notice: Notice,
    at: Instant,
    /// Number of attempts that failed.
    failures: u32,
    /// Number of those that may have arrived.
    uncertain: u32,
    give_up_at: Instant,
}

/// Outcome of an attempt.
enum Outcome {
    Delivered(Notice),
    Retry(Attempt),
    Failed(Notice),
}

/// Waits until another notice may be sent.
async fn admit(bucket: &mut TokenBucket) {
    sleep_until(bucket.available_at(1.0, Instant::now())).await;
    bucket.take(1.0, Instant::now());
}

impl Attempt {
    fn first(notice: Notice) -> Self {
        let now = Instant::now();
        Self { notice, at: now, failures: 0, uncertain: 0, give_up_at: now + GIVE_UP_AFTER }
    }

    async fn make(self, channel: &Channel, sender: &Sender) -> Outcome {
        match channel.send(&self.notice, sender).await {
            Ok(()) => Outcome::Delivered(self.notice),
            Err(failure) => self.fail(&failure, channel.name()),
        }
    }

    /// Decides after a failure whether another attempt is made.
    fn fail(mut self, failure: &Failure, to: &'static str) -> Outcome {
        self.failures += 1;
        let pause = exponential(FIRST_PAUSE, self.failures, LONGEST_PAUSE).max(failure.retry_after);
        self.at = Instant::now() + pause;
        self.uncertain += u32::from(failure.may_have_arrived);
        let may_repeat = self.uncertain < MAX_UNCERTAIN;
        let will_retry = failure.is_transient && may_repeat && self.at < self.give_up_at;
        tracing::warn!(
            to,
            event = self.notice.event(),
            reason = failure.reason,
            retry_s = will_retry.then_some(pause.as_secs()),
            "a notice was not delivered"
        );
        if will_retry { Outcome::Retry(self) } else { Outcome::Failed(self.notice) }
    }
}

impl Channel {
    /// The setting that configures it.
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "notify-webhook",
            Self::Command(_) => "on-finding",
            Self::Mail(_) => "notify-mail",
        }
    }

    /// Its name in metrics.
    fn label(&self) -> &'static str {
        match self {
            Self::Webhook(_) => "webhook",
            Self::Command(_) => "command",
            Self::Mail(_) => "mail",
        }
    }

    /// Returns the destination of notices, without secrets.
    pub(super) fn destination(&self) -> String {
        match self {
            Self::Webhook(webhook) => webhook.display_url(),
            Self::Command(command) => command.program().to_owned(),
            Self::Mail(mail) => mail.address(),
        }
    }

    /// Makes one attempt; a webhook makes a few.
    pub(super) async fn send(&self, notice: &Notice, sender: &Sender) -> Result<(), Failure> {
        match self {
            Self::Webhook(webhook) => {
                let payload = match webhook.format() {
                    WebhookFormat::Json => Payload::Json(notice.json(sender)),
                    WebhookFormat::Message => Payload::Message {
                        text: nodeglass_report::code_block(&notice.text(), webhook.chat()),
                    },
                };
                Ok(webhook.post(&payload).await?)
            }
            Self::Command(command) => Ok(command.run(notice.event(), &notice.json(sender)).await?),
            Self::Mail(mail) => Ok(mail.send(notice, sender).await?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::notice::JobSummary;
    use super::super::notice::tests::job;
    use super::*;
    use nodeglass_api::fixtures::finding;
    use nodeglass_protocol::job::JobState;
    use nodeglass_rules::job_events::JobEvent;
    use std::fs;
    use tokio::time::sleep;

    fn notice(key: &str) -> Notice {
        Notice::Found(Box::new(finding(key)), Vec::new())
    }

    /// A command that appends the event of each notice to a file.
    fn recording(dir: &tempfile::TempDir) -> (Channel, std::path::PathBuf) {
        let (script, out) = (dir.path().join("note.sh"), dir.path().join("out"));
        fs::write(
            &script,
            format!("#!/bin/sh\nprintf '%s ' \"$NODEGLASS_EVENT\" >> {}\ncat >> {0}\n", out.display()),
        )
        .unwrap();
        (Channel::Command(format!("sh {}", script.display()).parse().unwrap()), out)
    }

    #[tokio::test]
    async fn what_does_not_fit_the_queue_is_counted_and_reported_with_the_next_notice() {
        let dir = tempfile::tempdir().unwrap();
        let (channel, out) = recording(&dir);
        let queue = start(channel, Sender::default());
        // The task has not run yet.
        (0..WAITING + 3).for_each(|number| queue.push(notice(&number.to_string())));
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 3);
        let ten_seconds = Instant::now() + Duration::from_secs(10);
        let written = loop {
            let written = fs::read_to_string(&out).unwrap_or_default();
            if written.contains("finding {") || Instant::now() > ten_seconds {
                break written;
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert!(written.starts_with("notices_dropped {") && written.contains("\"count\":3"), "{written}");
    }

    #[tokio::test]
    async fn findings_go_before_starts_of_jobs() {
        let dir = tempfile::tempdir().unwrap();
        let (channel, out) = recording(&dir);
        let queue = start(channel, Sender::default());
        let started = || Notice::Job(JobSummary::of(&job(17, JobState::Running)), JobEvent::Started);
        (0..WAITING).for_each(|_| queue.push(started()));
        queue.push(notice("a"));
        assert_eq!(queue.dropped.load(Ordering::Relaxed), 0);
        let ten_seconds = Instant::now() + Duration::from_secs(10);
        let written = loop {
            let written = fs::read_to_string(&out).unwrap_or_default();
            if written.contains("job_started {") || Instant::now() > ten_seconds {
                break written;
            }
            sleep(Duration::from_millis(10)).await;
        };
        assert!(written.starts_with("finding {"), "{written}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_flood_is_sent_at_a_limited_rate() {
        let start_at = Instant::now();
        let mut bucket = TokenBucket::full(BURST, PER_S, start_at);
        for _ in 0..12 {
            admit(&mut bucket).await;
        }
        assert_eq!(start_at.elapsed().as_secs(), 60, "two beyond the burst");
    }

    #[tokio::test]
    async fn a_command_that_cannot_run_is_not_repeated() {
        let channel = Channel::Command("/nonexistent/program".parse().unwrap());
        let attempt = Attempt::first(notice("a"));
        assert!(matches!(attempt.make(&channel, &Sender::default()).await, Outcome::Failed(_)));
    }

    #[tokio::test]
    async fn a_mail_that_may_have_been_sent_is_tried_three_times_and_a_refused_one_for_hours() {
        let attempts = |error: fn(u32) -> MailError| {
            let mut attempt = Attempt::first(notice("a"));
            for number in 1..10 {
                attempt = match attempt.fail(&error(number).into(), "notify-mail") {
                    Outcome::Retry(attempt) => attempt,
                    _ => return number,
                };
            }
            10
        };
        assert_eq!(attempts(|_| MailError::TimedOut), 3);
        assert_eq!(attempts(|_| MailError::Sendmail("queue full".into())), 10);
        // Refusals count for none of the three.
        let slow_after_outage = |number| match number {
            ..=5 => MailError::Sendmail("queue full".into()),
            _ => MailError::TimedOut,
        };
        assert_eq!(attempts(slow_after_outage), 8);
    }

    #[tokio::test]
    async fn a_notice_that_fails_lets_the_others_pass() {
        let dir = tempfile::tempdir().unwrap();
        let (script, out) = (dir.path().join("note.sh"), dir.path().join("out"));
        let text = "#!/bin/sh\nread -r line\ncase \"$line\" in *poison*) exit 75 ;; esac\necho \"$line\" >> ";
        fs::write(&script, format!("{text}{}\n", out.display())).unwrap();
        let queue =
            start(Channel::Command(format!("sh {}", script.display()).parse().unwrap()), Sender::default());
        queue.push(notice("poison"));
        queue.push(notice("good"));
        let ten_seconds = Instant::now() + Duration::from_secs(10);
        let written = || fs::read_to_string(&out).unwrap_or_default();
        while !written().contains("good") && Instant::now() < ten_seconds {
            sleep(Duration::from_millis(10)).await;
        }
        assert!(written().contains("good"), "{}", written());
    }
}
