//! Problems of GPUs: flags, errors of their memory, Xid events, lost ones. Those of the same kind and the
//! same job are one item.

mod sentence;

use super::{Cost, Item, Now, Since, Spark, Target, job_name, jobs_on};
use crate::domain::flags::{self, Flag, FlagKind};
use crate::domain::health::{Freshness, freshness};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::throttle;
use crate::domain::{ownership, unattributed, xid};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{GpuEvent, GpuPicture, NodePicture};
use nodeglass_protocol::unattributed::LEAST_BYTES;
use sentence::sentence;

/// How long an Xid is listed after it occurred, in ms.
const XID_MS: u64 = 3_600_000;

/// How long memory must be held by no process, in ms: that of a process that just ended is freed within seconds.
const HELD_MS: u64 = 60_000;

/// A kind of problem.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// The GPU cannot be read.
    Lost,
    /// Errors or pending repairs of its memory.
    Memory,
    Thermal,
    PowerBrake,
    Slowdown,
    NvLink,
    Pcie,
    /// A vGPU has no license.
    Unlicensed,
    /// Memory that no visible process holds.
    Held,
    /// An Xid that does not concern memory.
    Xid(u64),
}

/// One GPU with a problem.
struct Place<'a> {
    node: &'a NodePicture,
    position: usize,
    gpu: &'a GpuPicture,
    severity: Severity,
    since: Option<Since>,
    /// The number of the event that shows it, if any.
    xid: Option<u64>,
}

/// GPUs with the same problem that belong to the same jobs.
struct Group<'a> {
    kind: Kind,
    jobs: Vec<&'a Job>,
    places: Vec<Place<'a>>,
}

/// Returns the problems of all GPUs that belong to a listed job.
pub fn problems(jobs: &[Job], nodes: &[NodePicture], now: Now) -> Vec<Item> {
    let mut groups: Vec<Group<'_>> = Vec::new();
    for node in nodes {
        let here = jobs_on(node, jobs);
        if here.is_empty() && !jobs.is_empty() {
            continue;
        }
        for (position, gpu) in node.gpus.iter().enumerate() {
            if ownership::is_part_of_lost(node, gpu) {
                continue;
            }
            let owners: Vec<&Job> =
                here.iter().copied().filter(|job| ownership::has_part(node, gpu, job.id)).collect();
            if owners.is_empty() && !jobs.is_empty() {
                continue;
            }
            add_problems(&mut groups, node, position, &owners, now);
        }
    }
    groups.iter().map(item).collect()
}

/// Adds the problems of one GPU.
fn add_problems<'a>(
    groups: &mut Vec<Group<'a>>,
    node: &'a NodePicture,
    position: usize,
    owners: &[&'a Job],
    now: Now,
) {
    let gpu = &node.gpus[position];
    let is_fresh = freshness(node, now.relay_ms) == Freshness::Fresh && node.head.driver_stuck_ms.is_none();
    let mut add = |kind, severity, since, xid| {
        let place = Place { node, position, gpu, severity, since, xid };
        let same = |group: &&mut Group<'_>| {
            let ids = |jobs: &[&Job]| jobs.iter().map(|job| job.id).collect::<Vec<_>>();
            // Jobs that share GPUs, and machines without any, have an item per node.
            let is_here = owners.len() == 1 || group.places.iter().all(|place| place.node.name == node.name);
            group.kind == kind && ids(&group.jobs) == ids(owners) && is_here
        };
        match groups.iter_mut().find(same) {
            Some(group) => group.places.push(place),
            None => groups.push(Group { kind, jobs: owners.to_vec(), places: vec![place] }),
        }
    };
    let events: Vec<&GpuEvent> =
        node.head.events.iter().filter(|event| event.gpu.as_ref() == Some(&gpu.facts.uuid)).collect();
    if gpu.fault.is_some() {
        let lost = events.iter().rev().find(|event| event.xid.is_none_or(|number| number == 79));
        return add(Kind::Lost, Severity::Error, lost.copied().map(since), None);
    }
    let recent: Vec<(&GpuEvent, u64)> = events
        .iter()
        .filter(|event| event.at_ms + XID_MS > now.relay_ms)
        .filter_map(|event| Some((*event, event.xid?)))
        .collect();
    let flags = flags::for_gpu(node, gpu);
    add_memory(&flags, &recent, &mut add);
    for (at, (event, number)) in recent.iter().enumerate() {
        let is_latest = recent[at + 1..].iter().all(|(_, later)| later != number);
        // The program that caused it may have ended.
        let is_program_error = xid::meaning(*number).is_some_and(|(_, is_program_error)| is_program_error);
        let started = |job: &&Job| job.start.is_none_or(|start| now.relay_ms_at(start) <= event.at_ms);
        if is_latest && !xid::is_memory_error(*number) && (!is_program_error || owners.iter().all(started)) {
            add(Kind::Xid(*number), xid::severity(*number), Some(since(event)), Some(*number));
        }
    }
    for flag in flags.iter().filter(|flag| flag.severity.needs_attention()) {
        let (kind, is_momentary) = match flag.kind {
            FlagKind::Thermal => (Kind::Thermal, true),
            FlagKind::PowerBrake => (Kind::PowerBrake, true),
            FlagKind::Slowdown => (Kind::Slowdown, true),
            FlagKind::NvLinkDown => (Kind::NvLink, false),
            FlagKind::PcieNarrow => (Kind::Pcie, false),
            FlagKind::Unlicensed => (Kind::Unlicensed, false),
            _ => continue,
        };
        if is_fresh || !is_momentary {
            add(kind, flag.severity, throttled_since(node, position, flag), None);
        }
    }
    if is_fresh && held_bytes(node, position).is_some() {
        add(Kind::Held, Severity::Warning, None, None);
    }
}

