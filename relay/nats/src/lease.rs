//! Leases: which relay runs the probe of a node, in a key-value bucket of JetStream.
//!
//! Each relay that may run probes renews one key; its leases are valid while it does. A node's key holds the relay that runs
//! the probe there, and is taken by compare-and-swap. Each relay measures the age of others' renewals by its own monotonic
//! clock, so that no clocks are compared. Where the servers give no leases, the announcements of relays decide.

mod renewals;

use super::connection::{Bus, Connection};
use super::message::{ClusterName, RelayId, node_of, token};
use super::others::Others;
use super::relays::Relays;
use async_nats::jetstream::{self, kv};
use futures_util::{StreamExt, stream};
use nodeglass_protocol::{NodeName, Text};
use renewals::{Renewals, Renewed};
use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

/// Time between two renewals of a relay.
const RENEW: Duration = Duration::from_secs(1);
/// Time from the last renewal that arrived until other relays take over. It exceeds [`renewals::FENCE`] by the time that probes take to stop.
const EXPIRE: Duration = Duration::from_millis(5_500);
/// Time between two renewals of the keys of nodes.
const RENEW_NODES: Duration = Duration::from_secs(60);
/// Number of replicas of the bucket in a cluster of at least as many servers: with three, one may fail.
const REPLICAS: usize = 3;
/// Maximum number of keys of nodes that are renewed at a time.
const RENEWALS: usize = 16;
/// Maximum age of a key, after which the server deletes those of a dead relay.
const MAX_AGE: Duration = Duration::from_secs(300);
/// Time limit for one operation.
const LIMIT: Duration = Duration::from_secs(2);
/// Time at the start for which a relay waits for the servers before it goes on without them, and from the connection on for a
/// lease before it goes on without leases. It exceeds the time between two announcements.
const START_LIMIT: Duration = Duration::from_secs(3);
/// Maximum number of attempts to take a key that others take as well.
const ATTEMPTS: usize = 3;
/// The key of the controller whose cluster has this name.
const CONTROLLER: &str = "controller";

/// Whether this relay may run probes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Standing {
    /// It has not reached the servers yet, and waits for a moment.
    Starting,
    /// The servers cannot be reached, and no other relay of this cluster is known: it runs all probes that it needs.
    Alone,
    /// The servers give no leases: it runs the probes of nodes that no other relay announces. Without a connection, the
    /// last announcements count.
    Unleased,
    /// It holds leases.
    Member,
    /// The servers cannot be reached, and other relays may run its probes by now.
    Fenced,
    /// Another cluster has this one's name: it shares nothing, and runs all probes that it needs.
    Foreign,
}

/// The right to run the probe of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This relay runs it.
    Ours,
    /// Another relay does.
    Others,
    /// The owner is not known while the servers cannot be reached; retry later.
    Unknown,
}

/// The leases of this relay. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Leases {
    bus: Bus,
    cluster: ClusterName,
    bucket: String,
    /// The first controller of this relay's SLURM.
    controller: Option<Text>,
    shared: Arc<Mutex<Shared>>,
    standing: watch::Sender<Standing>,
    /// States that another cluster has this one's name.
    conflict: watch::Sender<Option<Text>>,
    /// States why there are no leases.
    problem: watch::Sender<Option<Text>>,
    /// The other relays that announce themselves.
    announced: watch::Receiver<Relays>,
}

#[derive(Default)]
struct Shared {
    store: Option<kv::Store>,
    /// When the current state of the bucket was read.
    read_at: Option<Instant>,
    /// The controller of another cluster that holds the name in the bucket.
    rival: Option<Text>,
    /// When this cluster's controller was last found there.
    named_at: Option<Instant>,
    /// Other relays, by their last renewal.
    relays: BTreeMap<RelayId, Instant>,
    /// The relay of each node, and the revision of its key.
    owners: BTreeMap<NodeName, (RelayId, u64)>,
    /// The nodes of this relay.
    own: BTreeSet<NodeName>,
    /// Announcements of other relays; only while there are no leases.
    others: Others,
}

