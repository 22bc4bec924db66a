//! Fuzzy search of the command palette: which entries match, and in which order.

/// Scores how well `entry` matches: letters in order; word starts and consecutive letters score higher.
/// `None` if no match.
pub fn score(typed: &str, entry: &str) -> Option<u32> {
    let entry: Vec<char> = entry.chars().flat_map(char::to_lowercase).collect();
    let mut from = 0;
    let mut score = 0;
    for letter in typed.chars().filter(|c| !c.is_whitespace()).flat_map(char::to_lowercase) {
        let at = from + entry[from..].iter().position(|c| *c == letter)?;
        let begins_word = at == 0 || !entry[at - 1].is_alphanumeric();
        let follows = at == from && from > 0;
        score += match (begins_word, follows) {
            (true, _) => 8,
            (false, true) => 6,
            (false, false) => 1,
        };
        from = at + 1;
    }
    // Of two equal matches the shorter one wins.
    Some(score * 100 + 100_u32.saturating_sub(entry.len() as u32))
}

/// Returns the matching entries, best first; equal matches keep their order.
pub fn search<T>(typed: &str, entries: Vec<T>, name: impl Fn(&T) -> &str) -> Vec<T> {
    let mut fitting: Vec<(u32, T)> =
        entries.into_iter().filter_map(|entry| Some((score(typed, name(&entry))?, entry))).collect();
    if !typed.trim().is_empty() {
        fitting.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
    }
    fitting.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(typed: &str) -> Vec<&'static str> {
        let entries = vec!["job 4711 train-llm", "job 12 eval", "node gpu-node-07", "theme", "all jobs"];
        search(typed, entries, |entry| entry)
    }

    #[test]
    fn an_empty_query_keeps_everything_in_order() {
        assert_eq!(found("  ").len(), 5);
        assert_eq!(found("")[0], "job 4711 train-llm");
    }

    #[test]
    fn word_starts_rank_above_letters_within_words() {
        assert_eq!(found("tl")[0], "job 4711 train-llm");
        assert_eq!(found("07")[0], "node gpu-node-07");
        assert_eq!(found("th")[0], "theme");
    }

    #[test]
    fn an_entry_must_contain_every_letter() {
        assert!(found("xyz").is_empty());
        assert_eq!(found("EVAL"), ["job 12 eval"]);
    }
}
