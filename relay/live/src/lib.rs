//! Publishes the fleet to subscribers: each gets a snapshot of its topics, then deltas.
//!
//! Through the [`Hub`], a [`Subscriber`] sends a [`HubRequest`] to the event loop, which encodes frames with one [`TopicFeed`] for each
//! topic and visibility, and puts them into the subscriber's [`Mailbox`].

mod feed;
mod mailbox;

pub use feed::{Encoded, TopicFeed};
pub use mailbox::Mailbox;

use bytes::Bytes;
use mailbox::Mail;
use nodeglass_api::{Losses, OwnLoad, ProbeStatus};
use nodeglass_fleet::{Fleet, NoteChange};
use nodeglass_history::{LongHistory, RangeSource};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::{MAX_TOPICS, Topic};
use nodeglass_protocol::note::{Note, NoteId, NoteRequest};
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::share::{Scope, Share};
use nodeglass_protocol::{JobId, Picture, Text};
use nodeglass_report::JobRecord;
use nodeglass_share::Viewer;
use nodeglass_store::StoredNotes;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Sampling interval of nodes without a subscriber of their own while there are subscribers, in ms; without any, nodes are
/// sampled more rarely.
pub const OVERVIEW_INTERVAL_MS: u32 = 2_000;
/// Capacity of the request channel.
const REQUESTS: usize = 256;
/// Time limit for storing a note, after which it counts as not stored.
const STORE_LIMIT: Duration = Duration::from_secs(5);

/// Handle to the event loop. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Hub {
    requests: mpsc::Sender<HubRequest>,
    /// Unbounded because `Drop` cannot wait; limited by the number of subscribers.
    departures: mpsc::UnboundedSender<u64>,
}

/// Response to a request that the relay can no longer handle.
pub const SHUTTING_DOWN: &str = "the relay is shutting down";

/// Requests to the event loop.
#[derive(Debug)]
pub enum HubRequest {
    /// Registers a subscriber.
    Join {
        /// The form of the frames.
        form: Form,
        /// For whom it is.
        viewer: Viewer,
        /// Receives the frames.
        mailbox: Arc<Mailbox>,
        /// Receives the id of the subscriber.
        id: oneshot::Sender<u64>,
    },
    /// Replaces the topics of a subscriber.
    SetTopics {
        /// The id of the subscriber.
        subscriber: u64,
        /// All topics that it wants.
        topics: Vec<Topic>,
        /// Receives the time that the event loop spent on it.
        done: oneshot::Sender<Duration>,
    },
    /// Sends a topic's snapshot again.
    Resync {
        /// The id of the subscriber.
        subscriber: u64,
        /// The topic.
        topic: Topic,
        /// Receives the time that the event loop spent on it.
        done: oneshot::Sender<Duration>,
    },
    /// Sends snapshots to a subscriber that lags.
    CatchUp {
        /// The id of the subscriber.
        subscriber: u64,
    },
    /// Sends the next part of the pending history.
    More {
        /// The id of the subscriber.
        subscriber: u64,
    },
    /// Selects long-term history for a subscriber.
    Range {
        /// The id of the subscriber.
        subscriber: u64,
        /// The query of the graphs.
        query: RangeQuery,
        /// Receives the answer.
        reply: oneshot::Sender<Option<RangeSource>>,
    },
    /// Returns the current snapshot of a topic.
    Picture {
        /// The topic.
        topic: Topic,
        /// For whom it is.
        viewer: Viewer,
        /// The form of the frames.
        form: Form,
        /// Receives the answer.
        reply: oneshot::Sender<Option<Bytes>>,
    },
    /// Returns all that a viewer may see, without history.
    Everything {
        /// For whom it is.
        viewer: Viewer,
        /// Receives the answer.
        reply: oneshot::Sender<(Box<Picture>, Duration)>,
    },
    /// Selects long-term history for a viewer without a subscription.
    VisibleRange {
        /// For whom it is.
        viewer: Viewer,
        /// The query of the graphs.
        query: RangeQuery,
        /// Receives the answer.
        reply: oneshot::Sender<Option<RangeSource>>,
    },
    /// Returns the jobs that a viewer may see.
    Jobs {
        /// For whom it is.
        viewer: Viewer,
        /// Receives the answer.
        reply: oneshot::Sender<Vec<Job>>,
    },
    /// Returns the jobs of a user.
    JobsOf {
        /// The user.
        user: Text,
        /// Receives the answer.
        reply: oneshot::Sender<Vec<Job>>,
    },
    /// Returns the current state of a job.
    Job {
        /// The job.
        id: JobId,
        /// Receives the answer.
        reply: oneshot::Sender<Option<Job>>,
    },
    /// Returns what a job used.
    Usage {
        /// The job.
        id: JobId,
        /// For whom it is.
        viewer: Viewer,
        /// Receives the answer.
        reply: oneshot::Sender<Option<UsageInputs>>,
    },
    /// Returns what each connected probe uses.
    ProbeUsages {
        /// Receives the answer.
        reply: oneshot::Sender<Vec<ProbeStatus>>,
    },
    /// Returns what was lost on connections and disks.
    Losses {
        /// Receives the answer.
        reply: oneshot::Sender<Losses>,
    },
    /// Returns what limits the relay itself.
    OwnLoad {
        /// Receives the answer.
        reply: oneshot::Sender<OwnLoad>,
    },
    /// Returns whether the job list is known and current.
    JobsHealth {
        /// Receives the answer.
        reply: oneshot::Sender<JobsHealth>,
    },
    /// Returns the notes in memory.
    Notes {
        /// The job, or all.
        job: Option<JobId>,
        /// For whom it is.
        viewer: Viewer,
        /// Receives the answer.
        reply: oneshot::Sender<Vec<Note>>,
    },
    /// Adds, changes or deletes a note.
    Note {
        /// The change.
        request: NoteRequest,
        /// The stored notes that another relay may have changed.
        stored: Option<StoredNotes>,
        /// Receives the answer.
        reply: oneshot::Sender<Result<ChangedNote, Text>>,
    },
    /// Describes what a scope names and the relay does not watch.
    Unwatched {
        /// The scope.
        scope: Scope,
        /// Receives the answer.
        reply: oneshot::Sender<Option<Text>>,
    },
    /// Returns whether all jobs of a scope have ended.
    HasEnded {
        /// The scope.
        scope: Scope,
        /// Receives the answer.
        reply: oneshot::Sender<Option<bool>>,
    },
    /// Returns whether a share of jobs is over.
    IsOver {
        /// The share.
        share: Box<Share>,
        /// Receives the answer.
        reply: oneshot::Sender<Option<bool>>,
    },
    /// Replaces the fleet by one of another time.
    Replace {
        /// The other fleet.
        fleet: Box<Fleet>,
        /// Resolves once it is replaced.
        done: oneshot::Sender<()>,
    },
    /// States that the stored history is still being read.
    Restoring,
    /// Enters the stored history.
    Restored {
        /// The history; `None` if it cannot be read.
        history: Option<Box<LongHistory>>,
    },
}