impl Leases {
    /// Starts to renew; `cluster` names the bucket.
    pub(crate) fn start(
        bus: Bus,
        cluster: ClusterName,
        controller: Option<Text>,
        announced: watch::Receiver<Relays>,
    ) -> Self {
        let leases = Self {
            bus,
            bucket: format!("nodeglass-v1-{cluster}"),
            cluster,
            controller,
            shared: Arc::default(),
            standing: watch::channel(Standing::Starting).0,
            conflict: watch::channel(None).0,
            problem: watch::channel(None).0,
            announced,
        };
        tokio::spawn(leases.clone().renew());
        tokio::spawn(leases.clone().follow());
        tokio::spawn(leases.clone().follow_announcements());
        leases
    }

    /// Whether this relay may run probes.
    pub(crate) fn standing(&self) -> watch::Receiver<Standing> {
        self.standing.subscribe()
    }

    /// States that another cluster has this one's name, while one has; a complete sentence.
    pub(crate) fn conflict(&self) -> watch::Receiver<Option<Text>> {
        self.conflict.subscribe()
    }

    /// States why there are no leases, and what follows; a complete sentence.
    pub(crate) fn problem(&self) -> watch::Receiver<Option<Text>> {
        self.problem.subscribe()
    }

    /// Claims the right to run the probe of a node.
    pub(crate) async fn claim(&self, node: &NodeName) -> Claim {
        let mut standing = self.standing.subscribe();
        let settled = standing.wait_for(|standing| *standing != Standing::Starting);
        // It ends in any case: `renew` leaves the first state.
        let _ = timeout(2 * START_LIMIT, settled).await;
        let standing = *self.standing.borrow();
        match standing {
            Standing::Unleased if self.is_of_others(node) => Claim::Others,
            Standing::Alone | Standing::Unleased | Standing::Foreign => {
                self.shared().own.insert(node.clone());
                Claim::Ours
            }
            Standing::Starting | Standing::Fenced => Claim::Unknown,
            Standing::Member => match timeout(2 * LIMIT, self.take(node)).await {
                Ok(claim) => claim,
                Err(_) => Claim::Unknown,
            },
        }
    }

    /// Gives a node up, so that other relays need not wait.
    pub(crate) async fn release(&self, node: &NodeName) {
        let (store, revision) = {
            let mut shared = self.shared();
            shared.own.remove(node);
            let id = self.bus.id;
            let held =
                shared.owners.get(node).filter(|(owner, _)| *owner == id).map(|(_, revision)| *revision);
            (shared.store.clone(), held)
        };
        if let (Some(store), Some(revision)) = (store, revision) {
            // Without it, the key expires.
            let key = key(node);
            let deleted = timeout(LIMIT, store.delete_expect_revision(key, Some(revision))).await;
            if let Ok(Ok(())) = deleted {
                let mut shared = self.shared();
                if shared.owners.get(node).is_some_and(|(_, current)| *current == revision) {
                    shared.owners.remove(node);
                }
            }
        }
    }

    /// Gives up the nodes whose keys this relay had before it stopped its probes.
    async fn release_all(self) {
        let held: Vec<_> = {
            let shared = self.shared();
            let held = shared.owners.iter().filter(|(_, (owner, _))| *owner == self.bus.id);
            held.map(|(node, _)| node.clone()).collect()
        };
        let leases = &self;
        stream::iter(held)
            .for_each_concurrent(RENEWALS, |node| async move { leases.release(&node).await })
            .await;
    }

    /// Gives all up, at the end of this relay.
    pub(crate) async fn leave(&self) {
        let (store, nodes) = {
            let shared = self.shared();
            (shared.store.clone(), shared.own.clone())
        };
        for node in nodes {
            self.release(&node).await;
        }
        if let Some(store) = store {
            let _ = timeout(LIMIT, store.delete(relay_key(self.bus.id))).await;
        }
    }

