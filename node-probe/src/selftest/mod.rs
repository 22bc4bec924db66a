//! Compares every reading of this probe with those of `nvidia-smi` and nvidia-ml-py, at rest and under a load that it
//! makes itself.
//!
//! References are read before and after each report of the probe, so that [`judge`] can tell values that moved between two
//! reads from those that differ. Nothing of a reference is code of the probe.

mod cuda;
mod judge;
pub mod load;
mod nvidia_ml_py;
mod nvidia_smi;
mod report;
mod snapshot;

use crate::{build, clock, process::stat};
use judge::{Observed, Round, Verdict, judge};
use load::{Load, Policy};
use nvidia_ml_py::NvidiaMlPy;
use nvidia_smi::NvidiaSmi;
use report::{Comparison, Outcome};
use snapshot::{Key, OnceReport, Snapshot, tolerance};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

/// Rounds of a phase, unless its time is over before.
const ROUNDS: u32 = 20;
/// Maximum duration of a phase.
const PHASE: Duration = Duration::from_secs(55);
/// Maximum duration of the check; a call of a driver that hangs ends it.
const MAX_CHECK: Duration = Duration::from_secs(175);
/// Time in which windows of the driver, of up to one second, fill with the load.
const SETTLE: Duration = Duration::from_secs(3);
/// Maximum pause before a report of the probe.
const MAX_PAUSE: Duration = Duration::from_millis(800);
/// Utilisation in % that shows a load.
const LOADED: f64 = 50.0;
/// Nanoseconds of a tick of CPU time.
const TICK_NS: u64 = stat::TICK_MS * 1_000_000;

/// Options of the check.
#[derive(Debug)]
pub struct Options {
    /// NVML library to load instead of the driver's.
    pub nvml: Option<PathBuf>,
    /// CUDA driver library.
    pub cuda: PathBuf,
    /// When a GPU is loaded.
    pub load: Policy,
    /// File of the report.
    pub out: PathBuf,
    /// Rounds of a phase, if not the usual number.
    pub rounds: Option<u32>,
}

/// Result of a check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Conclusion {
    /// All readings are equal, or their difference is explained.
    Agrees,
    /// A reading differs.
    Differs,
    /// There is no GPU, or nothing to compare it with.
    NothingToCompare,
}

/// Runs the check and prints its table.
///
/// # Errors
/// If a program cannot be started or fails, or the report cannot be written.
pub fn run(options: &Options) -> io::Result<Conclusion> {
    end_in_time();
    // First, because its memory is that of the largest child so far.
    let smi = NvidiaSmi::open();
    let probe = Probe { nvml: options.nvml.clone() };
    let first = probe.once()?;
    if first.gpus().next().is_none() {
        eprintln!("node-probe: no NVIDIA GPU can be read here: {}", first.0["hello"]["sources"]);
        return Ok(Conclusion::NothingToCompare);
    }
    let python = NvidiaMlPy::start(options.nvml.as_deref());
    let mut check = Check::new(options, probe, &first)?;
    check.outcome.head = head(&first)?;
    match smi {
        Some(smi) => check.references.push(Reference::Smi(smi)),
        None => check.outcome.head.push("nvidia-smi: not found, or it fails".into()),
    }
    match python {
        Ok(python) => check.references.push(Reference::Python(python)),
        Err(why) => check.outcome.head.push(format!("nvidia-ml-py: not used: {why}")),
    }
    if check.references.is_empty() {
        check.outcome.head.iter().for_each(|line| eprintln!("{line}"));
        eprintln!("node-probe: there is neither nvidia-smi nor nvidia-ml-py to compare with");
        return Ok(Conclusion::NothingToCompare);
    }
    let reports = check.phase("at rest")?;
    check.loaded_phase(&reports)?;
    check.finish(&options.out)
}

/// Ends the process if the check takes too long; children end with their pipes.
fn end_in_time() {
    thread::spawn(|| {
        thread::sleep(MAX_CHECK);
        eprintln!(
            "node-probe: the check did not end in {} s: a call of the driver hangs",
            MAX_CHECK.as_secs()
        );
        std::process::exit(1);
    });
}

