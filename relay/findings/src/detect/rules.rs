//! Rules of the settings that hold for as long as they state.

use crate::held_rules::{Held, RuleRow};
use crate::input::DetectorInput;
use crate::rule::{Rule, RuleMetric};
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::field::Unit;
use nodeglass_protocol::finding::{FindingGpu, FindingKind};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_rules::{ownership, text};
use std::collections::BTreeMap;

/// Maximum number of lines of evidence that name a row with its value.
const MAX_ROWS: usize = 6;

/// A row for which a rule has held for long enough.
struct Found<'a> {
    node: &'a NodePicture,
    gpu: Option<&'a GpuPicture>,
    jobs: Vec<&'a Job>,
    held: &'a Held,
}

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    let Some(held) = input.held else { return };
    for (number, rule) in input.thresholds.rules.iter().enumerate() {
        // One finding for each job; for a node whose GPUs several jobs or none have.
        let mut groups: BTreeMap<String, Vec<Found<'_>>> = BTreeMap::new();
        for node in input.nodes.values().copied().filter(|node| input.is_examined(node)) {
            let is_current = input.is_current(node);
            for (row, held) in held.of(&node.name, number) {
                let Some((gpu, jobs)) = subject(input, node, row) else { continue };
                let subject = match (jobs.as_slice(), rule.metric) {
                    ([job], RuleMetric::Gpu(_) | RuleMetric::Job(_)) => job.id.to_string(),
                    _ => node.name.to_string(),
                };
                let subject = format!("{}/{subject}", rule.name);
                if !is_current {
                    found.unknown(&[FindingKind::CustomRule], &subject);
                } else if held.since_ms + rule.for_ms <= held.last_ms {
                    groups.entry(subject).or_default().push(Found { node, gpu, jobs, held });
                }
            }
        }
        found.seen.extend(groups.into_iter().map(|(subject, rows)| detection(rule, subject, &rows)));
    }
}

/// Returns the GPU and the jobs of a row; `None` if it is not there any more, or no job of the list has it although there
/// are jobs.
fn subject<'a>(
    input: &DetectorInput<'a>,
    node: &'a NodePicture,
    row: &RuleRow,
) -> Option<(Option<&'a GpuPicture>, Vec<&'a Job>)> {
    let here = input.jobs_on(node);
    match row {
        RuleRow::Host => Some((None, here.to_vec())),
        RuleRow::Job(id) => {
            let job = here.iter().copied().find(|job| job.id == *id)?;
            Some((None, vec![job]))
        }
        RuleRow::Gpu(uuid) => {
            let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == *uuid)?;
            let owners = here.iter().copied().filter(|job| ownership::has_part(node, gpu, job.id));
            let owners: Vec<&Job> = owners.collect();
            (!owners.is_empty() || here.is_empty()).then_some((Some(gpu), owners))
        }
    }
}

fn detection(rule: &Rule, subject: String, rows: &[Found<'_>]) -> Detection {
    let unit = rule.metric.unit();
    let (metric, words) = (rule.metric.title(), rule.comparison.words());
    let place = place(rows);
    let title = format!("{}: {metric} {words} {} on {place}", rule.name, amount(rule.limit, unit));
    let mut detection = Detection::new(FindingKind::CustomRule, subject, title);
    detection.severity = rule.severity;
    detection.confidence_pct = 100;
    detection.reason = format!("{place} {}", rule.name);
    let mut jobs: Vec<JobId> = rows.iter().flat_map(|row| &row.jobs).map(|job| job.id).collect();
    jobs.sort_unstable();
    jobs.dedup();
    detection.jobs = jobs;
    detection.nodes = nodes(rows).into_iter().cloned().collect();
    if let RuleMetric::Gpu(field) = rule.metric {
        let gpus = rows.iter().filter_map(|row| Some((row.node, row.gpu?)));
        detection.gpus =
            gpus.map(|(node, gpu)| FindingGpu::new(&node.name, &gpu.facts.uuid, Some(field))).collect();
    }
    let line = |row: &Found<'_>| format!("{}: {}", name(row), amount(row.held.value, unit));
    detection.evidence = rows.iter().take(MAX_ROWS).map(line).collect();
    detection.advice.clone_from(&rule.text);
    let first = rows.iter().map(|row| row.held).min_by_key(|held| held.since_ms);
    detection.since = first.map(|held| (held.since_ms, held.or_earlier));
    detection
}

/// Names the rows: `gpu-h05 GPU 3`, `12 GPUs of gpu-h05`, `3 nodes`.
fn place(rows: &[Found<'_>]) -> String {
    let nodes = nodes(rows);
    let whole = match nodes.as_slice() {
        [node] => node.to_string(),
        nodes => text::count(nodes.len(), "node", "nodes"),
    };
    match rows {
        [row] => name(row),
        [row, ..] if row.gpu.is_some() => format!("{} of {whole}", text::count(rows.len(), "GPU", "GPUs")),
        _ => whole,
    }
}

/// Names a row: `gpu-h05 GPU 3`, `gpu-h05`.
fn name(row: &Found<'_>) -> String {
    match row.gpu {
        Some(gpu) => format!("{} {}", row.node.name, gpu.facts.label()),
        None => row.node.name.to_string(),
    }
}

fn nodes<'a>(rows: &[Found<'a>]) -> Vec<&'a NodeName> {
    let mut nodes: Vec<&NodeName> = rows.iter().map(|row| &row.node.name).collect();
    nodes.dedup();
    nodes
}

/// Formats a value with its unit: `83 °C`, `70.0 GiB`.
fn amount(value: u64, unit: Unit) -> String {
    match unit {
        Unit::Byte => format!("{} GiB", text::gib(value)),
        Unit::BytePerSecond => format!("{} GiB/s", text::gib(value)),
        Unit::Hundredth => text::tenths(value as f64 / 100.0),
        unit if unit.symbol().is_empty() => text::grouped(value),
        unit => format!("{} {}", text::grouped(value), unit.symbol()),
    }
}
