//! Notes as sentences: who wrote one, and where it applies.

use nodeglass_protocol::note::{Note, NoteSource};

/// Maximum number of characters of a label in a graph.
const LABEL: usize = 28;

/// Returns what a note says, with the rank or node that it is of: `rank 3: loss is NaN`.
pub fn note_text(note: &Note) -> String {
    note.origin().map_or_else(|| note.text.to_string(), |origin| format!("{origin}: {}", note.text))
}

/// Returns the label of a mark: its first note, shortened, and how many more there are.
pub fn mark_label(first: &Note, count: usize) -> String {
    let text = note_text(first);
    let more = if count > 1 { format!(" +{}", count - 1) } else { String::new() };
    match text.char_indices().nth(LABEL) {
        Some((end, _)) => format!("{}…{more}", text[..end].trim_end()),
        None => format!("{text}{more}"),
    }
}

/// Returns where a note comes from.
pub fn source_text(source: NoteSource) -> &'static str {
    match source {
        NoteSource::Page => "on the page",
        NoteSource::Api => "by a script",
        NoteSource::Command => "with relay note",
        NoteSource::Job => "by the job",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::note::NoteId;

    #[test]
    fn a_label_is_short_and_counts_the_notes_that_it_stands_for() {
        let note = |text: &str, rank| Note {
            id: NoteId::from_bits(1),
            job: None,
            node: None,
            rank,
            at_ms: 0,
            text: text.into(),
            source: NoteSource::Job,
        };
        assert_eq!(mark_label(&note("epoch 3", None), 1), "epoch 3");
        assert_eq!(mark_label(&note("epoch 3", Some(2)), 4), "rank 2: epoch 3 +3");
        assert_eq!(mark_label(&note(&"ü".repeat(40), None), 1), format!("{}…", "ü".repeat(28)));
    }
}
