//! Routes: the paths of the page, so that a link leads a colleague to a job, a node or a tab.

use crate::domain::compared::Compared;
use crate::domain::job_groups;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::{JobId, NodeName};

/// A view of the page.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// `/`: every job.
    #[default]
    AllJobs,
    /// `/job/17…`: one job.
    Job(JobId, JobTab),
    /// `/job/48440_10`: a job by the number that SLURM and the page print, which the job list resolves.
    JobLabel(String, JobTab),
    /// `/job/48440`: the tasks of an array. One of them has the same number as a job: its own path has its label.
    Array(JobId),
    /// `/node/NAME`: one node, with any jobs.
    Node(NodeName),
    /// `/usage`: what all jobs of the last weeks used.
    Usage,
    /// `/compare/17-18`, `/compare/17@1795600000..1795603600-18`: several jobs or parts of them side by side.
    Compare(Vec<Compared>),
    /// `/compare/17-48440_10`: jobs of which some are named by the numbers that SLURM prints, which the job list resolves.
    CompareLabels(String),
    /// `/audit`: who viewed through which share, and which actions were performed.
    Audit,
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
    /// `/job/17/report`: what it did with what it was given.
    Report,
    /// `/job/17/about`: everything SLURM reports about it, and the available actions.
    About,
}

impl Route {
    /// Parses a path below the relay's base path.
    pub fn from_path(path: &str) -> Self {
        let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let found = match parts.as_slice() {
            [] => Some(Self::AllJobs),
            ["job", job, tab @ ..] => JobTab::from_parts(tab).and_then(|tab| Self::from_job(job, tab)),
            ["node", name] => name.parse().ok().map(Self::Node),
            ["usage"] => Some(Self::Usage),
            ["audit"] => Some(Self::Audit),
            ["compare"] => Some(Self::Compare(Vec::new())),
            ["compare", jobs] => Self::from_compared(jobs),
            _ => None,
        };
        found.unwrap_or(Self::Nowhere)
    }

    /// Returns the route to a comparison of jobs, or of parts of them, by their ids or labels.
    fn from_compared(jobs: &str) -> Option<Self> {
        if let Ok(compared) = jobs.split('-').map(str::parse).collect::<Result<_, ()>>() {
            return Some(Self::Compare(compared));
        }
        let is_job = |one: &str| {
            let label = label_of(one);
            let of_an_id = format!("0{}", &one[label.len()..]);
            Self::from_job(label, JobTab::Nodes).is_some() && of_an_id.parse::<Compared>().is_ok()
        };
        jobs.split('-').all(is_job).then(|| Self::CompareLabels(jobs.to_owned()))
    }

    /// Returns the route to a job by its id, or by its label: `48440_10` of an array, `48440+1` of a
    /// heterogeneous job, each with `.CLUSTER` where several clusters have such a job.
    fn from_job(job: &str, tab: JobTab) -> Option<Self> {
        if let Ok(id) = job.parse() {
            return Some(Self::Job(id, tab));
        }
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        let (own, cluster) = job.split_once('.').map_or((job, None), |(own, name)| (own, Some(name)));
        let is_cluster = |name: &str| {
            let is_known = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
            !name.is_empty() && name.bytes().all(is_known)
        };
        let is_job = match own.split_once(['_', '+']) {
            Some((parent, part)) => is_number(parent) && is_number(part),
            None => cluster.is_some() && is_number(own),
        };
        (is_job && cluster.is_none_or(is_cluster)).then(|| Self::JobLabel(job.to_owned(), tab))
    }

    /// Returns the route to show instead, given the listed jobs: that of the job with this label, or of the array with this
    /// number.
    pub fn resolve(&self, jobs: &[Job]) -> Option<Self> {
        match self {
            Self::JobLabel(label, tab) => {
                let job = jobs.iter().find(|job| job.label.as_str() == label)?;
                Some(Self::Job(job.id, tab.clone()))
            }
            Self::CompareLabels(labels) => {
                let by_id = |one: &str| {
                    let label = label_of(one);
                    let job = jobs.iter().find(|job| job.label.as_str() == label);
                    let id = job.map_or_else(|| label.to_owned(), |job| job.id.to_string());
                    format!("{id}{}", &one[label.len()..]).parse().ok()
                };
                labels.split('-').map(by_id).collect::<Option<_>>().map(Self::Compare)
            }
            Self::Job(id, JobTab::Nodes) => {
                jobs.iter().any(|job| job_groups::is_task(job, *id)).then_some(Self::Array(*id))
            }
            _ => None,
        }
    }

