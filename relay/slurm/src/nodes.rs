//! Parses `scontrol --details --oneliner show node` into the nodes of each partition by state and their GPUs
//! by type.
//!
//! Only administrators can set free text of a node, and SLURM prints it after the fields that are read here;
//! the first occurrence of a field counts.

use super::{Selection, gres};
use nodeglass_protocol::cluster::{ClusterSummary, GpuCounts, NodeCounts, PartitionSummary, UnavailableNode};
use nodeglass_protocol::{NodeName, Text};
use std::collections::BTreeMap;

/// scontrol's arguments for all nodes visible to this user, with the GPUs in use (`--details`).
pub fn args() -> Vec<String> {
    ["--local", "--details", "--oneliner", "show", "node"].map(str::to_owned).into()
}

/// Summarizes the nodes in the selected partitions; `None` if the output names no node.
pub fn summary(out: &[u8], selection: &Selection) -> Option<ClusterSummary> {
    let text = String::from_utf8_lossy(out);
    let nodes: Vec<_> = text.lines().filter_map(Node::new).collect();
    let mut partitions: BTreeMap<&str, Partition> = BTreeMap::new();
    let mut unavailable = Vec::new();
    for node in nodes.iter().filter(|node| node.is_selected(selection)) {
        for name in node.partitions().filter(|name| is_selected(name, selection)) {
            partitions.entry(name).or_default().add(node);
        }
        if !node.state.is_available() {
            unavailable.push(node.unavailable());
        }
    }
    let omitted = unavailable.len().saturating_sub(ClusterSummary::MAX_UNAVAILABLE);
    unavailable.truncate(ClusterSummary::MAX_UNAVAILABLE);
    let partitions = partitions.into_iter().map(|(name, partition)| partition.summary(name));
    (!nodes.is_empty()).then(|| ClusterSummary {
        at_ms: 0,
        partitions: partitions.collect(),
        unavailable,
        unavailable_omitted: u32::try_from(omitted).unwrap_or(u32::MAX),
    })
}

/// GPUs of one type on a node that accepts jobs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AvailableGpus {
    /// The node.
    pub node: String,
    /// Its partitions.
    pub partitions: Vec<String>,
    /// Type in SLURM's GRES; empty if the site gives none.
    pub kind: String,
    /// All.
    pub total: u32,
    /// Not allocated; `None` if SLURM does not state it.
    pub free: Option<u32>,
}

/// Returns the GPUs of all nodes, with the GPUs that jobs could be given now; a node that accepts no jobs has no free
/// ones.
pub fn gpus_by_node(out: &[u8]) -> Vec<AvailableGpus> {
    let text = String::from_utf8_lossy(out);
    let of_node = |node: Node<'_>| {
        let partitions: Vec<String> = node.partitions().map(str::to_owned).collect();
        let gpus =
            node.gpus().unwrap_or_default().into_iter().map(move |(kind, total, used)| AvailableGpus {
                node: node.name.to_owned(),
                partitions: partitions.clone(),
                kind,
                total,
                free: match node.state.is_available() {
                    true => used.map(|used| total.saturating_sub(used)),
                    false => Some(0),
                },
            });
        gpus.collect::<Vec<_>>()
    };
    text.lines().filter_map(Node::new).flat_map(of_node).collect()
}

/// Maximum number of nodes of a list; further ones are left out.
const MAX_NODES: usize = 16_384;

/// Returns the nodes that have GPUs, besides those that do not exist or are turned off.
pub fn with_gpus(out: &[u8]) -> Vec<NodeName> {
    let text = String::from_utf8_lossy(out);
    // Symbols follow a state, as of a node that does not respond.
    let is_off = |flag: &str| {
        let flag = flag.trim_end_matches(|symbol: char| symbol.is_ascii_punctuation());
        ["FUTURE", "POWERED_DOWN", "POWERING_DOWN"].contains(&flag)
    };
    let is_up = |node: &Node<'_>| !node.state_text.split('+').any(is_off);
    let has_gpus =
        |node: &Node<'_>| node.gpus().is_some_and(|gpus| gpus.iter().any(|(_, total, _)| *total > 0));
    let nodes = text.lines().filter_map(Node::new).filter(|node| is_up(node) && has_gpus(node));
    nodes.filter_map(|node| NodeName::new(node.name).ok()).take(MAX_NODES).collect()
}

