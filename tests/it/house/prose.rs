//! Documentation, comments and messages of the product are plain statements, as in the Rust standard library.

use super::{read, relative, sources};

/// Beginnings of documentation that ask a question or refer to a neighbour instead of naming the item.
const BEGINNINGS: &[&str] = &[
    "What ",
    "Who ",
    "Whose ",
    "Which ",
    "Where ",
    "Why ",
    "How many ",
    "How much ",
    "How long ",
    "How often ",
    "How far ",
    "The same,",
    "The same with ",
    "The same for ",
    "The same of ",
    "The same if ",
    "The same where ",
];

/// Phrases in any line, with the form that replaces them.
const PHRASES: &[(&str, &str)] = &[
    ("as far as ", "a condition: if, the known …"),
    ("whatever ", "for any …"),
    ("whoever ", "any user who …"),
    ("does not answer", "does not respond"),
    ("did not answer", "did not respond"),
    ("are none of", "are not among"),
];

#[test]
fn documentation_names_its_item_in_a_plain_statement() {
    let mut violations = Vec::new();
    for (name, text) in product() {
        let mut is_begin = true;
        let lines: Vec<&str> = text.lines().collect();
        for (number, line) in lines.iter().enumerate() {
            let place = || format!("{name}:{}: {}", number + 1, line.trim());
            let documentation = documentation(line);
            if let Some(words) = documentation.filter(|_| is_begin) {
                let is_question = BEGINNINGS.iter().any(|beginning| words.starts_with(beginning));
                let is_predicate = words.starts_with("Whether ") && is_function(&lines[number..]);
                if is_question || is_predicate {
                    violations.push(place());
                }
            }
            is_begin = documentation.is_none();
        }
    }
    assert!(
        violations.is_empty(),
        "name the item (\"Number of …\", \"Reason for …\"); a function \"Returns whether …\": {violations:#?}"
    );
}

#[test]
fn comments_and_messages_use_standard_phrases() {
    let mut violations = Vec::new();
    for (name, text) in product() {
        for (number, line) in text.lines().enumerate() {
            let found = PHRASES.iter().find(|(phrase, _)| line.contains(phrase)).map(|(_, better)| *better);
            let found = found.or_else(|| denies(line).then_some("is not a, has no"));
            if let Some(better) = found {
                violations.push(format!("{name}:{}: {} ({better})", number + 1, line.trim()));
            }
        }
    }
    assert!(violations.is_empty(), "other phrases: {violations:#?}");
}

/// Source files of the product without their tests, with their names.
fn product() -> impl Iterator<Item = (String, String)> {
    let files = sources().into_iter().filter_map(|file| {
        let name = relative(&file);
        let is_test = name.starts_with("tests/") || name.contains("/tests") || name.ends_with("tests.rs");
        let text = read(&file);
        let product = text.split("\n#[cfg(test)]\nmod ").next().unwrap_or_default().to_owned();
        (!is_test).then_some((name, product))
    });
    files.collect::<Vec<_>>().into_iter()
}

/// The text of a line of documentation.
fn documentation(line: &str) -> Option<&str> {
    let line = line.trim_start();
    line.strip_prefix("///").or_else(|| line.strip_prefix("//!")).map(str::trim_start)
}

/// Whether documentation at the begin of these lines belongs to a function that returns a bool.
fn is_function(lines: &[&str]) -> bool {
    let is_between = |line: &&&str| documentation(line).is_some() || line.trim_start().starts_with("#[");
    let mut item = lines.iter().skip_while(is_between);
    item.next().is_some_and(|line| {
        let signature = line.split('(').next().unwrap_or_default();
        signature.trim_start().starts_with("fn ") || signature.contains(" fn ")
    })
}

/// Returns whether a line says `is no thing` for `is not a thing`.
fn denies(line: &str) -> bool {
    [" is no ", " are no ", " was no ", " were no "].iter().any(|phrase| {
        line.match_indices(phrase).any(|(at, _)| {
            let (before, after) = (&line[..at], &line[at + phrase.len()..]);
            !before.ends_with("here") && !after.starts_with("longer") && !after.starts_with("more ")
        })
    })
}

#[test]
fn phrases_are_found_where_they_are() {
    assert!(denies("// That is no error.") && denies("\"{0} is no time\""));
    assert!(!denies("// There is no job.") && !denies("// It is no longer there."));
    assert!(is_function(&["/// Whether it runs.", "#[must_use]", "pub fn runs(&self) -> bool {"]));
    assert!(!is_function(&["/// Whether it runs.", "pub runs: bool,"]));
}
