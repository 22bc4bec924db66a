//! Nodes whose GPUs are slower than others of the same model.

use crate::input::{DetectorInput, JobGpu};
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingGpu, FindingKind};
use nodeglass_protocol::{GpuField, JobId, NodeName};
use nodeglass_rules::peers::median;
use nodeglass_rules::text;
use std::collections::BTreeMap;

/// Number of steps in which GPUs must work to be compared: ten minutes.
const STEPS: usize = 60;
/// Utilisation of a step in % from which a GPU works in it.
const WORKING_PCT: f32 = 90.0;
/// Power as a fraction of the limit up to which the limit does not lower the clock.
const BELOW_CAP: f32 = 0.9;
/// Number of other nodes with the model, from which on one can deviate.
const MIN_OTHERS: usize = 3;

/// The GPUs of one model and job on a node.
struct Group<'a> {
    model: &'a str,
    job: JobId,
    units: Vec<JobGpu<'a>>,
}

/// A compared reading.
struct Quantity {
    field: GpuField,
    what: &'static str,
    unit: &'static str,
    of: fn(&JobGpu<'_>, u64) -> Option<f32>,
}

/// The compared readings. The clock of a GPU at its power limit depends on the program, and is not compared.
const QUANTITIES: [Quantity; 2] = [
    Quantity { field: GpuField::PowerLimit, what: "power limit", unit: "W", of: power_limit },
    Quantity { field: GpuField::SmClock, what: "SM clock under load", unit: "MHz", of: clock_under_load },
];

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    let mut groups: BTreeMap<(&str, &NodeName, JobId), Group<'_>> = BTreeMap::new();
    for job in input.job_gpus() {
        if !job.is_complete {
            found.unknown(&[FindingKind::SlowerThanModel], &job.job.id.to_string());
        }
        for unit in job.units.iter().filter(|unit| unit.is_whole()) {
            let Some(model) = unit.gpu.facts.name.value() else { continue };
            let group = groups.entry((model.as_str(), &unit.node.name, job.job.id));
            let new = || Group { model: model.as_str(), job: job.job.id, units: Vec::new() };
            group.or_insert_with(new).units.push(*unit);
        }
    }
    let groups: Vec<Group<'_>> = groups.into_values().collect();
    for same in groups.chunk_by(|one, next| one.model == next.model) {
        QUANTITIES.iter().for_each(|quantity| compare(input, same, quantity, found));
    }
}

fn power_limit(unit: &JobGpu<'_>, _now_ms: u64) -> Option<f32> {
    Some(unit.value(GpuField::PowerLimit)? as f32)
}

/// The mean SM clock of the steps in which a GPU works below its power limit, if these are most.
fn clock_under_load(unit: &JobGpu<'_>, now_ms: u64) -> Option<f32> {
    let limit = unit.value(GpuField::PowerLimit)? as f32;
    let steps = |field| unit.series.of(field, STEPS, now_ms).collect::<BTreeMap<u64, f32>>();
    let (util, power) = (steps(GpuField::Util), steps(GpuField::Power));
    let works = |at_ms: &u64| {
        util.get(at_ms).is_some_and(|util| *util >= WORKING_PCT)
            && power.get(at_ms).is_some_and(|power| *power <= limit * BELOW_CAP)
    };
    let clocks = unit.series.of(GpuField::SmClock, STEPS, now_ms).filter(|(at_ms, _)| works(at_ms));
    let (sum, count) = clocks.fold((0.0, 0), |(sum, count), (_, clock)| (sum + clock, count + 1));
    (count * 5 >= STEPS * 4).then(|| sum / count as f32)
}

/// Returns the groups of a model that are below the groups of other nodes.
fn compare(input: &DetectorInput<'_>, groups: &[Group<'_>], quantity: &Quantity, found: &mut Detections) {
    let now_ms = input.now.relay_ms;
    let value = |group: &Group<'_>| median(group.units.iter().filter_map(|unit| (quantity.of)(unit, now_ms)));
    let (known, paused): (Vec<_>, Vec<_>) =
        groups.iter().map(|group| (group, value(group))).partition(|(_, value)| value.is_some());
    // GPUs that pause are neither fast nor slow.
    for (group, _) in paused {
        found.unknown(&[FindingKind::SlowerThanModel], &subject(group, quantity));
    }
    let values: Vec<(&Group<'_>, f32)> =
        known.into_iter().filter_map(|(group, value)| Some((group, value?))).collect();
    // Each node counts once, however many jobs share it.
    let mut by_node: BTreeMap<&NodeName, Vec<f32>> = BTreeMap::new();
    values.iter().for_each(|(group, value)| by_node.entry(node(group)).or_default().push(*value));
    let by_node: Vec<(&NodeName, f32)> =
        by_node.into_iter().filter_map(|(node, values)| Some((node, median(values.into_iter())?))).collect();
    for (group, own) in values {
        let others = by_node.iter().filter(|(other, _)| *other != node(group)).map(|(_, value)| *value);
        let count = others.clone().count();
        let Some(middle) = median(others).filter(|_| count >= MIN_OTHERS) else {
            // With fewer nodes than when it was found, it neither lasts nor ends.
            found.unknown(&[FindingKind::SlowerThanModel], &subject(group, quantity));
            continue;
        };
        if own < middle * (1.0 - input.thresholds.model_pct as f32 / 100.0) {
            found.add(one(group, quantity, own, middle, count));
        }
    }
}

/// `17/n2/W`.
fn subject(group: &Group<'_>, quantity: &Quantity) -> String {
    format!("{}/{}/{}", group.job, node(group), quantity.unit)
}

fn node<'a>(group: &Group<'a>) -> &'a NodeName {
    &group.units[0].node.name
}

fn one(group: &Group<'_>, quantity: &Quantity, own: f32, middle: f32, others: usize) -> Detection {
    let (node, model) = (node(group), text::model(group.model));
    let percent = 100.0 * (1.0 - own / middle.max(1.0));
    let amount = |value: f32| format!("{} {}", text::grouped(value.round() as u64), quantity.unit);
    let title = format!(
        "{model} on {node}: {} {} is {percent:.0} % below other nodes' {}",
        quantity.what,
        amount(own),
        amount(middle)
    );
    let subject = subject(group, quantity);
    let mut detection = Detection::new(FindingKind::SlowerThanModel, subject, title);
    detection.jobs = vec![group.job];
    detection.nodes = vec![node.clone()];
    let gpu = |unit: &JobGpu<'_>| FindingGpu::new(node, &unit.gpu.facts.uuid, Some(quantity.field));
    detection.gpus = group.units.iter().map(gpu).collect();
    detection.reason = format!("{node} slower than others");
    detection.confidence_pct = 85;
    detection.evidence = vec![
        format!("{} {}", quantity.what, amount(own)),
        format!(
            "median of {} with this model: {}",
            text::count(others, "other node", "other nodes"),
            amount(middle)
        ),
    ];
    detection
}
