//! What a node refused outlives its session, so that the next job there is no reason to try a bad login again at once.

use nodeglass_protocol::{NodeName, Text};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// For so long a node that is wanted anew is not tried: sshd's longest penalty (`PerSourcePenalties`).
pub(super) const HOLDS: Duration = Duration::from_secs(600);

/// The refusals of all nodes.
#[derive(Clone, Debug, Default)]
pub(super) struct Refusals(Arc<Mutex<BTreeMap<NodeName, Refusal>>>);

#[derive(Debug)]
struct Refusal {
    why: Text,
    advice: Text,
    at: Instant,
}

impl Refusals {
    /// Remembers that a node refused.
    pub(super) fn note(&self, node: &NodeName, why: &Text, advice: &Text) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|_, refusal| refusal.at.elapsed() < HOLDS);
        let refusal = Refusal { why: why.clone(), advice: advice.clone(), at: Instant::now() };
        all.insert(node.clone(), refusal);
    }

    /// Why a node refused not long ago, and what to do about it.
    pub(super) fn recent(&self, node: &NodeName) -> Option<(Text, Text)> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let refusal = all.get(node).filter(|refusal| refusal.at.elapsed() < HOLDS)?;
        Some((refusal.why.clone(), refusal.advice.clone()))
    }
}
