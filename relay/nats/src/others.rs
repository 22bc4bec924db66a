//! The nodes that other relays announce, for a relay without leases; pure.

use super::message::RelayId;
use super::relays::{MAX_RELAYS, Relays};
use nodeglass_protocol::NodeName;
use std::collections::{BTreeMap, BTreeSet};

/// Number of seconds with a connection for which a silent relay keeps its nodes. Together with the age at which an
/// announcement expires, it exceeds the time in which a lost connection is noticed: else both sides of a partition would
/// start a probe.
const KEEPS_S: u32 = 10;

/// Announced nodes by relay.
#[derive(Debug, Default)]
pub(crate) struct Others(BTreeMap<RelayId, Other>);

#[derive(Debug, Default)]
struct Other {
    has_leases: bool,
    nodes: BTreeSet<NodeName>,
    /// Number of seconds with a connection since its announcements ended.
    silent_s: u32,
}

impl Others {
    /// Takes the current announcements.
    pub(crate) fn update(&mut self, relays: &Relays) {
        for announcement in relays.iter() {
            let id = announcement.relay;
            if self.0.len() >= 2 * MAX_RELAYS && !self.0.contains_key(&id) {
                return;
            }
            let nodes = announcement.nodes.iter().cloned().collect();
            self.0.insert(id, Other { has_leases: announcement.has_leases, nodes, silent_s: 0 });
        }
    }

    /// Counts a second with a connection, and drops relays that have been silent for long.
    pub(crate) fn second(&mut self, relays: &Relays) {
        self.0.retain(|id, other| {
            other.silent_s = if relays.contains(*id) { 0 } else { other.silent_s + 1 };
            other.silent_s <= KEEPS_S
        });
    }

    /// Returns whether another relay watches the node rather than relay `own`, which runs a probe there if `is_own`. Of
    /// two that run one, the one with leases keeps it, or else the one with the smaller id.
    pub(crate) fn watches(&self, node: &NodeName, own: RelayId, is_own: bool) -> bool {
        let precedes = |id: RelayId, other: &Other| !is_own || other.has_leases || id < own;
        self.0.iter().any(|(id, other)| precedes(*id, other) && other.nodes.contains(node))
    }
}

#[cfg(test)]
mod tests {
    use super::super::message::Announcement;
    use super::super::relays::tests::{announced, announcement, id};
    use super::*;

    fn node(name: &str) -> NodeName {
        NodeName::new(name).unwrap()
    }

    fn others(number: u8, has_leases: bool, node: &str) -> Others {
        let mut others = Others::default();
        others.update(&announced([Announcement { has_leases, ..announcement(number, true, node) }]));
        others
    }

    #[tokio::test]
    async fn a_node_that_another_relay_announces_is_not_taken() {
        let others = others(9, false, "n1");
        assert!(others.watches(&node("n1"), id(5), false));
        assert!(!others.watches(&node("n2"), id(5), false));
    }

    #[tokio::test]
    async fn of_two_relays_with_a_probe_on_a_node_exactly_one_keeps_it() {
        let (of_5, of_9) = (others(9, false, "n1"), others(5, false, "n1"));
        assert!(!of_5.watches(&node("n1"), id(5), true), "the smaller id");
        assert!(of_9.watches(&node("n1"), id(9), true));
        assert!(others(9, true, "n1").watches(&node("n1"), id(5), true), "leases come first");
    }

    #[tokio::test]
    async fn a_silent_relay_keeps_its_nodes_for_a_while_and_as_long_as_there_is_no_connection() {
        let (mut others, relays) = (others(5, false, "n1"), announced([announcement(5, true, "n1")]));
        let none = Relays::default();
        others.update(&none);
        assert!(others.watches(&node("n1"), id(9), false), "without a connection, no second is counted");
        (0..KEEPS_S).for_each(|_| others.second(&none));
        assert!(others.watches(&node("n1"), id(9), false));
        others.second(&relays);
        (0..KEEPS_S).for_each(|_| others.second(&none));
        assert!(others.watches(&node("n1"), id(9), false), "it was back in between");
        others.second(&none);
        assert!(!others.watches(&node("n1"), id(9), false));
    }

    #[tokio::test]
    async fn relays_without_end_take_no_memory() {
        let mut others = Others::default();
        for number in 0..100_u64 {
            let first = number * 100;
            let ids = (first..first + 100).map(|id| format!("{id:016x}").parse::<RelayId>().unwrap());
            let one = announcement(1, true, "n1");
            others.update(&announced(ids.map(|relay| Announcement { relay, ..one.clone() })));
        }
        assert_eq!(others.0.len(), 2 * MAX_RELAYS);
    }
}
