//! Streaming serialization of snapshots: nodes are created one by one instead of as a whole
//! picture.

use super::topic::Topic;
use crate::finding::Finding;
use crate::insight::JobInsight;
use crate::job::Job;
use crate::note::Note;
use crate::picture::{NodePicture, Picture, RelayStatus};
use crate::request::AuditEntry;
use crate::share::Sharing;
use serde::{Serialize, Serializer};

/// Serializes as a [`super::ServerMessage::Snapshot`].
#[derive(Debug)]
pub struct SnapshotWriter<'a, N> {
    /// See [`super::Snapshot::topic`].
    pub topic: &'a Topic,
    /// See [`super::Snapshot::number`].
    pub number: u32,
    /// See [`super::Snapshot::seq`].
    pub seq: u32,
    /// Everything but the nodes.
    pub picture: &'a Picture,
    /// Number of nodes.
    pub count: usize,
    /// Returns the node at a position; called once per node, in order.
    pub node: N,
}

impl<N: Fn(usize) -> NodePicture> Serialize for SnapshotWriter<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Picture { at_ms, relay, jobs, audit_log, sharing, nodes: _, notes, findings, insights } =
            self.picture;
        let nodes = NodesWriter { count: self.count, node: &self.node };
        let picture = PictureWriter {
            at_ms: *at_ms,
            relay,
            jobs,
            audit_log,
            sharing,
            nodes,
            notes,
            findings,
            insights,
        };
        let parts = Parts { topic: self.topic, number: self.number, seq: self.seq, picture };
        serializer.serialize_newtype_variant("ServerMessage", SNAPSHOT, "snapshot", &parts)
    }
}

/// Index of the enum variant; verified by a test.
const SNAPSHOT: u32 = 2;

/// [`super::Snapshot`]
#[derive(Serialize)]
struct Parts<'a, N> {
    topic: &'a Topic,
    number: u32,
    seq: u32,
    picture: PictureWriter<'a, N>,
}

/// [`Picture`]
#[derive(Serialize)]
struct PictureWriter<'a, N> {
    at_ms: u64,
    relay: &'a RelayStatus,
    jobs: &'a [Job],
    audit_log: &'a [AuditEntry],
    sharing: &'a Sharing,
    nodes: N,
    notes: &'a [Note],
    findings: &'a [Finding],
    insights: &'a [JobInsight],
}

struct NodesWriter<'a, N> {
    count: usize,
    node: &'a N,
}

impl<N: Fn(usize) -> NodePicture> Serialize for NodesWriter<'_, N> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq((0..self.count).map(self.node))
    }
}
