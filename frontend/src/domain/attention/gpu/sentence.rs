//! The texts of problems of GPUs: title, evidence or remedy, and a few words.

use super::{Group, Kind, Place, held_bytes, waiting};
use crate::domain::flags::{self, Flag, FlagKind};
use crate::domain::{text, xid};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::GpuPicture;

/// The texts of an item.
pub(super) struct Sentence {
    pub(super) title: String,
    pub(super) detail: String,
    pub(super) reason: String,
}

/// Returns the texts of a group.
pub(super) fn sentence(group: &Group<'_>) -> Sentence {
    let (first, is_one) = (&group.places[0], group.places.len() == 1);
    let whole = place_name(&group.places);
    let short = match group.places.as_slice() {
        [one] => one.gpu.facts.label(),
        many => text::count(many.len(), "GPU", "GPUs"),
    };
    let is = if is_one { "is" } else { "are" };
    let new = |title: String, detail: String, reason: String| Sentence { title, detail, reason };
    match group.kind {
        Kind::Lost => new(
            format!(
                "{whole} cannot be read: {}",
                first.gpu.fault.as_ref().map_or("", |fault| fault.as_str())
            ),
            "Processes on it fail or hang; the node usually needs a reboot".to_owned(),
            format!("{short} lost"),
        ),
        Kind::Memory => memory_sentence(group, &whole),
        Kind::Thermal => {
            let clock = is_one.then(|| clock(first.gpu)).flatten().map(|clock| format!(": {clock}"));
            let hottest = group.places.iter().filter_map(|place| place.gpu.row.value(GpuField::Temp)).max();
            let mut parts: Vec<String> = hottest.map(|temp| format!("{temp} °C")).into_iter().collect();
            parts.push("heat lowers the clock".to_owned());
            parts.extend(peers(group));
            new(
                format!("{whole} {is} too hot{}", clock.unwrap_or_default()),
                capitalised(&parts.join(" · ")),
                format!("{short} too hot"),
            )
        }
        Kind::PowerBrake => {
            let clock = is_one.then(|| clock(first.gpu)).flatten().map(|clock| format!(": {clock}"));
            let mut parts = vec!["The power supply or the rack requests lower clocks".to_owned()];
            parts.extend(peers(group));
            new(
                format!("{whole} {is} slowed down by a power brake{}", clock.unwrap_or_default()),
                parts.join(" · "),
                format!("{short} power brake"),
            )
        }
        Kind::Slowdown => new(
            format!("{whole} {is} slowed down by the hardware"),
            "It reports no reason; heat or power supply are likely".to_owned(),
            format!("{short} slowed down"),
        ),
        Kind::NvLink => {
            let links: Vec<String> =
                flags::links_down(first.node, first.gpu).iter().map(ToString::to_string).collect();
            let title = match links.as_slice() {
                [one] if is_one => format!("{whole}: NVLink {one} is down"),
                many if is_one => format!("{whole}: NVLinks {} are down", many.join(", ")),
                _ => format!("{whole} have NVLinks that are down"),
            };
            new(
                title,
                "Transfers between GPUs are slower, or fail; inform the administrators".to_owned(),
                format!("{short} NVLink down"),
            )
        }
        Kind::Pcie => {
            let (now, most) = (first.gpu.health.pcie_width.value(), first.gpu.facts.pcie_width_max.value());
            let title = match now.zip(most) {
                Some((now, most)) if is_one => format!("{whole}: PCIe link has {now} of {most} lanes"),
                _ => format!("{whole} have fewer PCIe lanes than they could"),
            };
            new(
                title,
                "Transfers from the host are slower; inform the administrators".to_owned(),
                format!("{short} PCIe narrow"),
            )
        }
        Kind::Unlicensed => new(
            format!("{whole} {} no vGPU license", if is_one { "has" } else { "have" }),
            "The driver lowers the performance over time and may disable CUDA; inform the administrators"
                .to_owned(),
            format!("{short} unlicensed"),
        ),
        Kind::Held => {
            let bytes: u64 =
                group.places.iter().filter_map(|place| held_bytes(place.node, place.position)).sum();
            new(
                format!("{whole}: {} GiB in use by no visible process", text::gib(bytes)),
                "A process of another container or user holds it, or one that crashed left it behind"
                    .to_owned(),
                format!("{short} memory held"),
            )
        }
        Kind::Xid(number) => {
            let meaning = xid::meaning(number);
            let what = meaning.map_or(String::new(), |(text, _)| format!(", {text}"));
            let remedy = match meaning {
                Some((_, true)) => "Usually an error of the program: see its log",
                _ => "The GPU or its driver reported it: inform the administrators",
            };
            new(format!("{whole}: Xid {number}{what}"), remedy.to_owned(), format!("{short} Xid {number}"))
        }
    }
}

