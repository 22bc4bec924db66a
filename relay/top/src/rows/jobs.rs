//! The list of jobs. Pure.

use super::{Spans, matches, one, sign};
use crate::model::World;
use crate::palette::Palette;
use crate::table::Column;
use nodeglass_protocol::JobId;
use nodeglass_protocol::finding::{self, FindingKind};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, JobsHealth, Link, NodePicture};
use nodeglass_rules::attention::{Folded, fold, names, needs_attention};
use nodeglass_rules::health;
use nodeglass_rules::severity::Severity;
use nodeglass_rules::totals::Totals;
use nodeglass_rules::{flags, outcome, ownership, run, text};
use std::slice;
use unicode_width::UnicodeWidthStr;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Symbol of the state.
    Sign,
    /// Id.
    Id,
    /// Name.
    Name,
    /// State in words.
    State,
    /// Owner.
    User,
    /// Partition.
    Partition,
    /// Number of nodes.
    Nodes,
    /// Number of GPUs.
    Gpus,
    /// Mean utilisation.
    Util,
    /// Power of its GPUs.
    Power,
    /// Remaining time, or when it starts.
    Time,
}

/// The columns.
const COLUMNS: &[Column<Key>] = &[
    Column::text(Key::Sign, "", (1, 1), 0),
    Column::text(Key::Id, "JOB", (8, 10), 0),
    Column::text(Key::Name, "NAME", (16, 48), 1),
    Column::text(Key::State, "STATE", (28, 40), 2),
    Column::text(Key::User, "USER", (8, 12), 7),
    Column::text(Key::Partition, "PARTITION", (9, 12), 8),
    Column::number(Key::Nodes, "NODES", 5, 6),
    Column::number(Key::Gpus, "GPUS", 4, 4),
    Column::number(Key::Util, "UTIL", 5, 3),
    Column::number(Key::Power, "POWER", 16, 9),
    Column::number(Key::Time, "TIME", 15, 5),
];

/// A long form of what the row of all jobs has as its name.
const ALL_JOBS: &str = "100 active jobs";
/// Longest failure in the head, in characters.
const MAX_TITLE: usize = 48;

/// A row.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// All jobs together.
    All,
    /// One job.
    Job(&'a Job),
}

impl Line<'_> {
    /// Its job; `None` for all.
    pub fn job(&self) -> Option<JobId> {
        self.listed().map(|job| job.id)
    }

    fn listed(&self) -> Option<&Job> {
        match self {
            Self::All => None,
            Self::Job(job) => Some(job),
        }
    }
}

/// Returns whether a job has ended.
pub fn has_ended(job: &Job) -> bool {
    matches!(job.state, JobState::Ended(_))
}

/// The rows: all jobs, then each that the filter keeps, those that need attention first, without ended ones if they are
/// hidden.
pub fn lines<'a>(world: &World<'a>, hides_ended: bool, filter: &str) -> Vec<Line<'a>> {
    let listed = world.overview.jobs.iter().filter(|job| !(hides_ended && has_ended(job)));
    let kept = listed.filter(|job| {
        let own = health::state_label(job);
        let shown = if filter.is_empty() { String::new() } else { state(job, world).1 };
        let (label, name) = (job.label.as_str(), job.name.as_str());
        matches(filter, [label, name, job.user.as_str(), job.partition.as_str(), &own, &shown])
    });
    let rank = |job: &'a Job| match has_ended(job) {
        // It needs no more attention than the head gives it.
        true => (Severity::Ok, None),
        false => (need(job, world), worst(&findings(job, world)).map(|worst| worst.finding)),
    };
    let mut kept: Vec<_> = kept.map(|job| (rank(job), job)).collect();
    // Of equal severity as in the page's list of what needs attention.
    kept.sort_by(|((need_a, a), _), ((need_b, b), _)| {
        need_b.cmp(need_a).then_with(|| match (a, b) {
            (Some(a), Some(b)) => finding::order(a, b),
            _ => b.is_some().cmp(&a.is_some()),
        })
    });
    [Line::All].into_iter().chain(kept.into_iter().map(|(_, job)| Line::Job(job))).collect()
}

/// Returns how much attention a job needs: none unless there is a warning or an error.
fn need(job: &Job, world: &World<'_>) -> Severity {
    Some(state(job, world).0).filter(|severity| severity.needs_attention()).unwrap_or(Severity::Ok)
}

