//! Text from nodes, SLURM and users is cleaned once, by type, before anyone can show it.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A short, single-line text that is safe to show: no control, escape or bidirectional-override
/// characters, at most [`Text::MAX_BYTES`] bytes of UTF-8.
///
/// Cleaning happens in the constructors *and* when deserialising, so a `Text` is clean wherever it
/// came from. It is still plain text: whoever puts it into HTML must use a text node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Longest text kept, in bytes; what is longer ends in `…`.
    pub const MAX_BYTES: usize = 256;

    /// Cleans a string.
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(clean(raw.as_ref(), Self::MAX_BYTES))
    }

    /// Cleans bytes of any encoding; what is not UTF-8 becomes `�`.
    pub fn from_bytes(raw: &[u8]) -> Self {
        Self::new(String::from_utf8_lossy(raw))
    }

    /// The cleaned text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Text {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for Text {
    fn from(raw: &str) -> Self {
        Self::new(raw)
    }
}

impl From<String> for Text {
    fn from(raw: String) -> Self {
        Self::new(raw)
    }
}

impl<'de> Deserialize<'de> for Text {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(Text::from)
    }
}

/// A text like [`Text`] of up to [`LongText::MAX_BYTES`]: command lines, paths, lines of a log.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LongText(String);

impl LongText {
    /// Longest text kept, in bytes; what is longer ends in `…`.
    pub const MAX_BYTES: usize = 4_096;
    /// How much of that may be the indent of a line.
    const MAX_INDENT: usize = 64;

    /// Cleans a string.
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(clean(raw.as_ref(), Self::MAX_BYTES - Self::MAX_INDENT))
    }

    /// Cleans bytes of any encoding; what is not UTF-8 becomes `�`.
    pub fn from_bytes(raw: &[u8]) -> Self {
        Self::new(String::from_utf8_lossy(raw))
    }

    /// A line of a log: cleaned, but for the spaces before its first word.
    pub fn line(raw: &str) -> Self {
        let text = raw.trim_start_matches([' ', '\t']);
        let indent: String =
            raw[..raw.len() - text.len()].replace('\t', "    ").chars().take(Self::MAX_INDENT).collect();
        let text = clean(text, Self::MAX_BYTES - Self::MAX_INDENT);
        if text.is_empty() { Self::default() } else { Self(indent + &text) }
    }

    /// The cleaned text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether nothing is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for LongText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl From<&str> for LongText {
    fn from(raw: &str) -> Self {
        Self::new(raw)
    }
}

impl From<String> for LongText {
    fn from(raw: String) -> Self {
        Self::new(raw)
    }
}

impl<'de> Deserialize<'de> for LongText {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer).map(|raw| Self::line(&raw))
    }
}

/// Replaces control characters by spaces, drops invisible and direction-changing ones, and cuts at
/// `max` bytes on a character boundary.
fn clean(raw: &str, max: usize) -> String {
    let mut out = String::with_capacity(raw.len().min(max));
    for c in raw.chars() {
        let c = match c {
            '\u{200b}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}' => {
                continue;
            }
            '\u{061c}' | '\u{2028}' | '\u{2029}' | '\u{fff9}'..='\u{fffb}' => continue,
            '\u{e0000}'..='\u{e007f}' => continue,
            c if c.is_control() => ' ',
            c => c,
        };
        if out.len() + c.len_utf8() > max.saturating_sub('…'.len_utf8()) {
            out.push('…');
            break;
        }
        out.push(c);
    }
    let trimmed = out.trim();
    if trimmed.len() == out.len() { out } else { trimmed.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escape_sequences_and_newlines_become_spaces() {
        assert_eq!(Text::new("a\x1b[31mred\nb\tc\u{9b}x").as_str(), "a [31mred b c x");
    }

    #[test]
    fn bidirectional_overrides_and_invisible_characters_are_dropped() {
        assert_eq!(Text::new("safe\u{202e}gnp\u{200b}.exe\u{feff}").as_str(), "safegnp.exe");
    }

    #[test]
    fn long_text_is_cut_on_a_character_boundary() {
        let text = Text::new("ü".repeat(4000));
        assert!(text.as_str().len() <= Text::MAX_BYTES);
        assert!(text.as_str().ends_with('…'));
    }

    #[test]
    fn a_line_of_a_log_keeps_its_indent_also_when_read_again() {
        let line = LongText::line("\t  if x:\x1b[0m");
        assert_eq!(line.as_str(), "      if x: [0m");
        let json = serde_json::to_string(&line).unwrap();
        assert_eq!(serde_json::from_str::<LongText>(&json).unwrap(), line);
        assert!(LongText::line(&" x".repeat(9_000)).as_str().len() <= LongText::MAX_BYTES);
    }

    #[test]
    fn bytes_of_no_encoding_are_kept_as_replacement_characters() {
        assert_eq!(Text::from_bytes(b"a\xff\xfeb").as_str(), "a\u{fffd}\u{fffd}b");
    }

    #[test]
    fn deserialising_cleans_too() {
        let text: Text = serde_json::from_str(r#""x\u001b]0;title\u0007y""#).unwrap();
        assert_eq!(text.as_str(), "x ]0;title y");
    }
}
