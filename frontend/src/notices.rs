//! What happened to jobs and nodes while nobody looked, worth a notification each and only once.

use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, History, Link, NodePicture};
use nodeglass_protocol::{JobId, NodeName, Picture};
use std::collections::BTreeMap;

/// A job stalls when none of its GPUs did anything for this long, in ms, after they had worked.
pub const STALL_MS: u64 = 300_000;
/// Utilisation in % up to which a GPU does nothing.
const NOTHING: u32 = 1;

/// Something to tell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// What it is about: a later notice of the same takes its place.
    pub about: String,
    /// The first line.
    pub title: String,
    /// The second one.
    pub body: String,
    /// The job to show when it is clicked.
    pub job: Option<JobId>,
}

/// How jobs and nodes were when they were last looked at.
#[derive(Clone, Debug, Default)]
pub struct Watch {
    begun: bool,
    jobs: BTreeMap<JobId, Phase>,
    lost: BTreeMap<NodeName, bool>,
}

/// The states of a job that are worth telling apart here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Waiting,
    Running,
    Stalled,
    Ended,
}

impl Watch {
    /// Looks at the picture now, and tells what is news since the last look; the first look tells nothing.
    pub fn look(&mut self, picture: &Picture) -> Vec<Notice> {
        let mut news = Vec::new();
        let jobs = picture.jobs.iter().map(|job| (job.id, phase(job, picture))).collect::<BTreeMap<_, _>>();
        let lost: BTreeMap<_, _> =
            picture.nodes.iter().map(|node| (node.name.clone(), is_lost(node))).collect();
        if self.begun {
            for job in &picture.jobs {
                news.extend(of_job(job, self.jobs.get(&job.id).copied(), jobs[&job.id]));
            }
            let newly = |(name, now): &(&NodeName, &bool)| **now && self.lost.get(*name) != Some(&true);
            news.extend(lost.iter().filter(newly).filter_map(|(name, _)| of_node(name, picture)));
        }
        *self = Self { begun: true, jobs, lost };
        news
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

/// Whether every GPU of the job has done nothing for [`STALL_MS`], and one of them had worked before.
fn is_stalled(job: &Job, picture: &Picture) -> bool {
    let nodes = crate::roster::nodes_of(job, picture);
    let mut worked = false;
    let mut seen = false;
    for node in nodes.into_iter().map(|index| &picture.nodes[index]) {
        let Some(past) = node.history.as_ref().filter(|_| !is_lost(node)) else { return false };
        for (gpu, traces) in node.gpus.iter().zip(&past.gpus) {
            if !crate::roster::is_of_job(node, gpu, Some(job.id)) {
                continue;
            }
            match rest(gpu, traces, picture.at_ms) {
                Rest::Works => return false,
                Rest::Rests { worked: before } => worked |= before,
                Rest::Unknown => return false,
            }
            seen = true;
        }
    }
    seen && worked
}

enum Rest {
    Works,
    Rests { worked: bool },
    Unknown,
}

fn rest(
    gpu: &GpuPicture,
    traces: &[nodeglass_protocol::trace::Trace; History::GPU_FIELDS.len()],
    now_ms: u64,
) -> Rest {
    if gpu.fault.is_some() {
        return Rest::Unknown;
    }
    let (mut earliest, mut worked) = (u64::MAX, false);
    for (at_ms, cell) in traces[0].points() {
        let Some(util) = cell.and_then(nodeglass_protocol::Cell::value) else { continue };
        if util <= NOTHING {
            earliest = earliest.min(at_ms);
        } else if at_ms + STALL_MS > now_ms {
            return Rest::Works;
        } else {
            worked = true;
        }
    }
    // Too little is known of a page that was opened just now.
    if earliest == u64::MAX || earliest + STALL_MS > now_ms { Rest::Unknown } else { Rest::Rests { worked } }
}

fn is_lost(node: &NodePicture) -> bool {
    matches!(node.head.link, Link::Silent | Link::Down { .. } | Link::Refused { .. })
}

fn of_job(job: &Job, before: Option<Phase>, now: Phase) -> Option<Notice> {
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

fn of_node(name: &NodeName, picture: &Picture) -> Option<Notice> {
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
    use nodeglass_protocol::{Cell, GpuField};

    fn job(id: u32, state: JobState) -> Job {
        let mut job = Job::new(JobId(id), "alice".into(), state);
        job.name = "train".into();
        job.nodes = vec![NodeName::new("n1").unwrap()];
        job
    }

    /// A node whose one GPU had these utilisations, one a second up to `at_ms`.
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

    fn titles(news: Vec<Notice>) -> Vec<String> {
        news.into_iter().map(|notice| notice.title).collect()
    }

    #[test]
    fn a_page_that_was_just_opened_tells_nothing() {
        let mut watch = Watch::default();
        assert!(watch.look(&picture(vec![job(1, JobState::Running)], Link::Silent, &[5])).is_empty());
    }

    #[test]
    fn a_start_and_an_end_are_told_once_each() {
        let mut watch = Watch::default();
        let mut look = |state| titles(watch.look(&picture(vec![job(1, state)], Link::Live, &[5])));
        assert!(look(JobState::Pending).is_empty());
        assert_eq!(look(JobState::Running), ["train (1) started"]);
        assert!(look(JobState::Running).is_empty());
        assert_eq!(look(JobState::Ended("TIMEOUT".into())), ["train (1) ended"]);
        assert!(look(JobState::Ended("TIMEOUT".into())).is_empty());
    }

    #[test]
    fn a_lost_node_is_told_with_the_job_that_runs_there() {
        let mut watch = Watch::default();
        let mut look = |link| watch.look(&picture(vec![job(1, JobState::Running)], link, &[5]));
        look(Link::Live);
        let news = look(Link::Silent);
        assert_eq!((news[0].title.as_str(), news[0].job), ("n1 does not answer", Some(JobId(1))));
        assert!(look(Link::Down { why: "x".into(), retry_at_ms: 1 }).is_empty(), "that is known");
    }

    #[test]
    fn a_job_stalls_after_five_minutes_without_work_and_not_before() {
        let mut watch = Watch::default();
        let utils = |rest: usize| [vec![90; 60], vec![0; rest]].concat();
        let mut look =
            |rest| titles(watch.look(&picture(vec![job(1, JobState::Running)], Link::Live, &utils(rest))));
        assert!(look(10).is_empty());
        assert!(look(290).is_empty());
        assert_eq!(look(301), ["train (1) stalls"]);
    }

    #[test]
    fn a_job_that_never_worked_and_one_of_which_nothing_is_known_do_not_stall() {
        for (link, utils) in
            [(Link::Live, vec![0; 500]), (Link::Silent, [vec![90; 60], vec![0; 400]].concat())]
        {
            let known = picture(vec![job(1, JobState::Running)], link, &utils);
            assert!(!is_stalled(&known.jobs[0], &known));
        }
    }
}
