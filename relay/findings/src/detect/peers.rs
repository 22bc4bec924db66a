//! A GPU that works less than the other GPUs of its job.

use super::{median, of_job};
use crate::input::{DetectorInput, JobGpu, JobGpus};
use crate::thresholds::Thresholds;
use crate::tracker::{Detection, Detections, KnownCause};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_rules::{
    flags::{self, FlagKind},
    ownership, text, throttle,
};
use std::collections::BTreeMap;

/// Number of steps that are compared: two minutes.
const STEPS: usize = 12;
/// At least this many of them must be steps in which the job worked.
const WORKING_STEPS: usize = 8;
/// GPUs of the same job and model, from which on one can deviate.
const MIN_PEERS: usize = 4;
/// Median utilisation in % of the peers from which a step counts as work.
const WORKING_PCT: f32 = 50.0;
/// Median power of the peers, as a fraction of the most in these steps, below which they only wait: for a checkpoint of
/// rank 0, or in a collective.
const WORKING_POWER: f32 = 0.6;
/// After this many steps without work, a GPU that was slow no longer is.
const PAUSED_STEPS: usize = 60;
/// Fraction of the peers' power limit below which a lower one explains a lower clock.
const LOWER: f32 = 0.95;
/// How long a cause applies after it was last read, in ms.
const CAUSE_HOLDS_MS: u64 = 60_000;
/// A deviation must be this many times what the others differ by.
const SPREADS: f32 = 4.0;

/// A compared reading.
struct Quantity {
    field: GpuField,
    /// By how much of the median it must be lower, in %.
    limit_pct: fn(&Thresholds) -> u32,
    /// The median counts as at least this.
    least: f32,
    name: &'static str,
}

/// The compared readings; of several in which a GPU deviates, the first explains the others. Temperature is not
/// among them: recorded jobs have GPUs that are 20 °C hotter and equally fast.
const QUANTITIES: [Quantity; 3] = [
    // At the power limit, equal cards differ by up to 10 %.
    Quantity {
        field: GpuField::SmClock,
        limit_pct: |limits| limits.straggler_clock_pct,
        least: 300.0,
        name: "SM clock",
    },
    Quantity {
        field: GpuField::SmActive,
        limit_pct: |limits| limits.straggler_activity_pct,
        least: 25.0,
        name: "SM activity",
    },
    Quantity {
        field: GpuField::Util,
        limit_pct: |limits| limits.straggler_activity_pct,
        least: 50.0,
        name: "utilisation",
    },
];

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
    let mut synchronous: Vec<Slow> = Vec::new();
    for units in by_model.values().filter(|units| units.len() >= MIN_PEERS) {
        let working = working_steps(units, input.now.relay_ms);
        if working.len() < WORKING_STEPS {
            // In a pause, such as an evaluation, nothing is compared.
            if has_worked(units, input.now.relay_ms) {
                found.unknown(&[FindingKind::Straggler], &subject);
            }
            continue;
        }
        let is_one = is_one_program(units);
        let mut seen: Vec<Slow> = Vec::new();
        for quantity in &QUANTITIES {
            for slow in stragglers(input, job, units, quantity, &working, is_one) {
                if seen.iter().all(|known| known.detection.subject != slow.detection.subject) {
                    seen.push(slow);
                }
            }
        }
        match is_one {
            true => synchronous.append(&mut seen),
            // Nobody waits for an independent run.
            false => found.seen.extend(seen.into_iter().map(|slow| slow.detection)),
        }
    }
    found.seen.extend(charged(synchronous));
}

/// A GPU that is slower than its peers, before it is known what that costs.
struct Slow {
    detection: Detection,
    /// By how much it is slower, in % of the peers.
    percent: f32,
    /// The GPU within a sentence: `rank 61 (gpu-h08 GPU 5)`.
    name: String,
    /// Number of its peers that are not slow.
    waiting: usize,
}

