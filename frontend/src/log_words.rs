//! A log's lines are marked by the words in them, and searched without regard to case.

/// How loud a line is, by its words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loudness {
    /// Something went wrong.
    Error,
    /// Something may go wrong.
    Warning,
}

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
/// Words after which an error is none.
const DENIALS: [&str; 4] = ["no", "0", "without", "zero"];

/// How loud a line is, if at all. `RuntimeError` counts, `0 errors` and `error=0.1` do not.
pub fn loudness(line: &str) -> Option<Loudness> {
    let mut found = None;
    let mut before = "";
    for (word, after) in words(line) {
        let denied = DENIALS.iter().any(|denial| before.eq_ignore_ascii_case(denial));
        let assigned = after == Some('=') || after == Some('/') || after == Some('_');
        before = word;
        if denied || assigned {
            continue;
        }
        let is_one_of = |list: &[&str]| list.iter().any(|one| word.eq_ignore_ascii_case(one));
        let ends = |end: &str| word.len() > end.len() && word.ends_with(end);
        if is_one_of(&ERRORS) || ends("Error") || ends("Exception") {
            return Some(Loudness::Error);
        }
        if is_one_of(&WARNINGS) || ends("Warning") {
            found = Some(Loudness::Warning);
        }
    }
    found
}

/// The words of a line, each with the character after it.
fn words(line: &str) -> impl Iterator<Item = (&str, Option<char>)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        let start = rest.find(|c: char| c.is_ascii_alphanumeric())?;
        let from = &rest[start..];
        let end = from.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(from.len());
        rest = &from[end..];
        Some((&from[..end], rest.chars().next()))
    })
}

/// A line cut where `query` is found: pieces that match and pieces that do not, in order.
pub fn pieces(line: &str, query: &str) -> Vec<(String, bool)> {
    if query.is_empty() {
        return vec![(line.to_owned(), false)];
    }
    // Only ASCII letters change, so positions are those of the line.
    let (lower, query) = (line.to_ascii_lowercase(), query.to_ascii_lowercase());
    let mut pieces = Vec::new();
    let mut at = 0;
    while let Some(found) = lower[at..].find(&query) {
        let (start, end) = (at + found, at + found + query.len());
        pieces.push((line[at..start].to_owned(), false));
        pieces.push((line[start..end].to_owned(), true));
        at = end;
    }
    pieces.push((line[at..].to_owned(), false));
    pieces.retain(|(piece, _)| !piece.is_empty());
    pieces
}

/// Whether a line has `query` in it.
pub fn has(line: &str, query: &str) -> bool {
    line.to_ascii_lowercase().contains(&query.to_ascii_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_known_by_word_and_not_by_their_denial() {
        for line in [
            "RuntimeError: CUDA out of memory",
            "ERROR: no such file",
            "Traceback (most recent call last):",
            "slurmstepd: error: killed",
        ] {
            assert_eq!(loudness(line), Some(Loudness::Error), "{line}");
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
            assert_eq!(loudness(line), None, "{line}");
        }
    }

    #[test]
    fn warnings_are_quieter_than_errors() {
        assert_eq!(loudness("UserWarning: this is slow"), Some(Loudness::Warning));
        assert_eq!(loudness("[WARN] retry"), Some(Loudness::Warning));
        assert_eq!(loudness("warning: build failed"), Some(Loudness::Error));
    }

    #[test]
    fn a_line_is_cut_where_the_query_is_found_whatever_its_case() {
        let cut = pieces("Epoch 3, epoch time", "EPOCH");
        let told: Vec<(&str, bool)> = cut.iter().map(|(piece, hit)| (piece.as_str(), *hit)).collect();
        assert_eq!(told, [("Epoch", true), (" 3, ", false), ("epoch", true), (" time", false)]);
        assert_eq!(pieces("größer", "ss"), [("größer".to_owned(), false)]);
        assert_eq!(pieces("a", ""), [("a".to_owned(), false)]);
        assert!(has("Grad NORM", "norm") && !has("a", "b"));
    }
}