fn is_selected(partition: &str, selection: &Selection) -> bool {
    selection.partitions.is_empty() || selection.partitions.iter().any(|name| name == partition)
}

/// Fields of one node.
struct Node<'a> {
    line: &'a str,
    name: &'a str,
    state_text: &'a str,
    state: State,
}

impl<'a> Node<'a> {
    fn new(line: &'a str) -> Option<Self> {
        let name = line.strip_prefix("NodeName=")?.split(' ').next()?;
        let state_text = field(line, "State").unwrap_or("unknown");
        Some(Self { line, name, state_text, state: State::new(state_text) })
    }

    fn partitions(&self) -> impl Iterator<Item = &'a str> {
        field(self.line, "Partitions").unwrap_or_default().split(',').filter(|name| !name.is_empty())
    }

    fn is_selected(&self, selection: &Selection) -> bool {
        let is_listed = NodeName::new(self.name).is_ok_and(|name| selection.nodes.contains(&name));
        (selection.nodes.is_empty() || is_listed)
            && self.partitions().any(|name| is_selected(name, selection))
    }

    /// Number of GPUs and, if known, of used GPUs by type; `None` if SLURM does not state the GPUs.
    fn gpus(&self) -> Option<Vec<(String, u32, Option<u32>)>> {
        let all = gres::by_type(field(self.line, "Gres")?)?;
        let used = field(self.line, "GresUsed").and_then(|used| gres::used_by_type(used, &all));
        let used_of = |kind: &str| used.as_ref().and_then(|used| used.get(kind).copied());
        let with_used = |(kind, total): (String, u32)| {
            let used = used_of(&kind);
            (kind, total, used)
        };
        Some(all.into_iter().map(with_used).collect())
    }

    fn unavailable(&self) -> UnavailableNode {
        let (reason, since) = reason(self.line);
        let state = self.state_text.to_ascii_lowercase().into();
        UnavailableNode { name: self.name.into(), state, reason, since }
    }
}

/// The value of `key=` on a line of fields: one word.
fn field<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.split(' ').find_map(|word| word.strip_prefix(key)?.strip_prefix('='))
}

/// `Reason=Low RealMemory [root@1700000000]`: the text, and when it was set.
fn reason(line: &str) -> (Option<Text>, Option<i64>) {
    let Some((_, rest)) = line.split_once(" Reason=") else { return (None, None) };
    // The fields that may follow.
    let ends =
        [" Comment=", " Extra=", " InstanceId=", " InstanceType=", " ReservationName=", " ResumeAfterTime="];
    let end = ends.iter().filter_map(|end| rest.find(end)).min().unwrap_or(rest.len());
    let whole = rest[..end].trim();
    // SLURM names the author at the end of the first line, and indents the others.
    let (first, more) = whole.split_once(LINE_BREAK).unwrap_or((whole, ""));
    let author = first.strip_suffix(']').and_then(|first| first.rsplit_once(" ["));
    let (first, author) = author.filter(|(_, author)| author.contains('@')).unwrap_or((first, ""));
    let since = author.rsplit_once('@').and_then(|(_, time)| time.parse().ok());
    let lines = std::iter::once(first).chain(more.split(LINE_BREAK)).map(str::trim);
    let text = lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join(" ");
    (Some(Text::new(text)).filter(|text| !text.is_empty()), since)
}

/// Text that `--oneliner` prints between two lines of a reason.
const LINE_BREAK: &str = "        ";

/// The meaning of a node's state for new jobs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Mixed,
    Allocated,
    Drained,
    Down,
    Other,
}

