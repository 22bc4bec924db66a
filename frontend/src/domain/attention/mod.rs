//! What needs attention: the relay's findings as lines of a list, each with its evidence and where it is shown.

mod tracker;

pub use tracker::{Entry, Tracker};

use crate::chart::Range;
use crate::domain::cost;
use crate::domain::job_names;
use crate::domain::metric::Metric;
use crate::domain::query::{self, Query};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::text;
use nodeglass_protocol::finding::{self, Finding, FindingKind, FindingSeverity, SilenceRequest};
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{Field as _, GpuField, GpuUuid, JobId, NodeName, Picture};
use std::cmp::Reverse;

/// Kinds about a lowered clock, which explain a slow GPU.
const LOWERED_CLOCK: [FindingKind; 3] =
    [FindingKind::Thermal, FindingKind::PowerBrake, FindingKind::Slowdown];

/// One thing that needs attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its identity: what is wrong and where, the same for as long as it lasts.
    pub key: String,
    /// What it is about.
    pub kind: FindingKind,
    /// How severe it is.
    pub severity: Severity,
    /// The jobs that it affects; empty for a machine without a job.
    pub jobs: Vec<JobId>,
    /// Name of the job, or of the node if several jobs are affected or none.
    pub subject: String,
    /// What is wrong and where, one sentence without a full stop.
    pub title: String,
    /// The evidence, or the advice if the title has it all.
    pub detail: String,
    /// Where the job's processes stood when it began, a line for each group.
    pub stands: Vec<String>,
    /// What to do about it, if the detail is the evidence.
    pub advice: Option<String>,
    /// What is wrong in a few words: `GPU 3 too hot`.
    pub reason: String,
    /// When it began.
    pub since: Since,
    /// When it ended, in ms since 1970; `None` while it lasts.
    pub ended_ms: Option<u64>,
    /// The nodes on which it was found.
    pub nodes: Vec<NodeName>,
    /// The GPUs that it is about.
    pub gpus: Vec<GpuUuid>,
    /// Number of GPUs that do no useful work because of it.
    pub wasted_gpus: u32,
    /// Whether the job has ended, so that nothing can be helped any more.
    pub is_past: bool,
    /// The only job that it affects in the whole cluster, if there is one: a silence of that job covers it.
    pub only_job: Option<JobId>,
    /// The array or heterogeneous job that this one is a part of.
    pub whole_job: Option<JobId>,
    /// Until when it is silenced, in ms since 1970; `None` if it is not.
    pub silenced_until_ms: Option<u64>,
    /// Where it is shown.
    pub target: Target,
    /// The trace that shows it, if any.
    pub trace: Option<GpuTrace>,
}

/// The start of an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Since {
    /// In ms since 1970, by the login node's clock.
    pub at_ms: u64,
    /// Whether it may have begun earlier, before it could be seen.
    pub or_earlier: bool,
}

/// The view that shows an item.
#[derive(Clone, Debug, PartialEq)]
pub struct Target {
    /// The route.
    pub route: Route,
    /// The GPU that it is about, if it is a single one.
    pub gpu: Option<GpuUuid>,
}

/// The trace of a GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct GpuTrace {
    /// The node.
    pub node: NodeName,
    /// The GPU.
    pub gpu: GpuUuid,
    /// The field.
    pub field: GpuField,
}

/// How long ago an item may have begun so that the recent history shows its start, in ms.
const RECENT_MS: u64 = Range::RECENT_MS - 60_000;
/// What a link shows before the start of an item and after its end, in ms.
const AROUND_MS: u64 = 300_000;
/// How much of an item a link shows at most, in ms.
const SHOWN_MS: u64 = 3_600_000;

