//! A feed turns what changed in the fleet into the next delta of one topic, encoded once for everyone who looks.

mod sent;

use crate::fleet::{Changes, Fleet, NodeChanges};
use crate::share::{Eyes, Seen};
use bytes::Bytes;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::detail::DetailLevel;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{
    Change, Delta, Histories, NodeReadings, Readings, ServerMessage, SnapshotWriter, Topic,
};
use nodeglass_protocol::packed::{self, Packer, RecordContext};
use nodeglass_protocol::picture::{History, NodePicture, Picture};
use sent::{SentNode, Told};
use std::cell::Cell;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

/// One topic that somebody looks at: what its viewers know, and the number of the last delta.
#[derive(Debug)]
pub struct TopicFeed {
    topic: Topic,
    eyes: Eyes,
    number: u32,
    detail: DetailLevel,
    seq: u32,
    /// What viewers know beside the nodes.
    sent: Picture,
    /// What they know of each node.
    nodes: Vec<SentNode>,
    /// Where each node stands among them.
    places: HashMap<NodeName, usize>,
    /// Whether it tells of nodes as they are; otherwise of a job's last picture, which nothing changes.
    live: bool,
    /// How many bytes of pasts go into one frame, about.
    room: usize,
    /// The topic as a whole in the two forms, if somebody came since the last delta: for the next who comes.
    kept: [Kept; 2],
}

/// A node of the topic that is looked at because something may have changed.
struct Looked<'a> {
    /// Its position.
    place: usize,
    seen: Seen<'a>,
    /// What the fleet noted of it, as far as it concerns this topic.
    noted: Option<&'a NodeChanges>,
    /// Whether viewers do not know it, or its GPUs.
    is_new: bool,
}

/// A topic as a whole, encoded.
#[derive(Debug, Default)]
struct Kept {
    /// For one who stays, with the nodes whose past he is owed.
    entrance: Option<(Bytes, Arc<[NodeName]>)>,
    /// For one who looks once.
    whole: Option<Bytes>,
}

/// The next delta in the two forms.
#[derive(Debug)]
pub struct Encoded {
    /// For pages.
    pub binary: Bytes,
    /// For people and scripts; only made when one looks.
    pub json: Option<Bytes>,
    /// Nodes whose past is another one and had no room.
    pub owed: Vec<NodeName>,
}

impl TopicFeed {
    /// A feed of a topic as it is now, with room for so many bytes of pasts in a frame; `None` when there is no
    /// such topic.
    pub fn open(
        topic: Topic,
        eyes: Eyes,
        number: u32,
        room: usize,
        fleet: &Fleet,
        now_ms: u64,
    ) -> Option<Self> {
        let detail = DetailLevel::of(&topic);
        let seen = eyes.nodes(fleet, &topic)?;
        let nodes: Vec<_> = seen.iter().map(|seen| SentNode::of(detail.view(seen.now()), detail)).collect();
        let (sent, live, places) =
            (beside(&topic, &eyes, fleet, now_ms), fleet.is_live(&topic), places(&nodes));
        let kept = Default::default();
        Some(Self { topic, eyes, number, detail, seq: 0, sent, nodes, places, live, room, kept })
    }

    /// The topic.
    pub fn topic(&self) -> &Topic {
        &self.topic
    }

    /// The topic as a whole for one who stays, as a frame, encoded once for all who come before the next delta; and the
    /// nodes whose past had no room, see [`TopicFeed::pasts`]. Every change must have been told by
    /// [`TopicFeed::advance`] before; `None` when the topic is gone.
    pub fn entrance(&mut self, fleet: &Fleet, form: Form) -> Option<(Bytes, Arc<[NodeName]>)> {
        let slot = usize::from(form == Form::Json);
        if self.kept[slot].entrance.is_none() {
            let (frame, owed) = self.snapshot(fleet, form, self.room)?;
            self.kept[slot].entrance = Some((frame, owed.into()));
        }
        self.kept[slot].entrance.clone()
    }

    /// The same for one who looks once: with all pasts.
    pub fn whole(&mut self, fleet: &Fleet, form: Form) -> Option<Bytes> {
        let slot = usize::from(form == Form::Json);
        if self.kept[slot].whole.is_none() {
            let (frame, _) = self.snapshot(fleet, form, usize::MAX)?;
            self.kept[slot].whole = Some(frame);
        }
        self.kept[slot].whole.clone()
    }

