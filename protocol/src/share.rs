//! A share lets a teammate look, at no more than its terms say, and for no longer.

use crate::handshake::Key;
use crate::{JobId, NodeName, Text};
use serde::{Deserialize, Deserializer, Serialize};
use std::{fmt, str::FromStr};

/// The id of a share: public, the key beside it in the link is not. 1 to [`ShareId::MAX_BYTES`] of `a-z0-9`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ShareId(String);

/// Why a string is not the id of a share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the id of a share: it is made of small letters and digits, as `relay share list` shows it")]
pub struct ShareIdError;

impl ShareId {
    /// Longest id, in bytes.
    pub const MAX_BYTES: usize = 32;

    /// Checks and wraps an id.
    ///
    /// # Errors
    /// [`ShareIdError`] if it is empty, too long, or holds anything but small letters and digits.
    pub fn new(raw: impl Into<String>) -> Result<Self, ShareIdError> {
        let raw = raw.into();
        let ok = (1..=Self::MAX_BYTES).contains(&raw.len())
            && raw.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit());
        if ok { Ok(Self(raw)) } else { Err(ShareIdError) }
    }

    /// The id.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for ShareId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl FromStr for ShareId {
    type Err = ShareIdError;
    fn from_str(raw: &str) -> Result<Self, ShareIdError> {
        Self::new(raw)
    }
}

impl<'de> Deserialize<'de> for ShareId {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// What the link of a share holds: its id, and a key that is told to nobody. Written `ID.KEY`; `Debug` shows no key.
///
/// A holder proves [`Ticket::proof`], not the key in the link, so that no share's key is taken for an owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// Which share.
    pub id: ShareId,
    key: Key,
}

/// Why a string is no ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the key of a share: it is ID.KEY, as its link has it behind `#s=`")]
pub struct TicketError;

impl Ticket {
    /// The ticket of a share with this key.
    pub fn new(id: ShareId, key: Key) -> Self {
        Self { id, key }
    }

    /// `ID.KEY`: for the link's fragment, a `Bearer` or this browser's own tabs, and nothing else.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.key.reveal())
    }

    /// The key that both ends prove to hold.
    pub fn proof(&self) -> Key {
        self.key.derive(b"share handshake")
    }
}

impl FromStr for Ticket {
    type Err = TicketError;
    fn from_str(raw: &str) -> Result<Self, TicketError> {
        let (id, key) = raw.split_once('.').ok_or(TicketError)?;
        Ok(Self { id: id.parse().map_err(|_| TicketError)?, key: key.parse().map_err(|_| TicketError)? })
    }
}

/// What a share lets its holder look at.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Scope {
    /// These jobs: of their nodes only their GPUs, processes and uses.
    Jobs(Vec<JobId>),
    /// These nodes, and the jobs on them.
    Nodes(Vec<NodeName>),
    /// Everything that the owner watches, whatever comes to it.
    All,
}

impl Scope {
    /// Most jobs or nodes that a scope may name.
    pub const MAX_NAMED: usize = 256;
}

/// What is hidden of what is in scope. Environments of processes are never shared, so they are not here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Hides {
    /// Arguments of processes; of what a process runs only its name is told.
    pub arguments: bool,
    /// Folders and files: of processes, of jobs, of nodes.
    pub paths: bool,
    /// Processes of other users on the same nodes.
    pub other_users: bool,
    /// What jobs write to their logs.
    pub logs: bool,
}

impl Default for Hides {
    fn default() -> Self {
        Self { arguments: true, paths: true, other_users: true, logs: true }
    }
}

/// What is asked of a new share. A misspelt term is an error rather than a share for everybody.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ShareRequest {
    /// For whom or for what, in the owner's words; may be empty.
    #[serde(default)]
    pub label: Text,
    /// What its holder may look at.
    pub scope: Scope,
    /// What is hidden of it.
    #[serde(default)]
    pub hides: Hides,
    /// The login name of the only user who may use it; see [`login_name`].
    #[serde(default, deserialize_with = "some_login_name")]
    pub to: Option<Text>,
    /// For how long, in s. When nothing is said, [`ShareRequest::DEFAULT_S`] or until the end of its
    /// jobs, whichever comes first.
    #[serde(default)]
    pub lasts_s: Option<u64>,
}

impl ShareRequest {
    /// How long a share lasts when nothing is said: 24 h.
    pub const DEFAULT_S: u64 = 24 * 3_600;
    /// The longest it may last: 30 days.
    pub const MAX_S: u64 = 30 * 24 * 3_600;
}

/// Why a string is no login name. Each message reads well after "failed to".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LoginNameError {
    /// Nothing, as a variable that was not set.
    #[error(
        "read whom the share is for: the name is empty; leave it out only if whoever has the link may use it"
    )]
    Empty,
    /// Another name would come of it when it is cleaned.
    #[error("read whom the share is for: a login name has no space around it and no invisible characters")]
    Strange,
}