impl Hub {
    /// Creates a hub, and what the event loop receives from it: requests, and the ids of subscribers
    /// that left.
    pub fn channel() -> (Self, mpsc::Receiver<HubRequest>, mpsc::UnboundedReceiver<u64>) {
        let (requests, request_rx) = mpsc::channel(REQUESTS);
        let (departures, departure_rx) = mpsc::unbounded_channel();
        (Self { requests, departures }, request_rx, departure_rx)
    }

    /// Sends a request and waits for its response; `None` if the relay is shutting down.
    async fn ask<T>(&self, request: impl FnOnce(oneshot::Sender<T>) -> HubRequest) -> Option<T> {
        let (reply, response) = oneshot::channel();
        self.requests.send(request(reply)).await.ok()?;
        response.await.ok()
    }

    /// Registers a subscriber; `None` if the relay is shutting down.
    pub async fn join(&self, form: Form, viewer: Viewer) -> Option<Subscriber> {
        let mailbox = Arc::new(Mailbox::default());
        let (id, joined) = oneshot::channel();
        self.requests.send(HubRequest::Join { form, viewer, mailbox: mailbox.clone(), id }).await.ok()?;
        Some(Subscriber { id: joined.await.ok()?, mailbox, hub: self.clone() })
    }

    /// Returns the current snapshot of a topic for a viewer; `None` if the topic does not exist.
    pub async fn picture(&self, topic: Topic, viewer: Viewer, form: Form) -> Option<Bytes> {
        self.ask(|reply| HubRequest::Picture { topic, viewer, form, reply }).await?
    }

    /// All that a viewer may see, without history, and the time that the event loop spent on it; `None` if the relay
    /// is shutting down.
    pub async fn everything(&self, viewer: Viewer) -> Option<(Box<Picture>, Duration)> {
        self.ask(|reply| HubRequest::Everything { viewer, reply }).await
    }

