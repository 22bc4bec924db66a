//! `GET /status`: how the relay itself is doing, as JSON for the owner's scripts and monitoring.

use nodeglass_api::{
    ChannelStatus, ConnectionLosses, ConnectionState, OwnLoad, ProbeStatus, RemoteWriteStatus,
    UnstoredRecords,
};
use nodeglass_live::OVERVIEW_INTERVAL_MS;
use nodeglass_platform::{cpu_time, memory};
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::{JobsHealth, LauncherStatus, Link, NodePicture, Picture};
use nodeglass_protocol::{NodeName, Text};
use serde::Serialize;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The response of `GET /status`. Ages and durations are in s.
#[derive(Debug, Serialize, ToSchema)]
pub struct StatusReport {
    /// Build id of the relay.
    pub build: Text,
    /// Time since the relay started.
    pub uptime_s: u64,
    /// Launcher of probes, and the reason for giving up another one.
    pub launcher: Option<LauncherStatus>,
    /// Number of nodes by the state of their connection; see [`state`].
    pub nodes: BTreeMap<&'static str, usize>,
    /// Nodes without a connection, and why.
    pub unreachable: Vec<Unreachable>,
    /// Nodes with a connection whose samples are overdue.
    pub late: Vec<LateNode>,
    /// Longest time between two samples of a connected node, in ms; `null` without one. It grows to the idle interval
    /// once nobody watches.
    pub sample_interval_ms: Option<u32>,
    /// Reason for sampling nodes rarely, and its end; `null` while they are not.
    pub slow_sampling: Option<String>,
    /// Frames for pages.
    pub frames: FrameStatus,
    /// Attempts to connect to each node, and what was lost on its connections, by node.
    pub connections: Vec<ConnectionLosses>,
    /// Number of records that could not be stored.
    pub unstored: UnstoredRecords,
    /// CPU and memory of the relay.
    pub process: ProcessStatus,
    /// Limits of the relay, and what it does to keep them.
    pub own_load: OwnLoad,
    /// CPU and memory of the probes.
    pub probes: ProbesStatus,
    /// The job list.
    pub slurm: SlurmStatus,
    /// Problems of the relay: its list of machines, what it cannot store, CPU time or memory that it lacks. Complete sentences.
    pub notices: Vec<Text>,
    /// Delivery of notices about findings and jobs, by channel; empty if no channel is configured.
    pub notifications: Vec<ChannelStatus>,
    /// Delivery of the metrics by remote write; `null` if it is not configured.
    pub remote_write: Option<RemoteWriteStatus>,
}

/// A node without a connection.
#[derive(Debug, Serialize, ToSchema)]
pub struct Unreachable {
    /// The node.
    pub node: NodeName,
    /// `down` (it is retried) or `refused` (it needs the user).
    pub state: &'static str,
    /// The error.
    pub reason: Text,
    /// The remedy.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub advice: Option<Text>,
    /// Time until the next attempt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retry_in_s: Option<u64>,
}

/// A node that is connected, but has not sent what was due.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct LateNode {
    /// The node.
    pub node: NodeName,
    /// `late` (a sample is overdue) or `silent` (no data for long).
    pub state: &'static str,
    /// Age of its newest sample; `null` if it has sent none.
    pub sample_age_s: Option<u64>,
    /// Duration of the driver call that the probe waits for, if its driver does not respond.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub driver_stuck_s: Option<u64>,
}

/// Frames for pages and other viewers.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct FrameStatus {
    /// Connected viewers.
    pub viewers: u32,
    /// Frames since the start that viewers did not receive because they read too slowly; each viewer then received a
    /// snapshot of the newest state instead.
    pub coalesced: u64,
}

/// CPU and memory of the relay's process.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProcessStatus {
    /// CPU time since the start, in ms, to 10 ms.
    pub cpu_ms: u64,
    /// Memory in RAM, in bytes; `null` if the kernel does not state it.
    pub rss_bytes: Option<u64>,
}

/// CPU and memory of the connected probes. Each reports them once a minute; a probe that has not yet is left out.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ProbesStatus {
    /// CPU time of all listed probes since their start, in ms.
    pub cpu_ms: u64,
    /// Their memory in RAM, in bytes.
    pub rss_bytes: u64,
    /// Each of them, by node.
    pub each: Vec<ProbeStatus>,
}