/// The login name of the only user who may use a share. It is taken as it was written or not at all: a name that
/// shrinks to nothing would make a share for everybody.
///
/// # Errors
/// [`LoginNameError`].
pub fn login_name(raw: &str) -> Result<Text, LoginNameError> {
    let name = Text::new(raw);
    match raw.trim() {
        "" => Err(LoginNameError::Empty),
        trimmed if trimmed == raw && name.as_str() == raw => Ok(name),
        _ => Err(LoginNameError::Strange),
    }
}

fn some_login_name<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Text>, D::Error> {
    let raw = Option::<String>::deserialize(deserializer)?;
    raw.map(|raw| login_name(&raw)).transpose().map_err(serde::de::Error::custom)
}

/// What holds for a share from its making to its end.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ShareTerms {
    /// For whom or for what, in the owner's words; may be empty.
    pub label: Text,
    /// What its holder may look at.
    pub scope: Scope,
    /// What is hidden of it.
    pub hides: Hides,
    /// The login name of the only user who may use it.
    pub to: Option<Text>,
    /// When it ends, in ms since 1970 by the login node's clock.
    pub expires_ms: u64,
    /// Whether it ends with its last job, if that comes first.
    pub ends_with_job: bool,
}

/// A share that is open.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Share {
    /// Its id.
    pub id: ShareId,
    /// When it was made, in ms since 1970 by the login node's clock.
    pub made_ms: u64,
    /// What holds for it.
    pub terms: ShareTerms,
}

/// Somebody who looks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Visitor {
    /// The share that let them in; none for the owner's key.
    pub share: Option<ShareId>,
    /// The login name behind the connection, as far as the kernel says.
    pub user: Option<Text>,
    /// Since when, in ms since 1970 by the login node's clock.
    pub since_ms: u64,
}

/// Who may look, and who does; told to the owner only.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sharing {
    /// The shares that are open, oldest first.
    pub shares: Vec<Share>,
    /// Every connected page, in the order of their coming.
    pub visitors: Vec<Visitor>,
}

/// A share with what its holder needs; the link holds its key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareLink {
    /// The share.
    pub share: Share,
    /// The link to hand on, as it works on a machine with the tunnel; none where the relay keeps only what it checks the key against.
    pub link: Option<String>,
    /// The `ssh -L` line for the teammate, who logs in as themself.
    pub tunnel: Text,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_small_letters_and_digits() {
        assert!(ShareId::new("k3jq9x0a2b").is_ok());
        for wrong in ["", "A", "a b", "a/b", "../a", "ä", &"a".repeat(33)] {
            assert!(ShareId::new(wrong).is_err(), "{wrong}");
            assert!(serde_json::from_value::<ShareId>(wrong.into()).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_ticket_is_read_back_and_what_is_none_is_not() {
        let ticket = Ticket::new(ShareId::new("abc").unwrap(), Key::new([7; 32]));
        assert_eq!(ticket.reveal().parse(), Ok(ticket.clone()));
        assert!(!format!("{ticket:?}").contains(&ticket.key.reveal()));
        for wrong in ["", ".", "abc", "abc.", "abc.short", ".AAAA", "ABC.AAAA"] {
            assert_eq!(wrong.parse::<Ticket>(), Err(TicketError), "{wrong}");
        }
    }

    #[test]
    fn what_a_holder_proves_is_not_what_the_link_holds() {
        let ticket = Ticket::new(ShareId::new("abc").unwrap(), Key::new([7; 32]));
        assert!(ticket.proof() != ticket.key);
    }

    #[test]
    fn t09_a_share_for_nobody_or_with_a_misspelt_term_is_not_asked_for() {
        for wrong in [
            r#"{"scope":"all","to":""}"#,
            r#"{"scope":"all","to":" "}"#,
            r#"{"scope":"all","to":"\u202e"}"#,
            r#"{"scope":"all","to":"bob\u200b"}"#,
            r#"{"scope":"all","to":"bob "}"#,
            r#"{"scope":"all","To":"bob"}"#,
            r#"{"scope":"all","expires_s":60}"#,
            r#"{"scope":"all","hides":{"args":true}}"#,
        ] {
            assert!(serde_json::from_str::<ShareRequest>(wrong).is_err(), "{wrong}");
        }
        let request: ShareRequest = serde_json::from_str(r#"{"scope":"all","to":"AD\\bob smith"}"#).unwrap();
        assert_eq!(request.to, Some("AD\\bob smith".into()));
        let request: ShareRequest = serde_json::from_str(r#"{"scope":"all","to":null}"#).unwrap();
        assert_eq!(request.to, None);
    }

    #[test]
    fn what_a_request_does_not_say_is_hidden() {
        let request: ShareRequest =
            serde_json::from_str(r#"{"scope":{"jobs":[17]},"hides":{"logs":false}}"#).unwrap();
        assert_eq!(request.hides, Hides { logs: false, ..Hides::default() });
        assert!(request.hides.arguments && request.hides.paths && request.hides.other_users);
    }
}
