//! Formats an event as one line of printable text, bounded and without keys, for any content of its fields.

use std::fmt::{self, Debug, Write};
use std::time::{Duration, UNIX_EPOCH};
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Maximum length of a value in bytes; longer ones are truncated with `…`.
const MAX_VALUE: usize = 512;
/// Maximum length of a line in bytes.
pub const MAX_LINE: usize = 2_048;
/// The last second of the year 9999, in seconds since 1970; later dates have no RFC 3339 form.
const LAST_S: u64 = 253_402_300_799;
/// Maximum length of a message in a summary of suppressed ones.
const MAX_LIKE: usize = 160;

/// The formatted content of an event.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Line {
    level: String,
    message: String,
    fields: String,
}

impl Line {
    /// Formats an event.
    pub fn of(event: &Event<'_>) -> Self {
        let mut line = Self { level: event.metadata().level().to_string(), ..Self::default() };
        event.record(&mut line);
        line
    }

    /// A line with a fixed message.
    pub fn text(level: Level, message: &str) -> Self {
        Self { level: level.to_string(), message: harmless(message), ..Self::default() }
    }

    /// The beginning of its message.
    pub fn summary(&self) -> String {
        cut(&self.message, MAX_LIKE)
    }

    /// The complete line with a timestamp in ms since 1970.
    pub fn at(&self, wall_ms: u64) -> String {
        let text = format!("{} {:>5} {}{}", date(wall_ms / 1_000), self.level, self.message, self.fields);
        cut(&text, MAX_LINE - 1) + "\n"
    }

    fn take(&mut self, field: &Field, value: fmt::Arguments<'_>) {
        let value = harmless(&Bounded::of(value));
        match field.name() {
            "message" => self.message = value,
            // Many fields yield a long line, but not an endless one.
            _ if self.fields.len() > MAX_LINE => {}
            name if value.contains(' ') => drop(write!(self.fields, " {name}=“{value}”")),
            name => drop(write!(self.fields, " {name}={value}")),
        }
    }
}

impl Visit for Line {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.take(field, format_args!("{value:?}"));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.take(field, format_args!("{value}"));
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        self.take(field, format_args!("{value}"));
    }
}

/// The node of an event, if it has one.
pub fn node(event: &Event<'_>) -> Option<String> {
    #[derive(Default)]
    struct Node(Option<String>);
    impl Visit for Node {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            if field.name() == "node.name" {
                self.0 = Some(Bounded::of(format_args!("{value:?}")));
            }
        }
    }
    let mut node = Node::default();
    event.record(&mut node);
    node.0
}

/// Text of bounded length: a value of megabytes is not even formatted.
#[derive(Default)]
struct Bounded(String);

impl Bounded {
    fn of(value: fmt::Arguments<'_>) -> String {
        let mut out = Self::default();
        // It fails only for being too long.
        let _ = out.write_fmt(value);
        out.0
    }
}

impl Write for Bounded {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        // What is escaped or hidden may have been longer before.
        let capacity_left = (2 * MAX_VALUE).saturating_sub(self.0.len());
        if text.len() > capacity_left {
            self.0.push_str(&text[..boundary(text, capacity_left)]);
            self.0.push('…');
            return Err(fmt::Error);
        }
        self.0.push_str(text);
        Ok(())
    }
}

/// Sanitises text: no line breaks, terminal control sequences, bidirectional overrides, or keys.
fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in without_keys(text).chars() {
        match c {
            c if c.is_control() || is_invisible(c) => out.extend(c.escape_unicode()),
            c => out.push(c),
        }
    }
    cut(&out, MAX_VALUE)
}

/// Characters that [`nodeglass_protocol::Text`] drops; shown escaped here.
fn is_invisible(c: char) -> bool {
    nodeglass_protocol::Text::new(c.encode_utf8(&mut [0; 4])).is_empty() && c != ' '
}

/// Removes keys of links, which follow a `#`. No type lets them get here; this is a second barrier.
fn without_keys(text: &str) -> String {
    const KEY: usize = 43;
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find('#') {
        let (before, after) = rest.split_at(at + 1);
        out.push_str(before);
        let end = after.find(|c: char| !is_of_key(c) && c != '=' && c != '.').unwrap_or(after.len());
        let has_key = after[..end].split(['=', '.']).any(|part| part.len() >= KEY);
        if has_key {
            out.push('…');
        } else {
            out.push_str(&after[..end]);
        }
        rest = &after[end..];
    }
    out.push_str(rest);
    out
}

fn is_of_key(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '-' | '_')
}

fn cut(text: &str, max: usize) -> String {
    if text.len() <= max {
        return text.to_owned();
    }
    format!("{}…", &text[..boundary(text, max - '…'.len_utf8())])
}

/// The last boundary of characters at or before `at`.
fn boundary(text: &str, at: usize) -> usize {
    (0..=at.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0)
}

/// `2026-11-21T22:51:40Z`.
fn date(unix_s: u64) -> String {
    let time = UNIX_EPOCH + Duration::from_secs(unix_s.min(LAST_S));
    humantime::format_rfc3339_seconds(time).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn t14_no_field_ends_the_line_or_controls_the_terminal() {
        let text = harmless("a\nERROR forged\r\x1b]0;title\x07\u{9b}2J\u{202e}txt.exe\u{2028}\0");
        assert_eq!(
            text,
            "a\\u{a}ERROR forged\\u{d}\\u{1b}]0;title\\u{7}\\u{9b}2J\\u{202e}txt.exe\\u{2028}\\u{0}"
        );
    }

    #[test]
    fn t08_a_link_is_written_without_its_key() {
        let key = "A".repeat(43);
        for link in [format!("http://127.0.0.1:8080/#k={key}"), format!("see #{key}."), format!("#s=7.{key}")]
        {
            let text = harmless(&format!("at {link} now"));
            assert!(!text.contains(&key) && text.ends_with(" now"), "{text}");
        }
        assert_eq!(harmless("bug #12 of node#a=b"), "bug #12 of node#a=b");
    }

    #[test]
    fn t25_a_value_of_megabytes_is_cut_before_it_is_written_out() {
        let long = "é".repeat(3 << 20);
        assert!(Bounded::of(format_args!("{long:?}")).len() <= 2 * MAX_VALUE + 3);
        assert!(harmless(&long).len() <= MAX_VALUE);
        let line = Line { message: harmless(&long), fields: "x".repeat(9_000), ..Line::default() };
        assert!(line.at(0).len() <= MAX_LINE && line.at(0).ends_with("…\n"));
    }

    #[test]
    fn the_date_is_that_of_the_calendar() {
        for (unix_s, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_795_301_500, "2026-11-21T22:51:40Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
            (u64::MAX, "9999-12-31T23:59:59Z"),
        ] {
            assert_eq!(date(unix_s), text);
        }
    }

    proptest! {
        #[test]
        fn t14_every_text_becomes_one_printable_line(letters in prop::collection::vec(any::<char>(), 0..300)) {
            let text: String = letters.into_iter().chain("\n\u{1b}\u{9b}".chars()).collect();
            let line = Line::text(Level::WARN, &text).at(0);
            prop_assert!(line.len() <= MAX_LINE);
            prop_assert!(!line.trim_end_matches('\n').chars().any(char::is_control));
        }
    }
}
