//! Pending requests and followed logs of one connection: bounded, and dropped when it closes.

use futures_util::future::select_all;
use nodeglass_actions::{ActionService, FollowedLog, Logs, Recipient};
use nodeglass_live::Hub;
use nodeglass_protocol::live::{MAX_LOGS, ServerMessage};
use nodeglass_protocol::range::RangeHistory;
use nodeglass_protocol::request::{LogRef, Request, Response, Tail};
use nodeglass_share::Visibility;
use std::collections::VecDeque;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Maximum number of pending requests of one connection.
const MAX_PENDING: usize = 5;
/// Maximum number of ranges that are read from the long-term storage for one connection: those of the graphs, of a report,
/// and of a comparison.
const MAX_RANGES: usize = 4;

/// Permissions of a connection besides viewing. The read-only variant holds no handle that could act, so no check can be
/// forgotten.
pub(super) enum Permissions {
    /// Request details, perform actions, read logs.
    Owner(ActionService),
    /// Read the logs of visible jobs, if the share shows logs at all.
    ReadOnly(Option<VisibleLogs>),
}

/// Access to the logs that a guest may read.
pub(super) struct VisibleLogs {
    pub(super) logs: Logs,
    pub(super) hub: Hub,
    pub(super) visibility: Arc<Visibility>,
}

/// The requests of one connection. Dropping it cancels them; an action that has started still runs to
/// completion.
pub(super) struct PendingRequests {
    permissions: Permissions,
    open: JoinSet<(u32, Response)>,
    /// Responses that are available immediately.
    ready: VecDeque<ServerMessage>,
    followed: Vec<FollowedLog>,
    /// The last chunk of a followed log, until it is certain that it may still be sent.
    unchecked: Option<(LogRef, Tail)>,
    /// The ranges that are being read from the long-term storage, with the numbers of their queries.
    ranges: JoinSet<(u32, RangeHistory)>,
}

impl PendingRequests {
    /// No requests yet.
    pub(super) fn new(permissions: Permissions) -> Self {
        Self {
            permissions,
            open: JoinSet::new(),
            ready: VecDeque::new(),
            followed: Vec::new(),
            unchecked: None,
            ranges: JoinSet::new(),
        }
    }

    /// The permissions of this connection.
    pub(super) fn permissions(&self) -> &Permissions {
        &self.permissions
    }

    /// Starts a request; [`PendingRequests::next`] returns its response.
    pub(super) fn start(&mut self, number: u32, request: Request) {
        let Permissions::Owner(actions) = &self.permissions else {
            return self.refuse(number, "only the owner of this relay may request this");
        };
        if self.open.len() >= MAX_PENDING {
            return self.refuse(number, "too many requests at once; wait for the responses first");
        }
        let actions = actions.clone();
        self.open.spawn(async move { (number, actions.request(request).await) });
    }

    /// Starts to read a range from the long-term storage.
    pub(super) fn read_range(
        &mut self,
        number: u32,
        range: impl Future<Output = RangeHistory> + Send + 'static,
    ) {
        if self.ranges.len() >= MAX_RANGES {
            let problem =
                Some("The long-term storage is slow: earlier queries of this page are still open.".into());
            let range = RangeHistory { problem, ..RangeHistory::default() };
            return self.ready.push_back(ServerMessage::Range { number, range });
        }
        self.ranges.spawn(async move { (number, range.await) });
    }

    fn refuse(&mut self, number: u32, why: &str) {
        self.ready.push_back(ServerMessage::Response { number, response: Response::Refused(why.into()) });
    }

    /// Follows exactly these logs from now on, at most [`MAX_LOGS`]; those already followed continue.
    pub(super) async fn follow(&mut self, mut logs: Vec<LogRef>) {
        logs.sort_unstable();
        logs.dedup();
        logs.truncate(MAX_LOGS);
        self.followed.retain(|followed| logs.contains(&followed.of()));
        logs.retain(|of| self.followed.iter().all(|followed| followed.of() != *of));
        for of in logs {
            match self.permissions.follow(of).await {
                Some(followed) => self.followed.push(followed),
                None => self.ready.push_back(not_shared(of)),
            }
        }
    }

