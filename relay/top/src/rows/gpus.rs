//! Nodes and their GPUs. Pure.

use super::{Spans, matches, one, reading, sign};
use crate::model::World;
use crate::palette::{MemoryLevel, Palette};
use crate::spark;
use crate::table::Column;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{GpuPicture, Link, NodePicture};
use nodeglass_protocol::{GpuField, GpuUuid, HostField, JobId, NodeName};
use nodeglass_rules::health::{self, Freshness};
use nodeglass_rules::severity::Severity;
use nodeglass_rules::{flags, ownership, text, throttle};
use ratatui::style::Style;
use ratatui::text::Span;
use unicode_width::UnicodeWidthStr;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Symbol of the state.
    Sign,
    /// Label on its node.
    Gpu,
    /// Utilisation as a bar.
    UtilBar,
    /// Utilisation in %.
    Util,
    /// Memory as a bar.
    MemBar,
    /// Memory used and in total.
    Mem,
    /// Power and its limit.
    Power,
    /// Temperature.
    Temp,
    /// SM clock.
    SmClock,
    /// Memory clock.
    MemClock,
    /// Share of SM cycles with a warp.
    SmActive,
    /// Flags.
    Flags,
    /// Utilisation of the last minutes.
    Spark,
    /// Jobs that own it.
    Job,
    /// Users of these jobs.
    User,
    /// Model.
    Model,
}

/// The columns.
const COLUMNS: &[Column<Key>] = &[
    Column::text(Key::Sign, "", (1, 1), 0),
    Column::text(Key::Gpu, "GPU", (6, 9), 0),
    Column::text(Key::UtilBar, "", (8, 20), 5),
    Column::number(Key::Util, "UTIL", 5, 0),
    Column::text(Key::MemBar, "", (6, 12), 8),
    Column::number(Key::Mem, "MEMORY GiB", 10, 1),
    Column::number(Key::Power, "POWER W", 9, 4),
    Column::number(Key::Temp, "°C", 3, 3),
    Column::number(Key::SmClock, "SM MHz", 6, 7),
    Column::number(Key::MemClock, "MEM MHz", 7, 12),
    Column::number(Key::SmActive, "SM ACT", 6, 11),
    Column::text(Key::Flags, "FLAGS", (9, 40), 2),
    Column::text(Key::Spark, "LAST 10 MIN", (12, 30), 6),
    Column::text(Key::Job, "JOB", (8, 12), 9),
    Column::text(Key::User, "USER", (8, 10), 10),
    Column::text(Key::Model, "MODEL", (24, 24), 13),
];

/// A row.
#[derive(Clone, Copy, Debug)]
pub enum Line<'a> {
    /// A node.
    Node(&'a NodePicture),
    /// One of its GPUs, by position.
    Gpu(&'a NodePicture, usize),
}

/// Identity of a row: a node, or a GPU of it.
pub type LineId = (NodeName, Option<GpuUuid>);

impl<'a> Line<'a> {
    /// Its node.
    pub fn node(&self) -> &'a NodePicture {
        match self {
            Self::Node(node) | Self::Gpu(node, _) => node,
        }
    }

    /// Its GPU.
    pub fn gpu(&self) -> Option<&'a GpuPicture> {
        match self {
            Self::Node(_) => None,
            Self::Gpu(node, index) => node.gpus.get(*index),
        }
    }

    /// Its identity.
    pub fn id(&self) -> LineId {
        (self.node().name.clone(), self.gpu().map(|gpu| gpu.facts.uuid.clone()))
    }
}

/// Filter of GPUs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// Only GPUs of this job.
    pub job: Option<JobId>,
    /// Only GPUs of this node.
    pub node: Option<NodeName>,
    /// Only those with these indices, unless empty; a MIG instance has the index of its GPU.
    pub indices: Vec<u32>,
}

