//! Plays a scenario through simulated probes, their lines and the fleet, by a virtual clock.

use anyhow::{Context, Result};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::capture::{CaptureRequest, StackReader};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::request::{ProbeRequest, Response};
use nodeglass_relay::findings::capture::{NodeAnswer, Target, summary};
use nodeglass_relay::fleet::{Event, Fleet, NodeEvent};
use nodeglass_sim::{Cluster, Scenario, ScenarioTime, SimulatedProbe};
use std::collections::BTreeMap;

/// Time of day at which a scenario starts, in ms since 1970.
pub(super) const START_WALL_MS: i64 = 1_790_000_000_000;
/// How often SLURM is polled, in ms.
const POLL_MS: u64 = 20_000;
/// How often a lost node is connected again, in ms.
const RETRY_MS: u64 = 8_000;

/// When a finding was listed, and since when it holds, in s of the scenario.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// What it is about.
    pub kind: FindingKind,
    /// When it was listed.
    pub found_s: i64,
    /// What it says.
    pub title: String,
    /// Where the processes of its job stood when it began, a line for each group.
    pub stands: Vec<String>,
}

/// The link to a node.
enum Link {
    Up(Box<SimulatedProbe>),
    Down { retry_ms: u64, failures: u32 },
}

/// Plays a scenario for some minutes with samples every `interval_ms`, and returns each finding when it was first
/// listed.
///
/// # Errors
/// The scenario is invalid, or a probe prints what cannot be read.
pub fn play(toml: &str, minutes: u64, interval_ms: u64) -> Result<Vec<Observed>> {
    let cluster = Cluster::new(Scenario::from_toml(toml)?);
    let names: Vec<NodeName> = cluster.scenario().node_names().cloned().collect();
    let mut links: Vec<Link> = names.iter().map(|_| Link::Down { retry_ms: 0, failures: 0 }).collect();
    let mut fleet = Fleet::new();
    let mut observed: BTreeMap<String, Observed> = BTreeMap::new();
    let start_wall_ms = START_WALL_MS;
    for elapsed_ms in (0..minutes * 60_000).step_by(interval_ms as usize) {
        let at = ScenarioTime { t_ms: elapsed_ms.cast_signed(), start_wall_ms };
        let now_ms = CLOCK_STARTS_AT_MS + elapsed_ms;
        if elapsed_ms % POLL_MS == 0 {
            let wall_ahead_ms = start_wall_ms - CLOCK_STARTS_AT_MS.cast_signed();
            fleet.handle(Event::Jobs { jobs: cluster.scenario().jobs(at), wall_ahead_ms }, now_ms);
        }
        for (name, link) in names.iter().zip(&mut links) {
            if fleet.node(name).is_some() {
                step(&cluster, &mut fleet, (name, interval_ms), link, at, now_ms)?;
            }
        }
        fleet.handle(Event::Tick, now_ms);
        capture(&cluster, &mut fleet, at, now_ms);
        drop(fleet.take_changes());
        note(&mut observed, &fleet, elapsed_ms);
    }
    Ok(observed.into_values().collect())
}

/// Notes what is listed for the first time, by its key.
pub(super) fn note(observed: &mut BTreeMap<String, Observed>, fleet: &Fleet, elapsed_ms: u64) {
    for finding in fleet.findings() {
        let observed = observed.entry(finding.key.to_string()).or_insert_with(|| Observed {
            kind: finding.kind,
            found_s: elapsed_ms.cast_signed() / 1_000,
            title: finding.title.to_string(),
            stands: Vec::new(),
        });
        if let Some(capture) = &finding.capture {
            observed.stands = capture.lines().collect();
        }
    }
}

/// Captures what the processes of jobs do, as the relay's task does.
fn capture(cluster: &Cluster, fleet: &mut Fleet, at: ScenarioTime, now_ms: u64) {
    let scenario = cluster.scenario();
    for order in fleet.due_captures(scenario.user().as_str(), now_ms) {
        let job = order.job;
        let answer_of = |(node, targets): (NodeName, Vec<_>)| {
            let processes = targets.iter().map(|target: &Target| target.process).collect();
            let request =
                ProbeRequest::Capture(CaptureRequest { job, processes, stacks: StackReader::OnPath });
            let answer = match scenario.respond(&node, at, &request) {
                Some(Response::Capture(capture)) => Ok(*capture),
                other => Err(format!("{other:?}").into()),
            };
            NodeAnswer { node, targets, answer }
        };
        let answers: Vec<NodeAnswer> = order.nodes.into_iter().map(answer_of).collect();
        let capture = Box::new(summary(at.wall_ms(), &answers));
        fleet.handle(Event::Capture { key: order.key.into(), capture }, now_ms);
    }
}

/// Moves the link to a node by one interval.
fn step(
    cluster: &Cluster,
    fleet: &mut Fleet,
    (name, interval_ms): (&NodeName, u64),
    link: &mut Link,
    at: ScenarioTime,
    now_ms: u64,
) -> Result<()> {
    let mut emit = |event| fleet.handle(Event::Node(name.clone(), event), now_ms);
    let down = |why: String, failures: u32| {
        let retry_ms = now_ms + RETRY_MS;
        (NodeEvent::Down { why: why.into(), retry_at_ms: retry_ms }, Link::Down { retry_ms, failures })
    };
    match link {
        Link::Down { retry_ms, failures } => {
            if *retry_ms > now_ms {
                return Ok(());
            }
            emit(NodeEvent::Connecting { failures: *failures });
            match cluster.connect(name, at) {
                Ok(probe) => *link = Link::Up(Box::new(probe)),
                Err(error) => {
                    let (event, next) = down(error.to_string(), *failures + 1);
                    emit(event);
                    *link = next;
                }
            }
        }
        Link::Up(probe) => {
            probe.advance(at);
            probe.receive(format!("{{\"interval\":{{\"ms\":{interval_ms}}}}}\n").as_bytes());
            while probe.has_output() {
                for line in probe.take_output().split(|byte| *byte == b'\n') {
                    // The first line begins with a mark.
                    let Some(start) = line.iter().position(|byte| *byte == b'{') else { continue };
                    let parsed: ParsedLine = serde_json::from_slice(&line[start..])
                        .with_context(|| format!("read {}", String::from_utf8_lossy(line)))?;
                    emit(NodeEvent::Line(Box::new(parsed)));
                }
            }
            if let Some(end) = probe.end() {
                let (event, next) = down(format!("{end:?}"), 0);
                emit(event);
                *link = next;
            }
        }
    }
    Ok(())
}
