//! Jobs of several users in one list, and the nodes of other users' jobs, which need not admit the relay's user.

use crate::domain::attention::Item;
use crate::domain::text;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{Link, NodePicture};
use std::collections::{BTreeMap, HashSet};

/// Returns whether the jobs belong to more than one user.
pub fn are_of_several(jobs: &[Job]) -> bool {
    jobs.split_first().is_some_and(|(first, rest)| rest.iter().any(|job| job.user != first.user))
}

/// Nodes that refuse the relay's user and have active jobs of other users only. Many sites admit a user only to
/// the nodes of own jobs, so that this is no problem of the node.
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

    /// Returns whether an item only says that such a node refuses the connection.
    pub fn covers(&self, item: &Item) -> bool {
        item.key.starts_with("link/") && item.nodes.iter().all(|node| self.nodes.contains(node))
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
    use crate::domain::attention::tests::{NOW, job, node};
    use crate::domain::attention::{Entry, Tracker, items};
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
    fn only_refusals_by_nodes_without_an_own_job_are_expected() {
        let jobs = [of("bob", 1, "n1"), of("bob", 2, "n2"), of("carol", 3, "n3"), of("alice", 4, "n3")];
        let nodes = ["n1", "n2", "n3"].map(|name| refusing(name, "Access denied by pam_slurm_adopt."));
        let refusals = Refusals::new(&jobs, &nodes, "alice");
        let left: Vec<_> =
            items(&jobs, &nodes, NOW).into_iter().filter(|item| !refusals.covers(item)).collect();
        assert_eq!(left.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["link/n3"]);
        assert_eq!(
            refusals.sentence().as_deref(),
            Some("2 nodes of other users' jobs do not admit you: Access denied by pam_slurm_adopt")
        );
    }

    #[test]
    fn a_node_that_fails_in_another_way_is_still_a_problem() {
        let jobs = [of("bob", 1, "n1")];
        let mut down = node("n1", &[]);
        down.head.link = Link::Down { reason: "no route".into(), retry_at_ms: 1 };
        let refusals = Refusals::new(&jobs, std::slice::from_ref(&down), "alice");
        assert!(items(&jobs, &[down], NOW).iter().all(|item| !refusals.covers(item)));
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
        let refusals = Refusals::new(std::slice::from_ref(&bobs), std::slice::from_ref(&node), "alice");
        let found = items(std::slice::from_ref(&bobs), std::slice::from_ref(&node), NOW);
        let found: Vec<_> = found.into_iter().filter(|item| !refusals.covers(item)).collect();
        let entries: Vec<Entry> = Tracker::default().update(found, 0, false);
        let health = job_health::for_job(&bobs, std::iter::once(&node), &entries, NOW.relay_ms);
        assert_eq!(health.label, "running, no readings: not admitted");
    }
}
