//! Severity of log lines by keywords, and case-insensitive search.

use crate::domain::route::around;
use crate::domain::severity::Severity;

const ERRORS: [&str; 12] = [
    "error",
    "errors",
    "exception",
    "traceback",
    "fatal",
    "panicked",
    "failed",
    "failure",
    "killed",
    "abort",
    "aborted",
    "segfault",
];
const WARNINGS: [&str; 4] = ["warning", "warnings", "warn", "deprecated"];
/// Words that negate a following keyword.
const NEGATIONS: [&str; 4] = ["no", "0", "without", "zero"];

/// Returns the severity of a line, if any. `RuntimeError` counts, `0 errors` and `error=0.1` do not.
pub fn severity(line: &str) -> Option<Severity> {
    let mut found = None;
    let mut before = "";
    for (word, after) in words_with_next(line) {
        let negated = NEGATIONS.iter().any(|denial| before.eq_ignore_ascii_case(denial));
        let assigned = after == Some('=') || after == Some('/') || after == Some('_');
        before = word;
        if negated || assigned {
            continue;
        }
        let is_one_of = |list: &[&str]| list.iter().any(|one| word.eq_ignore_ascii_case(one));
        let ends = |end: &str| word.len() > end.len() && word.ends_with(end);
        if is_one_of(&ERRORS) || ends("Error") || ends("Exception") {
            return Some(Severity::Error);
        }
        if is_one_of(&WARNINGS) || ends("Warning") {
            found = Some(Severity::Warning);
        }
    }
    found
}

/// Returns the words of a line, each with the character after it.
fn words_with_next(line: &str) -> impl Iterator<Item = (&str, Option<char>)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.find(|c: char| c.is_ascii_alphanumeric())?;
        let from = &rest[start..];
        let end = from.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(from.len());
        rest = &from[end..];
        Some((&from[..end], rest.chars().next()))
    })
}

/// Splits a line into parts that match `query` and parts that do not, in order.
pub fn split_matches(line: &str, query: &str) -> Vec<(String, bool)> {
    if query.is_empty() {
        return vec![(line.to_owned(), false)];
    }
    // ASCII lowercasing keeps byte positions.
    let (lower, query) = (line.to_ascii_lowercase(), query.to_ascii_lowercase());
    let mut split_matches = Vec::new();
    let mut at = 0;
    while let Some(found) = lower[at..].find(&query) {
        let (start, end) = (at + found, at + found + query.len());
        split_matches.push((line[at..start].to_owned(), false));
        split_matches.push((line[start..end].to_owned(), true));
        at = end;
    }
    split_matches.push((line[at..].to_owned(), false));
    split_matches.retain(|(piece, _)| !piece.is_empty());
    split_matches
}

/// Returns the hit to show: the chosen one, or the newest if it is none.
pub fn current_hit(hits: &[u64], chosen: Option<u64>) -> Option<u64> {
    chosen.filter(|line| hits.binary_search(line).is_ok()).or_else(|| hits.last().copied())
}

/// Returns the hit `by` hits below the current one, from each end on to the other.
pub fn neighbouring_hit(hits: &[u64], current: Option<u64>, by: isize) -> Option<u64> {
    let at = current.and_then(|line| hits.binary_search(&line).ok());
    hits.get(around(at, by, hits.len())?).copied()
}

/// Returns whether a line contains `query`.
pub fn contains(line: &str, query: &str) -> bool {
    line.to_ascii_lowercase().contains(&query.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_found_by_keyword_unless_negated() {
        for line in [
            "RuntimeError: CUDA out of memory",
            "ERROR: no such file",
            "Traceback (most recent call last):",
            "slurmstepd: error: killed",
        ] {
            assert_eq!(severity(line), Some(Severity::Error), "{line}");
        }
        for line in [
            "0 errors",
            "error=0.012 loss=2.1",
            "no error",
            "terror",
            "",
            "step 12 loss 0.3",
            "max_error/avg",
        ] {
            assert_eq!(severity(line), None, "{line}");
        }
    }

    #[test]
    fn warnings_are_less_severe_than_errors() {
        assert_eq!(severity("UserWarning: this is slow"), Some(Severity::Warning));
        assert_eq!(severity("[WARN] retry"), Some(Severity::Warning));
        assert_eq!(severity("warning: build failed"), Some(Severity::Error));
    }

    #[test]
    fn search_starts_at_the_newest_hit_and_goes_round() {
        let hits = [3, 8, 21];
        assert_eq!(current_hit(&hits, None), Some(21));
        assert_eq!(neighbouring_hit(&hits, current_hit(&hits, None), -1), Some(8));
        assert_eq!(
            neighbouring_hit(&hits, None, -1),
            Some(21),
            "nothing is searched: errors from the newest up"
        );
        assert_eq!(neighbouring_hit(&hits, Some(8), 1), Some(21));
        assert_eq!(neighbouring_hit(&hits, Some(3), -1), Some(21));
        assert_eq!(neighbouring_hit(&hits, Some(21), 1), Some(3));
        assert_eq!(current_hit(&hits, Some(4)), Some(21), "its line has left the log");
        assert_eq!(current_hit(&[], None), None);
        assert_eq!(neighbouring_hit(&[], Some(3), 1), None);
    }

    #[test]
    fn a_line_is_split_at_matches_regardless_of_case() {
        let cut = split_matches("Epoch 3, epoch time", "EPOCH");
        let found: Vec<(&str, bool)> = cut.iter().map(|(piece, hit)| (piece.as_str(), *hit)).collect();
        assert_eq!(found, [("Epoch", true), (" 3, ", false), ("epoch", true), (" time", false)]);
        assert_eq!(split_matches("größer", "ss"), [("größer".to_owned(), false)]);
        assert_eq!(split_matches("a", ""), [("a".to_owned(), false)]);
        assert!(contains("Grad NORM", "norm") && !contains("a", "b"));
    }
}
