//! The attention list: the relay's findings as lines, each with its evidence and the place where it is shown.

mod failures;
mod silence;
#[cfg(test)]
pub mod tests;
mod tracker;

pub use failures::Visits;
pub use silence::Source;
pub use tracker::{Entry, Tracker};

use crate::chart::Range;
use crate::domain::cost;
use crate::domain::health::Health;
use crate::domain::job_names;
use crate::domain::metric::GraphMetric;
use crate::domain::query::{self, Query};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::sorting;
use crate::domain::text;
use nodeglass_protocol::capture::FindingCapture;
use nodeglass_protocol::finding::{self, Finding, FindingKind, FindingSeverity, Waste};
use nodeglass_protocol::job::{Job, Parent};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{Field as _, GpuField, GpuUuid, JobId, NodeName, Picture};
pub use nodeglass_rules::attention::Since;
use nodeglass_rules::attention::{Folded, fold, fold_run, names, needs_attention};
use nodeglass_rules::health::within_node;
use nodeglass_rules::ownership;
use std::cmp::Reverse;
use std::sync::Arc;

/// One thing that needs attention.
#[derive(Clone, Debug, PartialEq)]
pub struct Item {
    /// Its identity: what is wrong and where, the same for as long as it lasts.
    pub key: String,
    /// Kind.
    pub kind: FindingKind,
    /// Severity.
    pub severity: Severity,
    /// The jobs that it affects; empty for a machine without a job.
    pub jobs: Vec<JobId>,
    /// Name of the job, or of the node if several jobs are affected or none.
    pub subject: String,
    /// The problem and its place, one sentence without a full stop.
    pub title: String,
    /// The evidence; empty if the title has it all.
    pub evidence: String,
    /// The positions of the job's processes when it began, a line for each group.
    pub positions: Vec<String>,
    /// The stacks of these processes.
    pub capture: Option<Arc<FindingCapture>>,
    /// Advice.
    pub advice: String,
    /// The problem in a few words: `GPU 3 too hot`.
    pub reason: String,
    /// When it began.
    pub since: Since,
    /// When it ended, in ms since 1970; `None` while it lasts.
    pub ended_ms: Option<u64>,
    /// The nodes on which it was found.
    pub nodes: Vec<NodeName>,
    /// The GPUs that it is about.
    pub gpus: Vec<GpuUuid>,
    /// The GPUs that do no useful work because of it.
    pub waste: Waste,
    /// Whether it is about a job that has ended, so that nothing can be helped any more.
    pub is_past: bool,
    /// The findings that it represents: its own, and folded ones.
    pub sources: Vec<Source>,
    /// The array or heterogeneous job that this one is a part of.
    pub whole_job: Option<JobId>,
    /// Until when it is silenced, in ms since 1970; `None` if it is not.
    pub silenced_until_ms: Option<u64>,
    /// The place where it is shown.
    pub target: Target,
    /// The trace that shows it, if any.
    pub trace: Option<GpuTrace>,
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

/// Maximum age of an item's start that the recent history still shows, in ms.
const RECENT_MS: u64 = Range::RECENT_MS - 60_000;
/// Time that a link shows before the start of an item and after its end, in ms.
const AROUND_MS: u64 = 300_000;
/// Maximum part of an item that a link shows, in ms.
const SHOWN_MS: u64 = 3_600_000;

/// Returns the attention list of a picture with these jobs, worst first. `jobs` may be a part of the picture's jobs;
/// items that affect other jobs only are left out. What affects no job at all, as on a listed machine, is in it.
pub fn all(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    items(picture, jobs, |finding| finding.is_active() && needs_attention(finding))
}

/// Returns the attention list of a picture with all of its jobs, and the failures that stay until they are dismissed:
/// above warnings those since the last visit, and at the end earlier ones. `now_ms` is in ms since 1970.
pub fn with_failures(picture: &Picture, visits: Visits, now_ms: u64) -> Vec<Item> {
    let kept = failures::unlisted(picture, visits, now_ms);
    let listed = picture.findings.iter().filter(|finding| finding.is_active() && needs_attention(finding));
    let (jobs, listed) = (&picture.jobs, listed.chain(&kept.new).collect());
    let mut items = sorted(fold(listed, names(jobs)), jobs);
    items.extend(sorted(fold(kept.seen.iter().collect(), names(jobs)), jobs));
    items
}

/// Returns what ended within the last hour and has not returned, latest first.
pub fn resolved(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let mut items = ended(jobs, picture);
    items.retain(|item| !item.kind.is_event());
    sorting::sort_by_key(&mut items, |item| Reverse(item.ended_ms));
    items
}

/// Returns what ended within the last hour.
fn ended(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    let is_ended = |finding: &Finding| !finding.is_active() && needs_attention(finding);
    sorted(fold_run(picture.findings.iter().filter(|finding| is_ended(finding))), jobs)
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
    items.extend(ended(&jobs, picture));
    items.retain(|item| {
        let is_of_job = route.job().is_none_or(|job| item.jobs.contains(&job));
        let is_of_node = node.is_none_or(|node| item.nodes.is_empty() || item.nodes.contains(node));
        !item.is_past && is_of_job && is_of_node
    });
    items.reverse();
    items
}

/// Returns what lasts and would need attention if it were not silenced, worst first.
pub fn silenced(jobs: &[Job], picture: &Picture) -> Vec<Item> {
    items(picture, jobs, |finding| {
        finding.is_active() && finding.severity > FindingSeverity::Info && finding.silenced_until_ms.is_some()
    })
}

/// Returns the findings of a state, folded and worst first.
fn items(picture: &Picture, jobs: &[Job], has_state: impl Fn(&Finding) -> bool) -> Vec<Item> {
    let found = picture.findings.iter().filter(|finding| has_state(finding));
    sorted(fold(found.collect(), names(jobs)), jobs)
}

fn sorted(mut found: Vec<Folded<'_>>, jobs: &[Job]) -> Vec<Item> {
    sorting::sort_by(&mut found, |a, b| finding::order(a.finding, b.finding));
    found.iter().filter_map(|folded| Item::of(folded, jobs)).collect()
}

impl GpuTrace {
    /// The trace of the first GPU of a finding, if the finding names its metric.
    fn of(finding: &Finding) -> Option<Self> {
        let gpu = finding.gpus.first()?;
        let name = gpu.metric.as_ref()?;
        let field = GpuField::ALL.iter().find(|field| field.metric().name == name.as_str())?;
        Some(Self { node: gpu.node.clone(), gpu: gpu.uuid.clone(), field: *field })
    }
}

impl Item {
    /// The item of a finding and of those folded into it; `None` if it concerns other jobs than these.
    fn of(folded: &Folded<'_>, jobs: &[Job]) -> Option<Self> {
        let finding = folded.finding;
        let affected: Vec<&Job> = jobs.iter().filter(|job| finding.jobs.contains(&job.id)).collect();
        if affected.is_empty() && !jobs.is_empty() && !finding.jobs.is_empty() {
            return None;
        }
        let severity = Severity::from(finding.severity);
        let (subject, route) = place(finding, &folded.nodes(), &affected)?;
        let label = |id: JobId| {
            jobs.iter().find(|job| job.id == id).map_or_else(|| id.to_string(), |job| job.label.to_string())
        };
        let mut evidence = folded.evidence(label);
        if affected.len() > 1 {
            let names: Vec<String> = affected.iter().map(|job| job_names::within(job)).collect();
            evidence.push(format!("affects {}", names.join(", ")));
        }
        let gpu = match finding.gpus.as_slice() {
            [gpu] => Some(gpu.uuid.clone()),
            _ => None,
        };
        Some(Self {
            key: finding.key.to_string(),
            kind: finding.kind,
            severity,
            jobs: folded.jobs().into_iter().filter(|id| jobs.iter().any(|job| job.id == *id)).collect(),
            subject,
            title: folded.title(),
            evidence: text::capitalised(&evidence.join(" · ")),
            positions: finding.capture.iter().flat_map(|capture| capture.lines()).collect(),
            capture: finding.capture.as_deref().cloned().map(Arc::new),
            advice: folded.advice(),
            reason: folded.reason(),
            since: folded.since(),
            ended_ms: finding.ended_ms,
            nodes: folded.nodes(),
            gpus: finding.gpus.iter().map(|gpu| gpu.uuid.clone()).collect(),
            waste: folded.waste(),
            is_past: finding.kind == FindingKind::Failed,
            sources: folded.all().map(Source::of).collect(),
            whole_job: match affected.as_slice() {
                [job] => job.part_of.as_ref().map(Parent::job),
                _ => None,
            },
            silenced_until_ms: finding.silenced_until_ms,
            target: Target { route, gpu },
            trace: GpuTrace::of(finding),
        })
    }

