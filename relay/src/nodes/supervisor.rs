//! There is exactly one session for each node that is wanted, however many jobs want it.

use super::questions::QUESTIONS_A_NODE;
use super::refusals::{Evidence, Refusals};
use super::session::{Session, Wanted};
use super::{FromNode, JobList, Orders, Plan, Question, Request};
use crate::clock::Clock;
use crate::launch::Launcher;
use crate::slurm::PollTrigger;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::ask::Answer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, MissedTickBehavior, interval, timeout_at};

/// How often it is looked whether what a node refused has been mended, while any waits for that.
const EVIDENCE_EVERY: Duration = Duration::from_secs(5);

/// Starts, updates and stops sessions. Dropping it ends all probes without waiting for them.
pub struct Supervisor {
    launcher: Arc<dyn Launcher>,
    clock: Clock,
    events: mpsc::Sender<FromNode>,
    running: BTreeMap<NodeName, Running>,
    /// Sessions that were told to stop and still see their probes off.
    leaving: BTreeMap<NodeName, JoinHandle<()>>,
    refusals: Refusals,
    /// Which job list the sessions know.
    lists: watch::Sender<JobList>,
    /// What there is to log in with now; sent again and again while a session waits for another.
    evidence: watch::Receiver<Option<Evidence>>,
    watching: JoinHandle<()>,
    poll_trigger: PollTrigger,
}

/// The holder of a session. When it is dropped the session ends.
struct Running {
    wanted: watch::Sender<Wanted>,
    retry: Arc<Notify>,
    /// Whether it waits, for its time or for the user.
    waits: Arc<AtomicBool>,
    questions: mpsc::Sender<Question>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// A supervisor without sessions; `events` gets what they say, in each session's order, and `nudge` brings
    /// a job list soon when one of them doubts it.
    pub fn new(
        launcher: Arc<dyn Launcher>,
        clock: Clock,
        events: mpsc::Sender<FromNode>,
        poll_trigger: PollTrigger,
    ) -> Self {
        let (running, leaving, refusals) = (BTreeMap::new(), BTreeMap::new(), Refusals::default());
        let (found, evidence) = watch::channel(None);
        let watching = tokio::spawn(watch_evidence(launcher.clone(), refusals.clone(), found));
        let lists = watch::channel(JobList::default()).0;
        Self { launcher, clock, events, running, leaving, refusals, lists, evidence, watching, poll_trigger }
    }

    /// Makes the sessions be those of a plan, and lets those who wait for its job list go on.
    pub fn follow(&mut self, plan: &Plan) {
        self.want(&plan.nodes);
        // Last: whoever waits for the list finds the orders that come of it.
        self.lists.send_if_modified(|list| std::mem::replace(list, plan.list) != plan.list);
    }

    /// Does what a page asks.
    pub fn serve(&self, request: Request) {
        match request {
            Request::Question(question) => self.ask(question),
            Request::Retry { node, reply } => drop(reply.send(self.retry(node.as_ref()))),
        }
    }

    /// Makes the sessions be those of `nodes`: starts the missing, tells the others their orders, stops the rest.
    pub(super) fn want(&mut self, nodes: &BTreeMap<NodeName, Orders>) {
        self.leaving.retain(|_, task| !task.is_finished());
        let unwanted: Vec<NodeName> =
            self.running.keys().filter(|node| !nodes.contains_key(*node)).cloned().collect();
        for node in unwanted {
            self.stop(&node);
        }
        for (node, orders) in nodes {
            match self.running.get(node) {
                Some(running) if !running.task.is_finished() => running.wanted.send_if_modified(|wanted| {
                    let news = wanted.orders != *orders;
                    wanted.orders.clone_from(orders);
                    news
                }),
                _ => self.start(node, orders.clone()),
            };
        }
    }

