//! The columns of GPUs: everything that is known of one; about a dozen are shown by default.

use super::column::{CellStyle, Column, Sum};
use super::definition::{self, ColumnDef, metric, styled, with_catalogue};
use super::value::{CellUnit, NO_INSTANCE, TOO_FEW_PEERS, Value};
use crate::describe::gpu::instance_name;
use crate::domain::deviation::Deviation;
use crate::domain::text;
use crate::domain::throttle::REASONS;
use crate::domain::{flags, ownership};
use nodeglass_protocol::gpu::{Described, FactKind, FactReading, GpuFacts, GpuHealth, TableColumn};
use nodeglass_protocol::picture::{GpuPicture, NodePicture, ProcessGap};
use nodeglass_protocol::{Cell, GpuField as F, Vendor};
use std::sync::LazyLock;

/// A GPU with its node.
pub struct GpuRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The GPU.
    pub gpu: &'a GpuPicture,
    /// Its deviation from its peers, if it has any.
    pub deviation: Peers<'a>,
}

/// Deviation of a GPU from the median of the GPUs of the same job and model.
#[derive(Clone, Copy)]
pub enum Peers<'a> {
    /// There are too few of them.
    TooFew,
    /// Too little is known of the last two minutes, or the job pauses.
    Unknown,
    /// Over the last two minutes of work.
    Known(&'a Deviation),
}

impl Peers<'_> {
    fn value(self, value: impl Fn(&Deviation) -> Value) -> Value {
        match self {
            Self::Known(deviation) => value(deviation),
            Self::Unknown => Value::Absent("no data of the last two minutes, or the job is hardly active"),
            Self::TooFew => TOO_FEW_PEERS,
        }
    }
}

type Def = ColumnDef<Read, F>;

