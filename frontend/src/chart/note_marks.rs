//! Places of the notes of a graph, and the marks that have room for a label.

use super::timeline::Window;

/// Marks that are closer than this share of the width are one.
const MERGED: f64 = 0.006;
/// The distance of a mark of the end from the edge, as a part of the width.
const EDGE: u64 = 300;
/// Space between two labels, and between a label and its mark, in pixels.
const GAP_PX: f64 = 4.0;

/// The mark of one or more notes.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteMark {
    /// Position of its first note in the list, by time.
    pub first: usize,
    /// Number of its notes.
    pub count: usize,
    /// Horizontal position as a share of the width.
    pub share: f64,
    /// Side on which its label fits: to the right of it, or else to the left.
    pub label: Option<Side>,
}

/// The side of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Returns where notes are shown in a window: at their times, but those after the end of a graph that ends with a job at
/// `ended_ms`, at that end. The order stays as it is.
pub fn shown_times(window: &Window, times_ms: &[i64], ended_ms: Option<u64>) -> Vec<i64> {
    let end_ms = window.end_ms();
    // The last step may be incomplete.
    let ends_with_job = ended_ms.is_some_and(|ended_ms| ended_ms < end_ms + window.step_ms());
    // A line at the very edge would be cut.
    let inside_ms = ((end_ms - window.start_ms()) / EDGE).max(1);
    let latest_ms = if ends_with_job { end_ms.saturating_sub(inside_ms).cast_signed() } else { i64::MAX };
    times_ms.iter().map(|at_ms| *at_ms.min(&latest_ms)).collect()
}

/// Returns the marks of notes within a window, given their times in ms of the relay's clock in ascending order.
/// `label_px` returns the width of the label of a mark in a graph that is `width_px` wide. A label that does not fit,
/// or that would cover an earlier one, is left out.
pub fn note_marks(
    window: &Window,
    times_ms: &[i64],
    width_px: f64,
    label_px: impl Fn(usize, usize) -> f64,
) -> Vec<NoteMark> {
    let (start_ms, end_ms) = (window.start_ms().cast_signed(), window.end_ms().cast_signed());
    let length_ms = (end_ms - start_ms).max(1) as f64;
    let mut marks: Vec<NoteMark> = Vec::new();
    for (first, at_ms) in times_ms.iter().enumerate().filter(|(_, at_ms)| (start_ms..end_ms).contains(*at_ms))
    {
        let share = (at_ms - start_ms) as f64 / length_ms;
        match marks.last_mut().filter(|last| share - last.share < MERGED) {
            Some(last) => last.count += 1,
            None => marks.push(NoteMark { first, count: 1, share, label: None }),
        }
    }
    let mut used_px = 0.0;
    for mark in &mut marks {
        let (at_px, length_px) = (mark.share * width_px, label_px(mark.first, mark.count) + GAP_PX);
        let right = (Side::Right, at_px, at_px + length_px);
        let left = (Side::Left, at_px - length_px, at_px);
        let fits = |(_, from_px, to_px): &(Side, f64, f64)| *from_px >= used_px && *to_px <= width_px;
        if let Some((side, _, to_px)) = [right, left].into_iter().find(fits) {
            (mark.label, used_px) = (Some(side), to_px);
        }
    }
    marks
}

