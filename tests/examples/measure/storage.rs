//! Cost of what is stored: bytes of the history on disk beside VictoriaMetrics, and the speed of a replay.

use crate::report::Report;
use crate::site::{NodeOptions, SimulatedCluster};
use crate::viewers::Viewers;
use anyhow::{Context, Result, ensure};
use nodeglass_fleet::{Event, Fleet};
use nodeglass_history::LongHistory;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::field::ReadingSet as _;
use nodeglass_protocol::gpu::GpuFacts;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{Field, GpuField, GpuUuid, NodeName};
use nodeglass_recording::Reader;
use nodeglass_store::archive::SegmentWriter;
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::binary;
use nodeglass_tests::trace;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// The nodes whose samples are stored, of eight GPUs each.
const NODES: usize = 4;
const HOURS: u64 = 6;
const INTERVAL_MS: u64 = 10_000;
/// 25 November 2026.
const WALL_MS: u64 = 1_795_600_000_000;
/// Values that are sent to VictoriaMetrics in one request.
const BATCH: usize = 100_000;
/// Length of a part of a trace, in s.
const PART_S: u64 = 60;
/// Time limit for VictoriaMetrics to start, and to write everything.
const PATIENCE: Duration = Duration::from_secs(60);

/// Nodes of the recording, of eight GPUs each, sampled once a second.
const RECORDED_NODES: usize = 64;
/// Length of the recording.
const RECORDED: Duration = Duration::from_secs(40);

/// Measures how fast a recording of 64 nodes can be played: everything in it is applied to a fleet.
pub async fn replay(report: &Report) -> Result<()> {
    let (folder, recording) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let file = recording.path().join("run.rec");
    let (probe, path) = (binary("examples/node")?.display().to_string(), file.display().to_string());
    let arguments = ["--launcher", "local", "--probe", &probe, "--record", &path];
    let site = SimulatedCluster::start_with(RECORDED_NODES, folder, &arguments, NodeOptions::default())?;
    let mut client = site.client().await?;
    site.settled(&mut client).await?;
    let viewers = Viewers::of(client);
    tokio::time::sleep(RECORDED).await;
    drop(viewers);
    site.terminate()?;
    let mut reader = Reader::open(&file)?;
    let (mut fleet, mut first, mut last, mut events) = (Fleet::new(), None, 0, 0_u64);
    let began = Instant::now();
    while let Some((at_ms, event)) = reader.next_event()? {
        let tick_ms = *first.get_or_insert(at_ms);
        for tick_ms in (last.max(tick_ms) / 1_000 + 1..=at_ms / 1_000).map(|second| second * 1_000) {
            fleet.handle(Event::Tick, tick_ms);
        }
        fleet.handle(event, at_ms);
        drop(fleet.take_changes());
        (last, events) = (at_ms, events + 1);
    }
    let took_ms = began.elapsed().as_secs_f64() * 1e3;
    let span_ms = last.saturating_sub(first.unwrap_or(last)) as f64;
    let note = format!("{RECORDED_NODES} nodes of 8 GPUs, {:.0} s with {events} events", span_ms / 1e3);
    report.value("history.replay_speed_max", span_ms / took_ms, &note);
    Ok(())
}

/// Measures bytes on disk of the same samples in the history and in VictoriaMetrics.
pub fn measure(report: &Report) -> Result<()> {
    let traces = trace::all()?;
    let busy: Vec<_> = traces.iter().filter(|trace| trace.busy).map(|trace| &trace.seconds).collect();
    if busy.is_empty() {
        println!("the traces of real GPUs are not here: the stored history is not measured");
        return Ok(());
    }
    let folder = tempfile::tempdir()?;
    let mut history = LongHistory::new(4 << 30);
    let dir = StateDir::at(folder.path().join("history"))?;
    let wall_ahead_ms = WALL_MS - CLOCK_STARTS_AT_MS;
    let mut segments = SegmentWriter::new(dir.clone(), 4 << 30, wall_ahead_ms);
    let mut theirs = VictoriaMetrics::start(folder.path())?;
    let mut nodes = (0..NODES).map(node).collect::<Result<Vec<_>>>()?;
    let mut values = 0_u64;
    for at_ms in (0..HOURS * 3_600_000).step_by(INTERVAL_MS as usize) {
        let now_ms = CLOCK_STARTS_AT_MS + at_ms;
        for (number, node) in nodes.iter_mut().enumerate() {
            let trace = busy[number % busy.len()];
            let sample = &trace[second_of(at_ms / 1_000, number as u64) % trace.len()];
            node.sampled_at_ms = Some(now_ms);
            for (gpu, picture) in node.gpus.iter_mut().enumerate() {
                picture.row = sample[gpu % sample.len()].row();
            }
            history.record(node);
            values += theirs.push(node, WALL_MS + at_ms)?;
        }
        for excerpt in history.take_excerpts(now_ms, false) {
            segments.store(excerpt, now_ms + wall_ahead_ms)?;
        }
    }
    for excerpt in history.take_excerpts(CLOCK_STARTS_AT_MS + HOURS * 3_600_000, true) {
        segments.store(excerpt, WALL_MS + HOURS * 3_600_000)?;
    }
    let ours = folder_bytes(dir.path())? as f64 / values as f64;
    let note = "values of the real traces every 10 s, as mean, minimum and maximum of 10 s and of 60 s";
    report.value("history.disk_bytes_per_sample", ours, note);
    match theirs.finish(values)? {
        Some(bytes) => {
            let bytes = bytes as f64 / values as f64;
            let note = format!(
                "{values} values, as they are, after its last merge; ours against it {:.2}",
                ours / bytes
            );
            report.value("history.victoria_metrics_bytes_per_sample", bytes, &note);
        }
        None => println!("VictoriaMetrics is not installed: there is nothing to compare with"),
    }
    Ok(())
}