/// State of SLURM's job list.
#[derive(Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum SlurmStatus {
    /// Not queried yet.
    NotYet,
    /// The machine has no SLURM.
    NoSlurm,
    /// The last query succeeded.
    Fresh {
        /// Age of the list.
        age_s: u64,
    },
    /// The last query failed; the list is from the last successful one.
    Stale {
        /// Age of the list, if there is one.
        age_s: Option<u64>,
        /// The error.
        reason: Text,
        /// Time until the next query.
        retry_in_s: u64,
    },
}

impl StatusReport {
    /// Creates the report of a relay from the owner's overview, its own usage and its probes.
    pub fn new(
        build: Text,
        overview: &Picture,
        process: ProcessStatus,
        probes: Vec<ProbeStatus>,
        now_ms: u64,
    ) -> Self {
        let mut nodes = BTreeMap::new();
        for node in &overview.nodes {
            *nodes.entry(state(&node.head.link)).or_default() += 1;
        }
        let sample_interval_ms = overview.nodes.iter().filter_map(sample_interval_ms).max();
        Self {
            build,
            uptime_s: now_ms.saturating_sub(CLOCK_STARTS_AT_MS) / 1_000,
            launcher: overview.relay.launcher.clone(),
            nodes,
            unreachable: overview.nodes.iter().filter_map(|node| Unreachable::of(node, now_ms)).collect(),
            late: overview.nodes.iter().filter_map(|node| LateNode::of(node, now_ms)).collect(),
            sample_interval_ms,
            slow_sampling: sample_interval_ms.and_then(|ms| slow_sampling(ms, overview.relay.viewers)),
            frames: FrameStatus { viewers: overview.relay.viewers, coalesced: overview.relay.coalesced },
            connections: Vec::new(),
            unstored: UnstoredRecords::default(),
            process,
            own_load: OwnLoad::default(),
            probes: ProbesStatus::of(probes),
            slurm: SlurmStatus::of(&overview.relay.jobs, now_ms),
            notices: overview.relay.notices.clone(),
            notifications: Vec::new(),
            remote_write: None,
        }
    }
}

/// The sampling interval of a node that sends samples.
fn sample_interval_ms(node: &NodePicture) -> Option<u32> {
    let is_sampled = matches!(node.head.link, Link::Live | Link::Late | Link::Silent);
    Some(node.head.interval_ms).filter(|ms| is_sampled && *ms > 0)
}

/// That nodes are sampled rarely because nobody watches, if so.
fn slow_sampling(interval_ms: u32, viewers: u32) -> Option<String> {
    let is_slow = viewers == 0 && interval_ms > OVERVIEW_INTERVAL_MS;
    is_slow.then(|| {
        format!(
            "Nodes are sampled every {} s, because nobody watches them (see idle-interval). While a page or `relay \
             top` is open, they are sampled at least every {} s.",
            interval_ms / 1_000,
            OVERVIEW_INTERVAL_MS / 1_000
        )
    })
}

impl ProcessStatus {
    /// Reads the usage of this process.
    pub fn read() -> Self {
        Self { cpu_ms: cpu_time::process_ms() / 10 * 10, rss_bytes: memory::resident_bytes() }
    }
}

impl ProbesStatus {
    fn of(each: Vec<ProbeStatus>) -> Self {
        let sum = |value: fn(&ProbeStatus) -> u64| each.iter().map(value).fold(0, u64::saturating_add);
        Self { cpu_ms: sum(|probe| probe.cpu_ms), rss_bytes: sum(|probe| probe.rss_bytes), each }
    }
}

impl Unreachable {
    fn of(node: &NodePicture, now_ms: u64) -> Option<Self> {
        let (reason, advice, retry_at_ms) = match &node.head.link {
            Link::Down { reason, retry_at_ms } => (reason, None, Some(*retry_at_ms)),
            Link::Refused { reason, advice } => (reason, Some(advice.clone()), None),
            _ => return None,
        };
        Some(Self {
            node: node.name.clone(),
            state: state(&node.head.link),
            reason: reason.clone(),
            advice,
            retry_in_s: retry_at_ms.map(|at_ms| seconds_until(at_ms, now_ms)),
        })
    }
}

