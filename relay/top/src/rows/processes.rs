//! Processes on the listed GPUs: their order, as a list or a tree. Pure.

use super::gpus::Line as GpuLine;
use super::{Spans, matches, one, reading};
use crate::model::World;
use crate::palette::Palette;
use crate::table::Column;
use nodeglass_protocol::picture::{NodePicture, ProcessPicture};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::{GpuUuid, NodeName, ProcessField, Reading, Text};
use nodeglass_rules::health::{self, Freshness};
use nodeglass_rules::text;
use ratatui::style::Style;
use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::fmt;

/// Content of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key {
    /// Node.
    Node,
    /// GPU.
    Gpu,
    /// Process id.
    Pid,
    /// User.
    User,
    /// `C`, `G`, `M`.
    Kind,
    /// Rank.
    Rank,
    /// Memory on the GPU.
    GpuMem,
    /// SM time.
    Sm,
    /// Memory bandwidth.
    MemBw,
    /// CPU.
    Cpu,
    /// Resident memory.
    Rss,
    /// Time since the start.
    Time,
    /// Command line.
    Command,
}

/// The columns.
pub const COLUMNS: &[Column<Key>] = &[
    Column::text(Key::Node, "NODE", (8, 14), 8),
    Column::text(Key::Gpu, "GPU", (6, 9), 2),
    Column::number(Key::Pid, "PID", 7, 0),
    Column::text(Key::User, "USER", (8, 10), 5),
    Column::text(Key::Kind, "TYPE", (4, 4), 12),
    Column::number(Key::Rank, "RANK", 4, 6),
    Column::number(Key::GpuMem, "GPU-MEM", 8, 1),
    Column::number(Key::Sm, "SM", 5, 4),
    Column::number(Key::MemBw, "MEM-BW", 6, 11),
    Column::number(Key::Cpu, "CPU", 7, 7),
    Column::number(Key::Rss, "HOST-MEM", 8, 9),
    Column::number(Key::Time, "TIME", 11, 10),
    Column::text(Key::Command, "COMMAND", (10, 240), 3),
];

/// An order of processes, with nvitop's letter after `o`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sort {
    /// By node, GPU, user, pid.
    #[default]
    Natural,
    /// By process id.
    Pid,
    /// By user.
    User,
    /// By memory on the GPU, the largest first.
    GpuMem,
    /// By SM time.
    Sm,
    /// By memory bandwidth.
    MemBw,
    /// By CPU.
    Cpu,
    /// By host memory.
    Rss,
    /// By age.
    Time,
    /// By rank.
    Rank,
}

impl Sort {
    /// All orders, in the order of `,` and `.`.
    pub const ALL: [Self; 10] = [
        Self::Natural,
        Self::Pid,
        Self::User,
        Self::GpuMem,
        Self::Sm,
        Self::MemBw,
        Self::Cpu,
        Self::Rss,
        Self::Time,
        Self::Rank,
    ];

    /// The letter that selects it after `o`.
    pub const fn letter(self) -> char {
        match self {
            Self::Natural => 'n',
            Self::Pid => 'p',
            Self::User => 'u',
            Self::GpuMem => 'g',
            Self::Sm => 's',
            Self::MemBw => 'b',
            Self::Cpu => 'c',
            Self::Rss => 'm',
            Self::Time => 't',
            Self::Rank => 'r',
        }
    }

    /// The order that a click on the head of a column selects.
    pub const fn of_column(key: Key) -> Option<Self> {
        Some(match key {
            Key::Node | Key::Gpu => Self::Natural,
            Key::Pid => Self::Pid,
            Key::User => Self::User,
            Key::GpuMem => Self::GpuMem,
            Key::Sm => Self::Sm,
            Key::MemBw => Self::MemBw,
            Key::Cpu => Self::Cpu,
            Key::Rss => Self::Rss,
            Key::Time => Self::Time,
            Key::Rank => Self::Rank,
            Key::Kind | Key::Command => return None,
        })
    }