/// The rows of a scope: each node with its GPUs, in SLURM's order. A node is kept if the filter keeps it or any of its
/// GPUs.
pub fn lines<'a>(world: &World<'a>, scope: &Scope, filter: &str) -> Vec<Line<'a>> {
    let nodes: Vec<&NodePicture> = match scope.job.and_then(|id| job(world, id)) {
        Some(job) => job.nodes.iter().filter_map(|name| world.node(name)).collect(),
        None => world.nodes().collect(),
    };
    let mut lines = Vec::new();
    for node in nodes.into_iter().filter(|node| scope.node.as_ref().is_none_or(|name| node.name == *name)) {
        let is_kept = matches(filter, [node.name.as_str()]);
        let gpus = ownership::job_gpus_first(node, scope.job).into_iter().filter(|index| {
            let gpu = &node.gpus[*index];
            (scope.indices.is_empty() || scope.indices.contains(&index_of(node, gpu)))
                && ownership::belongs_to_job(node, gpu, scope.job)
                && (is_kept || is_matching(world, node, gpu, filter))
        });
        let first = lines.len();
        lines.extend(gpus.map(|index| Line::Gpu(node, index)));
        if is_kept || lines.len() > first {
            lines.insert(first, Line::Node(node));
        }
    }
    lines
}

fn index_of(node: &NodePicture, gpu: &GpuPicture) -> u32 {
    let parent = gpu.facts.mig_parent.as_ref();
    let parent = parent.and_then(|uuid| node.gpus.iter().find(|other| other.facts.uuid == *uuid));
    parent.unwrap_or(gpu).facts.index
}

fn is_matching(world: &World<'_>, node: &NodePicture, gpu: &GpuPicture, filter: &str) -> bool {
    let flags: String = flags::for_gpu(node, gpu).iter().map(|flag| format!("{} ", flag.text)).collect();
    let owners: String = owners(world, gpu).map(|job| format!("{} {} ", job.label, job.user)).collect();
    let model = gpu.facts.name.value().map_or("", |name| name.as_str());
    matches(filter, [gpu.facts.label().as_str(), &flags, &owners, model, gpu.facts.uuid.as_str()])
}

fn job<'a>(world: &World<'a>, id: JobId) -> Option<&'a Job> {
    world.overview.jobs.iter().find(|job| job.id == id)
}

/// The jobs that own a GPU.
fn owners<'a>(world: &World<'a>, gpu: &'a GpuPicture) -> impl Iterator<Item = &'a Job> {
    let jobs = &world.overview.jobs;
    gpu.owners.iter().filter_map(move |owner| jobs.iter().find(|job| job.id == owner.job))
}

/// The line of a node: its state, its host, and what is wrong.
pub fn node_line(node: &NodePicture, world: &World<'_>, palette: Palette) -> Spans {
    let health = health::with_findings(node, &world.overview.findings, world.now_ms);
    let mut spans = sign(health.severity, palette);
    spans.push(Span::styled(format!(" {}", node.name), palette.strong()));
    let words =
        if health.severity == Severity::Ok { palette.dim() } else { palette.severity(health.severity) };
    spans.push(Span::styled(format!("  {}", health.label), words));
    let why = match &node.head.link {
        Link::Down { reason, retry_at_ms } => {
            let wait_s = retry_at_ms.saturating_sub(world.now_ms).div_ceil(1_000);
            Some(format!(": {reason}; retry in {}", text::span(wait_s)))
        }
        Link::Refused { reason, advice } => Some(format!(": {reason}; {advice}")),
        _ => node.head.no_gpu.as_ref().map(|why| format!(": {why}")),
    };
    spans.extend(why.map(|why| Span::styled(why, words)));
    let is_current = health::freshness(node, world.now_ms) == Freshness::Fresh;
    let host = if is_current { palette.host() } else { palette.dim() };
    if let Some(cpu) = node.host.value(HostField::Cpu) {
        spans.push(Span::styled(format!("  CPU {cpu} %"), host));
    }
    if let Some(used) = node.host.value(HostField::MemUsed) {
        let (used, whole) = text::memory_parts(used, node.host.value(HostField::MemTotal));
        spans.push(Span::styled(format!("  RAM {used} {whole}"), host));
    }
    if let Some(load) = node.host.value(HostField::Load1) {
        spans.push(Span::styled(format!("  load {}", text::tenths(load as f64 / 100.0)), host));
    }
    spans
}

