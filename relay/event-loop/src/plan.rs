//! The plan for the supervisor: which nodes are watched, and how often each is sampled.

use super::{EventLoop, IDLE_INTERVAL_MS, OwnState};
use nodeglass_fleet::{Event, Limit, RefusalCause, SessionEvent};
use nodeglass_live::HubRequest;
use nodeglass_nodes::NodePlan;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::{JobId, NodeName, Text};
use nodeglass_rules::text::grouped;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of watched nodes, the first ones by name. Each costs the relay a connection and the readings of its GPUs.
pub const MAX_NODES: usize = 4_096;
/// Advice if there are more.
const NARROW: &str = "watch fewer by --partition, --nodes or --users";
/// Time without subscribers after which nodes are sampled slowly, in ms: reloading a page must not slow them down.
const IDLE_AFTER_MS: u64 = 60_000;
/// Time without subscribers after which a relay pauses if its options require it, in ms.
const PAUSE_AFTER_MS: u64 = 10_000;

impl EventLoop {
    /// The sampling interval without subscribers: a recording, and findings that somebody is notified of, need samples.
    fn idle_interval_ms(&self) -> u32 {
        let needs_samples = self.sinks.recorder.is_some() || self.sinks.notifier.is_some();
        let longest_ms = if needs_samples { IDLE_INTERVAL_MS } else { u32::MAX };
        self.options.idle_interval_ms.min(longest_ms)
    }

    /// Watches nodes again when a request needs their state.
    pub(super) fn resume(&mut self, request: &HubRequest) {
        let needs_nodes = matches!(
            request,
            HubRequest::Join { .. }
                | HubRequest::Everything { .. }
                | HubRequest::Picture { .. }
                | HubRequest::VisibleRange { .. }
        );
        if self.options.pauses && needs_nodes {
            self.last_subscriber_ms = self.clock.now_ms();
            self.update_plan();
        }
    }

    /// Updates the plan: which nodes are wanted, at which sampling interval.
    pub(super) fn update_plan(&mut self) {
        let now_ms = self.clock.now_ms();
        if !self.subscribers.is_empty() {
            self.last_subscriber_ms = now_ms;
        }
        let idle = now_ms.saturating_sub(self.last_subscriber_ms) > IDLE_AFTER_MS;
        let slow = if idle { self.idle_interval_ms() } else { self.options.overview_interval_ms };
        let min_interval_ms = self.own.as_ref().map_or(0, OwnState::min_interval_ms);
        let pauses = self.options.pauses && now_ms.saturating_sub(self.last_subscriber_ms) > PAUSE_AFTER_MS;
        let mut wanted = self.fleet.wanted();
        if pauses {
            self.mark_disconnected(&std::mem::take(&mut wanted), now_ms);
        }
        let unwatched = match wanted.iter().nth(MAX_NODES).cloned() {
            Some(first) => wanted.split_off(&first),
            None => BTreeSet::new(),
        };
        self.refuse_excess_nodes(unwatched, now_ms);
        self.groups.set_nodes(&wanted);
        let on_nodes = self.fleet.jobs_on_nodes();
        let planned = |name: NodeName| {
            let phase_ms = self.groups.phase_ms(&name);
            let active = on_nodes.get(&name).map(Vec::as_slice).unwrap_or_default();
            let completes = |job: &&&Job| job.state == JobState::Completing;
            let jobs: Vec<JobId> = active.iter().filter(|job| !completes(job)).map(|job| job.id).collect();
            let note_jobs: Vec<JobId> = active.iter().map(|job| job.id).collect();
            let is_ending = jobs.is_empty() && !active.is_empty() && !self.fleet.is_watched_host(&name);
            let target = self.fleet.target(&name);
            let job_probes = self.fleet.job_probes(&name);
            (
                name,
                NodePlan {
                    interval_ms: slow.max(min_interval_ms),
                    phase_ms,
                    jobs,
                    note_jobs,
                    target,
                    is_ending,
                    job_probes,
                },
            )
        };
        let mut nodes: BTreeMap<_, _> = wanted.into_iter().map(planned).collect();
        // Every subscribed topic has a feed.
        for (topic, viewer) in self.feeds.keys().filter(|(topic, _)| *topic != Topic::Overview) {
            for node in viewer.nodes(&self.fleet, topic).unwrap_or_default() {
                if let Some(node) = nodes.get_mut(node.name()) {
                    node.interval_ms = self.options.detail_interval_ms.max(min_interval_ms);
                }
            }
        }
        self.plan.send_if_modified(|plan| {
            let changed = plan.nodes != nodes;
            plan.nodes = nodes;
            changed
        });
    }

    /// States that nodes are not connected: nobody views them, so their silence does not mean that they failed.
    fn mark_disconnected(&mut self, nodes: &BTreeSet<NodeName>, now_ms: u64) {
        for name in nodes {
            let is_connected =
                |node: &NodePicture| matches!(node.head.link, Link::Live | Link::Late | Link::Silent);
            if self.fleet.node(name).is_some_and(is_connected) {
                let event = SessionEvent::Connecting { failures: 0 };
                self.apply(Event::Node(name.clone(), event), now_ms);
            }
        }
    }

    /// States for nodes beyond the maximum number that they are not watched, and for the owner how many.
    fn refuse_excess_nodes(&mut self, unwatched: BTreeSet<NodeName>, now_ms: u64) {
        let notice = (!unwatched.is_empty()).then(|| {
            let (all, limit) = (MAX_NODES + unwatched.len(), grouped(MAX_NODES as u64));
            let all = grouped(all as u64);
            Text::new(format!("{limit} of {all} nodes are watched, which is the most; {NARROW}"))
        });
        for name in unwatched {
            let is_stated = |node: &NodePicture| matches!(node.head.link, Link::Refused { .. });
            if !self.fleet.node(&name).is_some_and(is_stated) {
                let why = format!("the relay watches {} nodes at most", grouped(MAX_NODES as u64)).into();
                let cause = RefusalCause::Node;
                let refused = SessionEvent::Refused { cause, why, advice: NARROW.into() };
                self.apply(Event::Node(name, refused), now_ms);
            }
        }
        if notice != self.unwatched {
            self.unwatched.clone_from(&notice);
            self.fleet.handle(Event::Limited(Limit::Nodes, notice), now_ms);
        }
    }
}