    /// Whether another relay holds the lease of a node, and is alive; without leases, whether one announces it that this
    /// relay gives way to.
    pub(crate) fn is_of_others(&self, node: &NodeName) -> bool {
        let standing = *self.standing.borrow();
        if standing == Standing::Unleased {
            let shared = self.shared();
            return shared.others.watches(node, self.bus.id, shared.own.contains(node));
        }
        if standing == Standing::Foreign {
            return false;
        }
        let owner = self.shared().owners.get(node).map(|(owner, _)| *owner);
        owner.is_some_and(|owner| owner != self.bus.id && self.is_alive(owner))
    }

    /// Takes the key of a node by compare-and-swap.
    async fn take(&self, node: &NodeName) -> Claim {
        let Some(store) = self.shared().store.clone() else { return Claim::Unknown };
        for _ in 0..ATTEMPTS {
            let entry = match store.entry(key(node)).await {
                Ok(entry) => entry.filter(|entry| entry.operation == kv::Operation::Put),
                Err(_) => return Claim::Unknown,
            };
            let value = self.bus.id.to_string().into();
            let revision = match entry {
                None => store.create(key(node), value).await.ok(),
                Some(entry) => match owner(&entry.value) {
                    Some(owner) if owner != self.bus.id && self.is_alive(owner) => {
                        let mut shared = self.shared();
                        shared.owners.insert(node.clone(), (owner, entry.revision));
                        // The bucket may not have been read so far, and the servers may be lost before.
                        shared.relays.entry(owner).or_insert_with(Instant::now);
                        return Claim::Others;
                    }
                    _ => store.update(key(node), value, entry.revision).await.ok(),
                },
            };
            if let Some(revision) = revision {
                let mut shared = self.shared();
                shared.owners.insert(node.clone(), (self.bus.id, revision));
                shared.own.insert(node.clone());
                return Claim::Ours;
            }
        }
        Claim::Unknown
    }