impl State {
    /// Parses `MIXED+DRAIN`, `DOWN*+CLOUD`, `IDLE+NOT_RESPONDING`. The powered-down nodes of a cloud accept jobs.
    fn new(text: &str) -> Self {
        let mut words = text.split('+');
        let base = words.next().unwrap_or_default();
        let has = |names: &[&str]| {
            text.split('+')
                .skip(1)
                .any(|flag| names.contains(&flag.trim_end_matches(|c: char| !c.is_alphabetic())))
        };
        match base.trim_end_matches(|c: char| !c.is_alphabetic()) {
            "DOWN" | "ERROR" => Self::Down,
            _ if has(&["DRAIN", "DRAINED", "DRAINING"]) => Self::Drained,
            "DRAINED" | "DRAINING" => Self::Drained,
            _ if text.contains('*') || has(&["NOT_RESPONDING", "POWERED_DOWN_FAIL"]) => Self::Down,
            // Marks of releases before 21.08: maintenance, reboot requested or issued, powering down.
            _ if text.contains(['$', '@', '^', '%', '!']) => Self::Other,
            _ if has(&[
                "BLOCKED",
                "MAINT",
                "MAINTENANCE",
                "RESERVED",
                "REBOOT",
                "REBOOT_ISSUED",
                "REBOOT_REQUESTED",
                "FAIL",
                "INVALID_REG",
                "POWERING_DOWN",
            ]) =>
            {
                Self::Other
            }
            "IDLE" => Self::Idle,
            "MIXED" => Self::Mixed,
            "ALLOCATED" => Self::Allocated,
            _ => Self::Other,
        }
    }

    fn is_available(self) -> bool {
        matches!(self, Self::Idle | Self::Mixed | Self::Allocated)
    }
}

/// Sums of the nodes of a partition.
#[derive(Default)]
struct Partition {
    nodes: NodeCounts,
    gpus: BTreeMap<String, GpuCounts>,
    has_unknown_gpus: bool,
}

impl Partition {
    fn add(&mut self, node: &Node<'_>) {
        let count = match node.state {
            State::Idle => &mut self.nodes.idle,
            State::Mixed => &mut self.nodes.mixed,
            State::Allocated => &mut self.nodes.allocated,
            State::Drained => &mut self.nodes.drained,
            State::Down => &mut self.nodes.down,
            State::Other => &mut self.nodes.other,
        };
        *count = count.saturating_add(1);
        let Some(gpus) = node.gpus() else {
            self.has_unknown_gpus = true;
            return;
        };
        for (kind, total, used) in gpus {
            let none = || GpuCounts { allocated: Some(0), unavailable: Some(0), ..GpuCounts::default() };
            let counts = self.gpus.entry(kind).or_insert_with(none);
            let idle = used.map(|used| total.saturating_sub(used));
            let unavailable = if node.state.is_available() { Some(0) } else { idle };
            counts.total = counts.total.saturating_add(total);
            counts.allocated = counts.allocated.zip(used).map(|(sum, used)| sum.saturating_add(used));
            counts.unavailable =
                counts.unavailable.zip(unavailable).map(|(sum, more)| sum.saturating_add(more));
        }
    }

