//! The oracle: compares what a relay shows with what is true, and what it does with its limits.

use crate::broken::Broken;
use crate::history::{Fault, Kind, NODES, Scope, node_name, stops_relay};
use crate::relay::Relay;
use crate::slurm::{ADDED, ALL, ENDING, Squeue};
use crate::viewer::{Interest, TestViewer};
use crate::wire::Wire;
use nodeglass_launch::scripted::ScriptedCluster;
use nodeglass_protocol::field::ReadingSet as _;
use nodeglass_protocol::live::{CLOCK_STARTS_AT_MS, ServerMessage, Topic};
use nodeglass_protocol::picture::{GpuPicture, History, JobsHealth, Link, NodePicture};
use nodeglass_protocol::{Cell, Field as _, GpuField, NodeName, Picture};
use nodeglass_rules::health::late_after_ms;
use nodeglass_share::Viewer;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Fields by which a reading is recognised: they change with every sample.
const SIGNATURE: [GpuField; 3] = [GpuField::Util, GpuField::Power, GpuField::MemUtil];
/// Maximum number of connections to a node that are started within a minute.
const MAX_STARTS: usize = 40;
/// A probe ends this long after its relay, at the latest, and is counted for a moment more.
const ORPHAN_LIMIT: Duration = Duration::from_secs(32);
/// A node without a line for this long is not shown as connected; checked once a second.
const SILENT_LIMIT_MS: u64 = 16_500;
/// Maximum number of tasks: a few for each node and viewer.
const MAX_TASKS: usize = 160;
/// The job list is polled again this long after SLURM responds again, at the latest: failures are retried after up to
/// 40 s here, and a hanging command ends after 10 s.
const LIST_LATE_S: u64 = 60;
/// All nodes are connected this long after the start, in s.
const STARTED_S: u64 = 10;
/// Consecutive checks, 10 s apart, after which a viewer has every history.
const HISTORY_PATIENCE: u32 = 1;

/// The oracle of one history.
pub struct Oracle {
    pub faults: Arc<Vec<Fault>>,
    pub cluster: ScriptedCluster,
    pub wire: Arc<Wire>,
    pub squeue: Squeue,
    /// Start of the simulation.
    pub start: Instant,
    /// Violations so far, without repetitions.
    pub violations: Vec<String>,
    /// For each viewer and topic, how often its history was incomplete in a row.
    incomplete: BTreeMap<(usize, Topic), u32>,
    broken: Option<Broken>,
}

impl Oracle {
    /// An oracle that has seen nothing.
    pub fn new(wire: Arc<Wire>, squeue: Squeue, broken: Option<Broken>) -> Self {
        let (faults, cluster, start) = (squeue.faults.clone(), squeue.cluster.clone(), squeue.start);
        let (violations, incomplete) = Default::default();
        Self { faults, cluster, wire, squeue, start, violations, incomplete, broken }
    }

    fn at_s(&self) -> u64 {
        self.start.elapsed().as_secs()
    }

    /// Adds a violation of a guarantee.
    pub fn violated(&mut self, guarantee: &str, what: String) {
        if !self.violations.iter().any(|known| known.starts_with(guarantee)) {
            self.violations.push(format!("{guarantee} at {} s: {what}", self.at_s()));
        }
    }

    /// Returns whether a node should be as without faults: none affects it now, or did so a short time ago.
    fn is_undisturbed(&self, node: usize) -> bool {
        let at_s = self.at_s();
        at_s >= STARTED_S
            && !self.faults.iter().filter(|fault| self.touches(fault, node)).any(|fault| {
                let delay_s = self.list_delay_s(fault) + self.login_delay_s(fault);
                (fault.from_s..fault.to_s + fault.kind.properties().heals_s + delay_s).contains(&at_s)
            })
    }

    /// How much later nodes that refused a key are tried again because no login to another node is accepted before.
    fn login_delay_s(&self, fault: &Fault) -> u64 {
        if fault.kind != Kind::KeyRejected {
            return 0;
        }
        let healed_s = |other: &Fault| other.to_s + other.kind.properties().heals_s;
        // A later fault finds the nodes connected again.
        let is_in_the_way = |other: &&Fault| other.kind == Kind::NoHello && other.from_s <= healed_s(fault);
        self.faults
            .iter()
            .filter(is_in_the_way)
            .map(|other| healed_s(other).saturating_sub(fault.to_s))
            .max()
            .unwrap_or(0)
    }

