//! Functions of the product fit on a screen, except tables.

use super::{read, relative, sources};
use std::collections::BTreeSet;

/// Maximum number of lines of a function, from its signature to its closing brace.
const MAX_LINES: usize = 80;

/// Tables in the form of a function, with one row after another, which have no limit.
const TABLES: &[(&str, &str)] = &[
    ("relay/findings/src/job_log/patterns.rs", "built_in"),
    ("relay/findings/src/detect/health/sentence.rs", "of"),
];

#[test]
fn no_function_of_the_product_is_longer_than_a_screen() {
    let mut long = BTreeSet::new();
    for file in sources() {
        let name = relative(&file);
        let is_product =
            !name.starts_with("tests/") && !name.starts_with("xtask/") && !name.contains("tests");
        if is_product {
            let functions = functions(&read(&file)).into_iter().filter(|(_, lines)| *lines > MAX_LINES);
            long.extend(functions.map(|(function, _)| (name.clone(), function)));
        }
    }
    let tables: BTreeSet<_> =
        TABLES.iter().map(|(file, name)| ((*file).to_owned(), (*name).to_owned())).collect();
    let violations: Vec<_> = long.difference(&tables).collect();
    assert!(violations.is_empty(), "functions with more than {MAX_LINES} lines: {violations:#?}");
    let outdated: Vec<_> = tables.difference(&long).collect();
    assert!(outdated.is_empty(), "no longer exceptions: {outdated:#?}");
}

/// The functions of a formatted source file outside of its tests, with their numbers of lines.
fn functions(text: &str) -> Vec<(String, usize)> {
    let text = text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let Some(name) = name(line) else { continue };
        let indent = |line: &str| line.len() - line.trim_start().len();
        let closing = format!("{}}}", &line[..indent(line)]);
        // A declaration has none, so that the next function begins before.
        let is_next = |next: &str| self::name(next).is_some() && indent(next) == indent(line);
        let end = lines[at + 1..].iter().position(|line| *line == closing || is_next(line));
        if let Some(end) = end.filter(|end| lines[at + 1 + end] == closing) {
            found.push((name.to_owned(), end + 2));
        }
    }
    found
}

/// The name of the function whose signature begins with a line.
fn name(line: &str) -> Option<&str> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let words = ["pub", "const", "async", "unsafe", "extern", "\"C\""];
    let is_word = |word: &str| words.contains(&word) || word.starts_with("pub(");
    if !before.split_whitespace().all(|word| is_word(word) || word.ends_with(')')) || line.ends_with('}') {
        return None;
    }
    after.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next()
}

#[test]
fn the_lines_of_a_function_are_counted_to_its_closing_brace() {
    let text = "pub(super) async fn first(\n    a: u8,\n) {\n    work(|| {\n    });\n}\n\ntrait T {\n    fn declared();\n\
                \n    fn second() {\n    }\n}\n\n#[cfg(test)]\nmod tests {\n    fn third() {\n    }\n}\n";
    assert_eq!(functions(text), [("first".to_owned(), 6), ("second".to_owned(), 2)]);
}
