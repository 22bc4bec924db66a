//! Problems of GPUs: flags, errors of their memory, Xids, lost ones, memory that nobody holds, stuck processes. Those of
//! the same kind and the same jobs are one finding.

use crate::findings::scene::Scene;
use crate::findings::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingGpu, FindingKind, FindingSeverity};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{GpuEvent, GpuPicture, NodePicture};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::unattributed::LEAST_BYTES;
use nodeglass_protocol::{GpuField, GpuUuid, ProcessField};
use nodeglass_rules::flags::{self, Flag, FlagKind};
use nodeglass_rules::severity::Severity;
use nodeglass_rules::{ownership, text, throttle, xid};
use std::collections::BTreeMap;

/// How long an Xid is listed after it occurred, in ms.
const XID_MS: u64 = 3_600_000;

/// One GPU with a problem.
struct Place<'a> {
    node: &'a NodePicture,
    gpu: &'a GpuPicture,
    severity: FindingSeverity,
    since: Option<(u64, bool)>,
    /// The numbers that show it.
    evidence: String,
}

/// Kind, number of an Xid, and whom it is about: the jobs, or the node of a machine without a job.
type Key = (FindingKind, u64, String);
type Groups<'a> = BTreeMap<Key, (Vec<&'a Job>, Vec<Place<'a>>)>;

pub(super) fn detect(scene: &Scene<'_>, found: &mut Detections) {
    let mut groups = Groups::new();
    for node in scene.nodes.values() {
        let here = scene.jobs_on(node);
        if here.is_empty() && !scene.jobs.is_empty() {
            continue;
        }
        for gpu in node.gpus.iter().filter(|gpu| !ownership::is_part_of_lost(node, gpu)) {
            let owners: Vec<&Job> =
                here.iter().copied().filter(|job| ownership::has_part(node, gpu, job.id)).collect();
            if !owners.is_empty() || scene.jobs.is_empty() {
                examine(scene, node, gpu, &owners, &mut groups);
            }
        }
    }
    found.seen.extend(groups.into_iter().map(|(key, (jobs, places))| detection(&key, &jobs, &places)));
    for node in scene.nodes.values().filter(|node| !scene.is_current(node)) {
        // What was read before neither lasts nor ends.
        for job in scene.jobs_on(node) {
            found.unknown(&MOMENTARY, &job.id.to_string());
        }
        found.unknown(&MOMENTARY, &node.name.to_string());
    }
}

/// Kinds of which a reading that is not current says nothing.
const MOMENTARY: [FindingKind; 5] = [
    FindingKind::Thermal,
    FindingKind::PowerBrake,
    FindingKind::Slowdown,
    FindingKind::HeldMemory,
    FindingKind::StuckProcess,
];

