//! Remembers refused logins beyond a session, so that they are retried rarely and only for a reason.
//!
//! A reason is a new job on the node, a changed file or agent, or the user's request. Retries that offer
//! a key are limited over all nodes: sshd (`PerSourcePenalties`) and tools that watch its log count
//! failures per address, and a locked-out login node would hurt everybody on it. Retries of one node are
//! limited for any refusal, so no error in these reasons can flood it.

use nodeglass_fleet::RefusalCause;
use nodeglass_launch::LoginState;
use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// Time for which a refusal is remembered after its session: sshd's longest penalty.
pub(super) const REMEMBER_FOR: Duration = Duration::from_secs(600);
/// Maximum number of automatic login retries within [`REMEMBER_FOR`], over all nodes.
pub(super) const MAX_LOGIN_RETRIES: usize = 6;

/// Once this many nodes have refused the login and none has accepted it since, further nodes are not tried: the agent or
/// the ticket is gone, and each node would count a failure.
const SITE_REFUSES: usize = 3;

/// Waits, in min, before a node is tried again whose logins hang or are denied; 5 h in all.
const LONG_WAITS_MINUTES: [u64; 5] = [10, 20, 40, 80, 150];

/// Minimum time between two automatic retries of a node.
pub(super) const MIN_RETRY_GAP: Duration = Duration::from_secs(30);

/// The state of keys and configuration at some time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct CredentialSnapshot {
    /// When it was read.
    pub(super) at: Instant,
    pub(super) state: LoginState,
}

/// The kind of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureKind {
    /// The user's keys.
    Login,
    /// Something before the login (host key, configuration), or the probe's version: a retry offers no
    /// key in vain.
    Other,
    /// The login was accepted and hung, repeatedly: a file server may not respond, for minutes or hours.
    Hang,
    /// The key was accepted and the login denied, as for a user without a job there, or while a disk is full or the
    /// directory of users does not respond: valid only for the current jobs.
    Account,
}

impl FailureKind {
    /// Returns how long to wait before the next attempt, after this number of waits; `None` if only a new job, changed files
    /// or keys, or a request justify one. The node refused no key, so attempts lock nobody out; but each may leave a
    /// process behind there.
    pub(super) fn wait_after(self, waits: usize) -> Option<Duration> {
        match self {
            Self::Hang | Self::Account => {
                LONG_WAITS_MINUTES.get(waits).map(|minutes| Duration::from_secs(minutes * 60))
            }
            Self::Login | Self::Other => None,
        }
    }
}

/// A remembered refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct AuthFailure {
    pub(super) kind: FailureKind,
    pub(super) why: Text,
    pub(super) advice: Text,
    /// The user's jobs on the node at that time.
    pub(super) jobs: Vec<JobId>,
    /// When it happened.
    pub(super) at: Instant,
    /// The credentials of that attempt, read before it.
    pub(super) credentials: Option<LoginState>,
    /// Whether other nodes refused, and this one was not tried.
    pub(super) is_of_others: bool,
}

impl AuthFailure {
    /// Returns what it concerns.
    pub(super) fn cause(&self) -> RefusalCause {
        match self.kind {
            FailureKind::Login if self.is_of_others => RefusalCause::OtherNodes,
            FailureKind::Login => RefusalCause::Login,
            FailureKind::Other | FailureKind::Hang | FailureKind::Account => RefusalCause::Node,
        }
    }

    /// Returns whether there is a reason to expect a different result now.
    pub(super) fn is_outdated(&self, jobs: &[JobId], credentials: Option<&LoginState>) -> bool {
        let has_new_job = jobs.iter().any(|job| !self.jobs.contains(job));
        let is_other =
            matches!((&self.credentials, credentials), (Some(then), Some(now)) if now.differs_from(then));
        has_new_job || is_other
    }
}