    /// Its name in the title of the pane.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Natural => "node and GPU",
            Self::Pid => "pid",
            Self::User => "user",
            Self::GpuMem => "GPU memory",
            Self::Sm => "SM time",
            Self::MemBw => "memory bandwidth",
            Self::Cpu => "CPU",
            Self::Rss => "host memory",
            Self::Time => "time",
            Self::Rank => "rank",
        }
    }

    /// The order next to it.
    #[must_use]
    pub fn neighbour(self, by: isize) -> Self {
        let at = Self::ALL.iter().position(|sort| *sort == self).unwrap_or(0);
        let count = Self::ALL.len();
        Self::ALL[(at + count).saturating_add_signed(by) % count]
    }

    /// Compares two processes; `Natural` leaves them as they are listed. Missing values come last.
    fn compare(self, a: &ProcessPicture, b: &ProcessPicture) -> Ordering {
        let largest_first = |field| b.row.value(field).cmp(&a.row.value(field));
        match self {
            Self::Natural => Ordering::Equal,
            Self::Pid => a.facts.pid.cmp(&b.facts.pid),
            Self::User => user(a).cmp(user(b)),
            Self::GpuMem => largest_first(ProcessField::GpuMem),
            Self::Sm => largest_first(ProcessField::Sm),
            Self::MemBw => largest_first(ProcessField::MemBw),
            Self::Cpu => largest_first(ProcessField::Cpu),
            Self::Rss => largest_first(ProcessField::Rss),
            Self::Time => {
                let started =
                    |process: &ProcessPicture| process.facts.started_ms.value().copied().unwrap_or(u64::MAX);
                started(a).cmp(&started(b))
            }
            Self::Rank => {
                let rank = |process: &ProcessPicture| process.facts.rank.map_or(u32::MAX, |rank| rank.global);
                rank(a).cmp(&rank(b))
            }
        }
    }
}

/// A row.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// Its node.
    pub node: &'a NodePicture,
    /// The process.
    pub process: &'a ProcessPicture,
    /// Depth below an ancestor that is listed too.
    pub depth: usize,
}

/// Identity of a row.
pub type LineId = (NodeName, u32, GpuUuid);

impl Line<'_> {
    /// Its identity.
    pub fn id(&self) -> LineId {
        (self.node.name.clone(), self.process.facts.pid, self.process.facts.gpu.clone())
    }
}

/// Order of processes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Order {
    /// By what.
    pub sort: Sort,
    /// The other way round.
    pub is_reversed: bool,
    /// Children below their parents.
    pub is_tree: bool,
}

/// Filter of processes by the command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Only {
    /// Those that compute.
    pub compute: bool,
    /// Those that draw.
    pub graphics: bool,
    /// None that both compute and draw.
    pub exactly: bool,
    /// Those with these ids, unless empty.
    pub pids: Vec<u32>,
    /// Those of these users, unless empty.
    pub logins: Vec<String>,
}

impl Only {
    fn keeps(&self, process: &ProcessPicture) -> bool {
        let kind = process.facts.kind;
        // A client of MPS computes.
        let (computes, draws) = (kind.compute || kind.mps, kind.graphics);
        let wants_any = self.compute || self.graphics;
        (!wants_any || self.compute && computes || self.graphics && draws)
            && !(self.exactly && computes && draws)
            && (self.pids.is_empty() || self.pids.contains(&process.facts.pid))
            && (self.logins.is_empty() || self.logins.iter().any(|login| login == user(process)))
    }
}

