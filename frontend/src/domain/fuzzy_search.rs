//! Search of the command palette: which entries match, and in which order.

use crate::domain::sorting;

/// Length of a name, in bytes, from which it no longer affects the score.
const MAX_SHORT: u32 = 40;

/// Scores how well an entry matches by its name and its further words: they must contain every word that was typed, in any
/// order. `None` if they do not.
fn score(typed: &str, name: &str, words: &str) -> Option<u32> {
    let lower = |text: &str| text.chars().flat_map(char::to_lowercase).collect::<Vec<_>>();
    let (name, words, typed) = (lower(name), lower(words), typed.to_lowercase());
    let best = |word: Vec<char>| {
        // A name says more than the words beside it.
        word_score(&word, &name).map(|score| score + 1).max(word_score(&word, &words))
    };
    let score = typed.split_whitespace().map(|word| best(word.chars().collect())).sum::<Option<u32>>()?;
    // Of two equal matches the shorter one wins, unless both are sentences.
    Some(score * 100 + MAX_SHORT.saturating_sub(name.len() as u32))
}

/// Scores a word: whole, or as the beginnings of successive words: `tl` and `trll` of `train-llm`.
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
    let parts: Vec<&[char]> =
        entry.split(|letter| !letter.is_alphanumeric()).filter(|part| !part.is_empty()).collect();
    let begin = (0..parts.len()).any(|at| is_of_beginnings(word, &parts[at..]));
    begin.then(|| 6 * word.len() as u32)
}

/// Returns whether a word consists of the beginnings of `parts`, at least a letter of each up to its end.
fn is_of_beginnings(word: &[char], parts: &[&[char]]) -> bool {
    let Some((part, rest)) = parts.split_first() else { return word.is_empty() };
    let common = word.iter().zip(*part).take_while(|(typed, known)| typed == known).count();
    word.is_empty() || (1..=common).rev().any(|taken| is_of_beginnings(&word[taken..], rest))
}

/// Returns the matching entries, best first; equal matches keep their order. `text` returns the name of an entry and
/// further words that are searched.
pub fn search<T>(typed: &str, entries: Vec<T>, text: impl Fn(&T) -> (&str, &str)) -> Vec<T> {
    let score = |entry: &T| {
        let (name, words) = text(entry);
        score(typed, name, words)
    };
    let mut fitting: Vec<(u32, T)> =
        entries.into_iter().filter_map(|entry| Some((score(&entry)?, entry))).collect();
    if !typed.trim().is_empty() {
        sorting::sort_by_key(&mut fitting, |(score, _)| std::cmp::Reverse(*score));
    }
    fitting.into_iter().map(|(_, entry)| entry).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(typed: &str) -> Vec<&'static str> {
        let entries = vec!["job 4711 train-llm", "job 12 eval", "node gpu-node-07", "theme", "all jobs"];
        search(typed, entries, |entry| (entry, ""))
    }

    #[test]
    fn an_empty_query_keeps_everything_in_order() {
        assert_eq!(found("  ").len(), 5);
        assert_eq!(found("")[0], "job 4711 train-llm");
    }

    #[test]
    fn a_word_may_consist_of_the_beginnings_of_successive_words() {
        assert_eq!(found("tl"), ["job 4711 train-llm"]);
        assert_eq!(found("trll"), ["job 4711 train-llm"]);
        assert_eq!(found("07")[0], "node gpu-node-07");
        assert_eq!(found("th")[0], "theme");
    }

    #[test]
    fn letters_scattered_through_a_text_do_not_match() {
        let entries = vec!["sort a table by the column to the right", "share what you see, and list viewers"];
        assert!(search("hung", entries.clone(), |entry| (entry, "")).is_empty());
        assert!(search("silence", entries, |entry| (entry, "")).is_empty());
    }

    #[test]
    fn further_words_are_searched_and_names_win() {
        let entries = vec![("Looks idle", "jupyter"), ("jupyter", ""), ("Looks hung", "dpo")];
        assert_eq!(
            search("jupyter", entries.clone(), |entry| *entry),
            [("jupyter", ""), ("Looks idle", "jupyter")]
        );
        assert_eq!(search("dpo hung", entries, |entry| *entry), [("Looks hung", "dpo")]);
    }

    #[test]
    fn an_entry_must_contain_every_letter() {
        assert!(found("xyz").is_empty());
        assert_eq!(found("EVAL"), ["job 12 eval"]);
    }

    #[test]
    fn words_match_in_any_order() {
        let entries = vec!["48310 vllm-llama3-serve", "48305 dpo-llama3-70b"];
        assert_eq!(search("llama dpo", entries.clone(), |entry| (entry, "")), ["48305 dpo-llama3-70b"]);
        assert_eq!(search("dpo llama", entries, |entry| (entry, "")), ["48305 dpo-llama3-70b"]);
    }

    #[test]
    fn a_whole_word_ranks_above_a_longer_one_that_begins_with_it() {
        let entries = vec!["rank 350", "rank 35", "rank 135"];
        assert_eq!(search("rank 35", entries, |entry| (entry, ""))[0], "rank 35");
    }
}