    /// Returns the evidence, or the advice if the title has it all.
    pub fn evidence_or_advice(&self) -> &str {
        if self.evidence.is_empty() { &self.advice } else { &self.evidence }
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

    /// Returns the query of the view that shows it: the finding whose evidence is in a log; or its metric, its GPU pinned in
    /// the graphs, and the time around its start; or the sheet of a GPU where no graph shows it. `now_ms` is in ms since 1970.
    pub fn query(&self, now_ms: u64) -> Query {
        let mut query = Query::default();
        if matches!(self.target.route, Route::Job(_, JobTab::Logs)) {
            query.set(query::FINDING, Some(self.key.clone()));
            return query;
        }
        let Some(GpuTrace { node, gpu, field }) = &self.trace else {
            query.set(query::GPU, self.target.gpu.as_ref().map(ToString::to_string));
            return query;
        };
        let metric = GraphMetric::of(*field).filter(|metric| *metric != GraphMetric::default());
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
        let hours = self.waste.gpu_hours(self.ended_ms.unwrap_or(now_ms));
        cost::text(self.kind, hours, self.since.or_earlier)
    }
}

/// Returns the name of the job or node that a finding is about, and the route that shows it.
fn place(finding: &Finding, nodes: &[NodeName], affected: &[&Job]) -> Option<(String, Route)> {
    Some(match (affected, nodes) {
        ([job], _) if matches!(finding.kind, FindingKind::Failed | FindingKind::LogMessage) => {
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
        job.is_active() && job.nodes.contains(&node.name) && ownership::has_gpus_on(job, &node.name)
    };
    node.head.no_gpu.is_some() && jobs.iter().any(expects)
}

/// Returns the worst severity of the items of active jobs.
pub fn worst(entries: &[Entry]) -> Severity {
    let now = entries.iter().filter(|entry| !entry.is_resolved && !entry.item.is_past);
    now.map(|entry| entry.item.severity).max().unwrap_or(Severity::Ok)
}

/// Returns the worst item that is about a node alone: one that several nodes share, such as a hang, does not tell them
/// apart.
pub fn of_node<'a>(entries: &'a [Entry], node: &NodeName) -> Option<&'a Item> {
    let own =
        entries.iter().filter(|entry| !entry.is_resolved && entry.item.nodes == std::slice::from_ref(node));
    own.map(|entry| &entry.item).max_by_key(|item| item.severity)
}

/// Returns the worst item that affects a node, alone or with others: no node of a job that hangs is well.
pub fn affecting_node<'a>(entries: &'a [Entry], node: &NodeName) -> Option<&'a Item> {
    let own = entries.iter().filter(|entry| !entry.is_resolved && entry.item.nodes.contains(node));
    own.map(|entry| &entry.item).max_by_key(|item| item.severity)
}

