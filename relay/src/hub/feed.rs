//! A feed turns what changed in the fleet into the next delta of one topic, encoded once for everyone who looks.

use crate::fleet::{Changes, Fleet, NodeChanges};
use crate::share::{Eyes, Seen};
use bytes::Bytes;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::detail::Detail;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{Change, Delta, NodeVitals, Pasts, ServerMessage, Snapshot, Topic, Vitals};
use nodeglass_protocol::packed::{self, Packer, Place};
use nodeglass_protocol::picture::{NodePicture, Past, Picture, ProcessPicture};
use std::collections::VecDeque;
use std::sync::Arc;

/// One topic that somebody looks at: what its viewers know, and the number of the last delta.
#[derive(Debug)]
pub struct TopicFeed {
    topic: Topic,
    eyes: Eyes,
    number: u32,
    detail: Detail,
    seq: u32,
    /// What viewers know, without the past.
    sent: Picture,
    /// Whether it tells of nodes as they are; otherwise of a job's last picture, which nothing changes.
    live: bool,
    /// How many bytes of pasts go into one frame, about.
    room: usize,
    /// The topic as a whole in the two forms, if somebody came since the last delta: for the next who comes.
    kept: [Kept; 2],
}

/// A topic as a whole, encoded.
#[derive(Debug, Default)]
struct Kept {
    /// For one who stays, with the nodes whose past he is owed.
    entrance: Option<(Bytes, Arc<[NodeName]>)>,
    /// For one who looks once.
    whole: Option<Bytes>,
}

/// What is told of a node that viewers do not know.
const EVERYTHING: NodeChanges = NodeChanges {
    fresh: true,
    head: true,
    gpus: true,
    // Comes with the GPUs.
    health: false,
    processes: true,
    uses: true,
    cores: true,
    past: true,
    sampled: false,
};

