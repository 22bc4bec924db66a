//! Actions of the owner: questions, signals, job control, shares and logs.
//!
//! Questions and signals go to the node's probe, job control to SLURM; logs are read locally or by a
//! probe. None of this touches pictures, except that each action is added to the audit log.

mod log_buffer;
mod log_reader;
mod logs;

pub use logs::{FollowedLog, Logs, Recipient};

use crate::clock::Clock;
use crate::fleet::Event;
use crate::hub::Hub;
use crate::nodes::Probes;
use crate::share::{ShareError, Shares};
use crate::slurm::{JobController, PollReason, PollTrigger};
use nodeglass_protocol::ask::{Answer, Ask, AuditEntry, JobOrder, ProbeAsk, ProcessRef, RetryTarget, Signal};
use nodeglass_protocol::share::{ShareLink, ShareRequest, Sharing};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Whether and how jobs can be controlled.
#[derive(Clone)]
pub enum JobControl {
    /// By this controller.
    Enabled(Arc<dyn JobController>),
    /// Not at all, and why.
    Disabled(&'static str),
}

/// Dependencies of the action service.
#[derive(Clone, Debug)]
pub struct Deps {
    /// Access to the job list.
    pub hub: Hub,
    /// Access to the probes.
    pub probes: Probes,
    /// Controls jobs.
    pub job_control: JobControl,
    /// Receives audit entries.
    pub events: mpsc::Sender<Event>,
    /// Requests an early poll of the job list.
    pub poll_trigger: PollTrigger,
    /// The user whose jobs may be controlled.
    pub user: Text,
    /// Hostname of this machine, if job logs may be local.
    pub local_host: Option<Text>,
    /// Whether actions are rejected.
    pub read_only: bool,
    /// The shares.
    pub shares: Arc<Shares>,
}

/// Executes requests of the owner. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ActionService {
    deps: Arc<Deps>,
    logs: Logs,
}

impl ActionService {
    /// A desk that works with these means.
    pub fn new(deps: Deps) -> Self {
        let logs =
            Logs::new(deps.hub.clone(), deps.probes.clone(), deps.local_host.clone(), deps.user.clone());
        Self { deps: Arc::new(deps), logs }
    }

    /// Executes a request and returns the result. An action completes and is audited even if the caller
    /// is dropped.
    pub async fn ask(&self, ask: Ask) -> Answer {
        if ask.is_action() && self.deps.read_only {
            return Answer::Refused("this relay was started with --read-only".into());
        }
        match ask {
            Ask::Process { node, process, environment } => {
                self.deps.probes.ask(&node, ProbeAsk::Process { process, environment }).await
            }
            Ask::Signal { node, process, signal } => {
                let deps = self.deps.clone();
                run_detached(async move { deps.signal(node, process, signal).await }).await
            }
            Ask::Job { job, order } => {
                let deps = self.deps.clone();
                run_detached(async move { deps.control_job(job, order).await }).await
            }
            Ask::Share(request) => {
                let deps = self.deps.clone();
                run_detached(async move { deps.share(*request).await }).await
            }
            Ask::ShareLink(id) => linked(self.deps.shares.link(&id)),
            Ask::Revoke(id) => {
                let shares = self.deps.shares.clone();
                match run_blocking(move || shares.revoke(&id)).await {
                    Ok(()) => Answer::Done("the share was revoked".into()),
                    Err(error) => Answer::Refused(error.to_string().into()),
                }
            }
            Ask::Retry(target) => self.deps.retry(target).await,
        }
    }

    /// Requests an early poll: the owner opened a page, perhaps to see a job that was just submitted.
    pub fn refresh_jobs(&self) {
        self.deps.poll_trigger.send(PollReason::Doubt);
    }

    /// Access to logs, which is read-only.
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Open shares and current visitors.
    pub fn sharing(&self) -> Sharing {
        self.deps.shares.watch().borrow().clone()
    }
}

