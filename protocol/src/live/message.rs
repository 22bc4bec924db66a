//! Messages between relay and page, one enum per direction.

use super::change::Change;
use super::handshake::{Code, Nonce};
use super::topic::Topic;
use crate::Text;
use crate::picture::{History, Picture};
use crate::range::{RangeHistory, RangeQuery};
use crate::report::{ReportAnswer, ReportQuery};
use crate::request::{LogRef, Request, Response, Tail};
use crate::share::{ShareId, ShareTerms};
use crate::version::VersionRange;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Messages from the page.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ClientMessage {
    /// First message, within 5 s.
    Hello {
        /// Versions of the live wire that the page supports.
        proto: VersionRange,
        /// Identifies the key that it holds.
        key: KeyId,
        /// A fresh nonce.
        nonce: Nonce,
    },
    /// Second message: proves possession of the key.
    Proof {
        /// See [`super::handshake`].
        code: Code,
    },
    /// Replaces the set of subscribed topics.
    Subscribe(Vec<Topic>),
    /// Requests a new snapshot of a topic, because a delta could not be applied.
    Resync(Topic),
    /// A request, answered by [`ServerMessage::Response`] with the same number; owner only.
    Request {
        /// Number chosen by the page.
        number: u32,
        /// The request.
        request: Request,
    },
    /// Replaces the set of followed logs; owner only.
    Follow(Vec<LogRef>),
    /// Requests long-term history, with a response by [`ServerMessage::Range`] with the same number. A later request
    /// replaces one to which the relay has not begun to respond.
    Range {
        /// Number chosen by the page.
        number: u32,
        /// The query.
        query: RangeQuery,
    },
    /// Requests reports, with a response by [`ServerMessage::Report`] with the same number. A later request replaces
    /// one to which the relay has not begun to respond.
    Report {
        /// Number chosen by the page.
        number: u32,
        /// The query.
        query: ReportQuery,
    },
}

/// Identifies a key.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum KeyId {
    /// The key of the owner, who started the relay.
    Owner,
    /// The key of a share, by its id.
    Share(ShareId),
    /// The owner's key for a single tab, by the id of the link that opened it: first the link's
    /// key, then the session key that both ends derive from it.
    Tab(ShareId),
    /// No key: the relay of a site identifies the person by the connection. [`ServerMessage::Welcome`] follows at once.
    Person,
}

/// Messages from the relay.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerMessage {
    /// Response to `Hello`: proves that the relay can verify the key.
    Challenge {
        /// A fresh nonce.
        nonce: Nonce,
        /// See [`super::handshake`].
        code: Code,
    },
    /// Response to `Proof`: the page is authenticated.
    Welcome(Box<Welcome>),
    /// Complete state of a topic.
    Snapshot(Box<Snapshot>),
    /// Changes of a topic since the previous message.
    Delta(Delta),
    /// The topic does not exist or was removed.
    Gone(Topic),
    /// The viewer was too slow and missed this many deltas; a snapshot follows.
    Lagged {
        /// Number of missed deltas.
        missed: u32,
    },
    /// Last message: the reason for closing the connection.
    Bye(CloseReason),
    /// Response to a request.
    Response {
        /// Number chosen by the page.
        number: u32,
        /// The response.
        response: Response,
    },
    /// New content of a followed log.
    Log {
        /// The log.
        of: LogRef,
        /// The new content.
        tail: Tail,
    },
    /// Histories that exceeded the size budget of a topic's snapshot or delta.
    Histories(Histories),
    /// Response to [`ClientMessage::Range`]; without nodes if there is no such topic.
    Range {
        /// Number chosen by the page.
        number: u32,
        /// The response.
        range: RangeHistory,
    },
    /// Response to [`ClientMessage::Report`].
    Report {
        /// Number chosen by the page.
        number: u32,
        /// The response.
        answer: ReportAnswer,
    },
}

/// Parameters of the connection.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Welcome {
    /// Negotiated version of the live wire.
    pub proto: u16,
    /// Build id of the relay; a page of another build offers to reload.
    pub build: Text,
    /// Random number of this run of the relay; when it changes, all cached state is invalid.
    pub epoch: u32,
    /// The relay's clock now, in ms; it read [`CLOCK_STARTS_AT_MS`] when the relay started.
    pub at_ms: u64,
    /// The time of `at_ms` in ms since 1970, by the login node's clock.
    pub wall_ms: u64,
    /// Login name of the owner.
    pub user: Text,
    /// Host name of the relay.
    pub host: Text,
    /// SLURM cluster name, if configured.
    pub cluster: Option<Text>,
    /// Operating mode of the relay.
    pub mode: Mode,
    /// Role of the viewer.
    pub role: Role,
    /// Whether actions (signals, job control) are permitted: for the owner, unless the relay is
    /// read-only.
    pub may_act: bool,
    /// The `ssh -L` command that re-establishes the tunnel.
    pub tunnel: Text,
    /// Terms of the share, for guests.
    pub share: Option<Box<ShareTerms>>,
    /// When no relay stored the history before this run, oldest first, at most 64: gaps of graphs that have a
    /// cause.
    pub downtimes: Vec<Downtime>,
    /// The host to which the relay can post reports of jobs, without the secret part of the URL; owner only.
    pub report_webhook: Option<Text>,
    /// Offset of the login node's local time from UTC, in min: logs, SLURM's commands and notices have that time.
    #[serde(default)]
    pub utc_offset_min: i32,
    /// Login name of the person as whom the viewer was identified, on the relay of a site; `None` with a key.
    #[serde(default)]
    pub person: Option<Text>,
    /// Number of days before now at which a range may begin, at most [`MAX_HISTORY_DAYS`](super::MAX_HISTORY_DAYS),
    /// because the relay reads a long-term storage; 0 without one, owner only.
    #[serde(default)]
    pub history_days: u16,
}

