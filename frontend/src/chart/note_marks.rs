//! Where the notes of a graph are marked, and which of the marks have room for a label.

use super::timeline::Window;

/// Marks that are closer than this share of the width are one.
const MERGED: f64 = 0.006;
/// Width that a label needs as a share of the graph's, and the most that it takes.
const LABEL: f64 = 0.16;
const WIDEST: f64 = 0.4;

/// The mark of one or more notes.
#[derive(Clone, Debug, PartialEq)]
pub struct NoteMark {
    /// Position of its first note in the list, by time.
    pub first: usize,
    /// Number of its notes.
    pub count: usize,
    /// Horizontal position as a share of the width.
    pub share: f64,
    /// Whether its label fits: to the right of it, or at the right edge to the left.
    pub label: Option<Side>,
    /// Width of its label, as a share of the graph's.
    pub room: f64,
}

/// The side of a mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// To the left.
    Left,
    /// To the right.
    Right,
}

/// Returns the marks of notes within a window, given their times in ms of the relay's clock in ascending order. A
/// label is shown unless it would cover the one before it.
pub fn note_marks(window: &Window, times_ms: &[i64]) -> Vec<NoteMark> {
    let (start_ms, end_ms) = (window.start_ms().cast_signed(), window.end_ms().cast_signed());
    let length_ms = (end_ms - start_ms).max(1) as f64;
    let mut marks: Vec<NoteMark> = Vec::new();
    for (first, at_ms) in times_ms.iter().enumerate().filter(|(_, at_ms)| (start_ms..end_ms).contains(*at_ms))
    {
        let share = (at_ms - start_ms) as f64 / length_ms;
        match marks.last_mut().filter(|last| share - last.share < MERGED) {
            Some(last) => last.count += 1,
            None => marks.push(NoteMark { first, count: 1, share, label: None, room: 0.0 }),
        }
    }
    let mut used = 0.0;
    for mark in &mut marks {
        let side = if mark.share + LABEL > 1.0 { Side::Left } else { Side::Right };
        let (from, to) = match side {
            Side::Left => (mark.share - LABEL, mark.share),
            Side::Right => (mark.share, mark.share + LABEL),
        };
        if from >= used {
            (mark.label, mark.room) = (Some(side), LABEL);
            used = to;
        }
    }
    // Each has the room up to the next one.
    let mut end = 1.0;
    for mark in marks.iter_mut().rev().filter(|mark| mark.label.is_some()) {
        match mark.label {
            Some(Side::Right) => {
                mark.room = (end - mark.share).min(WIDEST);
                end = mark.share;
            }
            _ => end = mark.share - LABEL,
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

    #[test]
    fn notes_outside_of_the_window_have_no_mark_and_close_ones_share_one() {
        let start_ms = window().start_ms().cast_signed();
        let times = [start_ms - 1, start_ms, start_ms + 1_000, start_ms + 300_000, start_ms + 900_000];
        let marks = note_marks(&window(), &times);
        let read: Vec<_> = marks.iter().map(|mark| (mark.first, mark.count)).collect();
        assert_eq!(read, [(1, 2), (3, 1)]);
        assert!((marks[1].share - 0.5).abs() < 0.01, "{marks:?}");
        assert_eq!(note_marks(&window(), &[i64::MIN, -5, i64::MAX]), []);
    }

    #[test]
    fn a_label_that_would_cover_another_is_left_out_and_at_the_edge_it_is_on_the_left() {
        let start_ms = window().start_ms().cast_signed();
        let times = [0.0, 0.1, 0.3, 0.97].map(|share| start_ms + (share * 600_000.0) as i64);
        let labels: Vec<_> = note_marks(&window(), &times).iter().map(|mark| mark.label).collect();
        assert_eq!(labels, [Some(Side::Right), None, Some(Side::Right), Some(Side::Left)]);
        let rooms: Vec<_> = note_marks(&window(), &times).iter().map(|mark| mark.room).collect();
        for (room, wanted) in rooms.iter().zip([0.3, 0.0, 0.4, 0.16]) {
            assert!((room - wanted).abs() < 0.01, "{rooms:?}");
        }
    }

    #[test]
    fn thousands_of_notes_have_few_marks() {
        let start_ms = window().start_ms().cast_signed();
        let times: Vec<_> = (0..5_000).map(|number| start_ms + number * 100).collect();
        let marks = note_marks(&window(), &times);
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
