//! The URL is the place a colleague can be sent to: a job, a node, a tab.

use nodeglass_protocol::live::Topic;
use nodeglass_protocol::{JobId, NodeName};

/// Where the user is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Place {
    /// `/`: every job.
    #[default]
    AllJobs,
    /// `/job/17…`: one job.
    Job(JobId, Tab),
    /// `/node/NAME`: one node, whatever runs there.
    Node(NodeName),
    /// A path that leads nowhere.
    Nowhere,
}

/// Which side of a job is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tab {
    /// `/job/17`: all its nodes at a glance.
    Nodes,
    /// `/job/17/node/NAME`: one of its nodes.
    Node(NodeName),
    /// `/job/17/processes`: its processes on all nodes.
    Processes,
    /// `/job/17/logs`: what it writes.
    Logs,
    /// `/job/17/about`: everything SLURM says of it, and what can be done with it.
    About,
}

impl Place {
    /// The place of a path below the relay's base path.
    pub fn of_path(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let found = match parts.as_slice() {
            [] => Some(Self::AllJobs),
            ["job", id] => id.parse().ok().map(|id| Self::Job(id, Tab::Nodes)),
            ["job", id, "processes"] => id.parse().ok().map(|id| Self::Job(id, Tab::Processes)),
            ["job", id, "logs"] => id.parse().ok().map(|id| Self::Job(id, Tab::Logs)),
            ["job", id, "about"] => id.parse().ok().map(|id| Self::Job(id, Tab::About)),
            ["job", id, "node", name] => {
                id.parse().ok().zip(name.parse().ok()).map(|(id, name)| Self::Job(id, Tab::Node(name)))
            }
            ["node", name] => name.parse().ok().map(Self::Node),
            _ => None,
        };
        found.unwrap_or(Self::Nowhere)
    }

    /// Its path below the relay's base path.
    pub fn path(&self) -> String {
        match self {
            Self::AllJobs | Self::Nowhere => "/".to_owned(),
            Self::Job(id, Tab::Nodes) => format!("/job/{id}"),
            Self::Job(id, Tab::Processes) => format!("/job/{id}/processes"),
            Self::Job(id, Tab::Logs) => format!("/job/{id}/logs"),
            Self::Job(id, Tab::About) => format!("/job/{id}/about"),
            Self::Job(id, Tab::Node(name)) => format!("/job/{id}/node/{name}"),
            Self::Node(name) => format!("/node/{name}"),
        }
    }

    /// What must be looked at in full to show it; everything is looked at from afar anyway.
    pub fn topic(&self) -> Option<Topic> {
        match self {
            Self::AllJobs | Self::Nowhere => None,
            Self::Job(id, _) => Some(Topic::Job(*id)),
            Self::Node(name) => Some(Topic::Node(name.clone())),
        }
    }

    /// The job, if it is in one.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Job(id, _) => Some(*id),
            _ => None,
        }
    }
}

/// The neighbour of `current` in `all`, `step` further; stops at both ends. Without a current one, the first.
pub fn neighbour<T: PartialEq + Clone>(all: &[T], current: Option<&T>, step: isize) -> Option<T> {
    let last = all.len().checked_sub(1)?;
    let index = match current.and_then(|current| all.iter().position(|one| one == current)) {
        Some(index) => index.saturating_add_signed(step).min(last),
        None => 0,
    };
    all.get(index).cloned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_comes_back_from_its_own_path() {
        let node: NodeName = "gpu-01.cluster".parse().unwrap();
        for place in [
            Place::AllJobs,
            Place::Job(JobId(17), Tab::Nodes),
            Place::Job(JobId(17), Tab::Processes),
            Place::Job(JobId(17), Tab::Logs),
            Place::Job(JobId(17), Tab::About),
            Place::Job(JobId(17), Tab::Node(node.clone())),
            Place::Node(node),
        ] {
            assert_eq!(Place::of_path(&place.path()), place);
        }
    }

    #[test]
    fn a_path_that_means_nothing_leads_nowhere() {
        for path in ["/job", "/job/abc", "/job/1/node/-oProxy", "/job/1/x", "/node/", "/jobs/1", "/node/a b"]
        {
            assert_eq!(Place::of_path(path), Place::Nowhere, "{path}");
        }
    }

    #[test]
    fn a_trailing_slash_changes_nothing() {
        assert_eq!(Place::of_path("/job/17/"), Place::Job(JobId(17), Tab::Nodes));
    }

    #[test]
    fn all_tabs_of_a_job_need_the_same_topic() {
        let node: NodeName = "n1".parse().unwrap();
        for tab in [Tab::Nodes, Tab::Processes, Tab::Node(node)] {
            assert_eq!(Place::Job(JobId(4), tab).topic(), Some(Topic::Job(JobId(4))));
        }
        assert_eq!(Place::AllJobs.topic(), None);
    }

    #[test]
    fn walking_stops_at_the_ends_and_starts_at_the_first() {
        assert_eq!(neighbour(&[1, 2, 3], Some(&3), 1), Some(3));
        assert_eq!(neighbour(&[1, 2, 3], Some(&2), -1), Some(1));
        assert_eq!(neighbour(&[1, 2, 3], Some(&1), -1), Some(1));
        assert_eq!(neighbour(&[1, 2, 3], None, 1), Some(1));
        assert_eq!(neighbour::<u8>(&[], None, 1), None);
    }
}
