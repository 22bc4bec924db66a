//! Sources of pictures: the owner's running relay, or the same parts within this process.
//!
//! Either is a task. It receives [`Order`]s and sends [`Update`]s, over channels of bounded size: a slow terminal
//! holds back the source, which then coalesces.

mod attached;
mod own;

pub use attached::Attached;
use nodeglass_protocol::live::{ServerMessage, Topic, Welcome};
use nodeglass_protocol::request::Request;
use nodeglass_protocol::version::VersionRange;
pub use own::Own;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

/// Capacity of the channel of updates.
const UPDATES: usize = 64;
/// Capacity of the channel of orders.
const ORDERS: usize = 16;

/// Order of the terminal to a source.
#[derive(Clone, Debug)]
pub enum Order {
    /// Replaces the subscribed topics.
    Subscribe(Vec<Topic>),
    /// A new snapshot of a topic.
    Resync(Topic),
    /// A request with a response.
    Request {
        /// Its number.
        number: u32,
        /// The request.
        request: Request,
    },
}

/// Update of a source.
#[derive(Debug)]
pub enum Update {
    /// It is connected; everything before is void.
    Connected(Box<Welcome>),
    /// A message of the relay.
    Message(Box<ServerMessage>),
    /// The connection is lost and is being restored.
    Lost(String),
    /// Retrying is futile.
    Ended(SourceError),
}

/// Reason for the end of a source. Messages are complete sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SourceError {
    /// The relay has no version of the wire in common with this program.
    #[error(
        "the relay (pid {pid}, version {version}) is of another version than this program ({}){}; \
         use the `relay` that it was started from, or restart it with this one",
        env!("CARGO_PKG_VERSION"), wires(.wire)
    )]
    OtherVersion {
        /// Its process id.
        pid: u32,
        /// Its version.
        version: String,
        /// The versions of the wire that it supports, if it said so.
        wire: Option<VersionRange>,
    },
    /// It refuses this user.
    #[error("the relay (pid {pid}) refuses the connection: {why}")]
    Refused {
        /// Its process id.
        pid: u32,
        /// The reason.
        why: String,
    },
}

fn wires(wire: &Option<VersionRange>) -> String {
    let own = nodeglass_protocol::version::LIVE_WIRE;
    wire.map_or_else(String::new, |wire| {
        format!(": it speaks versions {} to {} of the protocol, this program {own}", wire.min, wire.max)
    })
}

/// The terminal's end of a source.
pub struct Source {
    /// Updates; ends with the task.
    pub updates: mpsc::Receiver<Update>,
    orders: Option<mpsc::Sender<Order>>,
    task: JoinHandle<()>,
}

impl Source {
    /// Runs a source, which is given its ends of the channels.
    pub fn spawn<F: Future<Output = ()> + Send + 'static>(
        run: impl FnOnce(mpsc::Receiver<Order>, mpsc::Sender<Update>) -> F,
    ) -> Self {
        let (sender, updates) = mpsc::channel(UPDATES);
        let (orders, order_rx) = mpsc::channel(ORDERS);
        Self { updates, orders: Some(orders), task: tokio::spawn(run(order_rx, sender)) }
    }

    /// Passes on an order; returns whether there was room for it.
    pub fn send(&self, order: Order) -> bool {
        self.orders.as_ref().is_some_and(|orders| orders.try_send(order).is_ok())
    }

    /// Ends the source, and waits until what it started has ended.
    pub async fn end(mut self) {
        self.orders = None;
        self.updates.close();
        let _ = self.task.await;
    }
}