/// Reader of a column that is not a metric.
#[derive(Clone, Copy)]
enum Read {
    Row(fn(&GpuRow<'_>) -> Value),
    Fact(&'static Described<GpuFacts>),
    Health(&'static Described<GpuHealth>),
}

impl Read {
    fn value(self, row: &GpuRow<'_>) -> Value {
        let reading = match self {
            Self::Row(read) => return read(row),
            Self::Fact(fact) => fact.reading(&row.gpu.facts),
            Self::Health(health) => health.reading(&row.gpu.health),
        };
        match reading {
            FactReading::Text(reading) => Value::text_reading(reading),
            FactReading::Number(reading) => Value::number_reading(reading),
            FactReading::Flag(reading) => Value::bool_reading(reading, "on", "off"),
            FactReading::Counter(reading) => Value::count_reading(reading),
            FactReading::Virtualization(_) => Value::NONE,
        }
    }
}

fn computed(column: Column, read: fn(&GpuRow<'_>) -> Value) -> Def {
    definition::computed(column, Read::Row(read))
}

/// Returns the columns of facts or health as the catalogue describes them.
fn described<T>(
    readings: &'static [Described<T>],
    read: fn(&'static Described<T>) -> Read,
) -> impl Iterator<Item = Def> {
    readings.iter().filter_map(move |reading| {
        let TableColumn { id, title, width, about, aliases } = reading.column?;
        let unit = match reading.kind {
            FactKind::Id => CellUnit::Id,
            FactKind::Amount | FactKind::Count => CellUnit::Count,
            _ => CellUnit::Text,
        };
        let column = Column::new(id, title, unit, width, about).aliases(aliases);
        Some(definition::computed(column, read(reading)))
    })
}

const fn mhz(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Megahertz, 92, about)
}

const fn count(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Count, 76, about)
}

const fn text_column(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Text, width, about)
}

/// Position of the column that names the node; omitted in a table of one node.
pub const NODE: usize = 0;

static COLUMNS: LazyLock<Vec<Def>> = LazyLock::new(|| {
    let columns = vec![
        computed(text_column("node", "Node", 100, "the node it is in").rank(0), |row| {
            Value::text(row.node.name.as_str())
        }),
        computed(
            Column::new(
                "gpu",
                "GPU",
                CellUnit::Id,
                46,
                "its driver's index on the node, after the vendor unless that is NVIDIA; a MIG instance has the index of its GPU",
            )
            .rank(0)
            .width_with_vendor(74)
            .aliases(&["index"]),
            index,
        ),
        computed(
            Column::new("rank", "Rank", CellUnit::Id, 50, "global rank of the program on it").rank(2),
            rank,
        ),
        computed(text_column("instance", "Instance", 110, "profile of a MIG instance, and its position").rank(1), instance),
        computed(
            text_column("name", "Name", 150, "model, or profile of a MIG instance")
                .rank(5)
                .aliases(&["model"]),
            name,
        ),
        computed(
            text_column("owners", "Jobs", 130, "jobs that have it")
                .rank(3)
                .grows()
                .style(CellStyle::Custom)
                .aliases(&["job"]),
            owners,
        ),
        styled(F::Temp, |column| column.width(40).rank(2).style(CellStyle::Custom)),
        styled(F::Util, |column| column.width(96).rank(0).style(CellStyle::Util).grows()),
        styled(F::MemUsed, |column| column.rank(1).grows().style(CellStyle::Bar("hue-mem"))),
        styled(F::Power, |column| column.rank(3)),
        computed(Column::of_field(F::SmClock).sum(Sum::None).rank(6), sm_clock),
        computed(
            Column::new(
                "deviation",
                "Deviation",
                CellUnit::Percent,
                128,
                "how far it has been from the median of the GPUs of its job and model for the last two minutes, in the metric in which it differs most",
            )
            .rank(2)
            .aliases(&["dev"])
            .style(CellStyle::Custom),
            |row| deviation(row.deviation),
        ),
        computed(
            text_column("spark", "Last 10 min", 110, "utilisation of the last ten minutes")
                .rank(4)
                .style(CellStyle::Graphic)
                .grows(),
            |_| Value::NONE,
        ),
        computed(
            text_column(
                "flags",
                "Flags",
                96,
                "warnings, and the owner if it is not this job",
            )
            .rank(1)
            .grows()
            .style(CellStyle::Custom),
            flags_text,
        ),
        computed(
            text_column(
                "cause",
                "Deviates in",
                140,
                "metric in which it is farthest from the median of its job's GPUs",
            ),
            |row| row.deviation.value(|deviation| Value::Text(deviation.label())),
        ),
        metric(F::SmActive),
        metric(F::SmOccupancy),
        metric(F::TensorActive),
        metric(F::DramActive),
        metric(F::MemUtil),
        metric(F::GraphicsActive),
        metric(F::Fp64Active),
        metric(F::Fp32Active),
        metric(F::Fp16Active),
        metric(F::MemTemp),
        metric(F::PowerInstant),
        metric(F::Energy),
        computed(mhz("mem_clock", "Mem", "clock of the memory, of the largest"), mem_clock),
        metric(F::GraphicsClock),
        metric(F::VideoClock),
        computed(
            text_column("throttle", "Clocks held by", 170, "why the clocks are not higher")
                .aliases(&["clocks"]),
            |row| throttle(row.gpu),
        ),
        metric(F::PcieRx),
        metric(F::PcieTx),
        metric(F::NvlinkRx),
        metric(F::NvlinkTx),
        computed(
            text_column(
                "link",
                "PCIe link",
                96,
                "generation and lanes of the PCIe link now, of the best that card and slot can do",
            ),
            pcie_link,
        ),
        computed(text_column("nvlinks", "NVLinks", 78, "links that are up, of all"), nvlinks),
        metric(F::EccUncorrected),
        metric(F::EccCorrected),
        computed(
            text_column(
                "remap",
                "Remapping",
                104,
                "whether a memory row waits for a reset, or could not be remapped",
            ),
            remap,
        ),
        metric(F::Fan),
        metric(F::PState),
        metric(F::Encoder),
        metric(F::Decoder),
        metric(F::Jpeg),
        metric(F::Ofa),
        metric(F::MemReserved),
        computed(Column::new("bar", "BAR1", CellUnit::Gib, 92, "BAR1 memory in use, of all"), bar1),
        computed(count("processes", "Procs", "processes on it"), processes),
        computed(text_column("uuid", "UUID", 300, "its identity"), |row| {
            Value::text(row.gpu.facts.uuid.to_string())
        }),
    ];
    let health = described(GpuHealth::readings(), Read::Health);
    let facts = described(GpuFacts::readings(), Read::Fact);
    with_catalogue(columns.into_iter().chain(health).chain(facts).collect())
});

/// Returns the columns in their default order.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|column| column.column).collect()
}

/// Returns the value of a column.
pub fn value(row: &GpuRow<'_>, column: usize) -> Value {
    let Some(found) = COLUMNS.get(column) else { return Value::NONE };
    if row.gpu.fault.is_some() && !matches!(found.read, definition::ColumnReader::Computed(_)) {
        return Value::Absent("the card cannot be read");
    }
    found.value(&row.gpu.row, |read| read.value(row))
}

/// Returns the GPU that a MIG instance is a part of, if it is an instance and its GPU is listed.
pub fn parent_gpu<'a>(node: &'a NodePicture, gpu: &GpuPicture) -> Option<&'a GpuPicture> {
    let parent = gpu.facts.mig_parent.as_ref()?;
    node.gpus.iter().find(|gpu| gpu.facts.uuid == *parent)
}

