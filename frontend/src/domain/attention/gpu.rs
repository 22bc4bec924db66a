//! Problems of GPUs: flags, errors of their memory, Xid events, lost ones. Those of the same kind and the
//! same job are one item.

use super::{Cost, Item, Now, Since, Spark, Target, job_name, jobs_on};
use crate::domain::flags::{self, Flag, FlagKind};
use crate::domain::health::{Freshness, freshness};
use crate::domain::route::{JobTab, Route};
use crate::domain::severity::Severity;
use crate::domain::throttle;
use crate::domain::{ownership, text, unattributed, xid};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{GpuEvent, GpuPicture, NodePicture};
use nodeglass_protocol::{GpuField, JobId};

/// How long an Xid is listed after it occurred, in ms.
const XID_MS: u64 = 3_600_000;

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
            if is_part_of_lost(node, gpu) {
                continue;
            }
            let owners: Vec<&Job> = here.iter().copied().filter(|job| owns(node, gpu, job.id)).collect();
            if owners.is_empty() && !jobs.is_empty() {
                continue;
            }
            add_problems(&mut groups, node, position, &owners, now);
        }
    }
    groups.iter().map(item).collect()
}

/// Returns whether a job has a GPU or one of its MIG instances, whose work it slows down as well.
fn owns(node: &NodePicture, gpu: &GpuPicture, job: JobId) -> bool {
    let is_part = |part: &&GpuPicture| part.facts.mig_parent.as_ref() == Some(&gpu.facts.uuid);
    let mut parts = node.gpus.iter().filter(is_part).peekable();
    match parts.peek() {
        Some(_) => parts.any(|part| ownership::belongs_to_job(node, part, Some(job))),
        None => ownership::belongs_to_job(node, gpu, Some(job)),
    }
}

