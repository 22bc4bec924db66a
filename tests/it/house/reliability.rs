//! The tables of docs/RELIABILITY.md name tests that exist, and list each test of a fault.

use super::{read, root, sources};
use std::collections::BTreeSet;

/// Numbers of faults.
const FAULTS: u32 = 37;
/// Numbers of guarantees.
const GUARANTEES: u32 = 8;

/// A row of the tables: its id (`F7`), the tests that it names, and whether all of its cells have been filled in.
#[derive(Debug, PartialEq, Eq)]
struct Row {
    id: String,
    tests: BTreeSet<String>,
    is_complete: bool,
}

#[test]
fn each_guarantee_and_fault_names_existing_tests() {
    let rows = rows(&read(&root().join("docs/RELIABILITY.md")));
    let ids: Vec<_> = rows.iter().map(|row| row.id.as_str()).collect();
    let expected = (1..=GUARANTEES).map(|n| format!("P{n}")).chain((1..=FAULTS).map(|n| format!("F{n}")));
    for id in expected {
        assert_eq!(ids.iter().filter(|listed| **listed == id).count(), 1, "rows of {id}");
    }
    let existing = tests_of(sources().iter().map(|file| read(file)));
    let mut violations = Vec::new();
    for Row { id, tests, is_complete } in &rows {
        violations.extend(tests.difference(&existing).map(|test| format!("{id}: there is no test {test}")));
        let prefix = id.strip_prefix('F').map(|number| format!("f{number:0>2}_"));
        let numbered = |prefix: &String| tests.iter().any(|test| has_number(test, prefix));
        if !is_complete {
            violations.push(format!("{id}: a cell is empty"));
        }
        if !prefix.as_ref().map_or(!tests.is_empty(), numbered) {
            violations.push(format!("{id}: no test has its number"));
        }
        let of_it = existing.iter().filter(|test| prefix.as_ref().is_some_and(|it| has_number(test, it)));
        violations.extend(
            of_it.filter(|test| !tests.contains(*test)).map(|test| format!("{id}: {test} is not listed")),
        );
    }
    assert!(violations.is_empty(), "{violations:#?}");
}

/// Returns whether a test's name has the number of a fault, alone (`f01_…`) or among others (`f01_f33_…`).
fn has_number(test: &str, prefix: &str) -> bool {
    let mut rest = test;
    while rest.get(3..4) == Some("_")
        && matches!(rest.as_bytes(), [b'f' | b't', b'0'..=b'9', b'0'..=b'9', ..])
    {
        if rest.starts_with(prefix) {
            return true;
        }
        rest = &rest[4..];
    }
    false
}

/// The rows of all tables.
fn rows(document: &str) -> Vec<Row> {
    document.lines().filter_map(row).collect()
}

/// The row of a line `| F1 | fault | what happens | tests | detected | healed | lost |` or `| P1 | guarantee | tests |`.
fn row(line: &str) -> Option<Row> {
    let cells: Vec<_> = line.strip_prefix('|')?.strip_suffix('|')?.split('|').map(str::trim).collect();
    let (id, tests) = match cells.as_slice() {
        [id, _, tests] | [id, _, _, tests, _, _, _] => (*id, *tests),
        _ => return None,
    };
    let is_id = id.strip_prefix(['F', 'P']).is_some_and(|number| number.parse::<u32>().is_ok());
    is_id.then(|| Row {
        id: id.to_owned(),
        tests: tests.split('`').skip(1).step_by(2).map(str::to_owned).collect(),
        is_complete: cells.iter().all(|cell| !cell.is_empty()),
    })
}

/// The names of all functions that follow a `#[test]` or `#[tokio::test]`.
fn tests_of(files: impl Iterator<Item = String>) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for text in files {
        let mut is_test = false;
        for line in text.lines().map(str::trim_start) {
            is_test |= line.starts_with("#[test") || line.starts_with("#[tokio::test");
            let signature = line.trim_start_matches("pub ").trim_start_matches("async ");
            let Some(name) = signature.strip_prefix("fn ").and_then(|rest| rest.split('(').next()) else {
                continue;
            };
            found.extend(std::mem::take(&mut is_test).then(|| name.to_owned()));
        }
    }
    found
}

#[test]
fn rows_and_numbers_are_parsed() {
    let tests = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
    assert_eq!(
        row("| F7 | noise | is skipped | `f07_noise`, `other` | 1 s | – | nothing |"),
        Some(Row { id: "F7".into(), tests: tests(&["f07_noise", "other"]), is_complete: true })
    );
    assert_eq!(row("| F8 | x | y | – | | | |").map(|row| row.is_complete), Some(false));
    assert_eq!(row("| | fault | what happens | tests | detected | healed | lost |"), None);
    assert!(has_number("f01_f33_a_partition", "f33_") && has_number("t22_f31_a_key", "f31_"));
    assert!(!has_number("a_f33_b", "f33_") && !has_number("f33", "f33_"));
    let text =
        "#[tokio::test(start_paused = true)]\nasync fn one() {}\nfn helper() {}\n#[test]\nfn two() {}\n";
    assert_eq!(tests_of(std::iter::once(text.to_owned())), tests(&["one", "two"]));
}
