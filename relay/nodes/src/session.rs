//! A session keeps one probe running on one node, or in one job there: an outer loop for retries, an inner one per connection.

use super::auth_failures::{AuthFailure, AuthFailureCache, CredentialSnapshot, FailureKind};
use super::backoff::{Backoff, RetryClass};
use super::connect_budget::{ConnectBudget, Outcome};
use super::decoder::{DecodeError, Found};
use super::input_limit::HELLO_LINES;
use super::link_log::LinkLog;
use super::probe_connection::{DisconnectReason, ProbeConnection};
use super::{FromNode, JobListVersion, NodePlan, QueuedRequest};
use bytes::Bytes;
use nodeglass_fleet::SessionEvent;
use nodeglass_launch::{LaunchError, Launcher, LoginState, NodeStream};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::random::random_u64;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{Control, ProbeLine};
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_slurm::{PollReason, PollTrigger};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Maximum time that a retry waits for a new job list, after a disconnect that the end of a job may explain.
const LIST_LIMIT: Duration = Duration::from_secs(10);
/// Number of denials, although SLURM lists a running job, after which the session stops retrying.
const MAX_DENIED: u32 = 5;

/// The target state of a session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) plan: NodePlan,
    /// Whether the probe and the session are to stop.
    pub(super) stop: bool,
}

/// The session of one node.
pub(super) struct Session {
    pub(super) node: NodeName,
    /// The job that the probe runs in; `None` for the node's own probe.
    pub(super) job: Option<JobId>,
    pub(super) launcher: Arc<dyn Launcher>,
    pub(super) clock: Clock,
    pub(super) events: mpsc::Sender<FromNode>,
    pub(super) wanted: watch::Receiver<Target>,
    /// Notified when the user requests a retry.
    pub(super) retry: Arc<Notify>,
    /// Limits the attempts of all sessions.
    pub(super) budget: ConnectBudget,
    /// Whether failures do not hold the next attempt back: the user requests it, or the cause of a refusal has changed.
    pub(super) is_urgent: bool,
    /// Whether the session waits, so that a requested retry has an effect.
    pub(super) waits: Arc<AtomicBool>,
    /// Requests to the probe.
    pub(super) requests: mpsc::Receiver<QueuedRequest>,
    /// Position in the last sample stream, to request what a broken link lost.
    pub(super) position: Option<StreamPosition>,
    /// Recent refusals of all nodes, including this one's in earlier sessions.
    pub(super) auth_failures: AuthFailureCache,
    /// The credentials before the current attempt.
    pub(super) attempted_with: Option<LoginState>,
    /// The job list that the target is based on.
    pub(super) job_lists: watch::Receiver<JobListVersion>,
    /// The current credentials.
    pub(super) credentials: watch::Receiver<Option<CredentialSnapshot>>,
    /// Requests an early poll of the job list.
    pub(super) poll_trigger: PollTrigger,
    /// Consecutive denials after an accepted key.
    pub(super) denied: u32,
    /// Whether the node's login script hung the last time.
    pub(super) hung: bool,
    /// Number of long waits for logins that hang or are denied to become possible, since there was a reason to try.
    pub(super) long_waits: usize,
    /// The fault that was last logged and not yet followed by a stable link.
    pub(super) fault: Option<Text>,
    /// Messages about links, of all nodes together.
    pub(super) link_log: LinkLog,
}

/// Position in a stream of samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamPosition {
    stream: u64,
    seq: u64,
}

/// Reason for the end of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WakeReason {
    /// The time is up, or the user requested a retry.
    Retry,
    /// The target, the job list or the credentials changed.
    Changed,
    /// The session is no longer wanted.
    Stopped,
}