/// A cell of a GPU.
pub fn cell(
    (node, index): (&NodePicture, usize),
    (key, width): (Key, u16),
    world: &World<'_>,
    palette: Palette,
) -> Spans {
    let Some(gpu) = node.gpus.get(index) else { return Spans::new() };
    let is_current = health::freshness(node, world.now_ms) == Freshness::Fresh && gpu.fault.is_none();
    let style = |style: Style| if is_current { style } else { palette.dim() };
    let plain = style(Style::new());
    let number = |field, shown: fn(u64) -> String| reading(&gpu.row, field, shown);
    match key {
        Key::Sign => sign(severity(node, gpu, is_current, world), palette),
        Key::Gpu => one(label(gpu), plain),
        Key::Util => {
            let pct = gpu.row.value(GpuField::Util);
            one(number(GpuField::Util, |pct| format!("{pct} %")), style(palette.util(pct.unwrap_or(0))))
        }
        Key::UtilBar => {
            let Some(pct) = gpu.row.value(GpuField::Util) else { return Spans::new() };
            bar(pct, 100, width, style(palette.util(pct)), palette)
        }
        Key::MemBar => memory_bar(gpu, width, style, palette),
        Key::Mem => {
            let used = number(GpuField::MemUsed, text::gib);
            let whole = gpu.row.value(GpuField::MemTotal).map(|whole| format!("/{}", text::whole_gib(whole)));
            one(used + &whole.unwrap_or_default(), style(palette.memory_of(memory_level(gpu))))
        }
        Key::Power => {
            let limit = gpu.row.value(GpuField::PowerLimit).map(|limit| format!("/{limit}"));
            let power = number(GpuField::Power, |watts| watts.to_string());
            one(power + &limit.unwrap_or_default(), style(palette.power()))
        }
        Key::Temp => one(number(GpuField::Temp, |celsius| celsius.to_string()), plain),
        Key::SmClock => one(number(GpuField::SmClock, |mhz| mhz.to_string()), plain),
        Key::MemClock => one(number(GpuField::MemClock, |mhz| mhz.to_string()), plain),
        Key::SmActive => one(number(GpuField::SmActive, |pct| format!("{pct} %")), plain),
        Key::Flags => flag_spans(node, gpu, world, palette),
        Key::Spark => {
            let trace = node.history.as_ref().and_then(|history| history.gpu(index, GpuField::Util));
            let line = trace.map(|trace| spark::line(trace, world.now_ms, 100, width));
            one(line.unwrap_or_default(), style(palette.util(60)))
        }
        Key::Job => one(join(owners(world, gpu).map(|job| job.label.to_string())), plain),
        Key::User => one(join(owners(world, gpu).map(|job| job.user.to_string())), plain),
        Key::Model => one(model(gpu), palette.dim()),
    }
}

fn memory_bar(gpu: &GpuPicture, width: u16, style: impl Fn(Style) -> Style, palette: Palette) -> Spans {
    let used = gpu.row.value(GpuField::MemUsed).zip(gpu.row.value(GpuField::MemTotal));
    let Some((used, whole)) = used else { return Spans::new() };
    let level = memory_level(gpu);
    let style = style(palette.memory_of(level));
    // A mark besides the colour has a place of its own: bars of one column have one scale.
    let mut spans = bar(used, whole, width.saturating_sub(1), style, palette);
    spans.push(Span::styled(if level == MemoryLevel::High { "!" } else { " " }, style));
    spans
}

fn bar(part: u64, whole: u64, width: u16, style: Style, palette: Palette) -> Spans {
    let (filled, empty) = spark::bar(part, whole, width);
    vec![Span::styled(filled, style), Span::styled(empty, palette.dim())]
}

/// `GPU 0`, and for a MIG instance its profile below: `└ 3g.40gb`.
pub fn label(gpu: &GpuPicture) -> String {
    match &gpu.facts.mig {
        Some(mig) => match &mig.profile {
            Some(profile) => format!("└{profile}"),
            None => format!("└MIG {}", mig.gpu_instance),
        },
        None => gpu.facts.label(),
    }
}

