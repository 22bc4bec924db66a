//! Launchers that share probes with other relays.

use super::lease::{Claim, Leases, Standing};
use super::publisher::{ANNOUNCE_DELAY, Publisher, Starting};
use super::viewer::Viewer;
use async_trait::async_trait;
use nodeglass_launch::{JobLauncher, LaunchError, Launcher, LoginState, NodeStream};
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_protocol::{JobId, NodeName, Text};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval, sleep};

/// Interval of checks whether another relay took a node over.
const CHECK: Duration = Duration::from_secs(1);
/// Time from the announcement of a start until the probe is started, in which those of other relays arrive.
const SETTLE: Duration = ANNOUNCE_DELAY.saturating_mul(3);

/// Runs the probe of a node where this relay holds the lease, and else receives its lines from the relay that does. Without
/// leases, announcements decide.
pub(crate) struct SharedLauncher {
    pub(crate) inner: Arc<dyn Launcher>,
    pub(crate) leases: Leases,
    pub(crate) publisher: Publisher,
    pub(crate) viewer: Viewer,
}

#[async_trait]
impl Launcher for SharedLauncher {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn is_installed(&self) -> bool {
        self.inner.is_installed()
    }

    fn status(&self) -> watch::Receiver<LauncherStatus> {
        self.inner.status()
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let mut claim = self.claim(node).await;
        if claim == Claim::Others {
            self.publisher.forget_failure(node);
            let viewed = self.viewer.launch(node).await;
            if viewed.is_ok() {
                return viewed;
            }
            // The relay that watched it may have died in between.
            claim = self.claim(node).await;
            if claim == Claim::Others {
                return viewed;
            }
        }
        let _starting = self.start_announced(node).await?;
        match self.inner.launch(node).await {
            Ok(stream) => {
                let (leases, name) = (self.leases.clone(), node.clone());
                Ok(self.publisher.tap(node, stream, move || {
                    tokio::spawn(async move { leases.release(&name).await });
                }))
            }
            Err(error) => {
                self.publisher.failed(node, &Text::new(error.to_string()));
                // Another relay may reach it.
                self.leases.release(node).await;
                Err(error)
            }
        }
    }

    fn job_launcher(&self) -> Option<Arc<dyn JobLauncher>> {
        let inner = self.inner.job_launcher()?;
        Some(Arc::new(SharedJobLauncher { inner, leases: self.leases.clone() }))
    }

    async fn login_state(&self) -> Option<LoginState> {
        self.inner.login_state().await
    }
}

impl SharedLauncher {
    /// Claims a node as soon as it can be known which relay watches it: that it cannot says nothing about the node, and is stated as
    /// the problem that it is.
    async fn claim(&self, node: &NodeName) -> Claim {
        loop {
            match self.leases.claim(node).await {
                Claim::Unknown => sleep(CHECK).await,
                claim => return claim,
            }
        }
    }

    /// Announces the start of a probe. Without leases, another relay may announce the same start: then one gives way.
    async fn start_announced(&self, node: &NodeName) -> Result<Starting, LaunchError> {
        let starting = self.publisher.announce_start(node);
        if *self.leases.standing().borrow() == Standing::Unleased {
            sleep(SETTLE).await;
            if self.leases.is_of_others(node) {
                self.leases.release(node).await;
                let why = format!("another relay starts the probe of {node}");
                return Err(LaunchError::Unreachable { why: why.into() });
            }
        }
        Ok(starting)
    }
}

/// Starts probes in jobs on the nodes of this relay only.
struct SharedJobLauncher {
    inner: Arc<dyn JobLauncher>,
    leases: Leases,
}

#[async_trait]
impl JobLauncher for SharedJobLauncher {
    async fn launch_in(&self, job: JobId, node: &NodeName) -> Result<NodeStream, LaunchError> {
        if self.leases.is_of_others(node) {
            let why = format!("another relay watches {node}, and runs the probes in its jobs");
            return Err(LaunchError::Throttled { why: why.into() });
        }
        self.inner.launch_in(job, node).await
    }
}

/// Ends probes whose lease this relay lost.
pub(crate) async fn keep_leases(leases: Leases, publisher: Publisher) {
    let mut standing = leases.standing();
    let mut tick = interval(CHECK);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            changed = standing.changed() => {
                if changed.is_err() {
                    return;
                }
                let now = *standing.borrow_and_update();
                match now {
                    Standing::Fenced => {
                        let why = "NATS cannot be reached, so another relay may watch this node by now".into();
                        publisher.end_probes(&why, |_| true);
                    }
                    // What ran without the servers is claimed.
                    Standing::Member => claim_all(&leases, &publisher).await,
                    Standing::Starting | Standing::Alone | Standing::Unleased | Standing::Foreign => {}
                }
            }
            _ = tick.tick() => end_lost(&leases, &publisher),
        }
    }
}

async fn claim_all(leases: &Leases, publisher: &Publisher) {
    for node in publisher.nodes() {
        leases.claim(&node).await;
    }
    end_lost(leases, publisher);
}

fn end_lost(leases: &Leases, publisher: &Publisher) {
    publisher.end_probes(&"another relay watches this node now".into(), |node| leases.is_of_others(node));
}
