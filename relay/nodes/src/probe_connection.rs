//! The connection to a running probe: its deadlines, its control lines, and why it ended.

use super::QueuedRequest;
use super::auth_failures::{AuthFailure, FailureKind};
use super::backoff::RetryClass;
use super::decoder::{Decoder, Found, no_probe_message};
use super::input_limit::InputLimit;
use super::probe_requests::PendingProbeRequests;
use nodeglass_launch::{NodeStream, StreamEnd};
use nodeglass_protocol::probe::delta::{ParsedLine, SampleDelta};
use nodeglass_protocol::probe::{Bye, Control, ProbeLine};
use nodeglass_protocol::{NodeName, Text};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// Time limit for the hello, once the program runs.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Time without a complete line after which a link is dead, even if TCP reports it as alive: a probe prints one at
/// least every 6 s.
const LINE_LIMIT: Duration = Duration::from_secs(15);
/// Interval of pings. The probe exits 30 s after the last control line, so after an interruption of up to 25 s it still
/// has the missed samples.
const PING_EVERY: Duration = Duration::from_secs(5);
/// Time limit for a probe to stop.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// Maximum delay of the exit status after the last output.
const END_LIMIT: Duration = Duration::from_secs(3);

/// Maximum time between the last line and the end of a link that its host closed; a lost connection is silent first.
const JUST_NOW: Duration = Duration::from_secs(5);

/// Reason for the end of a connection.
pub(super) enum DisconnectReason {
    /// The session was stopped, or its events have no receiver.
    Stopped,
    /// Only the user can help, or a change of credentials or jobs.
    NeedsUser { kind: FailureKind, why: Text, advice: Text },
    /// Other nodes refused the login, so this one was not tried.
    OthersRefused(Box<AuthFailure>),
    /// To be retried.
    Retry {
        why: Text,
        trouble: RetryClass,
        /// Whether the end of a job would look the same: the host closed a link that was in use.
        job_may_have_ended: bool,
    },
}

impl DisconnectReason {
    /// A failure that the end of a job does not explain.
    pub(super) fn trouble(why: impl Into<Text>, trouble: RetryClass) -> Self {
        Self::Retry { why: why.into(), trouble, job_may_have_ended: false }
    }
}

/// A connection to a running probe. Dropping it ends the probe.
pub(super) struct ProbeConnection {
    pub(super) stream: NodeStream,
    pub(super) decoder: Decoder,
    pub(super) found: Vec<Found>,
    began: Instant,
    /// When the last complete line arrived.
    last_line_at: Instant,
    /// When the next complete line is due.
    pub(super) deadline: Instant,
    /// The limit of its output.
    input_limit: InputLimit,
    /// When the next ping is due.
    ping_at: Instant,
    /// Whether its hello has arrived.
    pub(super) got_hello: bool,
    /// Number of the last live sample, which the next one may be relative to.
    baseline_seq: Option<u64>,
    /// Reason for its exit, as reported by the probe.
    pub(super) bye: Option<Text>,
    /// Unanswered requests; their callers are notified when the connection is dropped.
    pending: PendingProbeRequests,
}

impl ProbeConnection {
    /// A new connection, whose hello is due.
    pub(super) fn new(stream: NodeStream) -> Self {
        let began = Instant::now();
        let deadline = began + HELLO_LIMIT;
        Self {
            stream,
            decoder: Decoder::default(),
            found: Vec::new(),
            began,
            last_line_at: began,
            deadline,
            input_limit: InputLimit::new(began),
            ping_at: began,
            got_hello: false,
            baseline_seq: None,
            bye: None,
            pending: PendingProbeRequests::default(),
        }
    }

    /// Records a complete line.
    pub(super) fn line_received(&mut self) {
        self.last_line_at = Instant::now();
        self.deadline = self.last_line_at + LINE_LIMIT;
    }

    /// Returns for how long the probe has been running; 0 before its hello.
    pub(super) fn uptime(&self) -> Duration {
        if self.got_hello { self.began.elapsed() } else { Duration::ZERO }
    }

    /// Charges input; an error if it exceeds the limit.
    pub(super) fn admit(&mut self, bytes: usize, lines: usize) -> Result<(), DisconnectReason> {
        match self.input_limit.admits(bytes, lines, Instant::now()) {
            true => Ok(()),
            false => Err(DisconnectReason::trouble(
                "it sent far more than a probe does, and was cut off",
                RetryClass::Harmful,
            )),
        }
    }

