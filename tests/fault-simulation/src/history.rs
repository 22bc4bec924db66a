//! Histories of faults: the catalogue of kinds, how a seed becomes a history, and how one is printed.

use crate::random::Random;
use std::fmt;

/// Number of nodes that jobs run on.
pub const NODES: usize = 6;
/// Number of viewers.
pub const VIEWERS: usize = 4;
/// Time of the earliest fault, in s after the start.
pub const FIRST_S: u64 = 15;
/// Time by which the last fault has ended, in s after the start.
pub const HEALED_S: u64 = 120;

/// What a fault affects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// Some nodes.
    Nodes,
    /// All nodes, or none.
    Cluster,
    /// One viewer.
    Viewer,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Refused,
    NoAnswer,
    NoHello,
    Denied,
    KeyRejected,
    Cut,
    Killed,
    HalfOpen,
    Slow,
    Garbage,
    HugeLine,
    Backfilled,
    Crash,
    Unreachable,
    Silent,
    DriverHang,
    NoDriver,
    ClockSkew,
    SlurmFails,
    SlurmHangs,
    JobEnds,
    JobRequeued,
    NodeRemoved,
    NodeAdded,
    RelayKilled,
    RelayRestarted,
    LoginNodeLost,
    Suspended,
    LoginClock,
    DiskFull,
    ViewerSlow,
    ViewerLeaves,
}

/// The properties of a kind.
#[derive(Clone, Copy, Debug)]
pub struct Properties {
    pub kind: Kind,
    pub scope: Scope,
    /// Relative frequency.
    pub weight: u64,
    /// Shortest and longest duration in s.
    pub lasts_s: (u64, u64),
    /// Time after its end by which what it affects is as before, in s.
    pub heals_s: u64,
}

const fn row(kind: Kind, scope: Scope, weight: u64, lasts_s: (u64, u64), heals_s: u64) -> Properties {
    Properties { kind, scope, weight, lasts_s, heals_s }
}

/// Every kind of fault. A node that accepts logins and answers nothing, four times in a row, is retried every 30 s to 60 s.
/// The job list is polled every 5 s, and at the latest 120 s after failures.
pub const CATALOGUE: &[Properties] = &[
    // Connections: see `wire`.
    row(Kind::Refused, Scope::Nodes, 6, (1, 60), 10),
    row(Kind::NoAnswer, Scope::Nodes, 4, (1, 60), 18),
    row(Kind::NoHello, Scope::Nodes, 3, (1, 60), 75),
    row(Kind::Denied, Scope::Nodes, 2, (1, 20), 35),
    row(Kind::KeyRejected, Scope::Nodes, 2, (5, 60), 45),
    row(Kind::Cut, Scope::Nodes, 8, (1, 1), 10),
    row(Kind::Killed, Scope::Nodes, 4, (1, 1), 10),
    row(Kind::HalfOpen, Scope::Nodes, 8, (1, 60), 20),
    row(Kind::Slow, Scope::Nodes, 6, (5, 60), 10),
    row(Kind::Garbage, Scope::Nodes, 4, (1, 1), 10),
    row(Kind::HugeLine, Scope::Nodes, 3, (1, 1), 10),
    row(Kind::Backfilled, Scope::Nodes, 4, (1, 1), 10),
    // Nodes: faults of the scenario.
    row(Kind::Crash, Scope::Nodes, 4, (5, 60), 10),
    row(Kind::Unreachable, Scope::Nodes, 4, (1, 60), 10),
    row(Kind::Silent, Scope::Nodes, 4, (5, 60), 75),
    row(Kind::DriverHang, Scope::Nodes, 3, (5, 60), 10),
    row(Kind::NoDriver, Scope::Nodes, 2, (5, 60), 10),
    row(Kind::ClockSkew, Scope::Nodes, 2, (5, 60), 10),
    // SLURM: see `slurm`.
    row(Kind::SlurmFails, Scope::Cluster, 4, (5, 60), 10),
    row(Kind::SlurmHangs, Scope::Cluster, 3, (5, 60), 10),
    row(Kind::JobEnds, Scope::Cluster, 3, (10, 60), 20),
    row(Kind::JobRequeued, Scope::Cluster, 3, (10, 60), 20),
    row(Kind::NodeRemoved, Scope::Cluster, 2, (10, 60), 20),
    row(Kind::NodeAdded, Scope::Cluster, 2, (20, 60), 20),
    // The relay and its machine.
    row(Kind::RelayKilled, Scope::Cluster, 3, (1, 40), 20),
    row(Kind::RelayRestarted, Scope::Cluster, 2, (1, 20), 20),
    row(Kind::LoginNodeLost, Scope::Cluster, 2, (20, 60), 20),
    row(Kind::Suspended, Scope::Cluster, 2, (2, 40), 20),
    row(Kind::LoginClock, Scope::Cluster, 2, (5, 60), 10),
    row(Kind::DiskFull, Scope::Cluster, 2, (5, 90), 10),
    // Viewers.
    row(Kind::ViewerSlow, Scope::Viewer, 6, (2, 40), 5),
    row(Kind::ViewerLeaves, Scope::Viewer, 6, (1, 30), 5),
];

