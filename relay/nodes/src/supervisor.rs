//! Runs exactly one session for each wanted node, and for each job there that needs a probe of its own.

use super::auth_failures::{AuthFailureCache, CredentialSnapshot};
use super::connect_budget::ConnectBudget;
use super::link_log::LinkLog;
use super::probe_requests::{NODE_QUEUE_CAPACITY, unwatched};
use super::session::{Session, Target};
use super::{FromNode, JobListVersion, NodePlan, Plan, QueuedRequest, SupervisorRequest};
use async_trait::async_trait;
use nodeglass_launch::{JobLauncher, LaunchError, Launcher, NodeStream};
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::request::Response;
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_slurm::PollTrigger;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// Interval of checks for changed credentials while a session waits for them.
const CREDENTIAL_POLL_INTERVAL: Duration = Duration::from_secs(5);
/// Maximum number of probes in jobs, on all nodes: each costs an `srun` on this machine.
const MAX_JOB_PROBES: usize = 64;

/// Starts, updates and stops sessions. Dropping it kills all probes without waiting.
pub struct Supervisor {
    launcher: Arc<dyn Launcher>,
    clock: Clock,
    events: mpsc::Sender<FromNode>,
    running: BTreeMap<SessionKey, Running>,
    /// Sessions that were stopped and wait for their probes to exit.
    stopping: BTreeMap<SessionKey, JoinHandle<()>>,
    auth_failures: AuthFailureCache,
    budget: ConnectBudget,
    /// The job list that sessions know.
    job_lists: watch::Sender<JobListVersion>,
    /// The current credentials; published repeatedly while a session waits for a change.
    credentials: watch::Receiver<Option<CredentialSnapshot>>,
    watching: JoinHandle<()>,
    poll_trigger: PollTrigger,
    link_log: LinkLog,
}

/// The node of a session, and the job that its probe runs in, if it is not the node's own.
type SessionKey = (NodeName, Option<JobId>);

/// A running session; dropping it stops the session.
struct Running {
    wanted: watch::Sender<Target>,
    retry: Arc<Notify>,
    /// Whether the session waits for its next attempt or for the user.
    waits: Arc<AtomicBool>,
    requests: mpsc::Sender<QueuedRequest>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// A supervisor without sessions. `events` receives their events, in order per session; `poll_trigger`
    /// requests early polls when a session doubts the job list.
    pub fn new(
        launcher: Arc<dyn Launcher>,
        clock: Clock,
        events: mpsc::Sender<FromNode>,
        poll_trigger: PollTrigger,
    ) -> Self {
        let (running, stopping, auth_failures) =
            (BTreeMap::new(), BTreeMap::new(), AuthFailureCache::default());
        let (found, credentials) = watch::channel(None);
        let watching = tokio::spawn(watch_credentials(launcher.clone(), auth_failures.clone(), found));
        let job_lists = watch::channel(JobListVersion::default()).0;
        Self {
            launcher,
            clock,
            events,
            running,
            stopping,
            auth_failures,
            budget: ConnectBudget::default(),
            job_lists,
            credentials,
            watching,
            poll_trigger,
            link_log: LinkLog::default(),
        }
    }

    /// Follows the plan and serves requests until `ending` becomes true, then stops all probes within `limit`.
    pub async fn run(
        mut self,
        mut plan: watch::Receiver<Plan>,
        mut requests: mpsc::Receiver<SupervisorRequest>,
        mut ending: watch::Receiver<bool>,
        limit: Duration,
    ) {
        let planned = plan.borrow_and_update().clone();
        self.follow(&planned);
        loop {
            tokio::select! {
                // The plan changed, or SLURM was polled.
                changed = plan.changed() => {
                    if changed.is_err() {
                        break;
                    }
                    let planned = plan.borrow_and_update().clone();
                    self.follow(&planned);
                }
                // A question to a node, or a retry.
                Some(request) = requests.recv() => self.serve(request),
                // Shutdown.
                _ = ending.wait_for(|ending| *ending) => break,
            }
        }
        self.stop_all(limit).await;
    }

