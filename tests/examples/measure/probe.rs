//! The probe's cost on a node, compared with other monitors that read the same readings from the same driver.

use crate::cpu::{CpuClock, rss_mb};
use crate::perf::{Target, record};
use crate::report::Report;
use crate::series::Series;
use anyhow::{Context, Result, bail};
use fake_nvml::install;
use nodeglass_protocol::probe::Control;
use nodeglass_tests::relay::binary;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Number of alternating runs of each compared program.
const ROUNDS: usize = 7;
/// Ticks or snapshots of one run.
const TICKS: &str = "20";
/// Ticks that are profiled.
const PROFILED: u32 = 400;
/// Waiting time until the probe has opened everything and its ring has grown a little.
const WARM_UP: Duration = Duration::from_secs(6);
/// Duration of one CPU measurement: long enough for health (5 s) and process lists (10 s).
const WINDOW: Duration = Duration::from_secs(10);
const WINDOWS: usize = 4;

/// Measures the requested figures.
pub fn measure(report: &Report) -> Result<()> {
    let node = Node::new()?;
    if report.wants(&["probe.cpu_pct_1hz_8gpu", "probe.rss_mb"]) {
        as_it_runs(&node, report)?;
    }
    if report.wants(&["probe.tick_us", "probe.vs_nvitop_cpu_ratio", "probe.vs_gpustat_cpu_ratio"]) {
        beside_peers(&node, report)?;
    }
    Ok(())
}

/// Draws the flame graph of a tick; the argument is its path.
pub fn flame(report: &Report) -> Result<()> {
    let path = report.only().context("where to?")?;
    let node = Node::new()?;
    let mut ticks = node.command(&binary("examples/tick")?);
    ticks.arg(&node.library).arg(PROFILED.to_string());
    let Some(frames) = record(&Target::Command(&ticks))? else { return Ok(()) };
    let title = format!("A tick of a probe with eight busy cards, {PROFILED} together");
    frames.below("main").show(path, &title, f64::from(PROFILED))
}

/// A node of eight busy GPUs with a process on each.
struct Node {
    folder: TempDir,
    library: PathBuf,
    _workers: Vec<Worker>,
}

impl Node {
    fn new() -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let library = install::install(folder.path()).context("install the stand-in driver")?;
        let workers = (0..8).map(|_| Worker::start()).collect::<Result<Vec<_>>>()?;
        let gpu = |worker: &Worker| json!({ "card": "h100", "processes": [{ "pid": worker.0.id(), "mem_mib": 61_440 }] });
        let state = json!({ "motion": true, "gpus": workers.iter().map(gpu).collect::<Vec<_>>() });
        std::fs::write(folder.path().join("state.json"), state.to_string())?;
        Ok(Self { folder, library, _workers: workers })
    }

    /// A command that finds the fake driver instead of the real one.
    fn command(&self, program: &Path) -> Command {
        let mut command = Command::new(program);
        command
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("FAKE_NVML_STATE", self.folder.path().join("state.json"));
        command
    }

    /// The JSON output of a command.
    fn json_of(&self, program: &Path, arguments: &[&str]) -> Result<Value> {
        let output = self.command(program).args(arguments).output();
        let output = output.with_context(|| format!("start {}", program.display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} failed: {stderr}", program.display()))
    }

    fn tick_us(&self) -> Result<f64> {
        let output =
            self.json_of(&binary("examples/tick")?, &[&self.library.display().to_string(), TICKS])?;
        if output["gpus"] != 8 {
            bail!("the fake driver was not found: {output}");
        }
        output["tick_us"].as_f64().context("the cost of a tick")
    }

    fn snapshot_us(&self, python: &Path, peer: &str) -> Result<f64> {
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/snapshot_cost.py");
        let output = self.json_of(python, &[&script.display().to_string(), peer, TICKS])?;
        let costs = output.as_array().context("the costs of snapshots")?;
        Ok(costs.iter().filter_map(Value::as_f64).collect::<Series>().median())
    }
}

/// A process that the fake driver can list.
struct Worker(Child);

impl Worker {
    fn start() -> Result<Self> {
        Ok(Self(Command::new("sleep").arg("3600").spawn().context("start a worker")?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The probe as a relay runs it: a line every second, a ping every five.
fn as_it_runs(node: &Node, report: &Report) -> Result<()> {
    let mut child = node
        .command(&binary("node-probe")?)
        .arg("--nvml")
        .arg(&node.library)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .context("start the probe")?;
    let mut stdin = child.stdin.take().context("stdin was piped")?;
    let mut stdout = child.stdout.take().context("stdout was piped")?;
    let reader = std::thread::spawn(move || std::io::copy(&mut stdout, &mut std::io::sink()));
    send(&mut stdin, &Control::Interval { ms: 1_000, phase_ms: 0 })?;
    std::thread::sleep(WARM_UP);
    let clock = CpuClock::of(child.id())?;
    let mut shares = Series::default();
    for _ in 0..WINDOWS {
        send(&mut stdin, &Control::Ping)?;
        shares.push(clock.share(WINDOW)?);
    }
    report.figure("probe.cpu_pct_1hz_8gpu", &shares);
    report.value("probe.rss_mb", rss_mb(child.id())?, "");
    // It exits when its input closes.
    drop(stdin);
    child.wait().context("wait for the probe")?;
    let read = reader.join().ok().context("the reader of the probe's lines panicked")??;
    if read < 20_000 {
        bail!("the probe printed only {read} bytes: it did not sample");
    }
    Ok(())
}

fn send(stdin: &mut ChildStdin, control: &Control) -> Result<()> {
    let mut line = serde_json::to_vec(control)?;
    line.push(b'\n');
    stdin.write_all(&line).context("write to the probe's stdin")
}

/// In alternation, so that other load affects all of them equally.
fn beside_peers(node: &Node, report: &Report) -> Result<()> {
    let python = std::env::var_os("NODEGLASS_PEERS").map(|bin| Path::new(&bin).join("python"));
    if python.is_none() {
        println!("the peers are not here (no python3), so that our own tick is measured alone");
    }
    let [mut ours, mut nvitop, mut gpustat] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        ours.push(node.tick_us()?);
        if let Some(python) = &python {
            nvitop.push(node.snapshot_us(python, "nvitop")?);
            gpustat.push(node.snapshot_us(python, "gpustat")?);
        }
    }
    report.figure("probe.tick_us", &ours.iter().copied().collect());
    for (peer, theirs) in [("nvitop", &nvitop), ("gpustat", &gpustat)] {
        if theirs.is_empty() {
            continue;
        }
        let ratios: Series = ours.iter().zip(theirs).map(|(ours, theirs)| ours / theirs).collect();
        let theirs: Series = theirs.iter().copied().collect();
        let note = format!("{peer}: {:.0} µs a snapshot", theirs.median());
        report.noted(&format!("probe.vs_{peer}_cpu_ratio"), &ratios, &note);
    }
    Ok(())
}
