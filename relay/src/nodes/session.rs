//! A session keeps one probe running on one node: a part that is patient, and a part that converses.

use super::backoff::{Backoff, Trouble};
use super::decoder::{DecodeError, Found};
use super::refusals::Refusals;
use super::talk::{Parting, Talk};
use super::{FromNode, NodeEvent, Orders, Question};
use crate::clock::Clock;
use crate::launch::{LaunchError, Launcher};
use bytes::Bytes;
use nodeglass_protocol::probe::{Control, ProbeLine};
use nodeglass_protocol::told::HeardLine;
use nodeglass_protocol::{NodeName, Text};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{sleep, sleep_until};

/// What is wanted of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) orders: Orders,
    /// The probe is to end, and the session with it.
    pub(super) stop: bool,
}

/// One node's session.
pub(super) struct Session {
    pub(super) node: NodeName,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) clock: Clock,
    pub(super) events: mpsc::Sender<FromNode>,
    pub(super) wanted: watch::Receiver<Wanted>,
    /// The user asks for another try now.
    pub(super) retry: Arc<Notify>,
    /// What is asked of the probe.
    pub(super) questions: mpsc::Receiver<Question>,
    /// Last number of the last stream of samples, to ask for what a broken link swallowed.
    pub(super) seen: Option<Seen>,
    /// What nodes refused, this one in an earlier session among them.
    pub(super) refusals: Refusals,
}

/// How far a stream of samples was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    stream: u64,
    seq: u64,
}

impl Session {
    /// Keeps the probe running until it is no longer wanted: owns retries, patience and what the fleet is told of them.
    pub(super) async fn keep(mut self) {
        let mut backoff = Backoff::default();
        let mut earlier = self.refusals.recent(&self.node);
        loop {
            let parting = match earlier.take() {
                Some((why, advice)) => Parting::NeedsUser { why, advice },
                None => self.try_once(&mut backoff).await,
            };
            let patient = match parting {
                Parting::Stopped => return,
                Parting::NeedsUser { why, advice } => {
                    let state = format!("{why}; {advice}").into();
                    self.tell(NodeEvent::Refused { why, advice }).await.is_ok()
                        && self.wait_for_user(None, &state).await
                }
                Parting::Trouble { why, trouble } => {
                    let wait = backoff.wait(trouble, random());
                    let retry_at_ms = self.clock.now_ms() + wait.as_millis() as u64;
                    let why = if backoff.is_broken() {
                        format!("the probe keeps ending: {why}").into()
                    } else {
                        why
                    };
                    self.tell(NodeEvent::Down { why: why.clone(), retry_at_ms }).await.is_ok()
                        && self.wait_for_user(Some(wait), &why).await
                }
            };
            if !patient {
                return;
            }
        }
    }

    /// One try and its end; a refusal is remembered.
    async fn try_once(&mut self, backoff: &mut Backoff) -> Parting {
        if let Err(parting) = self.tell(NodeEvent::Connecting { failures: backoff.failures() }).await {
            return parting;
        }
        let Err(parting) = self.converse(backoff).await;
        if let Parting::NeedsUser { why, advice } = &parting {
            self.refusals.note(&self.node, why, advice);
        }
        parting
    }

