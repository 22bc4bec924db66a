//! Windowing: renders only the rows near the viewport and reserves the height of the others.

/// The rows that are rendered, and the height that the others take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first rendered row.
    pub first: usize,
    /// The row after the last rendered one.
    pub end: usize,
}

/// Maximum number of rows of a table that is rendered in full and takes the height it needs.
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

/// Returns by how many px to scroll so that a row from `row.0` to `row.1` is between `view.0` and `view.1`, if
/// it is not: all in px from the same edge.
pub fn scroll_to_reveal(row: (i32, i32), view: (i32, i32)) -> Option<i32> {
    if row.0 < view.0 {
        return Some(row.0 - view.0);
    }
    (row.1 > view.1).then_some(row.1 - view.1)
}

/// Returns the part of a table that a viewport shows: its offset from the table's top, and its height. Both are
/// given as top and height in px from the same edge; `margin` px beyond the viewport count as visible.
pub fn visible_part(table: (f64, f64), viewport: (f64, f64), margin: f64) -> Option<(u32, u32)> {
    let (from, until) = (viewport.0 - margin, viewport.0 + viewport.1 + margin);
    let (first, last) = (from.max(table.0), until.min(table.0 + table.1));
    (first < last).then(|| ((first - table.0) as u32, (last - first).ceil() as u32))
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
        assert_eq!(scroll_to_reveal((52, 78), (100, 360)), Some(-48));
        assert_eq!(scroll_to_reveal((130, 156), (100, 360)), None);
        assert_eq!(scroll_to_reveal((520, 546), (100, 360)), Some(186));
    }

    #[test]
    fn the_visible_part_of_a_table_follows_the_page() {
        let at = |top| visible_part((top, 13_000.0), (44.0, 700.0), 120.0);
        assert_eq!(at(400.0), Some((0, 464)), "it begins in view");
        assert_eq!(at(-5_000.0), Some((4_924, 940)), "it exceeds the viewport at both ends");
        assert_eq!(at(-12_700.0), Some((12_624, 376)), "it ends in view");
        assert_eq!((at(900.0), at(-13_100.0)), (None, None));
    }
}
