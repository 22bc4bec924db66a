//! Requests to a probe: numbered, limited, and answered directly to the caller without involving the fleet.

use nodeglass_protocol::request::{ProbeRequest, Response};
use nodeglass_protocol::{NodeName, Text};
use std::collections::HashMap;
use std::time::Duration;
use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Time limit for a response.
pub const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Capacity of the supervisor's queue.
const QUEUE_CAPACITY: usize = 64;
/// Capacity of a session's queue.
pub(super) const NODE_QUEUE_CAPACITY: usize = 16;
/// Maximum number of open requests per probe; a probe keeps only a few itself.
const MAX_OPEN: usize = 32;

/// A request on its way to a probe, with the channel for its response.
#[derive(Debug)]
pub struct QueuedRequest {
    pub(super) node: NodeName,
    pub(super) request: ProbeRequest,
    reply: oneshot::Sender<Response>,
}

impl QueuedRequest {
    /// The node and the request.
    #[cfg(any(test, feature = "test-support"))]
    pub fn parts(&self) -> (&NodeName, &ProbeRequest) {
        (&self.node, &self.request)
    }

    /// Responds as a probe would.
    #[cfg(any(test, feature = "test-support"))]
    pub fn respond(self, response: Response) {
        let _ = self.reply.send(response);
    }

    /// Responds that the request was refused, and why.
    pub(super) fn refuse(self, why: impl Into<Text>) {
        let _ = self.reply.send(Response::Refused(why.into()));
    }
}

/// Returns the reason for refusing a request to a node without a probe.
pub fn unwatched(node: &NodeName) -> String {
    format!("this relay does not watch node {node}")
}

/// Requests to the supervisor.
#[derive(Debug)]
pub enum SupervisorRequest {
    /// A request to a node's probe.
    Probe(QueuedRequest),
    /// Retries a waiting node, or all of them.
    Retry {
        /// The node; `None` for all.
        node: Option<NodeName>,
        /// Receives the result.
        reply: oneshot::Sender<Response>,
    },
}

/// Handle to the supervisor. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Probes(mpsc::Sender<SupervisorRequest>);

impl Probes {
    /// The handle, and its receiver for [`super::Supervisor::serve`].
    pub fn new() -> (Self, mpsc::Receiver<SupervisorRequest>) {
        let (requests, receiver) = mpsc::channel(QUEUE_CAPACITY);
        (Self(requests), receiver)
    }

    /// Sends a request to a node's probe, and waits at most [`RESPONSE_TIMEOUT`].
    pub async fn request(&self, node: &NodeName, request: ProbeRequest) -> Response {
        self.request_within(node, request, RESPONSE_TIMEOUT).await
    }

    /// Sends a request to a node's probe that may take longer.
    pub async fn request_within(&self, node: &NodeName, request: ProbeRequest, limit: Duration) -> Response {
        let (reply, response) = oneshot::channel();
        let queued = QueuedRequest { node: node.clone(), request, reply };
        let exchange = async {
            self.0.send(SupervisorRequest::Probe(queued)).await.ok()?;
            response.await.ok()
        };
        let why = match timeout(limit, exchange).await {
            Ok(Some(response)) => return response,
            Ok(None) => format!("the link to {node} ended before its probe answered"),
            Err(_) => format!("the probe on {node} did not respond within {} s", limit.as_secs()),
        };
        Response::Refused(why.into())
    }

    /// Retries a node now, or all that wait; the response names them.
    pub async fn retry(&self, node: Option<NodeName>) -> Response {
        let (reply, response) = oneshot::channel();
        let sent = self.0.send(SupervisorRequest::Retry { node, reply }).await;
        let response = match sent {
            Ok(()) => response.await.ok(),
            Err(_) => None,
        };
        response.unwrap_or_else(|| Response::Refused("the relay is shutting down".into()))
    }
}

/// Unanswered requests of a probe, by number.
#[derive(Debug, Default)]
pub(super) struct PendingProbeRequests {
    next: u32,
    replies: HashMap<u32, oneshot::Sender<Response>>,
}

impl PendingProbeRequests {
    /// Assigns a number to a request; returns it if too many are open.
    ///
    /// Also drops requests whose caller no longer waits.
    pub(super) fn register(&mut self, queued: QueuedRequest) -> Result<(u32, ProbeRequest), QueuedRequest> {
        self.replies.retain(|_, reply| !reply.is_closed());
        if self.replies.len() >= MAX_OPEN {
            return Err(queued);
        }
        self.next = self.next.wrapping_add(1);
        self.replies.insert(self.next, queued.reply);
        Ok((self.next, queued.request))
    }

    /// Delivers a response. Responses without a pending request are ignored.
    pub(super) fn resolve(&mut self, number: u32, response: Response) {
        if let Some(reply) = self.replies.remove(&number) {
            let _ = reply.send(response);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::request::Audience;

    fn queued() -> (QueuedRequest, oneshot::Receiver<Response>) {
        let (reply, response) = oneshot::channel();
        let request = ProbeRequest::Tail { path: "/x".into(), after: 0, audience: Audience::Owner };
        (QueuedRequest { node: NodeName::new("n1").unwrap(), request, reply }, response)
    }

    #[test]
    fn a_response_is_delivered_once_to_its_request() {
        let mut pending = PendingProbeRequests::default();
        let ((first, mut one), (second, mut two)) = (queued(), queued());
        let (number, _) = pending.register(first).unwrap();
        pending.register(second).unwrap();
        pending.resolve(number, Response::Done("done".into()));
        pending.resolve(number, Response::Done("again".into()));
        pending.resolve(77, Response::Done("no such request".into()));
        assert_eq!(one.try_recv().unwrap(), Response::Done("done".into()));
        assert!(two.try_recv().is_err());
    }

    #[test]
    fn pending_requests_are_limited_and_abandoned_ones_make_room() {
        let mut pending = PendingProbeRequests::default();
        let mut waiting: Vec<_> = (0..MAX_OPEN)
            .map(|_| {
                let (queued, response) = queued();
                pending.register(queued).unwrap();
                response
            })
            .collect();
        assert!(pending.register(queued().0).is_err());
        waiting.pop();
        assert!(pending.register(queued().0).is_ok());
    }
}
