//! Encodes the changes of one topic for one viewer as deltas, once for all its subscribers.

mod sent;

use bytes::Bytes;
use nodeglass_fleet::{Changes, Fleet, NodeChanges};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::codec::{self, Packer, RecordContext};
use nodeglass_protocol::live::detail::DetailLevel;
use nodeglass_protocol::live::{
    Change, Delta, Histories, NodeReadings, Readings, ServerMessage, SnapshotWriter, Topic,
};
use nodeglass_protocol::note::{self, Note};
use nodeglass_protocol::picture::{History, NodePicture, Picture};
use nodeglass_share::{NodeView, Viewer};
use sent::{DirtyFlags, SentNode};
use std::cell::Cell;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// A topic with at least one subscriber: the state that subscribers have, and the number of the last
/// delta.
#[derive(Debug)]
pub struct TopicFeed {
    topic: Topic,
    viewer: Viewer,
    number: u32,
    detail: DetailLevel,
    seq: u32,
    /// State that subscribers have besides the nodes.
    sent: Picture,
    /// State that they have of each node.
    nodes: Vec<SentNode>,
    /// Index of each node in `nodes`.
    index_by_name: HashMap<NodeName, usize>,
    /// Whether the topic follows live nodes, rather than the frozen last picture of a job.
    live: bool,
    /// Approximate number of history bytes per frame.
    history_budget: usize,
    /// Snapshots in both forms since the last delta, for the next subscriber.
    cached: [CachedFrames; 2],
}

/// A node that may have changed.
struct DirtyNode<'a> {
    /// Its index in [`TopicFeed::nodes`].
    index: usize,
    view: NodeView<'a>,
    /// Changes that the fleet recorded for this topic.
    node_changes: Option<&'a NodeChanges>,
    /// Whether subscribers do not have it, or its GPUs, yet.
    is_new: bool,
}

/// Maximum number of frames of pending history that are kept for the next subscriber.
const MAX_CACHED_HISTORY: usize = 32;

/// Encoded frames.
#[derive(Debug, Default)]
struct CachedFrames {
    /// Initial snapshot, plus the nodes whose history is still pending.
    initial: Option<(Bytes, Arc<[NodeName]>)>,
    /// Snapshot with the complete history.
    full: Option<Bytes>,
    /// Pending history of these nodes: subscribers that join together request the same.
    history: Vec<(Vec<NodeName>, Bytes)>,
}

/// A delta in both forms.
#[derive(Debug)]
pub struct Encoded {
    /// For pages.
    pub binary: Bytes,
    /// For people and scripts; only encoded if someone subscribes in this form.
    pub json: Option<Bytes>,
    /// Nodes whose history was replaced and exceeded the budget.
    pub pending_history: Vec<NodeName>,
}

