//! The columns of processes: everything that is known of one; the default shows what nvitop shows.

use super::column::{CellStyle, Column, Sum};
use super::definition::{ColumnDef, Now, computed, metric, styled, with_catalogue};
use super::value::{CellUnit, Value};
use crate::domain::text;
use nodeglass_protocol::picture::{GpuPicture, NodePicture, ProcessGap, ProcessPicture};
use nodeglass_protocol::process::{Container, ProcessKind, ProcessState, Runtime};
use nodeglass_protocol::{GpuField, ProcessField as F, Reading, Row};
use std::sync::LazyLock;

/// A process on a GPU of its node, or memory without a visible process.
pub struct ProcessRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The GPU, if it is listed for the node.
    pub gpu: Option<&'a GpuPicture>,
    /// The holder of the memory.
    pub holder: Holder<'a>,
    /// The current time, for the run time.
    pub now: Now,
}

/// Holder of a GPU's memory.
#[derive(Clone, Copy)]
pub enum Holder<'a> {
    /// A process that NVML lists.
    Process(&'a ProcessPicture),
    /// Memory in bytes that no visible process holds.
    Unattributed(u64),
    /// Processes that may be missing from the list.
    Gap(&'a ProcessGap),
}

type Def = ColumnDef<fn(&ProcessRow<'_>) -> Value, F>;

const fn text_column(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Text, width, about)
}

const fn id(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Id, width, about)
}

/// Position of the column that names the node; omitted in a table of one node.
pub const NODE: usize = 0;
/// Position of the pid, which gives way to the node on a phone.
pub const PID: usize = 2;

static COLUMNS: LazyLock<Vec<Def>> = LazyLock::new(|| {
    with_catalogue(vec![
        computed(text_column("node", "Node", 100, "the node it runs on").rank(0), |row| {
            Value::text(row.node.name.as_str())
        }),
        computed(
            id("gpu", "GPU", 46, "its driver's index of its GPU; after the vendor, unless that is NVIDIA")
                .width_with_vendor(74)
                .rank(0),
            gpu,
        ),
        computed(id("pid", "PID", 76, "process ID on its node").rank(1), |row| {
            process_value(row, |p| Value::Number(p.facts.pid.into()))
        }),
        computed(text_column("user", "User", 88, "user who runs it").rank(4), |row| {
            process_value(row, |p| Value::text_reading(&p.facts.user))
        }),
        computed(
            text_column("type", "Type", 46, "C compute, G graphics, M multi-process service").rank(8),
            |row| process_value(row, |p| Value::text(kind(p.facts.kind))),
        ),
        computed(
            Column::new("mem", "GPU", CellUnit::Gib, 82, "GPU memory that it holds")
                .rank(0)
                .sum(Sum::Total)
                .aliases(&["gpu_mem"]),
            memory,
        ),
        styled(F::Sm, |column| column.width(62).rank(2)),
        styled(F::MemBw, |column| column.width(62).rank(6).aliases(&["mem_bw"])),
        styled(F::Encoder, |column| column.width(62)),
        styled(F::Decoder, |column| column.width(62)),
        styled(F::Cpu, |column| column.width(62).rank(3)),
        styled(F::Rss, |column| column.width(78).rank(5).aliases(&["ram"])),
        metric(F::Threads),
        computed(Column::new("time", "Run time", CellUnit::Span, 96, "since it started").rank(6), run_time),
        computed(
            text_column("state", "State", 96, "alive, waiting for a device, a zombie, or stopped"),
            state,
        ),
        computed(id("rank", "Rank", 54, "rank within the parallel program").rank(4), |row| {
            process_value(row, |p| Value::number(p.facts.rank.map(|rank| rank.global.into())))
        }),
        computed(id("local", "Local", 58, "rank on its node"), |row| {
            process_value(row, |p| Value::number(p.facts.rank.and_then(|rank| rank.local).map(Into::into)))
        }),
        computed(id("world", "World", 62, "number of ranks of the program"), |row| {
            process_value(row, |p| Value::number(p.facts.rank.and_then(|rank| rank.world).map(Into::into)))
        }),
        computed(text_column("job", "Job", 82, "SLURM's number of its job"), |row| {
            process_value(row, |p| Value::text(p.facts.job.map(|job| job.to_string()).unwrap_or_default()))
        }),
        computed(text_column("step", "Step", 78, "its step within the job"), |row| {
            process_value(row, |p| {
                Value::text(p.facts.step.as_ref().map(ToString::to_string).unwrap_or_default())
            })
        }),
        computed(text_column("container", "Container", 150, "container that it runs in"), |row| {
            process_value(row, |p| Value::text(p.facts.container.as_ref().map(container).unwrap_or_default()))
        }),
        computed(
            id("parent", "Parent", 76, "the pid of the process that started it").aliases(&["ppid"]),
            |row| process_value(row, |p| Value::number_reading(&p.facts.parent)),
        ),
        computed(
            Column::new("share", "GPU mem", CellUnit::Percent, 84, "share of the GPU's memory that it holds"),
            share,
        ),
        computed(text_column("cwd", "Folder", 220, "its working directory").grows(), |row| {
            process_value(row, |p| Value::text_reading(&p.facts.cwd))
        }),
        computed(
            text_column("command", "Command", 130, "its command line")
                .rank(0)
                .grows()
                .style(CellStyle::Command)
                .aliases(&["cmd", "args"]),
            command,
        ),
    ])
});

