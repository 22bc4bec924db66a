//! Content of the panes, made of the pictures: rows, their order and their cells. Pure.

pub mod gpus;
pub mod header;
pub mod jobs;
pub mod processes;

use super::palette::{Palette, symbol};
use nodeglass_protocol::{Cell, Field, Row};
use nodeglass_rules::severity::Severity;
use nodeglass_rules::text;
use ratatui::style::Style;
use ratatui::text::Span;

/// A cell of a table.
pub type Spans = Vec<Span<'static>>;

/// Text in one style.
pub fn one(text: impl Into<String>, style: Style) -> Spans {
    vec![Span::styled(text.into(), style)]
}

/// The symbol of a severity.
pub fn sign(severity: Severity, palette: Palette) -> Spans {
    one(symbol(severity), palette.severity(severity))
}

/// A reading as text; a missing one says why in one letter: `–` not yet, `n/a` unsupported, `err` failed.
pub fn reading<F: Field>(row: &Row<F>, field: F, shown: impl FnOnce(u64) -> String) -> String {
    match (row.value(field), row.get(field)) {
        (Some(value), _) => shown(value),
        (None, Cell::UNSUPPORTED) => "n/a".to_owned(),
        (None, Cell::FAILED) => "err".to_owned(),
        (None, _) => text::ABSENT.to_owned(),
    }
}

/// Returns whether any of the texts contains a filter; case does not matter.
pub fn matches<'a>(filter: &str, texts: impl IntoIterator<Item = &'a str>) -> bool {
    filter.is_empty() || {
        let filter = filter.to_lowercase();
        texts.into_iter().any(|text| text.to_lowercase().contains(&filter))
    }
}
