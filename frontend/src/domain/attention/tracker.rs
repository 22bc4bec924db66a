//! Keeps the list of items in place while they come, change and go.

use super::{Item, Since};
use nodeglass_protocol::NodeName;
use std::collections::HashMap;

/// How long an item stays listed after it was last found, in ms, so that one that comes and goes does not
/// make the list jump.
const LINGER_MS: u64 = 15_000;
/// Longest time between two updates, in ms, for which a new item's start is taken as known.
const GAP_MS: u64 = 5_000;
/// How long a node must have been read, in ms, for which a new item's start is taken as known: a probe examines
/// links and memory every 5 s.
const SETTLING_MS: u64 = 10_000;

/// An item of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The item, as last found.
    pub item: Item,
    /// Whether it is over and stays only because the pointer or the focus is in the list.
    pub is_over: bool,
}

/// The list, with what is needed to keep it in place.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    /// Each with the time at which it was last found, in ms.
    entries: Vec<(Entry, u64)>,
    updated_ms: Option<u64>,
    /// Items that are yet to be confirmed, each with the time at which it was first found, in ms.
    candidates: Vec<(String, u64)>,
    /// Items that another list has, by key, each with its start.
    starts: Vec<(String, Option<Since>)>,
    /// Since when each node is read without a break, in ms.
    read_since: HashMap<NodeName, u64>,
}

impl Tracker {
    /// Returns the list.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().map(|(entry, _)| entry.clone()).collect()
    }

    /// Takes over what another list knows of the same items: that they are confirmed, and their starts.
    pub fn seed(&mut self, known: &[Entry]) {
        self.starts = known.iter().map(|entry| (entry.item.key.clone(), entry.item.since)).collect();
    }

    /// Notes which nodes have current readings: what is found on one that was just connected began at an unknown
    /// time.
    pub fn note_read<'a>(&mut self, nodes: impl Iterator<Item = &'a NodeName>, now_ms: u64) {
        let mut before = std::mem::take(&mut self.read_since);
        self.read_since =
            nodes.map(|node| before.remove_entry(node).unwrap_or_else(|| (node.clone(), now_ms))).collect();
    }

    /// Updates the list with the items found now, and returns it. While `is_held`, nothing moves: items that
    /// ended stay, and new ones are appended.
    pub fn update(&mut self, mut found: Vec<Item>, now_ms: u64, is_held: bool) -> Vec<Entry> {
        if self.updated_ms.is_some_and(|last_ms| now_ms + GAP_MS < last_ms) {
            // Another run of the relay has another clock.
            *self = Self::default();
        }
        for item in &mut found {
            let known = self.starts.iter().find(|(key, _)| *key == item.key);
            if let Some((_, since)) = known {
                (item.since, item.confirm_ms) = (earlier(*since, item.since), 0);
            }
        }
        let mut found: Vec<Option<Item>> = found.into_iter().map(Some).collect();
        for (entry, seen_ms) in &mut self.entries {
            let same =
                |item: &&mut Option<Item>| item.as_ref().is_some_and(|item| item.key == entry.item.key);
            match found.iter_mut().find(same).and_then(Option::take) {
                Some(mut item) => {
                    item.since = earlier(entry.item.since, item.since);
                    *seen_ms = now_ms;
                    *entry = Entry { item, is_over: false };
                }
                None => entry.is_over = now_ms.saturating_sub(*seen_ms) > LINGER_MS,
            }
        }
        // An item that was not there at the last update began since then; the first update knows no start.
        let last_ms = self.updated_ms.replace(now_ms);
        let is_settled = |node: &NodeName| {
            self.read_since.get(node).is_some_and(|since_ms| since_ms + SETTLING_MS <= now_ms)
        };
        let first_seen = |item: &Item| {
            let is_gap = now_ms.saturating_sub(last_ms?) > GAP_MS;
            let is_new = !is_gap && item.confirm_ms == 0 && item.nodes.iter().all(is_settled);
            Some(Since { at_ms: now_ms, or_earlier: !is_new })
        };
        let candidates = std::mem::take(&mut self.candidates);
        for mut item in found.into_iter().flatten() {
            if item.confirm_ms > 0 {
                let first_ms =
                    candidates.iter().find(|(key, _)| *key == item.key).map_or(now_ms, |(_, ms)| *ms);
                if now_ms.saturating_sub(first_ms) < item.confirm_ms {
                    self.candidates.push((item.key, first_ms));
                    continue;
                }
            }
            item.since = item.since.or_else(|| first_seen(&item));
            self.entries.push((Entry { item, is_over: false }, now_ms));
        }
        if !is_held {
            self.entries.retain(|(entry, _)| !entry.is_over);
            // Stable: among equals the order of their appearance remains.
            self.entries.sort_by_key(|(entry, _)| entry.item.rank());
        }
        self.entries()
    }
}

