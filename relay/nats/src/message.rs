//! Subjects and messages between relays; pure.

use nodeglass_platform::random::random_u64;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::{NodeName, Text};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Header with the id of a link: one run of one probe.
pub(crate) const LINK: &str = "Nodeglass-Link";
/// Header with the number of a message of its link, from 0. In a snapshot, the number of the first message that follows it.
pub(crate) const SEQ: &str = "Nodeglass-Seq";
/// Header with the id of the relay that sent the message.
pub(crate) const RELAY: &str = "Nodeglass-Relay";
/// Header with the reason for the end of a link, or for the lack of a snapshot.
pub(crate) const END: &str = "Nodeglass-End";
/// Header with the position of a part of a list, as `2/5`, from 1.
pub(crate) const PART: &str = "Nodeglass-Part";

/// Maximum size of a payload that is sent, in bytes. A server's default limit is 1 MiB.
pub(crate) const MAX_SENT: usize = 512 * 1024;
/// Maximum size of a payload that is read, in bytes.
pub(crate) const MAX_READ: usize = 1024 * 1024;
/// Maximum number of parts of a list of jobs.
pub(crate) const MAX_PARTS: u32 = 64;
/// Maximum number of nodes in a message.
pub(crate) const MAX_NODES: usize = 4_096;

/// The name of a cluster in subjects: up to 64 letters, digits, `_` and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ClusterName(String);

/// Error of [`ClusterName`]; a fragment that follows the setting's name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} cannot be the name of a cluster on NATS: use up to 64 letters, digits, _ and -")]
pub struct ClusterNameError(String);

impl FromStr for ClusterName {
    type Err = ClusterNameError;
    fn from_str(name: &str) -> Result<Self, ClusterNameError> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        match (1..=64).contains(&name.len()) && name.bytes().all(is_allowed) {
            true => Ok(Self(name.to_owned())),
            false => Err(ClusterNameError(name.chars().take(80).collect())),
        }
    }
}

impl fmt::Display for ClusterName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// Identifies a run of a relay: 16 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct RelayId(u64);

impl RelayId {
    pub(crate) fn random() -> Self {
        Self(random_u64())
    }
}

impl fmt::Display for RelayId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl FromStr for RelayId {
    type Err = &'static str;
    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let is_hex = raw.len() == 16 && raw.bytes().all(|byte| byte.is_ascii_hexdigit());
        let number = is_hex.then(|| u64::from_str_radix(raw, 16).ok()).flatten();
        number.map(Self).ok_or("not the id of a relay")
    }
}

impl TryFrom<String> for RelayId {
    type Error = &'static str;
    fn try_from(raw: String) -> Result<Self, Self::Error> {
        raw.parse()
    }
}

impl From<RelayId> for String {
    fn from(id: RelayId) -> Self {
        id.to_string()
    }
}

/// Subjects of a cluster.
#[derive(Clone, Debug)]
pub(crate) struct Subjects(String);

impl Subjects {
    pub(crate) fn of(cluster: &ClusterName) -> Self {
        Self(format!("nodeglass.v1.{cluster}"))
    }

    /// Subjects of all clusters, for subscriptions.
    pub(crate) fn of_all() -> Self {
        Self("nodeglass.v1.*".to_owned())
    }

    /// Lines of a node's probe.
    pub(crate) fn lines(&self, node: &NodeName) -> String {
        format!("{}.node.{}.lines", self.0, token(node))
    }

    /// Requests for a node, to the relay that watches it.
    pub(crate) fn requests(&self, node: &NodeName) -> String {
        format!("{}.node.{}.request", self.0, token(node))
    }

    /// Requests for any node.
    pub(crate) fn all_requests(&self) -> String {
        format!("{}.node.*.request", self.0)
    }

    /// Job lists.
    pub(crate) fn jobs(&self) -> String {
        format!("{}.jobs", self.0)
    }

    /// Interest of viewing relays.
    pub(crate) fn interest(&self) -> String {
        format!("{}.interest", self.0)
    }

    /// Announcements of one relay.
    pub(crate) fn announce(&self, relay: RelayId) -> String {
        format!("{}.relay.{relay}.announce", self.0)
    }

    /// Announcements of all relays.
    pub(crate) fn announcements(&self) -> String {
        format!("{}.relay.*.announce", self.0)
    }