    /// Returns whether the baseline of a sparse sample is known; otherwise old values would be taken for
    /// new ones.
    pub(super) fn has_baseline_for(&mut self, sample: &SampleDelta) -> bool {
        if sample.replay {
            return true;
        }
        let understood = sample.since.is_none() || sample.since == self.baseline_seq;
        self.baseline_seq = understood.then_some(sample.seq);
        understood
    }

    /// Invalidates the baseline: the set of GPUs changed.
    pub(super) fn reset_baseline(&mut self) {
        self.baseline_seq = None;
    }

    /// Sends a control line. A full pipe belongs to a dying link, whose deadline is near.
    pub(super) fn send(&mut self, control: &Control) {
        self.ping_at = Instant::now() + PING_EVERY;
        let mut line = serde_json::to_vec(control).expect("control lines have string keys");
        line.push(b'\n');
        let _ = self.stream.stdin.try_send(line.into());
    }

    /// Sends a ping if the last one is old enough. Called when a line arrives, as the session is awake then: a link
    /// without lines for [`LINE_LIMIT`] is closed long before the probe would miss the ping.
    pub(super) fn ping(&mut self) {
        if Instant::now() >= self.ping_at {
            self.send(&Control::Ping);
        }
    }

    /// Sends a request.
    pub(super) fn request(&mut self, queued: QueuedRequest) {
        if !self.got_hello {
            return queued.refuse("its probe has not said hello yet; try again in a moment");
        }
        match self.pending.register(queued) {
            Ok((number, request)) => self.send(&Control::Request { number, request }),
            Err(queued) => queued.refuse("its probe has too many open requests; try again in a moment"),
        }
    }

    /// Delivers a response of the probe.
    pub(super) fn resolve(&mut self, line: ParsedLine) {
        if let ProbeLine::Response(response) = line {
            self.pending.resolve(response.number, response.response);
        }
    }

    pub(super) fn trouble(&self) -> RetryClass {
        if self.bye.as_ref().is_some_and(|bye| bye.as_str() == Bye::REPLACED) {
            return RetryClass::Replaced;
        }
        RetryClass::ProbeEnded { after_ms: self.began.elapsed().as_millis() as u64 }
    }

    pub(super) fn timed_out(&self, node: &NodeName) -> DisconnectReason {
        match self.got_hello {
            true => DisconnectReason::trouble("no line from the probe for 15 s", RetryClass::Link),
            false => DisconnectReason::trouble(no_probe_message(node, self.decoder.noise()), self.trouble()),
        }
    }

    /// Determines why the output ended.
    pub(super) async fn stdout_closed(&mut self, node: &NodeName) -> DisconnectReason {
        let job_may_have_ended = self.got_hello && self.last_line_at.elapsed() < JUST_NOW;
        let end = timeout(END_LIMIT, &mut self.stream.end).await;
        let end = end.ok().and_then(Result::ok).unwrap_or_default();
        let detail = if end.stderr.is_empty() { String::new() } else { format!(": {}", end.stderr) };
        match end {
            StreamEnd { exit: Some(exit), .. } => {
                let why = match (&self.bye, self.decoder.noise()) {
                    (Some(bye), _) => format!("the probe ended: {bye}").into(),
                    (None, noise @ Some(_)) => no_probe_message(node, noise),
                    (None, None) => format!("the probe ended with status {exit}{detail}").into(),
                };
                DisconnectReason::Retry { why, trouble: self.trouble(), job_may_have_ended }
            }
            StreamEnd { signal: Some(signal), .. } => DisconnectReason::Retry {
                why: format!("the probe was ended by {signal}{detail}").into(),
                trouble: self.trouble(),
                job_may_have_ended,
            },
            StreamEnd { broken: Some(broken), .. } => DisconnectReason::Retry {
                why: format!("{broken}{detail}").into(),
                trouble: RetryClass::Link,
                job_may_have_ended,
            },
            StreamEnd { .. } => DisconnectReason::Retry {
                why: format!("the link to the probe ended{detail}").into(),
                trouble: RetryClass::Link,
                job_may_have_ended,
            },
        }
    }

    /// Lets the probe exit by itself, so that no process is left behind.
    pub(super) async fn stop(&mut self) -> DisconnectReason {
        self.send(&Control::Stop);
        let drained = async {
            while self.stream.stdout.recv().await.is_some() {}
            let _ = (&mut self.stream.end).await;
        };
        let _ = timeout(STOP_LIMIT, drained).await;
        DisconnectReason::Stopped
    }
}