/// Returns the earlier of two starts: a history forgets what this page has seen.
fn earlier(known: Option<Since>, now: Option<Since>) -> Option<Since> {
    match (known, now) {
        (Some(known), Some(now)) if known.at_ms <= now.at_ms => Some(known),
        (known, now) => now.or(known),
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::job;
    use super::*;
    use crate::domain::severity::Severity;

    fn item(id: u32, severity: Severity) -> Item {
        Item::for_job("test", &job(id, "n1"), severity)
    }

    fn shown(entries: &[Entry]) -> Vec<(u32, bool)> {
        entries.iter().map(|entry| (entry.item.jobs[0].0, entry.is_over)).collect()
    }

    #[test]
    fn items_keep_their_place_and_worse_ones_come_first() {
        let mut tracker = Tracker::default();
        let [one, two] = [1, 2].map(|id| item(id, Severity::Warning));
        assert_eq!(
            shown(&tracker.update(vec![one.clone(), two.clone()], 0, false)),
            [(1, false), (2, false)]
        );
        let worse = item(3, Severity::Error);
        let now = tracker.update(vec![worse, two, one], 1_000, false);
        assert_eq!(shown(&now), [(3, false), (1, false), (2, false)]);
    }

    #[test]
    fn an_item_that_comes_and_goes_stays_for_a_while() {
        let mut tracker = Tracker::default();
        tracker.update(vec![item(1, Severity::Warning)], 0, false);
        assert_eq!(shown(&tracker.update(vec![], 10_000, false)), [(1, false)]);
        assert!(tracker.update(vec![], 16_000, false).is_empty());
    }

    #[test]
    fn nothing_moves_below_the_pointer() {
        let mut tracker = Tracker::default();
        tracker.update(vec![item(1, Severity::Warning), item(2, Severity::Warning)], 0, false);
        let held = tracker.update(vec![item(3, Severity::Error), item(2, Severity::Warning)], 20_000, true);
        assert_eq!(shown(&held), [(1, true), (2, false), (3, false)]);
        let after = tracker.update(vec![item(3, Severity::Error), item(2, Severity::Warning)], 21_000, false);
        assert_eq!(shown(&after), [(3, false), (2, false)]);
    }

    #[test]
    fn what_must_be_confirmed_is_listed_once_it_lasted() {
        let mut tracker = Tracker::default();
        let found = || vec![Item { confirm_ms: 10_000, ..item(1, Severity::Error) }];
        assert!(tracker.update(found(), 0, false).is_empty());
        assert!(tracker.update(vec![], 5_000, false).is_empty());
        assert!(tracker.update(found(), 6_000, false).is_empty());
        assert!(tracker.update(found(), 15_000, false).is_empty(), "it was interrupted");
        assert_eq!(tracker.update(found(), 16_000, false).len(), 1);
        assert_eq!(tracker.update(found(), 17_000, false).len(), 1);
    }

    #[test]
    fn what_another_list_shows_needs_no_confirmation_here() {
        let mut detailed = Tracker::default();
        let since = Since { at_ms: 500, or_earlier: false };
        let known =
            detailed.update(vec![Item { since: Some(since), ..item(1, Severity::Error) }], 1_000, false);
        let mut summary = Tracker::default();
        summary.seed(&known);
        let shown =
            summary.update(vec![Item { confirm_ms: 10_000, ..item(1, Severity::Error) }], 1_000, false);
        assert_eq!(shown[0].item.since, Some(since), "both lists agree");
    }

    #[test]
    fn what_a_new_node_has_began_at_an_unknown_time() {
        let node = NodeName::new("n1").unwrap();
        let on_node = |id| Item { nodes: vec![node.clone()], ..item(id, Severity::Warning) };
        let mut tracker = Tracker::default();
        tracker.update(vec![], 0, false);
        let mut at = |now_ms, items| {
            tracker.note_read(std::iter::once(&node), now_ms);
            tracker.update(items, now_ms, false).last().unwrap().item.since
        };
        assert_eq!(at(1_000, vec![on_node(1)]), Some(Since { at_ms: 1_000, or_earlier: true }));
        assert_eq!(at(6_000, vec![on_node(1)]), Some(Since { at_ms: 1_000, or_earlier: true }));
        let later = at(11_000, vec![on_node(1), on_node(2)]);
        assert_eq!(later, Some(Since { at_ms: 11_000, or_earlier: false }));
    }

    #[test]
    fn among_equals_what_holds_up_most_gpus_is_first() {
        let mut tracker = Tracker::default();
        let narrow = item(1, Severity::Warning);
        let hot = Item { impact: 64, ..item(2, Severity::Warning) };
        assert_eq!(shown(&tracker.update(vec![narrow, hot], 0, false)), [(2, false), (1, false)]);
    }

    #[test]
    fn the_start_is_the_earliest_that_was_seen() {
        let mut tracker = Tracker::default();
        let since = |at_ms, or_earlier| Item {
            since: Some(Since { at_ms, or_earlier }),
            ..item(1, Severity::Warning)
        };
        assert_eq!(tracker.update(vec![item(2, Severity::Warning)], 5_000, false)[0].item.since, None);
        tracker.update(vec![since(5_000, false)], 6_000, false);
        let now = tracker.update(vec![since(9_000, true)], 70_000, false);
        assert_eq!(now[0].item.since, Some(Since { at_ms: 5_000, or_earlier: false }));
        let without =
            tracker.update(vec![item(1, Severity::Warning), item(3, Severity::Warning)], 71_000, false);
        let starts: Vec<_> = without.iter().map(|entry| entry.item.since.unwrap()).collect();
        let exactly = |at_ms| Since { at_ms, or_earlier: false };
        assert_eq!(starts, [exactly(5_000), exactly(71_000)]);
    }
}
