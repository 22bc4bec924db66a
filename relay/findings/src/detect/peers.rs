//! A GPU that works less than the other GPUs of its job.

use super::of_job;
use crate::input::{DetectorInput, JobGpu, JobGpus};
use crate::tracker::{Detection, Detections, KnownCause};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_rules::peers::{Group, STEP_MS, STEPS, Slow, SlowLimits, median};
use nodeglass_rules::{
    flags::{self, FlagKind},
    limits, ownership, text, throttle,
};
use std::collections::BTreeMap;

/// Fraction of the peers' power limit below which a lower one explains a lower clock.
const LOWER: f32 = 0.95;
/// Time for which a cause applies after it was last read, in ms.
const CAUSE_HOLDS_MS: u64 = 60_000;

pub(super) fn detect(input: &DetectorInput<'_>, job: &JobGpus<'_>, found: &mut Detections) {
    let subject = job.job.id.to_string();
    if !job.is_complete {
        return found.unknown(&[FindingKind::Straggler], &subject);
    }
    let mut by_model: BTreeMap<&str, Vec<JobGpu<'_>>> = BTreeMap::new();
    for unit in job.units.iter().filter(|unit| unit.is_whole()) {
        let model = unit.gpu.facts.name.value().map_or("", |name| name.as_str());
        by_model.entry(model).or_default().push(*unit);
    }
    let mut synchronous: Vec<Straggler> = Vec::new();
    for units in by_model.values().filter(|units| units.len() >= limits::MIN_PEERS) {
        let group = Group::new(units.iter().map(|unit| unit.series.means(input.now.relay_ms)).collect());
        let nodes: Vec<_> = units.iter().map(|unit| &unit.node.name).collect();
        let Some(slow) = group.slow(&nodes, &slow_limits(input)) else {
            // In a pause, such as an evaluation, nothing is compared.
            if group.has_worked() {
                found.unknown(&[FindingKind::Straggler], &subject);
            }
            continue;
        };
        // Nobody waits for an independent run, and such runs need not be equal unless a reading explains the difference.
        if is_one_program(units) {
            synchronous.extend(stragglers(input, job, units, slow));
        } else {
            let is_explained = |slow: &Slow| {
                let unit = &units[slow.member];
                cause(unit).is_some() || difference(unit, units).is_some()
            };
            let slow = slow.into_iter().filter(is_explained).collect();
            found.seen.extend(stragglers(input, job, units, slow).map(|slow| slow.detection));
        }
    }
    found.seen.extend(charged(synchronous));
}

fn slow_limits(input: &DetectorInput<'_>) -> SlowLimits {
    let thresholds = input.thresholds;
    SlowLimits {
        clock_pct: thresholds.straggler_clock_pct,
        activity_pct: thresholds.straggler_activity_pct,
        idle_pct: thresholds.idle_pct,
    }
}

/// A GPU that is slower than its peers, before it is known what that costs.
struct Straggler {
    detection: Detection,
    /// By how much it is slower, in % of the peers.
    percent: f32,
    /// The GPU within a sentence: `rank 61 (gpu-h08 GPU 5)`.
    name: String,
    /// Number of its peers that are not slow.
    waiting: usize,
}

/// Charges the slowest GPU of a program with the time of the waiting ones. They wait for the slowest only: another
/// slow GPU costs nothing while it is hidden behind that one.
fn charged(slow: Vec<Straggler>) -> impl Iterator<Item = Detection> {
    let slowest = slow.iter().enumerate().max_by(|(_, a), (_, b)| a.percent.total_cmp(&b.percent));
    let (slowest, name) = slowest.map_or((0, String::new()), |(at, slow)| (at, slow.name.clone()));
    slow.into_iter().enumerate().map(move |(at, Straggler { mut detection, percent, waiting, .. })| {
        if at == slowest {
            let lost = waiting as f32 * percent / 100.0;
            detection.wasted_gpus = lost.round() as usize;
            let others = text::count(waiting, "GPU", "GPUs");
            let lost = if lost < 1.0 { format!("{lost:.1}") } else { format!("{lost:.0}") };
            detection.evidence.push(format!("{others} may wait for it, costing as much as {lost} GPUs"));
        } else {
            detection.evidence.push(format!("hidden behind {name}, which is slower"));
        }
        detection
    })
}

/// Returns whether these GPUs run the ranks of one program, unless the environment of their processes contradicts it:
/// independent runs, or a trainer beside a server, need not be equal. A process that uses several GPUs has its rank on
/// all of them; other ranks may have a context there (PyTorch often leaves those of all ranks on GPU 0).
fn is_one_program(units: &[JobGpu<'_>]) -> bool {
    // A GPU without a process runs no other program.
    let used = units.iter().filter_map(|unit| {
        Some((&unit.node.name, &ownership::main_process(unit.node, &unit.gpu.facts.uuid)?.facts))
    });
    let ranks: Vec<_> =
        used.map(|(node, process)| Some((process.rank?.global, (node.clone(), process.pid)))).collect();
    if ranks.iter().all(Option::is_none) {
        return true;
    }
    let mut process_of = BTreeMap::new();
    ranks.into_iter().all(|main| {
        main.is_some_and(|(rank, process)| {
            *process_of.entry(rank).or_insert_with(|| process.clone()) == process
        })
    })
}

/// Returns the detections of the GPUs that are `slow`.
fn stragglers<'a>(
    input: &'a DetectorInput<'_>,
    job: &'a JobGpus<'_>,
    units: &'a [JobGpu<'_>],
    slow: Vec<Slow>,
) -> impl Iterator<Item = Straggler> + 'a {
    let waiting = units.len() - slow.len();
    slow.into_iter().map(move |slow| Straggler { waiting, ..one(input, job, units, &slow) })
}

