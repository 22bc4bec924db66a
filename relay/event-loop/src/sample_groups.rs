//! Groups of nodes that sample at the same moment and share a frame.
//!
//! A frame is due as soon as every expected node of a group has reported. A node that misses a round is
//! no longer expected, so it delays its group only once.

use nodeglass_protocol::NodeName;
use std::collections::{BTreeSet, HashMap};
use std::hash::{DefaultHasher, Hash, Hasher};

/// Approximate number of nodes per group.
const GROUP_SIZE: usize = 128;
/// Offset between groups, in ms: long enough to read and publish the lines of one group.
const GROUP_INTERVAL_MS: usize = 60;
/// All groups sample within this time, in ms.
const GROUPS_SPAN_MS: usize = 960;
/// Samples of a group arrive within this time of each other, in ms; also the jitter of a node.
const ROUND_MS: u64 = 250;

/// The groups, and which nodes have yet to report in the current round of each.
#[derive(Debug, Default)]
pub(super) struct SampleGroups {
    groups: Vec<Group>,
    members: HashMap<NodeName, Member>,
}

#[derive(Debug, Default)]
struct Group {
    /// Number of the current round, from 1.
    round: u64,
    /// When its first sample arrived, by the relay's clock.
    opened_ms: u64,
    /// Nodes that have yet to report in it.
    pending: usize,
}

#[derive(Debug)]
struct Member {
    group: usize,
    /// Arrival of its last sample by the relay's clock, and its sampling interval; `None` before the
    /// first.
    last: Option<(u64, u64)>,
    /// The round of its group in which it is expected.
    expected_in: u64,
}

impl SampleGroups {
    /// Sets the nodes that sample. Nodes that remain keep what is known of them.
    pub fn set_nodes(&mut self, nodes: &BTreeSet<NodeName>) {
        let groups = nodes.len().div_ceil(GROUP_SIZE).next_power_of_two();
        if groups != self.groups.len() {
            self.groups.clear();
            self.groups.resize_with(groups, Group::default);
            self.members.clear();
        }
        self.members.retain(|name, _| nodes.contains(name));
        for name in nodes {
            if !self.members.contains_key(name) {
                let group = group_of(name, groups);
                self.members.insert(name.clone(), Member { group, last: None, expected_in: 0 });
            }
        }
    }

    /// Offset of a node's samples from the whole interval, in ms.
    pub fn phase_ms(&self, name: &NodeName) -> u32 {
        let groups = self.groups.len().max(1);
        (group_of(name, groups) * GROUP_INTERVAL_MS.min(GROUPS_SPAN_MS / groups)) as u32
    }

    /// Records a sample that arrived at `at_ms` from a node that samples every `interval_ms`. Returns
    /// whether every node of its group that is expected in this round has reported.
    pub fn report(&mut self, name: &NodeName, at_ms: u64, interval_ms: u32) -> bool {
        let Some(member) = self.members.get(name) else { return false };
        let index = member.group;
        let group = &mut self.groups[index];
        if group.round == 0 || at_ms.saturating_sub(group.opened_ms) > ROUND_MS {
            group.round += 1;
            group.opened_ms = at_ms;
            group.pending = 0;
            for member in self.members.values_mut().filter(|member| member.group == index) {
                if member.is_expected(at_ms) {
                    member.expected_in = group.round;
                    group.pending += 1;
                }
            }
        }
        let Some(member) = self.members.get_mut(name) else { return false };
        member.last = Some((at_ms, u64::from(interval_ms)));
        if std::mem::take(&mut member.expected_in) != group.round {
            return false;
        }
        group.pending -= 1;
        group.pending == 0
    }
}

impl Member {
    /// Returns whether a sample is due about now: one interval after the last, give or take the jitter.
    fn is_expected(&self, at_ms: u64) -> bool {
        self.last.is_some_and(|(last_ms, interval_ms)| (last_ms + interval_ms).abs_diff(at_ms) <= ROUND_MS)
    }
}

