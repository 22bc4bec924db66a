//! A job of scripted nodes is heard by a fleet and told to a viewer without socket, thread or clock: for whoever counts and measures.

use anyhow::{Context, Result};
use node_probe::output;
use node_probe::ring::Ring;
use node_probe::sampler::{ProcessUpdate, Sampler};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::live::{ServerMessage, Topic};
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::probe::{ProbeLine, ProcessList, Sample};
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_relay::fleet::{Event, Fleet};
use nodeglass_relay::hub::{Encoded, TopicFeed};
use nodeglass_relay::launch::scripted::{LARGE, Scenario, ScenarioTime};
use nodeglass_relay::nodes::NodeEvent;
use nodeglass_relay::share::Eyes;

/// The relay's clock when it all begins.
const BEGAN_MS: u64 = 10_000_000;
/// Time from a whole second until what came in is told.
const TOLD_AFTER_MS: u64 = 15;

/// One such node that trains without a break, for whoever plays a thousand of them.
const ALONE: &str = r#"
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

/// Nodes with eight H100 each, as the scenario `large` plays them.
#[derive(Debug)]
pub struct Nodes(Scenario);

impl Nodes {
    /// The nodes of the scenario.
    ///
    /// # Errors
    /// When the scenario does not make sense.
    pub fn scripted() -> Result<Self> {
        Ok(Self(Scenario::from_toml(LARGE)?))
    }

    /// A single one, which is quick to make.
    ///
    /// # Errors
    /// When the scenario does not make sense.
    pub fn alone() -> Result<Self> {
        Ok(Self(Scenario::from_toml(ALONE)?))
    }

    /// The first so many names.
    pub fn names(&self, count: usize) -> Vec<NodeName> {
        self.0.node_names().take(count).cloned().collect()
    }

    /// Who a node says it is.
    pub fn hello(&self, name: &NodeName) -> Option<ProbeLine> {
        Some(ProbeLine::Hello(Box::new(self.0.hello(name, at(0))?)))
    }

    /// What its cards and its host read at a second.
    pub fn sample(&self, name: &NodeName, second: i64) -> Sample {
        let sample = self.0.sample(name, at(second)).unwrap_or_default();
        Sample { seq: second.unsigned_abs(), interval_ms: 1_000, ..sample }
    }

    /// Everything that its probe has to tell at a second, in its rhythm: processes each 2 s, health each 5 s.
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

/// What a probe makes of what it has to tell: lines that leave out what is as it was.
#[derive(Debug)]
pub struct Printer {
    sampler: Sampler,
    told_ns: u64,
}

impl Default for Printer {
    fn default() -> Self {
        Self { sampler: Sampler::new(1, 1, Ring::default()), told_ns: 0 }
    }
}

impl Printer {
    /// Appends lines as a probe prints them.
    pub fn print(&mut self, lines: Vec<ProbeLine>, bytes: &mut Vec<u8>) {
        for line in lines {
            match line {
                ProbeLine::Sample(sample) => {
                    self.told_ns = sample.mono_ns;
                    bytes.extend(self.sampler.line(*sample));
                }
                ProbeLine::Processes(list) => {
                    match self.sampler.processes(ProcessList { mono_ns: self.told_ns, ..list }) {
                        Some(ProcessUpdate::Readings(line)) => bytes.extend(line),
                        Some(ProcessUpdate::List(list)) => {
                            output::encode(&list, bytes);
                        }
                        None => {}
                    }
                }
                ProbeLine::Health(report) => {
                    if let Some(line) = self.sampler.health(self.told_ns, report.gpus) {
                        output::encode(&line, bytes);
                    }
                }
                other => {
                    output::encode(&other, bytes);
                }
            }
        }
    }

    /// The lines as a relay hears them.
    ///
    /// # Errors
    /// When what was printed cannot be read.
    pub fn heard(&mut self, lines: Vec<ProbeLine>) -> Result<Vec<ParsedLine>> {
        let mut bytes = Vec::new();
        self.print(lines, &mut bytes);
        let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
        lines.map(|line| serde_json::from_slice(line).context("read what was printed")).collect()
    }
}

fn at(second: i64) -> ScenarioTime {
    ScenarioTime { t_ms: second * 1_000, start_wall_ms: 0 }
}

/// A fleet whose one job is on all its nodes, and what somebody gets who looks at that job.
#[derive(Debug)]
pub struct Stage {
    fleet: Fleet,
    feed: TopicFeed,
    names: Vec<NodeName>,
    now_ms: u64,
}

impl Stage {
    /// A stage of `names`, each of which has said these lines already.
    ///
    /// # Errors
    /// When the job is not there, which would be the fleet's fault.
    pub fn new(names: Vec<NodeName>, said: impl Fn(&NodeName) -> Vec<ProbeLine>) -> Result<Self> {
        let mut fleet = Fleet::new();
        let job = Job { nodes: names.clone(), ..Job::new(JobId(1), "alice".into(), JobState::Running) };
        fleet.handle(Event::Jobs { jobs: vec![job], wall_s: 0 }, BEGAN_MS);
        for name in &names {
            said(name).into_iter().for_each(|line| hear(&mut fleet, name, line.into(), BEGAN_MS));
        }
        fleet.take_changes();
        let feed = TopicFeed::open(Topic::Job(JobId(1)), Eyes::Owner, 1, usize::MAX, &fleet, BEGAN_MS)
            .context("the job is there")?;
        Ok(Self { fleet, feed, names, now_ms: BEGAN_MS })
    }

    /// Its nodes.
    pub fn names(&self) -> &[NodeName] {
        &self.names
    }

    /// What a viewer gets first.
    ///
    /// # Errors
    /// When the job is gone, which would be the fleet's fault.
    pub fn snapshot(&mut self) -> Result<ServerMessage> {
        let frame = self.feed.whole(&self.fleet, Form::Binary).context("the job is there")?;
        Ok(Form::Binary.decode(&frame)?)
    }

    /// The next second begins.
    pub fn next_second(&mut self) {
        self.now_ms += 1_000;
    }

    /// A line of a node comes in, a few ms after those of others.
    pub fn hear(&mut self, node: usize, line: ParsedLine) {
        let late_ms = (node as u64 * 7 + self.now_ms / 1_000 * 13) % 9;
        hear(&mut self.fleet, &self.names[node], line, self.now_ms + 2 + late_ms);
    }

    /// What the viewer is told of what came in.
    pub fn tell(&mut self) -> Option<Encoded> {
        let changes = self.fleet.take_changes();
        self.feed.advance(&self.fleet, &changes, self.now_ms + TOLD_AFTER_MS, false)
    }
}

fn hear(fleet: &mut Fleet, name: &NodeName, line: ParsedLine, now_ms: u64) {
    fleet.handle(Event::Node(name.clone(), NodeEvent::Line(Box::new(line))), now_ms);
}
