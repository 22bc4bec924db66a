//! Keeps the rows of the list in place while it is pointed at.

use super::Item;

/// An item of the list.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The item, as last found.
    pub item: Item,
    /// Whether it is over and stays only because the pointer or the focus is in the list.
    pub is_over: bool,
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
            self.entries = found.into_iter().map(|item| Entry { item, is_over: false }).collect();
            return;
        }
        let mut found: Vec<Option<Item>> = found.into_iter().map(Some).collect();
        for entry in &mut self.entries {
            let same =
                |item: &&mut Option<Item>| item.as_ref().is_some_and(|item| item.key == entry.item.key);
            match found.iter_mut().find(same).and_then(Option::take) {
                Some(item) => *entry = Entry { item, is_over: false },
                None => entry.is_over = true,
            }
        }
        self.entries.extend(found.into_iter().flatten().map(|item| Entry { item, is_over: false }));
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
        tracker.entries().iter().map(|entry| (entry.item.jobs[0].0, entry.is_over)).collect()
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
}
