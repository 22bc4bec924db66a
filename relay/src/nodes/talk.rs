//! A talk is one running probe: what is said to it, how long it may be silent, and why it ended.

use super::Question;
use super::backoff::Trouble;
use super::decoder::{Decoder, Found, silence};
use super::flood::Flood;
use super::questions::Open;
use super::refusals::Kind;
use crate::launch::{NodeStream, StreamEnd};
use nodeglass_protocol::probe::delta::{ParsedLine, SampleDelta};
use nodeglass_protocol::probe::{Control, ProbeLine};
use nodeglass_protocol::{NodeName, Text};
use std::time::Duration;
use tokio::time::{Instant, timeout};

/// A probe says hello within this, once its program runs.
const HELLO_LIMIT: Duration = Duration::from_secs(10);
/// Without a whole line for this long a link is dead, whatever TCP says: a probe prints one at least every 2 s.
const LINE_LIMIT: Duration = Duration::from_secs(15);
/// The probe ends 30 s after the last line from us: whatever is cut off for up to 25 s, it has kept what was missed.
const PING_EVERY: Duration = Duration::from_secs(5);
/// How long a probe that was told to stop may take.
const STOP_LIMIT: Duration = Duration::from_secs(2);
/// How long the news of its end may lag behind its last output.
const END_LIMIT: Duration = Duration::from_secs(3);

/// A link that ends so soon after its last line was closed by its host; one that a cable lost is silent before.
const JUST_NOW: Duration = Duration::from_secs(5);

/// Why a conversation ended.
pub(super) enum Parting {
    /// We were told to stop, or nobody listens any more.
    Stopped,
    /// Only the user can help, or something that changes.
    NeedsUser { kind: Kind, why: Text, advice: Text },
    /// Try again.
    Trouble {
        why: Text,
        trouble: Trouble,
        /// Whether the end of a job would look the same: the host closed a link that was in use.
        may_be_jobs_end: bool,
    },
}

impl Parting {
    /// Trouble that no job's end explains.
    pub(super) fn trouble(why: impl Into<Text>, trouble: Trouble) -> Self {
        Self::Trouble { why: why.into(), trouble, may_be_jobs_end: false }
    }
}

/// A conversation with a running probe. Dropping it ends the probe.
pub(super) struct Talk {
    pub(super) stream: NodeStream,
    pub(super) decoder: Decoder,
    pub(super) found: Vec<Found>,
    began: Instant,
    /// When the last whole line came.
    heard_at: Instant,
    /// When the next whole line must be there.
    pub(super) deadline: Instant,
    /// What it may still send.
    flood: Flood,
    /// When it wants to hear again that we are there.
    ping_at: Instant,
    /// Whether it said hello.
    pub(super) greeted: bool,
    /// The number of the last live sample, which the next one may be told by differences from.
    known: Option<u64>,
    /// Why it ends, in its own words.
    pub(super) bye: Option<Text>,
    /// What it has not answered yet; whoever asked is told when the talk ends.
    open: Open,
}

impl Talk {
    /// Begins; the hello is awaited.
    pub(super) fn new(stream: NodeStream) -> Self {
        let began = Instant::now();
        let deadline = began + HELLO_LIMIT;
        Self {
            stream,
            decoder: Decoder::default(),
            found: Vec::new(),
            began,
            heard_at: began,
            deadline,
            flood: Flood::new(began),
            ping_at: began,
            greeted: false,
            known: None,
            bye: None,
            open: Open::default(),
        }
    }

    /// A whole line came.
    pub(super) fn alive(&mut self) {
        self.heard_at = Instant::now();
        self.deadline = self.heard_at + LINE_LIMIT;
    }

    /// For how long the probe has been there; 0 before its hello.
    pub(super) fn up(&self) -> Duration {
        if self.greeted { self.began.elapsed() } else { Duration::ZERO }
    }

    /// Takes what came in, or says that it is more than a probe sends.
    pub(super) fn admit(&mut self, bytes: usize, lines: usize) -> Result<(), Parting> {
        match self.flood.admits(bytes, lines, Instant::now()) {
            true => Ok(()),
            false => {
                Err(Parting::trouble("it sent far more than a probe does, and was cut off", Trouble::Harmful))
            }
        }
    }

