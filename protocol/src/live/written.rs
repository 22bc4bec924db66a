//! A snapshot is written node by node, so that a large topic need not lie in memory as a picture to be told.

use super::Topic;
use crate::ask::AuditEntry;
use crate::job::Job;
use crate::picture::{NodePicture, Picture, RelayStatus};
use crate::share::Sharing;
use serde::{Serialize, Serializer};

/// What becomes a [`super::ServerMessage::Snapshot`] when it is encoded.
#[derive(Debug)]
pub struct WrittenSnapshot<'a, N> {
    /// See [`super::Snapshot::topic`].
    pub topic: &'a Topic,
    /// See [`super::Snapshot::number`].
    pub number: u32,
    /// See [`super::Snapshot::seq`].
    pub seq: u32,
    /// Everything but the nodes.
    pub picture: &'a Picture,
    /// How many nodes there are.
    pub count: usize,
    /// The node at a position; asked for once each, in order.
    pub node: N,
}

impl<N: Fn(usize) -> NodePicture> Serialize for WrittenSnapshot<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Picture { at_ms, relay, jobs, audit_log, sharing, nodes: _ } = self.picture;
        let nodes = WrittenNodes { count: self.count, node: &self.node };
        let picture = WrittenPicture { at_ms: *at_ms, relay, jobs, audit_log, sharing, nodes };
        let parts = Parts { topic: self.topic, number: self.number, seq: self.seq, picture };
        serializer.serialize_newtype_variant("ServerMessage", SNAPSHOT, "snapshot", &parts)
    }
}

/// Position of the variant; a test compares.
const SNAPSHOT: u32 = 2;

/// [`super::Snapshot`]
#[derive(Serialize)]
struct Parts<'a, N> {
    topic: &'a Topic,
    number: u32,
    seq: u32,
    picture: WrittenPicture<'a, N>,
}

/// [`Picture`]
#[derive(Serialize)]
struct WrittenPicture<'a, N> {
    at_ms: u64,
    relay: &'a RelayStatus,
    jobs: &'a [Job],
    #[serde(rename = "deeds")]
    audit_log: &'a [AuditEntry],
    sharing: &'a Sharing,
    nodes: N,
}

struct WrittenNodes<'a, N> {
    count: usize,
    node: &'a N,
}

impl<N: Fn(usize) -> NodePicture> Serialize for WrittenNodes<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.count).map(self.node))
    }
}