    /// What viewers know, with so many bytes of pasts, about, and the nodes whose past had no room. It is made node by
    /// node as it is written.
    fn snapshot(&self, fleet: &Fleet, form: Form, mut room: usize) -> Option<(Bytes, Vec<NodeName>)> {
        let seen = self.eyes.nodes(fleet, &self.topic).filter(|_| !self.is_gone(fleet))?;
        let (mut pasts, mut owed) = (Vec::new(), Vec::new());
        for (place, node) in self.nodes.iter().enumerate() {
            let now = find(&seen, place, |now| *now.name() == node.name).map(|place| &seen[place]);
            match within(&mut room, || self.detail.history(now.and_then(Seen::past).as_deref())) {
                Some(past) => pasts.push(Cell::new(past)),
                None => owed.push(node.name.clone()),
            }
        }
        let node = |place: usize| {
            let sent = &self.nodes[place];
            let now = find(&seen, place, |now| *now.name() == sent.name).map(|place| &seen[place]);
            NodePicture { history: pasts.get(place).and_then(Cell::take), ..sent.picture(now, self.detail) }
        };
        let frame = Bytes::from(form.encode(&SnapshotWriter {
            topic: &self.topic,
            number: self.number,
            seq: self.seq,
            picture: &self.sent,
            count: self.nodes.len(),
            node,
        }));
        Some((frame, owed))
    }

    /// As many of the pasts that a viewer is owed as fit one frame; `None` when there is none of them any more.
    /// They are as new as the fleet is: a sample in them that was not told yet is told again by the next delta.
    pub fn pasts(&self, fleet: &Fleet, form: Form, owed: &mut VecDeque<NodeName>) -> Option<Bytes> {
        // A job's last picture is no longer among the nodes as they are.
        let last =
            if self.live { Vec::new() } else { self.eyes.nodes(fleet, &self.topic).unwrap_or_default() };
        let (mut nodes, mut room) = (Vec::new(), self.room);
        while room > 0
            && let Some(name) = owed.pop_front()
        {
            // What viewers do not know yet is told them when they hear of it.
            let Some(place) = self.places.get(&name).copied() else { continue };
            let now = if self.live { self.eyes.node(fleet, &name) } else { None };
            let seen = now.as_ref().or_else(|| last.iter().find(|seen| *seen.name() == name));
            let past = seen.and_then(Seen::past);
            let Some(past) = self.detail.history(past.as_deref()) else { continue };
            room = room.saturating_sub(past.encoded_len());
            nodes.push((place as u32, past));
        }
        let pasts = Histories { topic: self.number, nodes };
        (!pasts.nodes.is_empty()).then(|| Bytes::from(form.encode(&ServerMessage::Histories(pasts))))
    }

    /// The delta from what viewers know to what is known now; `None` when nothing of this topic
    /// changed, or the topic is gone (see [`TopicFeed::is_gone`]).
    pub fn advance(
        &mut self,
        fleet: &Fleet,
        changes: &Changes,
        now_ms: u64,
        with_json: bool,
    ) -> Option<Encoded> {
        let eyes = self.eyes.clone();
        let mut told = Vec::new();
        let mut nodes = if changes.jobs || changes.membership {
            self.live = fleet.is_live(&self.topic);
            self.tell_membership(changes, eyes.nodes(fleet, &self.topic)?, &mut told)
        } else {
            // Which nodes there are follows from jobs and membership, and most moments are about a few of them.
            self.changed(changes, &eyes, fleet)
        };
        let elapsed_ms = u32::try_from(now_ms.saturating_sub(self.sent.at_ms)).unwrap_or(u32::MAX);
        let now_ms = self.sent.at_ms + u64::from(elapsed_ms);
        let told = self.tell_rare(fleet, changes, &mut nodes, told);
        let (packed, plain) = self.tell_vitals(&nodes, now_ms, with_json);
        let (pasts, owed) = self.tell_pasts(&nodes);
        if told.is_empty() && packed.is_none() && pasts.is_empty() {
            return None;
        }
        self.kept = Default::default();
        self.sent.at_ms = now_ms;
        self.seq = self.seq.wrapping_add(1);
        let (topic, seq) = (self.number, self.seq);
        let encode = |form: Form, mut changes: Vec<Change>, vitals: Option<Readings>, pasts: Vec<Change>| {
            changes.extend(vitals.map(Change::Readings));
            changes.extend(pasts);
            Bytes::from(form.encode(&ServerMessage::Delta(Delta { topic, seq, elapsed_ms, changes })))
        };
        let plain = packed.is_some().then_some(Readings::Plain(plain));
        let json = with_json.then(|| encode(Form::Json, told.clone(), plain, pasts.clone()));
        let binary = encode(Form::Binary, told, packed.map(Readings::Packed), pasts);
        Some(Encoded { binary, json, owed })
    }