/// Lines about the machine, without its name.
fn head(report: &OnceReport) -> io::Result<Vec<String>> {
    let hello = &report.0["hello"];
    let versions =
        hello["sources"].as_array().into_iter().flatten().find(|source| source["vendor"] == "nvidia");
    let versions = versions.map(|source| &source["status"]["ready"]);
    let text =
        |name: &str| versions.and_then(|versions| versions[name].as_str()).unwrap_or("unknown").to_owned();
    let mut lines = vec![
        format!(
            "node-probe {} ({}), Linux {}",
            env!("CARGO_PKG_VERSION"),
            build::own()?,
            hello["kernel"].as_str().unwrap_or("?")
        ),
        format!("driver {}, NVML {}, CUDA {}", text("driver"), text("library"), text("platform")),
    ];
    let labels = report.labels();
    for (_, facts) in report.gpus() {
        let label = facts["uuid"].as_str().and_then(|uuid| labels.get(uuid));
        lines.push(format!(
            "{}: {}",
            label.map_or("?", String::as_str),
            facts["name"].as_str().unwrap_or("unknown model")
        ));
    }
    Ok(lines)
}

/// This program as a probe.
struct Probe {
    nvml: Option<PathBuf>,
}

impl Probe {
    fn command(&self) -> io::Result<Command> {
        let mut command = Command::new(std::env::current_exe()?);
        if let Some(nvml) = &self.nvml {
            command.arg("--nvml").arg(nvml);
        }
        Ok(command)
    }

    fn once(&self) -> io::Result<OnceReport> {
        let output = self.command()?.args(["--once", "--json"]).stdin(Stdio::null()).output()?;
        let report = serde_json::from_slice(&output.stdout);
        report
            .map(OnceReport)
            .map_err(|_| io::Error::other(String::from_utf8_lossy(&output.stderr).into_owned()))
    }

    /// A probe that samples once a second as on a cluster, whose cost is measured. It also keeps the driver loaded.
    fn stream(&self) -> io::Result<Child> {
        self.command()?.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    }
}

/// A client of the driver to compare with.
enum Reference {
    Smi(NvidiaSmi),
    Python(NvidiaMlPy),
}

impl Reference {
    fn name(&self) -> &'static str {
        match self {
            Self::Smi(_) => "nvidia-smi",
            Self::Python(_) => "nvidia-ml-py",
        }
    }

    fn snapshot(&mut self) -> io::Result<Snapshot> {
        let snapshot = match self {
            Self::Smi(smi) => smi.snapshot(),
            Self::Python(python) => python.snapshot(),
        };
        snapshot.map_err(|error| io::Error::other(format!("{}: {error}", self.name())))
    }

    fn step(&self, key: &Key) -> f64 {
        match self {
            Self::Smi(smi) => smi.step(key),
            Self::Python(_) => 0.0,
        }
    }

    /// Returns whether a reading is left out: `nvidia-smi` lists processes of instances under the GPU.
    fn leaves_out(&self, key: &Key, report: &OnceReport) -> bool {
        let is_divided = |(_, facts): (usize, &serde_json::Map<String, serde_json::Value>)| {
            facts["uuid"] == key.gpu.as_str() && facts["mig_mode"] == true
        };
        matches!(self, Self::Smi(_)) && key.pid.is_some() && report.gpus().any(is_divided)
    }

    /// Returns whether it should have a reading of a report.
    fn lists(&self, key: &Key, report: &OnceReport) -> bool {
        match self {
            Self::Smi(smi) => smi.lists(key, report),
            Self::Python(_) => true,
        }
    }
}

/// CPU time in ticks and memory in pages of a running process, at a time in ns.
struct Usage {
    pid: u32,
    ticks: u64,
    at_ns: u64,
}

impl Usage {
    fn begin(pid: u32) -> Self {
        let ticks = stat::Stat::of(Path::new("/proc"), pid).map_or(0, |stat| stat.cpu_ticks);
        Self { pid, ticks, at_ns: clock::mono_ns() }
    }

