//! Reassembles lines that were sent in pieces.

use nodeglass_protocol::probe::{MAX_WHOLE, Piece};

/// The pieces of one line so far: at most [`MAX_WHOLE`] bytes.
#[derive(Debug, Default)]
pub(super) struct LineAssembler {
    line: u32,
    parts: u32,
    /// Position of the next piece; 0 before the first.
    next: u32,
    text: String,
}

/// A piece that is out of sequence, or makes the line too long. The line is discarded: the probe sends
/// its kind again anyway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutOfSequence;

impl LineAssembler {
    /// Adds a piece; returns the line once it is complete.
    pub(super) fn add(&mut self, piece: Piece) -> Result<Option<String>, OutOfSequence> {
        let before = std::mem::take(self);
        let Piece { line, part, parts, text } = piece;
        let is_first = part == 0 && parts > 1;
        let continues = part > 0 && (line, parts, part) == (before.line, before.parts, before.next);
        if !(is_first || continues) {
            return Err(OutOfSequence);
        }
        let mut text_so_far = if is_first { String::new() } else { before.text };
        if text_so_far.len() + text.len() > MAX_WHOLE {
            return Err(OutOfSequence);
        }
        text_so_far.push_str(&text);
        if part + 1 == parts {
            return Ok(Some(text_so_far));
        }
        *self = Self { line, parts, next: part + 1, text: text_so_far };
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(line: u32, part: u32, parts: u32, text: &str) -> Piece {
        Piece { line, part, parts, text: text.to_owned() }
    }

    #[test]
    fn a_line_is_complete_with_its_last_piece() {
        let mut pieces = LineAssembler::default();
        assert_eq!(pieces.add(piece(1, 0, 3, "{\"a\"")), Ok(None));
        assert_eq!(pieces.add(piece(1, 1, 3, ":")), Ok(None));
        assert_eq!(pieces.add(piece(1, 2, 3, "1}")), Ok(Some("{\"a\":1}".to_owned())));
        assert_eq!(pieces.add(piece(1, 3, 3, "1}")), Err(OutOfSequence));
    }

    #[test]
    fn an_interrupted_line_is_discarded() {
        let mut pieces = LineAssembler::default();
        assert_eq!(pieces.add(piece(1, 0, 2, "old")), Ok(None));
        assert_eq!(pieces.add(piece(2, 0, 2, "new")), Ok(None));
        assert_eq!(pieces.add(piece(2, 1, 2, "er")), Ok(Some("newer".to_owned())));
        for piece_out_of_sequence in
            [piece(3, 1, 2, "x"), piece(2, 2, 3, "x"), piece(9, 0, 1, "x"), piece(9, 0, 0, "x")]
        {
            assert_eq!(pieces.add(piece(3, 0, 3, "old")), Ok(None));
            assert_eq!(pieces.add(piece_out_of_sequence), Err(OutOfSequence));
            assert_eq!(pieces.add(piece(3, 1, 3, "old")), Err(OutOfSequence), "earlier pieces are discarded");
        }
    }

    #[test]
    fn endless_pieces_are_bounded_by_the_maximum_line_length() {
        let mut pieces = LineAssembler::default();
        let text = "x".repeat(200 << 10);
        let mut rejected = 0;
        for part in 0..100 {
            rejected += usize::from(pieces.add(piece(1, part, u32::MAX, &text)).is_err());
            assert!(pieces.text.len() <= MAX_WHOLE);
        }
        assert!(rejected > 0);
    }
}
