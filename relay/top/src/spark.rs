//! Bars and sparklines made of block characters. Pure.

use nodeglass_protocol::Cell;
use nodeglass_protocol::trace::Trace;

/// Blocks by eighths of a line's height.
const HEIGHTS: [char; 8] = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
/// Blocks by eighths of a column's width.
const WIDTHS: [char; 8] = ['▏', '▎', '▍', '▌', '▋', '▊', '▉', '█'];
/// The longest time that a sparkline shows: the length of a trace.
const LONGEST_MS: u64 = 600_000;

/// A bar of `part` in `whole`, in two pieces: filled and empty. A value above nothing shows at least a trace.
pub fn bar(part: u64, whole: u64, width: u16) -> (String, String) {
    let eighths = u64::from(width) * 8;
    let filled = match whole {
        0 => 0,
        whole => (u128::from(part.min(whole)) * u128::from(eighths) / u128::from(whole)) as u64,
    };
    let filled = if part > 0 { filled.max(1) } else { 0 };
    let mut out: String = "█".repeat((filled / 8) as usize);
    if filled % 8 > 0 {
        out.push(WIDTHS[(filled % 8 - 1) as usize]);
    }
    let empty = usize::from(width).saturating_sub(out.chars().count());
    (out, "·".repeat(empty))
}

/// A line of the last minutes up to `now_ms`, one column for the mean of each step; a gap is a space.
pub fn line(trace: &Trace, now_ms: u64, full: u32, width: u16) -> String {
    // Steps of whole seconds, so that the line moves by whole columns.
    let step_ms = (LONGEST_MS / u64::from(width.max(1))).div_ceil(1_000) * 1_000;
    // Aligned to the step, so that a column does not change its samples while it moves.
    let end_ms = (now_ms / step_ms + 1) * step_ms;
    let start_ms = end_ms.saturating_sub(step_ms * u64::from(width));
    let mut sums = vec![(0_u64, 0_u64); usize::from(width)];
    for (at_ms, cell) in trace.since(start_ms) {
        let index = (at_ms.saturating_sub(start_ms) / step_ms) as usize;
        if let Some((sum, count)) = sums.get_mut(index)
            && let Some(value) = cell.and_then(Cell::value)
        {
            *sum += u64::from(value);
            *count += 1;
        }
    }
    let column = |(sum, count): (u64, u64)| match sum.checked_div(count) {
        None => ' ',
        Some(mean) => HEIGHTS[((mean.min(u64::from(full)) * 7) / u64::from(full.max(1))) as usize],
    };
    sums.into_iter().map(column).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_width_and_shows_the_smallest_value() {
        assert_eq!(bar(50, 100, 4), ("██".to_owned(), "··".to_owned()));
        assert_eq!(bar(0, 100, 4), (String::new(), "····".to_owned()));
        assert_eq!(bar(1, 1_000, 4), ("▏".to_owned(), "···".to_owned()));
        assert_eq!(bar(200, 100, 2), ("██".to_owned(), String::new()));
        assert_eq!(bar(5, 0, 2), ("▏".to_owned(), "·".to_owned()));
    }

    #[test]
    fn a_gap_is_neither_zero_nor_the_last_value() {
        let mut trace = Trace::default();
        for second in (600..780).filter(|second| !(660..720).contains(second)) {
            trace.push(second * 1_000, Cell::steps(if second < 660 { 0 } else { 100 }), 0);
        }
        assert_eq!(line(&trace, 779_000, 100, 10), "       ▁ █");
    }
}
