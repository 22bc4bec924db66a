//! Cost of the findings: each sample that is summed up, and each examination of all nodes.

use crate::report::Report;
use crate::series::Series;
use anyhow::{Context, Result};
use nodeglass_findings::{Findings, Now};
use nodeglass_protocol::field::Field as _;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::{Evidence, GpuPicture, Link, NodePicture, Owner, ProcessPicture};
use nodeglass_protocol::process::{ProcessFacts, ProcessKind};
use nodeglass_protocol::{Cell, GpuField, GpuUuid, JobId, NodeName, Reading, Row};
use std::time::Instant;

/// GPUs of a node, and nodes of a job.
const GPUS: usize = 8;
const JOB_NODES: usize = 8;
/// Samples of a node in a minute, as of nodes that a page looks at.
const INTERVAL_MS: u64 = 1_000;
/// Interval of examining all nodes.
const STEP_MS: u64 = 10_000;
/// Time that is played before the measurement, and during it, in ms.
const FILL_MS: u64 = 660_000;
const MEASURED_MS: u64 = 120_000;
/// 1970-01-01 00:00 by the relay's clock.
const WALL_AHEAD_MS: i64 = 1_700_000_000_000;

/// Measures the requested figures.
pub fn measure(report: &Report) -> Result<()> {
    for (name, nodes) in [("findings.cpu_pct_64n", 64), ("findings.cpu_pct_1000n", 1_000)] {
        if report.wants(&[name]) {
            let rounds: Result<Series> = (0..3).map(|_| cpu_pct(nodes)).collect();
            report.figure(name, &rounds?);
        }
    }
    Ok(())
}

/// CPU of one core in % that healthy jobs on so many nodes cost.
fn cpu_pct(count: usize) -> Result<f64> {
    let mut nodes = (0..count).map(node).collect::<Result<Vec<_>>>()?;
    let jobs: Vec<Job> =
        nodes.chunks(JOB_NODES).enumerate().map(|(number, nodes)| job(number, nodes)).collect();
    let mut findings = Findings::default();
    let mut spent = std::time::Duration::ZERO;
    for elapsed_ms in (0..FILL_MS + MEASURED_MS).step_by(INTERVAL_MS as usize) {
        let now_ms = CLOCK_STARTS_AT_MS + elapsed_ms;
        for (number, node) in nodes.iter_mut().enumerate() {
            sample(node, number as u64 + elapsed_ms / INTERVAL_MS, now_ms);
        }
        let began = Instant::now();
        nodes.iter().for_each(|node| findings.record(node, Some(WALL_AHEAD_MS)));
        if elapsed_ms % STEP_MS == 2_000 {
            findings.evaluate(
                "alice",
                &jobs,
                nodes.iter(),
                false,
                Now { relay_ms: now_ms, wall_ahead_ms: WALL_AHEAD_MS },
            );
        }
        if elapsed_ms >= FILL_MS {
            spent += began.elapsed();
        }
    }
    anyhow::ensure!(findings.list().is_empty(), "healthy jobs: {:?}", findings.list().first());
    Ok(spent.as_secs_f64() * 1_000.0 / MEASURED_MS as f64 * 100.0)
}

fn node(number: usize) -> Result<NodePicture> {
    let mut node = NodePicture::new(NodeName::new(format!("n{number:04}")).context("a name of a node")?);
    node.head.link = Link::Live;
    node.head.interval_ms = INTERVAL_MS as u32;
    let owner = JobId((number / JOB_NODES + 1) as u32);
    let gpu = |index: usize| {
        let mut gpu = GpuPicture::default();
        gpu.facts.index = index as u32;
        gpu.facts.uuid = GpuUuid::new(format!("GPU-{number:04}-{index}"));
        gpu.facts.name = Reading::Value("NVIDIA H100".into());
        gpu.owners = vec![Owner { job: owner, by: Evidence::GresIndex }];
        gpu
    };
    node.gpus = (0..GPUS).map(gpu).collect();
    let process = |gpu: &GpuPicture| {
        let facts = ProcessFacts::new(gpu.facts.uuid.clone(), 4_711, ProcessKind::default());
        ProcessPicture { facts, row: Row::default() }
    };
    node.processes = node.gpus.iter().map(process).collect();
    Ok(node)
}

fn job(number: usize, nodes: &[NodePicture]) -> Job {
    let mut job = Job::new(JobId(number as u32 + 1), "alice".into(), JobState::Running);
    job.nodes = nodes.iter().map(|node| node.name.clone()).collect();
    job.start = Some((CLOCK_STARTS_AT_MS.cast_signed() + WALL_AHEAD_MS) / 1_000);
    job
}

/// Sets the readings of training, which differ a little between GPUs and seconds.
fn sample(node: &mut NodePicture, turn: u64, now_ms: u64) {
    for (index, gpu) in (0..).zip(&mut node.gpus) {
        let noise = (turn * 7 + index * 13) % 5;
        for (field, value) in [
            (GpuField::Util, 95 + noise),
            (GpuField::Power, 640 + noise * 9),
            (GpuField::PowerLimit, 700),
            (GpuField::SmClock, 1_740 + noise * 15),
            (GpuField::SmActive, 80 + noise),
            (GpuField::DramActive, 40 + noise),
            (GpuField::TensorActive, 50 + noise),
            (GpuField::PcieRx, 3 << 30),
            (GpuField::PcieTx, 1 << 30),
            (GpuField::MemUsed, 60 << 30),
            (GpuField::MemTotal, 80 << 30),
        ] {
            let steps = u32::try_from(field.scale().steps(value)).unwrap_or_default();
            gpu.row.set(field, Cell::steps(steps));
        }
    }
    node.sampled_at_ms = Some(now_ms);
}