fn examine<'a>(
    scene: &Scene<'a>,
    node: &'a NodePicture,
    gpu: &'a GpuPicture,
    owners: &[&'a Job],
    groups: &mut Groups<'a>,
) {
    let is_current = scene.is_current(node);
    let subject = match owners {
        [job] => job.id.to_string(),
        // Jobs that share GPUs, and machines without any, have one per node.
        _ => node.name.to_string(),
    };
    let mut add = |kind, number, severity, since: Option<(u64, bool)>, evidence: String| {
        let since = since.or_else(|| Some(scene.seen_now(node)));
        let group = groups.entry((kind, number, subject.clone()));
        let places = &mut group.or_insert_with(|| (owners.to_vec(), Vec::new())).1;
        // Several flags of a GPU are one problem.
        match places.last_mut().filter(|place| place.gpu.facts.uuid == gpu.facts.uuid) {
            Some(place) => {
                place.severity = place.severity.max(severity);
                place.evidence = format!("{}; {evidence}", place.evidence);
            }
            None => places.push(Place { node, gpu, severity, since, evidence }),
        }
    };
    let events: Vec<&GpuEvent> =
        node.head.events.iter().filter(|event| event.gpu.as_ref() == Some(&gpu.facts.uuid)).collect();
    if let Some(fault) = &gpu.fault {
        if node.head.driver_stuck_ms.is_some() {
            // That the driver hangs is one problem of the node, not one of each GPU.
            return;
        }
        let lost = events.iter().rev().find(|event| event.xid.is_none_or(|number| number == 79));
        let since = lost.map(|event| (event.at_ms, false));
        return add(FindingKind::GpuLost, 0, FindingSeverity::Error, since, fault.to_string());
    }
    let recent: Vec<(&GpuEvent, u64)> = events
        .iter()
        .filter(|event| event.at_ms + XID_MS > scene.now.relay_ms)
        .filter_map(|event| Some((*event, event.xid?)))
        .collect();
    for (at, (event, number)) in recent.iter().enumerate() {
        let is_latest = recent[at + 1..].iter().all(|(_, later)| later != number);
        // The program that caused it may have ended.
        let is_program_error = xid::meaning(*number).is_some_and(|(_, is_program_error)| is_program_error);
        let started = |job: &&Job| job.start.is_none_or(|start| scene.now.to_relay_ms(start) <= event.at_ms);
        if is_latest && !xid::is_memory_error(*number) && (!is_program_error || owners.iter().all(started)) {
            let severity = severity(xid::severity(*number));
            let meaning = xid::meaning(*number).map_or("", |(meaning, _)| meaning).to_owned();
            add(FindingKind::Xid, *number, severity, Some((event.at_ms, false)), meaning);
        }
    }
    let memory_event = recent.iter().rev().find(|(_, number)| xid::is_memory_error(*number));
    for flag in flags::for_gpu(node, gpu).iter().filter(|flag| flag.severity.needs_attention()) {
        let kind = match flag.kind {
            FlagKind::Thermal => FindingKind::Thermal,
            FlagKind::PowerBrake => FindingKind::PowerBrake,
            FlagKind::Slowdown => FindingKind::Slowdown,
            FlagKind::NvLinkDown => FindingKind::NvlinkDown,
            FlagKind::PcieNarrow => FindingKind::PcieNarrow,
            FlagKind::Unlicensed => FindingKind::Unlicensed,
            FlagKind::EccUncorrected
            | FlagKind::RemapFailed
            | FlagKind::RemapPending
            | FlagKind::RetirePending => FindingKind::MemoryErrors,
            FlagKind::PowerCap | FlagKind::EccCorrected | FlagKind::Other => continue,
        };
        if !is_current && MOMENTARY.contains(&kind) {
            continue;
        }
        let since = match kind {
            FindingKind::MemoryErrors => memory_event.map(|(event, _)| (event.at_ms, false)),
            _ => throttled_since(node, gpu, kind),
        };
        add(kind, 0, severity(flag.severity), since, evidence(gpu, kind, flag));
    }
    if let Some((event, number)) = memory_event
        && !flags::for_gpu(node, gpu).iter().any(|flag| is_memory(flag.kind))
    {
        let what = xid::meaning(*number).map_or("memory error", |(meaning, _)| meaning);
        let severity = severity(xid::severity(*number));
        let since = Some((event.at_ms, false));
        add(FindingKind::MemoryErrors, 0, severity, since, format!("{what} (Xid {number})"));
    }
    if !is_current {
        return;
    }
    if let Some(bytes) = gpu.row.value(GpuField::MemUnattributed).filter(|bytes| *bytes >= LEAST_BYTES) {
        let text = format!("{} GiB", text::gib(bytes));
        add(FindingKind::HeldMemory, 0, FindingSeverity::Warning, None, text);
    }
    if let Some(stuck) = stuck_process(node, &gpu.facts.uuid) {
        add(FindingKind::StuckProcess, 0, FindingSeverity::Warning, None, stuck);
    }
}

fn is_memory(kind: FlagKind) -> bool {
    matches!(
        kind,
        FlagKind::EccUncorrected | FlagKind::RemapFailed | FlagKind::RemapPending | FlagKind::RetirePending
    )
}

/// Returns the first process on a GPU that is a zombie or cannot be interrupted: `pid 4711 is a zombie`.
fn stuck_process(node: &NodePicture, uuid: &GpuUuid) -> Option<String> {
    node.processes.iter().filter(|process| process.facts.gpu == *uuid).find_map(|process| {
        match ProcessState::of_number(process.row.value(ProcessField::State)?) {
            ProcessState::Zombie => Some(format!("pid {} is a zombie", process.facts.pid)),
            ProcessState::Uninterruptible => {
                Some(format!("pid {} is in uninterruptible sleep", process.facts.pid))
            }
            ProcessState::Alive | ProcessState::Stopped => None,
        }
    })
}

fn evidence(gpu: &GpuPicture, kind: FindingKind, flag: &Flag) -> String {
    let value = |field| gpu.row.value(field);
    let clock = value(GpuField::SmClock)
        .map(|now| match gpu.facts.sm_clock_max_mhz.value() {
            Some(most) => {
                format!("SM clock {} of {} MHz", text::grouped(now), text::grouped(u64::from(*most)))
            }
            None => format!("SM clock {} MHz", text::grouped(now)),
        })
        .unwrap_or_default();
    match kind {
        FindingKind::Thermal => match value(GpuField::Temp) {
            Some(temp) => format!("{temp} °C, {clock}"),
            None => clock,
        },
        FindingKind::PowerBrake | FindingKind::Slowdown => clock,
        FindingKind::PcieNarrow => {
            let (now, most) = (gpu.health.pcie_width.value(), gpu.facts.pcie_width_max.value());
            now.zip(most).map_or_else(|| flag.text.clone(), |(now, most)| format!("{now} of {most} lanes"))
        }
        FindingKind::MemoryErrors => match flag.kind {
            FlagKind::RemapFailed => "remapping a row failed".to_owned(),
            FlagKind::RemapPending => "a row remap is pending".to_owned(),
            FlagKind::RetirePending => "a page retirement is pending".to_owned(),
            _ => {
                let errors = usize::try_from(value(GpuField::EccUncorrected).unwrap_or_default());
                text::count(
                    errors.unwrap_or_default(),
                    "uncorrected memory error",
                    "uncorrected memory errors",
                )
            }
        },
        _ => flag.text.clone(),
    }
}