    /// Waits for the user's word, or for `wait` if one is given; whoever asks meanwhile is told `why` nobody
    /// answers. `false`: no longer wanted.
    async fn wait_for_user(&mut self, wait: Option<Duration>, why: &Text) -> bool {
        let over = async {
            match wait {
                Some(wait) => sleep(wait).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        loop {
            tokio::select! {
                () = &mut over => return true,
                () = self.retry.notified() => return true,
                changed = self.wanted.changed() => if changed.is_err() || self.wanted.borrow().stop {
                    return false;
                },
                Some(question) = self.questions.recv() => self.turn_down(question, why),
            }
        }
    }

    fn turn_down(&self, question: Question, why: &Text) {
        question.refuse(format!("{} cannot be reached: {why}", self.node));
    }

    /// Starts a probe and talks with it until something ends that. Never `Ok`: there is always a reason.
    async fn converse(&mut self, backoff: &mut Backoff) -> Result<std::convert::Infallible, Parting> {
        let (launcher, node) = (Arc::clone(&self.launcher), self.node.clone());
        let launch = launcher.launch(&node);
        tokio::pin!(launch);
        let stream = loop {
            tokio::select! {
                launched = &mut launch => break launched.map_err(parting)?,
                () = stopped(&mut self.wanted) => return Err(Parting::Stopped),
                Some(question) = self.questions.recv() => {
                    question.refuse(format!("{} is being connected; try again in a moment", self.node));
                }
            }
        };
        let mut talk = Talk::new(stream);
        self.wanted.mark_unchanged();
        loop {
            tokio::select! {
                // The probe printed something, or nothing any more.
                chunk = talk.stream.stdout.recv() => match chunk {
                    Some(chunk) => self.hear(&mut talk, &chunk, backoff).await?,
                    None => return Err(talk.ended(&self.node).await),
                },
                // It said nothing whole for too long.
                () = sleep_until(talk.deadline) => return Err(talk.silent(&self.node)),
                // The fleet wants something else of it.
                changed = self.wanted.changed() => {
                    if changed.is_err() || self.wanted.borrow_and_update().stop {
                        return Err(talk.stop().await);
                    }
                    talk.say(&self.interval());
                }
                // Somebody wants to know something of it, or have something done there.
                Some(question) = self.questions.recv() => talk.ask(question),
            }
        }
    }

    /// Passes on what is in a chunk.
    async fn hear(&mut self, talk: &mut Talk, chunk: &Bytes, backoff: &mut Backoff) -> Result<(), Parting> {
        let outcome = talk.decoder.feed(chunk, self.clock.now_ms(), &mut talk.found);
        for found in std::mem::take(&mut talk.found) {
            let event = match found {
                Found::Line(line) if matches!(*line, ProbeLine::Answer(_)) => {
                    talk.alive();
                    talk.answered(*line);
                    continue;
                }
                Found::Line(line) if matches!(&*line, ProbeLine::Sample(sample) if !talk.understands(sample)) =>
                {
                    talk.alive();
                    // Whoever is told an interval tells the next sample as a whole.
                    talk.say(&self.interval());
                    continue;
                }
                Found::Line(line) => {
                    talk.alive();
                    self.note(talk, &line, backoff);
                    NodeEvent::Line(line)
                }
                Found::Piece => {
                    talk.alive();
                    continue;
                }
                Found::Noise(noise) => NodeEvent::Noise(noise),
                Found::Lost { lines, sample } => NodeEvent::Lost { lines, sample },
            };
            self.tell(event).await?;
        }
        talk.ping();
        outcome.map_err(|error| match error {
            DecodeError::Version { .. } => Parting::NeedsUser {
                why: error.to_string().into(),
                advice: "restart the relay, so that it brings its own probe".into(),
            },
            // A host that only ever prints rubbish is not asked each second.
            _ => Parting::Trouble { why: error.to_string().into(), trouble: talk.trouble() },
        })
    }

    /// Answers a hello and remembers how far the samples were read.
    fn note(&mut self, talk: &mut Talk, line: &HeardLine, backoff: &mut Backoff) {
        if matches!(line, ProbeLine::Hello(_)) {
            talk.reseated();
        }
        match line {
            ProbeLine::Hello(hello) if !talk.greeted => {
                talk.greeted = true;
                backoff.linked();
                talk.say(&self.interval());
                match self.seen.filter(|seen| seen.stream == hello.stream) {
                    Some(Seen { stream, seq }) => {
                        tracing::debug!(node.name = %self.node, after_seq = seq, "asked for what was missed");
                        talk.say(&Control::Backfill { stream, after_seq: seq });
                    }
                    None => self.seen = Some(Seen { stream: hello.stream, seq: 0 }),
                }
            }
            ProbeLine::Hello(hello) if self.seen.is_none_or(|seen| seen.stream != hello.stream) => {
                self.seen = Some(Seen { stream: hello.stream, seq: 0 });
            }
            ProbeLine::Sample(sample) => {
                if let Some(seen) = &mut self.seen {
                    seen.seq = seen.seq.max(sample.seq);
                }
            }
            ProbeLine::Bye(bye) => talk.bye = Some(bye.why.clone()),
            _ => {}
        }
    }

    fn interval(&self) -> Control {
        let Orders { interval_ms, phase_ms } = self.wanted.borrow().orders;
        Control::Interval { ms: interval_ms, phase_ms }
    }

    async fn tell(&self, event: NodeEvent) -> Result<(), Parting> {
        let from = FromNode { node: self.node.clone(), at_ms: self.clock.now_ms(), event };
        self.events.send(from).await.map_err(|_| Parting::Stopped)
    }
}

fn parting(error: LaunchError) -> Parting {
    match error {
        LaunchError::Auth { why, advice }
        | LaunchError::HostKey { why, advice }
        | LaunchError::Capability { why, advice } => Parting::NeedsUser { why, advice },
        LaunchError::Unreachable { why } => Parting::Trouble { why, trouble: Trouble::Link },
        LaunchError::Probe { why } => Parting::Trouble { why, trouble: Trouble::ProbeEnded { after_ms: 0 } },
    }
}

/// Returns when the session is no longer wanted.
async fn stopped(wanted: &mut watch::Receiver<Wanted>) {
    // An error means that the supervisor is gone, which is the same.
    let _ = wanted.wait_for(|wanted| wanted.stop).await;
}

/// Any number; only spreads retries.
fn random() -> u64 {
    getrandom::u64().unwrap_or_else(|_| Clock::wall_ms().wrapping_mul(0x9e37_79b9_7f4a_7c15))
}
