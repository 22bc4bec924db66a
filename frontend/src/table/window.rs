//! Windowing: renders only the rows near the viewport and reserves the height of the others.

/// The rows that are rendered, and the height that the others take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first rendered row.
    pub first: usize,
    /// The row after the last rendered one.
    pub end: usize,
}

/// Up to this many rows, a table is rendered in full and takes the height it needs.
pub const MAX_UNWINDOWED: usize = 60;
/// Number of rows rendered beyond each edge, so that quick scrolling shows no blank area.
const OVERSCAN: usize = 10;
/// Number of rows by which the window moves, so that most scroll events change nothing.
const STRIDE: usize = 5;

impl Window {
    /// Returns the rows to render of `count` at a scroll offset of `top` px in a viewport of `height` px.
    pub fn over(count: usize, top: u32, height: u32, row: u32) -> Self {
        if count <= MAX_UNWINDOWED {
            return Self { first: 0, end: count };
        }
        let in_view = Self::in_view(count, top, height, row);
        let first = in_view.first.saturating_sub(OVERSCAN).min(count.saturating_sub(1));
        let end = (in_view.end + OVERSCAN).next_multiple_of(STRIDE);
        Self { first: first - first % STRIDE, end: end.min(count) }
    }

    /// Returns the rows that are at least partly visible.
    pub fn in_view(count: usize, top: u32, height: u32, row: u32) -> Self {
        let end = top.saturating_add(height).div_ceil(row) as usize;
        Self { first: ((top / row) as usize).min(count), end: end.min(count) }
    }

    /// Returns whether a row is among them.
    pub fn contains(&self, place: usize) -> bool {
        (self.first..self.end).contains(&place)
    }
}

/// Returns the scroll offset that makes a row visible, if it is not.
pub fn scroll_to_reveal(index: usize, top: u32, height: u32, row: u32) -> Option<u32> {
    let from = index as u32 * row;
    let until = from + row;
    if from < top {
        return Some(from);
    }
    (until > top + height).then(|| until.saturating_sub(height))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_rows_are_rendered_at_any_offset() {
        for top in (0..5_000 * 26).step_by(777) {
            let window = Window::over(5_000, top, 700, 26);
            let (first, last) = ((top / 26) as usize, ((top + 699) / 26) as usize);
            assert!(window.first <= first && window.end > last.min(4_999), "{top} {window:?}");
            // Both edges move in steps, and the first and last visible rows may be partial.
            assert!(window.end - window.first <= 700 / 26 + 2 + 2 * (OVERSCAN + STRIDE - 1));
        }
    }

    #[test]
    fn a_partly_visible_row_is_visible() {
        let in_view = |top, height| Window::in_view(100, top, height, 26);
        assert_eq!(
            (in_view(0, 52), in_view(1, 52)),
            (Window { first: 0, end: 2 }, Window { first: 0, end: 3 })
        );
        assert!(in_view(26, 1).contains(1) && !in_view(26, 26).contains(0) && !in_view(26, 26).contains(2));
        assert_eq!((in_view(0, 0).end, in_view(9_000, u32::MAX)), (0, Window { first: 100, end: 100 }));
    }

    #[test]
    fn a_short_table_is_rendered_in_full() {
        assert_eq!(Window::over(MAX_UNWINDOWED, 300, 10, 26), Window { first: 0, end: MAX_UNWINDOWED });
        assert_eq!(Window::over(0, 0, 100, 26), Window::default());
    }

    #[test]
    fn a_table_that_shrank_is_not_blank() {
        let window = Window::over(61, 1_000_000, 500, 26);
        assert!(window.first < 61 && window.end == 61);
    }

    #[test]
    fn a_hidden_row_is_scrolled_into_view_and_a_visible_one_stays() {
        assert_eq!(scroll_to_reveal(2, 100, 260, 26), Some(52));
        assert_eq!(scroll_to_reveal(5, 100, 260, 26), None);
        assert_eq!(scroll_to_reveal(20, 100, 260, 26), Some(286));
    }
}