    /// Passes a question on to the node's session; one that cannot be asked is refused at once.
    pub(super) fn ask(&self, question: Question) {
        let Some(running) = self.running.get(&question.node) else {
            let why = format!("there is no probe on {}: none of your jobs is on it", question.node);
            return question.refuse(why);
        };
        match running.questions.try_send(question) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(question)) => {
                question.refuse("too many questions to this node at once; try again in a moment");
            }
            Err(mpsc::error::TrySendError::Closed(question)) => question.refuse("the link has just ended"),
        }
    }

    /// Tries a node again now that waits, whether for its time or for the user; without a node all of them.
    pub(super) fn retry(&self, node: Option<&NodeName>) -> Answer {
        let meant = self.running.iter().filter(|(name, _)| node.is_none_or(|node| node == *name));
        let waiting: Vec<_> = meant.filter(|(_, running)| running.waits.load(Ordering::Acquire)).collect();
        waiting.iter().for_each(|(_, running)| running.retry.notify_one());
        let mut names: Vec<_> = waiting.iter().take(NAMED).map(|(name, _)| name.as_str()).collect();
        let more = waiting.len().saturating_sub(NAMED);
        let more_words = format!("{more} more");
        names.extend((more > 0).then_some(more_words.as_str()));
        match (node, names.as_slice()) {
            (Some(node), _) if !self.running.contains_key(node) => Answer::Refused(
                format!("none of your jobs runs on {node}, so the relay has no connection to it").into(),
            ),
            (Some(node), []) => {
                Answer::Refused(format!("{node} is already connected, or is being connected").into())
            }
            (None, []) => Answer::Done("no node is waiting to be retried".into()),
            (_, names) => Answer::Done(format!("trying {} again", names.join(", ")).into()),
        }
    }

    /// Ends every probe and waits for them to be gone, for `limit` at most.
    pub async fn stop_all(mut self, limit: Duration) {
        for node in self.running.keys().cloned().collect::<Vec<_>>() {
            self.stop(&node);
        }
        let deadline = Instant::now() + limit;
        for (_, mut task) in std::mem::take(&mut self.leaving) {
            if timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    fn start(&mut self, node: &NodeName, orders: Orders) -> bool {
        let (wanted, orders) = watch::channel(Wanted { orders, stop: false });
        let (retry, waits) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
        let (questions, asked) = mpsc::channel(QUESTIONS_A_NODE);
        let session = Session {
            node: node.clone(),
            launcher: Arc::clone(&self.launcher),
            clock: self.clock,
            events: self.events.clone(),
            wanted: orders,
            retry: Arc::clone(&retry),
            waits: Arc::clone(&waits),
            questions: asked,
            seen: None,
            refusals: self.refusals.clone(),
            lists: self.lists.subscribe(),
            evidence: self.evidence.clone(),
            poll_trigger: self.poll_trigger.clone(),
            denied: 0,
            hung: false,
            fault: None,
        };
        // A job that follows another on the node does not start its probe beside one that is leaving.
        let before = self.leaving.remove(node);
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            session.keep().await;
        });
        self.running.insert(node.clone(), Running { wanted, retry, waits, questions, task });
        true
    }

    fn stop(&mut self, node: &NodeName) {
        if let Some(Running { wanted, task, .. }) = self.running.remove(node) {
            wanted.send_modify(|wanted| wanted.stop = true);
            self.leaving.insert(node.clone(), task);
        }
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.watching.abort();
    }
}

/// How many nodes an answer names.
const NAMED: usize = 4;

/// Looks what there is to log in with, for as long as a session waits for it to change.
async fn watch_evidence(
    launcher: Arc<dyn Launcher>,
    refusals: Refusals,
    found: watch::Sender<Option<Evidence>>,
) {
    let mut tick = interval(EVIDENCE_EVERY);
    tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tick.tick().await;
        if refusals.are_awaited() {
            let at = Instant::now();
            let latest = launcher.evidence().await.map(|fingerprint| Evidence { at, fingerprint });
            // Also when it is the same: how often a node is tried is limited, and one that may not be tried now may be later.
            found.send_replace(latest);
        }
    }
}
