//! Converts a series to the `d` attribute of one SVG path; gaps stay gaps.

use std::fmt::{self, Write};

/// The box a chart is drawn in, in the units of its `viewBox`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Frame {
    /// Width.
    pub width: f32,
    /// Height.
    pub height: f32,
    /// Padding at top and bottom, so that the stroke is not cut.
    pub pad: f32,
}

impl Frame {
    /// Returns where point `index` of `count` with a value of 0 to 1 is drawn.
    fn position(self, index: usize, count: usize, share: f32) -> (f32, f32) {
        let x = index as f32 / (count.max(2) - 1) as f32 * self.width;
        let y = self.height - self.pad - share.clamp(0.0, 1.0) * (self.height - 2.0 * self.pad);
        (x, y)
    }
}

/// Returns the line through `points`, each from 0 to 1; a `None` breaks it, and a single point becomes a
/// dash.
pub fn line(points: &[Option<f32>], frame: Frame) -> String {
    let mut d = String::with_capacity(points.len() * 10);
    for run in runs(points) {
        let mut pen = 'M';
        for (index, share) in run.clone() {
            let (x, y) = frame.position(index, points.len(), share);
            let _ = write!(d, "{pen}{} {}", Tenths(x), Tenths(y));
            pen = 'L';
        }
        if run.len() == 1 {
            d.push_str("h1");
        }
    }
    d
}

/// Returns the same line closed down to the bottom, run by run.
pub fn area(points: &[Option<f32>], frame: Frame) -> String {
    let mut d = String::with_capacity(points.len() * 10);
    for run in runs(points) {
        let (Some((first, _)), Some((last, _))) = (run.clone().next(), run.clone().last()) else { continue };
        let (left, _) = frame.position(first, points.len(), 0.0);
        let (right, _) = frame.position(last, points.len(), 0.0);
        let _ = write!(d, "M{} {}", Tenths(left), Tenths(frame.height));
        for (index, share) in run {
            let (x, y) = frame.position(index, points.len(), share);
            let _ = write!(d, "L{} {}", Tenths(x), Tenths(y));
        }
        let _ = write!(d, "L{} {}Z", Tenths(right), Tenths(frame.height));
    }
    d
}

/// A coordinate with one decimal, formatted with integers, which is faster and smaller.
struct Tenths(f32);

impl fmt::Display for Tenths {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let tenths = (self.0.max(0.0) * 10.0).round() as u32;
        write!(f, "{}.{}", tenths / 10, tenths % 10)
    }
}

/// Returns the unbroken runs of points with their positions.
fn runs(points: &[Option<f32>]) -> impl Iterator<Item = impl ExactSizeIterator<Item = (usize, f32)> + Clone> {
    let mut start = 0;
    std::iter::from_fn(move || {
        while points.get(start)?.is_none() {
            start += 1;
        }
        let from = start;
        while points.get(start).is_some_and(Option::is_some) {
            start += 1;
        }
        Some((from..start).map(move |index| (index, points[index].unwrap_or(0.0))))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: Frame = Frame { width: 100.0, height: 10.0, pad: 0.0 };

    #[test]
    fn a_line_rises_from_bottom_to_top() {
        assert_eq!(line(&[Some(0.0), Some(0.5), Some(1.0)], FRAME), "M0.0 10.0L50.0 5.0L100.0 0.0");
    }

    #[test]
    fn a_gap_breaks_the_line() {
        let points = [Some(0.0), Some(0.0), None, Some(1.0), Some(1.0)];
        assert_eq!(line(&points, FRAME), "M0.0 10.0L25.0 10.0M75.0 0.0L100.0 0.0");
    }

    #[test]
    fn a_single_point_is_visible() {
        assert_eq!(line(&[None, Some(0.0), None], FRAME), "M50.0 10.0h1");
    }

    #[test]
    fn an_area_reaches_the_bottom_and_leaves_gaps_empty() {
        let points = [Some(1.0), Some(1.0), None, Some(0.5), Some(0.5)];
        assert_eq!(
            area(&points, FRAME),
            "M0.0 10.0L0.0 0.0L25.0 0.0L25.0 10.0ZM75.0 10.0L75.0 5.0L100.0 5.0L100.0 10.0Z"
        );
    }

    #[test]
    fn values_outside_the_scale_stay_in_the_frame() {
        assert_eq!(line(&[Some(-3.0), Some(7.0)], FRAME), "M0.0 10.0L100.0 0.0");
    }

    #[test]
    fn no_points_draw_nothing() {
        assert_eq!(line(&[], FRAME), "");
        assert_eq!(area(&[None, None], FRAME), "");
    }
}
