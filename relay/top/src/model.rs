//! State of the terminal: the pictures of the subscribed topics and the state of the connection. Pure.

use super::connection::Update;
use nodeglass_protocol::live::{Delta, ServerMessage, Snapshot, Topic, Welcome};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::request::Response;
use nodeglass_protocol::{NodeName, Picture};

/// State of the connection to the source.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Connection {
    /// Not connected yet.
    #[default]
    Connecting,
    /// Connected.
    Live,
    /// Lost, and being restored.
    Lost {
        /// When, in ms of the terminal's clock.
        since_ms: u64,
        /// The reason.
        why: String,
    },
}

/// The state of one topic.
#[derive(Debug)]
struct Known {
    topic: Topic,
    picture: Picture,
    number: u32,
    seq: u32,
    /// Deltas were missed, and a snapshot was requested.
    is_behind: bool,
}

/// Everything that the terminal knows.
#[derive(Debug, Default)]
pub struct Model {
    /// Parameters of the connection.
    pub welcome: Option<Box<Welcome>>,
    /// State of the connection.
    pub connection: Connection,
    known: Vec<Known>,
    /// When the welcome arrived, in ms of the terminal's clock.
    welcomed_ms: u64,
    /// Actions without a response.
    unanswered: Vec<u32>,
}

/// Effect of an update.
#[derive(Debug, PartialEq)]
pub enum Effect {
    /// The screen is to be drawn again.
    Redraw,
    /// A topic needs a new snapshot.
    Resync(Topic),
    /// The connection was lost before the response to an action.
    Unanswered,
    /// A request was answered.
    Answer(u32, Response),
    /// Nothing visible changed.
    Nothing,
}

impl Model {
    /// Applies an update, at a time of the terminal's clock.
    pub fn apply(&mut self, update: Update, at_ms: u64) -> Effect {
        match update {
            Update::Connected(welcome) => {
                self.welcome = Some(welcome);
                self.welcomed_ms = at_ms;
                self.connection = Connection::Live;
                // Their clock and their numbers are of another connection.
                self.known.clear();
                Effect::Redraw
            }
            Update::Lost(why) => {
                let since_ms = match &self.connection {
                    Connection::Lost { since_ms, .. } => *since_ms,
                    _ => at_ms,
                };
                self.connection = Connection::Lost { since_ms, why };
                if std::mem::take(&mut self.unanswered).is_empty() {
                    Effect::Redraw
                } else {
                    Effect::Unanswered
                }
            }
            Update::Message(message) => self.message(*message),
            Update::Ended(_) => Effect::Nothing,
        }
    }

    /// Notes that an action was sent, whose response is then expected.
    pub fn expect_response(&mut self, number: u32) {
        self.unanswered.push(number);
    }

    fn message(&mut self, message: ServerMessage) -> Effect {
        match message {
            ServerMessage::Snapshot(snapshot) => self.snapshot(*snapshot),
            ServerMessage::Delta(delta) => self.delta(&delta),
            ServerMessage::Histories(histories) => {
                let Some(known) = self.known.iter_mut().find(|known| known.number == histories.topic) else {
                    return Effect::Nothing;
                };
                match known.picture.apply_histories(histories, |_| ()) {
                    Ok(()) => Effect::Redraw,
                    Err(_) => known.fall_behind(),
                }
            }
            ServerMessage::Gone(topic) => {
                self.known.retain(|known| known.topic != topic);
                Effect::Redraw
            }
            ServerMessage::Lagged { .. } => {
                // Snapshots follow.
                self.known.iter_mut().for_each(|known| known.is_behind = true);
                Effect::Nothing
            }
            ServerMessage::Response { number, response } => {
                self.unanswered.retain(|unanswered| *unanswered != number);
                Effect::Answer(number, response)
            }
            _ => Effect::Nothing,
        }
    }

    fn snapshot(&mut self, snapshot: Snapshot) -> Effect {
        let Snapshot { topic, number, seq, picture } = snapshot;
        self.known.retain(|known| known.topic != topic);
        self.known.push(Known { topic, picture, number, seq, is_behind: false });
        Effect::Redraw
    }

