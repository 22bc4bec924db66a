//! Columns of a table: which of them fit into a width, and how wide each is. Pure.

use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

/// The side on which a cell's text begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Align {
    /// Text.
    Left,
    /// Numbers.
    Right,
}

/// A column.
#[derive(Clone, Copy, Debug)]
pub struct Column<K> {
    /// The content.
    pub key: K,
    /// Its title.
    pub title: &'static str,
    /// Its minimum width.
    pub width: u16,
    /// Width that it can use at most.
    pub most: u16,
    /// Its side.
    pub align: Align,
    /// Columns of the highest rank are left out first.
    pub rank: u8,
}

impl<K> Column<K> {
    /// A column of text, which grows up to `most`.
    pub const fn text(key: K, title: &'static str, (width, most): (u16, u16), rank: u8) -> Self {
        Self { key, title, width, most, align: Align::Left, rank }
    }

    /// Returns it no wider than `widest`, its longest text.
    pub fn narrowed(self, widest: usize) -> Self {
        let widest = u16::try_from(widest.max(self.title.width())).unwrap_or(u16::MAX);
        Self { width: self.width.min(widest), most: self.most.min(widest), ..self }
    }

    /// A column of numbers.
    pub const fn number(key: K, title: &'static str, width: u16, rank: u8) -> Self {
        Self { key, title, width, most: width, align: Align::Right, rank }
    }
}

/// A column with the width that it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fitted<K> {
    /// The content.
    pub key: K,
    /// Its title.
    pub title: &'static str,
    /// Its width.
    pub width: u16,
    /// Its side.
    pub align: Align,
}

/// Width of a cut text that still says something, and of the space beside it.
const MIN_TEXT: i32 = 9;

/// Selects the columns that fit into `width`, the lowest ranks first, and lets them grow: those of rank 0 before the others, which grow in
/// proportion to what each can use.
/// Columns are separated by one space.
pub fn fit<K: Copy>(columns: &[Column<K>], width: u16) -> Vec<Fitted<K>> {
    let mut by_rank: Vec<usize> = (0..columns.len()).collect();
    by_rank.sort_by_key(|index| columns[*index].rank);
    let (mut widths, mut left) = (vec![0; columns.len()], i32::from(width) + 1);
    for index in &by_rank {
        let needed = i32::from(columns[*index].width) + 1;
        // A narrow column of a high rank must not take the place of a wide one of a lower rank. Text can be cut.
        if needed > left {
            if columns[*index].align == Align::Left && left > MIN_TEXT {
                widths[*index] = u16::try_from(left - 1).unwrap_or(0);
                left = 0;
            }
            break;
        }
        widths[*index] = columns[*index].width;
        left -= needed;
    }
    // What names a row is complete first. After that, the column that lacks most grows next: a long name must not leave
    // a state as `wait…`.
    let share = |widths: &[u16], index: usize| {
        let column = &columns[index];
        (column.rank > 0, 1_000 * u32::from(widths[index]) / u32::from(column.most))
    };
    by_rank.retain(|index| widths[*index] > 0);
    for _ in 0..left {
        let growing = by_rank.iter().copied().filter(|index| widths[*index] < columns[*index].most);
        let Some(index) = growing.min_by_key(|index| share(&widths, *index)) else { break };
        widths[index] += 1;
    }
    let fitted = columns.iter().zip(widths).filter(|(_, width)| *width > 0);
    fitted
        .map(|(column, width)| Fitted { key: column.key, title: column.title, width, align: column.align })
        .collect()
}

/// Cuts text to a width, with `…` at its end if something is missing.
pub fn cut(text: &str, width: u16) -> String {
    let width = usize::from(width);
    if text.width() <= width {
        return text.to_owned();
    }
    let mut out = String::new();
    for letter in text.chars() {
        let mut buffer = [0; 4];
        if out.width() + letter.encode_utf8(&mut buffer).width() + 1 > width {
            break;
        }
        out.push(letter);
    }
    if width > 0 {
        out.push('…');
    }
    out
}

/// Brings the spans of a cell to exactly the width of its column.
pub fn place(spans: Vec<Span<'static>>, width: u16, align: Align) -> Vec<Span<'static>> {
    let mut left = width;
    let mut placed = Vec::with_capacity(spans.len() + 1);
    for span in spans {
        let text = cut(&span.content, left);
        left = left.saturating_sub(text.width() as u16);
        placed.push(Span::styled(text, span.style));
    }
    if left > 0 {
        let blank = Span::raw(" ".repeat(usize::from(left)));
        match align {
            Align::Left => placed.push(blank),
            Align::Right => placed.insert(0, blank),
        }
    }
    placed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_row_grows_first_and_the_rest_in_proportion() {
        let columns = [
            Column::text('i', "ID", (4, 6), 0),
            Column::text('a', "A", (4, 30), 1),
            Column::text('b', "B", (4, 20), 2),
            Column::text('c', "C", (4, 4), 3),
        ];
        let widths = |width| fit(&columns, width).iter().map(|column| column.width).collect::<Vec<_>>();
        assert_eq!([widths(20), widths(27), widths(90)], [[5, 4, 4, 4], [6, 8, 6, 4], [6, 30, 20, 4]]);
    }

    const COLUMNS: [Column<char>; 4] = [
        Column::text('a', "A", (4, 6), 0),
        Column::number('b', "B", 8, 2),
        Column::number('c', "C", 3, 1),
        Column::number('d', "D", 1, 3),
    ];

    fn shown(width: u16) -> Vec<(char, u16)> {
        fit(&COLUMNS, width).into_iter().map(|column| (column.key, column.width)).collect()
    }

    #[test]
    fn columns_are_left_out_in_the_order_of_their_rank() {
        assert_eq!(shown(40), [('a', 6), ('b', 8), ('c', 3), ('d', 1)]);
        assert_eq!(shown(17), [('a', 4), ('b', 8), ('c', 3)]);
        assert_eq!(
            shown(16),
            [('a', 6), ('c', 3)],
            "the narrow column of rank 3 is left out before that of rank 2"
        );
        assert_eq!(shown(8), [('a', 4), ('c', 3)]);
        assert_eq!(shown(3), []);
    }

    #[test]
    fn a_cell_has_exactly_the_width_of_its_column() {
        let text = |raw: &str, width, align| -> String {
            place(vec![Span::raw(raw.to_owned())], width, align)
                .iter()
                .map(|span| span.content.as_ref())
                .collect()
        };
        assert_eq!(text("97", 4, Align::Right), "  97");
        assert_eq!(text("train", 4, Align::Left), "tra…");
        // A letter of two columns that does not fit is left out as a whole.
        assert_eq!(text("訓練", 3, Align::Left), "訓…");
        assert_eq!(text("", 2, Align::Left), "  ");
    }
}