    /// Returns the label that none of the listed jobs has, and which the route needs.
    pub fn unknown_label(&self, jobs: &[Job]) -> Option<String> {
        let is_unknown = |label: &str| {
            label.parse::<u32>().is_err() && !jobs.iter().any(|job| job.label.as_str() == label)
        };
        match self {
            Self::JobLabel(label, _) => Some(label.clone()),
            Self::CompareLabels(labels) => {
                labels.split('-').map(label_of).find(|label| is_unknown(label)).map(str::to_owned)
            }
            _ => None,
        }
    }

    /// Returns the route whose path to link to instead, given the listed jobs. A task that has the number of its array is
    /// linked by its label, or by its About tab if it stands for the tasks that have not started, which have no label.
    pub fn unambiguous(&self, jobs: &[Job]) -> Option<Self> {
        let Self::Job(id, JobTab::Nodes) = self else { return None };
        let job = jobs.iter().find(|job| job.id == *id && job_groups::is_task(job, *id))?;
        let label = Self::from_job(job.label.as_str(), JobTab::Nodes);
        Some(label.unwrap_or(Self::Job(*id, JobTab::About)))
    }

    /// Returns its path below the relay's base path.
    pub fn path(&self) -> String {
        match self {
            Self::AllJobs | Self::Nowhere => "/".to_owned(),
            Self::Job(id, tab) => format!("/job/{id}{}", tab.path()),
            Self::Array(id) => format!("/job/{id}"),
            Self::JobLabel(label, tab) => format!("/job/{label}{}", tab.path()),
            Self::Node(name) => format!("/node/{name}"),
            Self::Usage => "/usage".to_owned(),
            Self::Audit => "/audit".to_owned(),
            Self::CompareLabels(labels) => format!("/compare/{labels}"),
            Self::Compare(jobs) => {
                format!("/compare/{}", jobs.iter().map(Compared::to_string).collect::<Vec<_>>().join("-"))
            }
        }
    }

    /// Returns the topic that it needs in full; the overview is always subscribed.
    pub fn topic(&self) -> Option<Topic> {
        match self {
            Self::AllJobs
            | Self::JobLabel(..)
            | Self::Array(_)
            | Self::Usage
            | Self::Compare(_)
            | Self::CompareLabels(_)
            | Self::Audit
            | Self::Nowhere => None,
            Self::Job(id, _) => Some(Topic::Job(*id)),
            Self::Node(name) => Some(Topic::Node(name.clone())),
        }
    }

