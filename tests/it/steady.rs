//! Allocations per sample do not depend on the number of GPUs, and neither a GPU nor a scrape takes more memory than
//! recorded here.

use allocation_counter::measure;
use anyhow::{Context, Result, bail, ensure};
use fake_nvml::install;
use node_probe::output;
use node_probe::process::ProcessTable;
use node_probe::sampler::{HandoverState, Sampler, Stamp};
use node_probe::source::{Source, nvml::NvmlSource};
use nodeglass_api::Snapshot;
use nodeglass_api::metrics::{self, Collector, RelayMetrics};
use nodeglass_nodes::decoder::{Decoder, Found};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::ServerMessage;
use nodeglass_protocol::probe::{MAGIC, ProbeLine, Sample};
use nodeglass_tests::pipeline::{Nodes, Pipeline};
use serde_json::json;
use std::process::Command;

/// A second of the scenario without faults.
const FROM: i64 = 21;
/// Lists may grow by doubling: this many times from the smaller number of GPUs to the larger.
const GROWTH: u64 = 8;

/// Number of GPUs that the subprocess samples.
const CARDS: &str = "NODEGLASS_CARDS";

/// Runs as a subprocess, because the stand-in driver takes the path of its state from the environment.
#[test]
#[ignore = "it is run by other tests, with a driver of its own"]
fn allocations_of_a_probe() -> Result<()> {
    let cards: usize = std::env::var(CARDS)?.parse()?;
    let library = std::env::var_os("FAKE_NVML_LIBRARY").context("the library is named")?;
    let mut source = NvmlSource::new(Some(library.into()));
    let mut session = source.open().context("open the stand-in driver")?;
    assert_eq!(session.inventory().gpus.len(), cards);
    let (mut process_table, mut sampler) = (ProcessTable::new(), Sampler::new(HandoverState::new(1)));
    let mut tick = |second: u64| {
        let gpus = session.readings().unwrap_or_default();
        process_table.update(session.gpu_processes());
        let stamp = Stamp { mono_ns: second * 1_000_000_000, wall_ms: 0 };
        let sample = sampler.sample(stamp, 1_000, gpus, Default::default());
        sampler.line(sample);
    };
    (0..3).for_each(&mut tick);
    println!("allocations: {}", measure(|| tick(3)).count_total);
    Ok(())
}

/// Allocations of a probe's tick on a node with this many GPUs.
fn of_a_probe(cards: usize) -> Result<u64> {
    let folder = tempfile::tempdir()?;
    let state = folder.path().join("state.json");
    install::write_state(&state, &serde_json::from_value(json!({ "gpus": vec![json!({}); cards] }))?)?;
    let output = Command::new(std::env::current_exe()?)
        .args(["steady::allocations_of_a_probe", "--exact", "--ignored", "--nocapture"])
        .env("FAKE_NVML_STATE", &state)
        .env("FAKE_NVML_LIBRARY", install::install(folder.path())?)
        .env(CARDS, cards.to_string())
        .output()?;
    let stdout = String::from_utf8_lossy(&output.stdout);
    let count = stdout.lines().find_map(|line| line.split_once("allocations: ")?.1.parse().ok());
    count.with_context(|| format!("no count among: {stdout}{}", String::from_utf8_lossy(&output.stderr)))
}

#[test]
fn a_probes_sample_allocates_nothing_per_gpu() -> Result<()> {
    let (few, many) = (of_a_probe(4)?, of_a_probe(64)?);
    ensure!(many <= few + GROWTH, "{few} allocations with 4 cards, {many} with 64");
    Ok(())
}

/// The output of a node with this many GPUs at one second, with the scenario's readings.
fn sample(nodes: &Nodes, name: &NodeName, second: i64, cards: usize) -> ProbeLine {
    let sample = nodes.sample(name, second);
    let gpus = sample.gpus.iter().cycle().take(cards).cloned().collect();
    ProbeLine::Sample(Box::new(Sample { gpus, ..sample }))
}

/// Its hello with this many GPUs.
fn hello(nodes: &Nodes, name: &NodeName, cards: usize) -> Result<ProbeLine> {
    let Some(ProbeLine::Hello(mut hello)) = nodes.hello(name) else { bail!("the node says hello") };
    hello.gpus = hello.gpus.iter().cycle().take(cards).cloned().collect();
    hello.topology.clear();
    Ok(ProbeLine::Hello(hello))
}

/// Allocations of the relay for one sample of a node with this many GPUs: to parse, apply and publish it.
fn of_a_relay(cards: usize) -> Result<[u64; 3]> {
    let nodes = Nodes::scripted()?;
    let name = nodes.names(1).pop().context("the scenario has a node")?;
    let greeting = hello(&nodes, &name, cards)?;
    let mut pipeline = Pipeline::new(vec![name.clone()], |_| vec![greeting.clone()])?;
    let mut decoder = Decoder::default();
    let mut found = Vec::with_capacity(64);
    let mut first = MAGIC.as_bytes().to_vec();
    output::encode(&greeting, &mut first);
    decoder.feed(&first, 0, &mut found)?;
    let mut counts = [0; 3];
    for second in FROM..FROM + 3 {
        let mut line = Vec::new();
        output::encode(&sample(&nodes, &name, second, cards), &mut line);
        found.clear();
        let mut read = Ok(());
        counts[0] = measure(|| read = decoder.feed(&line, 0, &mut found)).count_total;
        read?;
        let Some(Found::Line(line)) = found.pop() else { bail!("a line was sent and none found") };
        pipeline.next_second();
        counts[1] = measure(|| pipeline.receive(0, *line)).count_total;
        let mut published = None;
        counts[2] = measure(|| published = pipeline.publish()).count_total;
        ensure!(published.is_some(), "something changed");
    }
    Ok(counts)
}

