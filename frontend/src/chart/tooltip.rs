//! Places a tooltip beside the pointer, from the size of the window alone: measuring it would force a layout.

/// Placement of a tooltip: a point of the window, and the share of its own size by which it is moved from there.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Placement {
    /// The point in CSS pixels from the window's left and top.
    pub at: (f64, f64),
    /// Horizontal and vertical shift as fractions of its width and height, 0 to 1, to the left and up.
    pub shift: (f64, f64),
}

impl Placement {
    /// Largest width of a tooltip in CSS pixels; the style sheet has the same.
    pub const MAX_WIDTH: f64 = 300.0;
    /// Largest height of a tooltip in CSS pixels; the style sheet has the same.
    pub const MAX_HEIGHT: f64 = 132.0;
    /// Distance from the pointer, so that what it points at stays visible.
    const GAP: f64 = 14.0;
    /// Distance from a finger, which covers more.
    const FINGER_GAP: f64 = 30.0;

    /// Places a tooltip for a pointer at `(x, y)` in a window of `(width, height)`: right of and below it, on the
    /// other side if the room does not suffice, and above a finger. In a window too narrow for either side it lies
    /// above or below, between the edges.
    pub fn beside((x, y): (f64, f64), (width, height): (f64, f64), is_touch: bool) -> Self {
        let gap = if is_touch { Self::FINGER_GAP } else { Self::GAP };
        let (wide, high) = (Self::MAX_WIDTH + gap, Self::MAX_HEIGHT + gap);
        let above = if is_touch { y >= high } else { y + high > height && y >= high };
        let (bottom, up) = if above { (y - gap, 1.0) } else { (y + gap, 0.0) };
        if is_touch || width < 2.0 * wide {
            // The share of the window left of the pointer lies left of it in the tooltip, too.
            let share = (x / width.max(1.0)).clamp(0.0, 1.0);
            return Self { at: (share * width, bottom), shift: (share, up) };
        }
        if x + wide > width {
            return Self { at: (x - gap, bottom), shift: (1.0, up) };
        }
        Self { at: (x + gap, bottom), shift: (0.0, up) }
    }

    /// Returns the CSS `transform` that moves an element from the window's corner there.
    pub fn transform(self) -> String {
        let px = |value: f64| value.round() as i64;
        let percent = |share: f64| px(share * -100.0);
        format!(
            "translate({}px,{}px) translate({}%,{}%)",
            px(self.at.0),
            px(self.at.1),
            percent(self.shift.0),
            percent(self.shift.1)
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOWS: [(f64, f64); 4] = [(1_920.0, 1_080.0), (1_440.0, 900.0), (390.0, 844.0), (844.0, 390.0)];

    /// Left, top, right and bottom of a tooltip of a size.
    fn edges(placement: Placement, (width, height): (f64, f64)) -> [f64; 4] {
        let (left, top) =
            (placement.at.0 - placement.shift.0 * width, placement.at.1 - placement.shift.1 * height);
        [left, top, left + width, top + height]
    }

    fn each(mut check: impl FnMut((f64, f64), (f64, f64), [f64; 4])) {
        for window in WINDOWS {
            for is_touch in [false, true] {
                for x in (0..=100).map(|part| window.0 * f64::from(part) / 100.0) {
                    for y in (0..=100).map(|part| window.1 * f64::from(part) / 100.0) {
                        for size in [(Placement::MAX_WIDTH, Placement::MAX_HEIGHT), (90.0, 40.0)] {
                            check((x, y), window, edges(Placement::beside((x, y), window, is_touch), size));
                        }
                    }
                }
            }
        }
    }

    #[test]
    fn a_tooltip_never_leaves_the_window() {
        each(|pointer, window, [left, top, right, bottom]| {
            let inside = left >= -0.01 && top >= 0.0 && right <= window.0 + 0.01 && bottom <= window.1;
            assert!(inside, "{pointer:?} {window:?}");
        });
    }

    #[test]
    fn a_tooltip_never_covers_what_is_pointed_at() {
        each(|(x, y), window, [left, top, right, bottom]| {
            let covers = (left..=right).contains(&x) && (top..=bottom).contains(&y);
            assert!(!covers, "{x} {y} {window:?}");
        });
    }

    #[test]
    fn a_tooltip_is_right_below_the_pointer_where_there_is_room() {
        let placement = Placement::beside((100.0, 100.0), (1_440.0, 900.0), false);
        assert_eq!(placement.transform(), "translate(114px,114px) translate(0%,0%)");
        let corner = Placement::beside((1_430.0, 890.0), (1_440.0, 900.0), false);
        assert_eq!(corner.transform(), "translate(1416px,876px) translate(-100%,-100%)");
    }
}