fn linked(made: Result<ShareLink, ShareError>) -> Answer {
    match made {
        Ok(link) => Answer::Share(Box::new(link)),
        Err(error) => Answer::Refused(error.to_string().into()),
    }
}

/// Runs a change of shares on a blocking thread: with `--persist-shares` it writes to disk.
async fn run_blocking<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, ShareError> + Send + 'static,
) -> Result<T, ShareError> {
    let done = tokio::task::spawn_blocking(change).await;
    done.unwrap_or_else(|_| Err(ShareError::Failed("internal error; see the relay's log".into())))
}

/// Runs an action to completion even if the caller is dropped.
async fn run_detached(action: impl Future<Output = Answer> + Send + 'static) -> Answer {
    let done = tokio::spawn(action).await;
    done.unwrap_or_else(|_| Answer::Refused("internal error; see the relay's log".into()))
}

impl Deps {
    async fn share(&self, request: ShareRequest) -> Answer {
        if let Some(what) = self.hub.unwatched(request.scope.clone()).await {
            return linked(Err(ShareError::NotWatched(what)));
        }
        let shares = self.shares.clone();
        linked(run_blocking(move || shares.create(request)).await)
    }

    async fn signal(&self, node: NodeName, process: ProcessRef, signal: Signal) -> Answer {
        let what = format!("{} to {} on {node}", signal.name(), process.pid);
        let answer = self.probes.ask(&node, ProbeAsk::Signal { process, signal }).await;
        self.audit(what, &answer).await;
        answer
    }

    async fn control_job(&self, id: JobId, order: JobOrder) -> Answer {
        let Some(job) = self.hub.job(id).await else {
            return Answer::Refused(format!("there is no job {id} in the list").into());
        };
        if job.user != self.user {
            return Answer::Refused(format!("job {} is {}'s, not yours", job.label, job.user).into());
        }
        let outcome = match &self.job_control {
            JobControl::Enabled(controller) => controller.execute(&job, order).await,
            JobControl::Disabled(why) => Err((*why).into()),
        };
        let answer = match outcome {
            Ok(done) => Answer::Done(done),
            Err(why) => Answer::Refused(why),
        };
        self.audit(format!("{} job {}", verb(order), job.label), &answer).await;
        self.poll_trigger.send(PollReason::Order);
        answer
    }

    /// Allowed on a read-only relay, as it changes nothing on the cluster.
    async fn retry(&self, target: RetryTarget) -> Answer {
        let node = match target {
            RetryTarget::Jobs => {
                self.poll_trigger.send(PollReason::Retry);
                return Answer::Done("asking SLURM for the job list".into());
            }
            RetryTarget::Node(node) => Some(node),
            RetryTarget::Everything => {
                self.poll_trigger.send(PollReason::Retry);
                None
            }
        };
        self.probes.retry(node).await
    }

    /// Records an action in the relay's log and in the audit log.
    async fn audit(&self, what: String, answer: &Answer) {
        let (done, outcome) = match answer {
            Answer::Done(outcome) => (true, outcome.clone()),
            Answer::Refused(why) => (false, why.clone()),
            Answer::Process(_) | Answer::Tail(_) | Answer::Share(_) => (false, "unexpected answer".into()),
        };
        tracing::info!(action.what = %what, action.outcome = %outcome, action.done = done, "action requested");
        let entry = AuditEntry { wall_ms: Clock::wall_ms(), what: what.into(), outcome, done };
        let _ = self.events.send(Event::Audit(entry)).await;
    }
}

fn verb(order: JobOrder) -> &'static str {
    match order {
        JobOrder::Cancel => "cancel",
        JobOrder::Hold => "hold",
        JobOrder::Release => "release",
        JobOrder::Requeue => "requeue",
    }
}

impl fmt::Debug for JobControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Enabled(_) => "Enabled(..)",
            Self::Disabled(why) => why,
        })
    }
}