    /// Returns its array, if any.
    pub fn array(&self) -> Option<JobId> {
        match self {
            Self::Array(id) => Some(*id),
            _ => None,
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

impl JobTab {
    /// Parses what follows the job in a path.
    fn from_parts(parts: &[&str]) -> Option<Self> {
        match parts {
            [] => Some(Self::Nodes),
            ["processes"] => Some(Self::Processes),
            ["logs"] => Some(Self::Logs),
            ["report"] => Some(Self::Report),
            ["about"] => Some(Self::About),
            ["node", name] => name.parse().ok().map(Self::Node),
            _ => None,
        }
    }

    /// Returns what follows the job in a path.
    fn path(&self) -> String {
        match self {
            Self::Nodes => String::new(),
            Self::Processes => "/processes".to_owned(),
            Self::Logs => "/logs".to_owned(),
            Self::Report => "/report".to_owned(),
            Self::About => "/about".to_owned(),
            Self::Node(name) => format!("/node/{name}"),
        }
    }
}

/// Returns the job in an entry of a comparison: `17` of `17@1795600000..1795603600`.
fn label_of(compared: &str) -> &str {
    compared.split('@').next().unwrap_or_default()
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

/// Returns the position `step` places after `current` among `count`, from each end on to the other. Without a current
/// one, steps down begin at the first and steps up at the last.
pub fn around(current: Option<usize>, step: isize, count: usize) -> Option<usize> {
    let from = match current {
        Some(current) => current.cast_signed(),
        None if step > 0 => -1,
        None => 0,
    };
    from.checked_add(step)?.checked_rem_euclid(count.cast_signed()).map(isize::cast_unsigned)
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
            Route::Job(JobId(17), JobTab::Report),
            Route::Job(JobId(17), JobTab::About),
            Route::Usage,
            Route::Audit,
            Route::Compare(vec![Compared::whole(JobId(17)), "18@100..200".parse().unwrap()]),
            Route::Job(JobId(17), JobTab::Node(node.clone())),
            Route::JobLabel("48440_10".to_owned(), JobTab::Logs),
            Route::JobLabel("48440.hpc-2".to_owned(), JobTab::Nodes),
            Route::JobLabel("48440_10.hpc".to_owned(), JobTab::About),
            Route::Node(node),
        ] {
            assert_eq!(Route::from_path(&route.path()), route);
        }
    }

    #[test]
    fn a_comparison_may_begin_empty() {
        for path in ["/compare", "/compare/"] {
            assert_eq!(Route::from_path(path), Route::Compare(Vec::new()), "{path}");
        }
        assert_eq!(Route::Compare(Vec::new()).path(), "/compare/");
    }

    #[test]
    fn an_unknown_path_leads_nowhere() {
        for path in [
            "/job",
            "/job/abc",
            "/job/1_",
            "/job/1_x",
            "/job/_1",
            "/job/1/node/-oProxy",
            "/job/1/x",
            "/node/",
            "/jobs/1",
            "/compare/17-",
            "/compare/17@5..1-18",
            "/usage/x",
            "/node/a b",
        ] {
            assert_eq!(Route::from_path(path), Route::Nowhere, "{path}");
        }
    }

    #[test]
    fn an_array_task_is_found_by_the_number_that_the_page_prints() {
        use nodeglass_protocol::job::JobState;
        let task = |id: u32, label: &str| Job {
            label: label.into(),
            ..Job::new(JobId(id), "alice".into(), JobState::Running)
        };
        let jobs = [task(48_440, "48440_9"), task(48_451, "48440_10")];
        let route = Route::from_path("/job/48440_10/logs");
        assert_eq!(route.resolve(&jobs), Some(Route::Job(JobId(48_451), JobTab::Logs)));
        assert_eq!(Route::from_path("/job/48440_11").resolve(&jobs), None);
        let compared = Route::from_path("/compare/17-48440_10@5..9");
        assert_eq!(compared.path(), "/compare/17-48440_10@5..9");
        assert_eq!(compared.resolve(&jobs), Some(Route::from_path("/compare/17-48451@5..9")));
        let unknown = Route::from_path("/compare/17-48440_11");
        assert_eq!(unknown.resolve(&jobs), None);
        assert_eq!(unknown.unknown_label(&jobs).as_deref(), Some("48440_11"));
        assert_eq!(Route::from_path("/compare/17-48440_10@9..5"), Route::Nowhere);
        assert_eq!(Route::Job(JobId(1), JobTab::Nodes).resolve(&jobs), None);
    }

    #[test]
    fn the_number_of_an_array_leads_to_all_of_its_tasks_and_to_none_of_them() {
        use nodeglass_protocol::job::{JobState, Parent};
        let task = |id: u32, label: &str| Job {
            label: label.into(),
            part_of: Some(Parent::Array { job: JobId(48_440), task: None }),
            ..Job::new(JobId(id), "alice".into(), JobState::Running)
        };
        for (label, path) in [("48440_9", "/job/48440_9"), ("48440_[9-23%8]", "/job/48440/about")] {
            let jobs = [task(48_440, label), task(48_451, "48440_8")];
            let array = Route::from_path("/job/48440").resolve(&jobs);
            assert_eq!(array, Some(Route::Array(JobId(48_440))));
            assert_eq!(array.map(|array| array.path()).as_deref(), Some("/job/48440"));
            // The task with the same number has a path of its own, which leads back to it.
            let own = Route::Job(JobId(48_440), JobTab::Nodes);
            assert_eq!(own.unambiguous(&jobs).map(|route| route.path()).as_deref(), Some(path));
            assert_eq!(Route::from_path("/job/48440/logs").resolve(&jobs), None);
            assert_eq!(Route::Job(JobId(48_451), JobTab::Nodes).unambiguous(&jobs), None);
        }
        let jobs = [task(48_440, "48440_9")];
        let own = Route::Job(JobId(48_440), JobTab::Nodes);
        assert_eq!(Route::from_path("/job/48440_9").resolve(&jobs), Some(own));
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

    #[test]
    fn steps_around_continue_at_the_other_end() {
        assert_eq!(
            [around(Some(0), 1, 3), around(Some(2), 1, 3), around(Some(0), -1, 3)],
            [Some(1), Some(0), Some(2)]
        );
        assert_eq!([around(None, 1, 3), around(None, -1, 3), around(None, 1, 0)], [Some(0), Some(2), None]);
    }
}
