//! Sums up captures: processes that stand at the same place form a group.

use super::Target;
use super::frame;
use nodeglass_protocol::capture::{
    Capture, CaptureGroup, EvidenceFile, FindingCapture, MAX_GROUPS, MAX_LINES, MAX_NOTES, MAX_PROCESSES,
    ProcessCapture, ThreadState,
};
use nodeglass_protocol::{NodeName, Reading, Text};
use nodeglass_rules::text;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of places that a group names.
const MAX_PLACES: usize = 3;
/// Maximum number of nodes that a note names.
const MAX_NAMES: usize = 2;

/// The response of a node.
#[derive(Clone, Debug)]
pub struct NodeAnswer {
    /// The node.
    pub node: NodeName,
    /// The processes that were requested; empty if the probe selects them.
    pub targets: Vec<Target>,
    /// The capture, or why there is none.
    pub answer: Result<Capture, Text>,
}

/// A process, and what is known of it.
struct Member<'a> {
    node: &'a NodeName,
    rank: Option<u32>,
    place: String,
    process: &'a ProcessCapture,
}

/// The place where a process stands. The line of the frame is not part of it: a loop is one place.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct StackPosition {
    frame: String,
    caller: String,
}

/// Sums up what nodes answered at `at_ms`, in ms since 1970.
pub fn summary(at_ms: u64, answers: &[NodeAnswer]) -> FindingCapture {
    let (mut members, mut limits, mut missing) = (Vec::new(), Limits::default(), 0_u32);
    for answer in answers {
        let found = members_of(answer, &mut limits);
        let expected = answer.targets.len().max(found.len());
        missing = missing.saturating_add(number(expected - found.len()));
        members.extend(found);
    }
    let files = files(&members);
    let mut by_position: BTreeMap<StackPosition, Vec<Member<'_>>> = BTreeMap::new();
    for member in members {
        by_position.entry(StackPosition::of(member.process)).or_default().push(member);
    }
    let mut by_position: Vec<(StackPosition, Vec<Member<'_>>)> = by_position.into_iter().collect();
    by_position
        .iter_mut()
        .for_each(|(_, members)| members.sort_by_key(|member| member.rank.unwrap_or(u32::MAX)));
    by_position
        .sort_by_key(|(_, members)| (Reverse(members.len()), members.first().and_then(|first| first.rank)));
    let others = by_position.iter().skip(MAX_GROUPS).map(|(_, members)| members.len()).sum();
    let groups = by_position.iter().take(MAX_GROUPS).map(|(place, members)| group(place, members)).collect();
    FindingCapture { at_ms, groups, others: number(others), missing, notes: limits.notes(), files }
}

/// The processes of a node of which something is known.
fn members_of<'a>(answer: &'a NodeAnswer, limits: &mut Limits) -> Vec<Member<'a>> {
    let node = &answer.node;
    let capture = match &answer.answer {
        Ok(capture) => capture,
        Err(why) => {
            limits.add(why.as_str(), node);
            return Vec::new();
        }
    };
    let mut members = Vec::new();
    for process in capture.processes.iter().take(MAX_PROCESSES) {
        let is_target = |target: &&Target| {
            (target.process.pid, target.process.started_ms) == (process.pid, process.started_ms)
        };
        let target = answer.targets.iter().find(is_target);
        let is_new = members.iter().all(|known: &Member<'_>| known.process.pid != process.pid);
        // A probe must not answer for processes that it was not asked about.
        if !is_new || target.is_none() && !answer.targets.is_empty() {
            continue;
        }
        if let Some(why) = &process.refused {
            limits.add(&format!("process {}: {why}", process.pid), node);
            continue;
        }
        if let Reading::Failed(why) = &process.stack {
            limits.add(why.as_str(), node);
        }
        let place = match target {
            Some(target) => target.place.clone(),
            None => format!("{node} pid {}", process.pid),
        };
        let rank = target.and_then(|target| target.rank).or(process.rank);
        members.push(Member { node, rank, place, process });
    }
    if answer.targets.is_empty() && capture.processes.is_empty() {
        limits.add("no process of the job runs there", node);
    }
    if capture.omitted > 0 {
        limits.add(&format!("{} further processes were left out", capture.omitted), node);
    }
    members
}

impl StackPosition {
    fn of(process: &ProcessCapture) -> Self {
        let Some(stack) = process.stack.value().filter(|stack| !stack.is_empty()) else {
            return Self { frame: kernel_position(process), caller: String::new() };
        };
        let name = |frame| format!("{} {}", frame::function(frame), frame::short(frame));
        Self {
            frame: frame::standing(stack).map(name).unwrap_or_default(),
            // Collectives that are called from different lines do not match each other.
            caller: frame::caller(stack).map(frame::label).unwrap_or_default(),
        }
    }
}

/// `futex_wait_queue (system call futex, sleeping)`.
fn kernel_position(process: &ProcessCapture) -> String {
    let state = process.state.name();
    let call = process.system_call.value().map(Text::as_str).filter(|call| *call != "running");
    match (process.wait_channel.value(), call) {
        (Some(channel), Some(call)) => format!("{channel} (system call {call}, {state})"),
        (Some(channel), None) => format!("{channel} ({state})"),
        (None, Some(call)) => format!("system call {call} ({state})"),
        (None, None) if process.state == ThreadState::Running => "its own code (running)".to_owned(),
        (None, None) => format!("an unknown place ({state})"),
    }
}

