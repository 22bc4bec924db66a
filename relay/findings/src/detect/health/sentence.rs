//! The texts of problems of GPUs: title, evidence, advice, and a few words.

use super::{AffectedGpu, Group, held_bytes, stuck_process};
use crate::input::DetectorInput;
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::{FindingKind, FindingTrait};
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_rules::attention::MAY_WAIT;
use nodeglass_rules::flags::{self, Flag, FlagKind};
use nodeglass_rules::{ownership, text, xid};

/// The texts of a group.
pub(super) struct Sentence {
    pub(super) title: String,
    pub(super) evidence: Vec<String>,
    /// Advice, if it is more specific than the advice of the kind.
    pub(super) advice: Option<String>,
    pub(super) reason: String,
}

/// Returns the texts of a group.
pub(super) fn of(input: &DetectorInput<'_>, group: &Group<'_>) -> Sentence {
    let (first, is_one) = (&group.gpus[0], group.gpus.len() == 1);
    let whole = location(&group.gpus);
    let short = match group.gpus.as_slice() {
        // Each node of a job has a GPU with this index.
        [one] if group.jobs.iter().any(|job| job.nodes.len() > 1) => {
            format!("{} {}", one.node.name, one.gpu.facts.label())
        }
        [one] => one.gpu.facts.label(),
        many => text::count(many.len(), "GPU", "GPUs"),
    };
    let (is, has) = if is_one { ("is", "has") } else { ("are", "have") };
    let with_clock = |what: String| match clock(first.gpu).filter(|_| is_one) {
        Some(clock) => format!("{what}: {clock}"),
        None => what,
    };
    let mut evidence = Vec::new();
    let mut advice = None;
    let (title, reason) = match group.kind {
        FindingKind::GpuLost => {
            let fault = first.gpu.fault.as_ref().map_or("", |fault| fault.as_str());
            if group.jobs.is_empty() && !input.jobs_on(first.node).is_empty() {
                evidence.push("no listed job uses it".to_owned());
                let repair = "its repair usually needs a reboot of the node";
                advice = Some(format!("Report it to the administrators: {repair}"));
            }
            (format!("{whole} cannot be read: {fault}"), "lost".to_owned())
        }
        FindingKind::MemoryErrors => {
            let memory = memory(group);
            evidence.extend(memory.evidence);
            advice = memory.advice;
            (format!("{whole}: {}", memory.what), memory.reason.to_owned())
        }
        FindingKind::Thermal => {
            let hottest =
                group.gpus.iter().filter_map(|affected| affected.gpu.row.value(GpuField::Temp)).max();
            evidence.extend(hottest.map(|temp| format!("{temp} °C")));
            evidence.extend(waiting(group));
            (with_clock(format!("{whole} {is} too hot")), "too hot".to_owned())
        }
        FindingKind::PowerBrake => {
            evidence.extend(waiting(group));
            let what = format!("{whole} {is} slowed down by a power brake");
            (with_clock(what), "power brake".to_owned())
        }
        FindingKind::Slowdown => {
            evidence.extend(waiting(group));
            let what = format!("{whole} {is} slowed down by the hardware");
            (with_clock(what), "slowed down".to_owned())
        }
        FindingKind::NvlinkDown => {
            let links = flags::links_down(first.node, first.gpu);
            let links: Vec<String> = links.iter().map(ToString::to_string).collect();
            let title = match links.as_slice() {
                [one] if is_one => format!("{whole}: NVLink {one} is down"),
                many if is_one => format!("{whole}: NVLinks {} are down", many.join(", ")),
                _ => format!("{whole} have NVLinks that are down"),
            };
            (title, "NVLink down".to_owned())
        }
        FindingKind::PcieNarrow => {
            let (now, most) = (first.gpu.health.pcie_width.value(), first.gpu.facts.pcie_width_max.value());
            let title = match now.zip(most) {
                Some((now, most)) if is_one => format!("{whole}: PCIe link has {now} of {most} lanes"),
                _ => format!("{whole} {has} fewer PCIe lanes than possible"),
            };
            (title, "PCIe narrow".to_owned())
        }
        FindingKind::Unlicensed => (format!("{whole} {has} no vGPU license"), "unlicensed".to_owned()),
        FindingKind::HeldMemory => {
            let bytes: u64 = group
                .gpus
                .iter()
                .filter_map(|affected| held_bytes(affected.gpu))
                .fold(0, u64::saturating_add);
            let title = format!("{whole}: {} GiB not held by any visible process", text::gib(bytes));
            (title, "memory held".to_owned())
        }
        FindingKind::StuckProcess => {
            let stuck = |affected: &AffectedGpu<'_>| {
                let what = stuck_process(input, affected.node, &affected.gpu.facts.uuid)?;
                Some((format!("{} {}", affected.node.name, affected.gpu.facts.label()), what))
            };
            let stuck: Vec<(String, String)> = group.gpus.iter().filter_map(stuck).collect();
            return Sentence {
                title: match stuck.as_slice() {
                    [(_, what)] => format!("{whole}: {what}"),
                    _ => format!("{whole} have processes that are stuck"),
                },
                evidence: match stuck.len() {
                    1 => Vec::new(),
                    _ => stuck.into_iter().map(|(gpu, what)| format!("{gpu}: {what}")).collect(),
                },
                advice: None,
                reason: format!("{short} stuck process"),
            };
        }
        FindingKind::Xid => {
            let number = group.xid;
            let meaning = xid::meaning(number);
            let what = meaning.map_or(String::new(), |(text, _)| format!(", {text}"));
            advice = Some(match meaning {
                Some((_, true)) => "Usually an error of the program: see its log".to_owned(),
                _ => "The GPU or its driver reported it: report it to the administrators".to_owned(),
            });
            evidence.extend(repetitions(group));
            (format!("{whole}: Xid {number}{what}"), format!("Xid {number}"))
        }
        // The other kinds are not of this module.
        other => (format!("{whole}: {}", other.name()), other.name().replace('_', " ")),
    };
    evidence.extend(each(group));
    Sentence { title, evidence, advice, reason: format!("{short} {reason}") }
}