    /// Returns long-term history for a viewer without a subscription, to be read outside of the event loop; `None` if
    /// the topic does not exist.
    pub async fn range(&self, viewer: Viewer, query: RangeQuery) -> Option<RangeSource> {
        self.ask(|reply| HubRequest::VisibleRange { viewer, query, reply }).await?
    }

    /// The current state of a job; `None` if it is not in the list.
    pub async fn job(&self, id: JobId) -> Option<Job> {
        self.ask(|reply| HubRequest::Job { id, reply }).await?
    }

    /// The jobs that a viewer may see; `None` if the relay is shutting down.
    pub async fn jobs(&self, viewer: Viewer) -> Option<Vec<Job>> {
        self.ask(|reply| HubRequest::Jobs { viewer, reply }).await
    }

    /// The jobs of a user; `None` if the relay is shutting down.
    pub async fn jobs_of(&self, user: Text) -> Option<Vec<Job>> {
        self.ask(|reply| HubRequest::JobsOf { user, reply }).await
    }

    /// Replaces the fleet by one of another time; every viewer gets new snapshots.
    pub async fn replace(&self, fleet: Fleet) {
        let (done, replaced) = oneshot::channel();
        if self.requests.send(HubRequest::Replace { fleet: Box::new(fleet), done }).await.is_ok() {
            let _ = replaced.await;
        }
    }

    /// States for the owner that the stored history is still being read.
    pub async fn restoring_history(&self) {
        // It fails only while the relay shuts down.
        let _ = self.requests.send(HubRequest::Restoring).await;
    }

    /// Enters the stored history, once it has been read; `None` if it cannot be.
    pub async fn restore_history(&self, history: Option<LongHistory>) {
        // As above.
        let _ = self.requests.send(HubRequest::Restored { history: history.map(Box::new) }).await;
    }

    /// Returns the usage of a job for a viewer; `None` if the viewer may not see it.
    pub async fn usage(&self, id: JobId, viewer: Viewer) -> Option<UsageInputs> {
        self.ask(|reply| HubRequest::Usage { id, viewer, reply }).await?
    }

    /// Returns the resource usage of each connected probe, by node; `None` if the relay is shutting down.
    pub async fn probe_usages(&self) -> Option<Vec<ProbeStatus>> {
        self.ask(|reply| HubRequest::ProbeUsages { reply }).await
    }

    /// Returns what was lost on connections and disks; `None` if the relay is shutting down.
    pub async fn losses(&self) -> Option<Losses> {
        self.ask(|reply| HubRequest::Losses { reply }).await
    }

    /// Returns what limits the relay itself; `None` if it is shutting down.
    pub async fn own_load(&self) -> Option<OwnLoad> {
        self.ask(|reply| HubRequest::OwnLoad { reply }).await
    }

    /// Returns whether the job list is known and current; `None` if the relay is shutting down.
    pub async fn jobs_health(&self) -> Option<JobsHealth> {
        self.ask(|reply| HubRequest::JobsHealth { reply }).await
    }

    /// Returns the notes in memory that a viewer may see, by time, or only the notes of `job`. `None` if the relay is
    /// shutting down.
    pub async fn notes(&self, job: Option<JobId>, viewer: Viewer) -> Option<Vec<Note>> {
        self.ask(|reply| HubRequest::Notes { job, viewer, reply }).await
    }

    /// Adds, changes or deletes a note; returns the change, and whether it is stored. `stored` are the notes that
    /// another relay may have changed.
    ///
    /// # Errors
    /// The reason, a complete sentence.
    pub async fn note(
        &self,
        request: NoteRequest,
        stored: Option<StoredNotes>,
    ) -> Result<(NoteChange, bool), Text> {
        let changed = self.ask(|reply| HubRequest::Note { request, stored, reply }).await;
        let ChangedNote { change, stored } = changed.unwrap_or_else(|| Err(SHUTTING_DOWN.into()))?;
        let Some(acknowledged) = stored else { return Ok((change, false)) };
        match timeout(STORE_LIMIT, acknowledged).await {
            Ok(Ok(deleted)) if deleted.contains(&change.id()) => {
                Err(format!("note {} was deleted by another relay", change.id()).into())
            }
            acknowledged => Ok((change, acknowledged.is_ok_and(|acknowledged| acknowledged.is_ok()))),
        }
    }

    /// Describes what a scope names and the relay does not watch; `None` if it watches all of it.
    pub async fn unwatched(&self, scope: Scope) -> Option<Text> {
        let unwatched = self.ask(|reply| HubRequest::Unwatched { scope, reply }).await;
        unwatched.unwrap_or_else(|| Some(SHUTTING_DOWN.into()))
    }

