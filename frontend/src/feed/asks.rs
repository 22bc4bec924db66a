//! A question waits here under its number until its answer comes, or until it is clear that none will.

use futures_channel::oneshot::{Receiver, Sender, channel};
use nodeglass_protocol::ask::Answer;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Why a question was not answered, in words for the user.
pub mod refusal {
    /// Asked while there is no link.
    pub const NO_LINK: &str = "There is no link to the relay now, so nothing was sent.";
    /// The link broke between question and answer.
    pub const LINK_LOST: &str =
        "The link to the relay was lost before it answered. Look whether it was done.";
    /// Nothing came for a long time.
    pub const NO_ANSWER: &str = "No answer within 20 s. Look whether it was done.";
}

/// The questions that wait for an answer.
#[derive(Default)]
pub struct Asks(Mutex<Waiting>);

#[derive(Default)]
struct Waiting {
    last: u32,
    open: Vec<(u32, Sender<Answer>)>,
}

impl Waiting {
    fn take(&mut self, number: u32) -> Option<Sender<Answer>> {
        let at = self.open.iter().position(|(open, _)| *open == number)?;
        Some(self.open.swap_remove(at).1)
    }
}

impl Asks {
    /// Gives a question its number, and a place where its answer will be.
    pub fn begin(&self) -> (u32, Receiver<Answer>) {
        let (sender, receiver) = channel();
        let mut waiting = self.waiting();
        waiting.last = waiting.last.wrapping_add(1);
        let number = waiting.last;
        waiting.open.push((number, sender));
        (number, receiver)
    }

    /// Hands an answer to who asked; one that nobody waits for any more is dropped.
    pub fn answered(&self, number: u32, answer: Answer) {
        if let Some(asker) = self.waiting().take(number) {
            let _ = asker.send(answer);
        }
    }

    /// Answers every open question with a sentence: the link is gone.
    pub fn give_up(&self, why: &str) {
        for (_, asker) in std::mem::take(&mut self.waiting().open) {
            let _ = asker.send(Answer::Refused(why.into()));
        }
    }

    /// Forgets a question that was waited for long enough.
    pub fn forget(&self, number: u32) {
        drop(self.waiting().take(number));
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_answer_finds_its_own_question_in_whatever_order_they_come() {
        let asks = Asks::default();
        let ((one, mut first), (two, mut second)) = (asks.begin(), asks.begin());
        asks.answered(two, Answer::Done("b".into()));
        asks.answered(one, Answer::Done("a".into()));
        assert_eq!(first.try_recv(), Ok(Some(Answer::Done("a".into()))));
        assert_eq!(second.try_recv(), Ok(Some(Answer::Done("b".into()))));
    }

    #[test]
    fn a_lost_link_refuses_every_open_question_in_words() {
        let asks = Asks::default();
        let (_, mut open) = asks.begin();
        asks.give_up(refusal::LINK_LOST);
        assert_eq!(open.try_recv(), Ok(Some(Answer::Refused(refusal::LINK_LOST.into()))));
    }

    #[test]
    fn an_answer_that_comes_too_late_hurts_nobody() {
        let asks = Asks::default();
        let (number, mut open) = asks.begin();
        asks.forget(number);
        asks.answered(number, Answer::Done("late".into()));
        assert!(open.try_recv().is_err());
    }
}
