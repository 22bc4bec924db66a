//! Bytes to a page per GPU and second, counted on traces of real GPUs, compared with other monitors.

use crate::report::Report;
use crate::series::Series;
use anyhow::{Context, Result};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::probe::{GpuSample, ProbeLine, Sample};
use nodeglass_tests::pipeline::{JOB, Nodes, Pipeline};
use nodeglass_tests::trace::{self, GPUS, Trace};
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

/// Nodes of the subscribed job; each replays the trace from another offset.
const NODES: usize = 16;
/// Maximum number of replayed seconds of a trace.
const SECONDS: usize = 600;
/// Longest WebSocket frame with a header of two bytes rather than four.
const SHORT: usize = 125;
/// Number of replayed seconds of the scripted cluster, from this one on, without faults.
const SCRIPTED: std::ops::Range<i64> = 20..170;

/// Measures the requested figures.
pub fn measure(report: &Report) -> Result<()> {
    let traces = trace::all()?;
    if traces.is_empty() {
        println!("the traces of real GPUs are not here, so that the demo's take their place");
        let traces = scripted_traces()?;
        measure_overview(report, &traces, "of the demo")?;
        return measure_core(report, &traces, "of the demo");
    }
    measure_overview(report, &traces, "of real GPUs")?;
    measure_core(report, &traces, "of real GPUs")?;
    for (part, kinds, what) in PARTS {
        let bytes = all_readings_cost(kinds)?;
        let name = format!("wire.bytes_per_gpu_sample_all_fields{part}");
        report.value(&name, bytes, &format!("{what}, of the demo's training"));
    }
    Ok(())
}

/// Whether a line is of one of some kinds.
type Kinds = fn(&ProbeLine) -> bool;

/// Traffic beyond the core readings, in total and in parts: suffix of the figure, counted lines, description.
const PARTS: [(&str, Kinds, &str); 3] = [
    ("", |_| true, "36 fields of a GPU, and its share of processes, host and jobs"),
    (".samples", |line| matches!(line, ProbeLine::Sample(_)), "the same without processes and health"),
    (".without_health", |line| !matches!(line, ProbeLine::Health(_)), "the same without health"),
];

/// Bytes for the six core fields.
#[derive(Debug, Default)]
struct Cost {
    ours: usize,
    json: usize,
    samples: usize,
}

impl Cost {
    fn add(&mut self, other: &Self) {
        self.ours += other.ours;
        self.json += other.json;
        self.samples += other.samples;
    }

    fn each(&self) -> f64 {
        self.ours as f64 / self.samples as f64
    }
}

fn measure_core(report: &Report, traces: &[Trace], whose: &str) -> Result<()> {
    let (mut all, mut kinds) =
        (Cost::default(), [(Cost::default(), Vec::new()), (Cost::default(), Vec::new())]);
    for trace in traces {
        let cost = play(trace, &mut pipeline(Topic::Job(JOB))?)?;
        let name = name_of(trace.busy);
        report.value(&format!("{name}.{}", trace.name), cost.each(), whose);
        let (sum, each) = &mut kinds[usize::from(trace.busy)];
        sum.add(&cost);
        each.push(cost.each());
        all.add(&cost);
    }
    for (busy, (sum, each)) in [false, true].into_iter().zip(&kinds) {
        if sum.samples > 0 {
            let range = each.iter().copied().collect::<Series>().range();
            let note = format!(
                "{whose}, {} traces: {:.2} to {:.2}; a job of {NODES} nodes",
                each.len(),
                range.0,
                range.1
            );
            report.value(name_of(busy), sum.each(), &note);
        }
    }
    let json = all.json as f64 / all.samples as f64;
    let note = format!("{whose}: {:.1} B against {json:.0} B, the same six as JSON", all.each());
    report.value("wire.vs_json_ratio", all.each() / json, &note);
    beside_peers(report, traces, &all, whose)
}

fn name_of(busy: bool) -> &'static str {
    if busy { "wire.bytes_per_gpu_sample_busy" } else { "wire.bytes_per_gpu_sample_idle" }
}

/// A feed of a topic with all nodes, before their first sample.
fn pipeline(topic: Topic) -> Result<Pipeline> {
    let nodes = Nodes::scripted()?;
    Pipeline::of_topic(topic, nodes.names(NODES), |name| nodes.hello(name).into_iter().collect())
}

/// Replays a trace of the six core fields on all nodes.
fn play(trace: &Trace, pipeline: &mut Pipeline) -> Result<Cost> {
    let mut cost = Cost::default();
    for second in 0..trace.seconds.len().min(SECONDS) {
        pipeline.next_second();
        for node in 0..NODES {
            let moment = (second + node * trace.seconds.len() / NODES) % trace.seconds.len();
            pipeline.receive(node, sample(second, node, &trace.seconds[moment]).into());
        }
        let bytes = published_bytes(pipeline);
        // The first sample has every reading, like a snapshot.
        if second > 0 {
            cost.ours += bytes;
            cost.json += NODES * json_bytes(&trace.seconds[second]);
            cost.samples += NODES * GPUS;
        }
    }
    Ok(cost)
}

/// A probe wakes up to a millisecond late, so that the next sample is not exactly a second later.
fn sample(second: usize, node: usize, gpus: &[GpuSample]) -> ProbeLine {
    let (seq, gpus) = (second as u64, gpus.to_vec());
    let late_ns = (seq * 389_011 + node as u64 * 77_003) % 1_000_000;
    let mono_ns = (seq + 1_000) * 1_000_000_000 + node as u64 * 123_457 + late_ns;
    let sample = Sample { seq, mono_ns, interval_ms: 1_000, gpus, ..Sample::default() };
    ProbeLine::Sample(Box::new(sample))
}

