//! The hub lets viewers in and brings each the topics it looks at: subscribe first, then the whole, then the changes.

mod core;
mod feed;
mod mailbox;

pub use self::core::{Core, CoreOptions, Inputs};
pub use feed::{Encoded, TopicFeed};

use crate::share::Eyes;
use bytes::Bytes;
use mailbox::{Mail, Mailbox};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::{MAX_TOPICS, Topic};
use nodeglass_protocol::share::Scope;
use nodeglass_protocol::{JobId, Text};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};

/// How many requests of viewers may wait for the core.
const REQUESTS: usize = 256;

/// The way in for viewers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub {
    requests: mpsc::Sender<Request>,
    /// Leaving must not wait; it is bounded by the number of viewers.
    departures: mpsc::UnboundedSender<u64>,
}

/// What a viewer asks of the core.
#[derive(Debug)]
enum Request {
    Enter { form: Form, eyes: Eyes, mailbox: Arc<Mailbox>, id: oneshot::Sender<u64> },
    Look { viewer: u64, topics: Vec<Topic>, done: oneshot::Sender<Duration> },
    Resync { viewer: u64, topic: Topic, done: oneshot::Sender<Duration> },
    CatchUp { viewer: u64 },
    More { viewer: u64 },
    Picture { topic: Topic, eyes: Eyes, form: Form, reply: oneshot::Sender<Option<Bytes>> },
    Job { id: JobId, reply: oneshot::Sender<Option<Job>> },
    Missing { scope: Scope, reply: oneshot::Sender<Option<Text>> },
    Over { scope: Scope, reply: oneshot::Sender<Option<bool>> },
}

impl Hub {
    /// Lets a viewer in; `None` when the relay is ending.
    pub async fn enter(&self, form: Form, eyes: Eyes) -> Option<Viewer> {
        let mailbox = Arc::new(Mailbox::default());
        let (id, entered) = oneshot::channel();
        self.requests.send(Request::Enter { form, eyes, mailbox: mailbox.clone(), id }).await.ok()?;
        Some(Viewer { id: entered.await.ok()?, mailbox, hub: self.clone() })
    }

    /// One topic as it is now to these eyes, as a snapshot message; `None` when there is no such topic.
    pub async fn picture(&self, topic: Topic, eyes: Eyes, form: Form) -> Option<Bytes> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Picture { topic, eyes, form, reply }).await.ok()?;
        answer.await.ok()?
    }

    /// A job as it is now; `None` when it is not in the list.
    pub async fn job(&self, id: JobId) -> Option<Job> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Job { id, reply }).await.ok()?;
        answer.await.ok()?
    }

    /// One sentence about what a scope names and nobody watches; `None` when all of it is watched.
    pub async fn missing(&self, scope: Scope) -> Option<Text> {
        let (reply, answer) = oneshot::channel();
        let gone = || Some("the relay is ending".into());
        if self.requests.send(Request::Missing { scope, reply }).await.is_err() {
            return gone();
        }
        answer.await.unwrap_or_else(|_| gone())
    }

    /// Whether every job of a scope has ended; `None` while the job list is not fresh.
    pub async fn over(&self, scope: Scope) -> Option<bool> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Over { scope, reply }).await.ok()?;
        answer.await.ok()?
    }
}

/// A connected viewer; dropping it is leaving.
#[derive(Debug)]
pub struct Viewer {
    id: u64,
    mailbox: Arc<Mailbox>,
    hub: Hub,
}

impl Viewer {
    /// Looks at these topics from now on, at [`MAX_TOPICS`] at most; when this returns, a snapshot of each new
    /// one lies in the mailbox. Who asks again and again without reading can so not have them pile up there.
    /// Returns how long the relay computed for it.
    pub async fn look(&mut self, mut topics: Vec<Topic>) -> Duration {
        topics.sort();
        topics.dedup();
        topics.truncate(MAX_TOPICS);
        let (done, carried_out) = oneshot::channel();
        let _ = self.hub.requests.send(Request::Look { viewer: self.id, topics, done }).await;
        carried_out.await.unwrap_or_default()
    }

    /// Asks for a topic's snapshot again; the same holds.
    pub async fn resync(&mut self, topic: Topic) -> Duration {
        let (done, carried_out) = oneshot::channel();
        let _ = self.hub.requests.send(Request::Resync { viewer: self.id, topic, done }).await;
        carried_out.await.unwrap_or_default()
    }

    /// The next frame to send, if there is one already.
    pub fn waiting(&mut self) -> Option<Bytes> {
        self.mailbox.waiting()
    }

    /// The next frame to send; `None` when the relay is ending. Nothing is lost when the future is dropped.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.mailbox.next().await {
                Mail::Frame(frame) => return Some(frame),
                Mail::Behind => self.ask(Request::CatchUp { viewer: self.id }),
                Mail::More => self.ask(Request::More { viewer: self.id }),
                Mail::Closed => return None,
            }
        }
    }
}

impl Viewer {
    /// Not awaited before the mailbox is asked again: a full queue must not lose the request.
    fn ask(&self, request: Request) {
        let requests = self.hub.requests.clone();
        tokio::spawn(async move { requests.send(request).await });
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        let _ = self.hub.departures.send(self.id);
    }
}

#[cfg(test)]
mod tests;