#[test]
fn the_relay_allocates_nothing_per_gpu_of_a_sample() -> Result<()> {
    let (few, many) = (of_a_relay(4)?, of_a_relay(64)?);
    for (part, (few, many)) in ["parse", "apply", "publish"].into_iter().zip(few.into_iter().zip(many)) {
        ensure!(many <= few + GROWTH, "to {part} it: {few} allocations with 4 cards, {many} with 64");
    }
    Ok(())
}

/// Seconds of samples after which two tiers of the history have begun.
const WATCHED_S: i64 = 90;
/// Bytes that the relay holds of a GPU: its readings, ten minutes and a week of history, findings, a share of its node
/// and processes, and what the subscribers of its job have. A feature that needs more states here what it costs; a
/// thousand nodes have 8,000 GPUs. A metric with a history takes about 110.
const GPU_BYTES: u64 = 14_800;
/// GPUs of a node of the scenario.
const NODE_GPUS: u64 = 8;

/// A relay's fleet and the feed of a job on so many nodes after [`WATCHED_S`] seconds.
fn watch(nodes: &Nodes, count: usize) -> Result<Pipeline> {
    let mut pipeline = Pipeline::new(nodes.names(count), |name| nodes.hello(name).into_iter().collect())?;
    for second in FROM..FROM + WATCHED_S {
        pipeline.next_second();
        for node in 0..count {
            let lines = nodes.lines(&pipeline.names()[node], second);
            lines.into_iter().for_each(|line| pipeline.receive(node, line.into()));
        }
        pipeline.publish();
    }
    Ok(pipeline)
}

/// Counts them with the bytes that it holds.
fn watched(nodes: &Nodes, count: usize) -> Result<(Pipeline, u64)> {
    let mut pipeline = None;
    let allocated = measure(|| pipeline = Some(watch(nodes, count)));
    Ok((pipeline.context("it ran")??, allocated.bytes_current.unsigned_abs()))
}

#[test]
fn a_gpu_takes_no_more_memory_of_the_relay_than_recorded() -> Result<()> {
    let nodes = Nodes::scripted()?;
    let [few, many] = [4, 8].map(|count| watched(&nodes, count).map(|(_, bytes)| bytes));
    let per_gpu = many?.saturating_sub(few?) / (4 * NODE_GPUS);
    println!("{per_gpu} bytes per GPU");
    ensure!(per_gpu <= GPU_BYTES, "{per_gpu} bytes per GPU, where {GPU_BYTES} are recorded");
    // A limit far above it would not notice the next feature.
    ensure!(per_gpu > GPU_BYTES * 4 / 5, "{per_gpu} bytes per GPU: lower the limit of {GPU_BYTES}");
    Ok(())
}

/// Allocations for the metrics of a GPU or process: its labels, and nothing for each of its samples.
const ALLOCATIONS_PER_ROW: u64 = 12;
/// Memory for writing them, in bytes, besides labels: a chunk, and not the whole text.
const WRITING_BYTES: u64 = 128 << 10;
/// Bytes of the labels of a row.
const LABEL_BYTES: u64 = 512;

#[test]
fn a_scrape_allocates_nothing_per_sample_and_holds_no_text() -> Result<()> {
    let (mut pipeline, _) = watched(&Nodes::scripted()?, 8)?;
    let ServerMessage::Snapshot(sent) = pipeline.snapshot()? else { bail!("a snapshot is sent") };
    let snapshot = Snapshot::new(&sent.picture, 0);
    let rows = (snapshot.gpus.len() + snapshot.processes.len() + snapshot.nodes.len()) as u64;
    let mut text = Vec::new();
    metrics::write(&snapshot, &RelayMetrics::default(), &Collector::ALL, &mut text)?;
    let samples = text.iter().filter(|byte| **byte == b'\n').count() as u64;
    ensure!(samples > 15 * rows && text.len() as u64 > 3 * WRITING_BYTES, "{samples} samples of {rows} rows");
    let mut result = Ok(());
    let written = measure(|| {
        result = metrics::write(&snapshot, &RelayMetrics::default(), &Collector::ALL, &mut std::io::sink());
    });
    result?;
    println!("{} allocations, {} bytes at most, {rows} rows", written.count_total, written.bytes_max);
    ensure!(
        written.count_total < rows * ALLOCATIONS_PER_ROW,
        "{} allocations for {rows} rows",
        written.count_total
    );
    let most = WRITING_BYTES + rows * LABEL_BYTES;
    ensure!(written.bytes_max < most, "{} bytes at once for {} bytes of text", written.bytes_max, text.len());
    Ok(())
}
