//! Plays a scenario through simulated probes, their lines and the fleet, by a virtual clock.

use super::logs::Logs;
use anyhow::{Context, Result};
use nodeglass_findings::capture::{NodeAnswer, Target, summary};
use nodeglass_fleet::{Event, Fleet, SessionEvent};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::capture::{CaptureRequest, StackReader};
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::request::{ProbeRequest, Response};
use nodeglass_sim::{Cluster, Scenario, ScenarioTime, SimulatedProbe};
use std::collections::BTreeMap;

/// Time of day at which a scenario starts, in ms since 1970.
pub(super) const START_WALL_MS: i64 = 1_790_000_000_000;
/// Interval of polls of SLURM, in ms.
const POLL_MS: u64 = 20_000;
/// By how much a second relay's clock differs from the first one's: steps begin elsewhere.
const RESTART_SHIFT_MS: u64 = 3_700;
/// Interval of reading logs, in ms.
const LOGS_MS: u64 = 10_000;
/// Interval of connecting a lost node again, in ms.
const RETRY_MS: u64 = 8_000;

/// One occurrence of a finding, with times in s of the scenario. What returns after its end is another one.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    /// Kind.
    pub kind: FindingKind,
    /// When it was listed.
    pub found_s: i64,
    /// When it was listed as resolved; `None` while it lasts.
    pub resolved_s: Option<i64>,
    /// Text.
    pub title: String,
    /// The places of the processes of its job when it began, a line for each group.
    pub stands: Vec<String>,
}

/// The link to a node.
enum Link {
    Up(Box<SimulatedProbe>),
    Down { retry_ms: u64, failures: u32 },
}

/// The way a scenario is played.
#[derive(Clone, Copy, Debug)]
pub struct Play {
    /// For how long, in min.
    pub minutes: u64,
    /// Sampling interval in ms.
    pub interval_ms: u64,
    /// When the relay restarts, in s after the start.
    pub restart_s: Option<i64>,
    /// Whether the cluster has a SLURM that lists its jobs.
    pub has_slurm: bool,
    /// Whether the logs of jobs are read.
    pub reads_logs: bool,
}

impl Play {
    /// With SLURM, without logs, and by a relay that does not restart.
    pub fn new(minutes: u64, interval_ms: u64) -> Self {
        Self { minutes, interval_ms, restart_s: None, has_slurm: true, reads_logs: false }
    }
}

/// Plays a scenario, and returns each occurrence of a finding.
///
/// # Errors
/// The scenario is invalid, or a probe prints what cannot be read.
pub fn play(toml: &str, options: Play) -> Result<Vec<Observed>> {
    let Play { minutes, interval_ms, restart_s, has_slurm, reads_logs } = options;
    let cluster = Cluster::new(Scenario::from_toml(toml)?);
    let names: Vec<NodeName> = cluster.scenario().node_names().cloned().collect();
    let mut links: Vec<Link> = names.iter().map(|_| Link::Down { retry_ms: 0, failures: 0 }).collect();
    let new_fleet = || {
        let mut fleet = Fleet::new();
        if !has_slurm {
            fleet.watch_hosts(names.iter().cloned());
            fleet.handle(Event::NoSlurm, CLOCK_STARTS_AT_MS);
        }
        fleet
    };
    let mut fleet = new_fleet();
    let mut occurrences = Occurrences::default();
    let mut logs = Logs::new();
    let start_wall_ms = START_WALL_MS;
    // Difference between the relay's clock and the first relay's.
    let mut shift_ms = 0;
    for elapsed_ms in (0..minutes * 60_000).step_by(interval_ms as usize) {
        let at = ScenarioTime { t_ms: elapsed_ms.cast_signed(), start_wall_ms };
        if restart_s.is_some_and(|restart_s| elapsed_ms.cast_signed() == restart_s * 1_000) {
            let records = fleet.running_records(CLOCK_STARTS_AT_MS + elapsed_ms);
            shift_ms = RESTART_SHIFT_MS;
            fleet = new_fleet();
            fleet.handle(Event::Restored(records), CLOCK_STARTS_AT_MS + elapsed_ms + shift_ms);
            links = names.iter().map(|_| Link::Down { retry_ms: 0, failures: 0 }).collect();
        }
        let now_ms = CLOCK_STARTS_AT_MS + elapsed_ms + shift_ms;
        let wall_ahead_ms = start_wall_ms - (CLOCK_STARTS_AT_MS + shift_ms).cast_signed();
        if !has_slurm {
            fleet.set_time_of_day(now_ms.saturating_add_signed(wall_ahead_ms), now_ms);
        } else if elapsed_ms % POLL_MS == 0 {
            fleet.handle(Event::Jobs { jobs: cluster.scenario().jobs(at), wall_ahead_ms }, now_ms);
        }
        for (name, link) in names.iter().zip(&mut links) {
            if fleet.node(name).is_some() {
                step(&cluster, &mut fleet, (name, interval_ms), link, at, now_ms)?;
            }
        }
        if reads_logs && elapsed_ms % LOGS_MS == 0 {
            fleet.handle(Event::JobLogs(logs.poll(cluster.scenario(), &names[0], at, now_ms)), now_ms);
        }
        fleet.handle(Event::Tick, now_ms);
        capture(&cluster, &mut fleet, at, now_ms);
        drop(fleet.take_changes());
        occurrences.note(&fleet, elapsed_ms);
    }
    Ok(occurrences.observed)
}

/// The occurrences of findings so far.
#[derive(Debug, Default)]
pub(super) struct Occurrences {
    pub(super) observed: Vec<Observed>,
    /// Position of the newest occurrence, by key.
    newest: BTreeMap<String, usize>,
}

impl Occurrences {
    /// Notes what is listed now.
    pub(super) fn note(&mut self, fleet: &Fleet, elapsed_ms: u64) {
        let at_s = elapsed_ms.cast_signed() / 1_000;
        for finding in fleet.findings() {
            let newest = self.newest.get(finding.key.as_str()).copied();
            let is_known = |observed: &Observed| observed.resolved_s.is_none() || !finding.is_active();
            let position = newest.filter(|position| self.observed.get(*position).is_some_and(is_known));
            let position = position.unwrap_or_else(|| {
                self.observed.push(Observed {
                    kind: finding.kind,
                    found_s: at_s,
                    resolved_s: None,
                    title: finding.title.to_string(),
                    stands: Vec::new(),
                });
                self.newest.insert(finding.key.to_string(), self.observed.len() - 1);
                self.observed.len() - 1
            });
            let observed = &mut self.observed[position];
            if !finding.is_active() {
                observed.resolved_s.get_or_insert(at_s);
            }
            if let Some(capture) = &finding.capture {
                observed.stands = capture.lines().collect();
            }
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
        (SessionEvent::Down { why: why.into(), retry_at_ms: retry_ms }, Link::Down { retry_ms, failures })
    };
    match link {
        Link::Down { retry_ms, failures } => {
            if *retry_ms > now_ms {
                return Ok(());
            }
            emit(SessionEvent::Connecting { failures: *failures });
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
                    emit(SessionEvent::Line(Box::new(parsed)));
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