    fn summary(self, name: &str) -> PartitionSummary {
        let kind = |kind: String| Some(Text::from(kind)).filter(|kind| !kind.is_empty());
        let gpus = self.gpus.into_iter().filter(|(_, counts)| counts.total > 0);
        let gpus = gpus.map(|(name, counts)| GpuCounts { kind: kind(name), ..counts }).collect();
        PartitionSummary {
            name: name.into(),
            nodes: self.nodes,
            gpus: (!self.has_unknown_gpus).then_some(gpus),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Owners;
    use proptest::prelude::*;

    fn read(text: &str) -> ClusterSummary {
        summary(text.as_bytes(), &Selection::of(2001, Owners::All)).unwrap()
    }

    /// Type, total, allocated, unavailable and free GPUs in a partition.
    type Row = (String, u32, Option<u32>, Option<u32>, Option<u32>);

    fn gpus(summary: &ClusterSummary, partition: &str) -> Option<Vec<Row>> {
        let found = summary.partitions.iter().find(|found| found.name.as_str() == partition).unwrap();
        let kind = |gpu: &GpuCounts| gpu.kind.as_ref().map(ToString::to_string).unwrap_or_default();
        let row = |gpu: &GpuCounts| (kind(gpu), gpu.total, gpu.allocated, gpu.unavailable, gpu.free());
        Some(found.gpus.as_ref()?.iter().map(row).collect())
    }

    /// Lines of 22.05 and 24.05, shortened, with one node of each kind.
    const NODES: &str = "\
NodeName=g01 Arch=x86_64 CPUTot=32 Gres=gpu:a100:4(S:0-1) GresDrain=N/A GresUsed=gpu:a100:3(IDX:0-2) OS=Linux 6.1 #1 SMP State=MIXED ThreadsPerCore=1 Partitions=gpu,short  BootTime=1 AllocTRES=cpu=20 Surprise=1
NodeName=g02 Gres=gpu:a100:4 GresUsed=gpu:a100:0(IDX:N/A) State=IDLE+CLOUD+POWERED_DOWN Partitions=gpu
NodeName=g03 Gres=gpu:a100:4 GresUsed=gpu:a100:1(IDX:3) State=MIXED+DRAIN Partitions=gpu   Reason=Xid 79 on State=IDLE [root@1700000000] Comment=x
NodeName=g04 Gres=gpu:a100:4 GresUsed=gpu:a100:0(IDX:N/A) State=DOWN*+CLOUD Partitions=gpu Reason=Not responding [slurm@2024-01-01T00:00:00]
NodeName=m01 Gres=gpu:1g.10gb:7,gpu:h100:2 GresUsed=gpu:1g.10gb:5(IDX:0-4),gpu:h100:2(IDX:7-8) State=ALLOCATED Partitions=mig
NodeName=c01 Gres=(null) GresUsed= State=IDLE Partitions=cpu
NodeName=u01 Gres=gpu:2(S:0) GresUsed=gpu:(null):1(IDX:1) State=MIXED+PLANNED Partitions=untyped
";

    #[test]
    fn nodes_with_gpus_are_watched_unless_they_are_turned_off() {
        let names = with_gpus(NODES.as_bytes());
        let names: Vec<_> = names.iter().map(NodeName::as_str).collect();
        assert_eq!(names, ["g01", "g03", "g04", "m01", "u01"]);
        for (state, is_watched) in
            [("IDLE~", true), ("IDLE+POWERING_DOWN%", false), ("FUTURE", false), ("DOWN*", true)]
        {
            let line = format!("NodeName=n1 Gres=gpu:2 State={state} Partitions=gpu");
            assert_eq!(!with_gpus(line.as_bytes()).is_empty(), is_watched, "{state}");
        }
        assert!(
            with_gpus(b"NodeName=-o/x Gres=gpu:2 State=IDLE\nNodeName= Gres=gpu:2 State=IDLE\n\xff\n")
                .is_empty()
        );
    }

    #[test]
    fn nodes_and_gpus_are_counted_by_partition_state_and_type() {
        let summary = read(NODES);
        let names: Vec<_> = summary.partitions.iter().map(|partition| partition.name.as_str()).collect();
        assert_eq!(names, ["cpu", "gpu", "mig", "short", "untyped"]);
        let nodes = NodeCounts { idle: 1, mixed: 1, drained: 1, down: 1, ..NodeCounts::default() };
        assert_eq!(summary.partitions[1].nodes, nodes);
        let row = |kind: &str, total, allocated, unavailable, free| {
            (kind.to_owned(), total, Some(allocated), Some(unavailable), Some(free))
        };
        assert_eq!(gpus(&summary, "gpu"), Some(vec![row("a100", 16, 4, 7, 5)]));
        assert_eq!(gpus(&summary, "mig"), Some(vec![row("1g.10gb", 7, 5, 0, 2), row("h100", 2, 2, 0, 0)]));
        assert_eq!(gpus(&summary, "untyped"), Some(vec![row("", 2, 1, 0, 1)]));
        assert_eq!(gpus(&summary, "cpu"), Some(Vec::new()), "no GPU is a fact");
    }

    #[test]
    fn unavailable_nodes_are_listed_with_the_reason_up_to_a_limit() {
        let listed = read(NODES).unavailable;
        let node = |name: &str, state: &str, reason: &str, since| UnavailableNode {
            name: name.into(),
            state: state.into(),
            reason: Some(reason.into()),
            since,
        };
        let drained = node("g03", "mixed+drain", "Xid 79 on State=IDLE", Some(1_700_000_000));
        assert_eq!(listed, [drained, node("g04", "down*+cloud", "Not responding", None)]);
        let lines =
            "NodeName=a State=DOWN Partitions=a Reason=Xid 79 [root@17]        see [ops@wiki]        now";
        let node = &read(lines).unavailable[0];
        assert_eq!((node.reason.clone(), node.since), (Some("Xid 79 see [ops@wiki] now".into()), Some(17)));
        let many = (0..230).map(|n| format!("NodeName=n{n} State=DOWN Partitions=a\n")).collect::<String>();
        let summary = read(&many);
        assert_eq!((summary.unavailable.len(), summary.unavailable_omitted), (200, 30));
        assert_eq!(summary.unavailable[0].reason, None);
    }

    #[test]
    fn what_slurm_does_not_state_is_unknown_and_not_zero() {
        let line = |gres: &str| format!("NodeName=a {gres} State=IDLE Partitions=p\n");
        let read = |gres: &str| gpus(&read(&line(gres)), "p");
        let unknown = Some(vec![("a100".to_owned(), 4, None, Some(0), None)]);
        assert_eq!(read("Gres=gpu:a100:4"), unknown, "no GresUsed");
        assert_eq!(read("Gres=gpu:a100:4 GresUsed=N/A"), unknown);
        let shares = "Gres=gpu:a100:4,shard:40 GresUsed=gpu:a100:0(IDX:N/A),shard:2";
        assert_eq!(read(shares), unknown, "shares of unstated GPUs");
        for gres in ["", "Gres=N/A", "Gres=gpu:a100", "Gres=gpu:a100:4(S:0"] {
            assert_eq!(read(gres), None, "{gres}");
        }
    }

    #[test]
    fn free_gpus_are_unknown_where_slurm_does_not_state_those_in_use() {
        let free = |line: &str| {
            let found = gpus_by_node(format!("NodeName=a Gres=gpu:a100:4 {line} Partitions=p\n").as_bytes());
            found[0].free
        };
        assert_eq!(free("GresUsed=gpu:a100:1(IDX:0) State=MIXED"), Some(3));
        assert_eq!(free("GresUsed=N/A State=MIXED"), None);
        assert_eq!(free("GresUsed=N/A State=DOWN"), Some(0));
    }

    #[test]
    fn flags_decide_whether_a_node_accepts_jobs() {
        for (text, state) in [
            ("IDLE+PLANNED", State::Idle),
            ("IDLE~", State::Idle),
            ("MIXED$", State::Other),
            ("IDLE@", State::Other),
            ("ALLOCATED+COMPLETING", State::Allocated),
            ("IDLE*", State::Down),
            ("IDLE+NOT_RESPONDING", State::Down),
            ("DOWN*+DRAIN", State::Down),
            ("IDLE*+DRAIN", State::Drained),
            ("IDLE+RESERVED", State::Other),
            ("IDLE+BLOCKED", State::Other),
            ("FUTURE", State::Other),
            ("", State::Other),
        ] {
            assert_eq!(State::new(text), state, "{text}");
        }
    }

    #[test]
    fn only_selected_partitions_are_summarized_and_no_nodes_are_no_summary() {
        let mut selection = Selection::of(2001, Owners::All);
        selection.partitions = vec!["short".to_owned()];
        let short = summary(NODES.as_bytes(), &selection).unwrap();
        assert_eq!((short.partitions.len(), short.unavailable.len()), (1, 0));
        assert_eq!(summary(b"No nodes in the system\n", &selection), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_without_panic(
            fields in "(NodeName=| |State=|Gres=|GresUsed=|Partitions=|Reason=|gpu|\\(null\\)|\\(|\\)|\\[|\\]|@|:|,|[0-9a-z*+]|\n){0,24}",
            bytes in proptest::collection::vec(any::<u8>(), 0..64),
        ) {
            let selection = Selection::of(2001, Owners::All);
            let text = format!("NodeName=a {fields}");
            let _ = summary(&[text.as_bytes(), &bytes].concat(), &selection);
        }
    }
}