fn one(input: &DetectorInput<'_>, job: &JobGpus<'_>, peers: &[JobGpu<'_>], slow: &Slow) -> Straggler {
    let (unit, field, away) = (&peers[slow.member], slow.field, slow.away);
    let percent = (-away.percent).clamp(0.0, 100.0);
    let subject = format!("{}/{}", job.job.id, unit.gpu.facts.uuid);
    let current = cause(unit).or_else(|| difference(unit, peers));
    let cause = current.clone().or_else(|| earlier_cause(input, &subject));
    let why = cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let title = match field {
        GpuField::SmClock => format!("{} runs {percent:.0} % slower than its peers{why}", unit.title()),
        _ => format!("{} works {percent:.0} % less than its peers{why}", unit.title()),
    };
    let units = [*unit];
    let mut detection = of_job(FindingKind::Straggler, job, &units, field, title);
    detection.subject = subject;
    detection.cause = current;
    detection.reason = format!("{} slower than its peers", unit.name());
    detection.confidence_pct = if cause.is_some() { 95 } else { 80 };
    let amount = |value: f32| match field {
        GpuField::SmClock => format!("{} MHz", text::grouped(value.round() as u64)),
        _ => format!("{value:.0} %"),
    };
    let name = match field {
        GpuField::SmClock => "SM clock",
        GpuField::SmActive => "SM activity",
        _ => "utilisation",
    };
    let (own, median) = (amount(away.own), amount(away.median));
    detection.evidence.push(format!("{name} {own}, median of the job {median}"));
    if let Some(temp) = unit.value(GpuField::Temp) {
        detection.evidence.push(format!("{temp} °C"));
    }
    detection.evidence.extend(cause);
    let oldest = (input.now.relay_ms / STEP_MS).saturating_sub(STEPS as u64);
    detection.since = slow.since.map(|(step, or_earlier)| ((oldest + step as u64) * STEP_MS, or_earlier));
    Straggler { detection, percent, name: text::uncapitalised(&unit.title()), waiting: 0 }
}

/// Returns the earlier explanation of a slow GPU, which is listed while the GPU is slow: `power brake, which ended
/// after 4 min`. Throttle reasons come and go within seconds: a reason that was read a moment ago still applies.
fn earlier_cause(input: &DetectorInput<'_>, subject: &str) -> Option<String> {
    let KnownCause { text, read_ms, since_ms } = input.known_cause(FindingKind::Straggler, subject)?;
    if input.now.relay_ms.saturating_sub(read_ms) < CAUSE_HOLDS_MS {
        return Some(text.to_owned());
    }
    let lasted_s = input.now.to_wall_ms(read_ms).saturating_sub(since_ms) / 1_000;
    Some(format!("{text}, which ended after {}", text::span(lasted_s)))
}

/// Returns what explains a slow GPU, if a reading does.
fn cause(unit: &JobGpu<'_>) -> Option<String> {
    let flags = flags::for_gpu(unit.node, unit.gpu);
    // Errors of memory slow nothing down.
    let slows = |kind| {
        matches!(
            kind,
            FlagKind::Thermal
                | FlagKind::PowerBrake
                | FlagKind::Slowdown
                | FlagKind::Unlicensed
                | FlagKind::NvLinkDown
                | FlagKind::PcieNarrow
        )
    };
    let flag = flags.iter().find(|flag| flag.severity.needs_attention() && slows(flag.kind));
    let flag = flag.and_then(|flag| flag.kind.phrase());
    if let Some(phrase) = flag {
        return Some(phrase.to_owned());
    }
    let reasons = u32::try_from(unit.value(GpuField::Throttle)?).ok()?;
    let reason = throttle::REASONS.iter().find(|reason| reasons & reason.bit != 0 && !reason.is_normal)?;
    Some(reason.name.to_owned())
}

/// Returns in what a slow GPU differs from its peers, if it reports no cause itself. A higher temperature alone is
/// none: recorded GPUs that are 20 °C hotter are equally fast.
fn difference(unit: &JobGpu<'_>, peers: &[JobGpu<'_>]) -> Option<String> {
    let limit = |unit: &JobGpu<'_>| Some(unit.value(GpuField::PowerLimit)? as f32);
    let usual = median(peers.iter().filter_map(limit));
    if let Some((own, usual)) = limit(unit).zip(usual).filter(|(own, usual)| *own < *usual * LOWER) {
        return Some(format!("power limit {own:.0} W instead of {usual:.0} W"));
    }
    let generation = |unit: &JobGpu<'_>| Some(*unit.gpu.health.pcie_gen.value()? as f32);
    let usual = median(peers.iter().filter_map(generation));
    let (own, usual) = generation(unit).zip(usual).filter(|(own, usual)| own < usual)?;
    Some(format!("PCIe generation {own:.0} instead of {usual:.0}"))
}
