//! What needs attention: turns a picture into a list of problems, worst first, each with its evidence.
//!
//! An [`Item`] is independent of how it was found, so that other sources can add to the list.

mod activity;
mod findings;
mod gpu;
mod node;
mod tracker;

use findings::from_findings;
pub use node::lacks_gpus;
pub use tracker::{Entry, Tracker};

use crate::domain::health::{Freshness, freshness};
use crate::domain::outcome;
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::text;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::{GpuField, GpuUuid, JobId, NodeName, Picture};
use std::cmp::Reverse;

/// How long a failed job is listed after its end, in ms.
const ENDED_MS: u64 = 3_600_000;

/// The current time.
#[derive(Clone, Copy, Debug, Default)]
pub struct Now {
    /// The relay's clock, in ms.
    pub relay_ms: u64,
    /// The cluster's time of day, in seconds since 1970.
    pub wall_s: i64,
}

impl Now {
    /// Converts a time of day to the relay's clock, in ms; 0 if it is before that clock's start.
    fn relay_ms_at(self, wall_s: i64) -> u64 {
        let ago_ms = self.wall_s.saturating_sub(wall_s).saturating_mul(1_000);
        self.relay_ms.cast_signed().saturating_sub(ago_ms).max(0).cast_unsigned()
    }
}

/// One thing that needs attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its identity: what is wrong and where, the same for as long as it lasts.
    pub key: String,
    /// How severe it is.
    pub severity: Severity,
    /// The jobs that it affects; empty for a machine without a job.
    pub jobs: Vec<JobId>,
    /// Name of the job, or of the node if several jobs are affected or none.
    pub subject: String,
    /// What is wrong and where, one sentence without a full stop.
    pub title: String,
    /// The evidence or the remedy.
    pub detail: String,
    /// What is wrong in a few words: `GPU 3 too hot`.
    pub reason: String,
    /// Since when, if known.
    pub since: Option<Since>,
    /// The nodes on which it was found.
    pub nodes: Vec<NodeName>,
    /// What it costs, if known.
    pub cost: Option<Cost>,
    /// Number of GPUs that work less because of it, or wait; 0 for a condition that may cost nothing.
    pub impact: usize,
    /// For how long it must be found before it is listed, in ms; 0 if the history shows that it lasts.
    pub confirm_ms: u64,
    /// Whether the job has ended; such items follow those that can still be helped.
    pub is_past: bool,
    /// Where it is shown.
    pub target: Target,
    /// The trace that shows it, if any.
    pub spark: Option<Spark>,
}

/// The start of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// By the relay's clock, in ms.
    pub at_ms: u64,
    /// Whether it may have begun earlier, because the history does not reach further back.
    pub or_earlier: bool,
}

/// What an item costs: GPUs that do no useful work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cost {
    /// Number of GPUs.
    pub gpus: usize,
    /// What their time is: `idle`, `lost`.
    pub label: &'static str,
}

/// The view that shows an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The route.
    pub route: Route,
    /// The GPU whose sheet opens there, if any.
    pub gpu: Option<GpuUuid>,
}

/// The trace of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Spark {
    /// The node.
    pub node: NodeName,
    /// The GPU.
    pub gpu: GpuUuid,
    /// The field.
    pub field: GpuField,
}

impl Item {
    /// Creates an item without texts.
    fn new(key: String, severity: Severity, jobs: Vec<JobId>, subject: String, route: Route) -> Self {
        Self {
            key,
            severity,
            jobs,
            subject,
            title: String::new(),
            detail: String::new(),
            reason: String::new(),
            since: None,
            nodes: Vec::new(),
            cost: None,
            impact: 0,
            confirm_ms: 0,
            is_past: false,
            target: Target { route, gpu: None },
            spark: None,
        }
    }

    /// Returns what it has cost until `now_ms`: `1.6 GPU-h idle`. `None` below a tenth of an hour.
    pub fn cost_text(&self, now_ms: u64) -> Option<String> {
        let (cost, since) = self.cost.zip(self.since)?;
        let hours = now_ms.saturating_sub(since.at_ms) as f64 / 3_600_000.0 * cost.gpus as f64;
        let least = if since.or_earlier { "≥ " } else { "" };
        (hours >= 0.05).then(|| format!("{least}{} GPU-h {}", text::tenths(hours), cost.label))
    }

    /// Sorts before less severe ones, before those of ended jobs, and before those that hold up fewer GPUs.
    fn rank(&self) -> (Reverse<Severity>, bool, Reverse<usize>) {
        (Reverse(self.severity), self.is_past, Reverse(self.impact))
    }
}

