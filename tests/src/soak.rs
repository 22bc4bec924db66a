//! A relay's state over many simulated days: fleet, history, stored history and database, by a virtual clock.

use crate::pipeline::Nodes;
use anyhow::{Context, Result, ensure};
use nodeglass_fleet::{Event, Fleet, SessionEvent};
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::job::{GpuSet, Job, JobState, NodeGpus};
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{ProbeLine, Sample};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_store::archive::SegmentWriter;
use nodeglass_store::{Database, Origin};
use std::path::{Path, PathBuf};

const MINUTE_MS: u64 = 60_000;
const HOUR_MS: u64 = 60 * MINUTE_MS;
const DAY_MS: u64 = 24 * HOUR_MS;
/// The scenario's seconds that are repeated.
const SCENARIO_S: u64 = 140;
/// A job runs on this many nodes.
const JOB_NODES: usize = 4;
/// SLURM lists a job this long after its end.
const LISTED_MS: u64 = 5 * MINUTE_MS;
/// Interval of polls of SLURM.
const POLL_MS: u64 = MINUTE_MS;

/// The simulated system.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// Number of nodes, of eight GPUs each.
    pub nodes: usize,
    /// Simulated days.
    pub days: u64,
    /// Sampling interval in ms.
    pub interval_ms: u64,
    /// Memory budget of the history in bytes.
    pub history_budget: usize,
    /// Maximum space of the stored history in bytes.
    pub disk_cap: u64,
}

/// The largest sizes that were seen, by day.
#[derive(Clone, Debug, Default)]
pub struct Sizes {
    /// The history in memory, in bytes.
    pub history_bytes: Vec<usize>,
    /// The stored history, in bytes.
    pub disk_bytes: Vec<u64>,
    /// The database of jobs, in bytes.
    pub database_bytes: Vec<u64>,
    /// Resident memory of this process in bytes.
    pub rss_bytes: Vec<u64>,
    /// Jobs that ended.
    pub jobs: u64,
}

/// A relay's state, and its clock.
pub struct Soak {
    plan: Plan,
    fleet: Fleet,
    segments: SegmentWriter,
    database: Database,
    dir: StateDir,
    /// The folder of the stored history.
    history: PathBuf,
    names: Vec<NodeName>,
    /// Readings of each second of the scenario, equal for all nodes.
    scenario: Vec<Sample>,
    now_ms: u64,
    /// Time of day minus the clock.
    wall_ahead_ms: u64,
    ended: u64,
}

impl Soak {
    /// Begins at the time of day `wall_ms`, as a relay on `host` whose state directory is `folder`.
    ///
    /// # Errors
    /// The folder cannot be used.
    pub fn start(plan: Plan, folder: PathBuf, host: &str, wall_ms: u64) -> Result<Self> {
        let dir = StateDir::at(folder)?;
        let history = dir.dir("history")?.dir(host)?;
        let wall_ahead_ms = wall_ms - CLOCK_STARTS_AT_MS;
        let nodes = Nodes::single()?;
        let one = nodes.names(1).pop().context("the scenario has a node")?;
        let seconds = i64::try_from(SCENARIO_S)?;
        let scenario = (0..seconds).map(|second| nodes.sample(&one, 20 + second)).collect();
        let mut soak = Self {
            plan,
            fleet: Fleet::with_history_budget(plan.history_budget),
            segments: SegmentWriter::new(history.clone(), plan.disk_cap, wall_ahead_ms),
            history: history.path().to_owned(),
            database: Database::open(&dir)?.0,
            dir,
            names: (1..=plan.nodes)
                .map(|node| NodeName::new(format!("n{node:04}")))
                .collect::<Result<_, _>>()?,
            scenario,
            now_ms: CLOCK_STARTS_AT_MS,
            wall_ahead_ms,
            ended: 0,
        };
        soak.poll();
        for (number, name) in soak.names.clone().into_iter().enumerate() {
            soak.send(&name, hello(&nodes, &one, number)?.into());
        }
        Ok(soak)
    }

    /// Lets all days pass.
    ///
    /// # Errors
    /// Something cannot be stored.
    pub fn run(&mut self) -> Result<Sizes> {
        let mut sizes = Sizes::default();
        for _ in 0..self.plan.days {
            let mut largest = (0, 0);
            for _ in 0..DAY_MS / MINUTE_MS {
                self.minute()?;
                largest.0 = largest.0.max(self.fleet.history().len());
                if self.now_ms.is_multiple_of(HOUR_MS) {
                    largest.1 = largest.1.max(size(&self.history, |_| true)?);
                }
            }
            sizes.history_bytes.push(largest.0);
            sizes.disk_bytes.push(largest.1);
            sizes.database_bytes.push(size(self.dir.path(), |name| name.starts_with("jobs.db"))?);
            sizes.rss_bytes.push(rss_bytes()?);
        }
        sizes.jobs = self.ended;
        Ok(sizes)
    }