    /// Returns whether a fault affects a node, directly or through the job list or the relay.
    fn touches(&self, fault: &Fault, node: usize) -> bool {
        match fault.kind {
            Kind::JobEnds => node == ENDING,
            Kind::NodeAdded => node == ADDED,
            Kind::NodeRemoved => node == NODES - 1,
            Kind::JobRequeued => (NODES / 2..NODES).contains(&node),
            // Once three nodes refuse the login, the relay does not try others that have no connection.
            Kind::KeyRejected => true,
            kind if stops_relay(kind) => true,
            _ => fault.affects(node),
        }
    }

    /// How much later the effects of a fault end because SLURM does not respond to the relay.
    fn list_delay_s(&self, fault: &Fault) -> u64 {
        if fault.kind.properties().scope != Scope::Cluster {
            return 0;
        }
        let of_slurm =
            self.faults.iter().filter(|other| matches!(other.kind, Kind::SlurmFails | Kind::SlurmHangs));
        let late = of_slurm
            .filter(|slurm| slurm.from_s <= fault.to_s + 10 && slurm.to_s + LIST_LATE_S > fault.from_s);
        late.map(|slurm| (slurm.to_s + LIST_LATE_S).saturating_sub(fault.to_s)).max().unwrap_or(0)
    }

    /// The checks of every second.
    pub async fn check(&mut self, relay: &Relay) {
        let Some((mut picture, _)) = relay.hub.everything(Viewer::Owner).await else {
            return self.violated("runs", "the event loop has ended".into());
        };
        let now_ms = relay.clock.now_ms();
        for shown in &mut picture.nodes {
            match self.broken {
                Some(Broken::Age) => shown.sampled_at_ms = Some(now_ms),
                Some(Broken::Link) => shown.head.link = Link::Live,
                Some(Broken::Losses) => shown.head.notes.clear(),
                _ => {}
            }
        }
        for node in 0..ALL {
            let Ok(name) = NodeName::new(node_name(node)) else { continue };
            let shown = picture.nodes.iter().find(|shown| shown.name == name);
            if let Some(shown) = shown {
                self.check_link(node, shown, now_ms);
                self.check_age(node, shown, relay, now_ms);
            }
            if self.is_undisturbed(node) {
                self.check_fresh(&name, shown, now_ms);
            }
            self.check_load(&name);
        }
        self.check_list(&picture, now_ms);
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if tasks > MAX_TASKS {
            self.violated("memory", format!("{tasks} tasks"));
        }
    }

    /// A node whose lines do not arrive is not shown as connected, and lines that could not be read are counted.
    fn check_link(&mut self, _node: usize, shown: &NodePicture, now_ms: u64) {
        let Some((delivered, unreadable)) =
            self.wire.traffic(&shown.name).map(|traffic| (traffic.delivered, traffic.unreadable))
        else {
            return;
        };
        let age_ms = delivered.map_or(now_ms - CLOCK_STARTS_AT_MS, |at| at.elapsed().as_millis() as u64);
        let limit_ms = match shown.head.link {
            Link::Live => late_after_ms(shown.head.interval_ms) + 1_500,
            Link::Late => SILENT_LIMIT_MS,
            _ => return,
        };
        // A time in which no line could be read does not count.
        let at_s = self.at_s();
        let stalls =
            |fault: &Fault| fault.kind == Kind::Suspended && (fault.from_s..fault.to_s + 16).contains(&at_s);
        if age_ms > limit_ms && !self.faults.iter().any(stalls) {
            let what = format!("{} is {:?} {age_ms} ms after its last line", shown.name, shown.head.link);
            self.violated("link", what);
        }
        let counted = shown.head.notes.iter().find_map(|note| note.as_str().split_once(" × "));
        let counted = counted.and_then(|(count, _)| count.parse::<u64>().ok()).unwrap_or(0);
        if shown.head.link == Link::Live && unreadable > 0 && counted != unreadable {
            let what = format!("{} lost {unreadable} lines, and {counted} are shown", shown.name);
            self.violated("losses", what);
        }
    }

