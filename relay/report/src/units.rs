//! Aligns rows of text in columns, for a terminal.

use nodeglass_rules::text;

/// Columns of text, the first `texts` of them aligned to the left and the others to the right.
pub fn aligned(rows: &[Vec<String>], texts: usize) -> String {
    let lines = text::aligned(rows, |column| column >= texts);
    lines.into_iter().map(|line| format!("  {line}\n")).collect()
}