    /// Applies a plan, and wakes sessions that wait for its job list.
    pub fn follow(&mut self, plan: &Plan) {
        self.set_targets(&plan.nodes);
        // Last, so that sessions that wait for the list see its effect.
        self.job_lists.send_if_modified(|list| std::mem::replace(list, plan.list) != plan.list);
    }

    /// Serves a request of a page.
    pub fn serve(&self, request: SupervisorRequest) {
        match request {
            SupervisorRequest::Probe(queued) => self.request(queued),
            SupervisorRequest::Retry { node, reply } => drop(reply.send(self.retry(node.as_ref()))),
        }
    }

    /// Starts missing sessions, updates the others, and stops the rest.
    pub(super) fn set_targets(&mut self, nodes: &BTreeMap<NodeName, NodePlan>) {
        self.stopping.retain(|_, task| !task.is_finished());
        let is_wanted = |(node, job): &SessionKey| {
            nodes.get(node).is_some_and(|plan| job.is_none_or(|job| plan.job_probes.contains(&job)))
        };
        let unwanted: Vec<_> = self.running.keys().filter(|key| !is_wanted(key)).cloned().collect();
        for key in unwanted {
            self.stop(&key);
        }
        for (node, plan) in nodes {
            self.set_target(&(node.clone(), None), plan);
            for job in &plan.job_probes {
                self.set_target(&(node.clone(), Some(*job)), &plan.of_job(*job));
            }
        }
    }

    /// Starts the session, or updates it.
    fn set_target(&mut self, key: &SessionKey, plan: &NodePlan) {
        self.stop_if_elsewhere(key, plan);
        match self.running.get(key) {
            Some(running) if !running.task.is_finished() => {
                running.wanted.send_if_modified(|wanted| {
                    let news = wanted.plan != *plan;
                    wanted.plan.clone_from(plan);
                    news
                });
            }
            None if key.1.is_some() && self.job_probes() >= MAX_JOB_PROBES => {}
            _ => self.start(key, plan.clone()),
        }
    }

    /// Number of probes in jobs.
    fn job_probes(&self) -> usize {
        self.running.keys().filter(|(_, job)| job.is_some()).count()
    }

    /// Stops the session of a node that is reached in another way from now on, and forgets refusals: the new way may
    /// be admitted.
    fn stop_if_elsewhere(&mut self, key: &SessionKey, plan: &NodePlan) {
        let is_elsewhere = |running: &Running| running.wanted.borrow().plan.target != plan.target;
        if self.running.get(key).is_some_and(is_elsewhere) {
            self.stop(key);
            self.auth_failures.forget(&key.0);
        }
    }