    /// The readings of a node are those of the time that is stated for them.
    fn check_age(&mut self, node: usize, shown: &NodePicture, relay: &Relay, now_ms: u64) {
        let Some(sampled_ms) = shown.sampled_at_ms else { return };
        let is_readable =
            |gpu: &&GpuPicture| gpu.fault.is_none() && gpu.row.get(GpuField::Power).value().is_some();
        let Some(index) = shown.gpus.iter().position(|gpu| is_readable(&gpu)) else { return };
        let cells = SIGNATURE.map(|field| shown.gpus[index].row.get(field));
        let age_ms = now_ms.saturating_sub(sampled_ms);
        // The relay's clock began when it started.
        let at_ms = sampled_ms.cast_signed() - CLOCK_STARTS_AT_MS.cast_signed()
            + (relay.started - self.start).as_millis() as i64;
        let was = |back_ms: i64| self.signature(&shown.name, index, at_ms - back_ms) == Some(cells);
        // What a connection adds to its first sample, nobody can know. Samples are taken at whole seconds.
        if self.has_just_stalled(node) {
            return;
        }
        let slack_ms = self.delays_ms(node).max().unwrap_or(0);
        let into_second = at_ms.rem_euclid(1_000);
        let within_slack = (0..=slack_ms / 1_000 + 1).map(|back_s| into_second + back_s * 1_000);
        if was(0)
            || self.delays_ms(node).any(was)
            || within_slack.filter(|back_ms| *back_ms <= slack_ms + 40).any(was)
        {
            return;
        }
        let older = (1..120).map(|step| step * 500).find(|back_ms| was(*back_ms));
        let truth = older.map_or("which it never had".into(), |ms| format!("which are {ms} ms older"));
        self.violated("age", format!("{} shows readings as {age_ms} ms old {truth}", shown.name));
    }

    /// The delays of a node's connection so far, in ms.
    fn delays_ms(&self, node: usize) -> impl Iterator<Item = i64> {
        let at_s = self.at_s();
        let slow = self.faults.iter().filter(move |fault| fault.kind == Kind::Slow && fault.affects(node));
        slow.filter(move |fault| fault.from_s <= at_s).map(|fault| slow_ms(fault).cast_signed())
    }

    /// Returns whether the first sample of a connection may have been held up, which the next one shows.
    fn has_just_stalled(&self, node: usize) -> bool {
        let at_s = self.at_s();
        let stalls =
            |fault: &&Fault| matches!(fault.kind, Kind::Silent | Kind::HalfOpen) && fault.affects(node);
        self.faults.iter().filter(stalls).any(|fault| (fault.to_s..fault.to_s + 3).contains(&at_s))
    }

    fn signature(&self, name: &NodeName, gpu: usize, t_ms: i64) -> Option<[Cell; SIGNATURE.len()]> {
        let at = self.cluster.now();
        let sample = self.cluster.scenario().sample(name, at.plus(t_ms - at.t_ms))?;
        let row = sample.gpus.get(gpu)?.row();
        Some(SIGNATURE.map(|field| row.get(field)))
    }

    /// A node that nothing disturbs is connected, and its readings are current.
    fn check_fresh(&mut self, name: &NodeName, shown: Option<&NodePicture>, now_ms: u64) {
        let is_wanted = self.squeue.nodes().contains(name);
        let Some(shown) = shown else {
            if is_wanted {
                self.violated("fresh", format!("{name} is not shown"));
            }
            return;
        };
        if !is_wanted {
            return self.violated("fresh", format!("{name} is shown without a job"));
        }
        let age_ms = shown.sampled_at_ms.map(|at_ms| now_ms.saturating_sub(at_ms));
        let limit_ms = 3 * u64::from(shown.head.interval_ms.max(1_000)) + 1_500;
        if shown.head.link != Link::Live
            || age_ms.is_none_or(|age_ms| age_ms > limit_ms)
            || shown.gpus.len() != 2
        {
            let (link, gpus) = (&shown.head.link, shown.gpus.len());
            self.violated(
                "fresh",
                format!("{name} is {link:?}, sampled {age_ms:?} ms ago, with {gpus} GPUs"),
            );
        }
    }

    /// Connections are not started too often, and no probe runs without a relay.
    fn check_load(&mut self, name: &NodeName) {
        let Some((starts, probes)) = self.wire.traffic(name).map(|traffic| {
            let recent = traffic.starts.iter().filter(|at| at.elapsed() < Duration::from_secs(60)).count();
            (recent, traffic.probes.values().copied().collect::<Vec<_>>())
        }) else {
            return;
        };
        if starts > MAX_STARTS {
            self.violated("load", format!("{starts} connections to {name} within a minute"));
        }
        if probes.iter().filter(|since| since.is_none()).count() > 1 {
            self.violated("orphans", format!("the relay uses two probes on {name}"));
        }
        let longest = probes.iter().flatten().map(Instant::elapsed).max().unwrap_or_default();
        if longest > ORPHAN_LIMIT {
            self.violated(
                "orphans",
                format!("a probe on {name} runs {} s after its relay", longest.as_secs()),
            );
        }
    }

