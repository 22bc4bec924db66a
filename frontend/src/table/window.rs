//! Of many rows only those near the eye are drawn; the room of the others is kept.

/// The rows that are drawn, and how much room the others take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// The first that is drawn.
    pub first: usize,
    /// The one after the last that is drawn.
    pub end: usize,
}

/// Up to this many rows a table is drawn as a whole and takes the room it needs.
pub const MOST_WHOLE: usize = 60;
/// So many rows are drawn beyond each edge, so that a quick finger finds them there.
const SPARE: usize = 10;
/// The window goes in steps of so many rows: a step of the wheel mostly changes nothing.
const STRIDE: usize = 5;

impl Window {
    /// The rows to draw of `count` when `top` px are scrolled away and `height` px can be seen.
    pub fn over(count: usize, top: u32, height: u32, row: u32) -> Self {
        if count <= MOST_WHOLE {
            return Self { first: 0, end: count };
        }
        let seen = Self::seen(count, top, height, row);
        let first = seen.first.saturating_sub(SPARE).min(count.saturating_sub(1));
        let end = (seen.end + SPARE).next_multiple_of(STRIDE);
        Self { first: first - first % STRIDE, end: end.min(count) }
    }

    /// The rows of which anything can be seen.
    pub fn seen(count: usize, top: u32, height: u32, row: u32) -> Self {
        let end = top.saturating_add(height).div_ceil(row) as usize;
        Self { first: ((top / row) as usize).min(count), end: end.min(count) }
    }

    /// Whether a row is one of them.
    pub fn holds(&self, place: usize) -> bool {
        (self.first..self.end).contains(&place)
    }
}

/// Where to scroll so that a row can be seen, if it cannot.
pub fn revealing(index: usize, top: u32, height: u32, row: u32) -> Option<u32> {
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
    fn what_can_be_seen_is_drawn_wherever_one_is() {
        for top in (0..5_000 * 26).step_by(777) {
            let window = Window::over(5_000, top, 700, 26);
            let (first, last) = ((top / 26) as usize, ((top + 699) / 26) as usize);
            assert!(window.first <= first && window.end > last.min(4_999), "{top} {window:?}");
            // Both edges go in steps, and of the first and last row seen only a part may be.
            assert!(window.end - window.first <= 700 / 26 + 2 + 2 * (SPARE + STRIDE - 1));
        }
    }

    #[test]
    fn what_is_seen_is_what_a_pixel_shows_of() {
        let seen = |top, height| Window::seen(100, top, height, 26);
        assert_eq!((seen(0, 52), seen(1, 52)), (Window { first: 0, end: 2 }, Window { first: 0, end: 3 }));
        assert!(seen(26, 1).holds(1) && !seen(26, 26).holds(0) && !seen(26, 26).holds(2));
        assert_eq!((seen(0, 0).end, seen(9_000, u32::MAX)), (0, Window { first: 100, end: 100 }));
    }

    #[test]
    fn a_short_table_is_whole_and_an_empty_one_empty() {
        assert_eq!(Window::over(MOST_WHOLE, 300, 10, 26), Window { first: 0, end: MOST_WHOLE });
        assert_eq!(Window::over(0, 0, 100, 26), Window::default());
    }

    #[test]
    fn a_table_that_became_short_is_not_left_empty() {
        let window = Window::over(61, 1_000_000, 500, 26);
        assert!(window.first < 61 && window.end == 61);
    }

    #[test]
    fn a_row_is_brought_into_sight_and_one_in_sight_stays() {
        assert_eq!(revealing(2, 100, 260, 26), Some(52));
        assert_eq!(revealing(5, 100, 260, 26), None);
        assert_eq!(revealing(20, 100, 260, 26), Some(286));
    }
}
