//! What one page asked and follows, besides what it looks at: few at a time, and forgotten when it leaves.

use crate::desk::{Desk, Followed};
use futures_util::future::select_all;
use nodeglass_protocol::Text;
use nodeglass_protocol::ask::{Answer, Ask, LogRef, Tail};
use nodeglass_protocol::live::{MAX_LOGS, Role, ServerMessage};
use std::collections::VecDeque;
use tokio::task::JoinSet;

/// How many questions a page may have open.
const MAX_OPEN: usize = 5;

/// The errands of one page. Dropping it forgets them; an action that was begun is carried through all the same.
pub(super) struct Errands {
    desk: Desk,
    role: Role,
    open: JoinSet<(u32, Answer)>,
    /// Answers that are there at once.
    ready: VecDeque<ServerMessage>,
    followed: Vec<Followed>,
}

impl Errands {
    /// None yet.
    pub(super) fn new(desk: Desk, role: Role) -> Self {
        Self { desk, role, open: JoinSet::new(), ready: VecDeque::new(), followed: Vec::new() }
    }

    /// Takes a question; what came of it is among [`Errands::next`].
    pub(super) fn ask(&mut self, number: u32, ask: Ask) {
        if self.role != Role::Owner {
            return self.refuse(number, "only the owner of this relay may ask this");
        }
        if self.open.len() >= MAX_OPEN {
            return self.refuse(number, "too many questions at once; wait for the answers first");
        }
        let desk = self.desk.clone();
        self.open.spawn(async move { (number, desk.ask(ask).await) });
    }

    fn refuse(&mut self, number: u32, why: &str) {
        self.ready.push_back(ServerMessage::Answer { number, answer: Answer::Refused(why.into()) });
    }

    /// Follows these logs from now on, [`MAX_LOGS`] at most, and no others; those it follows already go on.
    pub(super) fn follow(&mut self, mut logs: Vec<LogRef>) {
        logs.sort_unstable();
        logs.dedup();
        logs.truncate(MAX_LOGS);
        if self.role != Role::Owner {
            let why = || Some(Text::new("only the owner of this relay may read logs"));
            let tail = || Tail { trouble: why(), ..Tail::default() };
            self.ready.extend(logs.into_iter().map(|of| ServerMessage::Log { of, tail: tail() }));
            return;
        }
        self.followed.retain(|followed| logs.contains(&followed.of()));
        logs.retain(|of| self.followed.iter().all(|followed| followed.of() != *of));
        self.followed.extend(logs.into_iter().map(|of| self.desk.follow(of)));
    }

    /// The next message that comes of them; never when there are none. Nothing is lost when the future is dropped.
    pub(super) async fn next(&mut self) -> ServerMessage {
        if let Some(message) = self.ready.pop_front() {
            return message;
        }
        tokio::select! {
            // A question was answered. One whose task was lost has no number any more.
            Some(Ok((number, answer))) = self.open.join_next() => ServerMessage::Answer { number, answer },
            // A log went on.
            message = next_of(&mut self.followed) => message,
        }
    }
}

async fn next_of(followed: &mut [Followed]) -> ServerMessage {
    if followed.is_empty() {
        return std::future::pending().await;
    }
    let tails = followed.iter_mut().map(|followed| {
        Box::pin(async move {
            let of = followed.of();
            ServerMessage::Log { of, tail: followed.next().await }
        })
    });
    select_all(tails).await.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;
    use crate::desk::{Means, Orders};
    use crate::fleet::Fleet;
    use crate::hub::{Core, CoreOptions, Inputs};
    use crate::nodes::Probes;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::ask::{JobOrder, LogStream};
    use tokio::sync::mpsc;

    #[tokio::test]
    async fn a_guest_neither_asks_nor_acts_nor_reads_a_log() {
        let (news, heard) = mpsc::channel(1);
        let inputs = Inputs { nodes: mpsc::channel(1).1, news: heard };
        let (_core, hub, _orders) = Core::new(Fleet::new(), Clock::start(), CoreOptions::default(), inputs);
        let (probes, mut questions) = Probes::new();
        let (orders, nudge) = (Orders::Nobody("nobody is to be asked"), Default::default());
        let (user, here) = ("alice".into(), None);
        let desk = Desk::new(Means { hub, probes, orders, news, nudge, user, here, read_only: false });
        let mut errands = Errands::new(desk, Role::Guest);
        errands.ask(3, Ask::Job { job: JobId(1), order: JobOrder::Cancel });
        errands.follow(vec![LogRef { job: JobId(1), stream: LogStream::Stdout }]);
        let ServerMessage::Answer { number: 3, answer: Answer::Refused(why) } = errands.next().await else {
            panic!("not refused")
        };
        assert!(why.as_str().contains("only the owner"), "{why}");
        let ServerMessage::Log { tail, .. } = errands.next().await else { panic!("no word of the log") };
        assert!(
            tail.lines.is_empty() && tail.trouble.is_some_and(|why| why.as_str().contains("only the owner"))
        );
        assert!(errands.followed.is_empty() && questions.try_recv().is_err());
    }
}