impl Session {
    /// Runs the session until it is no longer wanted: retries, back-off and status events.
    pub(super) async fn run(mut self) {
        let mut backoff = Backoff::default();
        let mut recent_failure = self.auth_failures.recent(&self.node);
        loop {
            let reason = match recent_failure.take() {
                Some(failure) => self.wait_after_auth_failure(failure).await,
                None => match self.try_once(&mut backoff).await {
                    DisconnectReason::Stopped => WakeReason::Stopped,
                    DisconnectReason::NeedsUser { kind, why, advice } => {
                        let (jobs, at) = (self.jobs(), Instant::now());
                        let credentials = self.attempted_credentials().await;
                        let is_of_others = false;
                        let failure = AuthFailure { kind, why, advice, jobs, at, credentials, is_of_others };
                        self.auth_failures.record(&self.node, &failure);
                        self.wait_after_auth_failure(failure).await
                    }
                    DisconnectReason::OthersRefused(failure) => {
                        let (jobs, at) = (self.jobs(), Instant::now());
                        self.wait_after_auth_failure(AuthFailure { jobs, at, ..*failure }).await
                    }
                    DisconnectReason::Retry { why, trouble: RetryClass::Denied, .. } => {
                        self.wait_after_denial(why, &mut backoff).await
                    }
                    DisconnectReason::Retry { why, trouble, job_may_have_ended } => {
                        // Each attempt creates a job step, so there are few.
                        let trouble = if self.job.is_some() { RetryClass::Harmful } else { trouble };
                        self.wait_before_retry(
                            why,
                            backoff.wait(trouble, random_u64()),
                            &backoff,
                            job_may_have_ended,
                        )
                        .await
                    }
                },
            };
            if reason == WakeReason::Stopped {
                return;
            }
        }
    }

    /// Makes one connection attempt and serves it to its end. Makes none while the jobs on the node are completing:
    /// SLURM would wait for the processes of the login.
    async fn try_once(&mut self, backoff: &mut Backoff) -> DisconnectReason {
        self.clear_retry();
        let mut is_emitted = false;
        while self.wanted.borrow_and_update().plan.is_ending {
            if !is_emitted && self.emit(SessionEvent::Ending).await.is_err() {
                return DisconnectReason::Stopped;
            }
            is_emitted = true;
            match self.wait(None, &"its jobs are ending".into()).await {
                WakeReason::Stopped => return DisconnectReason::Stopped,
                WakeReason::Retry => break,
                WakeReason::Changed => {}
            }
        }
        // Read first: what the user changes during the attempt is a reason to retry.
        self.attempted_with = self.launcher.login_state().await;
        if let Err(reason) = self.emit(SessionEvent::Connecting { failures: backoff.failures() }).await {
            return reason;
        }
        let Err(reason) = self.run_connection(backoff).await;
        reason
    }

    /// Waits after a refusal until there is a reason to expect a different result: the user's request, a
    /// new job, changed files or keys, or time if that may help.
    async fn wait_after_auth_failure(&mut self, mut failure: AuthFailure) -> WakeReason {
        self.clear_retry();
        let (kind, cause) = (failure.kind, failure.cause());
        let AuthFailure { why, advice, .. } = failure.clone();
        let state: Text = format!("{why}; {advice}").into();
        // The first hang was logged with its advice; the same text is not logged as new.
        self.log_fault(if kind == FailureKind::Hang { &state } else { &why });
        let due = kind.wait_after(self.long_waits).map(|wait| failure.at + spread(wait, random_u64()));
        let event = match due {
            Some(due) => SessionEvent::Down { why: state.clone(), retry_at_ms: self.at_ms(due) },
            None => SessionEvent::Refused { cause, why, advice },
        };
        if self.emit(event).await.is_err() {
            return WakeReason::Stopped;
        }
        let _waiting = self.auth_failures.wait();
        loop {
            // Files are only checked while a session waits, so an older value says nothing about later
            // changes.
            let latest = self.credentials.borrow_and_update().clone();
            let now = latest.filter(|latest| latest.at > failure.at).map(|latest| latest.state);
            // If they could not be read then, compare from now on.
            failure.credentials = failure.credentials.or_else(|| now.clone());
            let is_solved = failure.is_of_others && self.auth_failures.was_accepted_since(failure.at);
            let is_outdated = failure.is_outdated(&self.jobs(), now.as_ref());
            if is_solved || (is_outdated && self.auth_failures.may_try(&self.node, kind)) {
                (self.is_urgent, self.long_waits) = (true, 0);
                return WakeReason::Retry;
            }
            match self.wait(due, &state).await {
                WakeReason::Changed => {}
                reason => {
                    if due.is_some_and(|due| due <= Instant::now()) {
                        self.long_waits += 1;
                        // One denial suffices: no job is being set up there.
                        self.denied = MAX_DENIED - 1;
                    } else {
                        self.long_waits = 0;
                    }
                    return reason;
                }
            }
        }
    }

