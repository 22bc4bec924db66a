//! Allocations per sample do not depend on the number of GPUs.

use allocation_counter::measure;
use anyhow::{Context, Result, bail, ensure};
use fake_nvml::install;
use node_probe::output;
use node_probe::process::ProcessTable;
use node_probe::ring::Ring;
use node_probe::sampler::{Sampler, Stamp};
use node_probe::source::{Source, nvml::NvmlSource};
use nodeglass_nodes::decoder::{Decoder, Found};
use nodeglass_protocol::NodeName;
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
    let (mut process_table, mut sampler) = (ProcessTable::new(), Sampler::new(1, 1, Ring::default()));
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
