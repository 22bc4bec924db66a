//! The desk takes what an owner's page asks once, brings it to whoever can do it, and writes down what was done.
//!
//! Questions and signals go to the probe of the node, orders about jobs to SLURM, logs are read here or
//! there. Nothing of it touches the pictures, except that a deed is told to everybody who may see it.

mod logs;
mod reader;
mod scroll;

pub use logs::{Followed, Logs, Recipient};

use crate::clock::Clock;
use crate::fleet::Event;
use crate::hub::Hub;
use crate::nodes::Probes;
use crate::share::{Refusal, Shares};
use crate::slurm::{JobOrders, Nudge, Reason};
use nodeglass_protocol::ask::{Answer, Ask, AuditEntry, JobOrder, ProbeAsk, ProcessRef, RetryTarget, Signal};
use nodeglass_protocol::share::{ShareLink, ShareRequest, Sharing};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::fmt;
use std::sync::Arc;
use tokio::sync::mpsc;

/// Whoever carries out orders about jobs.
#[derive(Clone)]
pub enum Orders {
    /// These do.
    By(Arc<dyn JobOrders>),
    /// Nobody does; one sentence why.
    Nobody(&'static str),
}

/// What a desk works with.
#[derive(Clone, Debug)]
pub struct Means {
    /// The way to the job list.
    pub hub: Hub,
    /// The way to the probes.
    pub probes: Probes,
    /// Whoever carries out orders about jobs.
    pub orders: Orders,
    /// Where deeds are told.
    pub news: mpsc::Sender<Event>,
    /// Wakes whoever asks for the job list.
    pub nudge: Nudge,
    /// The user whose jobs orders may be about.
    pub user: Text,
    /// Name of this machine, if logs of jobs may lie on it.
    pub here: Option<Text>,
    /// Whether actions are refused.
    pub read_only: bool,
    /// The shares.
    pub shares: Arc<Shares>,
}

/// Where what pages ask is done. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Desk {
    means: Arc<Means>,
    logs: Logs,
}

impl Desk {
    /// A desk that works with these means.
    pub fn new(means: Means) -> Self {
        let logs = Logs::new(means.hub.clone(), means.probes.clone(), means.here.clone(), means.user.clone());
        Self { means: Arc::new(means), logs }
    }

    /// Does what is asked and says what came of it. An action is carried through and written down even
    /// if whoever asked does not wait for the answer.
    pub async fn ask(&self, ask: Ask) -> Answer {
        if ask.is_action() && self.means.read_only {
            return Answer::Refused("this relay was started with --read-only: it only looks".into());
        }
        match ask {
            Ask::Process { node, process, environment } => {
                self.means.probes.ask(&node, ProbeAsk::Process { process, environment }).await
            }
            Ask::Signal { node, process, signal } => {
                let means = self.means.clone();
                carried_through(async move { means.signal(node, process, signal).await }).await
            }
            Ask::Job { job, order } => {
                let means = self.means.clone();
                carried_through(async move { means.order(job, order).await }).await
            }
            Ask::Share(request) => {
                let means = self.means.clone();
                carried_through(async move { means.share(*request).await }).await
            }
            Ask::ShareLink(id) => linked(self.means.shares.link(&id)),
            Ask::Revoke(id) => {
                let shares = self.means.shares.clone();
                match on_disk(move || shares.revoke(&id)).await {
                    Ok(()) => Answer::Done("the share was revoked".into()),
                    Err(refusal) => Answer::Refused(refusal.to_string().into()),
                }
            }
            Ask::Retry(target) => self.means.retry(target).await,
        }
    }

    /// The owner opened a page, perhaps to see a job that was just submitted.
    pub fn page_opened(&self) {
        self.means.nudge.send(Reason::Doubt);
    }

    /// The way to the logs, which only reads.
    pub fn logs(&self) -> &Logs {
        &self.logs
    }

    /// Who may look, and who does.
    pub fn sharing(&self) -> Sharing {
        self.means.shares.watch().borrow().clone()
    }
}

fn linked(made: Result<ShareLink, Refusal>) -> Answer {
    match made {
        Ok(link) => Answer::Share(Box::new(link)),
        Err(refusal) => Answer::Refused(refusal.to_string().into()),
    }
}

/// Carries out what changes shares: with `--persist-shares` it is written to a disk, which may be slow.
async fn on_disk<T: Send + 'static>(
    change: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    let done = tokio::task::spawn_blocking(change).await;
    done.unwrap_or_else(|_| Err(Refusal::Failed("the relay failed to do this; its log tells more".into())))
}

/// Runs to its end, whether the answer is waited for or not.
async fn carried_through(action: impl Future<Output = Answer> + Send + 'static) -> Answer {
    let done = tokio::spawn(action).await;
    done.unwrap_or_else(|_| Answer::Refused("the relay failed to carry this out; its log tells more".into()))
}

impl Means {
    async fn share(&self, request: ShareRequest) -> Answer {
        if let Some(what) = self.hub.missing(request.scope.clone()).await {
            return linked(Err(Refusal::OutOfSight(what)));
        }
        let shares = self.shares.clone();
        linked(on_disk(move || shares.make(request)).await)
    }

    async fn signal(&self, node: NodeName, process: ProcessRef, signal: Signal) -> Answer {
        let what = format!("{} to {} on {node}", signal.name(), process.pid);
        let answer = self.probes.ask(&node, ProbeAsk::Signal { process, signal }).await;
        self.note(what, &answer).await;
        answer
    }

    async fn order(&self, id: JobId, order: JobOrder) -> Answer {
        let Some(job) = self.hub.job(id).await else {
            return Answer::Refused(format!("there is no job {id} in the list").into());
        };
        if job.user != self.user {
            return Answer::Refused(format!("job {} is {}'s, not yours", job.label, job.user).into());
        }
        let outcome = match &self.orders {
            Orders::By(orders) => orders.give(&job, order).await,
            Orders::Nobody(why) => Err((*why).into()),
        };
        let answer = match outcome {
            Ok(done) => Answer::Done(done),
            Err(why) => Answer::Refused(why),
        };
        self.note(format!("{} job {}", verb(order), job.label), &answer).await;
        self.nudge.send(Reason::Order);
        answer
    }

    /// Nothing on the cluster changes by it, so that a read-only relay does it too.
    async fn retry(&self, target: RetryTarget) -> Answer {
        let node = match target {
            RetryTarget::Jobs => {
                self.nudge.send(Reason::Retry);
                return Answer::Done("asking SLURM for the job list".into());
            }
            RetryTarget::Node(node) => Some(node),
            RetryTarget::Everything => {
                self.nudge.send(Reason::Retry);
                None
            }
        };
        self.probes.retry(node).await
    }

    /// Writes an action down: in the log of the relay, and for every page.
    async fn note(&self, what: String, answer: &Answer) {
        let (done, outcome) = match answer {
            Answer::Done(outcome) => (true, outcome.clone()),
            Answer::Refused(why) => (false, why.clone()),
            Answer::Process(_) | Answer::Tail(_) | Answer::Share(_) => {
                (false, "the answer belongs to another question".into())
            }
        };
        tracing::info!(deed.what = %what, deed.outcome = %outcome, deed.done = done, "an action was asked for");
        let deed = AuditEntry { wall_ms: Clock::wall_ms(), what: what.into(), outcome, done };
        let _ = self.news.send(Event::Deed(deed)).await;
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

impl fmt::Debug for Orders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::By(_) => "By(..)",
            Self::Nobody(why) => why,
        })
    }
}
