//! The columns of processes: everything that is known of one, of which what nvitop shows is shown by default.

use super::column::{Column, Look, Sum};
use super::value::{Unit, Value};
use super::{Now, Told, by, field};
use crate::text;
use nodeglass_protocol::picture::{GpuPicture, NodePicture, ProcessGap, ProcessPicture};
use nodeglass_protocol::process::{Container, ProcessKind, ProcessState, Runtime};
use nodeglass_protocol::{GpuField, ProcessField as F, Reading, Row};

/// A process on a GPU of its node, or what is held there by none that can be seen.
pub struct ProcessRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The GPU, if it is among those of the node.
    pub gpu: Option<&'a GpuPicture>,
    /// Who.
    pub who: Who<'a>,
    /// The time, for its run time.
    pub now: Now,
}

/// Who holds memory of a GPU.
#[derive(Clone, Copy)]
pub enum Who<'a> {
    /// A process that NVML lists.
    Process(&'a ProcessPicture),
    /// Nobody who can be seen: so many bytes.
    Unseen(u64),
    /// Processes that may be missing from the list.
    Gap(&'a ProcessGap),
}

type Of = Told<fn(&ProcessRow<'_>) -> Value, F>;

const fn pct(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Percent, 62, about)
}

const fn words(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, Unit::Words, width, about)
}

const fn id(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, Unit::Id, width, about)
}

/// Position of the column that names the node; a table of one node leaves it out.
pub const NODE: usize = 0;

static COLUMNS: [Of; 25] = [
    by(words("node", "Node", 112, "the node it runs on").rank(1), |row| Value::text(row.node.name.as_str())),
    by(id("gpu", "GPU", 46, "NVML's index of its GPU").rank(0), gpu),
    by(id("pid", "PID", 76, "its number on the node").rank(0), |row| {
        of(row, |p| Value::Number(p.facts.pid.into()))
    }),
    by(words("user", "User", 88, "whose it is").rank(4), |row| of(row, |p| Value::said(&p.facts.user))),
    by(words("type", "Type", 46, "C compute, G graphics, M multi-process service").rank(8), |row| {
        of(row, |p| Value::text(kind(p.facts.kind)))
    }),
    by(
        Column::new("mem", "GPU", Unit::Gib, 82, "device memory that it holds")
            .rank(0)
            .sum(Sum::Total)
            .aliases(&["gpu_mem"]),
        memory,
    ),
    field(pct("sm", "SM", "share of the SMs' time").rank(2), F::Sm),
    field(pct("bw", "Mem", "share of the memory bandwidth's time").rank(6).aliases(&["mem_bw"]), F::MemBw),
    field(pct("enc", "Enc.", "share of the video encoder"), F::Encoder),
    field(pct("dec", "Dec.", "share of the video decoder"), F::Decoder),
    field(pct("cpu", "CPU", "CPU time, 100 % is one core").rank(3).sum(Sum::Total), F::Cpu),
    field(
        Column::new("rss", "RAM", Unit::Gib, 78, "resident memory of the host").rank(5).aliases(&["ram"]),
        F::Rss,
    ),
    field(Column::new("threads", "Threads", Unit::Count, 72, "its threads"), F::Threads),
    by(Column::new("time", "Run time", Unit::Clock, 96, "since it started").rank(6), run_time),
    by(words("state", "State", 96, "alive, waiting for a device, a zombie, or stopped"), state),
    by(id("rank", "Rank", 54, "its place among the tasks of a parallel program").rank(4), |row| {
        of(row, |p| Value::number(p.facts.rank.map(|rank| rank.global.into())))
    }),
    by(id("local", "Local", 58, "its place among the tasks on this node"), |row| {
        of(row, |p| Value::number(p.facts.rank.and_then(|rank| rank.local).map(Into::into)))
    }),
    by(id("world", "World", 62, "how many tasks the program has"), |row| {
        of(row, |p| Value::number(p.facts.rank.and_then(|rank| rank.world).map(Into::into)))
    }),
    by(words("job", "Job", 82, "SLURM's number of its job"), |row| {
        of(row, |p| Value::text(p.facts.job.map(|job| job.to_string()).unwrap_or_default()))
    }),
    by(words("step", "Step", 78, "its step within the job"), |row| {
        of(row, |p| Value::text(p.facts.step.as_ref().map(ToString::to_string).unwrap_or_default()))
    }),
    by(words("container", "Container", 150, "what it runs in"), |row| {
        of(row, |p| Value::text(p.facts.container.as_ref().map(container).unwrap_or_default()))
    }),
    by(id("parent", "Parent", 76, "the pid of the process that started it").aliases(&["ppid"]), |row| {
        of(row, |p| Value::told(&p.facts.parent))
    }),
    by(Column::new("share", "GPU mem", Unit::Percent, 84, "share of the GPU's memory that it holds"), share),
    by(words("cwd", "Folder", 220, "its working directory").grows(), |row| {
        of(row, |p| Value::said(&p.facts.cwd))
    }),
    by(
        words("command", "Command", 130, "its command line")
            .rank(0)
            .grows()
            .look(Look::Command)
            .aliases(&["cmd", "args"]),
        command,
    ),
];