    /// Returns the next message; pending forever if there is nothing to wait for. Cancel safe.
    pub(super) async fn next(&mut self) -> ServerMessage {
        loop {
            if let Some(message) = self.ready.pop_front() {
                return message;
            }
            if let Some((of, _)) = &self.unchecked {
                // The job may have left the scope of a share since then.
                let is_shown = self.permissions.show(*of).await;
                let Some((of, tail)) = self.unchecked.take() else { continue };
                if is_shown {
                    return ServerMessage::Log { of, tail: self.permissions.redacted(tail) };
                }
                self.followed.retain(|followed| followed.of() != of);
                return not_shared(of);
            }
            tokio::select! {
                // A request was answered; a panicked task has no number to report.
                Some(Ok((number, response))) = self.open.join_next() => {
                    return ServerMessage::Response { number, response };
                }
                // A range was read.
                Some(Ok((number, range))) = self.ranges.join_next() => return ServerMessage::Range { number, range },
                // A followed log grew.
                read = next_of(&mut self.followed) => self.unchecked = Some(read),
            }
        }
    }
}

impl Permissions {
    /// Follows a log, if the permissions allow it.
    async fn follow(&self, of: LogRef) -> Option<FollowedLog> {
        match self {
            Self::Owner(actions) => Some(actions.logs().follow(of, Recipient::Owner)),
            Self::ReadOnly(None) => None,
            Self::ReadOnly(Some(guest)) => {
                self.show(of).await.then(|| guest.logs.follow(of, Recipient::Guest))
            }
        }
    }

    /// Returns whether they show a log now.
    async fn show(&self, of: LogRef) -> bool {
        match self {
            Self::Owner(_) => true,
            Self::ReadOnly(None) => false,
            Self::ReadOnly(Some(guest)) => guest
                .hub
                .job(of.job)
                .await
                .is_some_and(|job| guest.visibility.shows_logs_of(of.job, std::slice::from_ref(&job))),
        }
    }

    /// Redacts a tail for guests: the reason why a log cannot be read contains its path.
    fn redacted(&self, tail: Tail) -> Tail {
        match self {
            Self::Owner(_) => tail,
            Self::ReadOnly(_) => {
                let error = tail.error.map(|_| "this log cannot be read now".into());
                Tail { error, ..tail }
            }
        }
    }
}

/// Says that a log is not shared.
fn not_shared(of: LogRef) -> ServerMessage {
    let error = Some("the logs of this job are not shared".into());
    ServerMessage::Log { of, tail: Tail { error, ..Tail::default() } }
}