/// Returns the positions of a node's GPUs with their depth, each instance (depth 1) after its GPU.
pub fn with_instances(node: &NodePicture, order: &[usize]) -> Vec<(usize, u8)> {
    let is_part = |at: usize| parent_gpu(node, &node.gpus[at]).is_some();
    let mut rows = Vec::with_capacity(order.len());
    for at in order.iter().copied().filter(|at| !is_part(*at)) {
        rows.push((at, 0));
        let uuid = &node.gpus[at].facts.uuid;
        let parts =
            (0..node.gpus.len()).filter(|part| node.gpus[*part].facts.mig_parent.as_ref() == Some(uuid));
        rows.extend(parts.map(|part| (part, 1)));
    }
    // An instance without its GPU is listed by itself.
    let missing: Vec<(usize, u8)> =
        order.iter().filter(|at| rows.iter().all(|(row, _)| row != *at)).map(|at| (*at, 0)).collect();
    rows.extend(missing);
    rows
}

fn index(row: &GpuRow<'_>) -> Value {
    device_index(&parent_gpu(row.node, row.gpu).unwrap_or(row.gpu).facts)
}

/// Returns the index of a device, with its vendor unless that is NVIDIA: indices are unique per vendor only.
pub fn device_index(facts: &GpuFacts) -> Value {
    match facts.vendor {
        Vendor::Unknown | Vendor::Nvidia => Value::Number(facts.index.into()),
        Vendor::Amd | Vendor::Intel | Vendor::Tpu => Value::Text(facts.label()),
    }
}