/// Returns what needs attention in a picture with these jobs, worst first. `jobs` may be a part of those of the
/// picture; what affects none of them is left out. Without any job, as without SLURM, every finding of a node is
/// listed.
pub fn all(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let active: Vec<&Finding> = picture.findings.iter().filter(|finding| finding.is_active()).collect();
    // Why a GPU is slow is listed, and need not be repeated as that it is slow.
    let is_explained = |finding: &Finding| {
        let is_cause = |other: &&&Finding| {
            LOWERED_CLOCK.contains(&other.kind)
                && needs_attention(other)
                && finding.gpus.iter().all(|gpu| other.gpus.iter().any(|slow| slow.uuid == gpu.uuid))
        };
        finding.kind == FindingKind::Straggler && active.iter().any(|other| is_cause(&other))
    };
    let listed = active.iter().filter(|finding| needs_attention(finding) && !is_explained(finding));
    let mut items = sorted(listed.copied(), jobs);
    for slow in active.iter().filter(|finding| needs_attention(finding) && is_explained(finding)) {
        let is_cause = |item: &&mut Item| {
            LOWERED_CLOCK.contains(&item.kind) && slow.gpus.iter().all(|gpu| item.gpus.contains(&gpu.uuid))
        };
        // What it costs the job is evidence of the cause.
        if let Some((item, cost)) = items.iter_mut().find(is_cause).zip(slow.evidence.last()) {
            item.detail = format!("{} · {cost}", item.detail);
        }
    }
    items
}

/// Returns what ended within the last hour and has not returned, latest first.
pub fn resolved(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let mut items = over(jobs, picture);
    items.retain(|item| !item.kind.is_event());
    items.sort_by_key(|item| Reverse(item.ended_ms));
    items
}

/// Returns what ended within the last hour.
fn over(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let is_over = |finding: &&Finding| !finding.is_active() && needs_attention(finding);
    sorted(picture.findings.iter().filter(is_over), jobs)
}

/// Returns what the graphs of a route mark: what is found now and what ended, the most important last.
pub fn marked(route: &Route, jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let node = match route {
        Route::Job(_, JobTab::Node(name)) | Route::Node(name) => Some(name),
        Route::Job(..) => None,
        _ => return Vec::new(),
    };
    let jobs: Vec<Job> = jobs.iter().filter(|job| Some(job.id) == route.job()).cloned().collect();
    if jobs.is_empty() && route.job().is_some() {
        return Vec::new();
    }
    let mut items = all(&jobs, picture);
    items.extend(over(&jobs, picture));
    items.retain(|item| {
        !item.is_past && node.is_none_or(|node| item.nodes.is_empty() || item.nodes.contains(node))
    });
    items.reverse();
    items
}

/// Returns what lasts and would need attention if it were not silenced, worst first.
pub fn silenced(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let is_silenced = |finding: &&Finding| {
        finding.is_active() && finding.severity > FindingSeverity::Info && finding.silenced_until_ms.is_some()
    };
    sorted(picture.findings.iter().filter(is_silenced), jobs)
}

fn needs_attention(finding: &Finding) -> bool {
    finding.severity > FindingSeverity::Info && finding.silenced_until_ms.is_none()
}

fn sorted<'a>(findings: impl Iterator<Item = &'a Finding>, jobs: &[Job]) -> Vec<Item> {
    let mut findings: Vec<&Finding> = findings.collect();
    // Those of ended jobs follow those that can still be helped.
    findings.sort_by(|a, b| {
        let is_past = |finding: &Finding| finding.kind == FindingKind::Failed;
        b.severity.cmp(&a.severity).then(is_past(a).cmp(&is_past(b))).then_with(|| finding::order(a, b))
    });
    findings.into_iter().filter_map(|finding| Item::of(finding, jobs)).collect()
}