/// Charges the slowest GPU of a program with the time of those that wait. They wait for the slowest only: another slow GPU
/// costs nothing as long as it is hidden behind that one.
fn charged(slow: Vec<Slow>) -> impl Iterator<Item = Detection> {
    let slowest = slow.iter().enumerate().max_by(|(_, a), (_, b)| a.percent.total_cmp(&b.percent));
    let (slowest, name) = slowest.map_or((0, String::new()), |(at, slow)| (at, slow.name.clone()));
    slow.into_iter().enumerate().map(move |(at, Slow { mut detection, percent, waiting, .. })| {
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
    let main = |unit: &JobGpu<'_>| {
        let process = ownership::main_process(unit.node, &unit.gpu.facts.uuid)?;
        Some((process.facts.rank?.global, (unit.node.name.clone(), process.facts.pid)))
    };
    let ranks: Vec<_> = units.iter().map(main).collect();
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

/// The steps of two minutes in which most of these GPUs worked, oldest first, in ms of the relay's clock.
fn working_steps(units: &[JobGpu<'_>], now_ms: u64) -> Vec<u64> {
    let rows = |field| -> Vec<BTreeMap<u64, f32>> {
        units.iter().map(|unit| unit.series.of(field, STEPS, now_ms).collect()).collect()
    };
    let (util, power) = (rows(GpuField::Util), rows(GpuField::Power));
    let middle =
        |rows: &[BTreeMap<u64, f32>], at_ms| median(rows.iter().filter_map(|row| row.get(&at_ms).copied()));
    let steps: Vec<u64> = util.first().into_iter().flat_map(|row| row.keys().copied()).collect();
    let most_w = steps.iter().filter_map(|at_ms| middle(&power, *at_ms)).fold(0.0, f32::max);
    let works = |at_ms: &u64| {
        middle(&util, *at_ms).is_some_and(|util| util >= WORKING_PCT)
            && middle(&power, *at_ms).is_none_or(|power| power >= most_w * WORKING_POWER)
    };
    steps.into_iter().filter(works).collect()
}

/// Returns whether most of these GPUs worked in a step of the last ten minutes.
fn has_worked(units: &[JobGpu<'_>], now_ms: u64) -> bool {
    let rows: Vec<BTreeMap<u64, f32>> =
        units.iter().map(|unit| unit.series.of(GpuField::Util, PAUSED_STEPS, now_ms).collect()).collect();
    rows.first().is_some_and(|first| {
        first.keys().any(|at_ms| {
            median(rows.iter().filter_map(|row| row.get(at_ms).copied()))
                .is_some_and(|util| util >= WORKING_PCT)
        })
    })
}

/// Returns the GPUs that are below their peers in the steps in which these `worked`. If many are, the job is made of
/// unequal parts, such as the stages of a pipeline. Unless they run one program, only those count whose difference a
/// reading explains.
fn stragglers(
    input: &DetectorInput<'_>,
    job: &JobGpus<'_>,
    units: &[JobGpu<'_>],
    quantity: &Quantity,
    worked: &[u64],
    is_one_program: bool,
) -> Vec<Slow> {
    let now_ms = input.now.relay_ms;
    let rows = |field| -> Vec<BTreeMap<u64, f32>> {
        units.iter().map(|unit| unit.series.of(field, STEPS, now_ms).collect()).collect()
    };
    let least = (quantity.limit_pct)(input.thresholds) as f32 / 100.0;
    let (util, values) = (rows(GpuField::Util), rows(quantity.field));
    let idle_pct = input.thresholds.idle_pct as f32;
    let mut below = vec![0usize; units.len()];
    let mut amounts: Vec<Vec<(f32, f32)>> = vec![Vec::new(); units.len()];
    // The start of the newest run of steps below the limit.
    let mut since: Vec<Option<u64>> = vec![None; units.len()];
    let mut first = None;
    let mut steps = 0;
    for at_ms in worked {
        let known: Vec<(usize, f32)> =
            values.iter().enumerate().filter_map(|(member, row)| Some((member, *row.get(at_ms)?))).collect();
        // A step of which a part is missing compares nothing.
        if known.len() * 10 < units.len() * 9 {
            continue;
        }
        let Some(middle) = median(known.iter().map(|(_, value)| *value)) else { continue };
        let scale = middle.max(quantity.least);
        let spread = median(known.iter().map(|(_, value)| (value - middle).abs())).unwrap_or(0.0);
        let limit = (least * scale).max(SPREADS * spread);
        steps += 1;
        first = first.or(Some(*at_ms));
        for (member, value) in known {
            // That a GPU does nothing is another finding.
            let works = util[member].get(at_ms).is_none_or(|util| *util > idle_pct);
            if works && middle - value > limit {
                below[member] += 1;
                since[member] = since[member].or(Some(*at_ms));
            } else {
                since[member] = None;
            }
            amounts[member].push((value, middle));
        }
    }
    if steps < WORKING_STEPS {
        return Vec::new();
    }
    let slow: Vec<usize> = (0..units.len()).filter(|member| below[*member] * 5 >= steps * 4).collect();
    if slow.len() > (units.len() / 8).max(1) {
        return Vec::new();
    }
    let slow = slow.into_iter().filter(|member| {
        let unit = &units[*member];
        is_one_program || cause(unit).is_some() || difference(unit, units).is_some()
    });
    let slow: Vec<usize> = slow.collect();
    let waiting = units.len() - slow.len();
    let of = |member: &usize| {
        let mut slow = one(input, job, &units[*member], units, quantity, &amounts[*member]);
        slow.detection.since = since[*member].map(|at_ms| (at_ms, Some(at_ms) == first));
        Slow { waiting, ..slow }
    };
    slow.iter().map(of).collect()
}

fn one(
    input: &DetectorInput<'_>,
    job: &JobGpus<'_>,
    unit: &JobGpu<'_>,
    peers: &[JobGpu<'_>],
    quantity: &Quantity,
    amounts: &[(f32, f32)],
) -> Slow {
    let (own, middle) = (
        median(amounts.iter().map(|(own, _)| *own)).unwrap_or(0.0),
        median(amounts.iter().map(|(_, middle)| *middle)).unwrap_or(0.0),
    );
    let percent = (100.0 * (1.0 - own / middle.max(1.0))).clamp(0.0, 100.0);
    let subject = format!("{}/{}", job.job.id, unit.gpu.facts.uuid);
    let current = cause(unit).or_else(|| difference(unit, peers));
    let cause = current.clone().or_else(|| earlier_cause(input, &subject));
    let why = cause.as_ref().map(|cause| format!(": {cause}")).unwrap_or_default();
    let title = match quantity.field {
        GpuField::SmClock => format!("{} runs {percent:.0} % slower than its peers{why}", unit.title()),
        _ => format!("{} works {percent:.0} % less than its peers{why}", unit.title()),
    };
    let units = [*unit];
    let mut detection =
        of_job(FindingKind::Straggler, FindingSeverity::Warning, job, &units, quantity.field, title);
    detection.subject = subject;
    detection.cause = current;
    detection.reason = format!("{} slower than its peers", unit.name());
    detection.confidence_pct = if cause.is_some() { 95 } else { 80 };
    let amount = |value: f32| match quantity.field {
        GpuField::SmClock => format!("{} MHz", text::grouped(value.round() as u64)),
        _ => format!("{value:.0} %"),
    };
    detection.evidence.push(format!(
        "{} {}, median of the job {}",
        quantity.name,
        amount(own),
        amount(middle)
    ));
    if let Some(temp) = unit.value(GpuField::Temp) {
        detection.evidence.push(format!("{temp} °C"));
    }
    detection.evidence.extend(cause);
    Slow { detection, percent, name: text::uncapitalised(&unit.title()), waiting: 0 }
}

/// Returns what explained a slow GPU before, which is listed for as long as the GPU is slow: `power brake, which ended after
/// 4 min`. Throttle reasons come and go within seconds: one that was read a moment ago still applies.
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