/// The second of a trace that a node shows: the traces last minutes, so parts of them follow in a random order. Played
/// in a loop, they would be periodic, which general compression reduces to almost nothing.
fn second_of(second: u64, node: u64) -> usize {
    let mut hash = DefaultHasher::new();
    (second / PART_S, node).hash(&mut hash);
    (hash.finish() % u64::from(u32::MAX)) as usize + (second % PART_S) as usize
}

fn node(number: usize) -> Result<NodePicture> {
    let mut node = NodePicture::new(NodeName::new(format!("n{number}"))?);
    let gpu = |gpu| {
        let uuid = GpuUuid::new(format!("GPU-{number}-{gpu}"));
        GpuPicture { facts: GpuFacts { uuid, ..GpuFacts::default() }, ..GpuPicture::default() }
    };
    node.gpus = (0..trace::GPUS).map(gpu).collect();
    node.head.interval_ms = INTERVAL_MS as u32;
    Ok(node)
}

/// A running VictoriaMetrics, if it is installed.
struct VictoriaMetrics {
    process: Option<(Process, u16)>,
    data: std::path::PathBuf,
    lines: String,
    waiting: usize,
}

impl VictoriaMetrics {
    fn start(folder: &Path) -> Result<Self> {
        let data = folder.join("victoria");
        let mut server = Self { process: None, data, lines: String::new(), waiting: 0 };
        let Some(program) = ["/usr/bin/victoria-metrics"].iter().find(|path| Path::new(path).exists()) else {
            return Ok(server);
        };
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let mut command = Command::new(program);
        command.arg(format!("-storageDataPath={}", server.data.display()));
        command.arg(format!("-httpListenAddr=127.0.0.1:{port}"));
        command.args(["-retentionPeriod=100y", "-loggerLevel=ERROR"]);
        server.process = Some((Process::start(&mut command)?, port));
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            ensure!(began.elapsed() < PATIENCE, "VictoriaMetrics does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(server)
    }

    /// Adds the values of a node that the history keeps; returns their number.
    fn push(&mut self, node: &NodePicture, wall_ms: u64) -> Result<u64> {
        let mut count = 0;
        for gpu in &node.gpus {
            for field in GpuField::HISTORY {
                let Some(steps) = gpu.row.get(*field).value() else { continue };
                let value = field.scale().value(u64::from(steps));
                writeln!(self.lines, "gpu_{}{{gpu=\"{}\"}} {value} {wall_ms}", field.name(), gpu.facts.uuid)?;
                count += 1;
            }
        }
        self.waiting += count as usize;
        if self.waiting >= BATCH {
            self.send()?;
        }
        Ok(count)
    }

    fn send(&mut self) -> Result<()> {
        let (lines, waiting) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.waiting));
        let Some((_, port)) = &self.process else { return Ok(()) };
        if waiting > 0 {
            post(*port, "/api/v1/import/prometheus", &lines)?;
        }
        Ok(())
    }

    /// Lets it write and merge everything; returns the length of its data in bytes, without its index.
    fn finish(mut self, values: u64) -> Result<Option<u64>> {
        self.send()?;
        let Some((process, port)) = self.process.take() else { return Ok(None) };
        post(port, "/internal/force_flush", "")?;
        let stored = metric(&post(port, "/metrics", "")?, "vm_rows_added_to_storage_total");
        ensure!(stored >= Some(values as f64), "VictoriaMetrics stored {stored:?} of {values} values");
        post(port, "/internal/force_merge", "")?;
        // The merge runs in the background.
        let (mut before, began) = (0, Instant::now());
        loop {
            std::thread::sleep(Duration::from_secs(3));
            let now = folder_bytes(&self.data.join("data"))?;
            if now == before && now > 0 || began.elapsed() > PATIENCE {
                break;
            }
            before = now;
        }
        drop(process);
        folder_bytes(&self.data.join("data")).map(Some)
    }
}

/// The sum of a metric's series in Prometheus' text format.
fn metric(text: &str, name: &str) -> Option<f64> {
    let values = text.lines().filter(|line| line.starts_with(name));
    let values: Vec<f64> = values.filter_map(|line| line.rsplit(' ').next()?.parse().ok()).collect();
    (!values.is_empty()).then(|| values.iter().sum())
}

/// Sends a body to a server on this machine; returns its response.
fn post(port: u16, path: &str, body: &str) -> Result<String> {
    let mut stream = TcpStream::connect(("127.0.0.1", port))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let head = format!(
        "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    let status = response.split(' ').nth(1).context("a status line")?;
    ensure!(status.starts_with('2'), "{path}: {response}");
    Ok(response)
}

/// The length of all files below a folder, in bytes.
fn folder_bytes(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { folder_bytes(&entry.path())? } else { metadata.len() };
    }
    Ok(bytes)
}
