//! Keeps the list of items in place while they come, change and go.

use super::{Item, Since};

/// How long an item stays listed after it was last found, in ms, so that one that comes and goes does not
/// make the list jump.
const LINGER_MS: u64 = 15_000;
/// Longest time between two updates, in ms, for which a new item's start is taken as known.
const GAP_MS: u64 = 5_000;

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
    /// Starts known elsewhere, by key.
    starts: Vec<(String, Option<Since>)>,
}

impl Tracker {
    /// Returns the list.
    pub fn entries(&self) -> Vec<Entry> {
        self.entries.iter().map(|(entry, _)| entry.clone()).collect()
    }

    /// Takes over the starts that another list knows of the same items.
    pub fn seed(&mut self, known: &[Entry]) {
        self.starts = known.iter().map(|entry| (entry.item.key.clone(), entry.item.since)).collect();
    }

    /// Updates the list with the items found now, and returns it. While `is_held`, nothing moves: items that
    /// ended stay, and new ones are appended.
    pub fn update(&mut self, found: Vec<Item>, now_ms: u64, is_held: bool) -> Vec<Entry> {
        if self.updated_ms.is_some_and(|last_ms| now_ms + GAP_MS < last_ms) {
            // Another run of the relay has another clock.
            *self = Self::default();
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
        let first_seen = self
            .updated_ms
            .replace(now_ms)
            .map(|last_ms| Since { at_ms: now_ms, or_earlier: now_ms.saturating_sub(last_ms) > GAP_MS });
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
            let known = self.starts.iter().find(|(key, _)| *key == item.key).and_then(|(_, since)| *since);
            item.since = earlier(known, item.since).or(first_seen);
            self.entries.push((Entry { item, is_over: false }, now_ms));
        }
        if !is_held {
            self.entries.retain(|(entry, _)| !entry.is_over);
            // Stable: among equals the order of their appearance remains.
            self.entries.sort_by(|(a, _), (b, _)| a.item.rank().cmp(&b.item.rank()));
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