/// In words for the title: `, compute, pid 17 18`; empty without a restriction.
impl fmt::Display for Only {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kinds = [(self.compute, "compute"), (self.graphics, "graphics")];
        for (_, name) in kinds.iter().filter(|(is_wanted, _)| *is_wanted) {
            write!(f, ", {}{name}", if self.exactly { "only " } else { "" })?;
        }
        if !self.pids.is_empty() {
            let pids: Vec<_> = self.pids.iter().map(u32::to_string).collect();
            write!(f, ", pid {}", pids.join(" "))?;
        }
        if !self.logins.is_empty() {
            write!(f, ", of {}", Text::new(self.logins.join(" ")))?;
        }
        Ok(())
    }
}

/// The processes on the listed GPUs of nodes whose details are known. `gpu` selects one.
pub fn lines<'a>(
    world: &World<'a>,
    gpus: &[GpuLine<'a>],
    gpu: Option<&GpuUuid>,
    order: &Order,
    (only, filter): (&Only, &str),
) -> Vec<Line<'a>> {
    let mut lines = Vec::new();
    for node in gpus.iter().filter_map(|line| match line {
        GpuLine::Node(node) => world.full_node(&node.name),
        GpuLine::Gpu(..) => None,
    }) {
        let listed: HashSet<&GpuUuid> = gpus
            .iter()
            .filter(|line| line.node().name == node.name)
            .filter_map(|line| Some(&line.gpu()?.facts.uuid))
            .filter(|uuid| gpu.is_none_or(|gpu| gpu == *uuid))
            .collect();
        let kept = node.processes.iter().filter(|process| {
            let pid = process.facts.pid.to_string();
            let texts = [node.name.as_str(), user(process), &pid, command(process)];
            listed.contains(&process.facts.gpu) && only.keeps(process) && matches(filter, texts)
        });
        lines.extend(kept.map(|process| Line { node, process, depth: 0 }));
    }
    lines.sort_by(|a, b| order.sort.compare(a.process, b.process));
    if order.is_reversed {
        lines.reverse();
    }
    if order.is_tree { tree(lines) } else { lines }
}

/// Puts each process below its parent, if that is listed on the same node. A process on several GPUs has a row for
/// each, and its children follow the first.
fn tree(lines: Vec<Line<'_>>) -> Vec<Line<'_>> {
    let mut first: HashMap<(&NodeName, u32), usize> = HashMap::new();
    for (index, line) in lines.iter().enumerate() {
        first.entry((&line.node.name, line.process.facts.pid)).or_insert(index);
    }
    let parent = |line: &Line<'_>| -> Option<usize> {
        let parent = *line.process.facts.parent.value()?;
        first.get(&(&line.node.name, parent)).copied().filter(|_| parent != line.process.facts.pid)
    };
    let mut children: HashMap<usize, Vec<usize>> = HashMap::new();
    let mut roots = Vec::new();
    for (index, line) in lines.iter().enumerate() {
        match parent(line) {
            Some(parent) => children.entry(parent).or_default().push(index),
            None => roots.push(index),
        }
    }
    // Each once, even if pids that were reused form a circle.
    let mut order = Vec::with_capacity(lines.len());
    let mut is_placed = vec![false; lines.len()];
    let mut stack: Vec<(usize, usize)> = (0..lines.len()).rev().map(|index| (index, 0)).collect();
    stack.extend(roots.into_iter().rev().map(|index| (index, 0)));
    while let Some((index, depth)) = stack.pop() {
        if std::mem::replace(&mut is_placed[index], true) {
            continue;
        }
        order.push(Line { depth, ..lines[index] });
        stack.extend(children.get(&index).into_iter().flatten().rev().map(|child| (*child, depth + 1)));
    }
    order
}

/// Its user, or why that is not known.
pub fn user(process: &ProcessPicture) -> &str {
    words(&process.facts.user)
}

/// Its command line, or else its name.
pub fn command(process: &ProcessPicture) -> &str {
    match (&process.facts.args, &process.facts.command) {
        (Reading::Value(args), _) if !args.is_empty() => args.as_str(),
        (_, command) => words(command),
    }
}