/// Returns since when a throttle reason applies, if the history shows its start.
fn throttled_since(node: &NodePicture, gpu: &GpuPicture, kind: FindingKind) -> Option<(u64, bool)> {
    let bits = match kind {
        FindingKind::Thermal => 0x60,
        FindingKind::PowerBrake => 0x80,
        FindingKind::Slowdown => 0x8,
        _ => return None,
    };
    let position = node.gpus.iter().position(|known| known.facts.uuid == gpu.facts.uuid)?;
    throttle::start(node.history.as_ref()?.gpu(position, GpuField::Throttle)?, bits)
}

fn severity(severity: Severity) -> FindingSeverity {
    match severity {
        Severity::Error => FindingSeverity::Error,
        Severity::Warning => FindingSeverity::Warning,
        Severity::Ok | Severity::Ended | Severity::Pending => FindingSeverity::Info,
    }
}

fn detection(key: &Key, jobs: &[&Job], places: &[Place<'_>]) -> Detection {
    let (kind, number, subject) = key;
    let first = &places[0];
    let place = |place: &Place<'_>| format!("{} {}", place.node.name, place.gpu.facts.label());
    let whole = match places {
        [one] => place(one),
        many => {
            let names: Vec<String> = many.iter().take(4).map(place).collect();
            match many.len().saturating_sub(names.len()) {
                0 => names.join(", "),
                more => format!("{} and {more} more", names.join(", ")),
            }
        }
    };
    let short = match places {
        [one] => one.gpu.facts.label(),
        many => text::count(many.len(), "GPU", "GPUs"),
    };
    let (is, has) = if places.len() == 1 { ("is", "has") } else { ("are", "have") };
    let (title, reason, field) = match kind {
        FindingKind::GpuLost => (format!("{whole} cannot be read: {}", first.evidence), "lost", None),
        FindingKind::MemoryErrors => (format!("{whole}: {}", first.evidence), "memory error", None),
        FindingKind::Thermal => {
            (format!("{whole} {is} too hot: {}", first.evidence), "too hot", Some(GpuField::SmClock))
        }
        FindingKind::PowerBrake => (
            format!("{whole} {is} slowed down by a power brake: {}", first.evidence),
            "power brake",
            Some(GpuField::SmClock),
        ),
        FindingKind::Slowdown => {
            (format!("{whole} {is} slowed down by the hardware"), "slowed down", Some(GpuField::SmClock))
        }
        FindingKind::NvlinkDown => (format!("{whole}: {}", first.evidence), "NVLink down", None),
        FindingKind::PcieNarrow => {
            (format!("{whole} {has} a narrow PCIe link: {}", first.evidence), "PCIe narrow", None)
        }
        FindingKind::Unlicensed => (format!("{whole} {has} no vGPU license"), "unlicensed", None),
        FindingKind::HeldMemory => (
            format!("{whole}: {} in use by no visible process", first.evidence),
            "memory held",
            Some(GpuField::MemUsed),
        ),
        FindingKind::StuckProcess => (format!("{whole}: {}", first.evidence), "stuck process", None),
        _ => {
            let meaning =
                if first.evidence.is_empty() { String::new() } else { format!(", {}", first.evidence) };
            (format!("{whole}: Xid {number}{meaning}"), "Xid", None)
        }
    };
    let worst = places.iter().map(|place| place.severity).max().unwrap_or(FindingSeverity::Warning);
    let subject = if *kind == FindingKind::Xid { format!("{subject}/{number}") } else { subject.clone() };
    let mut detection = Detection::new(*kind, subject, worst, title);
    detection.reason = match kind {
        FindingKind::Xid => format!("{short} Xid {number}"),
        _ => format!("{short} {reason}"),
    };
    detection.jobs = jobs.iter().map(|job| job.id).collect();
    detection.nodes = places.iter().map(|place| place.node.name.clone()).collect();
    detection.nodes.dedup();
    detection.gpus =
        places.iter().map(|place| FindingGpu::new(&place.node.name, &place.gpu.facts.uuid, field)).collect();
    // The title has that of a single one.
    if places.len() > 1 {
        detection.evidence =
            places.iter().map(|place_of| format!("{}: {}", place(place_of), place_of.evidence)).collect();
    }
    detection.since = places.iter().filter_map(|place| place.since).min_by_key(|(at_ms, _)| *at_ms);
    if *kind == FindingKind::Xid {
        let is_program_error = xid::meaning(*number).is_some_and(|(_, is_program_error)| is_program_error);
        let advice = if is_program_error {
            "Usually an error of the program: see its log"
        } else {
            "The GPU or its driver reported it: inform the administrators"
        };
        detection.advice = Some(advice.to_owned());
    }
    if *kind == FindingKind::GpuLost {
        detection.wasted_gpus = places.len();
    }
    detection
}
