//! Captures what the processes of a job do: sends requests to the probes of its nodes, and passes on the summary.

use nodeglass_findings::capture::{self, CaptureOrder, NodeAnswer, Target};
use nodeglass_fleet::Event;
use nodeglass_nodes::Probes;
use nodeglass_platform::clock::Clock;
use nodeglass_protocol::capture::{CaptureRequest, FindingCapture, MAX_NOTES, StackReader};
use nodeglass_protocol::request::{ProbeRequest, Response};
use nodeglass_protocol::{JobId, NodeName, Text};
use std::collections::VecDeque;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Time limit for the capture of a node: stacks are read one after the other.
const NODE_TIMEOUT: Duration = Duration::from_secs(30);
/// Maximum number of nodes that capture at the same time.
const MAX_CONCURRENT: usize = 32;
/// Maximum number of waiting orders; further ones are dropped.
const CAPACITY: usize = 64;

/// Handle to the task that captures, one job after the other.
#[derive(Clone, Debug)]
pub struct Capturer {
    orders: mpsc::Sender<CaptureOrder>,
    user: Text,
}

impl Capturer {
    /// Starts the task for jobs of `user`, unless no reader of stacks is set. Its results are events.
    pub fn start(
        stacks: Option<StackReader>,
        user: &Text,
        probes: &Probes,
        events: &mpsc::Sender<Event>,
    ) -> Option<Self> {
        let stacks = stacks?;
        let (orders, inbox) = mpsc::channel(CAPACITY);
        tokio::spawn(run(inbox, stacks, probes.clone(), events.clone()));
        Some(Self { orders, user: user.clone() })
    }

    /// One whose orders a test receives.
    #[cfg(test)]
    pub fn manual(user: &str) -> (Self, mpsc::Receiver<CaptureOrder>) {
        let (orders, inbox) = mpsc::channel(CAPACITY);
        (Self { orders, user: user.into() }, inbox)
    }

    /// The user whose jobs are captured.
    pub fn user(&self) -> &str {
        self.user.as_str()
    }

    /// Captures as soon as earlier orders are done.
    pub fn capture(&self, order: CaptureOrder) {
        if let Err(error) = self.orders.try_send(order) {
            let order = error.into_inner();
            tracing::debug!(job = %order.job, finding = %order.key, "too many captures at once");
        }
    }
}

async fn run(
    mut orders: mpsc::Receiver<CaptureOrder>,
    stacks: StackReader,
    probes: Probes,
    events: mpsc::Sender<Event>,
) {
    while let Some(order) = orders.recv().await {
        let key = Text::new(&order.key);
        let captured = capture(&probes, order, &stacks).await;
        if events.send(Event::Capture { key, capture: Box::new(captured) }).await.is_err() {
            return;
        }
    }
}

async fn capture(probes: &Probes, order: CaptureOrder, stacks: &StackReader) -> FindingCapture {
    let at_ms = Clock::wall_ms();
    let (job, omitted) = (order.job, order.omitted_nodes);
    let mut waiting: VecDeque<(NodeName, Vec<Target>)> = order.nodes.into();
    let (mut running, mut answers) = (JoinSet::new(), Vec::new());
    loop {
        while running.len() < MAX_CONCURRENT
            && let Some((node, targets)) = waiting.pop_front()
        {
            running.spawn(of_node(probes.clone(), job, node, targets, stacks.clone()));
        }
        match running.join_next().await {
            Some(Ok(answer)) => answers.push(answer),
            // The task panicked, which the log states.
            Some(Err(_)) => {}
            None => break,
        }
    }
    let mut captured = capture::summary(at_ms, &answers);
    if omitted > 0 && captured.notes.len() < MAX_NOTES {
        captured.notes.push(Text::new(format!("{omitted} further nodes were left out")));
    }
    captured
}

async fn of_node(
    probes: Probes,
    job: JobId,
    node: NodeName,
    targets: Vec<Target>,
    stacks: StackReader,
) -> NodeAnswer {
    let processes = targets.iter().map(|target| target.process).collect();
    let request = ProbeRequest::Capture(CaptureRequest { job, processes, stacks });
    let answer = match probes.request_within(&node, request, NODE_TIMEOUT).await {
        Response::Capture(capture) => Ok(*capture),
        Response::Refused(why) => Err(why),
        _ => Err("its probe answered something else".into()),
    };
    NodeAnswer { node, targets, answer }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_nodes::SupervisorRequest;
    use nodeglass_protocol::capture::{Capture, ProcessCapture};
    use nodeglass_protocol::request::ProcessRef;

    fn target(pid: u32) -> Target {
        let process = ProcessRef { pid, started_ms: 1 };
        Target { process, rank: Some(pid), place: format!("n GPU {pid}") }
    }

    fn order(nodes: u32) -> CaptureOrder {
        let node = |number| (NodeName::new(format!("n{number}")).unwrap(), vec![target(number)]);
        CaptureOrder {
            key: "collective_hang/17".to_owned(),
            job: JobId(17),
            nodes: (0..nodes).map(node).collect(),
            omitted_nodes: 0,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_that_answer_are_grouped_and_silent_ones_counted() {
        let (probes, mut requests) = Probes::new();
        tokio::spawn(async move {
            let mut held = Vec::new();
            while let Some(SupervisorRequest::Probe(queued)) = requests.recv().await {
                let (node, ProbeRequest::Capture(request)) = queued.parts() else { unreachable!() };
                assert_eq!(request.job, JobId(17));
                let ProcessRef { pid, started_ms } = request.processes[0];
                if node.as_str() == "n3" {
                    held.push(queued);
                    continue;
                }
                let process = ProcessCapture { pid, started_ms, ..ProcessCapture::default() };
                let capture = Capture { processes: vec![process], omitted: 0 };
                queued.respond(Response::Capture(Box::new(capture)));
            }
        });
        let captured = capture(&probes, order(100), &StackReader::Off).await;
        assert_eq!((captured.groups[0].count, captured.missing), (99, 1));
        assert_eq!(captured.groups[0].ranks.as_str(), "0-2, 4-99");
        assert_eq!(captured.notes, ["n3: the probe on n3 did not respond within 30 s".into()]);
    }

    #[tokio::test]
    async fn results_are_events_of_their_finding() {
        let (probes, requests) = Probes::new();
        drop(requests);
        let (capturer, inbox) = Capturer::manual("alice");
        let (events, mut received) = mpsc::channel(1);
        tokio::spawn(run(inbox, StackReader::Off, probes, events));
        capturer.capture(order(1));
        let Some(Event::Capture { key, capture }) = received.recv().await else { unreachable!() };
        assert_eq!((key.as_str(), capture.missing), ("collective_hang/17", 1));
    }
}