impl TopicFeed {
    /// Opens a feed of a topic's current state; `None` if there is no such topic.
    pub fn open(
        topic: Topic,
        viewer: Viewer,
        number: u32,
        history_budget: usize,
        fleet: &Fleet,
        now_ms: u64,
    ) -> Option<Self> {
        let detail = DetailLevel::of(&topic);
        let views = viewer.nodes(fleet, &topic)?;
        let sent_node = |view: &NodeView<'_>| {
            let mut sent = SentNode::of(detail.view(view.now()), detail);
            if viewer.is_restricted() {
                sent.visible = Some(view.long_history());
                sent.record_health(view.now());
            }
            sent
        };
        let nodes: Vec<_> = views.iter().map(sent_node).collect();
        let (sent, live, index_by_name) =
            (overview_state(&topic, &viewer, fleet, now_ms), fleet.is_live(&topic), index_by_name(&nodes));
        let cached = Default::default();
        Some(Self {
            topic,
            viewer,
            number,
            detail,
            seq: 0,
            sent,
            nodes,
            index_by_name,
            live,
            history_budget,
            cached,
        })
    }

    /// The topic of this feed.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The initial snapshot for a subscriber, encoded once until the next delta, and the nodes whose
    /// history exceeded the budget (see [`TopicFeed::history`]). All changes must have been published by
    /// [`TopicFeed::advance`]; `None` if the topic is gone.
    pub fn initial_snapshot(&mut self, fleet: &Fleet, form: Form) -> Option<(Bytes, Arc<[NodeName]>)> {
        let slot = usize::from(form == Form::Json);
        if self.cached[slot].initial.is_none() {
            let (frame, pending_history) = self.snapshot(fleet, form, self.history_budget)?;
            self.cached[slot].initial = Some((frame, pending_history.into()));
        }
        self.cached[slot].initial.clone()
    }

    /// A snapshot with the complete history, for a single request.
    pub fn full_snapshot(&mut self, fleet: &Fleet, form: Form) -> Option<Bytes> {
        let slot = usize::from(form == Form::Json);
        if self.cached[slot].full.is_none() {
            let (frame, _) = self.snapshot(fleet, form, usize::MAX)?;
            self.cached[slot].full = Some(frame);
        }
        self.cached[slot].full.clone()
    }

    /// Encodes a snapshot node by node, with about `history_budget` bytes of history; returns the nodes
    /// whose history exceeded it.
    fn snapshot(
        &self,
        fleet: &Fleet,
        form: Form,
        mut history_budget: usize,
    ) -> Option<(Bytes, Vec<NodeName>)> {
        let views = self.viewer.nodes(fleet, &self.topic).filter(|_| !self.is_gone(fleet))?;
        let (mut histories, mut pending_history) = (Vec::new(), Vec::new());
        for (index, node) in self.nodes.iter().enumerate() {
            let now = find(&views, index, |now| *now.name() == node.name).map(|index| &views[index]);
            match take_within(&mut history_budget, || {
                self.detail.history(now.and_then(NodeView::history).as_deref())
            }) {
                Some(history) => histories.push(Cell::new(history)),
                None => pending_history.push(node.name.clone()),
            }
        }
        let node = |index: usize| {
            let sent = &self.nodes[index];
            let now = find(&views, index, |now| *now.name() == sent.name).map(|index| &views[index]);
            NodePicture {
                history: histories.get(index).and_then(Cell::take),
                ..sent.picture(now, self.detail)
            }
        };
        let frame = Bytes::from(form.encode(&SnapshotWriter {
            topic: &self.topic,
            number: self.number,
            seq: self.seq,
            picture: &self.sent,
            count: self.nodes.len(),
            node,
        }));
        Some((frame, pending_history))
    }

    /// Encodes the part of the pending history that fits into one frame; `None` if none is left. History is as recent
    /// as the fleet: a sample in it that was not published yet is repeated by the next delta.
    pub fn history(
        &mut self,
        fleet: &Fleet,
        form: Form,
        pending_history: &mut VecDeque<NodeName>,
    ) -> Option<Bytes> {
        let slot = usize::from(form == Form::Json);
        let is_next = |names: &[NodeName]| {
            names.len() <= pending_history.len() && names.iter().eq(pending_history.iter().take(names.len()))
        };
        if let Some((names, frame)) = self.cached[slot].history.iter().find(|(names, _)| is_next(names)) {
            pending_history.drain(..names.len());
            return Some(frame.clone());
        }
        let (names, frame) = self.encode_history(fleet, form, pending_history);
        let frame = frame?;
        if self.cached[slot].history.len() < MAX_CACHED_HISTORY {
            self.cached[slot].history.push((names, frame.clone()));
        }
        Some(frame)
    }

    /// Removes names from the pending history, and encodes that of their nodes as one frame; `None` if none has any.
    fn encode_history(
        &self,
        fleet: &Fleet,
        form: Form,
        pending_history: &mut VecDeque<NodeName>,
    ) -> (Vec<NodeName>, Option<Bytes>) {
        // A job's last picture is not among the live nodes.
        let last =
            if self.live { Vec::new() } else { self.viewer.nodes(fleet, &self.topic).unwrap_or_default() };
        let (mut names, mut nodes, mut history_budget) = (Vec::new(), Vec::new(), self.history_budget);
        while history_budget > 0
            && let Some(name) = pending_history.pop_front()
        {
            names.push(name);
            let Some(name) = names.last() else { continue };
            // Nodes that subscribers do not have yet are sent with their history later.
            let Some(index) = self.index_by_name.get(name).copied() else { continue };
            let now = if self.live { self.viewer.node(fleet, name) } else { None };
            let view = now.as_ref().or_else(|| last.iter().find(|view| view.name() == name));
            let history = view.and_then(NodeView::history);
            let Some(history) = self.detail.history(history.as_deref()) else { continue };
            history_budget = history_budget.saturating_sub(history.encoded_len());
            nodes.push((index as u32, history));
        }
        let histories = Histories { topic: self.number, nodes };
        let frame = (!histories.nodes.is_empty())
            .then(|| Bytes::from(form.encode(&ServerMessage::Histories(histories))));
        (names, frame)
    }

    /// The delta from the published state to the current one; `None` if nothing changed in this topic, or
    /// it is gone (see [`TopicFeed::is_gone`]).
    pub fn advance(
        &mut self,
        fleet: &Fleet,
        changes: &Changes,
        now_ms: u64,
        with_json: bool,
    ) -> Option<Encoded> {
        let viewer = self.viewer.clone();
        let mut out = Vec::new();
        // Whether a guest may see the hosts of a job depends on the facts of all of its nodes.
        let concerns_all = viewer.is_restricted() && changes.nodes.values().any(|node| node.gpus);
        let mut nodes = if changes.jobs || changes.membership || concerns_all {
            self.live = fleet.is_live(&self.topic);
            self.membership_changes(changes, viewer.nodes(fleet, &self.topic)?, &mut out)
        } else {
            // The set of nodes depends on jobs and membership only, and most updates concern few nodes.
            self.changed(changes, &viewer, fleet)
        };
        let elapsed_ms = u32::try_from(now_ms.saturating_sub(self.sent.at_ms)).unwrap_or(u32::MAX);
        let now_ms = self.sent.at_ms + u64::from(elapsed_ms);
        let mut out = self.state_changes(fleet, changes, &mut nodes, out);
        self.note_changes(fleet, changes, &mut out);
        self.finding_changes(fleet, changes, &mut out);
        let (packed, plain) = self.reading_changes(&nodes, now_ms, with_json);
        let (histories, pending_history) = self.history_changes(&nodes);
        if out.is_empty() && packed.is_none() && histories.is_empty() {
            return None;
        }
        self.cached = Default::default();
        self.sent.at_ms = now_ms;
        self.seq = self.seq.wrapping_add(1);
        let (topic, seq) = (self.number, self.seq);
        let encode =
            |form: Form, mut changes: Vec<Change>, readings: Option<Readings>, histories: Vec<Change>| {
                changes.extend(readings.map(Change::Readings));
                changes.extend(histories);
                Bytes::from(form.encode(&ServerMessage::Delta(Delta { topic, seq, elapsed_ms, changes })))
            };
        let plain = packed.is_some().then_some(Readings::Plain(plain));
        let json = with_json.then(|| encode(Form::Json, out.clone(), plain, histories.clone()));
        let binary = encode(Form::Binary, out, packed.map(Readings::Packed), histories);
        Some(Encoded { binary, json, pending_history })
    }

    /// Returns whether the topic no longer exists.
    pub fn is_gone(&self, fleet: &Fleet) -> bool {
        !self.viewer.has_topic(fleet, &self.topic)
    }

    /// The known nodes for which the fleet recorded changes, in order.
    fn changed<'a>(&self, changes: &'a Changes, viewer: &'a Viewer, fleet: &'a Fleet) -> Vec<DirtyNode<'a>> {
        if !self.live {
            return Vec::new();
        }
        let dirty = changes.nodes.iter().filter_map(|(name, node_changes)| {
            let (index, view) = (*self.index_by_name.get(name)?, viewer.node(fleet, name)?);
            Some(DirtyNode { index, view, node_changes: Some(node_changes), is_new: false })
        });
        let mut dirty: Vec<_> = dirty.collect();
        dirty.sort_unstable_by_key(|dirty| dirty.index);
        dirty
    }

    /// Everything except readings and history: status, job list, heads, GPUs, processes, after the
    /// membership change.
    fn state_changes(
        &mut self,
        fleet: &Fleet,
        changes: &Changes,
        nodes: &mut [DirtyNode<'_>],
        membership: Vec<Change>,
    ) -> Vec<Change> {
        let mut out = Vec::new();
        if self.topic == Topic::Overview {
            self.relay_changes(fleet, changes, &mut out);
        }
        out.extend(membership);
        // What a restricted viewer may see of a node depends on the job list.
        let jobs_changed = changes.jobs && self.viewer.is_restricted();
        for dirty in nodes {
            let node_changes = dirty.node_changes.map(DirtyFlags::from_changes).unwrap_or_default();
            let what = if dirty.is_new { DirtyFlags::ALL } else { node_changes };
            let mut what = if jobs_changed { what.union(DirtyFlags::JOB_DEPENDENT) } else { what };
            let sent = &mut self.nodes[dirty.index];
            if self.viewer.is_restricted() {
                what.gpus |= sent.record_health(dirty.view.now());
                what = what.for_restricted_viewer();
            }
            let gpus_changed = sent.push_changes(dirty, what, self.detail, &mut out);
            // History is encoded by GPU positions.
            dirty.is_new |= gpus_changed;
        }
        out
    }

    /// Returns the visible changes of status, job list, insights, audit log and shares.
    fn relay_changes(&mut self, fleet: &Fleet, changes: &Changes, out: &mut Vec<Change>) {
        let sent = &mut self.sent;
        if changes.relay {
            let status = self.viewer.status(fleet);
            if sent.relay != status {
                sent.relay = status;
                out.push(Change::Relay(Box::new(sent.relay.clone())));
            }
        }
        if changes.jobs {
            let jobs = self.viewer.jobs(fleet);
            // Most changes on a shared cluster concern jobs that this guest does not see.
            if sent.jobs != jobs {
                sent.jobs = jobs;
                out.push(Change::Jobs(sent.jobs.clone()));
            }
        }
        if changes.audit_log && !self.viewer.is_restricted() {
            sent.audit_log = self.viewer.audit_log(fleet).to_vec();
            out.push(Change::AuditLog(sent.audit_log.clone()));
        }
        if changes.insights && !self.viewer.is_restricted() {
            sent.insights = self.viewer.insights(fleet).to_vec();
            out.push(Change::Insights(sent.insights.clone()));
        }
        if changes.sharing && !self.viewer.is_restricted() {
            sent.sharing = self.viewer.sharing(fleet);
            out.push(Change::Sharing(sent.sharing.clone()));
        }
    }

    /// Adds the notes that were added, changed or removed. The notes of a topic also depend on the job list.
    fn note_changes(&mut self, fleet: &Fleet, changes: &Changes, out: &mut Vec<Change>) {
        if !changes.notes && !changes.jobs {
            return;
        }
        let now = self.viewer.notes(fleet, &self.topic);
        let ids: HashSet<_> = now.iter().map(|note| note.id).collect();
        let removed: Vec<_> =
            self.sent.notes.iter().map(|note| note.id).filter(|id| !ids.contains(id)).collect();
        let is_new = |note: &&Note| {
            let place = self.sent.notes.binary_search_by_key(&note::order(note), note::order);
            place.is_err() || place.is_ok_and(|place| self.sent.notes[place] != **note)
        };
        let changed: Vec<_> = now.iter().filter(is_new).cloned().collect();
        if !removed.is_empty() || !changed.is_empty() {
            self.sent.notes = now;
            out.push(Change::Notes { removed, changed });
        }
    }

    /// Adds the findings that were added, changed or removed. The findings of a topic also depend on the job list.
    fn finding_changes(&mut self, fleet: &Fleet, changes: &Changes, out: &mut Vec<Change>) {
        if !changes.findings && !changes.jobs {
            return;
        }
        let now = self.viewer.findings(fleet, &self.topic);
        let is_in = |list: &[Finding], finding: &Finding| list.iter().any(|known| known.key == finding.key);
        let sent = &self.sent.findings;
        let removed: Vec<_> =
            sent.iter().filter(|old| !is_in(&now, old)).map(|old| old.key.clone()).collect();
        let changed: Vec<_> = now.iter().filter(|new| !sent.contains(new)).cloned().collect();
        if !removed.is_empty() || !changed.is_empty() {
            self.sent.findings = now;
            out.push(Change::Findings { removed, changed });
        }
    }

    /// Drops nodes whose known state is void: they were removed and added again, or a job switched between live
    /// nodes and its last picture.
    fn drop_replaced_nodes(&mut self, changes: &Changes, out: &mut Vec<Change>) {
        let switched = matches!(self.topic, Topic::Job(id) if changes.switched.contains(&id));
        let replaced =
            |sent: &SentNode| switched || changes.nodes.get(&sent.name).is_some_and(|node| node.fresh);
        let before = self.nodes.len();
        self.nodes.retain(|sent| !replaced(sent));
        if self.nodes.len() != before {
            out.push(Change::Nodes(self.nodes.iter().map(|node| node.name.clone()).collect()));
        }
    }

    /// Publishes the set of nodes, if it changed; returns all nodes.
    fn membership_changes<'a>(
        &mut self,
        changes: &'a Changes,
        nodes: Vec<NodeView<'a>>,
        out: &mut Vec<Change>,
    ) -> Vec<DirtyNode<'a>> {
        self.drop_replaced_nodes(changes, out);
        let same = nodes.iter().map(NodeView::name).eq(self.nodes.iter().map(|sent| &sent.name));
        let mut known = vec![true; nodes.len()];
        if !same {
            let mut old = std::mem::take(&mut self.nodes);
            for (now, known) in nodes.iter().zip(&mut known) {
                let index = old.iter().position(|node| node.name == *now.name());
                *known = index.is_some();
                self.nodes.push(match index {
                    Some(index) => old.swap_remove(index),
                    None => SentNode::new(now.name().clone()),
                });
            }
            out.push(Change::Nodes(nodes.iter().map(|node| node.name().clone()).collect()));
        }
        self.index_by_name = index_by_name(&self.nodes);
        let dirty = nodes.into_iter().zip(known).enumerate().map(|(index, (view, known))| {
            let node_changes = self.live.then(|| changes.nodes.get(view.name())).flatten();
            DirtyNode { index, node_changes, view, is_new: !known }
        });
        dirty.collect()
    }

    /// History that changed other than by appending a sample, and the nodes whose history exceeds the
    /// budget. Comes last, so that it replaces what a subscriber appended from this delta.
    fn history_changes(&mut self, nodes: &[DirtyNode<'_>]) -> (Vec<Change>, Vec<NodeName>) {
        let (mut out, mut pending_history, mut history_budget) =
            (Vec::new(), Vec::new(), self.history_budget);
        for dirty in nodes {
            let is_another =
                dirty.is_new || dirty.node_changes.is_some_and(|node_changes| node_changes.history);
            if !self.shows_another_part(dirty) && !is_another {
                continue;
            }
            match take_within(&mut history_budget, || self.detail.history(dirty.view.history().as_deref())) {
                Some(history) => out.push(Change::History { node: dirty.index as u32, history }),
                None => pending_history.push(dirty.view.name().clone()),
            }
        }
        (out, pending_history)
    }

    /// Returns whether a guest may see another part of a node's history than before: the job list states another start
    /// of a job, or its host is visible from now on.
    fn shows_another_part(&mut self, dirty: &DirtyNode<'_>) -> bool {
        if !self.viewer.is_restricted() {
            return false;
        }
        let visible = Some(dirty.view.long_history());
        let sent = &mut self.nodes[dirty.index].visible;
        let is_another = *sent != visible;
        *sent = visible;
        is_another
    }

    /// Readings of the sampled nodes, in both forms.
    fn reading_changes(
        &mut self,
        nodes: &[DirtyNode<'_>],
        now_ms: u64,
        with_json: bool,
    ) -> (Option<Vec<u8>>, Vec<NodeReadings>) {
        let (mut packer, mut plain) = (None, Vec::new());
        for DirtyNode { index, view, node_changes, .. } in nodes {
            let Some(_) = view.sampled_at_ms() else { continue };
            let sent = &mut self.nodes[*index].rows;
            // Also nodes that joined this topic, or whose frozen picture replaced the live one.
            if !node_changes.is_some_and(|node_changes| node_changes.sampled)
                && sent.sampled_at_ms == view.sampled_at_ms()
            {
                continue;
            }
            let context = RecordContext { node: *index as u32, at_ms: now_ms, detail: self.detail };
            if with_json {
                plain.push(codec::plain(context, sent, view.now()));
            }
            packer.get_or_insert_with(|| Packer::new(self.detail)).node(context, sent, view.now());
        }
        (packer.map(|packer| packer.finish(self.nodes.len())), plain)
    }
}

/// Index of each node by name.
fn index_by_name(nodes: &[SentNode]) -> HashMap<NodeName, usize> {
    nodes.iter().enumerate().map(|(index, node)| (node.name.clone(), index)).collect()
}

/// The current state of a topic besides its nodes.
fn overview_state(topic: &Topic, viewer: &Viewer, fleet: &Fleet, at_ms: u64) -> Picture {
    if *topic != Topic::Overview {
        return Picture {
            at_ms,
            notes: viewer.notes(fleet, topic),
            findings: viewer.findings(fleet, topic),
            ..Picture::default()
        };
    }
    Picture {
        at_ms,
        relay: viewer.status(fleet),
        jobs: viewer.jobs(fleet),
        audit_log: viewer.audit_log(fleet).to_vec(),
        sharing: viewer.sharing(fleet),
        nodes: Vec::new(),
        notes: viewer.notes(fleet, topic),
        findings: viewer.findings(fleet, topic),
        insights: viewer.insights(fleet).to_vec(),
    }
}

/// Evaluates `history` only while the budget lasts, so no history is copied in vain.
fn take_within(
    history_budget: &mut usize,
    history: impl FnOnce() -> Option<History>,
) -> Option<Option<History>> {
    if *history_budget == 0 {
        return None;
    }
    let history = history();
    *history_budget = history_budget.saturating_sub(history.as_ref().map_or(0, History::encoded_len));
    Some(history)
}

/// Finds an element, starting at the most likely index.
fn find<T>(list: &[T], from: usize, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    let places = (from..list.len()).chain(0..from.min(list.len()));
    places.into_iter().find(|index| is_it(&list[*index]))
}

#[cfg(test)]
mod tests;