    /// Whether what a sample leaves out is known; if not, whoever takes it in would take old values for new ones.
    pub(super) fn understands(&mut self, sample: &SampleDelta) -> bool {
        if sample.replay {
            return true;
        }
        let understood = sample.since.is_none() || sample.since == self.known;
        self.known = understood.then_some(sample.seq);
        understood
    }

    /// What was known of the GPUs is of other ones now, or of none.
    pub(super) fn reseated(&mut self) {
        self.known = None;
    }

    /// Sends a line. A pipe that is full belongs to a link that is dying; its deadline is near.
    pub(super) fn say(&mut self, control: &Control) {
        self.ping_at = Instant::now() + PING_EVERY;
        let mut line = serde_json::to_vec(control).expect("control lines have string keys");
        line.push(b'\n');
        let _ = self.stream.stdin.try_send(line.into());
    }

    /// Says that we are there, if nothing was said for long. That goes with what is heard, when this session is awake
    /// anyway: whoever says nothing for [`LINE_LIMIT`] is left, long before it would miss us.
    pub(super) fn ping(&mut self) {
        if Instant::now() >= self.ping_at {
            self.say(&Control::Ping);
        }
    }

    /// Puts a question to the probe.
    pub(super) fn ask(&mut self, question: Question) {
        if !self.greeted {
            return question.refuse("its probe has not said hello yet; try again in a moment");
        }
        match self.open.begin(question) {
            Ok((number, ask)) => self.say(&Control::Ask { number, ask }),
            Err(question) => question.refuse("its probe has too many questions open; try again in a moment"),
        }
    }

    /// Hands on what the probe answered.
    pub(super) fn answered(&mut self, line: ParsedLine) {
        if let ProbeLine::Answer(answer) = line {
            self.open.end(answer.number, answer.answer);
        }
    }

    pub(super) fn trouble(&self) -> Trouble {
        Trouble::ProbeEnded { after_ms: self.began.elapsed().as_millis() as u64 }
    }

    pub(super) fn silent(&self, node: &NodeName) -> Parting {
        match self.greeted {
            true => Parting::trouble("no line from the probe for 15 s", Trouble::Link),
            false => Parting::trouble(silence(node, self.decoder.noise()), self.trouble()),
        }
    }

    /// The output ended: finds out why.
    pub(super) async fn ended(&mut self, node: &NodeName) -> Parting {
        let may_be_jobs_end = self.greeted && self.heard_at.elapsed() < JUST_NOW;
        let end = timeout(END_LIMIT, &mut self.stream.end).await;
        let end = end.ok().and_then(Result::ok).unwrap_or_default();
        let said = if end.stderr.is_empty() { String::new() } else { format!(": {}", end.stderr) };
        match end {
            StreamEnd { exit: Some(exit), .. } => {
                let why = match (&self.bye, self.decoder.noise()) {
                    (Some(bye), _) => format!("the probe ended: {bye}").into(),
                    (None, noise @ Some(_)) => silence(node, noise),
                    (None, None) => format!("the probe ended with status {exit}{said}").into(),
                };
                Parting::Trouble { why, trouble: self.trouble(), may_be_jobs_end }
            }
            StreamEnd { broken: Some(broken), .. } => Parting::Trouble {
                why: format!("{broken}{said}").into(),
                trouble: Trouble::Link,
                may_be_jobs_end,
            },
            StreamEnd { .. } => Parting::Trouble {
                why: format!("the link to the probe ended{said}").into(),
                trouble: Trouble::Link,
                may_be_jobs_end,
            },
        }
    }

    /// Lets the probe end by itself, so that no process is left when we say that we are done.
    pub(super) async fn stop(&mut self) -> Parting {
        self.say(&Control::Stop);
        let last_words = async {
            while self.stream.stdout.recv().await.is_some() {}
            let _ = (&mut self.stream.end).await;
        };
        let _ = timeout(STOP_LIMIT, last_words).await;
        Parting::Stopped
    }
}