impl Item {
    /// The item of a finding; `None` if it concerns none of the jobs.
    fn of(finding: &Finding, jobs: &[Job]) -> Option<Self> {
        let affected: Vec<&Job> = jobs.iter().filter(|job| finding.jobs.contains(&job.id)).collect();
        if affected.is_empty() && !jobs.is_empty() {
            return None;
        }
        let severity = match finding.severity {
            FindingSeverity::Error => Severity::Error,
            FindingSeverity::Warning => Severity::Warning,
            FindingSeverity::Info => Severity::Ok,
        };
        let (subject, route) = place(finding, &affected)?;
        let evidence: Vec<&str> = finding.evidence.iter().map(|line| line.as_str()).collect();
        let (mut detail, advice) = if evidence.is_empty() {
            (finding.advice.to_string(), None)
        } else {
            (text::capitalised(&evidence.join(" · ")), Some(finding.advice.to_string()))
        };
        if affected.len() > 1 {
            let names: Vec<String> = affected.iter().map(|job| job_names::within(job)).collect();
            detail = format!("{detail} · affects {}", names.join(", "));
        }
        let trace = finding.gpus.first().and_then(|gpu| {
            let name = gpu.metric.as_ref()?;
            let field = GpuField::ALL.iter().find(|field| field.metric().name == name.as_str())?;
            Some(GpuTrace { node: gpu.node.clone(), gpu: gpu.uuid.clone(), field: *field })
        });
        let gpu = match finding.gpus.as_slice() {
            [gpu] => Some(gpu.uuid.clone()),
            _ => None,
        };
        Some(Self {
            key: finding.key.to_string(),
            kind: finding.kind,
            severity,
            jobs: affected.iter().map(|job| job.id).collect(),
            subject,
            title: finding.title.to_string(),
            detail,
            stands: finding.capture.iter().flat_map(|capture| capture.lines()).collect(),
            advice,
            reason: finding.reason.to_string(),
            since: Since { at_ms: finding.since_ms, or_earlier: finding.or_earlier },
            ended_ms: finding.ended_ms,
            nodes: finding.nodes.clone(),
            gpus: finding.gpus.iter().map(|gpu| gpu.uuid.clone()).collect(),
            wasted_gpus: finding.wasted_gpus,
            is_past: finding.kind == FindingKind::Failed,
            only_job: match finding.jobs.as_slice() {
                [job] => Some(*job),
                _ => None,
            },
            whole_job: match affected.as_slice() {
                [job] => job.part_of.as_ref().map(Parent::job),
                _ => None,
            },
            silenced_until_ms: finding.silenced_until_ms,
            target: Target { route, gpu },
            trace,
        })
    }

    /// The request that silences what is of its kind for its job, or everywhere if it is of several jobs or of none.
    pub fn silence(&self, for_s: u32) -> SilenceRequest {
        SilenceRequest { kind: Some(self.kind), job: self.only_job, for_s }
    }

    /// The requests that end every silence that may cover it; which ones there are is not part of the picture.
    pub fn end_silences(&self) -> Vec<SilenceRequest> {
        let of_jobs =
            [self.only_job, self.whole_job.filter(|_| self.only_job.is_some())].into_iter().flatten();
        let scopes = of_jobs.flat_map(|job| [(Some(self.kind), Some(job)), (None, Some(job))]);
        let scopes = [(Some(self.kind), None)].into_iter().chain(scopes);
        scopes.map(|(kind, job)| SilenceRequest { kind, job, for_s: 0 }).collect()
    }

    /// Returns the trace for a sparkline. The overview has no history of clocks; a lower clock shows in the power.
    pub fn spark(&self) -> Option<GpuTrace> {
        let trace = self.trace.clone()?;
        let field = if trace.field == GpuField::SmClock { GpuField::Power } else { trace.field };
        Some(GpuTrace { field, ..trace })
    }

    /// Returns whether it is about a GPU, as one of several or with all of its job or node.
    pub fn concerns(&self, gpu: &GpuUuid) -> bool {
        self.gpus.is_empty() || self.gpus.contains(gpu)
    }

    /// Returns the query of the view that shows it: its metric, its GPU pinned in the graphs, and the time around its
    /// start; or the sheet of a GPU where no graph shows it. `now_ms` is in ms since 1970.
    pub fn query(&self, now_ms: u64) -> Query {
        let mut query = Query::default();
        let Some(GpuTrace { node, gpu, field }) = &self.trace else {
            query.set(query::GPU, self.target.gpu.as_ref().map(ToString::to_string));
            return query;
        };
        let metric = Metric::of(*field).filter(|metric| *metric != Metric::default());
        query.set(query::METRIC, metric.map(|metric| metric.name().into_owned()));
        query.set(query::PIN, self.target.gpu.is_some().then(|| format!("{node}/{gpu}")));
        query.set(query::RANGE, self.range_text(now_ms));
        query
    }

    /// Returns the range around its start; `None` if that is within the recent history.
    fn range_text(&self, now_ms: u64) -> Option<String> {
        let since_ms = self.since.at_ms;
        if now_ms.saturating_sub(since_ms) < RECENT_MS {
            return None;
        }
        let end_ms = self.ended_ms.map_or(since_ms, |ended_ms| ended_ms.min(since_ms + SHOWN_MS));
        let to_ms = (end_ms.max(since_ms) + AROUND_MS).min(now_ms);
        Some(Range::text_between(since_ms.saturating_sub(AROUND_MS), to_ms))
    }