    /// The node in a subject of [`Subjects::all_requests`].
    pub(crate) fn node(&self, subject: &str) -> Option<NodeName> {
        let rest = subject.strip_prefix(self.0.as_str())?.strip_prefix(".node.")?;
        node_of(rest.split('.').next()?)
    }
}

/// A node's name as a token of a subject, and as a key: dots separate tokens, and no name has an equals sign.
pub(crate) fn token(node: &NodeName) -> String {
    node.as_str().replace('.', "=")
}

/// The node of a token.
pub(crate) fn node_of(token: &str) -> Option<NodeName> {
    NodeName::new(token.replace('=', ".")).ok()
}

/// A relay that publishes nodes or jobs; sent every two seconds, and soon after a change.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Announcement {
    pub(crate) relay: RelayId,
    /// The user who runs it.
    pub(crate) user: Text,
    pub(crate) version: Text,
    /// Version of the lines.
    pub(crate) wire: u16,
    /// Whether it lists jobs.
    pub(crate) has_jobs: bool,
    /// Whether it holds leases. A relay without leases gives way to one that holds them.
    #[serde(default)]
    pub(crate) has_leases: bool,
    /// The first controller of its SLURM, which distinguishes two clusters of one name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) controller: Option<Text>,
    /// The nodes on which it runs probes, or is starting them.
    pub(crate) nodes: Vec<NodeName>,
}

/// Interest of a relay in nodes, and in the list of jobs; sent every three seconds.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Interest {
    pub(crate) relay: RelayId,
    /// Whether it needs the lists of jobs.
    pub(crate) jobs: bool,
    /// Without a sampling schedule, the interest ends.
    pub(crate) nodes: Vec<(NodeName, Option<Sampling>)>,
}

/// A sampling schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Sampling {
    pub(crate) interval_ms: u32,
    pub(crate) phase_ms: u32,
}

/// A request for one node. With a reply subject, the current state of the node is sent there.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NodeRequest {
    pub(crate) relay: RelayId,
    pub(crate) sampling: Sampling,
    /// Requests the samples that the probe still has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) backfill: Option<Position>,
}

/// A position in a stream of samples: the last one that was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Position {
    pub(crate) stream: u64,
    pub(crate) after_seq: u64,
}

/// A part of a list of jobs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Jobs {
    pub(crate) relay: RelayId,
    pub(crate) jobs: Vec<Job>,
    /// The reason for the lack of a current list.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) failed: Option<Text>,
}

/// Parses a payload within [`MAX_READ`].
pub(crate) fn parse<T: for<'de> Deserialize<'de>>(payload: &[u8]) -> Option<T> {
    (payload.len() <= MAX_READ).then(|| serde_json::from_slice(payload).ok()).flatten()
}

/// Encodes a message.
pub(crate) fn encode(message: &impl Serialize) -> bytes::Bytes {
    serde_json::to_vec(message).expect("messages have string keys").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_with_dots_is_one_token_of_a_subject() {
        let subjects = Subjects::of(&"hpc-1".parse().unwrap());
        let node = NodeName::new("gpu01.cluster.example").unwrap();
        let subject = subjects.requests(&node);
        assert_eq!(subject, "nodeglass.v1.hpc-1.node.gpu01=cluster=example.request");
        assert_eq!(subjects.node(&subject), Some(node));
        assert_eq!(subjects.node("nodeglass.v1.other.node.gpu01.request"), None);
        assert_eq!(subjects.node("nodeglass.v1.hpc-1.node.-rf.request"), None, "not the name of a node");
    }

    #[test]
    fn names_with_wildcards_or_separators_are_no_cluster() {
        for name in ["", "a.b", "*", ">", "a b", "ü", &"x".repeat(65)] {
            assert!(name.parse::<ClusterName>().is_err(), "{name}");
        }
        assert!("alpha_2-b".parse::<ClusterName>().is_ok());
    }

    #[test]
    fn ids_of_relays_are_hexadecimal() {
        let id = RelayId(0xabc);
        assert_eq!(id.to_string().parse(), Ok(id));
        assert!(
            ["", "abc", "+000000000000abc", "zzzzzzzzzzzzzzzz"]
                .iter()
                .all(|raw| raw.parse::<RelayId>().is_err())
        );
    }
}
