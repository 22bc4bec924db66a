//! Questions to a node's probe are numbered, few at a time, and answered to whoever asked; the fleet never sees them.

use nodeglass_protocol::ask::{Answer, ProbeAsk};
use nodeglass_protocol::{NodeName, Text};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// How long a probe may take to answer.
pub const ANSWER_LIMIT: Duration = Duration::from_secs(10);
/// How many questions may wait for the supervisor.
const QUESTIONS: usize = 64;
/// How many questions may wait for one session.
pub(super) const QUESTIONS_A_NODE: usize = 16;
/// How many questions one probe may have open; it keeps no more than its own few.
const MAX_OPEN: usize = 32;

/// A question on its way to a probe.
#[derive(Debug)]
pub struct Question {
    pub(super) node: NodeName,
    pub(super) ask: ProbeAsk,
    reply: oneshot::Sender<Answer>,
}

impl Question {
    /// The node it goes to, and what is asked.
    #[cfg(test)]
    pub fn parts(&self) -> (&NodeName, &ProbeAsk) {
        (&self.node, &self.ask)
    }

    /// Answers it, as a probe would.
    #[cfg(test)]
    pub fn answer(self, answer: Answer) {
        let _ = self.reply.send(answer);
    }

    /// Says why it is not answered.
    pub(super) fn refuse(self, why: impl Into<Text>) {
        let _ = self.reply.send(Answer::Refused(why.into()));
    }
}

/// What the supervisor is asked.
#[derive(Debug)]
pub enum Request {
    /// Something of a node's probe.
    Question(Question),
    /// To try a node again that waits, or all of them.
    Retry {
        /// Which one; `None`: all.
        node: Option<NodeName>,
        /// Gets what came of it.
        reply: oneshot::Sender<Answer>,
    },
}

/// The way for requests to the supervisor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Probes(mpsc::Sender<Request>);

impl Probes {
    /// The way, and its far end for [`super::Supervisor::serve`].
    pub fn new() -> (Self, mpsc::Receiver<Request>) {
        let (questions, asked) = mpsc::channel(QUESTIONS);
        (Self(questions), asked)
    }

    /// Asks the probe of a node, and waits [`ANSWER_LIMIT`] at most.
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

    /// Tries a node again now, or all that wait; the answer names them.
    pub async fn retry(&self, node: Option<NodeName>) -> Answer {
        let (reply, answer) = oneshot::channel();
        let asked = self.0.send(Request::Retry { node, reply }).await;
        let answer = match asked {
            Ok(()) => answer.await.ok(),
            Err(_) => None,
        };
        answer.unwrap_or_else(|| Answer::Refused("the relay is ending".into()))
    }
}

/// The questions that a probe has not answered yet, by the number it was told.
#[derive(Debug, Default)]
pub(super) struct Open {
    next: u32,
    replies: HashMap<u32, oneshot::Sender<Answer>>,
}

impl Open {
    /// Numbers a question; gives it back when the probe has too many.
    ///
    /// Whoever no longer waits for an answer is forgotten here.
    pub(super) fn begin(&mut self, question: Question) -> Result<(u32, ProbeAsk), Question> {
        self.replies.retain(|_, reply| !reply.is_closed());
        if self.replies.len() >= MAX_OPEN {
            return Err(question);
        }
        self.next = self.next.wrapping_add(1);
        self.replies.insert(self.next, question.reply);
        Ok((self.next, question.ask))
    }

    /// Hands an answer to whoever asked. One to a question that nobody asked, or twice, goes nowhere.
    pub(super) fn end(&mut self, number: u32, answer: Answer) {
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
    fn an_answer_goes_to_whoever_asked_and_only_once() {
        let mut open = Open::default();
        let ((first, mut one), (second, mut two)) = (question(), question());
        let (number, _) = open.begin(first).unwrap();
        open.begin(second).unwrap();
        open.end(number, Answer::Done("done".into()));
        open.end(number, Answer::Done("again".into()));
        open.end(77, Answer::Done("nobody asked".into()));
        assert_eq!(one.try_recv().unwrap(), Answer::Done("done".into()));
        assert!(two.try_recv().is_err());
    }

    #[test]
    fn only_so_many_are_open_and_those_who_left_make_room() {
        let mut open = Open::default();
        let mut waiting: Vec<_> = (0..MAX_OPEN)
            .map(|_| {
                let (question, answer) = question();
                open.begin(question).unwrap();
                answer
            })
            .collect();
        assert!(open.begin(question().0).is_err());
        waiting.pop();
        assert!(open.begin(question().0).is_ok());
    }
}