fn group(place: &StackPosition, members: &[Member<'_>]) -> CaptureGroup {
    let stack_of =
        |member: &Member<'_>| member.process.stack.value().filter(|stack| !stack.is_empty()).cloned();
    let first = members.first();
    let stack = first.and_then(stack_of).unwrap_or_default();
    let frame = match frame::standing(&stack) {
        None => place.frame.clone(),
        Some(standing) => {
            let is_same = |member: &Member<'_>| {
                stack_of(member).is_some_and(|stack| {
                    frame::standing(&stack).is_some_and(|other| other.line == standing.line)
                })
            };
            let line = if members.iter().all(is_same) { standing.line } else { 0 };
            frame::label(&nodeglass_protocol::capture::Frame { line, ..standing.clone() })
        }
    };
    let ranks: Option<Vec<u32>> = members.iter().map(|member| member.rank).collect();
    CaptureGroup {
        count: number(members.len()),
        ranks: Text::new(ranks.map(ranges).unwrap_or_default()),
        places: members.iter().take(MAX_PLACES).map(|member| Text::new(&member.place)).collect(),
        frame: Text::new(frame),
        caller: Text::new(&place.caller),
        details: first.map(details).unwrap_or_default(),
        stack: stack.iter().take(MAX_LINES).map(|frame| Text::new(frame::label(frame))).collect(),
    }
}

/// State, threads and connections of a process, a statement each.
fn details(member: &Member<'_>) -> Vec<Text> {
    let process = member.process;
    let who = format!("{} (pid {} on {})", process.command, process.pid, member.node);
    let mut out = vec![format!("{who}: {}", kernel_position(process))];
    if process.threads.len() > 1 || process.threads.first().is_some_and(|threads| threads.count > 1) {
        let total = process.threads.iter().map(|threads| threads.count).fold(0, u32::saturating_add);
        let states = process.threads.iter().take(MAX_LINES);
        let states: Vec<String> =
            states.map(|threads| format!("{} {}", threads.count, threads.state.name())).collect();
        out.push(format!("{total} threads: {}", states.join(", ")));
    }
    if let (Some(voluntary), Some(involuntary)) =
        (process.voluntary_switches.value(), process.involuntary_switches.value())
    {
        out.push(format!(
            "main thread: {voluntary} voluntary and {involuntary} involuntary context switches"
        ));
    }
    if let Some(count) = process.connections.value() {
        let peers = process.peers.iter().take(MAX_PLACES);
        let peers: Vec<String> = peers.map(|peer| format!("{} to {}", peer.count, peer.address)).collect();
        let peers = if peers.is_empty() { String::new() } else { format!(": {}", peers.join(", ")) };
        out.push(format!("{}{peers}", text::count(*count as usize, "TCP connection", "TCP connections")));
    }
    if let Some(args) = process.args.value() {
        out.push(args.to_string());
    }
    out.iter().take(MAX_LINES).map(Text::new).collect()
}

/// Returns the files that may explain more, beginning with those of the lowest ranks.
fn files(members: &[Member<'_>]) -> Vec<Text> {
    let of_member = |member: &Member<'_>| {
        let node = member.node.clone();
        let files = member.process.files.iter();
        files.map(move |file| file_text(&node, file)).collect::<Vec<_>>()
    };
    let mut files: Vec<String> = Vec::new();
    for file in members.iter().flat_map(of_member) {
        // Ranks may share NCCL's log.
        if !files.contains(&file) && files.len() < MAX_NOTES {
            files.push(file);
        }
    }
    files.into_iter().map(Text::from).collect()
}

fn file_text(node: &NodeName, file: &EvidenceFile) -> String {
    let size = match file.size_bytes {
        bytes if bytes < 1 << 20 => format!("{} KiB", bytes.div_ceil(1 << 10)),
        bytes => format!("{} MiB", bytes >> 20),
    };
    format!("{node}:{} ({size})", file.path)
}

/// `0-34, 36-63`.
fn ranges(mut ranks: Vec<u32>) -> String {
    ranks.sort_unstable();
    ranks.dedup();
    let mut spans: Vec<(u32, u32)> = Vec::new();
    for rank in ranks {
        match spans.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(rank) => *last = rank,
            _ => spans.push((rank, rank)),
        }
    }
    let span = |(first, last): &(u32, u32)| match first == last {
        true => first.to_string(),
        false => format!("{first}-{last}"),
    };
    spans.iter().map(span).collect::<Vec<_>>().join(", ")
}

fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// Limits of a capture, with the nodes that they apply to.
#[derive(Debug, Default)]
struct Limits(BTreeMap<String, Vec<NodeName>>);

impl Limits {
    fn add(&mut self, why: &str, node: &NodeName) {
        let nodes = self.0.entry(why.to_owned()).or_default();
        if !nodes.contains(node) {
            nodes.push(node.clone());
        }
    }

    /// Those of most nodes first.
    fn notes(&self) -> Vec<Text> {
        let mut limits: Vec<(&String, &Vec<NodeName>)> = self.0.iter().collect();
        limits.sort_by_key(|(_, nodes)| Reverse(nodes.len()));
        let note = |(why, nodes): &(&String, &Vec<NodeName>)| {
            let names: Vec<&str> = nodes.iter().take(MAX_NAMES).map(NodeName::as_str).collect();
            let more = nodes.len() - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            // Nodes first: they stay if the text is cut.
            Text::new(format!("{}{more}: {why}", names.join(", ")))
        };
        limits.iter().take(MAX_NOTES).map(note).collect()
    }
}

#[cfg(test)]
mod tests;