/// The refusals of all nodes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct AuthFailureCache(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Number of sessions that wait for a reason to retry.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    failures: BTreeMap<NodeName, AuthFailure>,
    /// When each node was last retried automatically; only those within [`MIN_RETRY_GAP`].
    tries: BTreeMap<NodeName, Instant>,
    /// Automatic login retries, of nodes that refused and of nodes that others stand for.
    logins: VecDeque<(NodeName, Instant)>,
    /// Whether the last of these succeeded: the fix probably applies to all nodes.
    has_recovered: bool,
    /// When a node last accepted the login.
    accepted_at: Option<Instant>,
}

impl AuthFailureCache {
    /// Records a refusal.
    pub(super) fn record(&self, node: &NodeName, failure: &AuthFailure) {
        let mut state = self.state();
        state.failures.retain(|_, failure| failure.at.elapsed() < REMEMBER_FOR);
        state.has_recovered &= failure.kind != FailureKind::Login;
        if failure.kind != FailureKind::Account && !failure.is_of_others {
            state.failures.insert(node.clone(), failure.clone());
        }
    }

    /// The recent refusal of a node.
    pub(super) fn recent(&self, node: &NodeName) -> Option<AuthFailure> {
        let state = self.state();
        state.failures.get(node).filter(|failure| failure.at.elapsed() < REMEMBER_FOR).cloned()
    }

    /// Returns the newest refusal if so many other nodes refused the login that a further one is not tried.
    pub(super) fn of_others(&self) -> Option<AuthFailure> {
        let state = self.state();
        let is_valid = |failure: &&AuthFailure| {
            failure.kind == FailureKind::Login
                && failure.at.elapsed() < REMEMBER_FOR
                && state.accepted_at.is_none_or(|accepted_at| accepted_at < failure.at)
        };
        let refusals: Vec<_> = state.failures.values().filter(is_valid).collect();
        let newest =
            refusals.iter().max_by_key(|failure| failure.at).filter(|_| refusals.len() >= SITE_REFUSES)?;
        let why =
            format!("not tried, because {} other nodes refused the login: {}", refusals.len(), newest.why);
        Some(AuthFailure { why: why.into(), is_of_others: true, ..(*newest).clone() })
    }

    /// Returns whether a node has accepted the login since a time.
    pub(super) fn was_accepted_since(&self, at: Instant) -> bool {
        self.state().accepted_at.is_some_and(|accepted_at| accepted_at >= at)
    }

    /// Returns whether a node may be retried automatically now, and counts the retry.
    pub(super) fn may_try(&self, node: &NodeName, kind: FailureKind) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        state.tries.retain(|_, at| at.elapsed() < MIN_RETRY_GAP);
        state.logins.retain(|(_, at)| at.elapsed() < REMEMBER_FOR);
        let is_limited = kind == FailureKind::Login && !state.has_recovered;
        if state.tries.contains_key(node) || (is_limited && state.logins.len() >= MAX_LOGIN_RETRIES) {
            return false;
        }
        if is_limited {
            state.logins.push_back((node.clone(), now));
        }
        state.tries.insert(node.clone(), now);
        true
    }

    /// Records a successful login. If the node had refused before, or others stood for it, all are retried, until one
    /// refuses again.
    pub(super) fn succeeded(&self, node: &NodeName) {
        let mut state = self.state();
        state.accepted_at = Some(Instant::now());
        let had_refused =
            state.failures.remove(node).is_some_and(|failure| failure.kind == FailureKind::Login);
        state.has_recovered |= had_refused || state.logins.iter().any(|(retried, _)| retried == node);
    }

    /// Forgets the refusal of a node that is to be reached in another way.
    pub(super) fn forget(&self, node: &NodeName) {
        self.state().failures.remove(node);
    }

    /// Counts a session as waiting until the guard is dropped.
    pub(super) fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }

    /// Returns whether any session waits.
    pub(super) fn has_waiters(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A waiting session.
#[derive(Debug)]
pub(super) struct Waiting(AuthFailureCache);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