async fn next_of(followed: &mut [FollowedLog]) -> (LogRef, Tail) {
    if followed.is_empty() {
        return std::future::pending().await;
    }
    let tails = followed.iter_mut().map(|followed| {
        Box::pin(async move {
            let of = followed.of();
            (of, followed.next().await)
        })
    });
    select_all(tails).await.0
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_actions::{Deps, JobControl};
    use nodeglass_event_loop::{EventLoop, Inputs, Options, Sinks};
    use nodeglass_fleet::Fleet;
    use nodeglass_nodes::Probes;
    use nodeglass_platform::clock::Clock;
    use nodeglass_protocol::handshake::{Key, LEN};
    use nodeglass_protocol::replay::ReplayCommand;
    use nodeglass_protocol::request::{JobAction, LogStream, ProcessRef, RetryTarget, Signal};
    use nodeglass_protocol::share::{HiddenParts, Scope, ShareId, ShareRequest, Sharing};
    use nodeglass_protocol::{JobId, NodeName};
    use nodeglass_share::{ShareEndpoint, Shares};
    use nodeglass_store::JobStore;
    use tokio::sync::{mpsc, watch};

    fn service() -> (ActionService, Hub, mpsc::Receiver<nodeglass_nodes::SupervisorRequest>) {
        let (events, event_rx) = mpsc::channel(1);
        let sharing = watch::channel(Sharing::default()).1;
        let inputs = Inputs { nodes: mpsc::channel(1).1, events: event_rx, sharing };
        let (fleet, clock, options) = (Fleet::new(), Clock::start(), Options::default());
        let (_core, hub, plan) = EventLoop::new(fleet, clock, options, inputs, Sinks::default());
        let (probes, probe_requests) = Probes::new();
        let (job_control, poll_trigger) = (JobControl::Disabled("no SLURM in this test"), Default::default());
        let (user, log_files) = ("alice".into(), nodeglass_actions::LogFiles::OnNodes);
        let shares =
            Arc::new(Shares::new(Key::new([7; LEN]), "alice".into(), ShareEndpoint::default(), None));
        let (hub2, store) = (hub.clone(), JobStore::in_memory().unwrap());
        let deps = Deps {
            hub,
            probes,
            job_control,
            events,
            poll_trigger,
            plan,
            user,
            log_files,
            read_only: false,
            shares,
            audit: store.audit(),
            store,
            report_webhook: None,
            silences: nodeglass_actions::Silences::open(None, 0),
            player: None,
        };
        (ActionService::new(deps), hub2, probe_requests)
    }

    #[tokio::test]
    async fn t09_a_guest_may_not_request_act_share_or_read_a_log() {
        let (_service, _hub, mut probe_requests) = service();
        let mut requests = PendingRequests::new(Permissions::ReadOnly(None));
        let terms = ShareRequest {
            label: "".into(),
            scope: Scope::All,
            hidden: HiddenParts::default(),
            to: None,
            lifetime_s: None,
        };
        let process = ProcessRef { pid: 1, started_ms: 1 };
        let node = NodeName::new("n1").unwrap();
        let unpermitted = [
            Request::Job { job: JobId(1), action: JobAction::Cancel },
            Request::Signal { node: node.clone(), process, signal: Signal::Kill },
            Request::Process { node, process, environment: true },
            Request::Share(Box::new(terms)),
            Request::ShareLink(ShareId::new("abc").unwrap()),
            Request::Revoke(ShareId::new("abc").unwrap()),
            Request::Retry(RetryTarget::Everything),
            Request::Replay(ReplayCommand::Speed(0)),
            Request::Audit { days: 30 },
            Request::SendReport(JobId(1)),
            Request::FindProcesses { pid: 1 },
        ];
        for (number, request) in (0..).zip(unpermitted) {
            requests.start(number, request.clone());
            match requests.next().await {
                ServerMessage::Response { number: of, response: Response::Refused(why) } => {
                    assert!(of == number && why.as_str().contains("only the owner"), "{request:?}: {why}");
                }
                other => panic!("{request:?}: {other:?}"),
            }
        }
        requests.follow(vec![LogRef { job: JobId(1), stream: LogStream::Stdout }]).await;
        let ServerMessage::Log { tail, .. } = requests.next().await else {
            panic!("no message about the log")
        };
        assert!(tail.lines.is_empty() && tail.error.is_some_and(|why| why.as_str().contains("not shared")));
        assert!(requests.followed.is_empty() && probe_requests.try_recv().is_err());
    }

    #[tokio::test]
    async fn each_query_for_a_range_is_answered_and_few_are_read_at_once() {
        let mut requests = PendingRequests::new(Permissions::ReadOnly(None));
        let (finish, finished) = watch::channel(false);
        for number in 0..MAX_RANGES as u32 + 1 {
            let mut finished = finished.clone();
            requests.read_range(number, async move {
                let _ = finished.wait_for(|is_finished| *is_finished).await;
                RangeHistory { step_ms: u64::from(number), ..RangeHistory::default() }
            });
        }
        let ServerMessage::Range { number: 4, range } = requests.next().await else {
            panic!("the last one is answered at once")
        };
        assert!(range.problem.is_some_and(|why| why.as_str().contains("slow")));
        finish.send_replace(true);
        let mut answered = Vec::new();
        for _ in 0..MAX_RANGES {
            let ServerMessage::Range { number, range } = requests.next().await else { panic!("a range") };
            assert!(range.problem.is_none() && range.step_ms == u64::from(number));
            answered.push(number);
        }
        answered.sort_unstable();
        assert_eq!(answered, [0, 1, 2, 3]);
    }
}
