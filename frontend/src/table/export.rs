//! Exports a table: as text, Markdown, CSV or JSON.

use super::column::Column;
use super::value::Value;
use std::fmt::Write;

/// An export format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Aligned columns of text.
    Text,
    /// A table for an issue or a chat.
    Markdown,
    /// For spreadsheets: base units, named in the column names.
    Csv,
    /// For programs: the same names and units.
    Json,
}

/// Returns the table in a format.
pub fn write(form: Form, columns: &[&Column], rows: &[Vec<Value>]) -> String {
    match form {
        Form::Text => text(columns, rows),
        Form::Markdown => markdown(columns, rows),
        Form::Csv => csv(columns, rows),
        Form::Json => json(columns, rows),
    }
}

fn shown(columns: &[&Column], rows: &[Vec<Value>]) -> Vec<Vec<String>> {
    let line = |row: &Vec<Value>| -> Vec<String> {
        row.iter().zip(columns).map(|(value, column)| value.line(column.unit)).collect()
    };
    let head = columns.iter().map(|column| column.full_title()).collect();
    std::iter::once(head).chain(rows.iter().map(line)).collect()
}

fn text(columns: &[&Column], rows: &[Vec<Value>]) -> String {
    let lines = shown(columns, rows);
    let widths: Vec<usize> = (0..columns.len())
        .map(|at| lines.iter().map(|line| line[at].chars().count()).max().unwrap_or(0))
        .collect();
    let mut out = String::new();
    for line in &lines {
        let start = out.len();
        for ((cell, width), column) in line.iter().zip(&widths).zip(columns) {
            let room = " ".repeat(width - cell.chars().count());
            let (before, after) =
                if column.unit.is_number() { (room, String::new()) } else { (String::new(), room) };
            let _ = write!(out, "{before}{}{after}  ", one_line(cell));
        }
        out.truncate(start + out[start..].trim_end().len());
        out.push('\n');
    }
    out
}

fn markdown(columns: &[&Column], rows: &[Vec<Value>]) -> String {
    let mut out = String::new();
    for (number, line) in shown(columns, rows).iter().enumerate() {
        for cell in line {
            let _ = write!(out, "| {} ", markdown_text(cell));
        }
        out.push_str("|\n");
        if number == 0 {
            for column in columns {
                out.push_str(if column.unit.is_number() { "|--:" } else { "|---" });
            }
            out.push_str("|\n");
        }
    }
    out
}

/// Escapes pictures, links, tags and code of Markdown, wherever the table is pasted.
fn markdown_text(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for letter in one_line(text).chars() {
        if matches!(letter, '\\' | '|' | '[' | ']' | '<' | '>' | '`' | '&') {
            out.push('\\');
        }
        out.push(letter);
    }
    out
}

fn csv(columns: &[&Column], rows: &[Vec<Value>]) -> String {
    let head = columns.iter().map(|column| column.file_name()).collect::<Vec<_>>().join(",");
    let mut out = head + "\r\n";
    for row in rows {
        for (at, value) in row.iter().enumerate() {
            if at > 0 {
                out.push(',');
            }
            match value {
                Value::Absent(_) => {}
                Value::Number(number) | Value::Part(number, _) => drop(write!(out, "{number}")),
                Value::Text(text) | Value::Tagged(text, _) => out.push_str(&nodeglass_rules::csv::cell(text)),
            }
        }
        out.push_str("\r\n");
    }
    out
}

fn json(columns: &[&Column], rows: &[Vec<Value>]) -> String {
    let mut out = String::from("[");
    for (number, row) in rows.iter().enumerate() {
        out.push_str(if number == 0 { "\n  {" } else { ",\n  {" });
        for (at, (value, column)) in row.iter().zip(columns).enumerate() {
            let comma = if at == 0 { "" } else { ", " };
            let _ = write!(out, "{comma}\"{}\": ", column.file_name());
            match value {
                Value::Absent(_) => out.push_str("null"),
                Value::Number(number) | Value::Part(number, _) => drop(write!(out, "{number}")),
                Value::Text(text) | Value::Tagged(text, _) => json_text(text, &mut out),
            }
        }
        out.push('}');
    }
    out.push_str("\n]\n");
    out
}

fn json_text(text: &str, out: &mut String) {
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            letter if letter < ' ' => drop(write!(out, "\\u{:04x}", letter as u32)),
            letter => out.push(letter),
        }
    }
    out.push('"');
}

fn one_line(cell: &str) -> String {
    cell.replace(|c: char| c.is_control() || matches!(c, '\u{2028}' | '\u{2029}'), " ")
}

