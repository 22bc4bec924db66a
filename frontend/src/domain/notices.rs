//! Detects events of jobs and nodes that deserve a notification, each reported once.

use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::{GpuField, JobId, NodeName, Picture};
use std::collections::BTreeMap;

/// A job stalls when none of its GPUs did anything for this long, in ms, after they had worked.
pub const STALL_MS: u64 = 300_000;
/// Utilisation in % up to which a GPU counts as idle.
const IDLE_PCT: u32 = 1;

/// An event to report.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it concerns: a later notice with the same tag replaces it.
    pub about: String,
    /// The first line.
    pub title: String,
    /// The second line.
    pub body: String,
    /// The job to show when the notice is clicked.
    pub job: Option<JobId>,
}

/// The state of jobs and nodes at the last update.
#[derive(Clone, Debug, Default)]
pub struct NoticeTracker {
    begun: bool,
    jobs: BTreeMap<JobId, Phase>,
    lost: BTreeMap<NodeName, bool>,
}

/// The phases of a job that are distinguished here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Stalled,
    Ended,
}

impl NoticeTracker {
    /// Compares the picture with the last one and returns the events; the first call returns none.
    pub fn update(&mut self, picture: &Picture) -> Vec<Notice> {
        let mut notices = Vec::new();
        let jobs = picture.jobs.iter().map(|job| (job.id, phase(job, picture))).collect::<BTreeMap<_, _>>();
        let lost: BTreeMap<_, _> =
            picture.nodes.iter().map(|node| (node.name.clone(), is_lost(node))).collect();
        if self.begun {
            for job in &picture.jobs {
                notices.extend(job_notice(job, self.jobs.get(&job.id).copied(), jobs[&job.id]));
            }
            let newly = |(name, now): &(&NodeName, &bool)| **now && self.lost.get(*name) != Some(&true);
            notices.extend(lost.iter().filter(newly).filter_map(|(name, _)| node_notice(name, picture)));
        }
        *self = Self { begun: true, jobs, lost };
        notices
    }
}

fn phase(job: &Job, picture: &Picture) -> Phase {
    match job.state {
        JobState::Pending | JobState::Configuring => Phase::Waiting,
        JobState::Ended(_) => Phase::Ended,
        _ if is_stalled(job, picture) => Phase::Stalled,
        _ => Phase::Running,
    }
}

/// Returns whether every GPU of the job was idle for [`STALL_MS`] and at least one had worked before.
fn is_stalled(job: &Job, picture: &Picture) -> bool {
    let nodes = crate::domain::ownership::job_nodes(job, picture);
    let mut worked = false;
    let mut any_known = false;
    for node in nodes.into_iter().map(|index| &picture.nodes[index]) {
        let Some(past) = node.history.as_ref().filter(|_| !is_lost(node)) else { return false };
        for (gpu, traces) in node.gpus.iter().zip(&past.gpus) {
            if !crate::domain::ownership::belongs_to_job(node, gpu, Some(job.id)) {
                continue;
            }
            match activity(gpu, traces, picture.at_ms) {
                Activity::Busy => return false,
                Activity::Idle { worked: before } => worked |= before,
                Activity::Unknown => return false,
            }
            any_known = true;
        }
    }
    any_known && worked
}

enum Activity {
    Busy,
    Idle { worked: bool },
    Unknown,
}

fn activity(
    gpu: &GpuPicture,
    traces: &nodeglass_protocol::picture::Traces<GpuField>,
    now_ms: u64,
) -> Activity {
    if gpu.fault.is_some() {
        return Activity::Unknown;
    }
    let (mut earliest, mut worked) = (u64::MAX, false);
    let util = traces.get(GpuField::Util).into_iter();
    for (at_ms, cell) in util.flat_map(|trace| trace.points()) {
        let Some(util) = cell.and_then(nodeglass_protocol::Cell::value) else { continue };
        if util <= IDLE_PCT {
            earliest = earliest.min(at_ms);
        } else if at_ms + STALL_MS > now_ms {
            return Activity::Busy;
        } else {
            worked = true;
        }
    }
    // A page that was just opened has too little history.
    if earliest == u64::MAX || earliest + STALL_MS > now_ms {
        Activity::Unknown
    } else {
        Activity::Idle { worked }
    }
}

fn is_lost(node: &NodePicture) -> bool {
    matches!(node.head.link, Link::Silent | Link::Down { .. } | Link::Refused { .. })
}

