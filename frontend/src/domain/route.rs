//! Routes: the paths of the page, so that a link leads a colleague to a job, a node or a tab.

use nodeglass_protocol::live::Topic;
use nodeglass_protocol::{JobId, NodeName};

/// What the page shows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// `/`: every job.
    #[default]
    AllJobs,
    /// `/job/17…`: one job.
    Job(JobId, JobTab),
    /// `/node/NAME`: one node, whatever runs there.
    Node(NodeName),
    /// An unknown path.
    Nowhere,
}

/// A tab of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JobTab {
    /// `/job/17`: a summary of all its nodes.
    Nodes,
    /// `/job/17/node/NAME`: one of its nodes.
    Node(NodeName),
    /// `/job/17/processes`: its processes on all nodes.
    Processes,
    /// `/job/17/logs`: its output.
    Logs,
    /// `/job/17/about`: everything SLURM reports about it, and the available actions.
    About,
}

impl Route {
    /// Parses a path below the relay's base path.
    pub fn from_path(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let found = match parts.as_slice() {
            [] => Some(Self::AllJobs),
            ["job", id] => id.parse().ok().map(|id| Self::Job(id, JobTab::Nodes)),
            ["job", id, "processes"] => id.parse().ok().map(|id| Self::Job(id, JobTab::Processes)),
            ["job", id, "logs"] => id.parse().ok().map(|id| Self::Job(id, JobTab::Logs)),
            ["job", id, "about"] => id.parse().ok().map(|id| Self::Job(id, JobTab::About)),
            ["job", id, "node", name] => {
                id.parse().ok().zip(name.parse().ok()).map(|(id, name)| Self::Job(id, JobTab::Node(name)))
            }
            ["node", name] => name.parse().ok().map(Self::Node),
            _ => None,
        };
        found.unwrap_or(Self::Nowhere)
    }

    /// Returns its path below the relay's base path.
    pub fn path(&self) -> String {
        match self {
            Self::AllJobs | Self::Nowhere => "/".to_owned(),
            Self::Job(id, JobTab::Nodes) => format!("/job/{id}"),
            Self::Job(id, JobTab::Processes) => format!("/job/{id}/processes"),
            Self::Job(id, JobTab::Logs) => format!("/job/{id}/logs"),
            Self::Job(id, JobTab::About) => format!("/job/{id}/about"),
            Self::Job(id, JobTab::Node(name)) => format!("/job/{id}/node/{name}"),
            Self::Node(name) => format!("/node/{name}"),
        }
    }

    /// Returns the topic that it needs in full; the overview is always subscribed.
    pub fn topic(&self) -> Option<Topic> {
        match self {
            Self::AllJobs | Self::Nowhere => None,
            Self::Job(id, _) => Some(Topic::Job(*id)),
            Self::Node(name) => Some(Topic::Node(name.clone())),
        }
    }

    /// Returns its job, if any.
    pub fn job(&self) -> Option<JobId> {
        match self {
            Self::Job(id, _) => Some(*id),
            _ => None,
        }
    }
}

/// Returns the item `step` positions after `current` in `all`, limited to both ends; the first item without a
/// current one.
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
    fn every_route_round_trips_through_its_path() {
        let node: NodeName = "gpu-01.cluster".parse().unwrap();
        for route in [
            Route::AllJobs,
            Route::Job(JobId(17), JobTab::Nodes),
            Route::Job(JobId(17), JobTab::Processes),
            Route::Job(JobId(17), JobTab::Logs),
            Route::Job(JobId(17), JobTab::About),
            Route::Job(JobId(17), JobTab::Node(node.clone())),
            Route::Node(node),
        ] {
            assert_eq!(Route::from_path(&route.path()), route);
        }
    }

    #[test]
    fn an_unknown_path_leads_nowhere() {
        for path in ["/job", "/job/abc", "/job/1/node/-oProxy", "/job/1/x", "/node/", "/jobs/1", "/node/a b"]
        {
            assert_eq!(Route::from_path(path), Route::Nowhere, "{path}");
        }
    }

    #[test]
    fn a_trailing_slash_changes_nothing() {
        assert_eq!(Route::from_path("/job/17/"), Route::Job(JobId(17), JobTab::Nodes));
    }

    #[test]
    fn all_tabs_of_a_job_need_the_same_topic() {
        let node: NodeName = "n1".parse().unwrap();
        for tab in [JobTab::Nodes, JobTab::Processes, JobTab::Node(node)] {
            assert_eq!(Route::Job(JobId(4), tab).topic(), Some(Topic::Job(JobId(4))));
        }
        assert_eq!(Route::AllJobs.topic(), None);
    }

    #[test]
    fn neighbours_stop_at_the_ends_and_start_at_the_first() {
        assert_eq!(neighbour(&[1, 2, 3], Some(&3), 1), Some(3));
        assert_eq!(neighbour(&[1, 2, 3], Some(&2), -1), Some(1));
        assert_eq!(neighbour(&[1, 2, 3], Some(&1), -1), Some(1));
        assert_eq!(neighbour(&[1, 2, 3], None, 1), Some(1));
        assert_eq!(neighbour::<u8>(&[], None, 1), None);
    }
}
