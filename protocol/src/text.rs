//! Sanitized text: input from nodes, SLURM and users is cleaned by its type before it can be
//! displayed.

use serde::{Deserialize, Deserializer, Serialize};
use std::fmt;

/// A short, single-line text that is safe to show: no control, escape or bidirectional-override
/// characters, at most [`Text::MAX_BYTES`] bytes of UTF-8.
///
/// Sanitizing happens in the constructors *and* when deserializing. The result is still plain text;
/// HTML must use a text node.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Text(String);

impl Text {
    /// Maximum length in bytes; longer text is truncated and ends in `…`.
    pub const MAX_BYTES: usize = 256;

    /// Sanitizes a string.
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(clean(raw.as_ref(), Self::MAX_BYTES))
    }

    /// Sanitizes bytes; invalid UTF-8 becomes `�`.
    pub fn from_bytes(raw: &[u8]) -> Self {
        Self::new(String::from_utf8_lossy(raw))
    }

    /// Returns the sanitized text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is empty.
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

/// Like [`Text`] with up to [`LongText::MAX_BYTES`], for command lines, paths and log lines.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct LongText(String);

impl LongText {
    /// Maximum length in bytes; longer text is truncated and ends in `…`.
    pub const MAX_BYTES: usize = 4_096;
    /// Maximum indentation of a log line.
    const MAX_INDENT: usize = 64;

    /// Sanitizes a string.
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(clean(raw.as_ref(), Self::MAX_BYTES - Self::MAX_INDENT))
    }

    /// Sanitizes bytes; invalid UTF-8 becomes `�`.
    pub fn from_bytes(raw: &[u8]) -> Self {
        Self::new(String::from_utf8_lossy(raw))
    }

    /// Sanitizes a log line, keeping its indentation.
    pub fn line(raw: &str) -> Self {
        let text = raw.trim_start_matches([' ', '\t']);
        let indent: String =
            raw[..raw.len() - text.len()].replace('\t', "    ").chars().take(Self::MAX_INDENT).collect();
        let text = clean(text, Self::MAX_BYTES - Self::MAX_INDENT);
        if text.is_empty() { Self::default() } else { Self(indent + &text) }
    }

    /// Returns the sanitized text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether the text is empty.
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

/// Replaces control characters and Unicode spaces by spaces, drops invisible and bidirectional ones
/// and excessive combining marks, and truncates to `max` bytes at a character boundary.
fn clean(raw: &str, max: usize) -> String {
    let mut out = String::with_capacity(raw.len().min(max));
    let mut marks = 0;
    for c in raw.chars() {
        let c = match kind(c) {
            Kind::Hidden => continue,
            Kind::Space => ' ',
            Kind::Mark | Kind::Plain => c,
        };
        marks = if kind(c) == Kind::Mark { marks + 1 } else { 0 };
        if marks > MAX_MARKS {
            continue;
        }
        if out.len() + c.len_utf8() > max.saturating_sub('…'.len_utf8()) {
            out.push('…');
            break;
        }
        out.push(c);
    }
    let trimmed = out.trim();
    if trimmed.len() == out.len() { out } else { trimmed.to_owned() }
}

/// Maximum number of combining marks on one character; no language uses more.
const MAX_MARKS: u32 = 4;

/// Classes of characters for sanitizing.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Unchanged.
    Plain,
    /// Combining mark.
    Mark,
    /// Control character or Unicode space: replaced by a space.
    Space,
    /// Removed: bidirectional controls, zero-width characters, fillers, tags, variation selectors.
    Hidden,
}

fn kind(c: char) -> Kind {
    match c {
        ' '..='~' => Kind::Plain,
        c if c.is_control() => Kind::Space,
        '\u{a0}' | '\u{1680}' | '\u{2000}'..='\u{200a}' | '\u{202f}' | '\u{205f}' | '\u{3000}' => Kind::Space,
        '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' => Kind::Hidden,
        '\u{180b}'..='\u{180f}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' => Kind::Hidden,
        '\u{2060}'..='\u{206f}' | '\u{3164}' | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' => {
            Kind::Hidden
        }
        '\u{fff0}'..='\u{fffc}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}' => Kind::Hidden,
        '\u{e0000}'..='\u{e0fff}' => Kind::Hidden,
        '\u{300}'..='\u{36f}' | '\u{483}'..='\u{489}' | '\u{1ab0}'..='\u{1aff}' => Kind::Mark,
        '\u{1dc0}'..='\u{1dff}' | '\u{20d0}'..='\u{20ff}' | '\u{fe20}'..='\u{fe2f}' => Kind::Mark,
        // Hebrew, Arabic, Thai, Lao, Tibetan, Japanese and Cyrillic ones, which stack as well.
        '\u{591}'..='\u{5bd}' | '\u{610}'..='\u{61a}' | '\u{64b}'..='\u{65f}' | '\u{6d6}'..='\u{6ed}' => {
            Kind::Mark
        }
        '\u{e31}' | '\u{e34}'..='\u{e3a}' | '\u{e47}'..='\u{e4e}' | '\u{eb4}'..='\u{ebc}' => Kind::Mark,
        '\u{ec8}'..='\u{ece}' | '\u{f71}'..='\u{f84}' | '\u{302a}'..='\u{302f}' => Kind::Mark,
        '\u{3099}' | '\u{309a}' | '\u{a66f}'..='\u{a67d}' | '\u{8ca}'..='\u{8ff}' => Kind::Mark,
        _ => Kind::Plain,
    }
}

#[cfg(test)]
#[path = "../../tests/hostile/names.rs"]
mod hostile;

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
    fn a_log_line_keeps_its_indent_through_serialization() {
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

    #[test]
    fn t13_t14_no_hostile_name_keeps_what_is_harmful_and_none_grows() {
        for raw in hostile::all() {
            let text = Text::from_bytes(&raw);
            assert!(!text.as_str().contains(hostile::is_harmful), "{text:?}");
            assert!(text.as_str().len() <= Text::MAX_BYTES, "{text:?}");
            let long = LongText::from_bytes(&raw);
            assert!(!long.as_str().contains(hostile::is_harmful), "{long:?}");
            assert!(long.as_str().len() <= LongText::MAX_BYTES);
            let line = LongText::line(&String::from_utf8_lossy(&raw));
            assert!(!line.as_str().contains(hostile::is_harmful), "{line:?}");
            // Sanitizing is idempotent.
            assert_eq!(Text::new(text.as_str()), text);
            let json =
                serde_json::to_string(&raw.iter().map(|byte| char::from(*byte)).collect::<String>()).unwrap();
            assert!(!serde_json::from_str::<Text>(&json).unwrap().as_str().contains(hostile::is_harmful));
        }
    }

    #[test]
    fn t14_excessive_combining_marks_are_removed_and_languages_are_intact() {
        for mark in ['\u{301}', '\u{5b0}', '\u{64e}', '\u{e47}', '\u{ec8}', '\u{f71}', '\u{3099}'] {
            let flooded = format!("a{}b", mark.to_string().repeat(40));
            assert_eq!(Text::new(flooded).as_str(), format!("a{}b", mark.to_string().repeat(4)));
        }
        assert!(Text::new(format!("a{}", "\u{301}".repeat(5_000))).as_str().chars().count() <= 5);
        for name in ["ệ", "e\u{302}\u{323}", "नमस्ते", "ไทย", "日本語", "Ærøskøbing", "naïve λ → ∞", "🙂"]
        {
            assert_eq!(Text::new(name).as_str(), name);
        }
    }
}