/// Adds errors and pending repairs of a GPU's memory, which are one problem.
fn add_memory(
    flags: &[Flag],
    recent: &[(&GpuEvent, u64)],
    add: &mut impl FnMut(Kind, Severity, Option<Since>, Option<u64>),
) {
    let is_memory = |flag: &Flag| {
        matches!(
            flag.kind,
            FlagKind::EccUncorrected
                | FlagKind::RemapFailed
                | FlagKind::RemapPending
                | FlagKind::RetirePending
        )
    };
    let flagged = flags.iter().filter(|flag| is_memory(flag)).map(|flag| flag.severity).max();
    let event = recent.iter().rev().find(|(_, number)| xid::is_memory_error(*number));
    let severity = flagged.max(event.map(|(_, number)| xid::severity(*number)));
    if let Some(severity) = severity {
        add(Kind::Memory, severity, event.map(|(event, _)| since(event)), event.map(|(_, number)| *number));
    }
}

/// Returns since when a throttle reason applies, if the history shows its start.
fn throttled_since(node: &NodePicture, position: usize, flag: &Flag) -> Option<Since> {
    const THERMAL: u32 = 0x60;
    let bits = match flag.kind {
        FlagKind::Thermal => THERMAL,
        FlagKind::PowerBrake => 0x80,
        FlagKind::Slowdown => 0x8,
        _ => return None,
    };
    let trace = node.history.as_ref()?.gpu(position, GpuField::Throttle)?;
    let (at_ms, or_earlier) = throttle::start(trace, bits)?;
    Some(Since { at_ms, or_earlier })
}

fn since(event: &GpuEvent) -> Since {
    Since { at_ms: event.at_ms, or_earlier: false }
}

fn item(group: &Group<'_>) -> Item {
    let first = &group.places[0];
    let severity = group.places.iter().map(|place| place.severity).max().unwrap_or(Severity::Warning);
    let sentence = sentence(group);
    let name = match group.kind {
        Kind::Lost => "lost".to_owned(),
        Kind::Memory => "memory".to_owned(),
        Kind::Thermal => "thermal".to_owned(),
        Kind::PowerBrake => "power_brake".to_owned(),
        Kind::Slowdown => "slowdown".to_owned(),
        Kind::NvLink => "nvlink".to_owned(),
        Kind::Pcie => "pcie".to_owned(),
        Kind::Unlicensed => "unlicensed".to_owned(),
        Kind::Held => "held".to_owned(),
        Kind::Xid(number) => format!("xid-{number}"),
    };
    let mut item = Item::for_node(&name, &group.jobs, first.node, severity);
    let is_one_node = group.places.iter().all(|place| place.node.name == first.node.name);
    if let [job] = group.jobs.as_slice() {
        item.key = format!("{name}/{}", job.id);
        item.subject = job_name(job);
        if !is_one_node {
            item.target.route = Route::Job(job.id, JobTab::Nodes);
        }
    }
    if is_one_node {
        item.target = Target { gpu: Some(first.gpu.facts.uuid.clone()), ..item.target };
    }
    item.since = group.places.iter().filter_map(|place| place.since).min_by_key(|since| since.at_ms);
    (item.title, item.detail, item.reason) = (sentence.title, sentence.detail, sentence.reason);
    item.nodes = group.places.iter().map(|place| place.node.name.clone()).collect();
    item.nodes.dedup();
    match group.kind {
        Kind::Lost => {
            item.cost = Some(Cost { gpus: group.places.len(), label: "lost" });
            item.impact = group.places.len();
        }
        Kind::Held => item.confirm_ms = HELD_MS,
        Kind::Thermal | Kind::PowerBrake | Kind::Slowdown => {
            item.impact = group.places.len() + waiting(group).unwrap_or(0);
        }
        _ => {}
    }
    let field = match group.kind {
        Kind::Thermal | Kind::PowerBrake | Kind::Slowdown => Some(GpuField::Power),
        Kind::Lost => Some(GpuField::Util),
        _ => None,
    };
    item.spark =
        field.map(|field| Spark { node: first.node.name.clone(), gpu: first.gpu.facts.uuid.clone(), field });
    item
}

/// Returns how many other GPUs of the job may wait for these; `None` for GPUs of several jobs or of none.
fn waiting(group: &Group<'_>) -> Option<usize> {
    let [job] = group.jobs.as_slice() else { return None };
    (job.gpu_count? as usize).checked_sub(group.places.len())
}

/// Returns how much memory of a GPU no visible process holds, if it is enough to report.
fn held_bytes(node: &NodePicture, position: usize) -> Option<u64> {
    match &node.history {
        Some(history) if !history.is_summary => unattributed::bytes(node, position),
        // A summary has no processes: the relay computes it.
        _ => node
            .gpus
            .get(position)?
            .row
            .value(GpuField::MemUnattributed)
            .filter(|bytes| *bytes >= LEAST_BYTES),
    }
}

#[cfg(test)]
mod tests;
