//! Notes: short remarks at a moment of a job or of the cluster, shown in graphs and reports.

use crate::{JobId, NodeName, Text};
use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, str::FromStr};

/// Folder of the spool files in the home directory: on a node's own disk or shared, private to the user, and there
/// before any probe.
pub const SPOOL_FOLDER: &str = ".nodeglass-notes";
/// Maximum number of notes of one job. Further ones are refused, so that none that was accepted is lost.
pub const MAX_PER_JOB: usize = 1_000;
/// Maximum number of notes that a relay holds in memory.
pub const MAX_NOTES: usize = 5_000;
/// Maximum number of notes in one line of a probe.
pub const MAX_PER_LINE: usize = 64;
/// Maximum length of the text of a note that a user writes, in bytes; [`Text`] holds it whole.
pub const MAX_TEXT_BYTES: usize = 240;
/// Maximum number of problems with the spool files of a node that are reported.
pub const MAX_PROBLEMS: usize = 4;

/// Identifies a note. Random, or for a line of a spool file derived from it, so that several relays and probes
/// need not agree on numbers. Less than 2⁵³, which JavaScript represents exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct NoteId(u64);

/// Error of parsing the id of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the id of a note: it is a number less than 2^53, as `relay note --list` shows it")]
pub struct NoteIdError;

/// Error of a text that is too long for a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a note has at most {max} bytes of text, and this one has {0}", max = MAX_TEXT_BYTES)]
pub struct TooLongError(usize);

/// Sanitizes the text of a note that a user wrote, which is never truncated.
///
/// # Errors
/// [`TooLongError`].
pub fn text(raw: &str) -> Result<Text, TooLongError> {
    let length = raw.trim().len();
    if length > MAX_TEXT_BYTES { Err(TooLongError(length)) } else { Ok(Text::new(raw)) }
}

fn whole_text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Text, D::Error> {
    text(&String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
}

fn whole_text_if_any<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    let raw = Option::<String>::deserialize(deserializer)?;
    raw.map(|raw| text(&raw)).transpose().map_err(serde::de::Error::custom)
}

impl NoteId {
    /// Number of bits of an id.
    const BITS: u32 = 53;

    /// The id made of the lower bits of a number.
    pub fn from_bits(bits: u64) -> Self {
        Self(bits & ((1 << Self::BITS) - 1))
    }

    /// Validates and wraps an id.
    ///
    /// # Errors
    /// [`NoteIdError`] if it is too large.
    pub fn new(id: u64) -> Result<Self, NoteIdError> {
        if id >> Self::BITS == 0 { Ok(Self(id)) } else { Err(NoteIdError) }
    }

    /// Returns the number.
    pub fn get(self) -> u64 {
        self.0
    }
}

impl fmt::Display for NoteId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for NoteId {
    type Err = NoteIdError;
    fn from_str(raw: &str) -> Result<Self, NoteIdError> {
        raw.parse().map_err(|_| NoteIdError).and_then(Self::new)
    }
}

impl<'de> Deserialize<'de> for NoteId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(u64::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// A note.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Note {
    /// Its id.
    pub id: NoteId,
    /// The job that it concerns; `None` for the node or the whole cluster.
    pub job: Option<JobId>,
    /// The node that it concerns; `None` for all of the job's, or the whole cluster.
    pub node: Option<NodeName>,
    /// The rank of the parallel job that wrote it.
    pub rank: Option<u32>,
    /// When it applies, in ms since 1970 by the login node's clock.
    pub at_ms: u64,
    /// The text; never empty.
    pub text: Text,
    /// The source of the note.
    pub source: NoteSource,
}

impl Note {
    /// The rank that wrote it, else its node: `rank 3`. `None` for all of the job's nodes, or the whole cluster.
    pub fn origin(&self) -> Option<String> {
        let rank = self.rank.map(|rank| format!("rank {rank}"));
        rank.or_else(|| self.node.as_ref().map(ToString::to_string))
    }
}

