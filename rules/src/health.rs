//! The health of a node: a severity and a label, decided in one place.

use crate::attention;
use crate::flags;
use crate::severity::Severity;
use crate::text;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{JobsHealth, Link, NodePicture, Picture};
use nodeglass_protocol::probe::heartbeat_ms;

/// A severity with a label.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Severity; decides the symbol.
    pub severity: Severity,
    /// The label: `live`, `stale 12 s`, `refused`.
    pub label: String,
}

impl Health {
    /// Creates a health state.
    pub fn new(severity: Severity, label: impl Into<String>) -> Self {
        Self { severity, label: label.into() }
    }
}

/// The age of a node's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Freshness {
    /// Current.
    Fresh,
    /// Stale, with the age in ms; shown dimmed.
    Stale(u64),
    /// The job has ended; they are its last.
    Last,
    /// There are none yet.
    Never,
}

/// Age of the last line of a probe, in ms, from which the relay calls its node late. A probe that samples slowly prints
/// heartbeats in between, of which two are missing then: 5.4 s at an interval of 2 s, and 12.4 s from 5 s on.
pub fn late_after_ms(interval_ms: u32) -> u64 {
    match interval_ms {
        0..=1_000 => 3_000,
        _ => heartbeat_ms(interval_ms) * 2 + 400,
    }
}

/// Age of the last sample, in ms, from which its values are stale: three intervals, and half a second for its way. It grows
/// although heartbeats arrive, if the driver is slow.
fn stale_after_ms(interval_ms: u32) -> u64 {
    3 * u64::from(interval_ms.max(1_000)) + 500
}

/// Returns the freshness of a node's values by the relay's clock, independent of the connection's state.
pub fn freshness(node: &NodePicture, now_ms: u64) -> Freshness {
    let Some(sampled) = node.sampled_at_ms else { return Freshness::Never };
    let age = now_ms.saturating_sub(sampled);
    match node.head.link {
        Link::Ended => Freshness::Last,
        Link::Live if age < stale_after_ms(node.head.interval_ms) => Freshness::Fresh,
        _ => Freshness::Stale(age),
    }
}

/// Returns whether a node's values are too old for sums, or there are none.
pub fn is_stale(node: &NodePicture, now_ms: u64) -> bool {
    matches!(freshness(node, now_ms), Freshness::Stale(_) | Freshness::Never)
}

/// Returns the health of a node by its own state and readings.
pub fn for_node(node: &NodePicture, now_ms: u64) -> Health {
    let stale = || match freshness(node, now_ms) {
        Freshness::Stale(age) => format!("stale {}", text::span(age / 1_000)),
        _ => "no sample yet".to_owned(),
    };
    match &node.head.link {
        Link::Waiting => Health::new(Severity::Pending, "waiting"),
        Link::Connecting { failures: 0 } => Health::new(Severity::Pending, "connecting"),
        Link::Connecting { .. } => Health::new(Severity::Error, "connecting again"),
        Link::Late => Health::new(Severity::Warning, stale()),
        Link::Silent => Health::new(Severity::Error, format!("silent, {}", stale())),
        Link::Down { .. } => Health::new(Severity::Error, "down"),
        Link::Refused { .. } => Health::new(Severity::Error, "refused"),
        Link::Ended => Health::new(Severity::Ended, "ended"),
        Link::Live => for_live_node(node, now_ms),
    }
}

/// Returns the health of a node, or the worst finding that affects it, alone or with others: no node of a job that hangs is
/// well.
pub fn with_findings(node: &NodePicture, findings: &[Finding], now_ms: u64) -> Health {
    let own = for_node(node, now_ms);
    let worst = attention::worst(findings, |finding| finding.nodes.contains(&node.name));
    match worst.map(|finding| (Severity::from(finding.severity), finding)) {
        Some((severity, finding)) if severity > own.severity => {
            Health::new(severity, within_node(finding.reason.as_str(), &node.name))
        }
        _ => own,
    }
}

/// Returns a reason without the name of a node, for a row of that node.
pub fn within_node<'a>(reason: &'a str, node: &NodeName) -> &'a str {
    reason.strip_prefix(node.as_str()).and_then(|rest| rest.strip_prefix(' ')).unwrap_or(reason)
}