    /// Forwards a request to the node's session, or refuses it.
    pub(super) fn request(&self, queued: QueuedRequest) {
        let Some(running) = self.running.get(&(queued.node.clone(), None)) else {
            let why = unwatched(&queued.node);
            return queued.refuse(why);
        };
        match running.requests.try_send(queued) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(queued)) => {
                queued.refuse("too many requests to this node at once; try again in a moment");
            }
            Err(mpsc::error::TrySendError::Closed(queued)) => queued.refuse("the link has just ended"),
        }
    }

    /// Retries a waiting node now; without a node all of them.
    pub(super) fn retry(&self, node: Option<&NodeName>) -> Response {
        let meant = self.running.iter().filter(|((name, _), _)| node.is_none_or(|node| node == name));
        let waiting: Vec<_> = meant.filter(|(_, running)| running.waits.load(Ordering::Acquire)).collect();
        waiting.iter().for_each(|(_, running)| running.retry.notify_one());
        let all: BTreeSet<_> = waiting.iter().map(|((name, _), _)| name.as_str()).collect();
        let more = all.len().saturating_sub(NAMED);
        let mut names: Vec<_> = all.into_iter().take(NAMED).collect();
        let and_more = format!("{more} more");
        names.extend((more > 0).then_some(and_more.as_str()));
        match (node, names.as_slice()) {
            (Some(node), _) if !self.running.contains_key(&(node.clone(), None)) => Response::Refused(
                format!("this relay does not watch {node}, so it has no connection to it").into(),
            ),
            (Some(node), []) => {
                Response::Refused(format!("{node} is already connected, or is being connected").into())
            }
            (None, []) => Response::Done("no node is waiting to be retried".into()),
            (_, names) => Response::Done(format!("trying {} again", names.join(", ")).into()),
        }
    }

    /// Stops all probes and waits for them to exit, at most `limit`.
    pub async fn stop_all(mut self, limit: Duration) {
        for key in self.running.keys().cloned().collect::<Vec<_>>() {
            self.stop(&key);
        }
        let deadline = Instant::now() + limit;
        for (_, mut task) in std::mem::take(&mut self.stopping) {
            if timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    /// Returns the launcher of a session's probe; `None` if there is none.
    fn launcher(&self, job: Option<JobId>) -> Option<Arc<dyn Launcher>> {
        match job {
            None => Some(Arc::clone(&self.launcher)),
            Some(job) => Some(Arc::new(InJob { launcher: self.launcher.job_launcher()?, job })),
        }
    }

    fn start(&mut self, key: &SessionKey, plan: NodePlan) {
        let (node, job) = key;
        let Some(launcher) = self.launcher(*job) else { return };
        let (wanted, plan) = watch::channel(Target { plan, stop: false });
        let (retry, waits) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (requests, request_rx) = mpsc::channel(NODE_QUEUE_CAPACITY);
        let session = Session {
            node: node.clone(),
            job: *job,
            launcher,
            clock: self.clock,
            events: self.events.clone(),
            wanted: plan,
            retry: Arc::clone(&retry),
            budget: self.budget.clone(),
            is_urgent: false,
            waits: Arc::clone(&waits),
            requests: request_rx,
            position: None,
            // A job that refuses steps says nothing about logins to its node.
            auth_failures: if job.is_none() { self.auth_failures.clone() } else { Default::default() },
            attempted_with: None,
            job_lists: self.job_lists.subscribe(),
            credentials: self.credentials.clone(),
            poll_trigger: self.poll_trigger.clone(),
            denied: 0,
            hung: false,
            long_waits: 0,
            fault: None,
            link_log: self.link_log.clone(),
        };
        // Wait for the previous probe on this node to exit first.
        let before = self.stopping.remove(key);
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            session.run().await;
        });
        self.running.insert(key.clone(), Running { wanted, retry, waits, requests, task });
    }

    fn stop(&mut self, key: &SessionKey) {
        if let Some(Running { wanted, task, .. }) = self.running.remove(key) {
            wanted.send_modify(|wanted| wanted.stop = true);
            self.stopping.insert(key.clone(), task);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// Starts the probe of one job.
struct InJob {
    launcher: Arc<dyn JobLauncher>,
    job: JobId,
}

#[async_trait]
impl Launcher for InJob {
    fn name(&self) -> &'static str {
        "srun"
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        self.launcher.launch_in(self.job, node).await
    }
}

/// Maximum number of nodes that a response names.
const NAMED: usize = 4;

/// Checks credentials while a session waits for a change.
async fn watch_credentials(
    launcher: Arc<dyn Launcher>,
    auth_failures: AuthFailureCache,
    found: watch::Sender<Option<CredentialSnapshot>>,
) {
    let mut tick = interval(CREDENTIAL_POLL_INTERVAL);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if auth_failures.has_waiters() {
            let at = Instant::now();
            let latest = launcher.login_state().await.map(|state| CredentialSnapshot { at, state });
            // Even if unchanged: retries are limited, and a node that may not be retried now may be
            // later.
            found.send_replace(latest);
        }
    }
}
