//! Keeps the rows of the list in place while it is pointed at.

use super::Item;

/// An item of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The item, as last found.
    pub item: Item,
    /// Whether it ended, or is listed only because the pointer or the focus is in the list.
    pub is_resolved: bool,
}

/// The list as it is shown.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    entries: Vec<Entry>,
}

impl Tracker {
    /// Returns the list.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Updates the list with what is found now, worst first. While `is_held`, nothing moves: items that ended stay, and
    /// new ones are appended.
    pub fn update(&mut self, found: Vec<Item>, is_held: bool) {
        if !is_held {
            self.entries = found.into_iter().map(|item| Entry { item, is_resolved: false }).collect();
            return;
        }
        let mut found: Vec<Option<Item>> = found.into_iter().map(Some).collect();
        let mut take = |is_same: &dyn Fn(&Item) -> bool| {
            found.iter_mut().find(|item| item.as_ref().is_some_and(is_same)).and_then(Option::take)
        };
        for entry in &mut self.entries {
            let same = take(&|item| item.key == entry.item.key);
            entry.is_resolved = same.is_none();
            same.into_iter().for_each(|item| entry.item = item);
        }
        // One that was folded into another takes its place.
        for entry in self.entries.iter_mut().filter(|entry| entry.is_resolved) {
            if let Some(item) = take(&|item| item.stands_for(&entry.item.key)) {
                *entry = Entry { item, is_resolved: false };
            }
        }
        self.entries.extend(found.into_iter().flatten().map(|item| Entry { item, is_resolved: false }));
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{finding, job, picture};
    use super::*;
    use nodeglass_protocol::finding::{Finding, FindingKind, FindingSeverity};

    fn items(found: &[(u32, FindingSeverity)]) -> Vec<Item> {
        let findings = found.iter().map(|(id, severity)| Finding {
            severity: *severity,
            ..finding(FindingKind::Thermal, *id, "n1")
        });
        let jobs: Vec<_> = found.iter().map(|(id, _)| job(*id, "n1")).collect();
        super::super::all(&jobs, &picture(findings.collect()))
    }

    fn shown(tracker: &Tracker) -> Vec<(u32, bool)> {
        tracker.entries().iter().map(|entry| (entry.item.jobs[0].0, entry.is_resolved)).collect()
    }

    #[test]
    fn nothing_moves_below_the_pointer() {
        let (warning, error) = (FindingSeverity::Warning, FindingSeverity::Error);
        let mut tracker = Tracker::default();
        tracker.update(items(&[(1, warning), (2, warning)]), false);
        assert_eq!(shown(&tracker), [(1, false), (2, false)]);
        tracker.update(items(&[(3, error), (2, warning)]), true);
        assert_eq!(shown(&tracker), [(1, true), (2, false), (3, false)]);
        tracker.update(items(&[(1, warning), (3, error), (2, warning)]), true);
        assert_eq!(shown(&tracker), [(1, false), (2, false), (3, false)], "it returned");
        tracker.update(items(&[(3, error), (2, warning)]), false);
        assert_eq!(shown(&tracker), [(3, false), (2, false)]);
    }

    #[test]
    fn a_line_that_is_folded_into_another_stays_where_it_is() {
        let (jobs, hot) = ([job(1, "n1")], finding(FindingKind::Thermal, 1, "n1"));
        let found = |findings: Vec<Finding>| super::super::all(&jobs, &picture(findings));
        let mut tracker = Tracker::default();
        tracker.update(found(vec![hot.clone()]), false);
        tracker.update(found(vec![hot, finding(FindingKind::Straggler, 1, "n1")]), true);
        let [entry] = tracker.entries() else { panic!("{tracker:?}") };
        assert_eq!((entry.item.kind, entry.is_resolved), (FindingKind::Straggler, false));
    }
}