    /// The job list is not shown as current while SLURM does not respond.
    fn check_list(&mut self, picture: &Picture, now_ms: u64) {
        let JobsHealth::Fresh { at_ms } = picture.relay.jobs else { return };
        let age_ms = now_ms.saturating_sub(at_ms);
        // A query that hangs after a suspension has its ten seconds, too.
        let at_s = self.at_s();
        let suspensions = self.faults.iter().filter(|fault| fault.kind == Kind::Suspended);
        let recent = suspensions.filter(|fault| fault.from_s <= at_s && at_s < fault.to_s + 15);
        let suspended_s = recent.map(|fault| fault.to_s - fault.from_s).max().unwrap_or(0);
        if age_ms > 50_000 + suspended_s * 1_000 {
            self.violated("list", format!("the job list is fresh {age_ms} ms after its query"));
        }
    }

    /// Compares the pictures of a viewer with the fleet.
    pub async fn compare(&mut self, relay: &Relay, number: usize, interest: &Interest, viewer: &TestViewer) {
        for topic in &interest.topics {
            let frame = relay.hub.picture(topic.clone(), interest.viewer.clone(), interest.form).await;
            let truth = frame.and_then(|frame| match interest.form.decode(&frame) {
                Ok(ServerMessage::Snapshot(snapshot)) => Some(snapshot),
                _ => None,
            });
            // What was published is delivered without time passing.
            for _ in 0..64 {
                tokio::task::yield_now().await;
            }
            let seen = viewer.seen();
            let known = seen.topics.values().find(|followed| followed.topic == *topic);
            let difference = match (&truth, known) {
                (None, None) => None,
                (None, Some(_)) => Some("it shows a topic that is gone".to_owned()),
                (Some(_), None) => Some("it has no picture".to_owned()),
                // Another update was published meanwhile.
                (Some(truth), Some(known)) if known.seq != truth.seq => None,
                (Some(truth), Some(known)) => first_difference(&known.picture, &truth.picture),
            };
            let incomplete = match (&truth, known) {
                (Some(truth), Some(known)) if known.seq == truth.seq => {
                    let mut nodes = known.picture.nodes.iter().zip(&truth.picture.nodes);
                    nodes.find_map(|(known, truth)| history_difference(known, truth))
                }
                _ => None,
            };
            let broken = seen.violations.first().cloned();
            drop(seen);
            let in_a_row = self.incomplete.entry((number, topic.clone())).or_default();
            *in_a_row = if incomplete.is_none() { 0 } else { *in_a_row + 1 };
            if let Some(what) = incomplete.filter(|_| *in_a_row > HISTORY_PATIENCE) {
                self.violated("picture", format!("viewer {number}, {topic:?}: {what}"));
            }
            if let Some(what) = broken.or(difference) {
                self.violated("picture", format!("viewer {number}, {topic:?}: {what}"));
            }
        }
    }

    /// The checks after the relay was stopped: no probe and no task is left.
    pub fn check_stopped(&mut self) {
        let running =
            |name: &NodeName| self.wire.traffic(name).is_some_and(|traffic| !traffic.probes.is_empty());
        let left: Vec<String> =
            self.wire.names().filter(|name| running(name)).map(ToString::to_string).collect();
        if !left.is_empty() {
            self.violated("orphans", format!("probes are left on {left:?}"));
        }
        let tasks = tokio::runtime::Handle::current().metrics().num_alive_tasks();
        if tasks > 0 {
            self.violated("memory", format!("{tasks} tasks are left"));
        }
    }

    /// The checks after all faults have healed.
    pub async fn check_end(&mut self, relay: &Relay, missed: u64) {
        let Some((picture, _)) = relay.hub.everything(Viewer::Owner).await else { return };
        let active: Vec<String> = picture
            .findings
            .iter()
            .filter(|finding| finding.is_active())
            .map(|finding| {
                format!("{} since {} s", finding.title, (relay.clock.now_ms() - finding.since_ms) / 1_000)
            })
            .collect();
        if !active.is_empty() {
            self.violated("findings", active.join("; "));
        }
        if !picture.relay.notices.is_empty() {
            self.violated("notices", format!("{:?}", picture.relay.notices));
        }
        if picture.relay.coalesced < missed {
            let counted = picture.relay.coalesced;
            self.violated("losses", format!("viewers missed {missed} updates, and {counted} are counted"));
        }
        let planned: Vec<_> = relay.plan.borrow().nodes.keys().cloned().collect();
        let mut wanted = self.squeue.nodes();
        wanted.sort();
        if planned != wanted {
            self.violated("plan", format!("the relay watches {planned:?} instead of {wanted:?}"));
        }
        self.check_history(relay).await;
    }

