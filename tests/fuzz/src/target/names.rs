//! Names are arbitrary bytes until they are sanitized: no control or bidirectional character, no
//! ssh option, no line end.

use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::{GpuUuid, JobId, LongText, NodeName, Text};

/// Any name of anything.
pub(crate) fn names(bytes: &[u8]) {
    let text = Text::from_bytes(bytes);
    assert!(text.as_str().len() <= Text::MAX_BYTES && !text.as_str().chars().any(is_hostile), "{text:?}");
    assert!(Text::new(text.as_str()) == text, "what is clean stays as it is: {text:?}");
    super::log::clean(&LongText::from_bytes(bytes));
    let raw = String::from_utf8_lossy(bytes);
    super::log::clean(&LongText::line(&raw));
    assert!(!GpuUuid::new(&raw).as_str().chars().any(is_hostile));
    if let Ok(name) = NodeName::new(raw.as_ref()) {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
        let first = name.as_str().chars().next();
        assert!(
            name.as_str().chars().all(plain) && first.is_some_and(|c| c.is_ascii_alphanumeric()),
            "{name:?}"
        );
    }
    if let Ok(id) = raw.parse::<JobId>() {
        assert!(id.to_string().parse::<JobId>() == Ok(id));
    }
    if let Ok(key) = raw.parse::<Key>() {
        assert!(key.reveal().parse::<Key>() == Ok(key), "a key that changes when it is printed");
    }
}

/// A character that has an effect instead of a glyph.
pub(super) fn is_hostile(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{61c}')
}