/// What may be others in sight when the job list changed.
const RESETTLED: NodeChanges = NodeChanges {
    fresh: false,
    head: true,
    gpus: true,
    health: false,
    processes: true,
    uses: true,
    cores: false,
    past: false,
    sampled: false,
};

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
        let detail = Detail::of(&topic);
        let sent = picture(&topic, &eyes, detail, fleet, now_ms)?;
        let live = fleet.is_live(&topic);
        Some(Self { topic, eyes, number, detail, seq: 0, sent, live, room, kept: Default::default() })
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

    /// What viewers know, with so many bytes of pasts, about, and the nodes whose past had no room. It is not copied:
    /// it is written as it stands here.
    fn snapshot(&mut self, fleet: &Fleet, form: Form, mut room: usize) -> Option<(Bytes, Vec<NodeName>)> {
        let seen = self.eyes.nodes(fleet, &self.topic).filter(|_| !self.is_gone(fleet))?;
        let mut owed = Vec::new();
        for (place, node) in self.sent.nodes.iter_mut().enumerate() {
            let now = find(&seen, place, |now| *now.name() == node.name).map(|place| &seen[place]);
            match within(&mut room, || self.detail.past(now.and_then(Seen::past).as_deref())) {
                Some(past) => node.past = past,
                None => owed.push(node.name.clone()),
            }
        }
        let mut message = ServerMessage::Snapshot(Box::new(Snapshot {
            topic: self.topic.clone(),
            number: self.number,
            seq: self.seq,
            picture: std::mem::take(&mut self.sent),
        }));
        let frame = Bytes::from(form.encode(&message));
        if let ServerMessage::Snapshot(snapshot) = &mut message {
            self.sent = std::mem::take(&mut snapshot.picture);
        }
        self.sent.nodes.iter_mut().for_each(|node| node.past = None);
        Some((frame, owed))
    }

    /// As many of the pasts that a viewer is owed as fit one frame; `None` when there is none of them any more.
    /// They are as new as the fleet is: a sample in them that was not told yet is told again by the next delta.
    pub fn pasts(&self, fleet: &Fleet, form: Form, owed: &mut VecDeque<NodeName>) -> Option<Bytes> {
        let seen = self.eyes.nodes(fleet, &self.topic).unwrap_or_default();
        let (mut nodes, mut room, mut place) = (Vec::new(), self.room, 0);
        while room > 0
            && let Some(name) = owed.pop_front()
        {
            // What viewers do not know yet is told them when they hear of it.
            let Some(known) = find(&self.sent.nodes, place, |node| node.name == name) else { continue };
            place = known;
            let past = find(&seen, place, |node| *node.name() == name).and_then(|now| seen[now].past());
            let Some(past) = self.detail.past(past.as_deref()) else { continue };
            room = room.saturating_sub(past.told_bytes());
            nodes.push((known as u32, past));
        }
        let pasts = Pasts { topic: self.number, nodes };
        (!pasts.nodes.is_empty()).then(|| Bytes::from(form.encode(&ServerMessage::Pasts(pasts))))
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
        let nodes = eyes.nodes(fleet, &self.topic)?;
        self.live = fleet.is_live(&self.topic);
        let elapsed_ms = u32::try_from(now_ms.saturating_sub(self.sent.at_ms)).unwrap_or(u32::MAX);
        let now_ms = self.sent.at_ms + u64::from(elapsed_ms);
        let (told, new) = self.tell_rare(fleet, changes, &nodes);
        let (packed, plain) = self.tell_vitals(changes, &nodes, now_ms, with_json);
        let (pasts, owed) = self.tell_pasts(&new, changes, &nodes);
        if told.is_empty() && packed.is_none() && pasts.is_empty() {
            return None;
        }
        self.kept = Default::default();
        self.sent.at_ms = now_ms;
        self.seq = self.seq.wrapping_add(1);
        let encode = |form: Form, vitals: Option<Vitals>| {
            let mut changes = told.clone();
            changes.extend(vitals.map(Change::Vitals));
            changes.extend(pasts.iter().cloned());
            let delta = Delta { topic: self.number, seq: self.seq, elapsed_ms, changes };
            Bytes::from(form.encode(&ServerMessage::Delta(delta)))
        };
        let json = with_json.then(|| encode(Form::Json, packed.is_some().then_some(Vitals::Plain(plain))));
        let binary = encode(Form::Binary, packed.map(Vitals::Packed));
        Some(Encoded { binary, json, owed })
    }

    /// Whether the topic no longer exists.
    pub fn is_gone(&self, fleet: &Fleet) -> bool {
        !self.eyes.have(fleet, &self.topic)
    }

    /// Job list, figures, membership, heads, GPUs, processes; and for each node whether it is new.
    fn tell_rare(
        &mut self,
        fleet: &Fleet,
        changes: &Changes,
        nodes: &[Seen<'_>],
    ) -> (Vec<Change>, Vec<bool>) {
        let mut told = Vec::new();
        if self.topic == Topic::Overview {
            self.tell_of_the_relay(fleet, changes, &mut told);
        }
        self.drop_replaced(changes, &mut told);
        let mut new = self.tell_membership(nodes, &mut told);
        // What a guest may see of a node depends on which jobs there are.
        let resettled = changes.jobs && self.eyes.are_a_guests();
        for (index, now) in nodes.iter().enumerate() {
            let what = if new[index] { EVERYTHING } else { self.noted(changes, now) };
            let what = if resettled { what.and(RESETTLED) } else { what };
            let regrouped = self.tell_node(index, now, what, &mut told);
            // A past is told by the positions of GPUs.
            new[index] |= regrouped;
        }
        (told, new)
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
            sent.deeds = self.eyes.deeds(fleet).to_vec();
            told.push(Change::Deeds(sent.deeds.clone()));
        }
        if changes.sharing && !self.eyes.are_a_guests() {
            sent.sharing = self.eyes.sharing(fleet);
            told.push(Change::Sharing(sent.sharing.clone()));
        }
    }

    /// What the fleet noted of a node, as far as it concerns this topic.
    fn noted(&self, changes: &Changes, node: &Seen<'_>) -> NodeChanges {
        let noted = self.live.then(|| changes.nodes.get(node.name())).flatten();
        noted.copied().unwrap_or_default()
    }

    /// Drops nodes of which nothing known holds any more: they left and came back, or a job's live
    /// nodes gave way to its last picture or the other way round.
    fn drop_replaced(&mut self, changes: &Changes, told: &mut Vec<Change>) {
        // Most of the time nothing of the kind happened, and looking costs a search per node.
        if !changes.jobs && !changes.membership {
            return;
        }
        let switched = matches!(self.topic, Topic::Job(id) if changes.switched.contains(&id));
        let replaced =
            |sent: &NodePicture| switched || changes.nodes.get(&sent.name).is_some_and(|node| node.fresh);
        let before = self.sent.nodes.len();
        self.sent.nodes.retain(|sent| !replaced(sent));
        if self.sent.nodes.len() != before {
            told.push(Change::Nodes(self.sent.nodes.iter().map(|node| node.name.clone()).collect()));
        }
    }

    /// Tells which nodes there are, if that changed; returns for each whether it is new.
    fn tell_membership(&mut self, nodes: &[Seen<'_>], told: &mut Vec<Change>) -> Vec<bool> {
        let same = self.sent.nodes.len() == nodes.len()
            && self.sent.nodes.iter().zip(nodes).all(|(sent, now)| sent.name == *now.name());
        if same {
            return vec![false; nodes.len()];
        }
        let mut old = std::mem::take(&mut self.sent.nodes);
        let mut new = Vec::with_capacity(nodes.len());
        for now in nodes {
            let known = old.iter().position(|node| node.name == *now.name());
            new.push(known.is_none());
            self.sent.nodes.push(match known {
                Some(index) => old.swap_remove(index),
                None => NodePicture::new(now.name().clone()),
            });
        }
        told.push(Change::Nodes(nodes.iter().map(|node| node.name().clone()).collect()));
        new
    }

    /// Tells what was noted of a node; returns whether its GPUs are others than before.
    fn tell_node(
        &mut self,
        index: usize,
        seen: &Seen<'_>,
        what: NodeChanges,
        told: &mut Vec<Change>,
    ) -> bool {
        let sent = &mut self.sent.nodes[index];
        if (NodeChanges { sampled: false, ..what }) == NodeChanges::default() {
            return false;
        }
        let (now, node) = (seen.now(), index as u32);
        // Which GPUs a guest sees follows from owners and processes, and how they are linked stands in the head.
        let may_differ = what.head || self.eyes.are_a_guests();
        if may_differ && sent.head != now.head {
            sent.head.clone_from(&now.head);
            told.push(Change::Head { node, head: Box::new(now.head.clone()) });
        }
        let regrouped = !same(&sent.gpus, &now.gpus, |a, b| a.facts.uuid == b.facts.uuid);
        let gpus = what.gpus || regrouped;
        if gpus {
            sent.gpus = self.detail.gpus(&now.gpus);
            told.push(Change::Gpus { node, gpus: sent.gpus.clone() });
        }
        if self.detail == Detail::Glance {
            return regrouped;
        }
        if what.health && !gpus {
            let changed = self.detail.health_changes(&mut sent.gpus, &now.gpus);
            if !changed.is_empty() {
                told.push(Change::Health { node, changed });
            }
        }
        let one =
            |a: &ProcessPicture, b: &ProcessPicture| a.facts.pid == b.facts.pid && a.facts.gpu == b.facts.gpu;
        if what.processes || !same(&sent.processes, &now.processes, one) {
            sent.processes.clone_from(&now.processes);
            told.push(Change::Processes { node, processes: now.processes.clone() });
        }
        if what.uses || !same(&sent.uses, &now.uses, |a, b| a.job == b.job) {
            sent.uses.clone_from(&now.uses);
            told.push(Change::Uses { node, uses: now.uses.clone() });
        }
        if self.detail == Detail::Close && what.cores && sent.cores != now.cores {
            sent.cores.clone_from(&now.cores);
            told.push(Change::Cores { node, cores: now.cores.clone() });
        }
        regrouped
    }

    /// The pasts that are not the last one plus a sample, and the nodes of those that have no room. They come last:
    /// what a viewer entered itself on the way is replaced by the truth.
    fn tell_pasts(
        &self,
        new: &[bool],
        changes: &Changes,
        nodes: &[Seen<'_>],
    ) -> (Vec<Change>, Vec<NodeName>) {
        let (mut told, mut owed, mut room) = (Vec::new(), Vec::new(), self.room);
        for (index, (now, new)) in nodes.iter().zip(new).enumerate() {
            if !new && !self.noted(changes, now).past {
                continue;
            }
            match within(&mut room, || self.detail.past(now.past().as_deref())) {
                Some(past) => told.push(Change::Past { node: index as u32, past }),
                None => owed.push(now.name().clone()),
            }
        }
        (told, owed)
    }

    /// Cells of the nodes that were sampled, in both forms.
    fn tell_vitals(
        &mut self,
        changes: &Changes,
        nodes: &[Seen<'_>],
        now_ms: u64,
        with_json: bool,
    ) -> (Option<Vec<u8>>, Vec<NodeVitals>) {
        let (mut packer, mut plain) = (None, Vec::new());
        for (index, now) in nodes.iter().enumerate() {
            let Some(_) = now.sampled_at_ms() else { continue };
            let noted = self.noted(changes, now).sampled;
            let sent = &mut self.sent.nodes[index];
            // A node that joined this topic, or whose frozen picture replaced the live one, was sampled too.
            if !noted && sent.sampled_at_ms == now.sampled_at_ms() {
                continue;
            }
            let place = Place { node: index as u32, at_ms: now_ms, detail: self.detail };
            if with_json {
                plain.push(packed::plain(place, sent, now.now()));
            }
            packer.get_or_insert_with(|| Packer::new(self.detail)).node(place, sent, now.now());
            sent.sampled_at_ms = now.sampled_at_ms();
        }
        (packer.map(|packer| packer.finish(nodes.len())), plain)
    }
}

/// A topic as it is now, without pasts.
fn picture(topic: &Topic, eyes: &Eyes, detail: Detail, fleet: &Fleet, at_ms: u64) -> Option<Picture> {
    let nodes = eyes.nodes(fleet, topic)?.iter().map(|seen| detail.view(seen.now())).collect();
    if *topic != Topic::Overview {
        return Some(Picture { at_ms, nodes, ..Picture::default() });
    }
    Some(Picture {
        at_ms,
        relay: eyes.status(fleet),
        jobs: eyes.jobs(fleet),
        deeds: eyes.deeds(fleet).to_vec(),
        sharing: eyes.sharing(fleet),
        nodes,
    })
}

/// A past, as long as there is room; it is not even copied when there is none.
fn within(room: &mut usize, past: impl FnOnce() -> Option<Past>) -> Option<Option<Past>> {
    if *room == 0 {
        return None;
    }
    let past = past();
    *room = room.saturating_sub(past.as_ref().map_or(0, Past::told_bytes));
    Some(past)
}

/// Where something is in a list, looked for from a place on that is most often the right one.
fn find<T>(list: &[T], from: usize, is_it: impl Fn(&T) -> bool) -> Option<usize> {
    let places = (from..list.len()).chain(0..from.min(list.len()));
    places.into_iter().find(|place| is_it(&list[*place]))
}

/// Whether two lists are of the same things in the same order.
fn same<T>(known: &[T], now: &[T], one: impl Fn(&T, &T) -> bool) -> bool {
    known.len() == now.len() && known.iter().zip(now).all(|(known, now)| one(known, now))
}

#[cfg(test)]
mod tests;