/// Returns whether it is an instance of a GPU that cannot be read, which is one problem, not several.
fn is_part_of_lost(node: &NodePicture, gpu: &GpuPicture) -> bool {
    let parent = |whole: &&GpuPicture| gpu.facts.mig_parent.as_ref() == Some(&whole.facts.uuid);
    node.gpus.iter().find(parent).is_some_and(|whole| whole.fault.is_some())
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
            _ => continue,
        };
        if is_fresh || !is_momentary {
            add(kind, flag.severity, throttled_since(node, position, flag), None);
        }
    }
    // A summary has no processes.
    let has_processes = node.history.as_ref().is_some_and(|history| !history.is_summary);
    if is_fresh && has_processes && unattributed::bytes(node, position).is_some() {
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
    if group.kind == Kind::Lost {
        item.cost = Some(Cost { gpus: group.places.len(), label: "lost" });
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

/// The texts of an item.
struct Sentence {
    title: String,
    detail: String,
    reason: String,
}

fn sentence(group: &Group<'_>) -> Sentence {
    let (first, is_one) = (&group.places[0], group.places.len() == 1);
    let whole = place_name(&group.places);
    let short = match group.places.as_slice() {
        [one] => format!("GPU {}", one.gpu.facts.index),
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
        Kind::Held => {
            let bytes: u64 =
                group.places.iter().filter_map(|place| unattributed::bytes(place.node, place.position)).sum();
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
        let gpu = format!("{} GPU {}", one.node.name, one.gpu.facts.index);
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
    let [job] = group.jobs.as_slice() else { return None };
    let others = (job.gpu_count? as usize).checked_sub(group.places.len()).filter(|others| *others > 0)?;
    Some(format!("{} of the job may wait for it", text::count(others, "other GPU", "other GPUs")))
}

fn capitalised(text: &str) -> String {
    let mut letters = text.chars();
    letters.next().map_or(String::new(), |first| first.to_uppercase().chain(letters).collect())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, job, keys, node};
    use super::super::{Item, items};
    use super::*;
    use nodeglass_protocol::gpu::NvLink;
    use nodeglass_protocol::picture::{History, Link};
    use nodeglass_protocol::{Cell, GpuUuid, Reading};

    /// The only item of job 1 on a node with two of its GPUs, the first of which is changed.
    fn only(change: impl FnOnce(&mut GpuPicture)) -> Item {
        let mut node = node("n1", &[1, 1]);
        change(&mut node.gpus[0]);
        let mut found = items(&[Job { gpu_count: Some(2), ..job(1, "n1") }], &[node], NOW);
        assert_eq!(found.len(), 1, "{found:?}");
        found.remove(0)
    }

    #[test]
    fn a_hot_gpu_is_a_warning_with_its_clock_and_temperature() {
        let item = only(|gpu| {
            gpu.row.set(GpuField::Throttle, Cell::steps(0x40));
            gpu.row.set(GpuField::Temp, Cell::steps(87));
            gpu.row.set(GpuField::SmClock, Cell::steps(73));
            gpu.facts.sm_clock_max_mhz = Reading::Value(1_980);
        });
        assert_eq!((item.key.as_str(), item.severity), ("thermal/1", Severity::Warning));
        assert_eq!(item.title, "n1 GPU 0 is too hot: 1,095 of 1,980 MHz");
        assert_eq!(item.detail, "87 °C · heat lowers the clock · 1 other GPU of the job may wait for it");
        assert_eq!(item.reason, "GPU 0 too hot");
        assert_eq!(item.target.gpu, Some(GpuUuid::new("n1-0")));
    }

    #[test]
    fn a_power_brake_and_an_unnamed_slowdown_are_warnings() {
        for (bits, key) in [(0x80, "power_brake/1"), (0x8, "slowdown/1")] {
            let item = only(|gpu| gpu.row.set(GpuField::Throttle, Cell::steps(bits)));
            assert_eq!((item.key.as_str(), item.severity), (key, Severity::Warning));
        }
    }

    #[test]
    fn uncorrected_errors_and_their_repair_are_one_error() {
        let item = only(|gpu| {
            gpu.row.set(GpuField::EccUncorrected, Cell::steps(1));
            gpu.health.remap_pending = Reading::Value(true);
        });
        assert_eq!((item.key.as_str(), item.severity), ("memory/1", Severity::Error));
        assert_eq!(item.title, "n1 GPU 0: 1 uncorrected memory error");
        assert_eq!(
            item.detail,
            "Results since then may be wrong · a row remap is pending: the GPU needs a reset"
        );
    }

    #[test]
    fn repairs_of_memory_are_listed_by_urgency() {
        let pending = only(|gpu| gpu.health.remap_pending = Reading::Value(true));
        assert_eq!((pending.reason.as_str(), pending.severity), ("row remap pending", Severity::Warning));
        let failed = only(|gpu| gpu.health.remap_failed = Reading::Value(true));
        assert_eq!((failed.reason.as_str(), failed.severity), ("row remap failed", Severity::Error));
        let retired = only(|gpu| gpu.health.retired_pending = Reading::Value(true));
        assert_eq!(
            (retired.reason.as_str(), retired.severity),
            ("page retirement pending", Severity::Warning)
        );
    }

    #[test]
    fn links_that_are_down_or_narrow_are_warnings() {
        let down = only(|gpu| {
            let link = |link, up| NvLink { link, up: Reading::Value(up), ..NvLink::default() };
            gpu.health.nvlinks = vec![link(3, true), link(4, false)];
        });
        assert_eq!((down.title.as_str(), down.severity), ("n1 GPU 0: NVLink 4 is down", Severity::Warning));
        let narrow = only(|gpu| {
            gpu.health.pcie_width = Reading::Value(8);
            gpu.facts.pcie_width_max = Reading::Value(16);
        });
        assert_eq!(narrow.title, "n1 GPU 0: PCIe link has 8 of 16 lanes");
    }

    #[test]
    fn readings_that_are_not_there_are_not_problems() {
        let mut node = node("n1", &[1]);
        node.gpus[0].row.set(GpuField::EccUncorrected, Cell::UNSUPPORTED);
        node.gpus[0].health.pcie_width = Reading::Value(8);
        assert!(keys(&[job(1, "n1")], &[node]).is_empty());
    }

    #[test]
    fn a_lost_gpu_marks_its_owner_and_nobody_else() {
        let mut shared = node("n1", &[1, 2]);
        shared.gpus[1].fault = Some("GPU is lost".into());
        let found = items(&[job(1, "n1"), job(2, "n1")], std::slice::from_ref(&shared), NOW);
        assert_eq!(found.iter().map(|item| item.key.as_str()).collect::<Vec<_>>(), ["lost/2"]);
        assert_eq!(found[0].title, "n1 GPU 1 cannot be read: GPU is lost");
        assert!(keys(&[job(1, "n1")], std::slice::from_ref(&shared)).is_empty(), "not job 1's problem");
        assert_eq!(keys(&[], &[shared]), ["lost/n1"], "without jobs every problem counts");
    }

    #[test]
    fn instances_of_a_lost_gpu_are_not_lost_again() {
        let mut node = node("n1", &[1, 1]);
        node.gpus[0].owners.clear();
        node.gpus[1].facts.mig_parent = Some(node.gpus[0].facts.uuid.clone());
        for gpu in &mut node.gpus {
            gpu.fault = Some("GPU is lost".into());
        }
        let found = items(&[job(1, "n1")], &[node], NOW);
        assert_eq!((found.len(), found[0].title.as_str()), (1, "n1 GPU 0 cannot be read: GPU is lost"));
    }

    #[test]
    fn gpus_with_the_same_problem_are_one_item() {
        let hot = |name| {
            let mut node = node(name, &[1, 1]);
            node.gpus.iter_mut().for_each(|gpu| gpu.row.set(GpuField::Throttle, Cell::steps(0x20)));
            node
        };
        let mut both = job(1, "n1");
        assert_eq!(items(&[both.clone()], &[hot("n1")], NOW)[0].title, "2 GPUs on n1 are too hot");
        both.nodes.push("n2".parse().unwrap());
        let wide = items(&[both], &[hot("n1"), hot("n2")], NOW);
        assert_eq!((wide.len(), wide[0].title.as_str()), (1, "4 GPUs on 2 nodes are too hot"));
        assert_eq!(
            (&wide[0].target.route, &wide[0].target.gpu),
            (&Route::Job(JobId(1), JobTab::Nodes), &None)
        );
    }

    fn with_xid(number: u64, ago_ms: u64) -> NodePicture {
        let mut node = node("n1", &[1]);
        node.head.events = vec![GpuEvent {
            at_ms: NOW.relay_ms - ago_ms,
            gpu: Some(GpuUuid::new("n1-0")),
            xid: Some(number),
            text: "Xid".into(),
        }];
        node
    }

    #[test]
    fn a_recent_xid_is_listed_with_its_meaning() {
        let found = items(&[job(1, "n1")], &[with_xid(31, 60_000)], NOW);
        assert_eq!(found[0].title, "n1 GPU 0: Xid 31, a kernel accessed memory that is not mapped");
        assert_eq!(
            (found[0].severity, found[0].since.unwrap().at_ms),
            (Severity::Warning, NOW.relay_ms - 60_000)
        );
        assert!(found[0].detail.contains("log"));
        assert!(keys(&[job(1, "n1")], &[with_xid(31, 3_700_000)]).is_empty(), "long ago");
        let later = Job { start: Some(NOW.wall_s - 30), ..job(1, "n1") };
        assert!(keys(std::slice::from_ref(&later), &[with_xid(31, 60_000)]).is_empty(), "of an earlier job");
        assert_eq!(keys(&[later], &[with_xid(119, 60_000)]), ["xid-119/1"], "the GPU's own failure stays");
    }

    #[test]
    fn an_xid_of_the_memory_joins_its_errors() {
        let mut node = with_xid(63, 60_000);
        node.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(2));
        let found = items(&[job(1, "n1")], &[node], NOW);
        assert_eq!(
            (found.len(), found[0].title.as_str()),
            (1, "n1 GPU 0: 2 uncorrected memory errors (Xid 63)")
        );
        assert!(found[0].since.is_some());
    }

    #[test]
    fn outdated_throttling_is_not_listed_and_memory_errors_are() {
        let mut silent = node("n1", &[1]);
        silent.head.link = Link::Silent;
        silent.gpus[0].row.set(GpuField::Throttle, Cell::steps(0x40));
        silent.gpus[0].row.set(GpuField::EccUncorrected, Cell::steps(1));
        assert_eq!(keys(&[job(1, "n1")], &[silent]), ["link/n1", "memory/1"]);
    }

    #[test]
    fn throttling_starts_where_its_trace_does() {
        let mut node = node("n1", &[1]);
        node.history = Some(History::default());
        for (ago_ms, bits) in [(3_000, 0x0), (2_000, 0x20), (1_000, 0x60), (0, 0x40)] {
            node.gpus[0].row.set(GpuField::Throttle, Cell::steps(bits));
            node.sampled(NOW.relay_ms - ago_ms);
        }
        let found = items(&[job(1, "n1")], &[node], NOW);
        assert_eq!(found[0].since, Some(Since { at_ms: NOW.relay_ms - 2_000, or_earlier: false }));
    }

    #[test]
    fn memory_that_no_process_holds_is_listed_where_processes_are_known() {
        let mut node = node("n1", &[1, 1]);
        node.gpus[0].row.set(GpuField::MemUsed, Cell::steps(9 * 16));
        node.history = Some(History { is_summary: true, ..History::default() });
        assert!(keys(&[job(1, "n1")], std::slice::from_ref(&node)).is_empty(), "a summary has no processes");
        node.history = Some(History::default());
        let found = items(&[job(1, "n1")], &[node], NOW);
        assert_eq!(found[0].title, "n1 GPU 0: 9.0 GiB in use by no visible process");
    }
}
