//! Escapes characters in arguments, paths and SLURM's output that a terminal would obey, or that reorder text.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Returns a text with each control character except tabs and line breaks, and each character that reorders text, as
/// `\u001b`, which JSON reads as the character. With `keeps_colour`, sequences that only set colours and weights are
/// kept.
pub(super) fn escaped(text: &str, keeps_colour: bool) -> Cow<'_, str> {
    if !text.contains(is_harmful) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 64);
    let mut rest = text;
    while let Some(at) = rest.find(is_harmful) {
        out.push_str(&rest[..at]);
        rest = &rest[at..];
        let colour = if keeps_colour { colour_sequence(rest) } else { "" };
        out.push_str(colour);
        rest = &rest[colour.len()..];
        if let Some(letter) = rest.chars().next().filter(|_| colour.is_empty()) {
            for unit in letter.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
            rest = &rest[letter.len_utf8()..];
        }
    }
    out.push_str(rest);
    Cow::Owned(out)
}

/// Returns whether a terminal does more than to print a character.
pub(super) fn is_harmful(letter: char) -> bool {
    match letter {
        '\n' | '\t' => false,
        '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => true,
        letter => letter.is_control(),
    }
}

/// The sequence "select graphic rendition" with which a text begins, or nothing.
fn colour_sequence(text: &str) -> &str {
    let Some(parameters) = text.strip_prefix("\x1b[") else { return "" };
    let end = parameters.find(|letter: char| !letter.is_ascii_digit() && letter != ';');
    match end {
        Some(end) if parameters[end..].starts_with('m') => &text[..2 + end + 1],
        _ => "",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t14_what_a_terminal_would_obey_is_escaped() {
        let evil = "a\x1b]0;title\x07b\x1b[2Jc\u{9b}31md\u{202e}e\rf\x08g\x7f\u{2028}h\x1b[1;31mi";
        let shown = "a\\u001b]0;title\\u0007b\\u001b[2Jc\\u009b31md\\u202ee\\u000df\\u0008g\\u007f\\u2028h";
        assert_eq!(escaped(evil, false), format!("{shown}\\u001b[1;31mi"));
        assert_eq!(escaped(evil, true), format!("{shown}\x1b[1;31mi"), "colours may be kept");
        for unfinished in ["\x1b", "\x1b[", "\x1b[31", "\x1b[31;x", "\x1b[?1049h"] {
            assert!(!escaped(unfinished, true).contains('\x1b'), "{unfinished:?}");
        }
    }

    #[test]
    fn other_text_is_unchanged_and_json_means_the_same() {
        let plain = "naïve 漢字\tσ\n= –…";
        assert!(matches!(escaped(plain, false), Cow::Borrowed(_)));
        let json = serde_json::to_string("\u{9b}\u{202e}\x1b").unwrap();
        let printed = escaped(&json, false);
        assert!(!printed.contains(is_harmful));
        assert_eq!(serde_json::from_str::<String>(&printed).unwrap(), "\u{9b}\u{202e}\x1b");
    }
}
