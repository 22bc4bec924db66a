//! The hub lets subscribers in and brings each the topics it looks at: subscribe first, then the whole, then the changes.

mod core;
mod feed;
mod mailbox;

pub use self::core::{Core, CoreOptions, Inputs};
pub use feed::{Encoded, TopicFeed};

use crate::share::Viewer;
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

/// How many requests of subscribers may wait for the core.
const REQUESTS: usize = 256;

/// The way in for subscribers. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub {
    requests: mpsc::Sender<Request>,
    /// Leaving must not wait; it is bounded by the number of subscribers.
    departures: mpsc::UnboundedSender<u64>,
}

/// What a subscriber asks of the core.
#[derive(Debug)]
enum Request {
    Join { form: Form, viewer: Viewer, mailbox: Arc<Mailbox>, id: oneshot::Sender<u64> },
    SetTopics { subscriber: u64, topics: Vec<Topic>, done: oneshot::Sender<Duration> },
    Resync { subscriber: u64, topic: Topic, done: oneshot::Sender<Duration> },
    CatchUp { subscriber: u64 },
    More { subscriber: u64 },
    Picture { topic: Topic, viewer: Viewer, form: Form, reply: oneshot::Sender<Option<Bytes>> },
    Job { id: JobId, reply: oneshot::Sender<Option<Job>> },
    Unwatched { scope: Scope, reply: oneshot::Sender<Option<Text>> },
    HasEnded { scope: Scope, reply: oneshot::Sender<Option<bool>> },
}

impl Hub {
    /// Lets a subscriber in; `None` when the relay is ending.
    pub async fn join(&self, form: Form, viewer: Viewer) -> Option<Subscriber> {
        let mailbox = Arc::new(Mailbox::default());
        let (id, joined) = oneshot::channel();
        self.requests.send(Request::Join { form, viewer, mailbox: mailbox.clone(), id }).await.ok()?;
        Some(Subscriber { id: joined.await.ok()?, mailbox, hub: self.clone() })
    }

    /// One topic as it is now to these eyes, as a snapshot message; `None` when there is no such topic.
    pub async fn picture(&self, topic: Topic, viewer: Viewer, form: Form) -> Option<Bytes> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Picture { topic, viewer, form, reply }).await.ok()?;
        answer.await.ok()?
    }

    /// A job as it is now; `None` when it is not in the list.
    pub async fn job(&self, id: JobId) -> Option<Job> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::Job { id, reply }).await.ok()?;
        answer.await.ok()?
    }

    /// One sentence about what a scope names and nobody watches; `None` when all of it is watched.
    pub async fn unwatched(&self, scope: Scope) -> Option<Text> {
        let (reply, answer) = oneshot::channel();
        let gone = || Some("the relay is ending".into());
        if self.requests.send(Request::Unwatched { scope, reply }).await.is_err() {
            return gone();
        }
        answer.await.unwrap_or_else(|_| gone())
    }

    /// Whether every job of a scope has ended; `None` while the job list is not fresh.
    pub async fn has_ended(&self, scope: Scope) -> Option<bool> {
        let (reply, answer) = oneshot::channel();
        self.requests.send(Request::HasEnded { scope, reply }).await.ok()?;
        answer.await.ok()?
    }
}

/// A connected subscriber; dropping it is leaving.
#[derive(Debug)]
pub struct Subscriber {
    id: u64,
    mailbox: Arc<Mailbox>,
    hub: Hub,
}

impl Subscriber {
    /// Looks at these topics from now on, at [`MAX_TOPICS`] at most; when this returns, a snapshot of each new
    /// one lies in the mailbox. Who asks again and again without reading can so not have them pile up there.
    /// Returns how long the relay computed for it.
    pub async fn set_topics(&mut self, mut topics: Vec<Topic>) -> Duration {
        topics.sort();
        topics.dedup();
        topics.truncate(MAX_TOPICS);
        let (done, cost) = oneshot::channel();
        let _ = self.hub.requests.send(Request::SetTopics { subscriber: self.id, topics, done }).await;
        cost.await.unwrap_or_default()
    }

    /// Asks for a topic's snapshot again; the same holds.
    pub async fn resync(&mut self, topic: Topic) -> Duration {
        let (done, cost) = oneshot::channel();
        let _ = self.hub.requests.send(Request::Resync { subscriber: self.id, topic, done }).await;
        cost.await.unwrap_or_default()
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
                Mail::Behind => self.ask(Request::CatchUp { subscriber: self.id }),
                Mail::More => self.ask(Request::More { subscriber: self.id }),
                Mail::Closed => return None,
            }
        }
    }
}

impl Subscriber {
    /// Not awaited before the mailbox is asked again: a full queue must not lose the request.
    fn ask(&self, request: Request) {
        let requests = self.hub.requests.clone();
        tokio::spawn(async move { requests.send(request).await });
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.hub.departures.send(self.id);
    }
}

#[cfg(test)]
mod tests;