    /// Returns whether another relay renewed its key recently. An unknown one counts as alive until the bucket has been
    /// watched for [`EXPIRE`].
    fn is_alive(&self, relay: RelayId) -> bool {
        let shared = self.shared();
        let since = shared.relays.get(&relay).copied().or(shared.read_at);
        since.is_none_or(|at| at.elapsed() < EXPIRE)
    }

    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Renews this relay's key, and decides what it may do.
    async fn renew(self) {
        let began = Instant::now();
        let mut renewals = Renewals::default();
        let mut up_since = None;
        let mut nodes_at = Instant::now();
        let mut renewing: Option<JoinHandle<()>> = None;
        let mut tick = interval(RENEW);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let at = Instant::now();
            let renewed = timeout(RENEW, self.renew_once()).await;
            let renewed = renewed.unwrap_or_else(|_| Err(self.late()));
            up_since = up_since.or(Some(at)).filter(|_| self.bus.is_up());
            let lasts = |since: Instant| since.elapsed() >= START_LIMIT;
            let why = match renewed {
                Ok(()) => {
                    if renewals.succeeded(at, *self.standing.borrow() == Standing::Fenced) {
                        tokio::spawn(self.clone().release_all());
                    }
                    Text::default()
                }
                Err(why) => {
                    let mut shared = self.shared();
                    // Another cluster may take the name before the next renewal.
                    shared.named_at = None;
                    // The bucket may have gone with a server's storage.
                    if shared.rival.is_none() {
                        shared.store = None;
                    }
                    why
                }
            };
            let standing = match renewals.state() {
                _ if self.shared().rival.is_some() => Standing::Foreign,
                Some(Renewed::Valid) => Standing::Member,
                Some(Renewed::Returning) => Standing::Fenced,
                Some(Renewed::Over) => self.without_servers(),
                None if up_since.is_some_and(lasts) => self.without_leases(),
                None if up_since.is_some() => self.with_first_contact(),
                None if lasts(began) => self.without_contact(),
                None => Standing::Starting,
            };
            self.settle(standing, &why);
            let is_renewing = renewing.as_ref().is_some_and(|renewing| !renewing.is_finished());
            let is_due = nodes_at.elapsed() >= RENEW_NODES && !is_renewing;
            if is_due && *self.standing.borrow() == Standing::Member {
                nodes_at = Instant::now();
                renewing = Some(tokio::spawn(self.clone().renew_nodes()));
            }
        }
    }

    /// The reason for the lack of a lease if nothing was answered in time.
    fn late(&self) -> Text {
        match self.bus.is_up() {
            // A server that cannot write does not respond at all.
            true => {
                "the server does not store them in time: see its log, and the space on the disk of JetStream"
                    .into()
            }
            false => "not connected".into(),
        }
    }

    /// Changes what this relay may do; `why` is the reason for the lack of a lease.
    fn settle(&self, standing: Standing, why: &Text) {
        let rival = (standing == Standing::Foreign).then(|| self.rival()).flatten();
        let conflict = rival.and_then(|rival| self.conflict_with(&rival));
        self.conflict.send_if_modified(|now| std::mem::replace(now, conflict.clone()) != conflict);
        let changed = self.standing.send_if_modified(|now| std::mem::replace(now, standing) != standing);
        let is_stated = self.problem.borrow().is_some();
        // The reason may differ from one attempt to the next; it is stated once.
        if changed || !is_stated {
            let problem = self.problem_of(standing, why);
            self.problem.send_if_modified(|now| std::mem::replace(now, problem.clone()) != problem);
        }
    }

    /// The consequence of the lack of a lease, a complete sentence.
    fn problem_of(&self, standing: Standing, why: &Text) -> Option<Text> {
        let problem = match standing {
            Standing::Fenced => format!(
                "leases cannot be renewed over NATS ({why}), and other relays of this cluster may watch its nodes by now: \
                 this relay has stopped its probes until they can be renewed"
            ),
            // A lost connection is stated as such.
            Standing::Alone if self.bus.is_up() && !why.is_empty() => format!(
                "leases cannot be renewed over NATS ({why}): this relay goes on, because it knows no other of this cluster"
            ),
            Standing::Unleased => {
                let denied = self.bus.denied.borrow();
                let remedy = match denied.find(&["$JS.", "$KV.", "_INBOX."]) {
                    Some(denied) => {
                        format!("permit these credentials to {denied}, for the bucket {}", self.bucket)
                    }
                    None if is_off(why) => "turn JetStream on".to_owned(),
                    None => format!("see the log of the server about the bucket {}", self.bucket),
                };
                format!(
                    "NATS gives no leases ({why}): nodes that another relay announces are viewed through it, and are taken over \
                     later than with leases; {remedy}"
                )
            }
            Standing::Starting | Standing::Alone | Standing::Member | Standing::Foreign => return None,
        };
        Some(Text::new(problem))
    }

    /// The controller of the other cluster that has this one's name.
    fn rival(&self) -> Option<Text> {
        let by_bucket = self.shared().rival.clone();
        let has_name = *self.standing.borrow() == Standing::Unleased;
        by_bucket.or_else(|| self.announced.borrow().rival(has_name).cloned())
    }

    fn conflict_with(&self, rival: &Text) -> Option<Text> {
        let (own, cluster) = (self.controller.as_ref()?, &self.cluster);
        Some(Text::new(format!(
            "another cluster, with the controller {rival}, has the name {cluster} on NATS: this relay, for the controller {own}, shares \
             nothing; give it another name (--nats-cluster) or a NATS account of its own"
        )))
    }

    /// The rule for a relay that never had a lease, and has had a connection for a while.
    fn without_leases(&self) -> Standing {
        if self.rival().is_some() { Standing::Foreign } else { Standing::Unleased }
    }

    /// The rule for a relay that never had a lease, and was just connected: it shares nothing before it knows who else does.
    fn with_first_contact(&self) -> Standing {
        match *self.standing.borrow() {
            Standing::Alone => Standing::Starting,
            standing => standing,
        }
    }

    /// The rule for a relay that never had a lease, and has no connection.
    fn without_contact(&self) -> Standing {
        match *self.standing.borrow() {
            Standing::Starting => Standing::Alone,
            standing => standing,
        }
    }

    /// The rule for a loss of the servers: a relay that knows of others gives up its nodes.
    fn without_servers(&self) -> Standing {
        if self.shared().relays.is_empty() { Standing::Alone } else { Standing::Fenced }
    }

    async fn renew_once(&self) -> Result<(), Text> {
        if !self.bus.is_up() {
            return Err("not connected".into());
        }
        let store = match self.store().await {
            Ok(store) => store,
            Err(why) => {
                // Without a bucket, announcements decide.
                self.shared().rival = None;
                return Err(why);
            }
        };
        self.hold_name(&store).await?;
        let renewed = store.put(relay_key(self.bus.id), "".into()).await;
        renewed.map(drop).map_err(|error| error.to_string().into())
    }

    /// Takes or renews the key of the cluster's controller.
    ///
    /// # Errors
    /// If another cluster has it, or the servers do not answer.
    async fn hold_name(&self, store: &kv::Store) -> Result<(), Text> {
        let Some(own) = &self.controller else { return Ok(()) };
        if self.shared().named_at.is_some_and(|at| at.elapsed() < RENEW_NODES) {
            return Ok(());
        }
        let entry = store.entry(CONTROLLER).await.map_err(|error| error.to_string())?;
        let value = own.to_string().into();
        match entry.filter(|entry| entry.operation == kv::Operation::Put) {
            Some(entry) if entry.value != own.as_str() => {
                let rival = Text::new(String::from_utf8_lossy(&entry.value));
                let why = format!("{rival} has the name of this cluster");
                self.shared().rival = Some(rival);
                return Err(why.into());
            }
            // Another relay of this cluster may renew it at the same time.
            Some(entry) => drop(store.update(CONTROLLER, value, entry.revision).await),
            None => drop(store.create(CONTROLLER, value).await.map_err(|error| error.to_string())?),
        }
        let mut shared = self.shared();
        (shared.rival, shared.named_at) = (None, Some(Instant::now()));
        Ok(())
    }

    /// The bucket, which the first relay creates.
    async fn store(&self) -> Result<kv::Store, Text> {
        if let Some(store) = self.shared().store.clone() {
            return Ok(store);
        }
        let context = jetstream::new(self.bus.client.clone());
        let store = match context.get_key_value(self.bucket.clone()).await {
            Ok(store) => {
                if self.replicas() > 1 {
                    replicate(&context, &store).await;
                }
                store
            }
            Err(_) => self.create(&context).await?,
        };
        self.shared().store = Some(store.clone());
        Ok(store)
    }

    /// Number of replicas to request. A server that is alone accepts more for a bucket that exists, and then cannot read it
    /// any more when it starts.
    fn replicas(&self) -> usize {
        if self.bus.client.server_info().cluster.is_some() { REPLICAS } else { 1 }
    }

    /// Creates the bucket: the stream that it is. The client's own way asks for the account first, and cannot read the answer
    /// of a server 2.9.
    async fn create(&self, context: &jetstream::Context) -> Result<kv::Store, Text> {
        let stream = jetstream::stream::Config {
            name: format!("KV_{}", self.bucket),
            description: Some("Which relay of nodeglass runs the probe of a node".to_owned()),
            subjects: vec![format!("$KV.{}.>", self.bucket)],
            max_messages_per_subject: 1,
            max_age: MAX_AGE,
            max_message_size: 1_024,
            max_bytes: 8 << 20,
            discard: jetstream::stream::DiscardPolicy::New,
            allow_rollup: true,
            deny_delete: true,
            allow_direct: true,
            num_replicas: self.replicas(),
            ..jetstream::stream::Config::default()
        };
        // Another relay may have created it at the same time.
        let mut created = context.create_stream(stream.clone()).await;
        if created.is_err() {
            // One of two servers.
            created = context.create_stream(jetstream::stream::Config { num_replicas: 1, ..stream }).await;
        }
        let created = created.map_err(|error| error.to_string());
        let store = context.get_key_value(self.bucket.clone()).await;
        store.map_err(|error| created.err().unwrap_or_else(|| error.to_string()).into())
    }

    /// Renews the keys of this relay's nodes, so that they do not expire, and takes those that it ran while alone.
    async fn renew_nodes(self) {
        let own: Vec<_> = self.shared().own.iter().cloned().collect();
        let leases = &self;
        let take = |node| async move { drop(timeout(2 * LIMIT, leases.take(&node)).await) };
        stream::iter(own).for_each_concurrent(RENEWALS, take).await;
    }

    /// Follows the announcements of other relays until there are leases.
    async fn follow_announcements(self) {
        let mut announced = self.announced.clone();
        let mut tick = interval(RENEW);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                changed = announced.changed() => if changed.is_err() {
                    return;
                },
                _ = tick.tick() => if self.bus.is_up() {
                    self.shared().others.second(&announced.borrow());
                },
            }
            match *self.standing.borrow() {
                Standing::Member | Standing::Fenced | Standing::Foreign => {
                    self.shared().others = Others::default()
                }
                _ => self.shared().others.update(&announced.borrow_and_update()),
            }
        }
    }

    /// Follows the bucket.
    async fn follow(self) {
        loop {
            let mut state = self.bus.state.clone();
            let store = self.shared().store.clone();
            if let Some(store) = store
                && let Ok(mut changes) = store.watch_with_history(">").await
            {
                self.shared().read_at = Some(Instant::now());
                // A server that restarts forgets who watches. The client notices that by missing heartbeats, which takes longer
                // than the leases last.
                let mut lost = pin!(state.wait_for(|state| *state != Connection::Up));
                loop {
                    let entry = tokio::select! {
                        _ = &mut lost => break,
                        entry = changes.next() => entry,
                    };
                    let Some(Ok(entry)) = entry else { break };
                    self.handle(&entry);
                }
            }
            sleep(RENEW).await;
        }
    }

    fn handle(&self, entry: &kv::Entry) {
        let is_put = entry.operation == kv::Operation::Put;
        let mut shared = self.shared();
        if let Some(relay) = entry.key.strip_prefix("relay.").and_then(|id| id.parse().ok()) {
            if is_put && relay != self.bus.id {
                shared.relays.insert(relay, Instant::now());
                shared.relays.retain(|_, at| at.elapsed() < MAX_AGE);
            } else {
                shared.relays.remove(&relay);
            }
        } else if let Some(node) = entry.key.strip_prefix("node.").and_then(node_of) {
            match owner(&entry.value).filter(|_| is_put) {
                Some(owner) => drop(shared.owners.insert(node, (owner, entry.revision))),
                None => drop(shared.owners.remove(&node)),
            }
        }
    }
}

/// Returns whether an error is that of a server without JetStream, or of an account without it.
fn is_off(why: &Text) -> bool {
    let why = why.as_str().to_ascii_lowercase();
    ["no responders", "not enabled", "jetstream is not", "not available"]
        .iter()
        .any(|sign| why.contains(sign))
}

/// Raises the replicas of an existing bucket to [`REPLICAS`]. A cluster of fewer servers refuses that, and the bucket stays
/// as it is.
async fn replicate(context: &jetstream::Context, store: &kv::Store) {
    let config = &store.stream.cached_info().config;
    if config.num_replicas < REPLICAS {
        let wanted = jetstream::stream::Config { num_replicas: REPLICAS, ..config.clone() };
        if let Err(error) = context.update_stream(&wanted).await {
            tracing::debug!(%error, "NATS keeps the leases on fewer servers");
        }
    }
}

fn key(node: &NodeName) -> String {
    format!("node.{}", token(node))
}

fn relay_key(relay: RelayId) -> String {
    format!("relay.{relay}")
}

/// The relay that a node's key holds.
fn owner(value: &[u8]) -> Option<RelayId> {
    str::from_utf8(value).ok()?.parse().ok()
}