    /// CPU in % of a core since it began, and memory in MiB.
    fn describe(&self) -> String {
        let Some(now) = stat::Stat::of(Path::new("/proc"), self.pid) else { return "ended".into() };
        let cpu = now.cpu_ticks.saturating_sub(self.ticks) * TICK_NS;
        let share = cpu as f64 * 100.0 / clock::mono_ns().saturating_sub(self.at_ns).max(1) as f64;
        let mib = now.rss_pages as f64 * rustix::param::page_size() as f64 / 1_048_576.0;
        format!("{share:.2} % of a core, {mib:.1} MiB")
    }
}

/// A check in progress.
struct Check {
    probe: Probe,
    stream: Child,
    usage: Usage,
    python_usage: Option<Usage>,
    references: Vec<Reference>,
    labels: BTreeMap<String, String>,
    rounds: u32,
    policy: Policy,
    cuda: PathBuf,
    outcome: Outcome,
}

impl Drop for Check {
    fn drop(&mut self) {
        let _ = self.stream.kill();
        let _ = self.stream.wait();
    }
}

impl Check {
    fn new(options: &Options, probe: Probe, first: &OnceReport) -> io::Result<Self> {
        let stream = probe.stream()?;
        let usage = Usage::begin(stream.id());
        Ok(Self {
            probe,
            stream,
            usage,
            python_usage: None,
            references: Vec::new(),
            labels: first.labels(),
            rounds: options.rounds.unwrap_or(ROUNDS),
            policy: options.load,
            cuda: options.cuda.clone(),
            outcome: Outcome::default(),
        })
    }

    fn snapshot(&mut self) -> io::Result<Vec<Snapshot>> {
        // It counts as a sign of life of a relay.
        if let Some(stdin) = &mut self.stream.stdin {
            let _ = writeln!(stdin, "\"ping\"");
        }
        self.references.iter_mut().map(Reference::snapshot).collect()
    }

    /// Reads and judges all rounds of a phase; returns the reports.
    fn phase(&mut self, phase: &'static str) -> io::Result<Vec<OnceReport>> {
        eprintln!("node-probe: comparing {phase} …");
        // The first snapshot begins the windows of rates, which must last for 100 ms.
        self.snapshot()?;
        thread::sleep(MAX_PAUSE);
        // The cost of starting is not that of reading.
        if self.outcome.comparisons.is_empty() {
            self.usage = Usage::begin(self.stream.id());
            self.python_usage = self.references.iter().find_map(|reference| match reference {
                Reference::Python(python) => Some(Usage::begin(python.pid())),
                Reference::Smi(_) => None,
            });
        }
        let (start, mut snapshots, mut reports) = (Instant::now(), vec![self.snapshot()?], Vec::new());
        for _ in 0..self.rounds {
            pause();
            reports.push(self.probe.once()?);
            snapshots.push(self.snapshot()?);
            if start.elapsed() > PHASE {
                break;
            }
        }
        for at in 0..self.references.len() {
            let of: Vec<&Snapshot> = snapshots.iter().map(|snapshot| &snapshot[at]).collect();
            let comparisons = compare(&self.references[at], &of, &reports, phase, &self.labels);
            self.outcome.comparisons.extend(comparisons);
        }
        Ok(reports)
    }

    /// Repeats the comparison while a GPU is loaded, if one may be.
    fn loaded_phase(&mut self, reports: &[OnceReport]) -> io::Result<()> {
        let load = load::target(reports, self.policy).and_then(|target| {
            Ok((Load::start(&self.cuda, &target).map_err(|why| why.to_string())?, target))
        });
        let (load, target) = match load {
            Ok(load) => load,
            Err(why) => {
                self.outcome.head.push(format!("load: none, measured at rest only: {why}"));
                return Ok(());
            }
        };
        thread::sleep(SETTLE);
        self.phase("under load")?;
        drop(load);
        let label = self.labels.get(&target.gpu).cloned().unwrap_or_default();
        let is_util = |comparison: &&Comparison| {
            comparison.name == "util_pct" && comparison.gpu == label && comparison.phase == "under load"
        };
        let rounds =
            self.outcome.comparisons.iter().filter(is_util).flat_map(|comparison| &comparison.rounds);
        let is_loaded = |round: &Round| matches!(round.after, Observed::Number(util) if util >= LOADED);
        let note = if rounds.into_iter().any(is_loaded) {
            ""
        } else {
            ", which the references do not show as utilisation"
        };
        self.outcome.head.push(format!("load: {label} by a kernel of this program{note}"));
        Ok(())
    }