/// Returns whether enough is known to show a picture that was just begun: the list of jobs, and of every node a sample or why
/// there is none.
pub fn is_settled(picture: &Picture) -> bool {
    let is_known = |node: &NodePicture| match &node.head.link {
        Link::Waiting | Link::Connecting { failures: 0 } => false,
        // The first line of a probe has no readings yet.
        Link::Live => node.sampled_at_ms.is_some(),
        _ => true,
    };
    let jobs = &picture.relay.jobs;
    let expects_nodes = *jobs == JobsHealth::NoSlurm || picture.jobs.iter().any(Job::is_active);
    *jobs != JobsHealth::NotYet
        && picture.nodes.iter().all(is_known)
        && !(expects_nodes && picture.nodes.is_empty())
}

fn for_live_node(node: &NodePicture, now_ms: u64) -> Health {
    if node.head.driver_stuck_ms.is_some() {
        return Health::new(Severity::Error, format!("{} hangs", node.head.vendor().library()));
    }
    let lost = node.gpus.iter().filter(|gpu| gpu.fault.is_some());
    let lost = lost.map(|gpu| Health::new(flags::fault_severity(node, gpu), flags::unreadable(gpu)));
    let lost = lost.reduce(|a, b| if b.severity > a.severity { b } else { a });
    if let Some(lost) = lost.clone().filter(|lost| lost.severity == Severity::Error) {
        return lost;
    }
    match freshness(node, now_ms) {
        Freshness::Never => return Health::new(Severity::Pending, "waiting for the first sample"),
        // The relay would report a node that is late: it is this page that has no current data.
        Freshness::Stale(age) => {
            return Health::new(Severity::Pending, format!("stale {}", text::span(age / 1_000)));
        }
        Freshness::Fresh | Freshness::Last => {}
    }
    let flag = worst_flag(node);
    if let Some(worst) =
        lost.into_iter().chain(flag).reduce(|a, b| if b.severity > a.severity { b } else { a })
    {
        return worst;
    }
    if node.head.no_gpu.is_some() {
        return Health::new(Severity::Pending, "no GPU to show");
    }
    Health::new(Severity::Ok, "live")
}

/// Returns the most severe flag of a node's GPUs, if it is a warning or error: `GPU 1 too hot`. The owner of the GPU
/// does not matter, because this is the health of the node.
fn worst_flag(node: &NodePicture) -> Option<Health> {
    let flags =
        node.gpus.iter().flat_map(|gpu| flags::for_gpu(node, gpu).into_iter().map(move |flag| (gpu, flag)));
    let worst = flags.filter(|(_, flag)| flag.severity.needs_attention());
    // Of equal severity the first.
    let (gpu, flag) = worst.reduce(|a, b| if b.1.severity > a.1.severity { b } else { a })?;
    Some(Health::new(flag.severity, flag.label(gpu)))
}

/// Returns SLURM's name of a job's state; empty of a job that has only left the list.
pub fn slurm_state(state: &JobState) -> &str {
    match state {
        JobState::Pending => "PENDING",
        JobState::Configuring => "CONFIGURING",
        JobState::Running => "RUNNING",
        JobState::Suspended => "SUSPENDED",
        JobState::Completing => "COMPLETING",
        JobState::Ended(name) | JobState::Other(name) => name.as_str(),
    }
}

