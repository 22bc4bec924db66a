//! Cost of the long-term history: memory per GPU and hour, a node's sample, and the answer to a zoom.

use crate::report::Report;
use crate::series::Series;
use anyhow::Result;
use nodeglass_history::{LongHistory, Span, VisibleNode};
use nodeglass_protocol::field::ReadingSet as _;
use nodeglass_protocol::gpu::GpuFacts;
use nodeglass_protocol::live::{CLOCK_STARTS_AT_MS, Topic};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::probe::GpuSample;
use nodeglass_protocol::range::RangeQuery;
use nodeglass_protocol::{Field, GpuField, GpuUuid, NodeName};
use nodeglass_tests::trace::{self, GPUS};
use std::time::Instant;

/// Nodes of [`GPUS`] GPUs.
const NODES: usize = 125;
const INTERVAL_MS: u64 = 10_000;
const HOUR_MS: u64 = 3_600_000;
/// Simulated hours: a week.
const HOURS: u64 = 7 * 24;
/// More than is used.
const UNLIMITED: usize = 4 << 30;
/// Queries for each range.
const ZOOMS: usize = 40;

const FIGURES: [&str; 5] = [
    "history.bytes_per_gpu_hour",
    "history.mb_1000gpu_7d",
    "history.record_us",
    "history.zoom_ms_p99_1000gpu",
    "history.zoom_ms_p50_1000gpu",
];

/// Measures the requested figures.
pub fn measure(report: &Report) -> Result<()> {
    if !report.wants(&FIGURES) {
        return Ok(());
    }
    let traces = trace::all()?;
    let busy: Vec<_> = traces.iter().filter(|trace| trace.busy).map(|trace| &trace.seconds).collect();
    if busy.is_empty() {
        println!("the traces of real GPUs are not here: the history is not measured");
        return Ok(());
    }
    let mut history = LongHistory::new(UNLIMITED);
    let mut nodes: Vec<_> = (0..NODES).map(node).collect();
    let began = Instant::now();
    let mut samples = 0_u64;
    for at_ms in (0..HOURS * HOUR_MS).step_by(INTERVAL_MS as usize) {
        for (number, node) in nodes.iter_mut().enumerate() {
            let trace = busy[number % busy.len()];
            // Each node replays its trace from another offset.
            let second = (at_ms / 1_000) as usize + number * 97;
            set(node, &trace[second % trace.len()], CLOCK_STARTS_AT_MS + at_ms);
            history.record(node);
            samples += 1;
        }
        history.tick(CLOCK_STARTS_AT_MS + at_ms);
    }
    let took_us = began.elapsed().as_secs_f64() * 1e6;
    report.value("history.record_us", took_us / samples as f64, "a sample of 8 GPUs, with setting its cells");
    let gpu_hours = (NODES * GPUS) as f64 * HOURS as f64;
    let bytes = history.len() as f64;
    report.value("history.bytes_per_gpu_hour", bytes / gpu_hours, "a week of real GPUs, all tiers");
    report.value("history.mb_1000gpu_7d", bytes / 1e6, "the same in total");
    let visible: Vec<_> = nodes.iter().map(visible).collect();
    let to_ms = CLOCK_STARTS_AT_MS + HOURS * HOUR_MS;
    let mut zooms = Series::default();
    for span_hours in [1, 6, 24, HOURS] {
        for zoom in 0..ZOOMS as u64 {
            let to_ms = to_ms - (HOURS - span_hours) * HOUR_MS / ZOOMS as u64 * zoom;
            let from_ms = to_ms - span_hours * HOUR_MS;
            let query = RangeQuery {
                topic: Topic::Overview,
                from_ms,
                to_ms,
                step_ms: (to_ms - from_ms) / 600,
                gpu_fields: vec![GpuField::Util.name().into()],
                host_fields: Vec::new(),
            };
            let began = Instant::now();
            std::hint::black_box(history.select(&query, &visible).read());
            zooms.push(began.elapsed().as_secs_f64() * 1e3);
        }
    }
    let note = "a field of 1,000 GPUs, ranges of 1 h to 7 d";
    report.value("history.zoom_ms_p99_1000gpu", zooms.quantile(0.99), note);
    report.value("history.zoom_ms_p50_1000gpu", zooms.median(), note);
    Ok(())
}

fn node(number: usize) -> NodePicture {
    let mut node = NodePicture::new(NodeName::new(format!("n{number}")).expect("a valid name"));
    let gpu = |gpu| {
        let uuid = GpuUuid::new(format!("GPU-{number}-{gpu}"));
        GpuPicture { facts: GpuFacts { uuid, ..GpuFacts::default() }, ..GpuPicture::default() }
    };
    node.gpus = (0..GPUS).map(gpu).collect();
    node.head.interval_ms = INTERVAL_MS as u32;
    node
}

fn set(node: &mut NodePicture, gpus: &[GpuSample], at_ms: u64) {
    node.sampled_at_ms = Some(at_ms);
    for (number, gpu) in node.gpus.iter_mut().enumerate() {
        gpu.row = gpus[number % gpus.len()].row();
    }
}

fn visible(node: &NodePicture) -> VisibleNode {
    let gpus = node.gpus.iter().map(|gpu| (gpu.facts.uuid.clone(), Span::ALL)).collect();
    VisibleNode { name: node.name.clone(), gpus, host: Some(Span::ALL) }
}
