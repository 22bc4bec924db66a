//! Jobs of several users in one list, and the nodes of other users' jobs, which need not admit the relay's user.

use crate::domain::sorting;
use crate::domain::text;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::{NodeName, Text};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashSet};

/// Returns whether the jobs belong to more than one user.
pub fn are_of_several(jobs: &[Job]) -> bool {
    jobs.split_first().is_some_and(|(first, rest)| rest.iter().any(|job| job.user != first.user))
}

/// Allocations and pending requests of one user's jobs, by SLURM's facts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UserTotals {
    /// Login name.
    pub user: Text,
    /// Number of jobs that have nodes.
    pub running: usize,
    /// Number of pending jobs.
    pub pending: usize,
    /// Number of GPUs of the running jobs whose number SLURM states.
    pub gpus: u64,
    /// Number of running jobs whose number of GPUs is unknown.
    pub unknown: usize,
    /// Nodes of the running jobs.
    pub nodes: BTreeSet<NodeName>,
}

impl UserTotals {
    /// Maximum number of nodes that are named.
    const MAX_NAMED: usize = 2;

    /// Returns the totals of every user with running or pending jobs, those with most GPUs first.
    pub fn of_jobs(jobs: &[Job]) -> Vec<Self> {
        let mut users: BTreeMap<&Text, Self> = BTreeMap::new();
        for job in jobs.iter().filter(|job| job.is_active() || job.state == JobState::Pending) {
            let of_user = users.entry(&job.user).or_insert_with(|| Self {
                user: job.user.clone(),
                running: 0,
                pending: 0,
                gpus: 0,
                unknown: 0,
                nodes: BTreeSet::new(),
            });
            if !job.is_active() {
                of_user.pending += 1;
                continue;
            }
            of_user.running += 1;
            of_user.nodes.extend(job.nodes.iter().cloned());
            match job.gpu_count {
                Some(gpus) => of_user.gpus += u64::from(gpus),
                None => of_user.unknown += 1,
            }
        }
        let mut users: Vec<Self> = users.into_values().collect();
        sorting::sort_by_key(&mut users, |totals| (Reverse(totals.gpus), Reverse(totals.running)));
        users
    }

    /// Returns the number of GPUs in words; unknown is not 0: `1 GPU`, `≥ 12 GPUs`, `GPUs unknown`.
    pub fn gpus_text(&self) -> String {
        let gpus = text::count(usize::try_from(self.gpus).unwrap_or(usize::MAX), "GPU", "GPUs");
        match (self.running, self.unknown) {
            (_, 0) => gpus,
            (running, unknown) if running == unknown => "GPUs unknown".to_owned(),
            _ => format!("≥ {gpus}"),
        }
    }

    /// Returns the nodes of the running jobs: up to [`Self::MAX_NAMED`] names, else their number.
    pub fn nodes_text(&self) -> String {
        match self.nodes.len() {
            0..=Self::MAX_NAMED => self.nodes.iter().map(NodeName::as_str).collect::<Vec<_>>().join(", "),
            count => text::count(count, "node", "nodes"),
        }
    }
}

/// Nodes that refuse the relay's user and have active jobs of other users only. Many sites admit a user only to the
/// nodes of own jobs, so a refusal is not a problem of the node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Refusals {
    nodes: HashSet<NodeName>,
    /// Number of nodes by reason.
    reasons: BTreeMap<String, usize>,
}

impl Refusals {
    /// Finds them in a picture; `viewer` is the user who runs the relay.
    pub fn new(jobs: &[Job], nodes: &[NodePicture], viewer: &str) -> Self {
        let (mut own, mut of_others) = (HashSet::new(), HashSet::new());
        for job in jobs.iter().filter(|job| job.is_active()) {
            let names = if job.user.as_str() == viewer { &mut own } else { &mut of_others };
            names.extend(&job.nodes);
        }
        let mut refusals = Self::default();
        for node in nodes {
            let Link::Refused { reason, .. } = &node.head.link else { continue };
            if of_others.contains(&node.name) && !own.contains(&node.name) {
                refusals.nodes.insert(node.name.clone());
                *refusals.reasons.entry(reason.to_string()).or_default() += 1;
            }
        }
        refusals
    }