/// A problem of memory.
struct Memory {
    what: String,
    reason: &'static str,
    evidence: Option<String>,
    advice: Option<String>,
}

/// Repairs of memory that failed or are pending, with their sentence and the action that is needed.
const REPAIRS: [(FlagKind, &str, &str); 3] = [
    (FlagKind::RemapFailed, "remapping a row of memory failed", "the GPU must be replaced"),
    (FlagKind::RemapPending, "a row remap is pending", "the GPU needs a reset"),
    (FlagKind::RetirePending, "a page retirement is pending", "the node needs a reboot"),
];

fn memory(group: &Group<'_>) -> Memory {
    let flags: Vec<Flag> =
        group.gpus.iter().flat_map(|affected| flags::for_gpu(affected.node, affected.gpu)).collect();
    let has = |kind| flags.iter().any(|flag| flag.kind == kind);
    let errors: u64 = group
        .gpus
        .iter()
        .filter_map(|affected| affected.gpu.row.value(GpuField::EccUncorrected))
        .fold(0, u64::saturating_add);
    let number = group.gpus.iter().find_map(|affected| affected.xid);
    let repair = REPAIRS.iter().find(|(kind, ..)| has(*kind));
    let (what, reason) = match repair {
        _ if has(FlagKind::EccUncorrected) => {
            let errors = usize::try_from(errors).unwrap_or(usize::MAX);
            let what = text::count(errors, "uncorrected memory error", "uncorrected memory errors");
            (what, FlagKind::EccUncorrected.phrase())
        }
        Some((kind, what, _)) => ((*what).to_owned(), kind.phrase()),
        None => {
            let what = number.and_then(xid::meaning).map_or("memory error", |(text, _)| text);
            (what.to_owned(), (number == Some(63)).then_some("row remapped"))
        }
    };
    let number_text = number.map(|number| format!(" (Xid {number})")).unwrap_or_default();
    let has_errors = has(FlagKind::EccUncorrected);
    let are_old = group.gpus.iter().all(|affected| affected.has_old_errors);
    let is_uncorrected = has_errors && !are_old;
    let evidence = match (has_errors, are_old, group.jobs.is_empty()) {
        (true, false, _) => Some("results since then may be wrong"),
        (true, true, false) => Some("since the driver was loaded; none occurred during this job"),
        (true, true, true) => {
            Some("since the driver was loaded; none occurred since nodeglass began to read this GPU")
        }
        (false, true, false) if number.is_some() => Some("it occurred before this job began"),
        (false, ..) => None,
    };
    let advice = repair.map(|(.., repair)| match is_uncorrected {
        true => format!(
            "Restart on another node from a checkpoint before the error, and report it to the administrators: {repair}"
        ),
        false => format!("Report it to the administrators: {repair}"),
    });
    let advice = advice.or_else(|| match has_errors {
        true => are_old.then(|| "Report it to the administrators if the count grows".to_owned()),
        false => evidence.map(|_| "Report it to the administrators if it recurs".to_owned()),
    });
    let evidence = evidence.map(str::to_owned);
    Memory {
        what: format!("{what}{number_text}"),
        reason: reason.unwrap_or("memory error"),
        evidence,
        advice,
    }
}