    /// A minute of samples, a poll, and what is stored then.
    fn minute(&mut self) -> Result<()> {
        let end_ms = self.now_ms + MINUTE_MS;
        while self.now_ms < end_ms {
            self.now_ms += self.plan.interval_ms;
            for number in 0..self.names.len() {
                self.sample(number);
            }
            self.fleet.handle(Event::Tick, self.now_ms);
            drop(self.fleet.take_changes());
        }
        if self.now_ms.is_multiple_of(POLL_MS) {
            self.poll();
        }
        for excerpt in self.fleet.history_mut().take_excerpts(self.now_ms, false) {
            self.segments.store(excerpt, self.now_ms + self.wall_ahead_ms)?;
        }
        let finished = self.fleet.take_finished_records();
        self.ended += finished.len() as u64;
        let origin = Origin { cluster: "soak".to_owned(), host: "login1".to_owned() };
        self.database.save(&origin, &finished)?;
        Ok(())
    }

    fn sample(&mut self, number: usize) {
        // Each node repeats the scenario from another second on.
        let second = (self.now_ms / 1_000 + number as u64 * 17) % SCENARIO_S;
        let sample = Sample {
            seq: self.now_ms / self.plan.interval_ms,
            mono_ns: self.now_ms * 1_000_000,
            wall_ms: self.now_ms + self.wall_ahead_ms,
            interval_ms: self.plan.interval_ms as u32,
            ..self.scenario[second as usize].clone()
        };
        let name = self.names[number].clone();
        self.send(&name, ProbeLine::Sample(Box::new(sample)).into());
    }

    fn send(&mut self, name: &NodeName, line: ParsedLine) {
        self.fleet.handle(Event::Node(name.clone(), SessionEvent::Line(Box::new(line))), self.now_ms);
    }

    /// Hands the fleet SLURM's list: on each group of nodes one job follows another, of 1 to 13 hours.
    fn poll(&mut self) {
        let groups = self.names.chunks(JOB_NODES).enumerate();
        let jobs = groups.flat_map(|(group, nodes)| self.jobs_of(group as u64, nodes)).collect();
        let wall_ahead_ms = self.wall_ahead_ms.cast_signed();
        self.fleet.handle(Event::Jobs { jobs, wall_ahead_ms }, self.now_ms);
    }

    fn jobs_of(&self, group: u64, nodes: &[NodeName]) -> Vec<Job> {
        let since_start_ms = self.now_ms - CLOCK_STARTS_AT_MS;
        let mut jobs = Vec::new();
        let (mut begin_ms, mut number) = (0, 0);
        while begin_ms <= since_start_ms {
            let hours = 1 + (number * 7 + group * 5) % 13;
            let end_ms = begin_ms + hours * HOUR_MS;
            if end_ms + LISTED_MS > since_start_ms {
                let wall_s =
                    |at_ms: u64| ((CLOCK_STARTS_AT_MS + at_ms + self.wall_ahead_ms) / 1_000).cast_signed();
                let has_ended = end_ms <= since_start_ms;
                let state = if has_ended { JobState::Ended("COMPLETED".into()) } else { JobState::Running };
                let id = JobId((1_000 + number * 100 + group) as u32);
                jobs.push(Job {
                    nodes: nodes.to_vec(),
                    gpus: nodes
                        .iter()
                        .map(|node| NodeGpus { node: node.clone(), set: GpuSet::Indices((0..8).collect()) })
                        .collect(),
                    start: Some(wall_s(begin_ms)),
                    ended: has_ended.then(|| wall_s(end_ms)),
                    ..Job::new(id, "alice".into(), state)
                });
            }
            (begin_ms, number) = (end_ms, number + 1);
        }
        jobs
    }
}

/// The hello of a node of the scenario, with GPUs of its own.
fn hello(nodes: &Nodes, one: &NodeName, number: usize) -> Result<ProbeLine> {
    let mut hello = nodes.hello(one).context("the node is described")?;
    if let ProbeLine::Hello(hello) = &mut hello {
        for (position, gpu) in hello.gpus.iter_mut().enumerate() {
            gpu.uuid = nodeglass_protocol::GpuUuid::new(format!("GPU-{number}-{position}"));
        }
    }
    Ok(hello)
}

/// The length of the files of a folder whose names match, in bytes.
fn size(folder: &Path, is_counted: impl Fn(&str) -> bool) -> Result<u64> {
    let mut bytes = 0;
    for entry in std::fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        if metadata.is_file() && is_counted(&entry.file_name().to_string_lossy()) {
            bytes += metadata.len();
        }
    }
    Ok(bytes)
}

/// Resident memory of this process, from `/proc/self/statm`.
fn rss_bytes() -> Result<u64> {
    let statm = std::fs::read_to_string("/proc/self/statm")?;
    let pages = statm.split(' ').nth(1).context("statm has a second field")?;
    let pages: u64 = pages.parse()?;
    ensure!(pages > 0, "a process uses memory");
    Ok(pages * rustix::param::page_size() as u64)
}
