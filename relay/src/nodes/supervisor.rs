//! There is exactly one session for each node that is wanted, however many jobs want it.

use super::questions::QUESTIONS_A_NODE;
use super::refusals::Refusals;
use super::session::{Session, Wanted};
use super::{FromNode, Orders, Question};
use crate::clock::Clock;
use crate::launch::Launcher;
use nodeglass_protocol::NodeName;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, mpsc, watch};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout_at};

/// Starts, updates and stops sessions. Dropping it ends all probes without waiting for them.
pub struct Supervisor {
    launcher: Arc<dyn Launcher>,
    clock: Clock,
    events: mpsc::Sender<FromNode>,
    running: BTreeMap<NodeName, Running>,
    /// Sessions that were told to stop and still see their probes off.
    leaving: BTreeMap<NodeName, JoinHandle<()>>,
    refusals: Refusals,
}

/// The holder of a session. When it is dropped the session ends.
struct Running {
    wanted: watch::Sender<Wanted>,
    retry: Arc<Notify>,
    questions: mpsc::Sender<Question>,
    task: JoinHandle<()>,
}

impl Supervisor {
    /// A supervisor without sessions; `events` gets what they say, in each session's order.
    pub fn new(launcher: Arc<dyn Launcher>, clock: Clock, events: mpsc::Sender<FromNode>) -> Self {
        let (running, leaving, refusals) = (BTreeMap::new(), BTreeMap::new(), Refusals::default());
        Self { launcher, clock, events, running, leaving, refusals }
    }

    /// Makes the sessions be those of `nodes`: starts the missing, tells the others their orders, stops the rest.
    pub fn want(&mut self, nodes: &BTreeMap<NodeName, Orders>) {
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
                    wanted.orders = *orders;
                    news
                }),
                _ => self.start(node, *orders),
            };
        }
    }

    /// Passes a question on to the node's session; one that cannot be asked is refused at once.
    pub fn ask(&self, question: Question) {
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

    /// Tries a node again now that waits, whether for its time or for the user.
    pub fn retry(&self, node: &NodeName) {
        if let Some(running) = self.running.get(node) {
            running.retry.notify_waiters();
        }
    }

    /// Tries all nodes again that wait: the user has mended what concerned them all.
    pub fn retry_all(&self) {
        for running in self.running.values() {
            running.retry.notify_waiters();
        }
    }

    /// Ends every probe and waits for them to be gone, for `limit` at most.
    pub async fn stop_all(mut self, limit: Duration) {
        for node in self.running.keys().cloned().collect::<Vec<_>>() {
            self.stop(&node);
        }
        let deadline = Instant::now() + limit;
        for (_, mut task) in self.leaving {
            if timeout_at(deadline, &mut task).await.is_err() {
                task.abort();
            }
        }
    }

    fn start(&mut self, node: &NodeName, orders: Orders) -> bool {
        let (wanted, orders) = watch::channel(Wanted { orders, stop: false });
        let retry = Arc::new(Notify::new());
        let (questions, asked) = mpsc::channel(QUESTIONS_A_NODE);
        let session = Session {
            node: node.clone(),
            launcher: Arc::clone(&self.launcher),
            clock: self.clock,
            events: self.events.clone(),
            wanted: orders,
            retry: Arc::clone(&retry),
            questions: asked,
            seen: None,
            refusals: self.refusals.clone(),
        };
        // A job that follows another on the node does not start its probe beside one that is leaving.
        let before = self.leaving.remove(node);
        let task = tokio::spawn(async move {
            if let Some(before) = before {
                let _ = before.await;
            }
            session.keep().await;
        });
        self.running.insert(node.clone(), Running { wanted, retry, questions, task });
        true
    }

    fn stop(&mut self, node: &NodeName) {
        if let Some(Running { wanted, task, .. }) = self.running.remove(node) {
            wanted.send_modify(|wanted| wanted.stop = true);
            self.leaving.insert(node.clone(), task);
        }
    }
}
