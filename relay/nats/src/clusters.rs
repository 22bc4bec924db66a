//! Clusters that one relay views together.

use super::connection::Bus;
use super::jobs::{RemoteJobs, follow};
use super::message::{self, Announcement, ClusterName, Subjects};
use super::names::Names;
use super::relays::GONE;
use super::viewer::Viewer;
use async_nats::{Message, Subscriber};
use async_trait::async_trait;
use futures_util::StreamExt;
use nodeglass_launch::{LaunchError, Launcher, NodeStream};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::version::PROBE_WIRE;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Capacity of the channel of joined lists.
const CHANGES: usize = 16;

/// The viewed clusters. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Clusters {
    bus: Bus,
    shared: Arc<Mutex<Shared>>,
    changes: mpsc::Sender<(usize, RemoteJobs)>,
}

#[derive(Default)]
struct Shared {
    names: Names,
    /// By the number of the cluster.
    viewers: Vec<Viewer>,
}

impl Clusters {
    /// Starts to view clusters: the named ones, or all that publish.
    pub(crate) fn start(bus: Bus, named: &[ClusterName]) -> (Self, watch::Receiver<RemoteJobs>) {
        let (changes, changed) = mpsc::channel(CHANGES);
        let clusters = Self { bus, shared: Arc::default(), changes };
        named.iter().for_each(|name| clusters.add(name));
        if named.is_empty() {
            tokio::spawn(clusters.clone().discover());
        }
        let (joined, jobs) = watch::channel(RemoteJobs::default());
        tokio::spawn(clusters.clone().join(changed, joined));
        (clusters, jobs)
    }

    /// Views one more cluster, unless it is viewed already or too many are.
    fn add(&self, name: &ClusterName) {
        let mut shared = self.shared();
        let Some(number) = shared.names.add(name) else { return };
        let bus = self.bus.of(name);
        let viewer = Viewer::start(bus.clone(), true, None);
        tokio::spawn(follow(bus, name.clone(), viewer.relays(), number, self.changes.clone()));
        shared.viewers.push(viewer);
    }

    /// Adds each cluster for which a relay announces itself.
    async fn discover(self) {
        let mut announcements: Subscriber = self.bus.subscribed(Subjects::of_all().announcements()).await;
        while let Some(message) = announcements.next().await {
            if let Some(cluster) = announced(&message) {
                self.add(&cluster);
            }
        }
    }

    /// Joins what the clusters have whenever it changes.
    async fn join(self, mut changed: mpsc::Receiver<(usize, RemoteJobs)>, joined: watch::Sender<RemoteJobs>) {
        loop {
            tokio::select! {
                change = changed.recv() => {
                    let Some((cluster, now)) = change else { return };
                    let now = {
                        let names = &mut self.shared().names;
                        names.set(cluster, now);
                        names.joined()
                    };
                    joined.send_if_modified(|before| std::mem::replace(before, now.clone()) != now);
                }
                () = sleep(GONE), if joined.borrow().jobs.is_none() && self.shared().viewers.is_empty() => {
                    let why = self.bus.lost().unwrap_or_else(|| "no relay publishes a cluster over NATS".into());
                    let none = Err(why);
                    joined.send_replace(RemoteJobs { jobs: Some(none), ..RemoteJobs::default() });
                }
            }
        }
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The cluster of an announcement of this version.
fn announced(message: &Message) -> Option<ClusterName> {
    let cluster = message.subject.split('.').nth(2)?.parse().ok()?;
    let announcement: Announcement = message::parse(&message.payload)?;
    (announcement.wire == PROBE_WIRE).then_some(cluster)
}

/// Receives all nodes from other relays.
#[async_trait]
impl Launcher for Clusters {
    fn name(&self) -> &'static str {
        "nats"
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let found = {
            let shared = self.shared();
            let found = shared.names.find(node);
            found.and_then(|(cluster, node)| Some((shared.viewers.get(*cluster)?.clone(), node.clone())))
        };
        let Some((viewer, node)) = found else {
            return Err(LaunchError::Unreachable {
                why: format!("no relay publishes {node} over NATS").into(),
            });
        };
        viewer.launch(&node).await
    }

    fn rename_jobs(&self, node: &NodeName, line: &mut ParsedLine) {
        self.shared().names.rename_jobs(node, line);
    }
}
