//! Viewers: each maintains pictures of its topics as a page does, and reports what must not happen.

use nodeglass_live::{Hub, Subscriber};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_protocol::share::{Scope, ShareTerms};
use nodeglass_protocol::{JobId, NodeName, Picture, Text};
use nodeglass_share::{Viewer, Visibility};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// Maximum number of frames that wait for a viewer: deltas, and snapshots of its topics.
const MAX_FRAMES: usize = 512 + 32;

/// What a viewer looks at.
#[derive(Clone, Debug)]
pub struct Interest {
    pub viewer: Viewer,
    pub form: Form,
    pub topics: Vec<Topic>,
}

impl Interest {
    /// The interests of all viewers: the owner in both forms, and a guest.
    pub fn all() -> [Self; super::history::VIEWERS] {
        let of = |viewer: &Viewer, form, topics: &[Topic]| {
            let topics = topics.iter().cloned().chain([Topic::Overview]).collect();
            Self { viewer: viewer.clone(), form, topics }
        };
        let terms = ShareTerms {
            label: Text::default(),
            scope: Scope::Jobs(vec![JobId(2)]),
            hidden: Default::default(),
            to: None,
            expires_ms: u64::MAX,
            ends_with_job: false,
        };
        let guest = Viewer::Restricted(Arc::new(Visibility::new(&terms, "alice".into())));
        let node = NodeName::new(super::history::node_name(3)).expect("it is a name");
        [
            of(&Viewer::Owner, Form::Binary, &[Topic::Job(JobId(1))]),
            of(&Viewer::Owner, Form::Json, &[]),
            of(&Viewer::Owner, Form::Binary, &[Topic::Job(JobId(2)), Topic::Node(node)]),
            of(&guest, Form::Binary, &[Topic::Job(JobId(2))]),
        ]
    }
}

/// What a viewer has received.
#[derive(Debug, Default)]
pub struct Seen {
    /// Topics by their number.
    pub topics: BTreeMap<u32, Followed>,
    /// Deltas that it was told to have missed.
    pub missed: u64,
    /// What must not happen.
    pub violations: Vec<String>,
    is_blind: bool,
}

/// A topic of a viewer.
#[derive(Debug)]
pub struct Followed {
    pub topic: Topic,
    pub seq: u32,
    pub picture: Picture,
    is_behind: bool,
}

/// A connected viewer. Dropping it closes its connection.
pub struct TestViewer {
    seen: Arc<Mutex<Seen>>,
    /// Whether it does not read at present.
    pause: watch::Sender<bool>,
    task: JoinHandle<()>,
}

impl TestViewer {
    /// Connects to a relay; `None` if that ends. If it `is_blind`, it ignores the changes of deltas.
    pub async fn join(hub: &Hub, interest: &Interest, is_blind: bool) -> Option<Self> {
        let mut subscriber = hub.join(interest.form, interest.viewer.clone()).await?;
        subscriber.set_topics(interest.topics.clone()).await;
        let seen = Arc::new(Mutex::new(Seen { is_blind, ..Seen::default() }));
        let (pause, paused) = watch::channel(false);
        let task = tokio::spawn(follow(subscriber, interest.form, seen.clone(), paused));
        Some(Self { seen, pause, task })
    }

    /// What it has received.
    pub fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets it stop reading, or continue.
    pub fn set_paused(&self, is_paused: bool) {
        self.pause.send_if_modified(|before| std::mem::replace(before, is_paused) != is_paused);
    }
}

impl Drop for TestViewer {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn follow(
    mut subscriber: Subscriber,
    form: Form,
    seen: Arc<Mutex<Seen>>,
    mut pause: watch::Receiver<bool>,
) {
    let apply = |frame: &[u8]| seen.lock().unwrap_or_else(PoisonError::into_inner).apply(form, frame);
    loop {
        if *pause.borrow_and_update() {
            if pause.wait_for(|is_paused| !is_paused).await.is_err() {
                return;
            }
            let mut waiting = 0;
            while let Some(frame) = subscriber.try_next() {
                waiting += 1;
                apply(&frame);
            }
            if waiting > MAX_FRAMES {
                let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
                seen.violations.push(format!("{waiting} frames waited for it"));
            }
        }
        tokio::select! {
            biased;
            _ = pause.changed() => {}
            frame = subscriber.next() => match frame {
                Some(frame) => apply(&frame),
                None => return,
            }
        }
    }
}

/// A digest of all frames that viewers received, by which two runs are compared.
static DIGEST: AtomicU64 = AtomicU64::new(0);

/// The digest of the frames so far.
pub fn frames_digest() -> u64 {
    DIGEST.load(Ordering::Relaxed)
}

fn digest(frame: &[u8]) {
    let fold = |digest: u64, byte: &u8| (digest ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    DIGEST.store(frame.iter().fold(frames_digest(), fold), Ordering::Relaxed);
}

impl Seen {
    fn apply(&mut self, form: Form, frame: &[u8]) {
        digest(frame);
        match form.decode(frame) {
            Ok(message) => self.take(message),
            Err(error) => self.violations.push(format!("it cannot read a frame: {error}")),
        }
    }

    fn take(&mut self, message: ServerMessage) {
        match message {
            ServerMessage::Snapshot(snapshot) => {
                self.topics.retain(|_, followed| followed.topic != snapshot.topic);
                let followed = Followed {
                    topic: snapshot.topic,
                    seq: snapshot.seq,
                    picture: snapshot.picture,
                    is_behind: false,
                };
                self.topics.insert(snapshot.number, followed);
            }
            ServerMessage::Delta(delta) => {
                let Some(known) = self.topics.get_mut(&delta.topic).filter(|known| !known.is_behind) else {
                    return;
                };
                if delta.seq != known.seq.wrapping_add(1) {
                    let gap = format!("{:?}: delta {} follows {}", known.topic, delta.seq, known.seq);
                    return self.violations.push(gap);
                }
                known.seq = delta.seq;
                if self.is_blind {
                    return;
                }
                if let Err(error) = known.picture.apply(&delta, |_| ()) {
                    self.violations.push(format!("{:?}: a delta does not apply: {error}", known.topic));
                }
            }
            ServerMessage::Histories(histories) => {
                let Some(known) = self.topics.get_mut(&histories.topic).filter(|known| !known.is_behind)
                else {
                    return;
                };
                if let Err(error) = known.picture.apply_histories(histories, |_| ()) {
                    self.violations.push(format!("{:?}: a history does not apply: {error}", known.topic));
                }
            }
            ServerMessage::Gone(topic) => self.topics.retain(|_, followed| followed.topic != topic),
            ServerMessage::Lagged { missed } => {
                self.missed += u64::from(missed);
                self.topics.values_mut().for_each(|followed| followed.is_behind = true);
            }
            ServerMessage::Bye(_) => {}
            other => self.violations.push(format!("it received {other:?}")),
        }
    }
}