    /// Waits after the node accepted the key and denied the user: until the job list is refreshed, with
    /// back-off.
    async fn wait_after_denial(&mut self, why: Text, backoff: &mut Backoff) -> WakeReason {
        self.denied += 1;
        // Without a fresh job list it can only be retried.
        if self.denied >= MAX_DENIED && self.job_lists.borrow().is_fresh {
            self.denied = 0;
            let (kind, at) = (FailureKind::Account, Instant::now());
            let credentials = self.attempted_credentials().await;
            let advice =
                "SLURM says that a job of yours runs there: if `ssh` is denied too, ask the administrators";
            let advice = match kind.wait_after(self.long_waits) {
                Some(_) => advice.to_owned(),
                None => format!("{advice}; it is tried again for your next job there"),
            };
            let failure = AuthFailure {
                kind,
                why,
                advice: advice.into(),
                jobs: self.jobs(),
                at,
                credentials,
                is_of_others: false,
            };
            return self.wait_after_auth_failure(failure).await;
        }
        let wait = backoff.wait(RetryClass::Denied, random_u64());
        self.wait_before_retry(why, wait, backoff, true).await
    }

    /// Waits until the next retry; if the end of a job would explain the failure, also for a new job
    /// list.
    async fn wait_before_retry(
        &mut self,
        why: Text,
        wait: Duration,
        backoff: &Backoff,
        job_may_have_ended: bool,
    ) -> WakeReason {
        self.clear_retry();
        let list = *self.job_lists.borrow_and_update();
        let polls_first = job_may_have_ended && list.is_fresh && !self.jobs().is_empty();
        if polls_first {
            tracing::info!(
                node.name = %self.node, reason = %why,
                "link closed; polling SLURM whether the job there has ended"
            );
            self.poll_trigger.send(PollReason::Doubt);
        } else {
            self.log_fault(&why);
        }
        let due = Instant::now() + wait;
        let poll_until = if polls_first { Instant::now() + LIST_LIMIT } else { due };
        let latest = due.max(poll_until);
        let retry_at_ms = self.at_ms(latest);
        let why: Text =
            if backoff.is_broken() { format!("the probe keeps ending: {why}").into() } else { why };
        if self.emit(SessionEvent::Down { why: why.clone(), retry_at_ms }).await.is_err() {
            return WakeReason::Stopped;
        }
        let mut until = latest;
        loop {
            match self.wait(Some(until), &why).await {
                // The target is already based on the new list; it decides whether this session continues.
                WakeReason::Changed if self.job_lists.borrow_and_update().number != list.number => {
                    until = due
                }
                WakeReason::Changed => {}
                reason => return reason,
            }
        }
    }

    /// Waits for a user request, for `until` if given, or for a change; requests meanwhile are refused
    /// with `why`.
    async fn wait(&mut self, until: Option<Instant>, why: &Text) -> WakeReason {
        let over = async {
            match until {
                Some(until) => sleep_until(until).await,
                None => std::future::pending().await,
            }
        };
        tokio::pin!(over);
        self.waits.store(true, Ordering::Release);
        let reason = loop {
            tokio::select! {
                () = &mut over => break WakeReason::Retry,
                () = self.retry.notified() => {
                    self.is_urgent = true;
                    break WakeReason::Retry;
                }
                changed = self.wanted.changed() => {
                    let stops = changed.is_err() || self.wanted.borrow().stop;
                    break if stops { WakeReason::Stopped } else { WakeReason::Changed };
                }
                changed = self.job_lists.changed() => break if changed.is_err() { WakeReason::Stopped } else { WakeReason::Changed },
                changed = self.credentials.changed() => break if changed.is_err() { WakeReason::Stopped } else { WakeReason::Changed },
                Some(queued) = self.requests.recv() => self.refuse_request(queued, why),
            }
        };
        self.waits.store(false, Ordering::Release);
        reason
    }

