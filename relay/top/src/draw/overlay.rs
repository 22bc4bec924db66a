//! Overlays above the panes: the keys, a confirmation, details. Pure.

use crate::keys::HELP;
use crate::palette::Palette;
use crate::table::{Align, place};
use crate::view::Overlay;
use ratatui::buffer::Buffer;
use ratatui::layout::Rect;
use ratatui::style::Style;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, BorderType, Clear, Paragraph, Widget, Wrap};
use unicode_width::UnicodeWidthStr;

/// Widest overlay.
const MAX_WIDTH: u16 = 100;

/// Draws an overlay in the middle of the screen.
pub fn draw(buffer: &mut Buffer, overlay: &mut Overlay, palette: Palette) {
    match overlay {
        Overlay::Help { top } => scrolled(buffer, "Keys", help(palette), top, palette),
        Overlay::Detail { title, lines, top } => {
            let lines = lines.iter().map(|line| Line::raw(line.clone())).collect();
            scrolled(buffer, title, lines, top, palette);
        }
        Overlay::Confirm { node, process, signal, command } => {
            let lines = vec![
                Line::styled(
                    format!("Send {} to pid {} on {node}?", signal.name(), process.pid),
                    palette.strong(),
                ),
                Line::styled(command.clone(), palette.dim()),
                Line::raw(""),
                Line::raw("y sends it; any other key cancels, Ctrl C quits"),
            ];
            boxed(buffer, ("Signal", ""), lines, 0, palette);
        }
    }
}

fn help(palette: Palette) -> Vec<Line<'static>> {
    let mut lines = Vec::new();
    for keys in HELP {
        if !lines.is_empty() {
            lines.push(Line::raw(""));
        }
        for (key, what) in *keys {
            let mut spans = place(vec![Span::styled(*key, palette.strong())], 17, Align::Left);
            spans.push(Span::raw(*what));
            lines.push(Line::from(spans));
        }
    }
    lines
}

/// Draws lines from `top` on, which is brought back to where something is left to show.
fn scrolled(buffer: &mut Buffer, title: &str, lines: Vec<Line<'static>>, top: &mut usize, palette: Palette) {
    *top = (*top).min(lines.len().saturating_sub(1));
    boxed(buffer, (title, " ↑↓ scroll · Esc closes "), lines, *top, palette);
}

fn boxed(
    buffer: &mut Buffer,
    (title, hint): (&str, &'static str),
    lines: Vec<Line<'static>>,
    top: usize,
    palette: Palette,
) {
    let screen = buffer.area;
    let width = lines.iter().map(Line::width).max().unwrap_or(0).max(title.width() + 2);
    let width = u16::try_from(width + 4).unwrap_or(MAX_WIDTH).clamp(30, MAX_WIDTH).min(screen.width);
    let inner = usize::from(width - 4);
    let wrapped: usize = lines.iter().map(|line| line.width().div_ceil(inner.max(1)).max(1)).sum();
    let height = u16::try_from(wrapped + 2).unwrap_or(u16::MAX).min(screen.height);
    let area = Rect::new((screen.width - width) / 2, (screen.height - height) / 2, width, height);
    Clear.render(area, buffer);
    let block = Block::bordered()
        .border_type(BorderType::Rounded)
        .border_style(palette.focus())
        .title(format!(" {title} "))
        .title_bottom(Line::styled(hint, palette.dim()).right_aligned())
        .padding(ratatui::widgets::Padding::horizontal(1));
    let top = u16::try_from(top).unwrap_or(u16::MAX);
    Paragraph::new(lines)
        .style(Style::new())
        .wrap(Wrap { trim: false })
        .scroll((top, 0))
        .block(block)
        .render(area, buffer);
}