/// The columns in the order they have by themselves.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|told| told.column).collect()
}

/// What stands in a column.
pub fn value(row: &ProcessRow<'_>, column: usize) -> Value {
    let Some(told) = COLUMNS.get(column) else { return Value::NONE };
    match row.who {
        Who::Process(process) => told.value(&process.row, |read| read(row)),
        Who::Unseen(_) | Who::Gap(_) => told.value(&Row::default(), |read| read(row)),
    }
}

fn of(row: &ProcessRow<'_>, read: impl Fn(&ProcessPicture) -> Value) -> Value {
    match row.who {
        Who::Process(process) => read(process),
        Who::Unseen(_) | Who::Gap(_) => Value::NONE,
    }
}

fn gpu(row: &ProcessRow<'_>) -> Value {
    let Some(gpu) = row.gpu else { return Value::Absent("its GPU is not among those of the node") };
    let whole = super::gpus::whole(row.node, gpu).unwrap_or(gpu);
    Value::Number(whole.facts.index.into())
}

fn memory(row: &ProcessRow<'_>) -> Value {
    use nodeglass_protocol::cell::Field as _;
    match row.who {
        Who::Process(process) => Value::cell(process.row.get(F::GpuMem), F::GpuMem.scale()),
        Who::Unseen(bytes) => Value::Number(bytes),
        Who::Gap(_) => Value::NONE,
    }
}

fn share(row: &ProcessRow<'_>) -> Value {
    let held = memory(row);
    let total = row.gpu.and_then(|gpu| gpu.row.value(GpuField::MemTotal)).filter(|total| *total > 0);
    match (held.as_number(), total) {
        (Some(held), Some(total)) => Value::Number((held * 100 + total / 2) / total),
        (Some(_), None) => Value::NOT_YET,
        (None, _) => held,
    }
}

fn run_time(row: &ProcessRow<'_>) -> Value {
    of(row, |process| {
        let Some(started_ms) = process.facts.started_ms.value() else {
            return Value::counted(&process.facts.started_ms);
        };
        let seconds = row.now.wall_s.saturating_sub((started_ms / 1_000).cast_signed());
        Value::Number(seconds.max(0).cast_unsigned())
    })
}

fn state(row: &ProcessRow<'_>) -> Value {
    of(row, |process| match process.row.value(F::State) {
        Some(number) => Value::text(state_word(ProcessState::of_number(number))),
        None => Value::cell(process.row.get(F::State), nodeglass_protocol::cell::Scale::Linear(1)),
    })
}

/// A state as a word.
pub fn state_word(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Alive => "alive",
        ProcessState::Uninterruptible => "waits for a device",
        ProcessState::Zombie => "zombie",
        ProcessState::Stopped => "stopped",
    }
}

/// Why a process has no name, as a sentence in the place of its command.
const NAMELESS: &str = "not found on this node: it ended just now, or runs in another container";
/// The same if the node hides it.
const HIDDEN: &str = "hidden: this node's /proc shows you no processes of other users (mount option hidepid)";
/// What is said of memory that nobody who can be seen holds.
const UNSEEN: &str = "memory held by no visible process";

/// What a row is that stands for processes that may be missing, for a title.
pub const ABOUT_GAPS: &str = "The driver did not list all processes of this GPU. Those that it listed before are shown \
    as long as they run.";
/// What a sentence in the place of a command begins with, so that no word of it is taken for a program.
const NOTE: char = '▲';

/// Why processes may be missing, in words.
pub fn gap_words(gap: &ProcessGap) -> String {
    match gap {
        ProcessGap::Unsupported => format!("{NOTE} the driver does not list the processes of this GPU"),
        ProcessGap::Failed(why) => format!("{NOTE} the process list of this GPU could not be read: {why}"),
        ProcessGap::More(1) => format!("{NOTE} 1 more process of this GPU is not listed"),
        ProcessGap::More(more) => {
            format!("{NOTE} {} more processes of this GPU are not listed", text::grouped((*more).into()))
        }
    }
}

fn command(row: &ProcessRow<'_>) -> Value {
    let process = match row.who {
        Who::Process(process) => process,
        Who::Unseen(_) => return Value::text(UNSEEN),
        Who::Gap(gap) => return Value::Text(gap_words(gap)),
    };
    let facts = &process.facts;
    match (facts.args.value(), &facts.command) {
        (Some(args), _) if !args.as_str().is_empty() => Value::text(args.as_str()),
        (_, Reading::Value(name)) => Value::text(name.as_str()),
        (_, Reading::Failed(why)) if why.is_hidden() => Value::text(HIDDEN),
        (_, Reading::Failed(_)) => Value::text(NAMELESS),
        (_, other) => Value::said(other),
    }
}