/// Bytes of the frame that carries one second to a viewer.
fn published_bytes(pipeline: &mut Pipeline) -> usize {
    let header = |len: usize| if len <= SHORT { 2 } else { 4 };
    pipeline.publish().map_or(0, |encoded| encoded.binary.len() + header(encoded.binary.len()))
}

/// The six core fields as one JSON object per GPU.
fn json_bytes(gpus: &[GpuSample]) -> usize {
    let object = |gpu: &GpuSample| serde_json::to_vec(gpu).map_or(0, |json| json.len() + 1);
    gpus.iter().map(object).sum()
}

/// Bytes per GPU and second of the demo's large job, by kinds of lines.
fn all_readings_cost(kinds: Kinds) -> Result<f64> {
    let nodes = Nodes::scripted()?;
    let first =
        |name: &NodeName| nodes.hello(name).into_iter().chain(nodes.lines(name, SCRIPTED.start)).collect();
    let mut pipeline = Pipeline::new(nodes.names(NODES), first)?;
    let (mut bytes, mut samples) = (0, 0);
    for second in SCRIPTED.skip(1) {
        pipeline.next_second();
        for node in 0..NODES {
            let lines = nodes.lines(&pipeline.names()[node].clone(), second);
            for line in lines.into_iter().filter(kinds) {
                pipeline.receive(node, line.into());
            }
        }
        bytes += published_bytes(&mut pipeline);
        samples += NODES * GPUS;
    }
    Ok(bytes as f64 / samples as f64)
}

/// The overview carries of busy GPUs: each second, and the snapshot at the end, with the history.
fn measure_overview(report: &Report, traces: &[Trace], whose: &str) -> Result<()> {
    let names = ["wire.bytes_per_gpu_sample_overview", "wire.overview_snapshot_bytes_per_gpu"];
    if !report.wants(&names) {
        return Ok(());
    }
    let (mut deltas, mut snapshots) = (Cost::default(), Series::default());
    for trace in traces.iter().filter(|trace| trace.busy) {
        let mut pipeline = pipeline(Topic::Overview)?;
        deltas.add(&play(trace, &mut pipeline)?);
        snapshots.push(pipeline.snapshot_frame()?.len() as f64 / (NODES * GPUS) as f64);
    }
    report.value(names[0], deltas.each(), whose);
    report.noted(names[1], &snapshots, &format!("{whose}, with up to {SECONDS} s of history"));
    Ok(())
}

/// Returns the readings of the demo's GPUs as a recorded trace.
fn scripted_traces() -> Result<Vec<Trace>> {
    let nodes = Nodes::scripted()?;
    let name = nodes.names(1).pop().context("the scenario has a node")?;
    let core = |gpu: GpuSample| GpuSample {
        util_pct: gpu.util_pct,
        mem_used_bytes: gpu.mem_used_bytes,
        temp_c: gpu.temp_c,
        power_mw: gpu.power_mw,
        sm_clock_mhz: gpu.sm_clock_mhz,
        mem_clock_mhz: gpu.mem_clock_mhz,
        ..GpuSample::default()
    };
    let second = |second: i64| nodes.sample(&name, second).gpus.into_iter().map(core).collect();
    Ok(vec![Trace { name: "demo".to_owned(), busy: true, seconds: SCRIPTED.map(second).collect() }])
}

/// The full page or document that other monitors send for the same seconds.
fn beside_peers(report: &Report, traces: &[Trace], ours: &Cost, whose: &str) -> Result<()> {
    let names = ["wire.vs_gpustat_web_ratio", "wire.vs_gpu_hot_ratio"];
    if !report.wants(&names) {
        return Ok(());
    }
    let Some(bin) = std::env::var_os("NODEGLASS_PEERS") else {
        println!("the peers are not here (no python3)");
        return Ok(());
    };
    let peer_bytes = documents(&Path::new(&bin).join("python"), traces)?;
    for (name, peer, what) in
        [(names[0], "gpustat_web", "the whole HTML of"), (names[1], "gpu_hot", "the whole JSON of")]
    {
        let theirs = peer_bytes[peer].as_f64().with_context(|| format!("bytes of {peer}: {peer_bytes}"))?;
        let note = format!("{whose}: {:.1} B against {theirs:.0} B, {what} a GPU", ours.each());
        report.value(name, ours.each() / theirs, &note);
    }
    Ok(())
}

/// Runs the other monitors' renderers; bytes per GPU and update.
fn documents(python: &Path, traces: &[Trace]) -> Result<Value> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/web_documents.py");
    let mut child = Command::new(python)
        .arg(script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the peers' renderers")?;
    let mut stdin = child.stdin.take().context("stdin was piped")?;
    // Every tenth second suffices: the documents' size is constant.
    for gpus in traces.iter().flat_map(|trace| trace.seconds.iter().take(SECONDS).step_by(10)) {
        let gpus: Vec<_> = gpus.iter().map(|gpu| json!(gpu)).collect();
        writeln!(stdin, "{}", Value::Array(gpus)).context("send the readings to the renderers")?;
    }
    drop(stdin);
    let output = child.wait_with_output()?;
    serde_json::from_slice(&output.stdout).context("the renderers did not say how long their documents are")
}