/// Returns what needs attention in a picture with these jobs, worst first: what the page finds in its nodes, and what
/// only the relay finds.
pub fn all(jobs: &[Job], picture: &Picture, now: Now) -> Vec<Item> {
    let mut items = items(jobs, &picture.nodes, now);
    items.extend(from_findings(&picture.findings, jobs, &items, now));
    items.sort_by_key(Item::rank);
    items
}

/// Returns what needs attention in these nodes, worst first. `jobs` may be a part of those on the nodes; what
/// affects none of them is left out. Without any job, as without SLURM, every problem of a node is listed.
pub fn items(jobs: &[Job], nodes: &[NodePicture], now: Now) -> Vec<Item> {
    let mut items = Vec::new();
    for node in nodes.iter().filter(|node| node.head.link != Link::Ended) {
        items.extend(node::problem(node, jobs, now));
    }
    items.extend(gpu::problems(jobs, nodes, now));
    for job in jobs {
        items.extend(activity::problem(job, jobs, nodes, now));
        items.extend(failure(job, now));
    }
    items.sort_by_key(Item::rank);
    items
}

/// Returns the nodes with current readings.
pub fn read_nodes(nodes: &[NodePicture], now: Now) -> impl Iterator<Item = &NodeName> {
    let is_read = move |node: &&NodePicture| freshness(node, now.relay_ms) == Freshness::Fresh;
    nodes.iter().filter(is_read).map(|node| &node.name)
}

/// Returns the item of a job that failed recently.
fn failure(job: &Job, now: Now) -> Option<Item> {
    let failure = outcome::failure(job)?;
    let ended_ms = job.ended.map(|ended| now.relay_ms_at(ended));
    if ended_ms.is_some_and(|ended_ms| ended_ms + ENDED_MS < now.relay_ms) {
        return None;
    }
    let mut item = Item::for_job("ended", job, failure.severity);
    if let Some(ended) = job.ended {
        // A requeued job may fail again.
        item.key = format!("{}/{ended}", item.key);
    }
    item.title = format!("Ended: {}", failure.label);
    item.detail = if failure.why.is_empty() { "Show its last log lines".to_owned() } else { failure.why };
    item.reason = failure.label;
    item.since = ended_ms.map(|at_ms| Since { at_ms, or_earlier: false });
    item.is_past = true;
    item.target.route = Route::Job(job.id, JobTab::Logs);
    Some(item)
}

impl Item {
    /// Creates the item of one job, shown on its page.
    fn for_job(kind: &str, job: &Job, severity: Severity) -> Self {
        let route = Route::Job(job.id, JobTab::Nodes);
        Self::new(format!("{kind}/{}", job.id), severity, vec![job.id], job_name(job), route)
    }

    /// Creates the item of some jobs on a node, shown on the node's tab of a job.
    fn for_node(kind: &str, affected: &[&Job], node: &NodePicture, severity: Severity) -> Self {
        let (subject, route) = match affected {
            [] => (node.name.to_string(), Route::Node(node.name.clone())),
            [job] => (job_name(job), Route::Job(job.id, JobTab::Node(node.name.clone()))),
            // The node's own page shows them all.
            _ => (node.name.to_string(), Route::Node(node.name.clone())),
        };
        let jobs = affected.iter().map(|job| job.id).collect();
        let item = Self::new(format!("{kind}/{}", node.name), severity, jobs, subject, route);
        Self { nodes: vec![node.name.clone()], ..item }
    }
}

fn job_name(job: &Job) -> String {
    if job.name.is_empty() { format!("job {}", job.id) } else { job.name.to_string() }
}

/// Returns the active jobs on a node.
fn jobs_on<'a>(node: &NodePicture, jobs: &'a [Job]) -> Vec<&'a Job> {
    jobs.iter().filter(|job| job.is_active() && job.nodes.contains(&node.name)).collect()
}

/// Returns the worst severity of the items of active jobs.
pub fn worst(entries: &[Entry]) -> Severity {
    let now = entries.iter().filter(|entry| !entry.is_over && !entry.item.is_past);
    now.map(|entry| entry.item.severity).max().unwrap_or(Severity::Ok)
}

