//! Runs scripted nodes through probe encoder, fleet and feed without socket, thread or clock, for
//! benchmarks.

use anyhow::{Context, Result};
use node_probe::output;
use node_probe::sampler::{HandoverState, ProcessUpdate, Sampler};
use nodeglass_fleet::SessionEvent;
use nodeglass_fleet::{Event, Fleet};
use nodeglass_live::{Encoded, TopicFeed};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{ProbeLine, ProcessList, Sample};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_share::Viewer;
use nodeglass_sim::{LARGE, Scenario, ScenarioTime};

/// The job of a [`Pipeline`].
pub const JOB: JobId = JobId(1);
/// The relay's clock at the start.
const START_MS: u64 = 10_000_000;
/// Delay from a whole second until changes are published.
const PUBLISH_AFTER_MS: u64 = 15;

/// A single node that trains without a break, for simulations of a thousand.
const SINGLE_NODE: &str = r#"
cluster = "played"
user = "alice"
seed = 7
cycle = "15m"

[[node]]
name = "gpu-001"
model = "h100"
gpus = 8
cpus = 112
mem_gib = 2015

[[job]]
id = 7
name = "train"
partition = "gpu"
submitted = "-2h"
start = "-1h"
limit = "1d"
nodes = "gpu-001"
behaviour = "training"
memory_pct = 92
args = "python3 train.py"
"#;

/// Nodes with eight H100 each, as in the scenario `large`.
#[derive(Debug)]
pub struct Nodes(Scenario);

impl Nodes {
    /// The nodes of the scenario.
    ///
    /// # Errors
    /// If the scenario is invalid.
    pub fn scripted() -> Result<Self> {
        Ok(Self(Scenario::from_toml(LARGE)?))
    }

    /// A single node, which is fast to create.
    ///
    /// # Errors
    /// If the scenario is invalid.
    pub fn single() -> Result<Self> {
        Ok(Self(Scenario::from_toml(SINGLE_NODE)?))
    }

    /// The first `count` names.
    pub fn names(&self, count: usize) -> Vec<NodeName> {
        self.0.node_names().take(count).cloned().collect()
    }

    /// The hello of a node.
    pub fn hello(&self, name: &NodeName) -> Option<ProbeLine> {
        Some(ProbeLine::Hello(Box::new(self.0.hello(name, at(0))?)))
    }

    /// The readings of its GPUs and host at a second.
    pub fn sample(&self, name: &NodeName, second: i64) -> Sample {
        let sample = self.0.sample(name, at(second)).unwrap_or_default();
        Sample { seq: second.unsigned_abs(), interval_ms: 1_000, ..sample }
    }

    /// All lines of its probe at a second: samples each second, processes every 2 s, health every 5 s.
    pub fn lines(&self, name: &NodeName, second: i64) -> Vec<ProbeLine> {
        let mut lines = vec![ProbeLine::Sample(Box::new(self.sample(name, second)))];
        if second % 2 == 0 {
            lines.extend(self.0.processes(name, at(second)).map(ProbeLine::Processes));
        }
        if second % 5 == 0 {
            lines.extend(self.0.health(name, at(second)).map(ProbeLine::Health));
        }
        lines
    }
}

/// Encodes lines as a probe does, omitting unchanged values.
#[derive(Debug)]
pub struct ProbeEncoder {
    sampler: Sampler,
    sampled_ns: u64,
}

impl Default for ProbeEncoder {
    fn default() -> Self {
        Self { sampler: Sampler::new(HandoverState::new(1)), sampled_ns: 0 }
    }
}

impl ProbeEncoder {
    /// Encodes lines.
    pub fn encode(&mut self, lines: Vec<ProbeLine>, bytes: &mut Vec<u8>) {
        for line in lines {
            match line {
                ProbeLine::Sample(sample) => {
                    self.sampled_ns = sample.mono_ns;
                    bytes.extend(self.sampler.line(*sample));
                }
                ProbeLine::Processes(list) => {
                    match self.sampler.processes(ProcessList { mono_ns: self.sampled_ns, ..list }) {
                        Some(ProcessUpdate::Readings(line)) => bytes.extend(line),
                        Some(ProcessUpdate::List(list)) => {
                            output::encode(&list, bytes);
                        }
                        None => {}
                    }
                }
                ProbeLine::Health(report) => {
                    if let Some(line) = self.sampler.health(self.sampled_ns, report.gpus) {
                        output::encode(&line, bytes);
                    }
                }
                other => {
                    output::encode(&other, bytes);
                }
            }
        }
    }