/// Returns the columns in their default order.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|column| column.column).collect()
}

/// Returns the value of a column.
pub fn value(row: &ProcessRow<'_>, column: usize) -> Value {
    let Some(definition) = COLUMNS.get(column) else { return Value::NONE };
    match row.holder {
        Holder::Process(process) => definition.value(&process.row, |read| read(row)),
        Holder::Unattributed(_) | Holder::Gap(_) => definition.value(&Row::default(), |read| read(row)),
    }
}

fn process_value(row: &ProcessRow<'_>, read: impl Fn(&ProcessPicture) -> Value) -> Value {
    match row.holder {
        Holder::Process(process) => read(process),
        Holder::Unattributed(_) | Holder::Gap(_) => Value::NONE,
    }
}

fn gpu(row: &ProcessRow<'_>) -> Value {
    let Some(gpu) = row.gpu else { return Value::Absent("its GPU is not among those of the node") };
    let whole = super::gpus::parent_gpu(row.node, gpu).unwrap_or(gpu);
    super::gpus::device_index(&whole.facts)
}

fn memory(row: &ProcessRow<'_>) -> Value {
    use nodeglass_protocol::field::Field as _;
    match row.holder {
        Holder::Process(process) => Value::cell(process.row.get(F::GpuMem), F::GpuMem.scale()),
        Holder::Unattributed(bytes) => Value::Number(bytes),
        Holder::Gap(_) => Value::NONE,
    }
}

fn share(row: &ProcessRow<'_>) -> Value {
    let used = memory(row);
    let total = row.gpu.and_then(|gpu| gpu.row.value(GpuField::MemTotal)).filter(|total| *total > 0);
    match (used.as_number(), total) {
        (Some(used), Some(total)) => Value::Number((used * 100 + total / 2) / total),
        (Some(_), None) => Value::NOT_YET,
        (None, _) => used,
    }
}

fn run_time(row: &ProcessRow<'_>) -> Value {
    process_value(row, |process| {
        let Some(started_ms) = process.facts.started_ms.value() else {
            return Value::count_reading(&process.facts.started_ms);
        };
        let seconds = row.now.wall_s.saturating_sub((started_ms / 1_000).cast_signed());
        Value::Number(seconds.max(0).cast_unsigned())
    })
}

fn state(row: &ProcessRow<'_>) -> Value {
    process_value(row, |process| match process.row.value(F::State) {
        Some(number) => Value::text(state_label(ProcessState::of_number(number))),
        None => Value::cell(process.row.get(F::State), nodeglass_protocol::field::Scale::Linear(1)),
    })
}

/// Returns the label of a state.
pub fn state_label(state: ProcessState) -> &'static str {
    match state {
        ProcessState::Alive => "alive",
        ProcessState::Uninterruptible => "blocked on I/O",
        ProcessState::Zombie => "zombie",
        ProcessState::Stopped => "stopped",
    }
}

/// Reason for a process without a name, in place of its command.
const NAMELESS: &str = "not found on this node: it ended just now, or runs in another container";
/// The reason if the node hides it.
const HIDDEN: &str = "hidden: this node's /proc shows you no processes of other users (mount option hidepid)";
/// Label of memory that no visible process holds.
const UNATTRIBUTED: &str = "memory held by no visible process";

/// Explains, in a tooltip, a row about processes that may be missing.
pub const ABOUT_GAPS: &str = "The driver did not list all processes of this GPU. Processes that it listed before are shown \
    while they run.";
/// Marks a note in place of a command, so that its first word is not taken for a program.
const NOTE: char = '▲';

/// Returns why processes may be missing.
pub fn gap_text(gap: &ProcessGap) -> String {
    match gap {
        ProcessGap::Unsupported => format!("{NOTE} the driver does not list the processes of this GPU"),
        ProcessGap::Failed(why) => format!("{NOTE} the process list of this GPU could not be read: {why}"),
        ProcessGap::More(1) => format!("{NOTE} 1 more process of this GPU is not listed"),
        ProcessGap::More(more) => {
            format!("{NOTE} {} more processes of this GPU are not listed", text::grouped((*more).into()))
        }
    }
}