    /// What a connection lost is filled in: the graphs of nodes that never stopped sampling have no gap.
    async fn check_history(&mut self, relay: &Relay) {
        let form = nodeglass_protocol::frame::Form::Binary;
        let Some(frame) = relay.hub.picture(Topic::Overview, Viewer::Owner, form).await else { return };
        let Ok(ServerMessage::Snapshot(snapshot)) = form.decode(&frame) else { return };
        let now_ms = relay.clock.now_ms();
        for node in 0..NODES {
            let stops = |fault: &&Fault| {
                matches!(
                    fault.kind,
                    Kind::Crash | Kind::DriverHang | Kind::NoDriver | Kind::JobRequeued | Kind::NodeRemoved
                ) && self.touches(fault, node)
            };
            if self.faults.iter().any(|fault| stops(&fault)) {
                continue;
            }
            let name = node_name(node);
            let shown = snapshot.picture.nodes.iter().find(|shown| shown.name.as_str() == name);
            let trace = shown.and_then(|shown| shown.history.as_ref()?.gpu(0, GpuField::Util).cloned());
            let Some(trace) = trace else {
                self.violated("history", format!("{name} has none"));
                continue;
            };
            // From the first sample after the boot on.
            let begin_ms =
                now_ms.saturating_sub(self.start.elapsed().as_millis() as u64).saturating_sub(20_000);
            let gaps: Vec<u64> = trace
                .points()
                .filter(|(at_ms, cell)| *at_ms > begin_ms && cell.is_none())
                .map(|(at_ms, _)| (now_ms - at_ms) / 1_000)
                .collect();
            if !gaps.is_empty() {
                self.violated("history", format!("{name} has gaps {gaps:?} s ago"));
            }
        }
    }
}

/// The delay of a slow connection, in ms.
pub fn slow_ms(fault: &Fault) -> u64 {
    50 + fault.number * 3
}

/// Describes how the history of a node that a viewer has differs from the true one.
fn history_difference(known: &NodePicture, truth: &NodePicture) -> Option<String> {
    if known.history == truth.history {
        return None;
    }
    let (Some(has), Some(is)) = (&known.history, &truth.history) else {
        return Some(format!("it has no history of {}", truth.name));
    };
    let name = &truth.name;
    let of_gpus = |history: &History| history.gpus.iter().map(|gpu| gpu.iter().count()).collect::<Vec<_>>();
    if of_gpus(has) != of_gpus(is) {
        return Some(format!("{name} has {:?} traces instead of {:?}", of_gpus(has), of_gpus(is)));
    }
    let traces = |history: &History| {
        let gpus = history
            .gpus
            .iter()
            .flat_map(|gpu| gpu.iter().map(|(field, trace)| (field.name(), trace.clone())));
        gpus.chain(history.host.iter().map(|(field, trace)| (field.name(), trace.clone())))
            .collect::<Vec<_>>()
    };
    let (has, is) = (traces(has), traces(is));
    let ((field, has), (_, is)) = has.into_iter().zip(is).find(|(has, is)| has != is)?;
    let lengths = (has.len(), is.len(), has.newest_slot(), is.newest_slot());
    let points = has.points().zip(is.points()).find(|(has, is)| has != is);
    Some(format!("{name}'s trace of {field} differs: {lengths:?}, {points:?}"))
}

/// The first difference between two pictures apart from their histories.
fn first_difference(known: &Picture, truth: &Picture) -> Option<String> {
    let differs = |what: &str, known: &dyn std::fmt::Debug, truth: &dyn std::fmt::Debug| {
        Some(format!("{what} differs: {known:.300?} instead of {truth:.300?}"))
    };
    let names =
        |picture: &Picture| picture.nodes.iter().map(|node| node.name.to_string()).collect::<Vec<_>>();
    if names(known) != names(truth) {
        return differs("nodes", &names(known), &names(truth));
    }
    for (known, truth) in known.nodes.iter().zip(&truth.nodes) {
        let without = |node: &NodePicture| NodePicture { history: None, ..node.clone() };
        let (known, truth) = (without(known), without(truth));
        if known.head != truth.head {
            return differs(&format!("{}'s head", truth.name), &known.head, &truth.head);
        }
        if known != truth {
            return differs(truth.name.as_str(), &known, &truth);
        }
    }
    if known.relay != truth.relay {
        return differs("status", &known.relay, &truth.relay);
    }
    if known.jobs != truth.jobs {
        return differs("jobs", &known.jobs, &truth.jobs);
    }
    if known.findings != truth.findings {
        return differs("findings", &known.findings, &truth.findings);
    }
    if known.notes != truth.notes || known.insights != truth.insights || known.sharing != truth.sharing {
        return Some("notes, insights or shares differ".to_owned());
    }
    None
}