/// Returns the worst state of a job, and its words: those of its nodes and GPUs if they need attention.
fn state(job: &Job, world: &World<'_>) -> (Severity, String) {
    let severity = match &job.state {
        JobState::Running | JobState::Other(_) | JobState::Completing => Severity::Ok,
        JobState::Pending | JobState::Configuring | JobState::Suspended => Severity::Pending,
        JobState::Ended(_) => Severity::Ended,
    };
    let own = (severity, health::state_label(job));
    if !job.is_active() {
        return outcome::failure(job).map_or(own, |failure| (failure.severity, failure.label));
    }
    let nodes = job.nodes.iter().filter_map(|name| world.overview.node(name));
    let worst = nodes.filter_map(|node| node_problem(job, node, world));
    let worst = finding(job, world).into_iter().chain(worst);
    worst.reduce(|a, b| if b.0 > a.0 { b } else { a }).unwrap_or(own)
}

/// The worst finding about a job that is not silenced, and the number of others: `GPU 3 too hot +1`.
fn finding(job: &Job, world: &World<'_>) -> Option<(Severity, String)> {
    let folded = findings(job, world);
    let worst = worst(&folded)?;
    Some((worst.finding.severity.into(), format!("{}{}", worst.reason(), others(folded.len()))))
}

/// The findings about a job that are not silenced. What explains another one is folded into it, as in the page.
fn findings<'a>(job: &'a Job, world: &World<'a>) -> Vec<Folded<'a>> {
    let found =
        world.overview.findings.iter().filter(|finding| {
            finding.is_active() && needs_attention(finding) && finding.jobs.contains(&job.id)
        });
    fold(found.collect(), names(slice::from_ref(job)))
}

fn worst<'a, 'f>(findings: &'a [Folded<'f>]) -> Option<&'a Folded<'f>> {
    findings.iter().min_by(|a, b| finding::order(a.finding, b.finding))
}

/// The latest job that failed within the last hour, and the number of others: `train ended: out of memory +1`. As in the
/// page, without those that are silenced, and repeated failures of a job are one.
pub fn failures(world: &World<'_>) -> Option<(Severity, String)> {
    let found = world.overview.findings.iter().filter(|finding| {
        finding.kind == FindingKind::Failed && finding.is_active() && needs_attention(finding)
    });
    let folded = fold(found.collect(), names(&world.overview.jobs));
    let latest = folded.iter().max_by_key(|failure| failure.finding.since_ms)?;
    let title = text::shortened(&latest.title(), MAX_TITLE);
    let severity = folded.iter().map(|failure| Severity::from(failure.finding.severity)).max()?;
    Some((severity, format!("{title}{}", others(folded.len()))))
}

/// The number of entries besides the shown one: ` +2`.
fn others(count: usize) -> String {
    if count > 1 { format!(" +{}", count - 1) } else { String::new() }
}

/// Returns the problem of a job's part of a node, if it needs attention.
fn node_problem(job: &Job, node: &NodePicture, world: &World<'_>) -> Option<(Severity, String)> {
    let of_job = |gpu: &&GpuPicture| ownership::belongs_to_job(node, gpu, Some(job.id));
    let silenced = |gpu: &GpuPicture| {
        let findings = world.overview.findings.iter().filter(|finding| finding.silenced_until_ms.is_some());
        findings.flat_map(|finding| &finding.gpus).any(|silenced| silenced.uuid == gpu.facts.uuid)
    };
    let named = |label: String| match job.nodes.len() {
        ..=1 => label,
        _ => format!("{} {label}", node.name),
    };
    let flags = node.gpus.iter().filter(of_job).filter(|gpu| !silenced(gpu)).flat_map(|gpu| {
        let fault = gpu.fault.as_ref().map(|_| (Severity::Error, named(flags::unreadable(gpu))));
        let flags = flags::for_gpu(node, gpu).into_iter().filter(|flag| flag.severity.needs_attention());
        let flags = flags.map(|flag| (flag.severity, named(flag.label(gpu))));
        fault.into_iter().chain(flags).collect::<Vec<_>>()
    });
    let health = health::for_node(node, world.now_ms);
    // Flags of the node include flags of any job's GPUs.
    let is_of_node = health.severity.needs_attention() && !matches!(node.head.link, Link::Live);
    let link = is_of_node.then(|| (health.severity, format!("{} {}", node.name, health.label)));
    flags.chain(link).reduce(|a, b| if b.0 > a.0 { b } else { a })
}

/// Totals over the GPUs of a job.
fn totals(job: &Job, world: &World<'_>) -> Totals {
    let nodes = job.nodes.iter().filter_map(|name| world.overview.node(name));
    ownership::job_totals(job, nodes, world.now_ms)
}

/// Totals over the GPUs of all active jobs, or without SLURM of all nodes.
pub fn all_totals(world: &World<'_>) -> Totals {
    let picture = world.overview;
    if picture.relay.jobs != JobsHealth::NoSlurm {
        let active = picture.jobs.iter().filter(|job| job.is_active()).map(|job| job.id).collect();
        return ownership::combined_totals(picture, &active, world.now_ms);
    }
    let mut totals = Totals::default();
    for node in &picture.nodes {
        ownership::add_to_totals(&mut totals, node, None, health::is_stale(node, world.now_ms));
    }
    totals
}