fn job_notice(job: &Job, before: Option<Phase>, now: Phase) -> Option<Notice> {
    let what = match (before, now) {
        (Some(Phase::Waiting) | None, Phase::Running) => "started",
        (Some(Phase::Waiting | Phase::Running | Phase::Stalled), Phase::Ended) => "ended",
        (Some(Phase::Running), Phase::Stalled) => "stalls",
        _ => return None,
    };
    let body = match (&job.state, now) {
        (JobState::Ended(how), _) if !how.is_empty() => how.as_str().to_ascii_lowercase().replace('_', " "),
        (_, Phase::Stalled) => "no GPU of it has done anything for 5 minutes".to_owned(),
        (_, Phase::Running) => {
            let nodes: Vec<_> = job.nodes.iter().map(NodeName::as_str).collect();
            format!("on {}", nodes.join(", "))
        }
        _ => String::new(),
    };
    Some(Notice {
        about: format!("job-{}", job.id),
        title: format!("{} ({}) {what}", job.name, job.label),
        body,
        job: Some(job.id),
    })
}

fn node_notice(name: &NodeName, picture: &Picture) -> Option<Notice> {
    let job = picture.jobs.iter().find(|job| job.is_active() && job.nodes.contains(name))?;
    Some(Notice {
        about: format!("node-{name}"),
        title: format!("{name} does not answer"),
        body: format!("{} ({}) runs there", job.name, job.label),
        job: Some(job.id),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::picture::History;

    fn job(id: u32, state: JobState) -> Job {
        let mut job = Job::new(JobId(id), "alice".into(), state);
        job.name = "train".into();
        job.nodes = vec![NodeName::new("n1").unwrap()];
        job
    }

    /// A node whose GPU had these utilisations, one per second, up to `at_ms`.
    fn picture(jobs: Vec<Job>, link: Link, utils: &[u32]) -> Picture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.gpus = vec![GpuPicture::default()];
        node.history = Some(History::default());
        node.head.link = link;
        for (second, util) in utils.iter().enumerate() {
            node.gpus[0].row.set(GpuField::Util, Cell::steps(*util));
            node.sampled(second as u64 * 1_000);
        }
        Picture { at_ms: utils.len() as u64 * 1_000, jobs, nodes: vec![node], ..Picture::default() }
    }

    fn titles(notices: Vec<Notice>) -> Vec<String> {
        notices.into_iter().map(|notice| notice.title).collect()
    }

    #[test]
    fn a_page_that_was_just_opened_reports_nothing() {
        let mut watch = NoticeTracker::default();
        assert!(watch.update(&picture(vec![job(1, JobState::Running)], Link::Silent, &[5])).is_empty());
    }

    #[test]
    fn a_start_and_an_end_are_reported_once_each() {
        let mut watch = NoticeTracker::default();
        let mut update = |state| titles(watch.update(&picture(vec![job(1, state)], Link::Live, &[5])));
        assert!(update(JobState::Pending).is_empty());
        assert_eq!(update(JobState::Running), ["train (1) started"]);
        assert!(update(JobState::Running).is_empty());
        assert_eq!(update(JobState::Ended("TIMEOUT".into())), ["train (1) ended"]);
        assert!(update(JobState::Ended("TIMEOUT".into())).is_empty());
    }

    #[test]
    fn a_lost_node_is_reported_with_its_job() {
        let mut watch = NoticeTracker::default();
        let mut update = |link| watch.update(&picture(vec![job(1, JobState::Running)], link, &[5]));
        update(Link::Live);
        let notices = update(Link::Silent);
        assert_eq!((notices[0].title.as_str(), notices[0].job), ("n1 does not answer", Some(JobId(1))));
        assert!(update(Link::Down { reason: "x".into(), retry_at_ms: 1 }).is_empty(), "that is known");
    }

    #[test]
    fn a_job_stalls_after_five_idle_minutes_and_not_before() {
        let mut watch = NoticeTracker::default();
        let utils = |activity: usize| [vec![90; 60], vec![0; activity]].concat();
        let mut update = |activity| {
            titles(watch.update(&picture(vec![job(1, JobState::Running)], Link::Live, &utils(activity))))
        };
        assert!(update(10).is_empty());
        assert!(update(290).is_empty());
        assert_eq!(update(301), ["train (1) stalls"]);
    }

    #[test]
    fn a_job_that_never_worked_or_is_unknown_does_not_stall() {
        for (link, utils) in
            [(Link::Live, vec![0; 500]), (Link::Silent, [vec![90; 60], vec![0; 400]].concat())]
        {
            let known = picture(vec![job(1, JobState::Running)], link, &utils);
            assert!(!is_stalled(&known.jobs[0], &known));
        }
    }
}