/// A time in which no relay of this host stored the history.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Downtime {
    /// Its start, in ms of the relay's clock.
    pub from_ms: u64,
    /// Its end.
    pub to_ms: u64,
}

/// Operating mode of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mode {
    /// Monitors the jobs of a SLURM user.
    Slurm,
    /// Monitors this machine only, without SLURM.
    Local,
    /// Simulates a scripted cluster.
    Demo,
    /// Monitors listed machines, without SLURM.
    Hosts,
}

impl Mode {
    /// Returns whether there are jobs: with SLURM, or simulated.
    pub fn has_jobs(self) -> bool {
        matches!(self, Self::Slurm | Self::Demo)
    }
}

/// The permissions of a viewer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Unrestricted.
    Owner,
    /// Read-only.
    Guest,
}

/// Reason for closing a connection.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CloseReason {
    /// Wrong key or invalid proof.
    Refused,
    /// No version in common.
    Version {
        /// Versions that the relay supports.
        relay: VersionRange,
    },
    /// The page sent an invalid message.
    Unreadable,
    /// The page read nothing for 30 s.
    TooSlow,
    /// The relay is shutting down.
    ShuttingDown,
    /// The owner's key is valid, but according to the kernel the peer is another user.
    NotTheOwner {
        /// Login name of the peer, if known.
        user: Option<Text>,
    },
    /// The share is restricted to another user.
    NotForYou {
        /// The permitted user.
        to: Text,
    },
    /// The owner revoked the share.
    Revoked,
    /// The share expired, or its jobs ended.
    Expired,
    /// The owner's key is valid, but the connection comes from a proxy that did not authenticate
    /// the owner.
    NotByProxy {
        /// Whether it authenticated another user; otherwise it does not report users.
        other_user: bool,
    },
    /// Without a key: this is not the relay of a site, or it cannot identify a person by the connection.
    NotIdentified,
}

impl fmt::Display for CloseReason {
    /// A sentence for the user, without its full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused => f.write_str("the key is wrong; copy the whole link that `relay link` prints"),
            Self::Version { relay } => {
                write!(f, "the relay speaks versions {} to {} of the protocol", relay.min, relay.max)
            }
            Self::Unreadable => f.write_str("the relay could not read a message"),
            Self::TooSlow => f.write_str("nothing was read for 30 s"),
            Self::ShuttingDown => f.write_str("the relay is shutting down"),
            Self::NotTheOwner { .. } => f.write_str(
                "the owner's key is accepted on the owner's own connections only; ask for a share",
            ),
            Self::NotForYou { to } => {
                write!(f, "this share is for {to}, but the kernel identifies you as another user")
            }
            Self::NotIdentified => f.write_str(
                "the relay cannot identify you: log in to the site's proxy, or connect through `ssh -L` as yourself",
            ),
            Self::Revoked => f.write_str("the owner revoked this share"),
            Self::Expired => f.write_str("this share has expired"),
            Self::NotByProxy { other_user: true } => {
                f.write_str("the proxy names another user than the one who runs this relay")
            }
            Self::NotByProxy { other_user: false } => f.write_str(
                "the proxy does not identify its visitor: set --proxy-user-header, or use a link of `relay link --tab`",
            ),
        }
    }
}

/// Complete state of a topic.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Snapshot {
    /// The topic.
    pub topic: Topic,
    /// Identifies the topic in deltas of this connection.
    pub number: u32,
    /// Sequence number of the last delta included.
    pub seq: u32,
    /// Unrestricted.
    pub picture: Picture,
}

/// Changes of a topic. Idempotent: decoded values are absolute.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Delta {
    /// The topic's number.
    pub topic: u32,
    /// Sequence number, one more than the previous (wrapping); a gap means that deltas were missed.
    pub seq: u32,
    /// Time since the topic's last delta or the snapshot's `at_ms`, by the relay's clock.
    pub elapsed_ms: u32,
    /// The changes, in order.
    pub changes: Vec<Change>,
}

/// Complete histories of some nodes of a topic. They change nothing else, have no sequence number
/// and may be interleaved with deltas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Histories {
    /// The topic's number.
    pub topic: u32,
    /// Histories by node position.
    pub nodes: Vec<(u32, History)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_for_a_close_is_a_sentence_and_not_rusts_name_of_it() {
        let reasons = [
            CloseReason::Revoked,
            CloseReason::NotTheOwner { user: Some("bob".into()) },
            CloseReason::NotForYou { to: "carol".into() },
            CloseReason::NotByProxy { other_user: false },
        ];
        for reason in reasons {
            let (text, name) = (reason.to_string(), format!("{reason:?}"));
            assert!(text.contains(' ') && !text.contains(&name) && !text.contains('{'), "{text}");
        }
    }
}