/// Names the GPUs: `Rank 35 (gpu-h05 GPU 3)`, `4 GPUs on gpu-h05`, `12 GPUs on 3 nodes`.
fn location(gpus: &[AffectedGpu<'_>]) -> String {
    let first = &gpus[0];
    if let [one] = gpus {
        let gpu = format!("{} {}", one.node.name, one.gpu.facts.label());
        return match ownership::ranks(one.node, &one.gpu.facts.uuid).first() {
            Some(rank) => format!("Rank {rank} ({gpu})"),
            None => gpu,
        };
    }
    let mut names: Vec<_> = gpus.iter().map(|affected| &affected.node.name).collect();
    names.dedup();
    match names.len() {
        1 => format!("{} GPUs on {}", gpus.len(), first.node.name),
        nodes => format!("{} GPUs on {nodes} nodes", gpus.len()),
    }
}

/// Returns the place of each of several GPUs, with its clock if a lowered clock is the problem.
fn each(group: &Group<'_>) -> Vec<String> {
    if group.gpus.len() < 2 {
        return Vec::new();
    }
    let is_slow = group.kind.is(FindingTrait::LowersClock);
    let line = |affected: &AffectedGpu<'_>| {
        let name = format!("{} {}", affected.node.name, affected.gpu.facts.label());
        match clock(affected.gpu).filter(|_| is_slow) {
            Some(clock) => format!("{name}: {clock}"),
            None => name,
        }
    };
    group.gpus.iter().map(line).collect()
}

/// Returns a GPU's clock: `1,095 of 1,980 MHz`.
fn clock(gpu: &GpuPicture) -> Option<String> {
    let now = text::grouped(gpu.row.value(GpuField::SmClock)?);
    let most = gpu.facts.sm_clock_max_mhz.value();
    Some(match most {
        Some(most) => format!("{now} of {} MHz", text::grouped((*most).into())),
        None => format!("{now} MHz"),
    })
}

/// Returns how often an Xid occurred, if repeatedly: `5 times within 12 min`.
fn repetitions(group: &Group<'_>) -> Option<String> {
    let all = || group.gpus.iter().flat_map(|affected| &affected.occurred_ms);
    let (first, last) = (all().min()?, all().max()?);
    let count = all().count();
    (count > 1).then(|| match (last - first) / 1_000 {
        0 => format!("{count} times"),
        lasted_s => format!("{count} times within {}", text::span(lasted_s)),
    })
}

/// States that the other GPUs of the job may wait for a slow one.
fn waiting(group: &Group<'_>) -> Option<String> {
    let [job] = group.jobs.as_slice() else { return None };
    let others = (job.gpu_count? as usize).checked_sub(group.gpus.len()).filter(|others| *others > 0)?;
    let others = text::count(others, "other GPU", "other GPUs");
    Some(format!("{others} of the job {MAY_WAIT}"))
}
