//! Plays recorded telemetry of real GPUs as a job of one node.

use super::run::{Observed, Occurrences, START_WALL_MS};
use crate::trace;
use anyhow::{Context, Result, ensure};
use nodeglass_fleet::{Event, Fleet, SessionEvent};
use nodeglass_protocol::Reading;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::probe::{GpuSample, ProbeLine, Sample};
use nodeglass_sim::{Scenario, ScenarioTime};

/// Traces that go on for up to three hours after the program has ended: their GPU is idle, and must be found so.
const IDLE_AT_THE_END: [&str; 3] = ["v100_vgg_keras_tf", "v100_vgg_mxnet", "v100_vgg_tf"];
/// Power limit of the recorded H100s in mW; the traces do not state it.
const H100_LIMIT_MW: u64 = 700_000;

/// Plays each available trace whose name is selected, and returns what was found in it without a cause, by its name.
///
/// # Errors
/// A trace cannot be read, or a GPU that is idle was not found so.
pub fn play_traces(is_selected: impl Fn(&str) -> bool) -> Result<Vec<(String, Vec<Observed>)>> {
    let traces = trace::whole()?;
    let selected = traces.iter().filter(|(name, _)| is_selected(name));
    let judged = |(name, seconds): &(String, Vec<Vec<GpuSample>>)| {
        let mut found = play(name, seconds)?;
        if IDLE_AT_THE_END.contains(&name.as_str()) {
            let count = found.len();
            found.retain(|found| !matches!(found.kind, FindingKind::IdleGpus | FindingKind::UnusedGpus));
            ensure!(found.len() < count, "{name}: the idle GPU was not found");
        }
        Ok((name.clone(), found))
    };
    selected.map(judged).collect()
}

fn play(name: &str, seconds: &[Vec<GpuSample>]) -> Result<Vec<Observed>> {
    let gpus = seconds.first().map_or(1, Vec::len);
    let scenario = Scenario::from_toml(&format!(
        "cluster = \"test\"\nuser = \"alice\"\nseed = 7\ncycle = \"30d\"\n\n[[node]]\nname = \"n01\"\nmodel = \"h100\"\n\
         gpus = {gpus}\n\n[[job]]\nid = 17\nname = \"train\"\npartition = \"gpu\"\nsubmitted = \"-2m\"\nstart = \"-1m\"\n\
         limit = \"10d\"\nnodes = \"n01\"\nbehaviour = \"training\"\nargs = \"python3 train.py\"\n"
    ))?;
    let node = scenario.node_names().next().context("the scenario has a node")?.clone();
    let at = |second: usize| ScenarioTime { t_ms: second as i64 * 1_000, start_wall_ms: START_WALL_MS };
    let hello = scenario.hello(&node, at(0)).context("the node has GPUs")?;
    let processes = scenario.processes(&node, at(0)).context("the job has processes")?;
    let mut fleet = Fleet::new();
    let wall_ahead_ms = START_WALL_MS - CLOCK_STARTS_AT_MS.cast_signed();
    let mut occurrences = Occurrences::default();
    for (second, readings) in seconds.iter().enumerate() {
        let now_ms = CLOCK_STARTS_AT_MS + second as u64 * 1_000;
        if second % 20 == 0 {
            fleet.handle(Event::Jobs { jobs: scenario.jobs(at(second)), wall_ahead_ms }, now_ms);
        }
        let mut receive = |line: ProbeLine| {
            let line = SessionEvent::Line(Box::new(line.into()));
            fleet.handle(Event::Node(node.clone(), line), now_ms);
        };
        if second == 0 {
            receive(ProbeLine::Hello(Box::new(hello.clone())));
            receive(ProbeLine::Processes(processes.clone()));
        }
        let sample = Sample {
            seq: second as u64,
            mono_ns: (second as u64 + 1_000) * 1_000_000_000,
            interval_ms: 1_000,
            gpus: readings.iter().map(|gpu| completed(gpu, name)).collect(),
            ..Sample::default()
        };
        receive(ProbeLine::Sample(Box::new(sample)));
        fleet.handle(Event::Tick, now_ms);
        drop(fleet.take_changes());
        occurrences.note(&fleet, second as u64 * 1_000);
    }
    Ok(occurrences.observed)
}

/// Adds the power limit, without which hangs cannot be judged.
fn completed(gpu: &GpuSample, name: &str) -> GpuSample {
    let mut gpu = gpu.clone();
    if name.starts_with("h100") {
        gpu.power_limit_mw = Reading::Value(H100_LIMIT_MW);
    }
    gpu
}