    /// The time by the relay's clock.
    fn at_ms(&self, at: Instant) -> u64 {
        self.clock.now_ms() + at.saturating_duration_since(Instant::now()).as_millis() as u64
    }

    /// Discards a retry request that arrived as the last wait ended: the attempt that followed has served
    /// it.
    fn clear_retry(&self) {
        let retry = self.retry.notified();
        tokio::pin!(retry);
        retry.enable();
    }

    /// The user's jobs that run on the node.
    fn jobs(&self) -> Vec<JobId> {
        self.wanted.borrow().plan.jobs.clone()
    }

    /// The credentials of the attempt that failed. Files that a login names are known only after the first
    /// one, and are taken as they are now.
    async fn attempted_credentials(&mut self) -> Option<LoginState> {
        LoginState::join(self.attempted_with.take(), self.launcher.login_state().await)
    }

    /// Logs the reason for a missing link, as a warning if the reason is new.
    fn log_fault(&mut self, why: &Text) {
        if self.fault.as_ref() == Some(why) {
            tracing::debug!(node.name = %self.node, reason = %why, "still no connection to the node");
        } else {
            match self.job {
                None => self.link_log.broken(&self.node, why),
                Some(job) => {
                    self.link_log.broken(&self.node, &format!("the probe of job {job}: {why}").into())
                }
            }
            self.fault = Some(why.clone());
        }
    }

    fn refuse_request(&self, queued: QueuedRequest, why: &Text) {
        queued.refuse(format!("{} cannot be reached: {why}", self.node));
    }

    /// Returns an attempt to start a probe, within the limits of all sessions.
    fn attempt(
        &mut self,
        backoff: &Backoff,
    ) -> impl Future<Output = Result<NodeStream, NotLaunched>> + use<> {
        let (launcher, node, budget) = (Arc::clone(&self.launcher), self.node.clone(), self.budget.clone());
        let is_urgent = std::mem::take(&mut self.is_urgent);
        let is_retry = backoff.failures() > 0 && !is_urgent;
        // Accounts of listed machines may differ.
        let others = self.auth_failures.clone();
        let asks_others = !is_urgent && self.wanted.borrow().plan.target == 0;
        async move {
            let attempt = budget.acquire(is_retry).await;
            if let Some(failure) = others.of_others().filter(|_| asks_others) {
                return Err(NotLaunched::OthersRefused(failure));
            }
            let launched = launcher.launch(&node).await;
            attempt.ended(match &launched {
                Ok(_) => Outcome::Connected,
                Err(LaunchError::Throttled { .. }) => Outcome::Throttled,
                Err(_) => Outcome::Failed,
            });
            launched.map_err(NotLaunched::Failed)
        }
    }

    /// Starts a probe and serves the connection until it ends.
    async fn run_connection(
        &mut self,
        backoff: &mut Backoff,
    ) -> Result<std::convert::Infallible, DisconnectReason> {
        let launch = self.attempt(backoff);
        tokio::pin!(launch);
        let stream = loop {
            tokio::select! {
                launched = &mut launch => break launched.map_err(|error| match error {
                    NotLaunched::Failed(error) => self.disconnect_reason(error),
                    NotLaunched::OthersRefused(failure) => DisconnectReason::OthersRefused(Box::new(failure)),
                })?,
                () = stopped(&mut self.wanted) => return Err(DisconnectReason::Stopped),
                Some(queued) = self.requests.recv() => {
                    queued.refuse(format!("{} is being connected; try again in a moment", self.node));
                }
            }
        };
        let mut connection = ProbeConnection::new(stream);
        self.wanted.mark_unchanged();
        let (mut sent_interval, mut sent_notes) = (self.interval(), self.note_jobs());
        loop {
            tokio::select! {
                // Output of the probe, or its end.
                chunk = connection.stream.stdout.recv() => match chunk {
                    Some(chunk) => self.handle_chunk(&mut connection, &chunk, backoff).await?,
                    None => return Err(connection.stdout_closed(&self.node).await),
                },
                // No complete line in time.
                () = sleep_until(connection.deadline) => return Err(connection.timed_out(&self.node)),
                // The target changed.
                changed = self.wanted.changed() => {
                    if changed.is_err() || self.wanted.borrow_and_update().stop {
                        return Err(connection.stop().await);
                    }
                    let interval = self.interval();
                    if interval != sent_interval {
                        connection.send(&interval);
                        sent_interval = interval;
                    }
                    let note_jobs = self.note_jobs();
                    if note_jobs != sent_notes {
                        connection.send(&note_jobs);
                        sent_notes = note_jobs;
                    }
                }
                // A request to the probe.
                Some(queued) = self.requests.recv() => connection.request(queued),
            }
        }
    }