/// The program of a command line, and what follows it.
pub fn split(command: &str) -> (String, String) {
    match command.split_once(' ') {
        _ if [NAMELESS, HIDDEN, UNSEEN].contains(&command) || command.starts_with(NOTE) => {
            (String::new(), command.to_owned())
        }
        Some((program, rest)) => (text::program(program).to_owned(), format!(" {rest}")),
        None => (text::program(command).to_owned(), String::new()),
    }
}

fn kind(kind: ProcessKind) -> String {
    let letters = [(kind.compute, 'C'), (kind.graphics, 'G'), (kind.mps, 'M')];
    letters.into_iter().filter_map(|(is, letter)| is.then_some(letter)).collect()
}

fn container(container: &Container) -> String {
    let runtime = match container.runtime {
        Runtime::Apptainer => "Apptainer",
        Runtime::Enroot => "Enroot",
        Runtime::Docker => "Docker",
        Runtime::Podman => "Podman",
        Runtime::Kubernetes => "Kubernetes",
        Runtime::Other => "container",
    };
    container.name.as_ref().map_or(runtime.to_owned(), |name| format!("{runtime} {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::column::find;
    use nodeglass_protocol::process::ProcessFacts;
    use nodeglass_protocol::{Cell, GpuUuid, NodeName};

    fn process() -> ProcessPicture {
        let facts = ProcessFacts::new(GpuUuid::new("A"), 41_822, ProcessKind::default());
        ProcessPicture { facts, row: Row::default() }
    }

    fn at(who: Who<'_>, id: &str) -> Value {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::MemTotal, Cell::steps(80 * 16));
        node.gpus.push(gpu);
        let now = Now { relay_ms: 0, wall_s: 10_000 };
        let row = ProcessRow { node: &node, gpu: node.gpus.first(), who, now };
        value(&row, find(&columns(), id).unwrap())
    }

    #[test]
    fn a_type_is_the_lists_it_is_in() {
        assert_eq!(kind(ProcessKind { compute: true, graphics: true, mps: false }), "CG");
        assert_eq!(kind(ProcessKind { mps: true, ..ProcessKind::default() }), "M");
    }

    #[test]
    fn a_process_that_is_not_found_says_so_and_no_name() {
        let mut process = process();
        assert!(at(Who::Process(&process), "command").why_absent().is_some());
        process.facts.command = Reading::Failed("no such process".into());
        let said = at(Who::Process(&process), "command").line(Unit::Words);
        assert!(said.starts_with("not found on this node"), "{said}");
        assert_eq!(split(&said).0, "", "no program is called so");
    }

    #[test]
    fn memory_of_nobody_is_a_row_with_memory_and_no_pid() {
        assert_eq!(at(Who::Unseen(8 << 30), "mem"), Value::Number(8 << 30));
        assert_eq!(at(Who::Unseen(8 << 30), "share"), Value::Number(10));
        for id in ["pid", "user", "sm", "rank", "time"] {
            assert!(at(Who::Unseen(1), id).why_absent().is_some(), "{id}");
        }
        assert_eq!(at(Who::Unseen(1), "command"), Value::text("memory held by no visible process"));
    }

    #[test]
    fn processes_that_may_be_missing_are_a_row_that_says_why() {
        let failed = ProcessGap::Failed("unknown error".into());
        let words = "▲ the process list of this GPU could not be read: unknown error";
        assert_eq!(at(Who::Gap(&failed), "command"), Value::text(words));
        assert_eq!(split(words), (String::new(), words.to_owned()), "no program is called so");
        let more = ProcessGap::More(1_200);
        assert_eq!(
            at(Who::Gap(&more), "command").line(Unit::Words),
            "▲ 1 200 more processes of this GPU are not listed".replace("1 200", &text::grouped(1_200))
        );
        for id in ["pid", "user", "mem", "sm", "time"] {
            assert!(at(Who::Gap(&more), id).why_absent().is_some(), "{id}");
        }
    }

    #[test]
    fn a_clock_that_ran_ahead_gives_no_negative_time() {
        let mut process = process();
        process.facts.started_ms = Reading::Value(9_000_000);
        assert_eq!(at(Who::Process(&process), "time"), Value::Number(1_000));
        process.facts.started_ms = Reading::Value(99_000_000);
        assert_eq!(at(Who::Process(&process), "time"), Value::Number(0));
    }

    #[test]
    fn states_are_words() {
        let mut process = process();
        process.row.set(F::State, Cell::steps(2));
        assert_eq!(at(Who::Process(&process), "state"), Value::text("zombie"));
    }

    #[test]
    fn a_command_is_its_program_and_the_rest() {
        assert_eq!(split("/usr/bin/python3 train.py -x"), ("python3".to_owned(), " train.py -x".to_owned()));
        assert_eq!(split("bash"), ("bash".to_owned(), String::new()));
    }
}
