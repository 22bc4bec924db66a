//! A session keeps one probe running on one node: a part that is patient, and a part that converses.

use super::backoff::{Backoff, Trouble};
use super::decoder::{DecodeError, Found};
use super::flood::HELLO_LINES;
use super::refusals::{Evidence, Kind, Refusal, Refusals};
use super::talk::{Parting, Talk};
use super::{FromNode, JobList, NodeEvent, Orders, Question};
use crate::clock::Clock;
use crate::launch::{LaunchError, Launcher};
use crate::slurm::{Nudge, Reason};
use bytes::Bytes;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{Control, ProbeLine};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// After a link that a job's end may have closed, SLURM is asked before the node is tried again, but if it has not answered
/// by then the node is tried all the same.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// A user who is denied this often although SLURM says that the job runs is not waiting for SLURM.
const MAX_DENIED: u32 = 5;

/// What is wanted of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    /// Whether it waits, so that a retry means something.
    pub(super) waits: Arc<AtomicBool>,
    /// What is asked of the probe.
    pub(super) questions: mpsc::Receiver<Question>,
    /// Last number of the last stream of samples, to ask for what a broken link swallowed.
    pub(super) seen: Option<Seen>,
    /// What nodes refused, this one in an earlier session among them.
    pub(super) refusals: Refusals,
    /// Which job list the orders come of.
    pub(super) lists: watch::Receiver<JobList>,
    /// What there is to log in with now.
    pub(super) evidence: watch::Receiver<Option<Evidence>>,
    /// Brings the next job list soon.
    pub(super) nudge: Nudge,
    /// How often in a row the node took the key and not the user.
    pub(super) denied: u32,
    /// Whether the node's login script did not end the last time.
    pub(super) hung: bool,
    /// The fault that was logged last and not yet followed by a good link.
    pub(super) fault: Option<Text>,
}

/// How far a stream of samples was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    stream: u64,
    seq: u64,
}

/// Why a wait is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Woken {
    /// Its time, or the user's word.
    Try,
    /// The orders, the job list, or what there is to log in with changed: look again.
    Changed,
    /// The session is no longer wanted.
    Stopped,
}

impl Session {
    /// Keeps the probe running until it is no longer wanted: owns retries, patience and what the fleet is told of them.
    pub(super) async fn keep(mut self) {
        let mut backoff = Backoff::default();
        let mut remembered = self.refusals.recent(&self.node);
        loop {
            let woken = match remembered.take() {
                Some(refusal) => self.rest_refused(refusal).await,
                None => match self.try_once(&mut backoff).await {
                    Parting::Stopped => Woken::Stopped,
                    Parting::NeedsUser { kind, why, advice } => {
                        let (jobs, at) = (self.jobs(), Instant::now());
                        let evidence = self.launcher.evidence().await;
                        let refusal = Refusal { kind, why, advice, jobs, at, evidence };
                        self.refusals.note(&self.node, &refusal);
                        self.rest_refused(refusal).await
                    }
                    Parting::Trouble { why, trouble: Trouble::Denied, .. } => {
                        self.rest_denied(why, &mut backoff).await
                    }
                    Parting::Trouble { why, trouble, may_be_jobs_end } => {
                        self.rest_down(why, backoff.wait(trouble, random()), &backoff, may_be_jobs_end).await
                    }
                },
            };
            if woken == Woken::Stopped {
                return;
            }
        }
    }

    /// One try and its end. While the jobs on the node are completing there is none: a login would be one of the
    /// processes that SLURM waits for.
    async fn try_once(&mut self, backoff: &mut Backoff) -> Parting {
        self.forget_retry();
        let mut is_told = false;
        while self.wanted.borrow_and_update().orders.is_ending {
            if !is_told && self.tell(NodeEvent::Ending).await.is_err() {
                return Parting::Stopped;
            }
            is_told = true;
            match self.wait(None, &"its jobs are ending".into()).await {
                Woken::Stopped => return Parting::Stopped,
                Woken::Try => break,
                Woken::Changed => {}
            }
        }
        if let Err(parting) = self.tell(NodeEvent::Connecting { failures: backoff.failures() }).await {
            return parting;
        }
        let Err(parting) = self.converse(backoff).await;
        parting
    }