    /// Returns all of them as one sentence with the most frequent reason; `None` without any.
    pub fn sentence(&self) -> Option<String> {
        let (reason, count) = self.reasons.iter().max_by_key(|(_, count)| **count)?;
        let verb = if self.nodes.len() == 1 { "does" } else { "do" };
        let nodes = text::count(self.nodes.len(), "node", "nodes");
        let others = match self.nodes.len().saturating_sub(*count) {
            0 => String::new(),
            rest => format!("; {} for other reasons", text::count(rest, "node", "nodes")),
        };
        let reason = reason.trim_end_matches('.');
        Some(format!("{nodes} of other users' jobs {verb} not admit you: {reason}{others}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::attention::tests::{NOW_MS, job, node};
    use crate::domain::job_health;

    fn of(user: &str, id: u32, node: &str) -> Job {
        Job { user: user.into(), ..job(id, node) }
    }

    fn refusing(name: &str, reason: &str) -> NodePicture {
        let mut node = node(name, &[]);
        (node.sampled_at_ms, node.head.link) =
            (None, Link::Refused { reason: reason.into(), advice: "".into() });
        node
    }

    #[test]
    fn jobs_are_of_several_users_once_one_differs() {
        assert!(!are_of_several(&[]) && !are_of_several(&[of("a", 1, "n1"), of("a", 2, "n1")]));
        assert!(are_of_several(&[of("a", 1, "n1"), of("a", 2, "n1"), of("b", 3, "n1")]));
    }

    #[test]
    fn users_are_ordered_by_gpus_and_an_unknown_number_is_not_zero() {
        let with = |gpu_count, job| Job { gpu_count, ..job };
        let pending = Job { state: JobState::Pending, ..with(Some(64), of("bob", 5, "n1")) };
        let ended = Job { state: JobState::Ended("COMPLETED".into()), ..of("eve", 6, "n1") };
        let jobs = [
            with(Some(4), of("alice", 1, "n1")),
            with(Some(8), of("bob", 2, "n1")),
            with(None, of("bob", 3, "n1")),
            with(None, of("carol", 4, "n1")),
            pending,
            ended,
            with(Some(0), of("dave", 7, "n1")),
        ];
        let users = UserTotals::of_jobs(&jobs);
        let rows: Vec<_> = users
            .iter()
            .map(|totals| (totals.user.as_str(), totals.gpus_text(), totals.running, totals.pending))
            .collect();
        let row = |user, gpus: &str, running, pending| (user, gpus.to_owned(), running, pending);
        assert_eq!(
            rows,
            [
                row("bob", "≥ 8 GPUs", 2, 1),
                row("alice", "4 GPUs", 1, 0),
                row("carol", "GPUs unknown", 1, 0),
                row("dave", "0 GPUs", 1, 0)
            ]
        );
        assert_eq!((users[0].nodes_text().as_str(), users[0].nodes.len()), ("n1", 1), "each node once");
        let large: Vec<_> = (1..=4).map(|id| of("eve", id, &format!("n{id}"))).collect();
        let nodes = |jobs: &[Job]| UserTotals::of_jobs(jobs)[0].nodes_text();
        assert_eq!((nodes(&large).as_str(), nodes(&large[..2]).as_str()), ("4 nodes", "n1, n2"));
    }

    #[test]
    fn only_refusals_by_nodes_without_an_own_job_are_expected() {
        let jobs = [of("bob", 1, "n1"), of("bob", 2, "n2"), of("carol", 3, "n3"), of("alice", 4, "n3")];
        let nodes = ["n1", "n2", "n3"].map(|name| refusing(name, "Access denied by pam_slurm_adopt."));
        let refusals = Refusals::new(&jobs, &nodes, "alice");
        assert_eq!(
            refusals.sentence().as_deref(),
            Some("2 nodes of other users' jobs do not admit you: Access denied by pam_slurm_adopt")
        );
    }

    #[test]
    fn a_node_that_fails_in_another_way_is_no_refusal() {
        let jobs = [of("bob", 1, "n1")];
        let mut down = node("n1", &[]);
        down.head.link = Link::Down { reason: "no route".into(), retry_at_ms: 1 };
        let refusals = Refusals::new(&jobs, std::slice::from_ref(&down), "alice");
        assert_eq!(refusals.sentence(), None);
    }

    #[test]
    fn the_most_frequent_reason_is_named_and_the_others_are_counted() {
        let jobs = ["n1", "n2", "n3"].map(|node| of("bob", 1, node));
        let nodes = [refusing("n1", "denied"), refusing("n2", "full"), refusing("n3", "full")];
        let sentence = Refusals::new(&jobs, &nodes, "alice").sentence();
        let expected = "3 nodes of other users' jobs do not admit you: full; 1 node for other reasons";
        assert_eq!(sentence.as_deref(), Some(expected));
    }

    #[test]
    fn a_job_on_a_node_that_does_not_admit_the_viewer_has_no_readings_and_no_alarm() {
        let (bobs, node) = (of("bob", 1, "n1"), refusing("n1", "denied"));
        let health = job_health::for_job(&bobs, std::iter::once(&node), &[], NOW_MS);
        assert_eq!(health.label, "running, no readings: not admitted");
    }
}
