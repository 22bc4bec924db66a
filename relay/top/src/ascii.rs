//! Replaces everything beyond ASCII, for terminals without Unicode. Pure.

use ratatui::buffer::Buffer;
use ratatui::text::Line;
use unicode_width::UnicodeWidthChar;

/// Replaces the characters of a frame; each keeps its width.
pub fn buffer(buffer: &mut Buffer) {
    for cell in &mut buffer.content {
        if !cell.symbol().is_ascii() {
            let symbol = text(cell.symbol());
            cell.set_symbol(&symbol);
        }
    }
}

/// Replaces the characters of printed lines.
pub fn lines(lines: &mut [Line<'static>]) {
    for span in lines.iter_mut().flat_map(|line| &mut line.spans) {
        if !span.content.is_ascii() {
            span.content = text(&span.content).into();
        }
    }
}

/// The text in ASCII, of the same width.
fn text(text: &str) -> String {
    text.chars()
        .flat_map(|letter| std::iter::repeat_n(replacement(letter), letter.width().unwrap_or(0)))
        .collect()
}

fn replacement(letter: char) -> char {
    match letter {
        ' '..='~' => letter,
        '●' => 'o',
        '◆' => '!',
        '▲' => 'X',
        '○' | '·' => '.',
        '–' | '─' | '╌' => '-',
        '━' => '=',
        '▸' | '→' => '>',
        '←' => '<',
        '↑' => '^',
        '↓' => 'v',
        '…' => '~',
        '└' => '`',
        '│' | '▏' => '|',
        '╭' | '╮' | '╯' | '╰' => '+',
        '×' => 'x',
        // Blocks by width and by height, the emptiest first.
        '▎' | '▍' | '▂' | '▃' => '-',
        '▌' | '▋' | '▄' | '▅' => '=',
        '▊' | '▉' | '▆' | '▇' => '*',
        '▁' => '_',
        '█' => '#',
        '°' => ' ',
        _ => '?',
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_replaced_text_has_its_width() {
        assert_eq!(text("● GPU 0  ███▍·  97 %  61 °C"), "o GPU 0  ###-.  97 %  61  C");
        assert_eq!(text("訓練…"), "????~");
        // Combining characters have no width.
        assert_eq!(text("e\u{301}"), "e");
    }
}