    /// Returns what it has cost until `now_ms`, in ms since 1970: `1.6 GPU-h idle`. `None` below a twentieth of a GPU-hour.
    pub fn cost_text(&self, now_ms: u64) -> Option<String> {
        let lasted_ms = self.ended_ms.unwrap_or(now_ms).saturating_sub(self.since.at_ms);
        let hours = lasted_ms as f64 / 3_600_000.0 * f64::from(self.wasted_gpus);
        cost::text(self.kind, hours, self.since.or_earlier)
    }
}

/// Returns whose finding it is, and where it is shown.
fn place(finding: &Finding, affected: &[&Job]) -> Option<(String, Route)> {
    Some(match (affected, finding.nodes.as_slice()) {
        ([job], _) if finding.kind == FindingKind::Failed => {
            (job_names::within(job), Route::Job(job.id, JobTab::Logs))
        }
        ([job], [node]) => (job_names::within(job), Route::Job(job.id, JobTab::Node(node.clone()))),
        ([job], _) => (job_names::within(job), Route::Job(job.id, JobTab::Nodes)),
        // The node's own page shows all of its jobs.
        (_, [node, ..]) => (node.to_string(), Route::Node(node.clone())),
        ([job, ..], []) => (job_names::within(job), Route::Job(job.id, JobTab::Nodes)),
        ([], []) => return None,
    })
}

/// Returns whether no GPU can be read on a node where a job has some.
pub fn lacks_gpus(node: &NodePicture, jobs: &[Job]) -> bool {
    let expects = |job: &Job| {
        job.is_active()
            && job.nodes.contains(&node.name)
            && job.gpu_count.is_some_and(|gpus| gpus > 0)
            && !node.head.without_gpus.contains(&job.id)
    };
    node.head.no_gpu.is_some() && jobs.iter().any(expects)
}

/// Returns the worst severity of the items of active jobs.
pub fn worst(entries: &[Entry]) -> Severity {
    let now = entries.iter().filter(|entry| !entry.is_over && !entry.item.is_past);
    now.map(|entry| entry.item.severity).max().unwrap_or(Severity::Ok)
}

/// Returns the worst item that is about a node alone: what several share, such as a hang, tells none of them apart.
pub fn of_node<'a>(entries: &'a [Entry], node: &NodeName) -> Option<&'a Item> {
    let own = entries.iter().filter(|entry| !entry.is_over && entry.item.nodes == std::slice::from_ref(node));
    own.map(|entry| &entry.item).max_by_key(|item| item.severity)
}

/// Returns the worst item that affects a node, alone or with others: no node of a job that hangs is well.
pub fn affecting_node<'a>(entries: &'a [Entry], node: &NodeName) -> Option<&'a Item> {
    let own = entries.iter().filter(|entry| !entry.is_over && entry.item.nodes.contains(node));
    own.map(|entry| &entry.item).max_by_key(|item| item.severity)
}

/// Returns the worst item that names a GPU.
pub fn affecting_gpu<'a>(entries: &'a [Entry], gpu: &GpuUuid) -> Option<&'a Item> {
    let own = entries.iter().filter(|entry| !entry.is_over && entry.item.gpus.contains(gpu));
    own.map(|entry| &entry.item).max_by_key(|item| item.severity)
}