    /// Encodes lines and parses them as a relay does.
    ///
    /// # Errors
    /// If the output cannot be parsed.
    pub fn round_trip(&mut self, lines: Vec<ProbeLine>) -> Result<Vec<ParsedLine>> {
        let mut bytes = Vec::new();
        self.encode(lines, &mut bytes);
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).context("read what was printed")).collect()
    }
}

fn at(second: i64) -> ScenarioTime {
    ScenarioTime { t_ms: second * 1_000, start_wall_ms: 0 }
}

/// A fleet with one job on all nodes, and a feed of that job or of the overview.
#[derive(Debug)]
pub struct Pipeline {
    fleet: Fleet,
    feed: TopicFeed,
    names: Vec<NodeName>,
    now_ms: u64,
}

impl Pipeline {
    /// A pipeline of `names`, each of which has sent these lines.
    ///
    /// # Errors
    /// If the job is missing, which would be a bug of the fleet.
    pub fn new(names: Vec<NodeName>, initial_lines: impl Fn(&NodeName) -> Vec<ProbeLine>) -> Result<Self> {
        Self::of_topic(Topic::Job(JOB), names, initial_lines)
    }

    /// Creates it with a feed of another topic.
    ///
    /// # Errors
    /// If the topic does not exist.
    pub fn of_topic(
        topic: Topic,
        names: Vec<NodeName>,
        initial_lines: impl Fn(&NodeName) -> Vec<ProbeLine>,
    ) -> Result<Self> {
        let mut fleet = Fleet::new();
        let job = Job { nodes: names.clone(), ..Job::new(JOB, "alice".into(), JobState::Running) };
        fleet.handle(Event::Jobs { jobs: vec![job], wall_ahead_ms: 0 }, START_MS);
        for name in &names {
            initial_lines(name).into_iter().for_each(|line| receive(&mut fleet, name, line.into(), START_MS));
        }
        fleet.take_changes();
        let feed = TopicFeed::open(topic, Viewer::Owner, 1, usize::MAX, &fleet, START_MS)
            .context("there is no such topic")?;
        Ok(Self { fleet, feed, names, now_ms: START_MS })
    }

    /// Its nodes.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// The initial snapshot.
    ///
    /// # Errors
    /// If the job is gone, which would be a bug of the fleet.
    pub fn snapshot(&mut self) -> Result<ServerMessage> {
        Ok(Form::Binary.decode(&self.snapshot_frame()?)?)
    }

    /// The frame of the current snapshot with the complete history.
    ///
    /// # Errors
    /// If the topic is gone, which would be a bug of the fleet.
    pub fn snapshot_frame(&mut self) -> Result<Vec<u8>> {
        Ok(self.feed.full_snapshot(&self.fleet, Form::Binary).context("the topic is there")?.to_vec())
    }

    /// Advances the clock by a second.
    pub fn next_second(&mut self) {
        self.now_ms += 1_000;
    }

    /// Receives a line of a node, a few ms after the lines of others.
    pub fn receive(&mut self, node: usize, line: ParsedLine) {
        let late_ms = (node as u64 * 7 + self.now_ms / 1_000 * 13) % 9;
        receive(&mut self.fleet, &self.names[node], line, self.now_ms + 2 + late_ms);
    }

    /// Publishes the received changes.
    pub fn publish(&mut self) -> Option<Encoded> {
        let changes = self.fleet.take_changes();
        self.feed.advance(&self.fleet, &changes, self.now_ms + PUBLISH_AFTER_MS, false)
    }
}

fn receive(fleet: &mut Fleet, name: &NodeName, line: ParsedLine, now_ms: u64) {
    fleet.handle(Event::Node(name.clone(), SessionEvent::Line(Box::new(line))), now_ms);
}
