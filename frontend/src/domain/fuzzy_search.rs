//! Fuzzy search of the command palette: which entries match, and in which order.

/// Scores how well `entry` matches: it must contain every word, in any order. `None` if it does not.
pub fn score(typed: &str, entry: &str) -> Option<u32> {
    let entry: Vec<char> = entry.chars().flat_map(char::to_lowercase).collect();
    let typed = typed.to_lowercase();
    let words = typed.split_whitespace().map(|word| word.chars().collect::<Vec<_>>());
    let score = words.map(|word| word_score(&word, &entry)).sum::<Option<u32>>()?;
    // Of two equal matches the shorter one wins.
    Some(score * 100 + 100_u32.saturating_sub(entry.len() as u32))
}

/// Scores a word: consecutive letters from a word start score highest, letters that are only in order lowest.
fn word_score(word: &[char], entry: &[char]) -> Option<u32> {
    let begins_word = |at: usize| at == 0 || !entry[at - 1].is_alphanumeric();
    let ends_word = |at: usize| entry.get(at).is_none_or(|letter| !letter.is_alphanumeric());
    let whole = (0..entry.len()).filter(|at| entry[*at..].starts_with(word));
    let whole = whole.map(|at| {
        8 * word.len() as u32 + 8 * u32::from(begins_word(at)) + 4 * u32::from(ends_word(at + word.len()))
    });
    if let Some(best) = whole.max() {
        return Some(best);
    }
    let (mut from, mut score) = (0, 0);
    for letter in word {
        let at = from + entry[from..].iter().position(|c| c == letter)?;
        let follows = at == from && from > 0;
        score += match (begins_word(at), follows) {
            (true, _) => 8,
            (false, true) => 6,
            (false, false) => 1,
        };
        from = at + 1;
    }
    Some(score)
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

    #[test]
    fn words_match_in_any_order() {
        let entries = vec!["48310 vllm-llama3-serve", "48305 dpo-llama3-70b"];
        assert_eq!(search("llama dpo", entries.clone(), |entry| entry), ["48305 dpo-llama3-70b"]);
        assert_eq!(search("dpo llama", entries, |entry| entry), ["48305 dpo-llama3-70b"]);
    }

    #[test]
    fn a_whole_word_ranks_above_a_longer_one_that_begins_with_it() {
        let entries = vec!["rank 350", "rank 35", "rank 135"];
        assert_eq!(search("rank 35", entries, |entry| entry)[0], "rank 35");
    }
}