/// Returns the label of a job's state, with SLURM's reason code if it is pending: `waiting (Priority)`.
pub fn state_label(job: &Job) -> String {
    match &job.state {
        JobState::Pending => match &job.reason {
            Some(code) => format!("waiting ({code})"),
            None => "waiting".to_owned(),
        },
        JobState::Configuring => "configuring nodes".to_owned(),
        JobState::Running => "running".to_owned(),
        JobState::Suspended => "suspended".to_owned(),
        JobState::Completing => "completing".to_owned(),
        JobState::Ended(how) if how.is_empty() => "ended".to_owned(),
        JobState::Ended(how) | JobState::Other(how) => how.as_str().to_ascii_lowercase().replace('_', " "),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::picture::{Evidence, GpuPicture, Owner};
    use nodeglass_protocol::{Cell, GpuField, JobId, Reading};

    fn node(link: Link, sampled_at_ms: Option<u64>) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = link;
        node.head.interval_ms = 1_000;
        node.sampled_at_ms = sampled_at_ms;
        node.gpus = vec![GpuPicture::default()];
        node
    }

    #[test]
    fn a_row_of_a_node_does_not_repeat_its_name() {
        let name = NodeName::new("n1").unwrap();
        let reasons =
            ["n1 GPU 4 Xid 31", "n10 GPU 4 Xid 31", "hang"].map(|reason| within_node(reason, &name));
        assert_eq!(reasons, ["GPU 4 Xid 31", "n10 GPU 4 Xid 31", "hang"]);
    }

    #[test]
    fn a_silent_node_is_shown_as_silent_not_idle() {
        let health = for_node(&node(Link::Silent, Some(10_000)), 48_000);
        assert_eq!((health.severity, health.label.as_str()), (Severity::Error, "silent, stale 38 s"));
    }

    #[test]
    fn a_picture_is_settled_once_every_node_has_a_sample_or_a_reason() {
        let settled = |jobs: JobsHealth, nodes: Vec<NodePicture>| {
            let mut picture = Picture { nodes, ..Picture::default() };
            picture.relay.jobs = jobs;
            is_settled(&picture)
        };
        let none = || JobsHealth::NoSlurm;
        assert!(settled(
            none(),
            vec![node(Link::Live, Some(1)), node(Link::Connecting { failures: 1 }, None)]
        ));
        assert!(!settled(none(), vec![node(Link::Live, None)]), "its first sample is about to come");
        assert!(!settled(none(), vec![node(Link::Connecting { failures: 0 }, None)]));
        assert!(
            !settled(none(), Vec::new()) && !settled(JobsHealth::NotYet, vec![node(Link::Live, Some(1))])
        );
    }

    #[test]
    fn values_become_stale_even_if_the_relay_does_not_report_it() {
        let node = node(Link::Live, Some(10_000));
        assert_eq!(freshness(&node, 12_000), Freshness::Fresh);
        assert_eq!(freshness(&node, 22_000), Freshness::Stale(12_000));
        assert_eq!(for_node(&node, 22_000).label, "stale 12 s");
    }

    #[test]
    fn an_ended_node_keeps_its_last_picture_without_an_age() {
        let node = node(Link::Ended, Some(10_000));
        assert_eq!(freshness(&node, 900_000), Freshness::Last);
        assert_eq!(for_node(&node, 900_000).severity, Severity::Ended);
    }

    #[test]
    fn a_power_cap_is_healthy_and_heat_is_not() {
        let mut node = node(Link::Live, Some(10_000));
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x4));
        assert_eq!(for_node(&node, 10_100).severity, Severity::Ok);
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
        let hot = for_node(&node, 10_100);
        assert_eq!((hot.severity, hot.label.as_str()), (Severity::Warning, "GPU 0 too hot"));
    }

    #[test]
    fn a_hanging_driver_and_a_lost_gpu_are_errors() {
        let mut hung = node(Link::Live, Some(10_000));
        hung.head.driver_stuck_ms = Some(9_000);
        assert_eq!(for_node(&hung, 10_100).label, "GPU driver hangs");
        let mut lost = node(Link::Live, Some(10_000));
        lost.gpus[0].fault = Some("GPU is lost".into());
        assert_eq!(for_node(&lost, 10_100).severity, Severity::Error);
        // The job on the node does not have it.
        lost.gpus.push(GpuPicture {
            owners: vec![Owner { job: JobId(1), by: Evidence::GresIndex }],
            ..GpuPicture::default()
        });
        assert_eq!(for_node(&lost, 10_100).severity, Severity::Warning);
        lost.gpus[1].fault = Some("GPU is lost".into());
        assert_eq!(for_node(&lost, 10_100).severity, Severity::Error);
    }

    #[test]
    fn a_failed_repair_outweighs_heat() {
        let mut node = node(Link::Live, Some(10_000));
        node.gpus.push(GpuPicture::default());
        node.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
        node.gpus[1].health.remap_failed = Reading::Value(true);
        let health = for_node(&node, 10_100);
        assert_eq!((health.severity, health.label.as_str()), (Severity::Error, "GPU 0 row remap failed"));
    }

    #[test]
    fn a_sample_from_the_future_has_no_negative_age() {
        assert_eq!(freshness(&node(Link::Live, Some(10_000)), 9_000), Freshness::Fresh);
    }

    #[test]
    fn a_node_is_late_no_later_than_its_values_are_stale() {
        for interval_ms in [0, 500, 1_000, 2_000, 10_000, 60_000] {
            assert!(late_after_ms(interval_ms) <= stale_after_ms(interval_ms), "{interval_ms}");
        }
    }
}
