//! Questions to a probe: numbered, limited, and answered to the caller without involving the fleet.

use nodeglass_protocol::ask::{Answer, ProbeAsk};
use nodeglass_protocol::{NodeName, Text};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time limit for an answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// Capacity of the supervisor's queue.
const QUESTIONS: usize = 64;
/// Capacity of a session's queue.
pub(super) const QUESTIONS_PER_NODE: usize = 16;
/// Maximum number of open questions per probe; a probe keeps only a few itself.
const MAX_OPEN: usize = 32;

/// A question on its way to a probe.
#[derive(Debug)]
pub struct Question {
    pub(super) node: NodeName,
    pub(super) ask: ProbeAsk,
    reply: oneshot::Sender<Answer>,
}

impl Question {
    /// The node and the question.
    #[cfg(test)]
    pub fn parts(&self) -> (&NodeName, &ProbeAsk) {
        (&self.node, &self.ask)
    }

    /// Answers it as a probe would.
    #[cfg(test)]
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }

    /// Answers that it was refused, and why.
    pub(super) fn refuse(self, why: impl Into<Text>) {
        let _ = self.reply.send(Answer::Refused(why.into()));
    }
}

/// Requests to the supervisor.
#[derive(Debug)]
pub enum Request {
    /// A question to a node's probe.
    Question(Question),
    /// Retries a waiting node, or all of them.
    Retry {
        /// The node; `None` for all.
        node: Option<NodeName>,
        /// Receives the result.
        reply: oneshot::Sender<Answer>,
    },
}

/// Handle to the supervisor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Probes(mpsc::Sender<Request>);

impl Probes {
    /// The handle, and its receiver for [`super::Supervisor::serve`].
    pub fn new() -> (Self, mpsc::Receiver<Request>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        (Self(questions), asked)
    }

    /// Sends a question to a node's probe, and waits at most [`ANSWER_LIMIT`].
    pub async fn ask(&self, node: &NodeName, ask: ProbeAsk) -> Answer {
        let (reply, answer) = oneshot::channel();
        let question = Question { node: node.clone(), ask, reply };
        let asked = async {
            self.0.send(Request::Question(question)).await.ok()?;
            answer.await.ok()
        };
        let why = match timeout(ANSWER_LIMIT, asked).await {
            Ok(Some(answer)) => return answer,
            Ok(None) => format!("the link to {node} ended before its probe answered"),
            Err(_) => format!("the probe on {node} did not answer within {} s", ANSWER_LIMIT.as_secs()),
        };
        Answer::Refused(why.into())
    }

    /// Retries a node now, or all that wait; the answer names them.
    pub async fn retry(&self, node: Option<NodeName>) -> Answer {
        let (reply, answer) = oneshot::channel();
        let asked = self.0.send(Request::Retry { node, reply }).await;
        let answer = match asked {
            Ok(()) => answer.await.ok(),
            Err(_) => None,
        };
        answer.unwrap_or_else(|| Answer::Refused("the relay is shutting down".into()))
    }
}

/// Unanswered questions of a probe, by number.
#[derive(Debug, Default)]
pub(super) struct PendingQuestions {
    next: u32,
    replies: HashMap<u32, oneshot::Sender<Answer>>,
}

impl PendingQuestions {
    /// Assigns a number to a question; returns it if too many are open.
    ///
    /// Also drops questions whose caller no longer waits.
    pub(super) fn register(&mut self, question: Question) -> Result<(u32, ProbeAsk), Question> {
        self.replies.retain(|_, reply| !reply.is_closed());
        if self.replies.len() >= MAX_OPEN {
            return Err(question);
        }
        self.next = self.next.wrapping_add(1);
        self.replies.insert(self.next, question.reply);
        Ok((self.next, question.ask))
    }

    /// Delivers an answer. Answers without a pending question are ignored.
    pub(super) fn resolve(&mut self, number: u32, answer: Answer) {
        if let Some(reply) = self.replies.remove(&number) {
            let _ = reply.send(answer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::ask::Audience;

    fn question() -> (Question, oneshot::Receiver<Answer>) {
        let (reply, answer) = oneshot::channel();
        let ask = ProbeAsk::Tail { path: "/x".into(), after: 0, audience: Audience::Owner };
        (Question { node: NodeName::new("n1").unwrap(), ask, reply }, answer)
    }

    #[test]
    fn an_answer_is_delivered_once_to_its_question() {
        let mut pending = PendingQuestions::default();
        let ((first, mut one), (second, mut two)) = (question(), question());
        let (number, _) = pending.register(first).unwrap();
        pending.register(second).unwrap();
        pending.resolve(number, Answer::Done("done".into()));
        pending.resolve(number, Answer::Done("again".into()));
        pending.resolve(77, Answer::Done("nobody asked".into()));
        assert_eq!(one.try_recv().unwrap(), Answer::Done("done".into()));
        assert!(two.try_recv().is_err());
    }

    #[test]
    fn pending_questions_are_limited_and_abandoned_ones_make_room() {
        let mut pending = PendingQuestions::default();
        let mut waiting: Vec<_> = (0..MAX_OPEN)
            .map(|_| {
                let (question, answer) = question();
                pending.register(question).unwrap();
                answer
            })
            .collect();
        assert!(pending.register(question().0).is_err());
        waiting.pop();
        assert!(pending.register(question().0).is_ok());
    }
}
