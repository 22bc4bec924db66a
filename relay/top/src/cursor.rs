//! The selected row of a list that changes: by identity, so that it stays on its row. Pure.

use std::ops::Range;

/// A cursor, and the part of the list that is shown.
#[derive(Clone, Debug)]
pub struct Cursor<K> {
    key: Option<K>,
    index: usize,
    top: usize,
    /// Rows that were shown last, for moves by page.
    height: usize,
}

impl<K> Default for Cursor<K> {
    fn default() -> Self {
        Self { key: None, index: 0, top: 0, height: 1 }
    }
}

impl<K: PartialEq + Clone> Cursor<K> {
    /// The position in a list; the row of the same identity, or else the same position.
    pub fn index(&self, keys: &[K]) -> usize {
        let same = self.key.as_ref().and_then(|key| keys.iter().position(|other| other == key));
        same.unwrap_or(self.index).min(keys.len().saturating_sub(1))
    }

    /// Selects a row.
    pub fn set(&mut self, key: K) {
        self.key = Some(key);
    }

    /// Moves by a number of rows; stops at the ends.
    pub fn step(&mut self, keys: &[K], by: isize) {
        let last = keys.len().saturating_sub(1);
        self.index = self.index(keys).saturating_add_signed(by).min(last);
        self.key = keys.get(self.index).cloned();
    }

    /// Moves by a number of pages.
    pub fn page(&mut self, keys: &[K], by: isize) {
        self.step(keys, by.saturating_mul(self.height.max(1).cast_signed()));
    }

    /// Follows the list, and returns which of its rows to show in `height` lines.
    pub fn settle(&mut self, keys: &[K], height: usize) -> Range<usize> {
        self.index = self.index(keys);
        // Until it is moved it stays at the top, even if other rows are listed above its first row later.
        if self.key.is_some() {
            self.key = keys.get(self.index).cloned().or(self.key.take());
        }
        self.height = height;
        let lowest_top = (self.index + 1).saturating_sub(height);
        let most = keys.len().saturating_sub(height);
        self.top = self.top.clamp(lowest_top.min(self.index), self.index).min(most);
        self.top..(self.top + height).min(keys.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_stays_on_its_row_while_others_come_and_go() {
        let mut cursor = Cursor::default();
        cursor.step(&['a', 'b', 'c'], 1);
        assert_eq!(cursor.index(&['x', 'a', 'b']), 2);
        // Its row has gone: the one at its place is next.
        cursor.settle(&['a', 'c'], 5);
        assert_eq!(cursor.index(&['a', 'c']), 1);
        assert_eq!(cursor.index(&[]), 0);
    }

    #[test]
    fn a_cursor_that_was_not_moved_stays_at_the_top() {
        let mut cursor = Cursor::default();
        cursor.settle(&['b', 'c'], 5);
        assert_eq!(cursor.index(&['a', 'b', 'c']), 0);
    }

    #[test]
    fn the_list_scrolls_only_as_far_as_needed() {
        let keys: Vec<u32> = (0..20).collect();
        let mut cursor = Cursor::default();
        assert_eq!(cursor.settle(&keys, 5), 0..5);
        cursor.step(&keys, 5);
        assert_eq!(cursor.settle(&keys, 5), 1..6);
        cursor.step(&keys, -1);
        assert_eq!(cursor.settle(&keys, 5), 1..6);
        cursor.page(&keys, 9);
        assert_eq!(cursor.settle(&keys, 5), 15..20);
        // A taller window shows as much as there is.
        assert_eq!(cursor.settle(&keys, 8), 12..20);
        assert_eq!(cursor.settle(&keys, 0), 19..19);
    }
}
