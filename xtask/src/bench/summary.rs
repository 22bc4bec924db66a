//! The results: a table for people, and `target/bench/summary.json` for machines.

use super::figure::{Figure, number};
use crate::shell::target;
use anyhow::{Context, Result};
use std::fmt::Write as _;
use std::fs;
use std::path::PathBuf;

/// One figure per line, below the machine's description.
pub(crate) fn table(figures: &[Figure], machine: &str) -> String {
    let mut out = format!("\n── figures ──\n{machine}\n\n");
    let rows: Vec<_> = figures.iter().map(row).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<_> = (0..5).map(width).collect();
    for row in &rows {
        let mut line = String::new();
        for (cell, width) in row.iter().zip(&widths) {
            let _ = write!(line, "{cell:width$}  ");
        }
        line += &row[5];
        out += line.trim_end();
        out.push('\n');
    }
    out
}

/// Verdict, key, value with unit, spread, target, note.
fn row(figure: &Figure) -> [String; 6] {
    let spread = figure.spread.map(|(low, high)| format!("{} – {}", number(low), number(high)));
    [
        figure.verdict().to_owned(),
        figure.key.clone(),
        format!("{} {}", number(figure.value), figure.entry.unit),
        spread.unwrap_or_default(),
        figure.entry.goal.map(|goal| goal.describe()).unwrap_or_default(),
        figure.note.clone(),
    ]
}

/// Writes `target/bench/summary.json` and prints its path.
pub(crate) fn write(figures: &[Figure]) -> Result<PathBuf> {
    let folder = target().join("bench");
    fs::create_dir_all(&folder).context("make the folder of the summary")?;
    let path = folder.join("summary.json");
    fs::write(&path, json(figures)).with_context(|| format!("write {}", path.display()))?;
    Ok(path)
}

/// One object with a key per figure. Keys, units and notes are constants; a note may quote a file name.
fn json(figures: &[Figure]) -> String {
    let entries: Vec<_> = figures.iter().map(entry).collect();
    format!("{{\n{}\n}}\n", entries.join(",\n"))
}

fn entry(figure: &Figure) -> String {
    let (key, value, unit) = (quoted(&figure.key), figure.value, quoted(figure.entry.unit));
    let mut out = format!("  {key}: {{ \"value\": {value}, \"unit\": {unit}");
    if let Some((low, high)) = figure.spread {
        let _ = write!(out, ", \"low\": {low}, \"high\": {high}");
    }
    if !figure.note.is_empty() {
        let _ = write!(out, ", \"note\": {}", quoted(&figure.note));
    }
    out + " }"
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            control if control.is_control() => out.push(' '),
            plain => out.push(plain),
        }
    }
    out + "\""
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Vec<Figure> {
        ["= probe.rss_mb 9", "= probe.tick_us 312.5 300 350 # with \"motion\""]
            .map(|line| Figure::read(line).unwrap().unwrap())
            .into()
    }

    #[test]
    fn a_machine_reads_key_value_unit_and_spread() {
        assert_eq!(
            json(&figures()),
            "{\n  \"probe.rss_mb\": { \"value\": 9, \"unit\": \"MB\" },\n  \"probe.tick_us\": { \"value\": 312.5, \
             \"unit\": \"µs of CPU\", \"low\": 300, \"high\": 350, \"note\": \"with \\\"motion\\\"\" }\n}\n"
        );
    }

    #[test]
    fn a_person_reads_what_is_not_held() {
        let table = table(&figures(), "a machine");
        assert!(table.contains("a machine\n\n✗  probe.rss_mb   9.00 MB"), "{table}");
        assert!(table.contains("300 – 350") && table.contains("≤ 8"), "{table}");
    }
}