/// A fault of a history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    pub kind: Kind,
    /// Start and end, in s since the start of the simulation.
    pub from_s: u64,
    pub to_s: u64,
    /// The affected nodes, or the viewer.
    pub of: Vec<usize>,
    /// A number that the kind may use.
    pub number: u64,
}

impl Kind {
    /// Its properties.
    pub fn properties(self) -> &'static Properties {
        let found = CATALOGUE.iter().find(|properties| properties.kind == self);
        found.expect("the catalogue has every kind")
    }
}

impl Fault {
    /// Returns whether it is active at `at_s`.
    pub fn is_active(&self, at_s: u64) -> bool {
        (self.from_s..self.to_s).contains(&at_s)
    }

    /// Returns whether it affects a node directly.
    pub fn affects(&self, node: usize) -> bool {
        self.kind.properties().scope == Scope::Nodes && self.of.contains(&node)
    }
}

/// The history of a seed.
pub fn of_seed(seed: u64) -> Vec<Fault> {
    let mut random = Random::new(seed);
    let total = CATALOGUE.iter().map(|properties| properties.weight).sum();
    let count = random.within((1, 12));
    let mut faults: Vec<Fault> = (0..count).map(|_| fault(&mut random, total)).collect();
    faults.sort_by_key(|fault| fault.from_s);
    // One relay runs at a time, and what it does while it does not run has no effect.
    let mut until_s = 0;
    faults.retain(|fault| {
        let is_of_relay = stops_relay(fault.kind);
        let is_apart = !is_of_relay || fault.from_s > until_s;
        until_s = if is_of_relay && is_apart { fault.to_s + 1 } else { until_s };
        is_apart
    });
    // What would end while the machine is suspended ends afterwards.
    let suspensions: Vec<_> = faults.iter().filter(|fault| fault.kind == Kind::Suspended).cloned().collect();
    for fault in &mut faults {
        let during = suspensions.iter().find(|suspension| suspension.is_active(fault.to_s));
        fault.to_s = during.map_or(fault.to_s, |suspension| suspension.to_s);
    }
    faults
}

/// Returns whether no relay runs during a fault.
pub fn stops_relay(kind: Kind) -> bool {
    matches!(kind, Kind::RelayKilled | Kind::RelayRestarted | Kind::LoginNodeLost | Kind::Suspended)
}

fn fault(random: &mut Random, total: u64) -> Fault {
    let mut at = random.below(total);
    let chosen = CATALOGUE.iter().find(|properties| {
        let is_chosen = at < properties.weight;
        at = at.saturating_sub(properties.weight);
        is_chosen
    });
    let properties = chosen.unwrap_or(&CATALOGUE[0]);
    let lasts_s = random.within(properties.lasts_s);
    let from_s = random.within((FIRST_S, HEALED_S - lasts_s));
    let of = match properties.scope {
        Scope::Cluster => Vec::new(),
        Scope::Viewer => vec![random.below(VIEWERS as u64) as usize],
        Scope::Nodes => some_nodes(random),
    };
    Fault { kind: properties.kind, from_s, to_s: from_s + lasts_s, of, number: random.below(1_000) }
}

/// One node, a few, or half of them.
fn some_nodes(random: &mut Random) -> Vec<usize> {
    let count = [1, 1, 1, 2, NODES / 2][random.below(5) as usize];
    let first = random.below(NODES as u64) as usize;
    (0..count).map(|next| (first + next) % NODES).collect()
}

/// The name of a node.
pub fn node_name(node: usize) -> String {
    format!("n{}", node + 1)
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, from_s, to_s, of, number } = self;
        write!(out, "{from_s:>4} s to {to_s:>3} s  {kind:?}")?;
        let names: Vec<String> = match kind.properties().scope {
            Scope::Nodes => of.iter().map(|node| node_name(*node)).collect(),
            Scope::Viewer => of.iter().map(|viewer| format!("viewer {viewer}")).collect(),
            Scope::Cluster => Vec::new(),
        };
        write!(out, " {} ({number})", names.join(" "))
    }
}
