//! Deliberate violations of guarantees, which prove that the oracle detects them.

use crate::history::{Fault, Kind, Scope};

/// A violation that is not declared to the oracle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Broken {
    /// Viewers ignore the changes of deltas.
    Picture,
    /// Readings are stated to be new.
    Age,
    /// Every node is shown as connected.
    Link,
    /// Lost lines are not shown.
    Losses,
    /// Tasks accumulate.
    Memory,
    /// A node stays unreachable after its fault.
    Fresh,
    /// A node without a fault is delayed while others have one.
    Neighbours,
    /// Nodes are retried without back-off.
    Load,
    /// Probes continue without a relay.
    Orphans,
    /// Samples that were missed are not filled in.
    History,
    /// A finding does not resolve.
    Findings,
}

/// All of them, with their names.
pub const ALL: &[(&str, Broken)] = &[
    ("picture", Broken::Picture),
    ("age", Broken::Age),
    ("link", Broken::Link),
    ("losses", Broken::Losses),
    ("memory", Broken::Memory),
    ("fresh", Broken::Fresh),
    ("neighbours", Broken::Neighbours),
    ("load", Broken::Load),
    ("orphans", Broken::Orphans),
    ("history", Broken::History),
    ("findings", Broken::Findings),
];

impl Broken {
    /// A fault without which it has no effect.
    pub fn needs(self) -> Option<Fault> {
        let kind = match self {
            Self::Link | Self::History => Kind::HalfOpen,
            Self::Losses => Kind::Garbage,
            Self::Load => Kind::Refused,
            Self::Orphans => Kind::LoginNodeLost,
            _ => return None,
        };
        let of = if kind == Kind::LoginNodeLost { vec![] } else { vec![0] };
        Some(Fault { kind, from_s: 8, to_s: 28, of, number: 5 })
    }

    /// Returns whether the oracle cannot tell the violation from the effect of a fault.
    pub fn is_hidden_by(self, fault: &Fault) -> bool {
        let of_all = fault.kind.properties().scope == Scope::Cluster;
        match self {
            // Once three nodes refuse the login, others without a connection are not tried.
            Self::Neighbours => of_all || fault.of.contains(&4) || fault.kind == Kind::KeyRejected,
            Self::Fresh | Self::History => of_all || fault.of.contains(&0),
            _ => false,
        }
    }
}