/// Returns the positions of notes near a moment: within a step, or one hundredth of the window.
pub fn notes_near(window: &Window, times_ms: &[i64], at_ms: u64) -> std::ops::Range<usize> {
    let reach_ms = window.step_ms().max((window.end_ms() - window.start_ms()) / 100).cast_signed();
    // The cursor is at the start of a step.
    let at_ms = at_ms.cast_signed() + window.step_ms().cast_signed() / 2;
    let from = times_ms.partition_point(|time_ms| *time_ms < at_ms - reach_ms);
    from..times_ms.partition_point(|time_ms| *time_ms <= at_ms + reach_ms).max(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ten minutes that end at 1,000 s.
    fn window() -> Window {
        Window::over(1_000_000, 600_000, 200)
    }

    /// The marks in a graph of 1,000 pixels with labels of 150.
    fn marks(times_ms: &[i64]) -> Vec<NoteMark> {
        note_marks(&window(), times_ms, 1_000.0, |_, _| 150.0)
    }

    #[test]
    fn notes_outside_of_the_window_have_no_mark_and_close_ones_share_one() {
        let start_ms = window().start_ms().cast_signed();
        let times = [start_ms - 1, start_ms, start_ms + 1_000, start_ms + 300_000, start_ms + 900_000];
        let marks = marks(&times);
        let read: Vec<_> = marks.iter().map(|mark| (mark.first, mark.count)).collect();
        assert_eq!(read, [(1, 2), (3, 1)]);
        assert!((marks[1].share - 0.5).abs() < 0.01, "{marks:?}");
        assert_eq!(self::marks(&[i64::MIN, -5, i64::MAX]), []);
    }

    #[test]
    fn a_label_that_would_cover_another_is_left_out_and_at_the_edge_it_is_on_the_left() {
        let start_ms = window().start_ms().cast_signed();
        let times = [0.0, 0.05, 0.3, 0.97].map(|share| start_ms + (share * 600_000.0) as i64);
        let labels: Vec<_> = marks(&times).iter().map(|mark| mark.label).collect();
        assert_eq!(labels, [Some(Side::Right), None, Some(Side::Right), Some(Side::Left)]);
    }

    #[test]
    fn labels_take_as_much_room_as_their_texts() {
        let start_ms = window().start_ms().cast_signed();
        let times = [0.0, 0.05, 0.1].map(|share| start_ms + (share * 600_000.0) as i64);
        let labels = |width_px, label_px: [f64; 3]| {
            let marks = note_marks(&window(), &times, width_px, |first, _| label_px[first]);
            marks.iter().map(|mark| mark.label).collect::<Vec<_>>()
        };
        let right = Some(Side::Right);
        assert_eq!(labels(1_000.0, [40.0, 40.0, 40.0]), [right; 3]);
        assert_eq!(labels(1_000.0, [60.0, 40.0, 40.0]), [right, None, right]);
        assert_eq!(labels(1_000.0, [200.0, 40.0, 40.0]), [right, None, None]);
        // In a narrow graph, a label that is wider than the graph is not shown at all.
        assert_eq!(labels(100.0, [200.0, 20.0, 20.0]), [None, right, None]);
        assert_eq!(labels(0.0, [40.0; 3]), [None; 3], "a graph that is not laid out yet");
    }

    #[test]
    fn a_note_after_the_end_of_a_job_is_marked_at_the_end() {
        let (start_ms, end_ms) = (window().start_ms().cast_signed(), window().end_ms().cast_signed());
        let times = [start_ms, end_ms + 2_000, end_ms + 900_000];
        let shown = |ended_ms: Option<i64>| shown_times(&window(), &times, ended_ms.map(i64::cast_unsigned));
        assert_eq!(shown(Some(end_ms + 2_999)), [start_ms, end_ms - 2_000, end_ms - 2_000]);
        let marked: Vec<_> =
            marks(&shown(Some(end_ms))).iter().map(|mark| (mark.first, mark.count)).collect();
        assert_eq!(marked, [(0, 1), (1, 2)]);
        assert_eq!(shown(None), times, "a graph that ends now");
        assert_eq!(shown(Some(end_ms + 500_000)), times, "a graph of an earlier time");
    }

    #[test]
    fn thousands_of_notes_have_few_marks() {
        let start_ms = window().start_ms().cast_signed();
        let times: Vec<_> = (0..5_000).map(|number| start_ms + number * 100).collect();
        let marks = marks(&times);
        assert!(marks.len() < 170, "{}", marks.len());
        assert_eq!(marks.iter().map(|mark| mark.count).sum::<usize>(), 5_000);
        assert!(marks.iter().filter(|mark| mark.label.is_some()).count() <= 7);
    }

    #[test]
    fn the_notes_near_the_cursor_are_found() {
        let start_ms = window().start_ms().cast_signed();
        let times = [start_ms, start_ms + 100_000, start_ms + 102_000, start_ms + 120_000];
        assert_eq!(notes_near(&window(), &times, start_ms.unsigned_abs() + 100_000), 1..3);
        assert_eq!(notes_near(&window(), &times, start_ms.unsigned_abs() + 50_000), 1..1);
    }
}