fn words(reading: &Reading<Text>) -> &str {
    match reading {
        Reading::Value(text) => text.as_str(),
        Reading::Failed(why) if why.is_hidden() => "hidden",
        Reading::Failed(_) => "err",
        Reading::Unsupported => "n/a",
        Reading::NotYet => text::ABSENT,
    }
}

/// A cell.
pub fn cell(line: Line<'_>, key: Key, world: &World<'_>, palette: Palette) -> Spans {
    let Line { node, process, depth } = line;
    let is_current = health::freshness(node, world.now_ms) == Freshness::Fresh;
    let style = |style: Style| if is_current { style } else { palette.dim() };
    let plain = style(Style::new());
    let number = |field, shown: fn(u64) -> String| reading(&process.row, field, shown);
    let facts = &process.facts;
    match key {
        Key::Node => one(node.name.to_string(), plain),
        Key::Gpu => {
            let gpu = node.gpus.iter().find(|gpu| gpu.facts.uuid == facts.gpu);
            one(gpu.map_or_else(|| text::ABSENT.to_owned(), super::gpus::label), plain)
        }
        Key::Pid => one(facts.pid.to_string(), style(palette.strong())),
        Key::User => one(user(process), plain),
        Key::Kind => {
            let kinds = [(facts.kind.compute, 'C'), (facts.kind.graphics, 'G'), (facts.kind.mps, 'M')];
            one(kinds.iter().filter(|(is, _)| *is).map(|(_, letter)| letter).collect::<String>(), plain)
        }
        Key::Rank => one(facts.rank.map_or_else(String::new, |rank| rank.global.to_string()), plain),
        Key::GpuMem => one(number(ProcessField::GpuMem, mem), style(palette.memory())),
        Key::Sm => one(number(ProcessField::Sm, pct), plain),
        Key::MemBw => one(number(ProcessField::MemBw, pct), plain),
        Key::Cpu => one(number(ProcessField::Cpu, pct), style(palette.host())),
        Key::Rss => one(number(ProcessField::Rss, mem), style(palette.host())),
        Key::Time => {
            // By the node's clock, which may differ from ours: never negative.
            let age =
                |started: &u64| u64::try_from(world.wall_s).unwrap_or(0).saturating_sub(started / 1_000);
            let time =
                facts.started_ms.value().map_or_else(String::new, |started| text::short_span(age(started)));
            one(time, palette.dim())
        }
        Key::Command => command_cell(process, depth, plain, palette),
    }
}

/// The command, below its parent, after the state of a process that does not run.
fn command_cell(process: &ProcessPicture, depth: usize, style: Style, palette: Palette) -> Spans {
    let branch = if depth > 0 { format!("{}└ ", "  ".repeat((depth - 1).min(8))) } else { String::new() };
    let mut spans = one(branch, palette.dim());
    let state = process.row.value(ProcessField::State).map_or(ProcessState::Alive, ProcessState::of_number);
    let note = match state {
        ProcessState::Alive => None,
        ProcessState::Uninterruptible => Some("waits for a device: "),
        ProcessState::Zombie => Some("zombie: "),
        ProcessState::Stopped => Some("stopped: "),
    };
    spans.extend(note.map(|note| ratatui::text::Span::styled(note, palette.dim())));
    spans.extend(one(command(process), style));
    spans
}

fn pct(value: u64) -> String {
    format!("{value} %")
}