    /// Waits after a refusal until there is a reason to expect another answer: the user's word, a job that was not there, or
    /// other files or keys.
    async fn rest_refused(&mut self, mut refusal: Refusal) -> Woken {
        self.forget_retry();
        let Refusal { kind, why, advice, .. } = refusal.clone();
        let state = format!("{why}; {advice}").into();
        self.log_fault(&why);
        if self.tell(NodeEvent::Refused { why, advice }).await.is_err() {
            return Woken::Stopped;
        }
        let _waiting = self.refusals.wait();
        loop {
            // The files are looked at only while a session waits: an older value says nothing of what changed since.
            let latest = *self.evidence.borrow_and_update();
            let now = latest.filter(|latest| latest.at > refusal.at).map(|latest| latest.fingerprint);
            // Files that could not be looked at then are compared from now on.
            refusal.evidence = refusal.evidence.or(now);
            if refusal.is_outdated(&self.jobs(), now) && self.refusals.may_try(&self.node, kind) {
                return Woken::Try;
            }
            match self.wait(None, &state).await {
                Woken::Changed => {}
                woken => return woken,
            }
        }
    }

    /// Waits after the node took the key and not the user: until SLURM was asked, and longer each time.
    async fn rest_denied(&mut self, why: Text, backoff: &mut Backoff) -> Woken {
        self.denied += 1;
        // Without a job list to contradict it, it can only be tried again.
        if self.denied >= MAX_DENIED && self.lists.borrow().is_fresh {
            self.denied = 0;
            let (kind, at) = (Kind::Account, Instant::now());
            let evidence = self.launcher.evidence().await;
            let advice = "SLURM says that a job of yours runs there: if `ssh` is denied too, ask the administrators; \
                          it is tried again for your next job there";
            let refusal = Refusal { kind, why, advice: advice.into(), jobs: self.jobs(), at, evidence };
            return self.rest_refused(refusal).await;
        }
        let wait = backoff.wait(Trouble::Denied, random());
        self.rest_down(why, wait, backoff, true).await
    }

    /// Waits until the next try is due, and where a job's end would explain the trouble until SLURM was asked too.
    async fn rest_down(
        &mut self,
        why: Text,
        wait: Duration,
        backoff: &Backoff,
        may_be_jobs_end: bool,
    ) -> Woken {
        self.forget_retry();
        let list = *self.lists.borrow_and_update();
        let asks = may_be_jobs_end && list.is_fresh && !self.jobs().is_empty();
        if asks {
            tracing::info!(
                node.name = %self.node, reason = %why,
                "the link closed; asking SLURM whether the job there has ended"
            );
            self.nudge.send(Reason::Doubt);
        } else {
            self.log_fault(&why);
        }
        let due = Instant::now() + wait;
        let ask_until = if asks { Instant::now() + LIST_LIMIT } else { due };
        let latest = due.max(ask_until);
        let retry_at_ms = self.clock.now_ms() + (latest - Instant::now()).as_millis() as u64;
        let why: Text =
            if backoff.is_broken() { format!("the probe keeps ending: {why}").into() } else { why };
        if self.tell(NodeEvent::Down { why: why.clone(), retry_at_ms }).await.is_err() {
            return Woken::Stopped;
        }
        let mut until = latest;
        loop {
            match self.wait(Some(until), &why).await {
                // The orders are those of the new list already; it decides whether this session goes on.
                Woken::Changed if self.lists.borrow_and_update().number != list.number => until = due,
                Woken::Changed => {}
                woken => return woken,
            }
        }
    }

    /// Waits for the user's word, for `until` if it is given, or for something to change; whoever asks the probe
    /// meanwhile is told `why` nobody answers.
    async fn wait(&mut self, until: Option<Instant>, why: &Text) -> Woken {
        let over = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        self.waits.store(true, Ordering::Release);
        let woken = loop {
            tokio::select! {
                () = &mut over => break Woken::Try,
                () = self.retry.notified() => break Woken::Try,
                changed = self.wanted.changed() => {
                    let stops = changed.is_err() || self.wanted.borrow().stop;
                    break if stops { Woken::Stopped } else { Woken::Changed };
                }
                changed = self.lists.changed() => break if changed.is_err() { Woken::Stopped } else { Woken::Changed },
                changed = self.evidence.changed() => break if changed.is_err() { Woken::Stopped } else { Woken::Changed },
                Some(question) = self.questions.recv() => self.turn_down(question, why),
            }
        };
        self.waits.store(false, Ordering::Release);
        woken
    }

    /// Takes back a retry that was asked for as the last wait ended: the try that followed was the answer to it.
    fn forget_retry(&self) {
        let retry = self.retry.notified();
        tokio::pin!(retry);
        retry.enable();
    }

    /// The user's jobs that run on the node now.
    fn jobs(&self) -> Vec<JobId> {
        self.wanted.borrow().orders.jobs.clone()
    }