impl LateNode {
    fn of(node: &NodePicture, now_ms: u64) -> Option<Self> {
        matches!(node.head.link, Link::Late | Link::Silent).then(|| Self {
            node: node.name.clone(),
            state: state(&node.head.link),
            sample_age_s: node.sampled_at_ms.map(|at_ms| now_ms.saturating_sub(at_ms) / 1_000),
            driver_stuck_s: node.head.driver_stuck_ms.map(|ms| ms / 1_000),
        })
    }
}

impl SlurmStatus {
    /// The state at a time of the relay's clock.
    pub fn of(jobs: &JobsHealth, now_ms: u64) -> Self {
        let age_s = |at_ms: u64| now_ms.saturating_sub(at_ms) / 1_000;
        match jobs {
            JobsHealth::NotYet => Self::NotYet,
            JobsHealth::NoSlurm => Self::NoSlurm,
            JobsHealth::Fresh { at_ms } => Self::Fresh { age_s: age_s(*at_ms) },
            JobsHealth::Stale { last_ms, reason, retry_at_ms } => Self::Stale {
                age_s: last_ms.map(age_s),
                reason: reason.clone(),
                retry_in_s: seconds_until(*retry_at_ms, now_ms),
            },
        }
    }
}

/// Whether a relay can answer for the cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Readiness {
    /// It can.
    Ready,
    /// It cannot, for this reason.
    NotReady(&'static str),
}

impl Readiness {
    /// By the state of the job list.
    pub fn of(jobs: &JobsHealth) -> Self {
        match jobs {
            JobsHealth::NotYet => Self::NotReady("the list of jobs is not known yet"),
            JobsHealth::Stale { last_ms: None, .. } => Self::NotReady("SLURM has never answered"),
            JobsHealth::Stale { last_ms: Some(_), .. } => Self::NotReady("the list of jobs is out of date"),
            JobsHealth::NoSlurm | JobsHealth::Fresh { .. } => Self::Ready,
        }
    }
}

fn seconds_until(at_ms: u64, now_ms: u64) -> u64 {
    at_ms.saturating_sub(now_ms).div_ceil(1_000)
}

/// Returns the name of a connection's state, as in the API.
fn state(link: &Link) -> &'static str {
    ConnectionState::of(link).name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_node_states_the_age_of_its_sample_and_a_hanging_driver() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        (node.head.link, node.head.driver_stuck_ms) = (Link::Live, Some(9_500));
        assert_eq!(LateNode::of(&node, 20_000), None);
        node.head.link = Link::Silent;
        let late = |sample_age_s| LateNode {
            node: node.name.clone(),
            state: "silent",
            sample_age_s,
            driver_stuck_s: Some(9),
        };
        assert_eq!(LateNode::of(&node, 20_000), Some(late(None)));
        let sampled = NodePicture { sampled_at_ms: Some(7_900), ..node.clone() };
        assert_eq!(LateNode::of(&sampled, 20_000), Some(late(Some(12))));
    }

    #[test]
    fn slow_sampling_is_explained_only_while_nobody_watches() {
        assert!(slow_sampling(10_000, 0).is_some_and(|text| text.contains("every 10 s")));
        assert_eq!((slow_sampling(10_000, 1), slow_sampling(2_000, 0)), (None, None));
    }

    #[test]
    fn ages_are_relative_to_now_and_never_negative() {
        let stale = JobsHealth::Stale { last_ms: Some(5_000), reason: "down".into(), retry_at_ms: 9_500 };
        let stale = |now_ms| SlurmStatus::of(&stale, now_ms);
        let expected =
            |age_s, retry_in_s| SlurmStatus::Stale { age_s: Some(age_s), reason: "down".into(), retry_in_s };
        assert_eq!(stale(8_000), expected(3, 2));
        assert_eq!(stale(4_000), expected(0, 6));
        assert_eq!(
            SlurmStatus::of(&JobsHealth::Fresh { at_ms: 1_000 }, 61_999),
            SlurmStatus::Fresh { age_s: 60 }
        );
    }
}