/// The source of a note.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum NoteSource {
    /// By a script, over HTTP.
    #[default]
    Api,
    /// On the page.
    Page,
    /// With `relay note`.
    Command,
    /// By the job, into the spool directory.
    Job,
}

/// A change of notes; owner only. Unknown fields are an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum NoteRequest {
    /// Adds a note.
    Add(NewNote),
    /// Changes a note.
    Edit {
        /// The note.
        id: NoteId,
        /// The change.
        edit: NoteEdit,
    },
    /// Deletes a note.
    Delete(NoteId),
}

/// A note that is to be added.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NewNote {
    /// See [`Note::job`].
    pub job: Option<JobId>,
    /// See [`Note::node`].
    pub node: Option<NodeName>,
    /// See [`Note::at_ms`]; now, if absent.
    pub at_ms: Option<u64>,
    /// See [`Note::text`]; at most 240 bytes.
    #[serde(deserialize_with = "whole_text")]
    pub text: Text,
    /// See [`Note::source`].
    pub source: NoteSource,
}

/// Changes of a note; what is absent stays.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(default, deny_unknown_fields)]
pub struct NoteEdit {
    /// See [`Note::text`]; at most 240 bytes.
    #[serde(deserialize_with = "whole_text_if_any")]
    pub text: Option<Text>,
    /// See [`Note::at_ms`].
    pub at_ms: Option<u64>,
    /// The text that the note has to the knowledge of who edits it: if somebody has changed it, the edit is refused.
    #[serde(deserialize_with = "whole_text_if_any")]
    pub if_text: Option<Text>,
    /// The time that the note has, likewise.
    pub if_at_ms: Option<u64>,
}

/// A note that was added or changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct SavedNote {
    /// The note as it is now.
    pub note: Note,
    /// Whether it is on the relay's disk; otherwise it is lost with the relay unless that succeeds later.
    pub is_stored: bool,
}

/// The order of notes everywhere: by time.
pub fn order(note: &Note) -> (u64, NoteId) {
    (note.at_ms, note.id)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_number_that_javascript_represents_exactly() {
        assert_eq!(NoteId::from_bits(u64::MAX).get(), (1 << 53) - 1);
        assert_eq!("9007199254740991".parse(), Ok(NoteId::from_bits(u64::MAX)));
        for wrong in ["9007199254740992", "-1", "", "x", "1.5"] {
            assert_eq!(wrong.parse::<NoteId>(), Err(NoteIdError), "{wrong}");
        }
        assert!(serde_json::from_str::<NoteId>("9007199254740992").is_err());
    }

    #[test]
    fn a_text_is_accepted_whole_or_not_at_all() {
        let new = |text: &str| serde_json::from_value::<NewNote>(serde_json::json!({ "text": text }));
        let edit = |text: &str| serde_json::from_value::<NoteEdit>(serde_json::json!({ "text": text }));
        let longest = "ä".repeat(120);
        assert_eq!(new(&longest).unwrap().text.as_str(), longest);
        assert_eq!(edit(&longest).unwrap().text.unwrap().as_str(), longest);
        let too_long = format!("{longest}!");
        let why = "a note has at most 240 bytes of text, and this one has 241";
        assert!(new(&too_long).unwrap_err().to_string().starts_with(why));
        assert!(edit(&too_long).unwrap_err().to_string().starts_with(why));
    }

    #[test]
    fn a_misspelt_field_of_a_new_note_is_refused() {
        let note: NewNote = serde_json::from_str(r#"{"text":"epoch 3","job":17}"#).unwrap();
        assert_eq!((note.job, note.at_ms, note.source), (Some(JobId(17)), None, NoteSource::Api));
        assert!(serde_json::from_str::<NewNote>(r#"{"text":"epoch 3","jobs":17}"#).is_err());
        assert!(serde_json::from_str::<NoteEdit>(r#"{"at":17}"#).is_err());
    }
}
