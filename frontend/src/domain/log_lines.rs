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

/// Returns the hit `by` hits below a line, or above it; `None` past either end.
pub fn next_hit(hits: &[u64], line: Option<u64>, by: isize) -> Option<u64> {
    let Some(line) = line else { return neighbouring_hit(hits, None, by) };
    // Where the line is not a hit itself, the next one below takes its position.
    let below = hits.partition_point(|hit| *hit <= line);
    let from = if by > 0 { below.checked_sub(1) } else { Some(hits.partition_point(|hit| *hit < line)) };
    let at = match from {
        Some(from) => from.checked_add_signed(by),
        None => usize::try_from(by).ok().and_then(|by| by.checked_sub(1)),
    };
    hits.get(at?).copied()
}

/// Returns where the evidence of a finding is in some logs: the position of the log, and of the line in it. The last line
/// of the evidence that is in a log counts, and of equal lines the last.
pub fn find_evidence<L: AsRef<str>>(logs: &[Vec<L>], evidence: &[String]) -> Option<(usize, usize)> {
    evidence.iter().rev().find_map(|evidence| {
        // A long line is cut in the evidence.
        let stated = evidence.trim_end_matches('…').trim();
        let states = |line: &L| !stated.is_empty() && line.as_ref().trim().starts_with(stated);
        logs.iter().enumerate().find_map(|(log, lines)| Some((log, lines.iter().rposition(states)?)))
    })
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
    fn past_the_last_hit_there_is_none() {
        let hits = [3, 8, 21];
        assert_eq!([next_hit(&hits, Some(3), 1), next_hit(&hits, Some(21), 1)], [Some(8), None]);
        assert_eq!([next_hit(&hits, Some(8), -1), next_hit(&hits, Some(3), -1)], [Some(3), None]);
        // From a line that is none of them.
        assert_eq!([next_hit(&hits, Some(5), 1), next_hit(&hits, Some(5), -1)], [Some(8), Some(3)]);
        assert_eq!([next_hit(&hits, Some(1), 1), next_hit(&hits, Some(1), -1)], [Some(3), None]);
        assert_eq!([next_hit(&hits, Some(30), 1), next_hit(&hits, Some(30), -1)], [None, Some(21)]);
        assert_eq!([next_hit(&hits, None, 1), next_hit(&hits, None, -1)], [Some(3), Some(21)]);
        assert_eq!([next_hit(&[], None, 1), next_hit(&[], Some(3), -1)], [None, None]);
    }

    #[test]
    fn the_line_that_a_finding_states_is_found_in_the_log_that_has_it() {
        let stdout = vec!["epoch 1", "epoch 2"];
        let stderr = vec!["slurmstepd: error: killed", "  slurmstepd: error: killed", "bye"];
        let of = |evidence: &[&str]| {
            let evidence: Vec<String> = evidence.iter().map(|line| (*line).to_owned()).collect();
            find_evidence(&[stdout.clone(), stderr.clone()], &evidence)
        };
        assert_eq!(of(&["exit code 0:125", "slurmstepd: error: killed"]), Some((1, 1)));
        assert_eq!(of(&["epoch 1", "in 3 lines"]), Some((0, 0)));
        assert_eq!(of(&["slurmstepd: error:…"]), Some((1, 1)), "a long line is cut");
        assert_eq!([of(&["none"]), of(&["…"]), of(&[])], [None; 3]);
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
