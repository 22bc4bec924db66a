//! The health of a job: its worst problem, or its state in SLURM.

use crate::domain::attention::{self, Entry};
use crate::domain::health::{Freshness, Health, freshness, state_label};
use crate::domain::outcome;
use crate::domain::severity::Severity;
use crate::domain::text;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{Link, NodePicture};

/// Returns the health of a job: the item that needs attention most, or else its state. The items are those of its own
/// GPUs, and of nodes as a whole; problems of other jobs on its nodes do not count.
pub fn for_job<'a>(
    job: &Job,
    nodes: impl Iterator<Item = &'a NodePicture>,
    entries: &[Entry],
    now_ms: u64,
) -> Health {
    let label = state_label(job);
    match job.state {
        JobState::Pending => return Health::new(Severity::Pending, label),
        JobState::Ended(_) => {
            let failure = outcome::failure(job);
            return failure.map_or_else(
                || Health::new(Severity::Ended, label),
                |failure| Health::new(failure.severity, failure.label),
            );
        }
        _ => {}
    }
    let mut items = attention::for_job(entries, job.id).map(|entry| &entry.item);
    if let Some(worst) = items.next() {
        let more = match items.count() {
            0 => String::new(),
            more => format!(" +{more}"),
        };
        return Health::new(worst.severity, format!("{}{more}", worst.reason));
    }
    let (mut newest, mut is_refused) = (None, true);
    for node in nodes {
        is_refused &= matches!(node.head.link, Link::Refused { .. });
        let age_ms = match freshness(node, now_ms) {
            Freshness::Fresh | Freshness::Last => 0,
            Freshness::Stale(age_ms) => age_ms,
            Freshness::Never => u64::MAX,
        };
        newest = Some(newest.map_or(age_ms, |least: u64| least.min(age_ms)));
    }
    match newest {
        None | Some(0) => Health::new(Severity::Ok, label),
        Some(u64::MAX) if is_refused => {
            Health::new(Severity::Pending, format!("{label}, no readings: not admitted"))
        }
        Some(u64::MAX) => Health::new(Severity::Pending, format!("{label}, no data yet")),
        Some(age_ms) => {
            Health::new(Severity::Pending, format!("{label}, data {} old", text::span(age_ms / 1_000)))
        }
    }
}

/// Describes running jobs of which none needs attention. Nothing is known about a node before its first readings, so that the
/// sentence counts the nodes that have reported until all have. A node that refuses the connection never does.
pub fn without_problems(running: usize, nodes: &[NodePicture]) -> Health {
    let expected =
        || nodes.iter().filter(|node| !matches!(node.head.link, Link::Refused { .. } | Link::Ended));
    let (reporting, all) =
        (expected().filter(|node| node.sampled_at_ms.is_some()).count(), expected().count());
    if reporting < all {
        let nodes = text::count(all, "node has", "nodes have");
        return Health::new(Severity::Pending, format!("{reporting} of {nodes} reported so far"));
    }
    let sentence = match running {
        1 => "The running job looks healthy".to_owned(),
        _ => format!("All {} running jobs look healthy", text::grouped(running as u64)),
    };
    Health::new(Severity::Ok, sentence)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::finding::{Finding, FindingKind, FindingSeverity};

    fn linked(link: Link, sampled_at_ms: Option<u64>) -> NodePicture {
        let mut node = attention::tests::node("n1", &[1]);
        (node.head.link, node.sampled_at_ms) = (link, sampled_at_ms);
        node
    }

    fn job_health(state: JobState, entries: &[Entry], node: &NodePicture) -> (Severity, String) {
        let job = Job { state, ..attention::tests::job(1, "n1") };
        let health = for_job(&job, std::iter::once(node), entries, 10_100);
        (health.severity, health.label)
    }

    #[test]
    fn a_job_has_its_worst_problem_and_not_its_neighbours() {
        let ours = attention::tests::node("n1", &[1, 2]);
        let jobs = [1, 2].map(|id| attention::tests::job(id, "n1"));
        let hot = Finding {
            reason: "GPU 0 too hot".into(),
            ..attention::tests::finding(FindingKind::Thermal, 1, "n1")
        };
        let lost = Finding {
            reason: "GPU 1 lost".into(),
            severity: FindingSeverity::Error,
            ..attention::tests::finding(FindingKind::GpuLost, 2, "n1")
        };
        let mut tracker = attention::Tracker::default();
        tracker.update(attention::all(&jobs, &attention::tests::picture(vec![lost, hot])), false);
        let entries = tracker.entries();
        let own = for_job(&jobs[0], std::iter::once(&ours), entries, 0);
        assert_eq!((own.severity, own.label.as_str()), (Severity::Warning, "GPU 0 too hot"));
        let other = for_job(&jobs[1], std::iter::once(&ours), entries, 0);
        assert_eq!((other.severity, other.label.as_str()), (Severity::Error, "GPU 1 lost"));
    }

    #[test]
    fn a_job_without_current_data_is_not_green() {
        let fresh = job_health(JobState::Running, &[], &linked(Link::Live, Some(10_000)));
        assert_eq!(fresh, (Severity::Ok, "running".to_owned()));
        let stale = job_health(JobState::Running, &[], &linked(Link::Live, Some(100)));
        assert_eq!(stale, (Severity::Pending, "running, data 10 s old".to_owned()));
        assert_eq!(job_health(JobState::Running, &[], &linked(Link::Live, None)).0, Severity::Pending);
    }

    #[test]
    fn a_failed_job_looks_failed() {
        let ended = |how: &str| job_health(JobState::Ended(how.into()), &[], &linked(Link::Ended, Some(1)));
        assert_eq!(ended("OUT_OF_MEMORY"), (Severity::Error, "out of host memory".to_owned()));
        assert_eq!(ended("COMPLETED"), (Severity::Ended, "completed".to_owned()));
    }

    #[test]
    fn jobs_look_healthy_once_all_their_nodes_have_reported() {
        let refused = Link::Refused { reason: "".into(), advice: "".into() };
        let read = |link| linked(link, Some(10_000));
        let sentence = |running, nodes: &[NodePicture]| without_problems(running, nodes).label;
        let nodes = [read(Link::Live), linked(Link::Connecting { failures: 0 }, None), linked(refused, None)];
        assert_eq!(sentence(2, &nodes), "1 of 2 nodes have reported so far");
        assert_eq!(sentence(1, &nodes[1..]), "0 of 1 node has reported so far");
        assert_eq!(sentence(1, &nodes[..1]), "The running job looks healthy");
        assert_eq!(sentence(2, &[read(Link::Live), read(Link::Late)]), "All 2 running jobs look healthy");
    }
}