/// Returns the command line, or the note in its place.
pub fn command(row: &ProcessRow<'_>) -> Value {
    let process = match row.holder {
        Holder::Process(process) => process,
        Holder::Unattributed(_) => return Value::text(UNATTRIBUTED),
        Holder::Gap(gap) => return Value::Text(gap_text(gap)),
    };
    let facts = &process.facts;
    match (facts.args.value(), &facts.command) {
        (Some(args), _) if !args.as_str().is_empty() => Value::text(args.as_str()),
        (_, Reading::Value(name)) => Value::text(name.as_str()),
        (_, Reading::Failed(why)) if why.is_hidden() => Value::text(HIDDEN),
        (_, Reading::Failed(_)) => Value::text(NAMELESS),
        (_, other) => Value::text_reading(other),
    }
}

/// Splits a command line into the program and the rest.
pub fn split(command: &str) -> (String, String) {
    match command.split_once(' ') {
        _ if [NAMELESS, HIDDEN, UNATTRIBUTED].contains(&command) || command.starts_with(NOTE) => {
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

    fn at(holder: Holder<'_>, id: &str) -> Value {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::MemTotal, Cell::steps(80 * 16));
        node.gpus.push(gpu);
        let now = Now { relay_ms: 0, wall_s: 10_000 };
        let row = ProcessRow { node: &node, gpu: node.gpus.first(), holder, now };
        value(&row, find(&columns(), id).unwrap())
    }

    #[test]
    fn the_type_names_the_lists_that_contain_the_process() {
        assert_eq!(kind(ProcessKind { compute: true, graphics: true, mps: false }), "CG");
        assert_eq!(kind(ProcessKind { mps: true, ..ProcessKind::default() }), "M");
    }

    #[test]
    fn a_process_that_was_not_found_has_a_note_and_no_name() {
        let mut process = process();
        assert!(at(Holder::Process(&process), "command").why_absent().is_some());
        process.facts.command = Reading::Failed("no such process".into());
        let line = at(Holder::Process(&process), "command").line(CellUnit::Text);
        assert!(line.starts_with("not found on this node"), "{line}");
        assert_eq!(split(&line).0, "", "a note has no program");
    }

    #[test]
    fn unattributed_memory_is_a_row_without_a_pid() {
        assert_eq!(at(Holder::Unattributed(8 << 30), "mem"), Value::Number(8 << 30));
        assert_eq!(at(Holder::Unattributed(8 << 30), "share"), Value::Number(10));
        for id in ["pid", "user", "sm", "rank", "time"] {
            assert!(at(Holder::Unattributed(1), id).why_absent().is_some(), "{id}");
        }
        assert_eq!(at(Holder::Unattributed(1), "command"), Value::text("memory held by no visible process"));
    }

    #[test]
    fn possibly_missing_processes_are_a_row_with_the_reason() {
        let failed = ProcessGap::Failed("unknown error".into());
        let text = "▲ the process list of this GPU could not be read: unknown error";
        assert_eq!(at(Holder::Gap(&failed), "command"), Value::text(text));
        assert_eq!(split(text), (String::new(), text.to_owned()), "a note has no program");
        let more = ProcessGap::More(1_200);
        assert_eq!(
            at(Holder::Gap(&more), "command").line(CellUnit::Text),
            "▲ 1 200 more processes of this GPU are not listed".replace("1 200", &text::grouped(1_200))
        );
        for id in ["pid", "user", "mem", "sm", "time"] {
            assert!(at(Holder::Gap(&more), id).why_absent().is_some(), "{id}");
        }
    }

    #[test]
    fn a_start_in_the_future_gives_no_negative_run_time() {
        let mut process = process();
        process.facts.started_ms = Reading::Value(9_000_000);
        assert_eq!(at(Holder::Process(&process), "time"), Value::Number(1_000));
        process.facts.started_ms = Reading::Value(99_000_000);
        assert_eq!(at(Holder::Process(&process), "time"), Value::Number(0));
    }

    #[test]
    fn the_run_time_of_a_process_stops_at_the_end_of_its_job() {
        let mut process = process();
        process.facts.started_ms = Reading::Value(9_000_000);
        let node = NodePicture::new("n1".parse().unwrap());
        let ran = |ended_ms| {
            let now = Now { relay_ms: 500_000, wall_s: 10_000 }.until(ended_ms);
            run_time(&ProcessRow { node: &node, gpu: None, holder: Holder::Process(&process), now })
        };
        assert_eq!(ran(None), Value::Number(1_000));
        assert_eq!(ran(Some(200_000)), Value::Number(700));
        assert_eq!(ran(Some(600_000)), Value::Number(1_000), "an end that is to come");
    }

    #[test]
    fn states_have_labels() {
        let mut process = process();
        process.row.set(F::State, Cell::steps(2));
        assert_eq!(at(Holder::Process(&process), "state"), Value::text("zombie"));
    }

    #[test]
    fn a_command_is_split_into_program_and_rest() {
        assert_eq!(split("/usr/bin/python3 train.py -x"), ("python3".to_owned(), " train.py -x".to_owned()));
        assert_eq!(split("bash"), ("bash".to_owned(), String::new()));
    }
}