    /// Returns whether all jobs of a scope have ended; `None` unless the job list is fresh.
    pub async fn has_ended(&self, scope: Scope) -> Option<bool> {
        self.ask(|reply| HubRequest::HasEnded { scope, reply }).await?
    }

    /// Returns whether a share of jobs has ended with them, or because SLURM uses the number of one again; `None` if that is
    /// unknown, because the job list is not fresh.
    pub async fn is_over(&self, share: Share) -> Option<bool> {
        self.ask(|reply| HubRequest::IsOver { share: Box::new(share), reply }).await?
    }
}

/// Inputs of the report of a job's usage.
#[derive(Debug)]
pub struct UsageInputs {
    /// Its sums, while it runs; the sums of an ended job are stored.
    pub running: Option<JobRecord>,
    /// The job as a guest sees it; `None` for the owner, who sees all of it.
    pub visible: Option<Job>,
    /// Its notes that the viewer may see, of those in memory.
    pub notes: Vec<Note>,
}

/// A change of a note that pages see already.
#[derive(Debug)]
pub struct ChangedNote {
    /// The change.
    pub change: NoteChange,
    /// Resolves once it is stored; `None` if that cannot even begin.
    pub stored: Option<oneshot::Receiver<Vec<NoteId>>>,
}

/// A registered subscriber; dropping it unsubscribes.
#[derive(Debug)]
pub struct Subscriber {
    id: u64,
    mailbox: Arc<Mailbox>,
    hub: Hub,
}

impl Subscriber {
    /// Subscribes to these topics, at most [`MAX_TOPICS`]. Completes once a snapshot of each new topic is
    /// queued, so that a client that subscribes repeatedly without reading cannot pile them up. Returns
    /// the time that the relay spent on it.
    pub async fn set_topics(&mut self, mut topics: Vec<Topic>) -> Duration {
        topics.sort();
        topics.dedup();
        topics.truncate(MAX_TOPICS);
        let (done, cost) = oneshot::channel();
        let _ = self.hub.requests.send(HubRequest::SetTopics { subscriber: self.id, topics, done }).await;
        cost.await.unwrap_or_default()
    }

    /// Requests a topic's snapshot again; otherwise like [`Subscriber::set_topics`].
    pub async fn resync(&mut self, topic: Topic) -> Duration {
        let (done, cost) = oneshot::channel();
        let _ = self.hub.requests.send(HubRequest::Resync { subscriber: self.id, topic, done }).await;
        cost.await.unwrap_or_default()
    }

    /// Returns long-term history of a topic, to be read outside of the event loop; `None` if the topic does not
    /// exist.
    pub async fn range(&self, query: RangeQuery) -> Option<RangeSource> {
        let (reply, response) = oneshot::channel();
        self.hub.requests.send(HubRequest::Range { subscriber: self.id, query, reply }).await.ok()?;
        response.await.ok()?
    }

    /// The next frame to send, if one is queued.
    pub fn try_next(&mut self) -> Option<Bytes> {
        self.mailbox.try_next()
    }

    /// The next frame to send; `None` on shutdown. Cancel safe.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.mailbox.next().await {
                Mail::Frame(frame) => return Some(frame),
                Mail::Lagging => self.request(HubRequest::CatchUp { subscriber: self.id }),
                Mail::More => self.request(HubRequest::More { subscriber: self.id }),
                Mail::Closed => return None,
            }
        }
    }
}

impl Subscriber {
    /// Spawned rather than awaited: the request must not be lost if the caller is cancelled while the
    /// queue is full.
    fn request(&self, request: HubRequest) {
        let requests = self.hub.requests.clone();
        tokio::spawn(async move { requests.send(request).await });
    }
}

impl Drop for Subscriber {
    fn drop(&mut self) {
        let _ = self.hub.departures.send(self.id);
    }
}

#[cfg(any(test, feature = "test-support"))]
impl Subscriber {
    /// Reads frames until it is notified that it lags, without a request for snapshots.
    pub async fn read_until_lagging(&mut self) {
        while !matches!(self.mailbox.next().await, Mail::Lagging) {}
    }

    /// Requests the snapshots that [`Subscriber::next`] would request now.
    pub async fn catch_up(&self) {
        self.hub
            .requests
            .send(HubRequest::CatchUp { subscriber: self.id })
            .await
            .expect("the event loop runs");
    }
}