    /// Whether the topic no longer exists.
    pub fn is_gone(&self, fleet: &Fleet) -> bool {
        !self.eyes.have(fleet, &self.topic)
    }

    /// Of the nodes that viewers know, those of which the fleet noted something, in their order.
    fn changed<'a>(&self, changes: &'a Changes, eyes: &'a Eyes, fleet: &'a Fleet) -> Vec<Looked<'a>> {
        if !self.live {
            return Vec::new();
        }
        let looked = changes.nodes.iter().filter_map(|(name, noted)| {
            let (place, seen) = (*self.places.get(name)?, eyes.node(fleet, name)?);
            Some(Looked { place, seen, noted: Some(noted), is_new: false })
        });
        let mut looked: Vec<_> = looked.collect();
        looked.sort_unstable_by_key(|looked| looked.place);
        looked
    }

    /// Figures, job list, heads, GPUs, processes, after the change of membership, if there was one.
    fn tell_rare(
        &mut self,
        fleet: &Fleet,
        changes: &Changes,
        nodes: &mut [Looked<'_>],
        membership: Vec<Change>,
    ) -> Vec<Change> {
        let mut told = Vec::new();
        if self.topic == Topic::Overview {
            self.tell_of_the_relay(fleet, changes, &mut told);
        }
        told.extend(membership);
        // What a guest may see of a node depends on which jobs there are.
        let resettled = changes.jobs && self.eyes.are_a_guests();
        for looked in nodes {
            let noted = looked.noted.map(Told::noted).unwrap_or_default();
            let what = if looked.is_new { Told::EVERYTHING } else { noted };
            let what = if resettled { what.and(Told::RESETTLED) } else { what };
            let what = if self.eyes.are_a_guests() { what.to_a_guest() } else { what };
            let regrouped = self.nodes[looked.place].tell(looked, what, self.detail, &mut told);
            // A past is told by the positions of GPUs.
            looked.is_new |= regrouped;
        }
        told
    }

    /// Figures, job list, deeds and shares, as far as they are for these eyes and differ from what was told.
    fn tell_of_the_relay(&mut self, fleet: &Fleet, changes: &Changes, told: &mut Vec<Change>) {
        let sent = &mut self.sent;
        if changes.relay {
            let status = self.eyes.status(fleet);
            if sent.relay != status {
                sent.relay = status;
                told.push(Change::Relay(sent.relay.clone()));
            }
        }
        if changes.jobs {
            sent.jobs = self.eyes.jobs(fleet);
            told.push(Change::Jobs(sent.jobs.clone()));
        }
        if changes.deeds && !self.eyes.are_a_guests() {
            sent.audit_log = self.eyes.deeds(fleet).to_vec();
            told.push(Change::AuditLog(sent.audit_log.clone()));
        }
        if changes.sharing && !self.eyes.are_a_guests() {
            sent.sharing = self.eyes.sharing(fleet);
            told.push(Change::Sharing(sent.sharing.clone()));
        }
    }

    /// Drops nodes of which nothing known holds any more: they left and came back, or a job's live
    /// nodes gave way to its last picture or the other way round.
    fn drop_replaced(&mut self, changes: &Changes, told: &mut Vec<Change>) {
        let switched = matches!(self.topic, Topic::Job(id) if changes.switched.contains(&id));
        let replaced =
            |sent: &SentNode| switched || changes.nodes.get(&sent.name).is_some_and(|node| node.fresh);
        let before = self.nodes.len();
        self.nodes.retain(|sent| !replaced(sent));
        if self.nodes.len() != before {
            told.push(Change::Nodes(self.nodes.iter().map(|node| node.name.clone()).collect()));
        }
    }

    /// Tells which nodes there are, if that changed; returns all of them.
    fn tell_membership<'a>(
        &mut self,
        changes: &'a Changes,
        nodes: Vec<Seen<'a>>,
        told: &mut Vec<Change>,
    ) -> Vec<Looked<'a>> {
        self.drop_replaced(changes, told);
        let same = nodes.iter().map(Seen::name).eq(self.nodes.iter().map(|sent| &sent.name));
        let mut known = vec![true; nodes.len()];
        if !same {
            let mut old = std::mem::take(&mut self.nodes);
            for (now, known) in nodes.iter().zip(&mut known) {
                let place = old.iter().position(|node| node.name == *now.name());
                *known = place.is_some();
                self.nodes.push(match place {
                    Some(place) => old.swap_remove(place),
                    None => SentNode::new(now.name().clone()),
                });
            }
            told.push(Change::Nodes(nodes.iter().map(|node| node.name().clone()).collect()));
        }
        self.places = places(&self.nodes);
        let looked = nodes.into_iter().zip(known).enumerate().map(|(place, (seen, known))| {
            let noted = self.live.then(|| changes.nodes.get(seen.name())).flatten();
            Looked { place, noted, seen, is_new: !known }
        });
        looked.collect()
    }

    /// The pasts that are not the last one plus a sample, and the nodes of those that have no room. They come last:
    /// what a viewer entered itself on the way is replaced by the truth.
    fn tell_pasts(&self, nodes: &[Looked<'_>]) -> (Vec<Change>, Vec<NodeName>) {
        let (mut told, mut owed, mut room) = (Vec::new(), Vec::new(), self.room);
        let is_another = |looked: &&Looked<'_>| looked.is_new || looked.noted.is_some_and(|noted| noted.past);
        for looked in nodes.iter().filter(is_another) {
            match within(&mut room, || self.detail.history(looked.seen.past().as_deref())) {
                Some(past) => told.push(Change::History { node: looked.place as u32, history: past }),
                None => owed.push(looked.seen.name().clone()),
            }
        }
        (told, owed)
    }

    /// Cells of the nodes that were sampled, in both forms.
    fn tell_vitals(
        &mut self,
        nodes: &[Looked<'_>],
        now_ms: u64,
        with_json: bool,
    ) -> (Option<Vec<u8>>, Vec<NodeReadings>) {
        let (mut packer, mut plain) = (None, Vec::new());
        for Looked { place, seen, noted, .. } in nodes {
            let Some(_) = seen.sampled_at_ms() else { continue };
            let sent = &mut self.nodes[*place].rows;
            // A node that joined this topic, or whose frozen picture replaced the live one, was sampled too.
            if !noted.is_some_and(|noted| noted.sampled) && sent.sampled_at_ms == seen.sampled_at_ms() {
                continue;
            }
            let context = RecordContext { node: *place as u32, at_ms: now_ms, detail: self.detail };
            if with_json {
                plain.push(packed::plain(context, sent, seen.now()));
            }
            packer.get_or_insert_with(|| Packer::new(self.detail)).node(context, sent, seen.now());
        }
        (packer.map(|packer| packer.finish(self.nodes.len())), plain)
    }
}

/// Where each node stands.
fn places(nodes: &[SentNode]) -> HashMap<NodeName, usize> {
    nodes.iter().enumerate().map(|(place, node)| (node.name.clone(), place)).collect()
}

/// What a topic tells beside its nodes, as it is now.
fn beside(topic: &Topic, eyes: &Eyes, fleet: &Fleet, at_ms: u64) -> Picture {
    if *topic != Topic::Overview {
        return Picture { at_ms, ..Picture::default() };
    }
    Picture {
        at_ms,
        relay: eyes.status(fleet),
        jobs: eyes.jobs(fleet),
        audit_log: eyes.deeds(fleet).to_vec(),
        sharing: eyes.sharing(fleet),
        nodes: Vec::new(),
    }
}

/// A past, as long as there is room; it is not even copied when there is none.
fn within(room: &mut usize, past: impl FnOnce() -> Option<History>) -> Option<Option<History>> {
    if *room == 0 {
        return None;
    }
    let past = past();
    *room = room.saturating_sub(past.as_ref().map_or(0, History::encoded_len));
    Some(past)
}

/// Where something is in a list, looked for from a place on that is most often the right one.
fn find<T>(list: &[T], from: usize, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    let places = (from..list.len()).chain(0..from.min(list.len()));
    places.into_iter().find(|place| is_it(&list[*place]))
}

#[cfg(test)]
mod tests;