/// Groups are assigned by hash, and their number doubles, so that few nodes change when others come or
/// go.
fn group_of(name: &NodeName, groups: usize) -> usize {
    let mut hasher = DefaultHasher::new();
    name.hash(&mut hasher);
    hasher.finish() as usize % groups
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> BTreeSet<NodeName> {
        (0..count).map(|index| NodeName::new(format!("n{index:04}")).unwrap()).collect()
    }

    fn groups(count: usize) -> SampleGroups {
        let mut groups = SampleGroups::default();
        groups.set_nodes(&names(count));
        groups
    }

    /// Which of the nodes, in order of their names, completed a group when each reported.
    fn round(groups: &mut SampleGroups, count: usize, at_ms: u64, silent: &[usize]) -> Vec<usize> {
        let names = names(count);
        let reporting = names.iter().enumerate().filter(|(index, _)| !silent.contains(index));
        reporting
            .filter_map(|(index, name)| groups.report(name, at_ms + index as u64, 1_000).then_some(index))
            .collect()
    }

    #[test]
    fn a_group_is_complete_once_its_last_node_has_reported() {
        let mut groups = groups(5);
        assert_eq!(
            round(&mut groups, 5, 10_000, &[]),
            Vec::<usize>::new(),
            "nothing is known of the nodes yet"
        );
        assert_eq!(round(&mut groups, 5, 11_000, &[]), [4]);
        assert_eq!(round(&mut groups, 5, 12_000, &[]), [4]);
    }

    #[test]
    fn a_silent_node_is_waited_for_once() {
        let mut groups = groups(5);
        round(&mut groups, 5, 10_000, &[]);
        assert_eq!(round(&mut groups, 5, 11_000, &[4]), Vec::<usize>::new());
        assert_eq!(round(&mut groups, 5, 12_000, &[4]), [3]);
        assert_eq!(round(&mut groups, 5, 13_000, &[]), [3], "it is not expected when it returns");
        assert_eq!(round(&mut groups, 5, 14_000, &[]), [4]);
    }

    #[test]
    fn nodes_with_a_longer_interval_are_expected_only_when_they_are_due() {
        let mut groups = groups(2);
        let [slow, fast] = [0, 1].map(|index| names(2).into_iter().nth(index).unwrap());
        groups.report(&slow, 10_000, 2_000);
        groups.report(&fast, 10_001, 1_000);
        assert!(groups.report(&fast, 11_001, 1_000));
        assert!(!groups.report(&fast, 12_001, 1_000));
        assert!(groups.report(&slow, 12_002, 2_000));
    }

    #[test]
    fn a_second_sample_in_a_round_and_an_unknown_node_complete_nothing() {
        let mut groups = groups(1);
        let node = names(1).pop_first().unwrap();
        groups.report(&node, 10_000, 1_000);
        assert!(groups.report(&node, 11_000, 1_000));
        assert!(!groups.report(&node, 11_010, 1_000));
        assert!(!groups.report(&NodeName::new("elsewhere").unwrap(), 11_020, 1_000));
    }

    #[test]
    fn groups_sample_one_after_the_other_and_complete_on_their_own() {
        let mut groups = groups(300);
        let phases: BTreeSet<_> = names(300).iter().map(|name| groups.phase_ms(name)).collect();
        assert_eq!(phases.into_iter().collect::<Vec<_>>(), [0, 60, 120, 180]);
        // All nodes report within 300 ms here, so the round of each group spans less than its limit.
        let mut at = |start_ms: u64| {
            let names = names(300);
            names
                .iter()
                .filter(|name| groups.report(name, start_ms + u64::from(groups.phase_ms(name)), 1_000))
                .count()
        };
        assert_eq!((at(10_000), at(11_000)), (0, 4));
    }

    #[test]
    fn added_and_removed_nodes_do_not_delay_others() {
        let mut groups = groups(4);
        round(&mut groups, 4, 10_000, &[]);
        groups.set_nodes(&names(3));
        assert_eq!(round(&mut groups, 3, 11_000, &[]), [2]);
        groups.set_nodes(&names(4));
        assert_eq!(round(&mut groups, 4, 12_000, &[]), [2]);
        assert_eq!(round(&mut groups, 4, 13_000, &[]), [3]);
    }
}