    /// Handles a decoded item; returns the event that the fleet receives, if there is one.
    fn event(
        &mut self,
        connection: &mut ProbeConnection,
        mut found: Found,
    ) -> Result<Option<SessionEvent>, DisconnectReason> {
        if let Found::Line(line) = &mut found {
            self.launcher.rename_jobs(&self.node, line);
        }
        if matches!(found, Found::Line(_) | Found::Piece) {
            connection.line_received();
        }
        Ok(match found {
            Found::Line(line) if matches!(*line, ProbeLine::Response(_)) => {
                connection.resolve(*line);
                None
            }
            Found::Line(line) if matches!(&*line, ProbeLine::Sample(sample) if !connection.has_baseline_for(sample)) =>
            {
                // The reply to an interval is a complete sample.
                connection.send(&self.interval());
                None
            }
            Found::Line(line) => {
                if matches!(*line, ProbeLine::Hello(_)) {
                    connection.admit(0, HELLO_LINES)?;
                }
                self.note(connection, &line);
                Some(SessionEvent::Line(line))
            }
            Found::Piece => None,
            Found::Noise(noise) => {
                tracing::info!(node.name = %self.node, noise = %noise, "skipped output of the login shell");
                Some(SessionEvent::Noise(noise))
            }
            Found::Lost { lines, sample } => {
                tracing::warn!(node.name = %self.node, lines, sample = %sample, "skipped an unreadable line");
                Some(SessionEvent::Lost { lines, sample })
            }
        })
    }

    /// Decodes a chunk and emits its events.
    async fn handle_chunk(
        &mut self,
        connection: &mut ProbeConnection,
        chunk: &Bytes,
        backoff: &mut Backoff,
    ) -> Result<(), DisconnectReason> {
        connection.admit(chunk.len(), memchr::memchr_iter(b'\n', chunk).count())?;
        let outcome = connection.decoder.feed(chunk, self.clock.now_ms(), &mut connection.found);
        for found in std::mem::take(&mut connection.found) {
            if let Some(event) = self.event(connection, found)? {
                self.emit(event).await?;
            }
        }
        backoff.connected(connection.uptime());
        connection.ping();
        outcome.map_err(|error| match error {
            DecodeError::Version { .. } => DisconnectReason::NeedsUser {
                kind: FailureKind::Other,
                why: error.to_string().into(),
                advice: "restart the relay to upload its own probe".into(),
            },
            // A host that only prints garbage must not be retried every second.
            _ => DisconnectReason::trouble(error.to_string(), connection.trouble()),
        })
    }