    /// Logs why there is no link: loudly when it is news.
    fn log_fault(&mut self, why: &Text) {
        if self.fault.as_ref() == Some(why) {
            tracing::debug!(node.name = %self.node, reason = %why, "still no link to the node");
        } else {
            tracing::warn!(node.name = %self.node, reason = %why, "no link to the node");
            self.fault = Some(why.clone());
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
                launched = &mut launch => break launched.map_err(|error| self.parting(error))?,
                () = stopped(&mut self.wanted) => return Err(Parting::Stopped),
                Some(question) = self.questions.recv() => {
                    question.refuse(format!("{} is being connected; try again in a moment", self.node));
                }
            }
        };
        let mut talk = Talk::new(stream);
        self.wanted.mark_unchanged();
        let mut said = self.interval();
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
                    let interval = self.interval();
                    if interval != said {
                        talk.say(&interval);
                        said = interval;
                    }
                }
                // Somebody wants to know something of it, or have something done there.
                Some(question) = self.questions.recv() => talk.ask(question),
            }
        }
    }

    /// Passes on what is in a chunk.
    async fn hear(&mut self, talk: &mut Talk, chunk: &Bytes, backoff: &mut Backoff) -> Result<(), Parting> {
        talk.admit(chunk.len(), memchr::memchr_iter(b'\n', chunk).count())?;
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
                    if matches!(*line, ProbeLine::Hello(_)) {
                        talk.admit(0, HELLO_LINES)?;
                    }
                    self.note(talk, &line);
                    NodeEvent::Line(line)
                }
                Found::Piece => {
                    talk.alive();
                    continue;
                }
                Found::Noise(noise) => {
                    tracing::info!(node.name = %self.node, noise = %noise, "skipped what the login shell printed");
                    NodeEvent::Noise(noise)
                }
                Found::Lost { lines, sample } => {
                    tracing::warn!(node.name = %self.node, lines, sample = %sample, "skipped an unreadable line");
                    NodeEvent::Lost { lines, sample }
                }
            };
            self.tell(event).await?;
        }
        backoff.linked(talk.up());
        talk.ping();
        outcome.map_err(|error| match error {
            DecodeError::Version { .. } => Parting::NeedsUser {
                kind: Kind::Other,
                why: error.to_string().into(),
                advice: "restart the relay, so that it brings its own probe".into(),
            },
            // A host that only ever prints rubbish is not asked each second.
            _ => Parting::trouble(error.to_string(), talk.trouble()),
        })
    }

    /// Answers a hello and remembers how far the samples were read.
    fn note(&mut self, talk: &mut Talk, line: &ParsedLine) {
        if matches!(line, ProbeLine::Hello(_)) {
            talk.reseated();
        }
        match line {
            ProbeLine::Hello(hello) if !talk.greeted => {
                talk.greeted = true;
                (self.denied, self.hung) = (0, false);
                self.refusals.worked(&self.node);
                match self.fault.take() {
                    Some(_) => tracing::warn!(node.name = %self.node, "the node is linked again"),
                    None => tracing::info!(node.name = %self.node, "the node is linked"),
                }
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
        let wanted = self.wanted.borrow();
        let Orders { interval_ms, phase_ms, .. } = wanted.orders;
        Control::Interval { ms: interval_ms, phase_ms }
    }

    /// Why there is no conversation.
    fn parting(&mut self, error: LaunchError) -> Parting {
        match error {
            LaunchError::Auth { why, advice } => Parting::NeedsUser { kind: Kind::Login, why, advice },
            LaunchError::HostKey { why, advice } | LaunchError::Capability { why, advice } => {
                Parting::NeedsUser { kind: Kind::Other, why, advice }
            }
            // Once may be a file server that hung for a moment.
            LaunchError::Hangs { why, advice } => match std::mem::replace(&mut self.hung, true) {
                true => Parting::NeedsUser { kind: Kind::Other, why, advice },
                false => Parting::trouble(format!("{why}; {advice}"), Trouble::Harmful),
            },
            LaunchError::Denied { why } => Parting::trouble(why, Trouble::Denied),
            LaunchError::Unreachable { why } => Parting::trouble(why, Trouble::Link),
            LaunchError::Probe { why } => Parting::trouble(why, Trouble::ProbeEnded { after_ms: 0 }),
        }
    }

    async fn tell(&self, event: NodeEvent) -> Result<(), Parting> {
        let from = FromNode { node: self.node.clone(), at_ms: self.clock.now_ms(), event };
        self.events.send(from).await.map_err(|_| Parting::Stopped)
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