/// Bytes with a unit: processes range from MiB to hundreds of GiB.
fn mem(bytes: u64) -> String {
    match bytes {
        ..0x4000_0000 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", text::tenths(bytes as f64 / f64::from(1_u32 << 30))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::Picture;
    use nodeglass_protocol::picture::GpuPicture;
    use nodeglass_protocol::process::{ProcessFacts, ProcessKind};

    /// A node with one GPU and these processes: pid, parent, GPU memory in MiB.
    fn picture(processes: &[(u32, u32, Option<u32>)]) -> Picture {
        let mut node = NodePicture::new("n1".parse().unwrap());
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new("GPU-1");
        node.gpus.push(gpu);
        node.processes = processes
            .iter()
            .map(|(pid, parent, mem)| {
                let mut facts = ProcessFacts::new(GpuUuid::new("GPU-1"), *pid, ProcessKind::default());
                facts.parent = Reading::Value(*parent);
                let mut row = nodeglass_protocol::Row::default();
                row.set(ProcessField::GpuMem, mem.map_or(Cell::UNSUPPORTED, Cell::steps));
                ProcessPicture { facts, row }
            })
            .collect();
        Picture { nodes: vec![node], ..Picture::default() }
    }

    fn listed(picture: &Picture, order: &Order) -> Vec<(u32, usize)> {
        let world = World { overview: picture, details: vec![picture], now_ms: 0, wall_s: 0 };
        let gpus = super::super::gpus::lines(&world, &Default::default(), "");
        lines(&world, &gpus, None, order, (&Only::default(), ""))
            .iter()
            .map(|line| (line.process.facts.pid, line.depth))
            .collect()
    }

    #[test]
    fn the_largest_come_first_and_missing_values_last() {
        let picture = picture(&[(1, 0, Some(10)), (2, 0, None), (3, 0, Some(30))]);
        let mut order = Order { sort: Sort::GpuMem, ..Order::default() };
        assert_eq!(listed(&picture, &order), [(3, 0), (1, 0), (2, 0)]);
        order.is_reversed = true;
        assert_eq!(listed(&picture, &order), [(2, 0), (1, 0), (3, 0)]);
    }

    #[test]
    fn a_tree_has_children_below_their_parents_and_each_process_once() {
        let order = Order { is_tree: true, ..Order::default() };
        let shown = listed(&picture(&[(3, 2, None), (2, 1, None), (4, 2, None), (1, 0, None)]), &order);
        assert_eq!(shown, [(1, 0), (2, 1), (3, 2), (4, 2)]);
        // Pids that were reused could form a circle.
        let circle = listed(&picture(&[(5, 6, None), (6, 5, None)]), &order);
        assert_eq!(circle.len(), 2);
    }

    #[test]
    fn the_types_of_the_command_line_are_those_of_nvitop() {
        let kept = |only: &Only| -> String {
            let of = |compute, graphics, mps| ProcessKind { compute, graphics, mps };
            let kinds = [
                of(true, false, false),
                of(true, true, false),
                of(false, true, false),
                of(false, false, true),
            ];
            let kept = kinds.into_iter().zip(["C ", "C+G ", "G ", "M "]).filter(|(kind, _)| {
                let facts = ProcessFacts::new(GpuUuid::new("GPU-1"), 1, *kind);
                only.keeps(&ProcessPicture { facts, row: Default::default() })
            });
            kept.map(|(_, name)| name).collect()
        };
        let only = |compute, graphics, exactly| Only { compute, graphics, exactly, ..Only::default() };
        assert_eq!(kept(&only(false, false, false)), "C C+G G M ");
        assert_eq!(kept(&only(true, false, false)), "C C+G M ");
        assert_eq!(kept(&only(true, false, true)), "C M ");
        assert_eq!(kept(&only(false, true, false)), "C+G G ");
        assert_eq!(kept(&only(false, true, true)), "G ");
        assert_eq!(kept(&Only { pids: vec![2], ..Only::default() }), "");
        assert_eq!(kept(&Only { logins: vec!["bob".to_owned()], ..Only::default() }), "");
    }

    #[test]
    fn every_order_has_a_letter_of_its_own() {
        let letters: HashSet<char> = Sort::ALL.iter().map(|sort| sort.letter()).collect();
        assert_eq!(letters.len(), Sort::ALL.len());
        assert_eq!((Sort::Natural.neighbour(-1), Sort::Rank.neighbour(1)), (Sort::Rank, Sort::Natural));
    }
}