    /// Responds to a hello and records the position in the sample stream.
    fn note(&mut self, connection: &mut ProbeConnection, line: &ParsedLine) {
        if matches!(line, ProbeLine::Hello(_)) {
            connection.reset_baseline();
        }
        match line {
            ProbeLine::Hello(hello) if !connection.got_hello => {
                connection.got_hello = true;
                (self.denied, self.hung, self.long_waits) = (0, false, 0);
                self.auth_failures.succeeded(&self.node);
                match self.fault.take() {
                    _ if self.job.is_some() => {
                        tracing::info!(node.name = %self.node, job = ?self.job, "a probe runs in a job");
                    }
                    Some(_) => self.link_log.restored(&self.node),
                    None => tracing::info!(node.name = %self.node, "the node is linked"),
                }
                connection.send(&self.interval());
                let note_jobs = self.note_jobs();
                if !matches!(&note_jobs, Control::Notes { jobs } if jobs.is_empty()) {
                    connection.send(&note_jobs);
                }
                match self.position.filter(|position| position.stream == hello.stream) {
                    Some(StreamPosition { stream, seq }) => {
                        tracing::debug!(node.name = %self.node, after_seq = seq, "requested the missed samples");
                        connection.send(&Control::Backfill { stream, after_seq: seq });
                    }
                    None => self.position = Some(StreamPosition { stream: hello.stream, seq: 0 }),
                }
            }
            ProbeLine::Hello(hello)
                if self.position.is_none_or(|position| position.stream != hello.stream) =>
            {
                self.position = Some(StreamPosition { stream: hello.stream, seq: 0 });
            }
            ProbeLine::Sample(sample) => {
                if let Some(position) = &mut self.position {
                    position.seq = position.seq.max(sample.seq);
                }
            }
            ProbeLine::Bye(bye) => connection.bye = Some(bye.reason.clone()),
            _ => {}
        }
    }

    fn interval(&self) -> Control {
        let wanted = self.wanted.borrow();
        let NodePlan { interval_ms, phase_ms, .. } = wanted.plan;
        Control::Interval { ms: interval_ms, phase_ms }
    }

    /// Returns the jobs whose notes the probe reads.
    fn note_jobs(&self) -> Control {
        Control::Notes { jobs: self.wanted.borrow().plan.note_jobs.clone() }
    }

    /// Maps a launch error.
    fn disconnect_reason(&mut self, error: LaunchError) -> DisconnectReason {
        match error {
            LaunchError::Auth { why, advice } => {
                DisconnectReason::NeedsUser { kind: FailureKind::Login, why, advice }
            }
            LaunchError::HostKey { why, advice }
            | LaunchError::Capability { why, advice }
            | LaunchError::Incompatible { why, advice } => {
                DisconnectReason::NeedsUser { kind: FailureKind::Other, why, advice }
            }
            // A single occurrence may be a file server that hung for a moment.
            LaunchError::Hangs { why, advice } => match std::mem::replace(&mut self.hung, true) {
                true => DisconnectReason::NeedsUser { kind: FailureKind::Hang, why, advice },
                false => DisconnectReason::trouble(format!("{why}; {advice}"), RetryClass::Harmful),
            },
            LaunchError::Denied { why } => DisconnectReason::trouble(why, RetryClass::Denied),
            LaunchError::Unreachable { why } => {
                // On a slow line, logins seem to hang as well.
                self.hung = false;
                DisconnectReason::trouble(why, RetryClass::Link)
            }
            LaunchError::Throttled { why } => DisconnectReason::trouble(why, RetryClass::Throttled),
            LaunchError::Probe { why } => {
                DisconnectReason::trouble(why, RetryClass::ProbeEnded { after_ms: 0 })
            }
        }
    }

    async fn emit(&self, event: SessionEvent) -> Result<(), DisconnectReason> {
        let from = FromNode { node: self.node.clone(), job: self.job, at_ms: self.clock.now_ms(), event };
        self.events.send(from).await.map_err(|_| DisconnectReason::Stopped)
    }
}

/// Reason why an attempt started no probe.
enum NotLaunched {
    Failed(LaunchError),
    /// Other nodes refused the login, so no attempt was made.
    OthersRefused(AuthFailure),
}

/// Completes when the session is no longer wanted.
async fn stopped(wanted: &mut watch::Receiver<Target>) {
    // An error means that the supervisor is gone, which is equivalent.
    let _ = wanted.wait_for(|wanted| wanted.stop).await;
}

/// Lengthens a wait by up to a tenth: many nodes may depend on one file server.
fn spread(wait: Duration, random: u64) -> Duration {
    wait + wait.mul_f64((random % 1_000) as f64 / 10_000.0)
}