/// Returns the entries of a job, worst first.
pub fn for_job(entries: &[Entry], job: JobId) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(move |entry| !entry.is_over && entry.item.jobs.contains(&job))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use nodeglass_protocol::job::JobState;
    use nodeglass_protocol::picture::{Evidence, GpuPicture, History, Owner};
    use nodeglass_protocol::{Cell, Text};

    /// The time at which the tests look.
    pub const NOW: Now = Now { relay_ms: 4_000_000, wall_s: 1_000_000 };

    /// A running job on a node, started an hour before [`NOW`].
    pub fn job(id: u32, node: &str) -> Job {
        let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
        job.name = format!("job-{id}").as_str().into();
        job.nodes = vec![NodeName::new(node).unwrap()];
        job.start = Some(NOW.wall_s - 3_600);
        job
    }

    /// A live node whose GPUs belong to these jobs.
    pub fn node(name: &str, owners: &[u32]) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new(name).unwrap());
        node.head.link = Link::Live;
        node.head.interval_ms = 1_000;
        node.sampled_at_ms = Some(NOW.relay_ms);
        let gpu = |(index, job): (usize, &u32)| {
            let mut gpu = GpuPicture::default();
            gpu.facts.index = index as u32;
            gpu.facts.uuid = GpuUuid::new(format!("{name}-{index}"));
            gpu.owners = vec![Owner { job: JobId(*job), by: Evidence::GresIndex }];
            gpu
        };
        node.gpus = owners.iter().enumerate().map(gpu).collect();
        node
    }

    /// Gives every GPU of a node these seconds of utilisation in % and power in W, up to [`NOW`].
    pub fn with_history(mut node: NodePicture, seconds: &[(u32, u32)]) -> NodePicture {
        node.history = Some(History::default());
        let first_ms = NOW.relay_ms - seconds.len() as u64 * 1_000;
        for (second, (util, power)) in seconds.iter().enumerate() {
            for gpu in &mut node.gpus {
                gpu.row.set(GpuField::Util, Cell::steps(*util));
                gpu.row.set(GpuField::Power, Cell::steps(*power));
                gpu.row.set(GpuField::PowerLimit, Cell::steps(700));
            }
            node.sampled(first_ms + second as u64 * 1_000);
        }
        node
    }

    /// The keys of the items of a picture.
    pub fn keys(jobs: &[Job], nodes: &[NodePicture]) -> Vec<String> {
        items(jobs, nodes, NOW).into_iter().map(|item| item.key).collect()
    }

    #[test]
    fn a_healthy_picture_needs_no_attention() {
        assert!(keys(&[job(1, "n1")], &[with_history(node("n1", &[1, 1]), &[(97, 650); 600])]).is_empty());
        assert!(keys(&[], &[]).is_empty());
    }

    #[test]
    fn a_failed_job_is_listed_for_an_hour_with_its_logs() {
        let mut failed = job(1, "n1");
        failed.state = JobState::Ended(Text::from("OUT_OF_MEMORY"));
        failed.ended = Some(NOW.wall_s - 360);
        let item = items(std::slice::from_ref(&failed), &[], NOW).remove(0);
        assert_eq!((item.severity, item.title.as_str()), (Severity::Error, "Ended: out of memory"));
        assert_eq!(item.target.route, Route::Job(JobId(1), JobTab::Logs));
        assert_eq!(item.since.unwrap().at_ms, NOW.relay_ms - 360_000);
        failed.ended = Some(NOW.wall_s - 3_700);
        assert!(items(&[failed], &[], NOW).is_empty());
    }

    #[test]
    fn what_can_be_helped_comes_before_what_is_past_and_errors_before_warnings() {
        let mut failed = job(1, "n1");
        failed.state = JobState::Ended(Text::from("FAILED"));
        let mut hot = node("n2", &[2]);
        hot.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
        let mut lost = node("n3", &[3]);
        lost.gpus[0].fault = Some("GPU is lost".into());
        assert_eq!(
            keys(&[failed, job(2, "n2"), job(3, "n3")], &[hot, lost]),
            ["lost/3", "ended/1", "thermal/2"]
        );
    }

    #[test]
    fn a_cost_is_gpu_hours_since_the_start() {
        let mut item = Item::for_job("idle", &job(1, "n1"), Severity::Warning);
        item.cost = Some(Cost { gpus: 2, label: "idle" });
        assert_eq!(item.cost_text(NOW.relay_ms), None, "the start is unknown");
        item.since = Some(Since { at_ms: NOW.relay_ms - 2_880_000, or_earlier: false });
        assert_eq!(item.cost_text(NOW.relay_ms).as_deref(), Some("1.6 GPU-h idle"));
        item.since = Some(Since { at_ms: NOW.relay_ms - 600_000, or_earlier: true });
        assert_eq!(item.cost_text(NOW.relay_ms).as_deref(), Some("≥ 0.3 GPU-h idle"));
    }
}