fn severity(node: &NodePicture, gpu: &GpuPicture, is_current: bool, world: &World<'_>) -> Severity {
    if gpu.fault.is_some() {
        return Severity::Error;
    }
    let flags = flags::judged(node, gpu, &world.overview.findings);
    let worst = flags.into_iter().map(|flag| flag.severity).max();
    match worst.filter(|severity| severity.needs_attention()) {
        Some(severity) => severity,
        None if is_current => Severity::Ok,
        None => Severity::Pending,
    }
}

/// Words of what holds the clocks, errors and events; the age of values that are not current first.
fn flag_spans(node: &NodePicture, gpu: &GpuPicture, world: &World<'_>, palette: Palette) -> Spans {
    let mut spans = Spans::new();
    let mut push = |text: String, severity: Severity| {
        let gap = if spans.is_empty() { "" } else { " " };
        spans.push(Span::styled(format!("{gap}{text}"), palette.severity(severity)));
    };
    if let Some(why) = &gpu.fault {
        push(why.to_string(), Severity::Error);
    }
    if let Freshness::Stale(age_ms) = health::freshness(node, world.now_ms) {
        push(format!("stale {}", text::span(age_ms / 1_000)), Severity::Pending);
    }
    let xid = node.head.events.iter().rev().find(|event| event.gpu.as_ref() == Some(&gpu.facts.uuid));
    if let Some(number) = xid.and_then(|event| event.xid) {
        push(format!("Xid {number}"), Severity::Warning);
    }
    for flag in flags::judged(node, gpu, &world.overview.findings) {
        let severity = if flag.severity.needs_attention() { flag.severity } else { Severity::Pending };
        push(flag.text, severity);
    }
    if memory_level(gpu) == MemoryLevel::High {
        push("mem high".to_owned(), Severity::Pending);
    }
    // Reasons without a flag, such as fixed clocks; the utilisation shows idleness.
    let bits = gpu.row.value(GpuField::Throttle).and_then(|bits| u32::try_from(bits).ok()).unwrap_or(0);
    let quiet = throttle::REASONS.iter().filter(|reason| reason.is_normal && bits & reason.bit != 0);
    for reason in quiet.filter(|reason| ![0x1, 0x4].contains(&reason.bit)) {
        push(reason.name.to_owned(), Severity::Pending);
    }
    spans
}

/// Returns the level of its memory use. An unknown amount counts as low and is not marked.
fn memory_level(gpu: &GpuPicture) -> MemoryLevel {
    let used = gpu.row.value(GpuField::MemUsed).zip(gpu.row.value(GpuField::MemTotal));
    used.map_or(MemoryLevel::Low, |(used, whole)| MemoryLevel::of(used, whole))
}

fn join(words: impl Iterator<Item = String>) -> String {
    words.collect::<Vec<_>>().join(", ")
}

/// The columns for these rows: a model is there as a whole or not at all, since models differ at the end of their name.
pub fn columns(lines: &[Line<'_>]) -> Vec<Column<Key>> {
    let widest = || lines.iter().filter_map(Line::gpu).map(|gpu| model(gpu).width()).max().unwrap_or(0);
    let column = |column: &Column<Key>| match column.key {
        Key::Model => column.narrowed(widest()),
        _ => *column,
    };
    COLUMNS.iter().map(column).collect()
}

fn model(gpu: &GpuPicture) -> &str {
    gpu.facts.name.value().map_or("", |name| text::model(name.as_str()))
}

/// Returns whether a column says anything: any GPU reports it, and it differs from what the title says of the scope.
pub fn is_useful(lines: &[Line<'_>], key: Key, job: Option<JobId>) -> bool {
    let field = match key {
        Key::MemClock => GpuField::MemClock,
        Key::SmActive => GpuField::SmActive,
        Key::Job | Key::User => {
            return job.is_none()
                && lines.iter().any(|line| line.gpu().is_some_and(|gpu| !gpu.owners.is_empty()));
        }
        _ => return true,
    };
    lines.iter().any(|line| line.gpu().is_some_and(|gpu| gpu.row.value(field).is_some()))
}
