//! What a node refused outlives its session, so that a bad login is tried again only for a reason, and rarely.
//!
//! A reason is a job that was not there when the node refused, a file or an agent that is other than it was, or the
//! user's word. Tries that offer a key are limited for all nodes together: sshd (`PerSourcePenalties`) and the tools that watch
//! its log count failures by address, and locking the login node out would hurt everybody on it. Tries of one node are limited
//! whatever it refused, so that no fault in these reasons makes a flood of connections.

use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::{BTreeMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For so long a refusal is remembered after its session: sshd's longest penalty.
pub(super) const HOLDS: Duration = Duration::from_secs(600);
/// So many logins are tried again without the user's word within [`HOLDS`], of all nodes together.
pub(super) const MAX_LOGINS: usize = 6;

/// Least time between two tries of a node that refused without the user's word.
pub(super) const TRY_GAP: Duration = Duration::from_secs(30);

/// What there was to log in with at some time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Evidence {
    /// When the look began.
    pub(super) at: Instant,
    /// What it found ([`crate::launch::Launcher::evidence`]).
    pub(super) fingerprint: u64,
}

/// What was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The user's keys.
    Login,
    /// Something before the login (host key, configuration), or the probe's version: a try offers no key in vain.
    Other,
    /// The key was accepted and the login denied, as for a user without a job there: holds only for the jobs of then.
    Account,
}

/// A refusal as it is remembered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) kind: Kind,
    pub(super) why: Text,
    pub(super) advice: Text,
    /// The user's jobs on the node when it refused.
    pub(super) jobs: Vec<JobId>,
    /// When it refused.
    pub(super) at: Instant,
    /// What there was to log in with then ([`crate::launch::Launcher::evidence`]).
    pub(super) evidence: Option<u64>,
}

impl Refusal {
    /// Whether there is a reason to expect another answer now.
    pub(super) fn is_outdated(&self, jobs: &[JobId], evidence: Option<u64>) -> bool {
        let has_new_job = jobs.iter().any(|job| !self.jobs.contains(job));
        let is_other = matches!((self.evidence, evidence), (Some(then), Some(now)) if then != now);
        has_new_job || is_other
    }
}

/// The refusals of all nodes. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    /// Sessions that wait for a reason.
    waiting: AtomicUsize,
}

#[derive(Debug, Default)]
struct State {
    remembered: BTreeMap<NodeName, Refusal>,
    /// When each node was last tried again without the user's word; only those within [`TRY_GAP`].
    tries: BTreeMap<NodeName, Instant>,
    /// When logins were tried again without the user's word.
    logins: VecDeque<Instant>,
    /// Whether the last of these tries was let in: what was mended is likely mended for all nodes.
    is_mended: bool,
}

impl Refusals {
    /// Remembers that a node refused.
    pub(super) fn note(&self, node: &NodeName, refusal: &Refusal) {
        let mut state = self.state();
        state.remembered.retain(|_, refusal| refusal.at.elapsed() < HOLDS);
        state.is_mended &= refusal.kind != Kind::Login;
        if refusal.kind != Kind::Account {
            state.remembered.insert(node.clone(), refusal.clone());
        }
    }

    /// What a node refused not long ago.
    pub(super) fn recent(&self, node: &NodeName) -> Option<Refusal> {
        let state = self.state();
        state.remembered.get(node).filter(|refusal| refusal.at.elapsed() < HOLDS).cloned()
    }

    /// Whether a node whose refusal is outdated may be tried again now; if so, that counts.
    pub(super) fn may_try(&self, node: &NodeName, kind: Kind) -> bool {
        let (mut state, now) = (self.state(), Instant::now());
        state.tries.retain(|_, at| at.elapsed() < TRY_GAP);
        state.logins.retain(|at| at.elapsed() < HOLDS);
        let is_limited = kind == Kind::Login && !state.is_mended;
        if state.tries.contains_key(node) || (is_limited && state.logins.len() >= MAX_LOGINS) {
            return false;
        }
        if is_limited {
            state.logins.push_back(now);
        }
        state.tries.insert(node.clone(), now);
        true
    }

    /// A node lets the user in. If it had refused, the others are tried too, until one refuses again.
    pub(super) fn worked(&self, node: &NodeName) {
        let mut state = self.state();
        state.is_mended |= state.remembered.remove(node).is_some_and(|refusal| refusal.kind == Kind::Login);
    }

    /// Counts a session as waiting until the guard is dropped.
    pub(super) fn wait(&self) -> Waiting {
        self.0.waiting.fetch_add(1, Ordering::Relaxed);
        Waiting(self.clone())
    }

    /// Whether any session waits.
    pub(super) fn are_awaited(&self) -> bool {
        self.0.waiting.load(Ordering::Relaxed) > 0
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A session that waits for a reason to try again.
#[derive(Debug)]
pub(super) struct Waiting(Refusals);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.0.waiting.fetch_sub(1, Ordering::Relaxed);
    }
}