    fn delta(&mut self, delta: &Delta) -> Effect {
        // A delta of an unsubscribed topic may still arrive.
        let Some(known) = self.known.iter_mut().find(|known| known.number == delta.topic && !known.is_behind)
        else {
            return Effect::Nothing;
        };
        if delta.seq != known.seq.wrapping_add(1) || known.picture.apply(delta, |_| ()).is_err() {
            return known.fall_behind();
        }
        known.seq = delta.seq;
        Effect::Redraw
    }

    /// Notes that a [`Effect::Resync`] could not be sent; the next delta of the topic leads to another.
    pub fn resync_was_refused(&mut self, topic: &Topic) {
        if let Some(known) = self.known.iter_mut().find(|known| known.topic == *topic) {
            known.is_behind = false;
        }
    }

    /// Forgets topics that are no longer subscribed to.
    pub fn retain(&mut self, topics: &[Topic]) {
        self.known.retain(|known| topics.contains(&known.topic));
    }

    /// The picture of a topic.
    pub fn picture(&self, topic: &Topic) -> Option<&Picture> {
        self.known.iter().find(|known| known.topic == *topic).map(|known| &known.picture)
    }

    /// The relay's clock now, given the terminal's. After the connection is lost it continues, so that values age.
    pub fn now_ms(&self, at_ms: u64) -> u64 {
        let newest = self.known.iter().map(|known| known.picture.at_ms).max().unwrap_or(0);
        let overview = self.picture(&Topic::Overview);
        if overview.is_some_and(|picture| picture.relay.replay.is_some()) {
            // A recording has its own speed, and may be paused.
            return newest;
        }
        let elapsed = at_ms.saturating_sub(self.welcomed_ms);
        newest.max(self.welcome.as_ref().map_or(0, |welcome| welcome.at_ms.saturating_add(elapsed)))
    }

    /// Seconds since 1970 at a time of the relay's clock, by the login node's.
    pub fn wall_s(&self, now_ms: u64) -> i64 {
        let wall_ms = self
            .welcome
            .as_ref()
            .map_or(0, |welcome| welcome.wall_ms.saturating_add(now_ms.saturating_sub(welcome.at_ms)));
        (wall_ms / 1_000).cast_signed()
    }

    /// Returns the content of the screen: the overview, and the details of `topic` if they are known.
    pub fn world<'a>(&'a self, detail: Option<&Topic>, at_ms: u64) -> Option<World<'a>> {
        let now_ms = self.now_ms(at_ms);
        Some(World {
            overview: self.picture(&Topic::Overview)?,
            details: detail.and_then(|topic| self.picture(topic)).into_iter().collect(),
            now_ms,
            wall_s: self.wall_s(now_ms),
        })
    }
}

impl Known {
    fn fall_behind(&mut self) -> Effect {
        self.is_behind = true;
        Effect::Resync(self.topic.clone())
    }
}

/// The pictures that a frame is made of, at one time.
#[derive(Clone, Debug)]
pub struct World<'a> {
    /// Jobs, and a summary of every node.
    pub overview: &'a Picture,
    /// Nodes in full; they replace the nodes of the overview.
    pub details: Vec<&'a Picture>,
    /// The relay's clock, in ms.
    pub now_ms: u64,
    /// Seconds since 1970.
    pub wall_s: i64,
}

impl<'a> World<'a> {
    /// A node, in full if its details are known.
    pub fn node(&self, name: &NodeName) -> Option<&'a NodePicture> {
        self.full_node(name).or_else(|| self.overview.node(name))
    }

    /// A node whose details are known: its processes and all readings.
    pub fn full_node(&self, name: &NodeName) -> Option<&'a NodePicture> {
        self.details.iter().find_map(|picture| picture.node(name))
    }

    /// All nodes, in full where details are known.
    pub fn nodes(&self) -> impl Iterator<Item = &'a NodePicture> {
        self.overview.nodes.iter().map(|node| self.full_node(&node.name).unwrap_or(node))
    }
}