fn memory_sentence(group: &Group<'_>, whole: &str) -> Sentence {
    let flags: Vec<Flag> =
        group.places.iter().flat_map(|place| flags::for_gpu(place.node, place.gpu)).collect();
    let has = |kind| flags.iter().any(|flag| flag.kind == kind);
    let errors: u64 =
        group.places.iter().filter_map(|place| place.gpu.row.value(GpuField::EccUncorrected)).sum();
    let number = group.places.iter().find_map(|place| place.xid);
    let (what, reason) = if has(FlagKind::EccUncorrected) {
        (
            text::count(errors as usize, "uncorrected memory error", "uncorrected memory errors"),
            "memory error",
        )
    } else if has(FlagKind::RemapFailed) {
        ("remapping a row of memory failed".to_owned(), "row remap failed")
    } else if has(FlagKind::RemapPending) {
        ("a row remap is pending".to_owned(), "row remap pending")
    } else if has(FlagKind::RetirePending) {
        ("a page retirement is pending".to_owned(), "page retirement pending")
    } else {
        let what = number.and_then(xid::meaning).map_or("memory error", |(text, _)| text);
        (what.to_owned(), if number == Some(63) { "row remapped" } else { "memory error" })
    };
    let number = number.map(|number| format!(" (Xid {number})")).unwrap_or_default();
    let mut parts = Vec::new();
    if has(FlagKind::EccUncorrected) {
        parts.push("results since then may be wrong");
    }
    if has(FlagKind::RemapFailed) {
        parts.push("the GPU must be replaced");
    } else if has(FlagKind::RemapPending) {
        parts.push("a row remap is pending: the GPU needs a reset");
    }
    if has(FlagKind::RetirePending) {
        parts.push("a page retirement is pending: the node needs a reboot");
    }
    if parts.is_empty() {
        parts.push("inform the administrators");
    }
    Sentence {
        title: format!("{whole}: {what}{number}"),
        detail: capitalised(&parts.join(" · ")),
        reason: reason.to_owned(),
    }
}

/// Names the GPUs: `Rank 35 (gpu-h05 GPU 3)`, `4 GPUs on gpu-h05`, `12 GPUs on 3 nodes`.
fn place_name(places: &[Place<'_>]) -> String {
    let first = &places[0];
    if let [one] = places {
        let gpu = format!("{} {}", one.node.name, one.gpu.facts.label());
        let here = one.node.processes.iter().filter(|process| process.facts.gpu == one.gpu.facts.uuid);
        let rank = here.filter_map(|process| process.facts.rank).next();
        return rank.map_or_else(|| gpu.clone(), |rank| format!("Rank {} ({gpu})", rank.global));
    }
    let mut names: Vec<_> = places.iter().map(|place| &place.node.name).collect();
    names.dedup();
    match names.len() {
        1 => format!("{} GPUs on {}", places.len(), first.node.name),
        nodes => format!("{} GPUs on {nodes} nodes", places.len()),
    }
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

/// Says that the job's other GPUs may wait for a slow one.
fn peers(group: &Group<'_>) -> Option<String> {
    let others = waiting(group).filter(|others| *others > 0)?;
    Some(format!("{} of the job may wait for it", text::count(others, "other GPU", "other GPUs")))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}
