//! Notes as sentences: who wrote one, where it applies, and what its deletion does.

use crate::domain::pending_action::PendingAction;
use crate::domain::run::Run;
use crate::domain::text;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::note::{MAX_TEXT_BYTES, Note, NoteRequest, NoteSource};
use nodeglass_protocol::request::Request;
use nodeglass_protocol::{JobId, NodeName};

/// Maximum number of characters of a label in a graph.
const LABEL: usize = 28;

/// Returns what a note says, with the rank or node that it is of: `rank 3: loss is NaN`.
pub fn note_text(note: &Note) -> String {
    note.origin().map_or_else(|| note.text.to_string(), |origin| format!("{origin}: {}", note.text))
}

/// Returns the same in a graph, where a note after the end of its job is at that end.
pub fn text_in_graph(note: &Note, is_after_end: bool) -> String {
    let text = note_text(note);
    if is_after_end { format!("after the end: {text}") } else { text }
}

/// Returns the label of a mark: the text of its first note, shortened, and how many more there are.
pub fn mark_label(text: &str, count: usize) -> String {
    let more = if count > 1 { format!(" +{}", count - 1) } else { String::new() };
    match text.char_indices().nth(LABEL) {
        Some((end, _)) => format!("{}…{more}", text[..end].trim_end()),
        None => format!("{text}{more}"),
    }
}

/// Returns what to do about a text that is too long for a note.
pub fn too_long_text(text: &str) -> String {
    let over = text.trim().len().saturating_sub(MAX_TEXT_BYTES);
    format!(
        "Shorten the text by {}: a note has room for {MAX_TEXT_BYTES} bytes.",
        text::count(over, "byte", "bytes")
    )
}

/// Returns what is wrong with a time, in ms since 1970, at which a job did not run; `None` if it did. `clock` writes times
/// as the form shows them.
pub fn outside_text(job: &Job, at_ms: u64, clock: impl Fn(u64) -> String) -> Option<String> {
    let run = Run::of(job);
    let when = || {
        let (label, run) = (&job.label, run.text(clock));
        format!("Job {label} {run}; enter a time from an hour before its start to an hour after its end.")
    };
    (!run.includes(at_ms)).then(when)
}

/// Returns what happened to a note that is edited, given its text and time now.
pub fn changed_text(text: &str, at: &str) -> String {
    format!("This note was changed in the meantime: “{text}”, {at}. What you save replaces that.")
}

/// Returns where a note comes from.
pub fn source_text(source: NoteSource) -> &'static str {
    match source {
        NoteSource::Page => "added on the page",
        NoteSource::Api => "added over the API",
        NoteSource::Command => "added by relay note",
        NoteSource::Job => "added by the job",
    }
}

/// Returns what a note is about: `job 17`, `node gpu-07`, `the whole cluster`. `label_of` returns the label of a job, if
/// it is listed.
pub fn subject_text(
    job: Option<JobId>,
    node: Option<&NodeName>,
    label_of: impl Fn(JobId) -> Option<String>,
) -> String {
    let job = job.map(|job| format!("job {}", label_of(job).unwrap_or_else(|| job.to_string())));
    match (job, node) {
        (Some(job), Some(node)) => format!("{job} on {node}"),
        (Some(job), None) => job,
        (None, Some(node)) => format!("node {node}"),
        (None, None) => "the whole cluster".to_owned(),
    }
}

/// Returns the deletion of a note that is about `subject`, to be confirmed. A note of a node or of the cluster disappears
/// from more pages than the one where it is deleted.
pub fn deletion(note: &Note, subject: &str) -> PendingAction {
    let effect = match (note.job, &note.node) {
        (Some(_), _) => {
            "It disappears from the graphs and the report of this job, for everyone who sees them."
        }
        (None, Some(_)) => {
            "It disappears from the graphs of this node, and of its jobs, for everyone who sees them."
        }
        (None, None) => "It disappears from the graphs of every job and node, for everyone who sees them.",
    };
    PendingAction {
        request: Request::Note(NoteRequest::Delete(note.id)),
        question: format!("Delete the note “{}” of {subject}?", note.text),
        effect,
        confirm_label: "Delete note",
        offer_label: "Delete",
        is_destructive: true,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::note::NoteId;

    #[test]
    fn a_deletion_names_what_the_note_is_about_and_where_it_disappears() {
        let (job, node) = (JobId(17), NodeName::new("gpu-07").unwrap());
        let note = |job, node| Note {
            id: NoteId::from_bits(1),
            job,
            node,
            rank: None,
            at_ms: 0,
            text: "fan replaced".into(),
            source: NoteSource::Page,
        };
        let asked = |job: Option<JobId>, node: Option<NodeName>| {
            let subject = subject_text(job, node.as_ref(), |_| Some("17_2".to_owned()));
            let PendingAction { question, effect, .. } = deletion(&note(job, node), &subject);
            (question, effect.contains("every job and node"))
        };
        let of = |subject: &str, is_everywhere| {
            (format!("Delete the note “fan replaced” of {subject}?"), is_everywhere)
        };
        assert_eq!(asked(Some(job), None), of("job 17_2", false));
        assert_eq!(asked(Some(job), Some(node.clone())), of("job 17_2 on gpu-07", false));
        assert_eq!(asked(None, Some(node)), of("node gpu-07", false));
        assert_eq!(asked(None, None), of("the whole cluster", true));
        assert_eq!(subject_text(Some(job), None, |_| None), "job 17", "a job that is not listed");
    }

    #[test]
    fn a_text_that_is_too_long_says_by_how_much() {
        let text = too_long_text(&format!(" {} ", "x".repeat(MAX_TEXT_BYTES + 12)));
        assert_eq!(text, "Shorten the text by 12 bytes: a note has room for 240 bytes.");
        assert!(too_long_text(&"ü".repeat(121)).contains("by 2 bytes"));
    }

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
        let label = |text, rank, count| mark_label(&text_in_graph(&note(text, rank), false), count);
        assert_eq!(label("epoch 3", None, 1), "epoch 3");
        assert_eq!(label("epoch 3", Some(2), 4), "rank 2: epoch 3 +3");
        assert_eq!(label(&"ü".repeat(40), None, 1), format!("{}…", "ü".repeat(28)));
        assert_eq!(text_in_graph(&note("saved", None), true), "after the end: saved");
    }
}