    fn finish(&mut self, out: &Path) -> io::Result<Conclusion> {
        self.outcome.costs.push(format!("node-probe, once a second: {}", self.usage.describe()));
        for reference in &self.references {
            self.outcome.costs.push(match (reference, &self.python_usage) {
                (Reference::Smi(smi), _) => format!(
                    "nvidia-smi, each snapshot: {:.1} ms CPU, {:.1} MiB",
                    smi.cpu_per_look().as_secs_f64() * 1_000.0,
                    smi.rss_bytes as f64 / 1_048_576.0
                ),
                (Reference::Python(python), usage) => format!(
                    "nvidia-ml-py {}, at each round: {}",
                    python.version,
                    usage.as_ref().map_or_else(String::new, Usage::describe)
                ),
            });
        }
        fs::write(out, self.outcome.report())?;
        writeln!(io::stdout(), "{}\nreport: {}", self.outcome.table(), out.display())?;
        Ok(if self.outcome.is_different() { Conclusion::Differs } else { Conclusion::Agrees })
    }
}

/// Waits for a random time, so that the load of a GPU that repeats every second does not pass for a bias.
fn pause() {
    let random = getrandom::u32().unwrap_or_else(|_| clock::mono_ns() as u32);
    thread::sleep(MAX_PAUSE.mul_f64(f64::from(random) / f64::from(u32::MAX)));
}

/// Judges all readings that a reference has, and those of the probe that it should have.
fn compare(
    reference: &Reference,
    snapshots: &[&Snapshot],
    reports: &[OnceReport],
    phase: &'static str,
    labels: &BTreeMap<String, String>,
) -> Vec<Comparison> {
    let ours: Vec<Snapshot> = reports.iter().map(OnceReport::snapshot).collect();
    let mut keys: BTreeSet<&Key> = snapshots.iter().flat_map(|snapshot| snapshot.keys()).collect();
    for (snapshot, report) in ours.iter().zip(reports) {
        keys.extend(snapshot.keys().filter(|key| reference.lists(key, report)));
    }
    keys.retain(|key| !reports.iter().any(|report| reference.leaves_out(key, report)));
    let value = |snapshot: &Snapshot, key: &Key| {
        snapshot.get(key).cloned().unwrap_or_else(|| Observed::Absent("not listed".into()))
    };
    let comparison = |key: &Key| {
        let rounds: Vec<Round> = ours
            .iter()
            .zip(snapshots.windows(2))
            .map(|(probe, around)| Round {
                before: value(around[0], key),
                probe: value(probe, key),
                after: value(around[1], key),
            })
            .collect();
        Comparison {
            name: key.name.clone(),
            gpu: labels.get(&key.gpu).cloned().unwrap_or_else(|| "another".into()),
            pid: key.pid,
            reference: reference.name(),
            phase,
            verdict: explained_by_unified_memory(
                judge(&rounds, tolerance(key, reference.step(key))),
                key,
                reports,
            ),
            rounds,
        }
    };
    keys.into_iter().map(comparison).collect()
}

/// For a GPU with the host's memory, of which NVML states nothing, the probe adds up its processes.
fn explained_by_unified_memory(verdict: Verdict, key: &Key, reports: &[OnceReport]) -> Verdict {
    let is_unified = |report: &OnceReport| {
        report.gpus().any(|(_, facts)| facts["uuid"] == key.gpu.as_str() && facts["unified_memory"] == true)
    };
    let is_memory = ["mem_used_bytes", "mem_total_bytes"].contains(&key.name.as_str());
    match verdict {
        Verdict::Different(why)
            if why == judge::ONLY_PROBE && is_memory && reports.iter().any(is_unified) =>
        {
            Verdict::Explained("unified memory: the probe adds up the processes".into())
        }
        verdict => verdict,
    }
}
