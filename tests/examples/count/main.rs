//! Repeats one step of a sample's path for callgrind to count: `count STEP` prints the number of repetitions.
//!
//! Only code inside [`counted`] counts. `tests/it/instructions.rs` runs this and compares.

use anyhow::{Context, Result, bail, ensure};
use fake_nvml::install;
use node_probe::sampler::{HandoverState, Sampler, Stamp};
use node_probe::source::{Session, Source, nvml::NvmlSource};
use nodeglass_nodes::decoder::Decoder;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::ServerMessage;
use nodeglass_protocol::probe::MAGIC;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_tests::pipeline::{Nodes, Pipeline, ProbeEncoder};
use std::hint::black_box;

/// Number of counted repetitions, after an uncounted one.
const ROUNDS: i64 = 20;
/// Nodes of the subscribed job.
const NODES: usize = 16;
/// First second of the scenario that is replayed; it has no faults from then on.
const FROM: i64 = 20;

fn main() -> Result<()> {
    let step = std::env::args().nth(1).context("count which step?")?;
    match step.as_str() {
        "tick" => tick()?,
        "parse" => parse()?,
        "apply" => apply()?,
        "encode" => encode()?,
        "page_apply" => page_apply()?,
        other => bail!("there is no step {other:?}"),
    }
    println!("{ROUNDS}");
    Ok(())
}

/// Callgrind counts from entry to exit of this function.
#[inline(never)]
fn counted<T>(step: impl FnOnce() -> T) -> T {
    black_box(step())
}

/// The probe reads eight GPUs of the stand-in driver and encodes a line. Includes the driver's instructions.
fn tick() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let library = install::install(folder.path())?;
    // A driver without motion, so that each count is the same; an environment variable names its file.
    ensure!(std::env::var_os("FAKE_NVML_STATE").is_some(), "say where the driver's state is");
    let mut source = NvmlSource::new(Some(library));
    let mut session = source.open()?;
    ensure!(session.inventory().gpus.len() == 8, "the driver has eight cards");
    let mut sampler = Sampler::new(HandoverState::new(1));
    one_tick(&mut *session, &mut sampler, 0)?;
    for second in 1..=ROUNDS {
        counted(|| one_tick(&mut *session, &mut sampler, second))?;
    }
    Ok(())
}

fn one_tick(session: &mut dyn Session, sampler: &mut Sampler, second: i64) -> Result<Vec<u8>> {
    let gpus = session.readings()?;
    // No processes: `/proc` differs between machines.
    ensure!(session.gpu_processes().processes.is_empty(), "no process is listed");
    let stamp = Stamp { mono_ns: second.unsigned_abs() * 1_000_000_000, wall_ms: 0 };
    let sample = sampler.sample(stamp, 1_000, gpus, Default::default());
    Ok(sampler.line(sample))
}

/// Parses the bytes of a node.
fn parse() -> Result<()> {
    let nodes = Nodes::scripted()?;
    let name = nodes.names(1).pop().context("the scenario has a node")?;
    let mut decoder = Decoder::default();
    let mut found = Vec::new();
    let hello = nodes.hello(&name).context("the node is described")?;
    let mut encoder = ProbeEncoder::default();
    let mut bytes = MAGIC.as_bytes().to_vec();
    encoder.encode(vec![hello], &mut bytes);
    decoder.feed(&bytes, 0, &mut found)?;
    for second in FROM..FROM + ROUNDS {
        bytes.clear();
        encoder.encode(nodes.lines(&name, second), &mut bytes);
        counted(|| decoder.feed(&bytes, 0, &mut found))?;
    }
    ensure!(found.len() > ROUNDS as usize, "every line was found");
    Ok(())
}

/// A job all of whose nodes have sent everything.
fn pipeline(nodes: &Nodes) -> Result<Pipeline> {
    let decoded_lines =
        |name: &NodeName| nodes.hello(name).into_iter().chain(nodes.lines(name, FROM)).collect();
    Pipeline::new(nodes.names(NODES), decoded_lines)
}

/// The lines of each node at one second, encoded and parsed.
fn decoded_lines(
    nodes: &Nodes,
    pipeline: &Pipeline,
    printers: &mut [ProbeEncoder],
    second: i64,
) -> Result<Vec<(usize, ParsedLine)>> {
    let mut decoded_lines = Vec::new();
    for (node, (name, encoder)) in pipeline.names().iter().zip(printers).enumerate() {
        decoded_lines
            .extend(encoder.round_trip(nodes.lines(name, second))?.into_iter().map(|line| (node, line)));
    }
    Ok(decoded_lines)
}

/// An encoder for each node.
fn printers() -> Vec<ProbeEncoder> {
    (0..NODES).map(|_| ProbeEncoder::default()).collect()
}

fn receive(pipeline: &mut Pipeline, lines: Vec<(usize, ParsedLine)>) {
    lines.into_iter().for_each(|(node, line)| pipeline.receive(node, line));
}

/// Applies the lines of a second to the fleet.
fn apply() -> Result<()> {
    let nodes = Nodes::scripted()?;
    let (mut pipeline, mut printers) = (pipeline(&nodes)?, printers());
    for second in FROM + 1..=FROM + ROUNDS {
        let lines = decoded_lines(&nodes, &pipeline, &mut printers, second)?;
        pipeline.next_second();
        counted(|| receive(&mut pipeline, lines));
        pipeline.publish();
    }
    Ok(())
}

/// Encodes the changes as a frame.
fn encode() -> Result<()> {
    let nodes = Nodes::scripted()?;
    let (mut pipeline, mut printers) = (pipeline(&nodes)?, printers());
    for second in FROM + 1..=FROM + ROUNDS {
        let lines = decoded_lines(&nodes, &pipeline, &mut printers, second)?;
        pipeline.next_second();
        receive(&mut pipeline, lines);
        ensure!(counted(|| pipeline.publish()).is_some(), "something changed");
    }
    Ok(())
}

/// Decodes the frame and applies it to the page's picture.
fn page_apply() -> Result<()> {
    let nodes = Nodes::scripted()?;
    let (mut pipeline, mut printers) = (pipeline(&nodes)?, printers());
    let ServerMessage::Snapshot(snapshot) = pipeline.snapshot()? else { bail!("a snapshot comes first") };
    let mut picture = snapshot.picture;
    for second in FROM + 1..=FROM + ROUNDS {
        let lines = decoded_lines(&nodes, &pipeline, &mut printers, second)?;
        pipeline.next_second();
        receive(&mut pipeline, lines);
        let frame = pipeline.publish().context("something changed")?.binary;
        counted(|| {
            let ServerMessage::Delta(delta) = Form::Binary.decode(&frame)? else { bail!("deltas follow") };
            Ok(picture.apply(&delta, |_| ())?)
        })?;
    }
    Ok(())
}
