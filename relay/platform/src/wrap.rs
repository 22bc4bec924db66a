//! Breaks text into lines for a terminal.

use unicode_width::UnicodeWidthStr;

/// Breaks text between words into lines of at most `width` columns; longer words have a line of their own.
pub fn words(text: &str, width: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.width() + 1 + word.width() <= width => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.to_owned()),
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::words;

    #[test]
    fn lines_end_between_words() {
        assert_eq!(words("a bcd  efghij k", 5), ["a bcd", "efghij", "k"]);
        assert!(words(" ", 5).is_empty());
    }
}