/// Returns the rank, or a list of several ranks as text.
fn rank(row: &GpuRow<'_>) -> Value {
    match ownership::ranks(row.node, &row.gpu.facts.uuid).as_slice() {
        [] => Value::NONE,
        [rank] => Value::Number((*rank).into()),
        ranks => Value::Text(ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// Returns the size of the deviation in %.
pub fn deviation(peers: Peers<'_>) -> Value {
    peers.value(|deviation| Value::Number(deviation.percent.unsigned_abs().into()))
}

fn name(row: &GpuRow<'_>) -> Value {
    let facts = &row.gpu.facts;
    match (&facts.mig, facts.name.value()) {
        (Some(_), _) => instance(row),
        (None, Some(name)) => Value::text(text::model(name.as_str())),
        (None, None) => Value::text_reading(&facts.name),
    }
}

fn instance(row: &GpuRow<'_>) -> Value {
    row.gpu.facts.mig.as_ref().map_or(NO_INSTANCE, |mig| Value::Text(instance_name(mig)))
}

fn clock(row: &GpuRow<'_>, field: F, largest: &nodeglass_protocol::Reading<u32>) -> Value {
    use nodeglass_protocol::field::Field as _;
    Value::ratio(Value::cell(row.gpu.row.get(field), field.scale()), &Value::number_reading(largest))
}

fn sm_clock(row: &GpuRow<'_>) -> Value {
    clock(row, F::SmClock, &row.gpu.facts.sm_clock_max_mhz)
}

fn mem_clock(row: &GpuRow<'_>) -> Value {
    clock(row, F::MemClock, &row.gpu.facts.mem_clock_max_mhz)
}

/// Returns why the clocks are not higher.
pub fn throttle(gpu: &GpuPicture) -> Value {
    match gpu.row.get(F::Throttle).value() {
        Some(reasons) => throttle_text(reasons),
        None => Value::cell(gpu.row.get(F::Throttle), nodeglass_protocol::field::Scale::Linear(1)),
    }
}

fn throttle_text(reasons: u32) -> Value {
    let names = REASONS.iter().filter(|reason| reasons & reason.bit != 0).map(|reason| reason.name);
    Value::text(names.collect::<Vec<_>>().join(", "))
}

/// The flag of a GPU of a job that no process uses. It is a fact, and no finding: a program may begin to use the GPU later.
pub const NO_PROCESS: &str = "no process";

/// Returns whether no process uses a GPU of a job now.
pub fn lacks_process(row: &GpuRow<'_>) -> bool {
    // Work without a visible process is another pid namespace's.
    !row.gpu.owners.is_empty() && row.gpu.row.value(F::Util) == Some(0) && processes(row) == Value::Number(0)
}

/// Returns why a GPU cannot be read, in a row about it: `lost` of `GPU is lost`, as NVML puts it.
pub fn short_fault(fault: &str) -> &str {
    fault.strip_prefix("GPU is ").unwrap_or(fault)
}

fn flags_text(row: &GpuRow<'_>) -> Value {
    let mut parts: Vec<String> =
        row.gpu.fault.iter().map(|fault| short_fault(fault.as_str()).to_owned()).collect();
    if row.gpu.fault.is_none() {
        parts.extend(flags::for_gpu(row.node, row.gpu).into_iter().map(|flag| flag.text));
    }
    parts.extend(lacks_process(row).then(|| NO_PROCESS.to_owned()));
    Value::text(parts.join(" "))
}

fn pcie_link(row: &GpuRow<'_>) -> Value {
    let (health, facts) = (&row.gpu.health, &row.gpu.facts);
    let (Some(generation), Some(width)) = (health.pcie_gen.value(), health.pcie_width.value()) else {
        return Value::count_reading(&health.pcie_gen);
    };
    let best = facts.pcie_gen_max.value().zip(facts.pcie_width_max.value());
    let best = best.map(|(generation, width)| format!(" of {generation} ×{width}")).unwrap_or_default();
    Value::Text(format!("{generation} ×{width}{best}"))
}

fn nvlinks(row: &GpuRow<'_>) -> Value {
    let links = &row.gpu.health.nvlinks;
    let up = links.iter().filter(|link| link.up.value() == Some(&true)).count();
    if links.is_empty() { Value::NONE } else { Value::Text(format!("{up} of {}", links.len())) }
}

fn remap(row: &GpuRow<'_>) -> Value {
    match (row.gpu.health.remap_failed.value(), row.gpu.health.remap_pending.value()) {
        (Some(true), _) => Value::text("failed"),
        (_, Some(true)) => Value::text("needs a reset"),
        (Some(false), Some(false)) => Value::text("in order"),
        _ => Value::Absent(text::absence(Cell::UNSUPPORTED)),
    }
}

fn bar1(row: &GpuRow<'_>) -> Value {
    let health = &row.gpu.health;
    Value::ratio(
        Value::count_reading(&health.bar1_used_bytes),
        &Value::count_reading(&health.bar1_total_bytes),
    )
}

fn owners(row: &GpuRow<'_>) -> Value {
    Value::text(row.gpu.owners.iter().map(|owner| owner.job.to_string()).collect::<Vec<_>>().join(", "))
}

/// Returns the number of processes on a GPU; absent if its process list failed.
fn processes(row: &GpuRow<'_>) -> Value {
    let mut count =
        row.node.processes.iter().filter(|process| process.facts.gpu == row.gpu.facts.uuid).count() as u64;
    for gap in row.node.process_gaps(row.gpu) {
        match gap {
            ProcessGap::Unsupported => return Value::Absent(text::absence(Cell::UNSUPPORTED)),
            ProcessGap::Failed(_) => return Value::Absent("the process list could not be read"),
            ProcessGap::More(more) => count += u64::from(*more),
        }
    }
    Value::Number(count)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::column::find;
    use nodeglass_protocol::gpu::MigFacts;
    use nodeglass_protocol::picture::{Evidence, Owner};
    use nodeglass_protocol::{GpuUuid, JobId, NodeName, Row};

    fn gpu(uuid: &str, index: u32, parent: Option<&str>) -> GpuPicture {
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new(uuid);
        gpu.facts.index = index;
        gpu.facts.mig_parent = parent.map(GpuUuid::new);
        gpu.facts.mig = parent.map(|_| MigFacts {
            profile: Some("3g.40gb".into()),
            gpu_instance: 2,
            ..MigFacts::default()
        });
        gpu
    }

    fn node(gpus: Vec<GpuPicture>) -> NodePicture {
        NodePicture { gpus, ..NodePicture::new(NodeName::new("n1").unwrap()) }
    }

    fn at(node: &NodePicture, gpu: usize, id: &str) -> Value {
        value(&GpuRow { node, gpu: &node.gpus[gpu], deviation: Peers::TooFew }, find(&columns(), id).unwrap())
    }

    #[test]
    fn every_field_of_the_catalogue_has_a_column() {
        use nodeglass_protocol::field::Field as _;
        let wholes = [F::MemTotal, F::PowerLimit];
        for field in F::ALL.iter().filter(|field| !wholes.contains(field)) {
            assert!(find(&columns(), field.metric().column_id()).is_some(), "{field:?}");
        }
    }

    #[test]
    fn instances_follow_their_gpu_and_share_its_index() {
        let node = node(vec![
            gpu("A", 0, None),
            gpu("B", 1, None),
            gpu("MIG-1", 9, Some("A")),
            gpu("MIG-2", 8, Some("gone")),
        ]);
        assert_eq!(with_instances(&node, &[1, 0, 2, 3]), [(1, 0), (0, 0), (2, 1), (3, 0)]);
        assert_eq!(at(&node, 2, "gpu"), Value::Number(0));
        assert_eq!(at(&node, 2, "name"), Value::text("3g.40gb · 2/0"));
        assert_eq!((at(&node, 2, "instance"), at(&node, 0, "instance")), (at(&node, 2, "name"), NO_INSTANCE));
    }

    #[test]
    fn a_reading_that_an_instance_lacks_is_a_dash_with_a_reason() {
        let mut part = gpu("MIG-1", 9, Some("A"));
        part.row.set(F::Util, Cell::UNSUPPORTED);
        let node = node(vec![gpu("A", 0, None), part]);
        assert_eq!(at(&node, 1, "util"), Value::UNSUPPORTED);
    }

    #[test]
    fn a_lost_gpu_shows_none_of_its_last_values() {
        let mut lost = gpu("A", 0, None);
        lost.row.set(F::Util, Cell::steps(97));
        lost.fault = Some("GPU is lost".into());
        let node = node(vec![lost]);
        assert!(at(&node, 0, "util").why_absent().is_some());
        assert_eq!(at(&node, 0, "flags"), Value::text("lost"), "a row about a GPU has little room");
    }

    #[test]
    fn a_failed_process_list_is_not_shown_as_no_processes() {
        let failed = ProcessGap::Failed("unknown error".into());
        let mut node = node(vec![gpu("A", 0, None), gpu("MIG-1", 9, Some("A")), gpu("B", 1, None)]);
        assert_eq!(at(&node, 2, "processes"), Value::Number(0));
        node.gpus[0].gaps = vec![failed];
        node.gpus[2].gaps = vec![ProcessGap::More(7)];
        for place in [0, 1] {
            assert!(at(&node, place, "processes").why_absent().is_some());
        }
        assert_eq!(at(&node, 2, "processes"), Value::Number(7));
    }

    #[test]
    fn a_gpu_of_a_job_without_a_process_says_so() {
        let mut node = node(vec![gpu("A", 0, None)]);
        node.gpus[0].row.set(F::Util, Cell::steps(0));
        assert_eq!(at(&node, 0, "flags"), Value::NONE, "no job has it");
        node.gpus[0].owners = vec![Owner { job: JobId(1), by: Evidence::GresIndex }];
        assert_eq!(at(&node, 0, "flags"), Value::text("no process"));
        node.gpus[0].row.set(F::Util, Cell::steps(4));
        assert_eq!(at(&node, 0, "flags"), Value::NONE, "its process is not visible here");
        node.gpus[0].row.set(F::Util, Cell::steps(0));
        node.gpus[0].gaps = vec![ProcessGap::Failed("unknown error".into())];
        assert_eq!(at(&node, 0, "flags"), Value::NONE);
    }

    #[test]
    fn the_ranks_on_a_gpu_are_shown_once_each_and_several_as_a_list() {
        use nodeglass_protocol::process::{ProcessFacts, ProcessKind, Rank};
        let mut node = node(vec![gpu("A", 0, None), gpu("B", 1, None), gpu("C", 2, None)]);
        for (uuid, global) in [("A", 35), ("A", 35), ("B", 7), ("B", 3)] {
            let mut facts = ProcessFacts::new(GpuUuid::new(uuid), 1, ProcessKind::default());
            facts.rank = Some(Rank { global, local: None, world: None });
            node.processes.push(nodeglass_protocol::picture::ProcessPicture { facts, row: Row::default() });
        }
        assert_eq!(at(&node, 0, "rank"), Value::Number(35));
        assert_eq!(at(&node, 1, "rank"), Value::text("3, 7"));
        assert!(at(&node, 2, "rank").why_absent().is_some());
    }

    #[test]
    fn a_deviation_is_sorted_by_its_size_and_says_why_it_is_missing() {
        let node = node(vec![gpu("A", 0, None)]);
        let slow = Deviation { field: F::SmClock, percent: -45 };
        let at = |deviation, id| {
            value(&GpuRow { node: &node, gpu: &node.gpus[0], deviation }, find(&columns(), id).unwrap())
        };
        assert_eq!(at(Peers::Known(&slow), "deviation"), Value::Number(45));
        assert_eq!(at(Peers::Known(&slow), "cause"), Value::text("SM clock −45 %"));
        for missing in [Peers::TooFew, Peers::Unknown] {
            assert!(at(missing, "deviation").why_absent().is_some_and(|why| !why.is_empty()));
        }
    }

    #[test]
    fn clocks_and_links_are_shown_with_their_maximum() {
        let mut gpu = gpu("A", 0, None);
        gpu.row.set(F::SmClock, Cell::steps(94));
        gpu.facts.sm_clock_max_mhz = nodeglass_protocol::Reading::Value(1_980);
        gpu.health.pcie_gen = nodeglass_protocol::Reading::Value(4);
        gpu.health.pcie_width = nodeglass_protocol::Reading::Value(16);
        let node = node(vec![gpu]);
        assert_eq!(at(&node, 0, "clock"), Value::Part(1_410, 1_980));
        assert_eq!(at(&node, 0, "link"), Value::text("4 ×16"));
        assert!(at(&node, 0, "throttle").why_absent().is_some());
        assert_eq!(throttle_text(0x4 | 0x20), Value::text("too hot (driver), power limit"));
    }
}