#[cfg(test)]
#[path = "../../../tests/hostile/names.rs"]
mod hostile;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::value::CellUnit;

    const USER: Column = Column::new("user", "User", CellUnit::Text, 80, "");
    const MEM: Column = Column::new("mem", "Memory", CellUnit::Gib, 80, "");

    fn taken(form: Form, rows: &[Vec<Value>]) -> String {
        write(form, &[&USER, &MEM], rows)
    }

    fn rows() -> [Vec<Value>; 2] {
        [
            vec![Value::text("alice"), Value::Part(70 << 30, 80 << 30)],
            vec![Value::text("b|ob"), Value::NOT_YET],
        ]
    }

    #[test]
    fn text_is_aligned_with_figures_to_the_right() {
        assert_eq!(taken(Form::Text, &rows()), "User   Memory GiB\nalice     70.0/80\nb|ob            –\n");
    }

    #[test]
    fn markdown_stays_intact_whatever_a_cell_contains() {
        let expected = "| User | Memory GiB |\n|---|--:|\n| alice | 70.0/80 |\n| b\\|ob | – |\n";
        assert_eq!(taken(Form::Markdown, &rows()), expected);
    }

    #[test]
    fn csv_has_bytes_and_leaves_missing_values_empty() {
        assert_eq!(taken(Form::Csv, &rows()), "user,mem_bytes\r\nalice,75161927680\r\nb|ob,\r\n");
    }

    #[test]
    fn json_parses_to_the_same_values() {
        let rows = [vec![Value::text("a\"\\\n\u{1}ü"), Value::Number(7)], vec![Value::NONE, Value::NOT_YET]];
        let read: serde_json::Value = serde_json::from_str(&taken(Form::Json, &rows)).unwrap();
        assert_eq!(read[0]["user"], "a\"\\\n\u{1}ü");
        assert_eq!(
            (&read[0]["mem_bytes"], &read[1]["mem_bytes"]),
            (&serde_json::json!(7), &serde_json::Value::Null)
        );
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&taken(Form::Json, &[])).unwrap(),
            serde_json::json!([])
        );
    }

    /// The cells of a CSV, as a spreadsheet reads them.
    fn cells(csv: &str) -> Vec<Vec<String>> {
        let (mut rows, mut row, mut cell, mut quoted) = (Vec::new(), Vec::new(), String::new(), false);
        let mut letters = csv.chars().peekable();
        while let Some(letter) = letters.next() {
            match letter {
                '"' if quoted && letters.peek() == Some(&'"') => cell.extend(letters.next()),
                '"' => quoted = !quoted,
                ',' if !quoted => row.push(std::mem::take(&mut cell)),
                '\n' if !quoted => {
                    row.push(std::mem::take(&mut cell).trim_end_matches('\r').to_owned());
                    rows.push(std::mem::take(&mut row));
                }
                letter => cell.push(letter),
            }
        }
        rows
    }

    #[test]
    fn t15_no_hostile_name_breaks_out_of_its_cell_in_any_format() {
        for raw in hostile::all() {
            // Raw, because an export relies on nobody, and cleaned as on the wire.
            let raw = String::from_utf8_lossy(&raw).into_owned();
            for name in [raw.clone(), nodeglass_protocol::Text::new(&raw).as_str().to_owned()] {
                let rows =
                    [vec![Value::text(&name), Value::Number(7)], vec![Value::text("next"), Value::Number(8)]];
                let read = cells(&taken(Form::Csv, &rows));
                assert_eq!((read.len(), read[1].len(), read[2][0].as_str()), (3, 2, "next"), "{name:?}");
                let shown = read[1][0].trim_start();
                assert!(!shown.starts_with(['=', '+', '-', '@', '＝', '\t']), "{name:?}");
                // Apart from the apostrophes before what looks like a formula.
                assert_eq!(read[1][0].replace('\'', ""), name.replace('\'', ""), "{name:?}");
                let json: serde_json::Value = serde_json::from_str(&taken(Form::Json, &rows)).unwrap();
                // An empty text has no value.
                assert_eq!(json[0]["user"].as_str().unwrap_or_default(), name);
                let clean = nodeglass_protocol::Text::new(&name);
                assert!(!nodeglass_rules::csv::cell(clean.as_str()).contains(hostile::is_harmful));
                let markdown = taken(Form::Markdown, &rows);
                assert_eq!(markdown.lines().count(), 4, "{name:?}");
                let bare = markdown.replace("\\\\", "").replace("\\|", "");
                assert!(bare.lines().all(|line| line.matches('|').count() == 3), "{markdown}");
                for sign in ["<", "[", "`"] {
                    let open = bare.matches(sign).count() - bare.matches(&format!("\\{sign}")).count();
                    assert_eq!(open, 0, "{markdown}");
                }
                assert_eq!(taken(Form::Text, &rows).lines().count(), 3, "{name:?}");
            }
        }
    }
}