/// Returns a node's health: its own, or the health of the worst item that affects it; in the views of a job, of the job's
/// items.
pub fn node_health_in(
    own: Arc<Health>,
    entries: &[Entry],
    job: Option<JobId>,
    node: &NodeName,
) -> Arc<Health> {
    let affects = |item: &&Item| {
        !item.is_past && item.nodes.contains(node) && job.is_none_or(|job| item.jobs.contains(&job))
    };
    let items = entries.iter().filter(|entry| !entry.is_resolved).map(|entry| &entry.item).filter(affects);
    match items.max_by_key(|item| item.severity) {
        Some(item) if item.severity > own.severity => {
            Arc::new(Health::new(item.severity, within_node(&item.reason, node)))
        }
        _ => own,
    }
}

/// Returns a node's health, or an item's if it is worse.
pub fn worse(own: Arc<Health>, item: Option<&Item>) -> Arc<Health> {
    match item {
        Some(item) if item.severity > own.severity => {
            Arc::new(Health::new(item.severity, item.reason.clone()))
        }
        _ => own,
    }
}

/// Returns the worst item that names a GPU.
pub fn affecting_gpu<'a>(entries: &'a [Entry], gpu: &GpuUuid) -> Option<&'a Item> {
    let own = entries.iter().filter(|entry| !entry.is_resolved && entry.item.gpus.contains(gpu));
    own.map(|entry| &entry.item).max_by_key(|item| item.severity)
}

/// Returns the severity of the finding about the memory of a GPU, if there is one.
pub fn memory_errors(entries: &[Entry], gpu: &GpuUuid) -> Option<Severity> {
    let is_about = |item: &&Item| item.kind == FindingKind::MemoryErrors && item.gpus.contains(gpu);
    let items = entries.iter().filter(|entry| !entry.is_resolved).map(|entry| &entry.item);
    items.filter(is_about).map(|item| item.severity).max()
}

/// Returns the entries of a job, worst first.
pub fn for_job(entries: &[Entry], job: JobId) -> impl Iterator<Item = &Entry> {
    entries.iter().filter(move |entry| !entry.is_resolved && entry.item.jobs.contains(&job))
}