/// Returns the entries of a job, worst first.
pub fn for_job(entries: &[Entry], job: JobId) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(move |entry| !entry.is_over && entry.item.jobs.contains(&job))
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use nodeglass_protocol::finding::{FindingGpu, Silence};
    use nodeglass_protocol::job::JobState;
    use nodeglass_protocol::picture::{Evidence, GpuPicture, Link, Owner};

    /// The relay's clock and the time of day at which the tests look, in ms.
    pub const NOW_MS: u64 = 4_000_000;
    pub const WALL_MS: u64 = 1_000_000_000;

    /// A running job on a node, started an hour before.
    pub fn job(id: u32, node: &str) -> Job {
        let mut job = Job::new(JobId(id), "alice".into(), JobState::Running);
        job.name = format!("job-{id}").as_str().into();
        job.nodes = vec![NodeName::new(node).unwrap()];
        job.start = Some(WALL_MS.cast_signed() / 1_000 - 3_600);
        job
    }

    /// A live node whose GPUs belong to these jobs.
    pub fn node(name: &str, owners: &[u32]) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new(name).unwrap());
        node.head.link = Link::Live;
        node.head.interval_ms = 1_000;
        node.sampled_at_ms = Some(NOW_MS);
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

    /// A finding about a GPU of a job's node, since a minute.
    pub fn finding(kind: FindingKind, job: u32, node: &str) -> Finding {
        let name = NodeName::new(node).unwrap();
        Finding {
            key: format!("{}/{job}", kind.name()).as_str().into(),
            kind,
            severity: FindingSeverity::Warning,
            confidence_pct: 95,
            jobs: vec![JobId(job)],
            gpus: vec![FindingGpu::new(&name, &GpuUuid::new(format!("{node}-0")), Some(GpuField::SmClock))],
            nodes: vec![name],
            title: format!("{} title", kind.name()).as_str().into(),
            reason: format!("{} reason", kind.name()).as_str().into(),
            evidence: vec!["SM clock 1,380 MHz".into(), "81 °C".into()],
            advice: "Exclude the node".into(),
            since_ms: WALL_MS - 60_000,
            or_earlier: false,
            found_ms: WALL_MS,
            ended_ms: None,
            silenced_until_ms: None,
            wasted_gpus: 0,
            capture: None,
        }
    }

    /// A picture with these findings.
    pub fn picture(findings: Vec<Finding>) -> Picture {
        Picture { findings, ..Picture::default() }
    }

    fn keys(jobs: &[Job], findings: Vec<Finding>) -> Vec<String> {
        all(jobs, &picture(findings)).into_iter().map(|item| item.key).collect()
    }

    #[test]
    fn an_item_has_the_gpu_and_the_graph_of_its_finding() {
        let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Thermal, 1, "n1")]));
        let [item] = items.as_slice() else { panic!("{items:?}") };
        assert_eq!((item.severity, item.since.at_ms), (Severity::Warning, WALL_MS - 60_000));
        assert_eq!(item.target.gpu, Some(GpuUuid::new("n1-0")));
        assert_eq!(item.target.route, Route::Job(JobId(1), JobTab::Node(NodeName::new("n1").unwrap())));
        assert_eq!(item.spark().map(|spark| spark.field), Some(GpuField::Power));
        assert_eq!((item.subject.as_str(), item.detail.as_str()), ("job-1", "SM clock 1,380 MHz · 81 °C"));
    }

    #[test]
    fn a_link_shows_the_graph_at_the_start_and_the_sheet_of_what_no_graph_shows() {
        let item = |finding: Finding| all(&[job(1, "n1")], &picture(vec![finding])).remove(0);
        let hot = || finding(FindingKind::Thermal, 1, "n1");
        let since_s = (WALL_MS - 60_000) / 1_000;
        let pinned = "?m=sm_clock_mhz&pin=n1/n1-0";
        assert_eq!(item(hot()).query(WALL_MS).text(), pinned, "the recent history has it");
        let hour = WALL_MS + 3_600_000;
        assert_eq!(item(hot()).query(hour).text(), format!("{pinned}&r=600-{}", since_s + 300));
        let ended = Finding { ended_ms: Some(WALL_MS + 240_000), ..hot() };
        let items = resolved(&[job(1, "n1")], &picture(vec![ended]));
        assert_eq!(items[0].query(hour).text(), format!("{pinned}&r=900-{}", since_s + 600));
        let mut lost = finding(FindingKind::GpuLost, 1, "n1");
        lost.gpus[0].metric = None;
        assert_eq!(item(lost).query(hour).text(), "?gpu=n1-0");
    }

    #[test]
    fn graphs_mark_what_concerns_their_job_and_node_the_worst_last() {
        let hot = |job, node| finding(FindingKind::Thermal, job, node);
        let error = FindingSeverity::Error;
        let lost = Finding { severity: error, ..finding(FindingKind::GpuLost, 1, "n1") };
        let ended = Finding { ended_ms: Some(WALL_MS), ..finding(FindingKind::Xid, 1, "n1") };
        let found = picture(vec![lost, hot(1, "n2"), hot(1, "n1"), hot(2, "n1"), ended]);
        let jobs = [job(1, "n1"), job(2, "n1")];
        let kinds = |route: &Route| {
            marked(route, &jobs, &found).into_iter().map(|item| item.kind).collect::<Vec<_>>()
        };
        use FindingKind::{GpuLost, Thermal, Xid};
        let n1 = NodeName::new("n1").unwrap();
        assert_eq!(kinds(&Route::Job(JobId(1), JobTab::Nodes)), [Xid, Thermal, Thermal, GpuLost]);
        assert_eq!(kinds(&Route::Job(JobId(1), JobTab::Node(n1.clone()))), [Xid, Thermal, GpuLost]);
        assert_eq!(kinds(&Route::Node(n1)), [Xid, Thermal, Thermal, GpuLost]);
        assert!(kinds(&Route::AllJobs).is_empty() && kinds(&Route::Job(JobId(3), JobTab::Nodes)).is_empty());
    }

    #[test]
    fn what_is_over_of_other_jobs_or_only_worth_knowing_is_not_listed() {
        let list = |finding: Finding| keys(&[job(1, "n1")], vec![finding]).len();
        let thermal = || finding(FindingKind::Thermal, 1, "n1");
        assert_eq!(list(thermal()), 1);
        assert_eq!(list(Finding { ended_ms: Some(1), ..thermal() }), 0);
        assert_eq!(list(Finding { jobs: vec![JobId(2)], ..thermal() }), 0);
        assert_eq!(list(Finding { severity: FindingSeverity::Info, ..thermal() }), 0);
        assert!(keys(&[], vec![]).is_empty());
    }

    #[test]
    fn a_slow_gpu_is_not_listed_beside_the_heat_that_explains_it() {
        let slow = || finding(FindingKind::Straggler, 1, "n1");
        let jobs = [job(1, "n1")];
        assert_eq!(keys(&jobs, vec![slow(), finding(FindingKind::Thermal, 1, "n1")]), ["thermal/1"]);
        assert_eq!(keys(&jobs, vec![slow(), finding(FindingKind::Thermal, 1, "n2")]).len(), 2);
    }

    #[test]
    fn a_node_has_the_worst_item_that_is_about_it_alone() {
        let [n1, n2] = ["n1", "n2"].map(|name| NodeName::new(name).unwrap());
        let error = FindingSeverity::Error;
        let hang = Finding {
            severity: error,
            nodes: vec![n1.clone(), n2.clone()],
            ..finding(FindingKind::CollectiveHang, 1, "n1")
        };
        let lost = Finding { severity: error, ..finding(FindingKind::GpuLost, 1, "n1") };
        let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Xid, 1, "n1"), lost, hang]));
        let entries: Vec<Entry> = items.into_iter().map(|item| Entry { item, is_over: false }).collect();
        assert_eq!(of_node(&entries, &n1).map(|item| item.kind), Some(FindingKind::GpuLost));
        assert_eq!(of_node(&entries, &n2), None);
        assert_eq!(affecting_node(&entries, &n2).map(|item| item.kind), Some(FindingKind::CollectiveHang));
    }

    #[test]
    fn what_can_be_helped_comes_before_what_is_past_and_errors_before_warnings() {
        let error = FindingSeverity::Error;
        let failed = Finding { severity: error, ..finding(FindingKind::Failed, 1, "n1") };
        let lost = Finding { severity: error, ..finding(FindingKind::GpuLost, 3, "n3") };
        let hot = finding(FindingKind::Thermal, 2, "n2");
        let jobs = [job(1, "n1"), job(2, "n2"), job(3, "n3")];
        assert_eq!(keys(&jobs, vec![hot, failed, lost]), ["gpu_lost/3", "failed/1", "thermal/2"]);
    }

    #[test]
    fn how_a_job_ended_is_shown_with_its_log() {
        let items = all(&[job(1, "n1")], &picture(vec![finding(FindingKind::Failed, 1, "n1")]));
        assert_eq!(items[0].target.route, Route::Job(JobId(1), JobTab::Logs));
        assert!(items[0].is_past);
    }

    #[test]
    fn what_affects_several_jobs_is_shown_on_the_nodes_page_and_names_them() {
        let down =
            Finding { jobs: vec![JobId(1), JobId(2)], ..finding(FindingKind::NodeUnreachable, 1, "n1") };
        let items = all(&[job(1, "n1"), job(2, "n1")], &picture(vec![down]));
        assert_eq!(items[0].target.route, Route::Node(NodeName::new("n1").unwrap()));
        assert!(items[0].detail.ends_with("affects job-1, job-2"), "{}", items[0].detail);
    }

    #[test]
    fn what_ended_is_listed_as_resolved_latest_first() {
        let ended =
            |job, at_ms| Finding { ended_ms: Some(at_ms), ..finding(FindingKind::Thermal, job, "n1") };
        let jobs = [job(1, "n1"), job(2, "n1")];
        let items =
            resolved(&jobs, &picture(vec![ended(1, 5), ended(2, 9), finding(FindingKind::Xid, 1, "n1")]));
        let keys: Vec<&str> = items.iter().map(|item| item.key.as_str()).collect();
        assert_eq!(keys, ["thermal/2", "thermal/1"]);
    }

    #[test]
    fn what_is_silenced_is_listed_apart_and_shown_again_whichever_silence_covers_it() {
        let hot = || finding(FindingKind::Thermal, 1, "n1");
        let silenced_hot = Finding { silenced_until_ms: Some(WALL_MS + 60_000), ..hot() };
        let jobs = [job(1, "n1"), job(2, "n1")];
        let found = picture(vec![silenced_hot.clone()]);
        assert!(all(&jobs, &found).is_empty());
        let [item] = silenced(&jobs, &found).try_into().unwrap();
        assert_eq!(item.silenced_until_ms, Some(WALL_MS + 60_000));
        assert_eq!(
            item.silence(3_600),
            SilenceRequest { kind: Some(FindingKind::Thermal), job: Some(JobId(1)), for_s: 3_600 }
        );
        let ends = |item: &Item, finding: &Finding| {
            let ends = |kind, job| item.end_silences().contains(&SilenceRequest { kind, job, for_s: 0 });
            let scopes = [(Some(item.kind), None), (None, item.only_job), (Some(item.kind), item.only_job)];
            let covers = |(kind, job): &(_, _)| {
                Silence { kind: *kind, job: *job, until_ms: 0 }.covers(finding, |_| None)
            };
            scopes
                .into_iter()
                .filter(|(kind, job)| kind.is_some() || job.is_some())
                .filter(covers)
                .all(|(kind, job)| ends(kind, job))
        };
        assert!(ends(&item, &silenced_hot));
        let several = Finding { jobs: vec![JobId(1), JobId(2)], ..silenced_hot };
        let [item] = silenced(&jobs[..1], &picture(vec![several.clone()])).try_into().unwrap();
        assert_eq!(item.silence(60).job, None, "another job is affected, too");
        assert!(ends(&item, &several));
        let over = Finding { ended_ms: Some(WALL_MS), silenced_until_ms: Some(WALL_MS), ..hot() };
        assert!(silenced(&jobs, &picture(vec![over])).is_empty());
    }

    #[test]
    fn missing_gpus_matter_to_a_job_that_has_some() {
        let mut bare = node("n1", &[]);
        bare.head.no_gpu = Some("no NVIDIA driver".into());
        assert!(lacks_gpus(&bare, &[Job { gpu_count: Some(4), ..job(1, "n1") }]));
        assert!(!lacks_gpus(&bare, &[job(1, "n1")]), "a node without jobs that have GPUs lacks none");
    }

    #[test]
    fn a_cost_is_gpu_hours_since_the_start() {
        let cost = |wasted_gpus, since_ms, or_earlier| {
            let finding =
                Finding { wasted_gpus, since_ms, or_earlier, ..finding(FindingKind::IdleGpus, 1, "n1") };
            all(&[job(1, "n1")], &picture(vec![finding]))[0].cost_text(WALL_MS)
        };
        assert_eq!(cost(0, WALL_MS - 2_880_000, false), None);
        assert_eq!(cost(2, WALL_MS - 2_880_000, false).as_deref(), Some("1.6 GPU-h idle"));
        assert_eq!(cost(2, WALL_MS - 600_000, true).as_deref(), Some("≥ 0.3 GPU-h idle"));
    }
}
