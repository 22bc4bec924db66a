//! What a table shows can be taken along: as text, as Markdown, as CSV, as JSON.

use super::column::Column;
use super::value::Value;
use std::fmt::Write;

/// A form in which a table can be taken along.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// Columns of text under each other.
    Text,
    /// A table for an issue or a chat.
    Markdown,
    /// For a spreadsheet: base units, said in the names of the columns.
    Csv,
    /// For a program: the same names and units.
    Json,
}

/// The table in a form.
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

/// A text that is none of Markdown's pictures, links, tags or code, wherever the table is put.
fn markdown_text(words: &str) -> String {
    let mut out = String::with_capacity(words.len());
    for letter in one_line(words).chars() {
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
                Value::Number(number) | Value::Of(number, _) => drop(write!(out, "{number}")),
                Value::Text(words) => out.push_str(&csv_text(words)),
            }
        }
        out.push_str("\r\n");
    }
    out
}

/// A text for a spreadsheet, which would take one that begins like a formula for a formula, some also behind spaces or
/// with the wide signs of East Asian keyboards.
fn csv_text(words: &str) -> String {
    let first = words.trim_start_matches(' ');
    let is_formula = first.starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠']);
    if is_formula || words.contains([',', '"', '\n', '\r', ';', '\t']) {
        let guard = if is_formula { "'" } else { "" };
        return format!("\"{guard}{}\"", words.replace('"', "\"\""));
    }
    words.to_owned()
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
                Value::Number(number) | Value::Of(number, _) => drop(write!(out, "{number}")),
                Value::Text(words) => json_text(words, &mut out),
            }
        }
        out.push('}');
    }
    out.push_str("\n]\n");
    out
}

fn json_text(words: &str, out: &mut String) {
    out.push('"');
    for letter in words.chars() {
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
    use crate::table::value::Unit;

    const USER: Column = Column::new("user", "User", Unit::Words, 80, "");
    const MEM: Column = Column::new("mem", "Memory", Unit::Gib, 80, "");

    fn taken(form: Form, rows: &[Vec<Value>]) -> String {
        write(form, &[&USER, &MEM], rows)
    }

    fn rows() -> [Vec<Value>; 2] {
        [vec![Value::text("alice"), Value::Of(70 << 30, 80 << 30)], vec![Value::text("b|ob"), Value::NOT_YET]]
    }

    #[test]
    fn text_stands_in_columns_with_figures_at_the_right() {
        assert_eq!(taken(Form::Text, &rows()), "User   Memory GiB\nalice     70.0/80\nb|ob            –\n");
    }

    #[test]
    fn markdown_is_not_broken_by_what_is_in_it() {
        let expected = "| User | Memory GiB |\n|---|--:|\n| alice | 70.0/80 |\n| b\\|ob | – |\n";
        assert_eq!(taken(Form::Markdown, &rows()), expected);
    }

    #[test]
    fn csv_tells_bytes_and_leaves_empty_what_is_absent() {
        assert_eq!(taken(Form::Csv, &rows()), "user,mem_bytes\r\nalice,75161927680\r\nb|ob,\r\n");
    }

    #[test]
    fn t15_a_cell_that_looks_like_a_formula_is_none() {
        for evil in ["=cmd()", "+1", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "  =1", "＝1"] {
            let out = csv_text(evil);
            assert!(out.starts_with("\"'") && out.ends_with('"'), "{out}");
        }
        assert_eq!(csv_text("a \"b\", c"), "\"a \"\"b\"\", c\"");
        assert_eq!(csv_text("train.py"), "train.py");
    }

    #[test]
    fn json_is_read_back_as_it_was() {
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
    fn t15_no_hostile_name_breaks_out_of_its_cell_in_any_form() {
        for raw in hostile::all() {
            // As it comes, for an export leans on nobody, and as the wire has it.
            let raw = String::from_utf8_lossy(&raw).into_owned();
            for name in [raw.clone(), nodeglass_protocol::Text::new(&raw).as_str().to_owned()] {
                let rows =
                    [vec![Value::text(&name), Value::Number(7)], vec![Value::text("next"), Value::Number(8)]];
                let read = cells(&taken(Form::Csv, &rows));
                assert_eq!((read.len(), read[1].len(), read[2][0].as_str()), (3, 2, "next"), "{name:?}");
                let shown = read[1][0].trim_start();
                assert!(!shown.starts_with(['=', '+', '-', '@', '＝', '\t']), "{name:?}");
                assert_eq!(read[1][0].trim_start_matches('\''), name.trim_start_matches('\''), "{name:?}");
                let json: serde_json::Value = serde_json::from_str(&taken(Form::Json, &rows)).unwrap();
                // An empty text is none.
                assert_eq!(json[0]["user"].as_str().unwrap_or_default(), name);
                let clean = nodeglass_protocol::Text::new(&name);
                assert!(!csv_text(clean.as_str()).contains(hostile::is_harmful));
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