/// Remaining time, time since the end, or the expected start.
fn time(job: &Job, wall_s: i64) -> String {
    let since = |at: i64| u64::try_from(wall_s.saturating_sub(at)).unwrap_or(0);
    let until = |at: i64| u64::try_from(at.saturating_sub(wall_s)).unwrap_or(0);
    match (&job.state, job.start) {
        (JobState::Ended(_), _) => {
            job.ended.map_or(String::new(), |at| format!("{} ago", text::short_span(since(at))))
        }
        (JobState::Pending, Some(start)) => format!("in {}", text::short_span(until(start))),
        (JobState::Pending, None) => String::new(),
        _ => match (run::time_left(job, wall_s), run::run_time(job, wall_s)) {
            (Some(left), _) => format!("{} left", text::short_span(left)),
            (None, ran) => ran.map_or_else(String::new, text::short_span),
        },
    }
}

/// The columns for these rows. What names a job is at most as wide as the longest of all, so that nothing is cut beside
/// blanks, and so are states and times, so that more columns fit.
pub fn columns(lines: &[Line<'_>], world: &World<'_>) -> Vec<Column<Key>> {
    let jobs = || lines.iter().filter_map(Line::listed);
    let widest = |of: fn(&Job) -> &str| jobs().map(|job| of(job).width()).max();
    let column = |column: &Column<Key>| {
        let widest = match column.key {
            Key::Id => widest(|job| job.label.as_str()),
            Key::Name => widest(|job| job.name.as_str()).map(|name| name.max(ALL_JOBS.len())),
            Key::User => widest(|job| job.user.as_str()),
            Key::Partition => widest(|job| job.partition.as_str()),
            Key::State => jobs().map(|job| state(job, world).1.width()).max(),
            Key::Time => jobs().map(|job| time(job, world.wall_s).width()).max(),
            _ => None,
        };
        widest.map_or(*column, |widest| column.narrowed(widest))
    };
    COLUMNS.iter().map(column).collect()
}

/// Returns whether a column says anything that the head does not: users, if there are several.
pub fn is_useful(lines: &[Line<'_>], key: Key) -> bool {
    let users = || lines.iter().filter_map(Line::listed).map(|job| &job.user);
    key != Key::User || users().zip(users().skip(1)).any(|(one, other)| one != other)
}

/// A cell.
pub fn cell(line: Line<'_>, key: Key, world: &World<'_>, palette: Palette) -> Spans {
    match line {
        Line::All => all(key, world, palette),
        Line::Job(job) => of_job(job, key, world, palette),
    }
}

fn all(key: Key, world: &World<'_>, palette: Palette) -> Spans {
    let jobs = &world.overview.jobs;
    match key {
        Key::Gpus => one(all_totals(world).gpus.to_string(), palette.dim()),
        Key::Id => one("all", palette.strong()),
        Key::Name => {
            let running = jobs.iter().filter(|job| job.is_active()).count();
            one(text::count(running, "active job", "active jobs"), palette.dim())
        }
        Key::Nodes => one(text::grouped(world.overview.nodes.len() as u64), palette.dim()),
        _ => Spans::new(),
    }
}

fn of_job(job: &Job, key: Key, world: &World<'_>, palette: Palette) -> Spans {
    let plain = ratatui::style::Style::new();
    let absent = || one(text::ABSENT, palette.dim());
    match key {
        Key::Sign => sign(state(job, world).0, palette),
        Key::Id => one(job.label.to_string(), plain),
        Key::Name => one(job.name.to_string(), palette.strong()),
        Key::State => {
            let (severity, words) = state(job, world);
            one(words, if severity == Severity::Ok { plain } else { palette.severity(severity) })
        }
        Key::User => one(job.user.to_string(), plain),
        Key::Partition => one(job.partition.to_string(), palette.dim()),
        Key::Nodes => one(job.node_count.to_string(), plain),
        Key::Gpus => job.gpu_count.map_or_else(absent, |count| one(count.to_string(), plain)),
        Key::Util if job.is_active() => match totals(job, world).util_pct() {
            Some(pct) => one(format!("{pct} %"), palette.util(pct)),
            None => absent(),
        },
        Key::Power if job.is_active() => match totals(job, world).power.used {
            Some(watts) => {
                let (used, limit) = text::power_parts(watts, totals(job, world).power.capacity);
                one(format!("{used} {limit}"), palette.power())
            }
            None => absent(),
        },
        Key::Util | Key::Power => Spans::new(),
        Key::Time => one(time(job, world.wall_s), palette.dim()),
    }
}
