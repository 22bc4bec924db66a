//! The columns of GPUs: everything that is known of a card, of which a dozen is shown by default.

use super::column::{Column, Look, Sum};
use super::value::{Unit, Value};
use super::{Told, by, field, part};
use crate::throttle::REASONS;
use crate::{flags, text};
use nodeglass_protocol::picture::{GpuPicture, NodePicture, ProcessGap};
use nodeglass_protocol::{Cell, GpuField as F};

/// A GPU in its node.
pub struct GpuRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The GPU.
    pub gpu: &'a GpuPicture,
}

type Of = Told<fn(&GpuRow<'_>) -> Value, F>;

const fn pct(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Percent, 58, about)
}

const fn mhz(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Megahertz, 92, about)
}

const fn rate(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::MibPerSecond, 108, about)
}

const fn count(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Count, 76, about)
}

const fn words(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, Unit::Words, width, about)
}

/// Position of the column that names the node; a table of one node leaves it out.
pub const NODE: usize = 0;

static COLUMNS: [Of; 62] = [
    by(words("node", "Node", 112, "the node it is in").rank(0), |row| Value::text(row.node.name.as_str())),
    by(
        Column::new(
            "gpu",
            "GPU",
            Unit::Id,
            46,
            "NVML's index on its node; of a MIG instance that of its GPU",
        )
        .rank(0)
        .aliases(&["index"]),
        index,
    ),
    by(words("name", "Name", 150, "model, or profile of a MIG instance").rank(5).aliases(&["model"]), name),
    field(
        Column::new("temp", "°C", Unit::Celsius, 40, "temperature of the core")
            .rank(2)
            .look(Look::Own)
            .sum(Sum::Most),
        F::Temp,
    ),
    field(
        Column::new(
            "util",
            "Utilisation",
            Unit::Percent,
            96,
            "share of the last second in which a kernel ran",
        )
        .rank(0)
        .look(Look::Util)
        .grows()
        .sum(Sum::Mean),
        F::Util,
    ),
    part(
        Column::new("mem", "Memory", Unit::Gib, 112, "device memory in use of all there is")
            .rank(1)
            .grows()
            .look(Look::Bar("hue-mem"))
            .sum(Sum::Total),
        F::MemUsed,
        F::MemTotal,
    ),
    part(
        Column::new("power", "Power", Unit::Watt, 112, "power drawn, of the limit in force")
            .rank(3)
            .sum(Sum::Total),
        F::Power,
        F::PowerLimit,
    ),
    by(mhz("clock", "SM", "clock of the SMs, of the largest").rank(6), sm_clock),
    by(
        words("spark", "Last 10 min", 110, "utilisation of the last ten minutes")
            .rank(4)
            .look(Look::Picture)
            .grows(),
        |_| Value::NONE,
    ),
    by(
        words("flags", "Flags", 96, "what is worth a look, and whose it is if it is not this job's")
            .rank(1)
            .grows()
            .look(Look::Own),
        said_flags,
    ),
    field(pct("sm", "SM act.", "share of cycles in which an SM had work (GPM)"), F::SmActive),
    field(pct("occupancy", "Occup.", "warps resident of those that could be (GPM)"), F::SmOccupancy),
    field(pct("tensor", "Tensor", "share of cycles in which the tensor cores worked (GPM)"), F::TensorActive),
    field(pct("dram", "DRAM", "share of the memory bandwidth in use (GPM)"), F::DramActive),
    field(pct("mem_util", "Mem bus", "share of time in which memory was read or written"), F::MemUtil),
    field(
        pct("graphics_active", "Engine", "share of time in which the compute engine was active (GPM)"),
        F::GraphicsActive,
    ),
    field(pct("fp_double", "FP64", "share of cycles in which FP64 units worked (GPM)"), F::Fp64Active),
    field(pct("fp_single", "FP32", "share of cycles in which FP32 units worked (GPM)"), F::Fp32Active),
    field(pct("fp_half", "FP16", "share of cycles in which FP16 units worked (GPM)"), F::Fp16Active),
    field(Column::new("mem_temp", "Mem °C", Unit::Celsius, 66, "temperature of the memory"), F::MemTemp),
    field(Column::new("power_now", "Now", Unit::Watt, 66, "power of this very moment"), F::PowerInstant),
    field(
        Column::new("energy", "Energy", Unit::WattHour, 92, "energy since the driver was loaded")
            .sum(Sum::Total),
        F::Energy,
    ),
    by(mhz("mem_clock", "Mem", "clock of the memory, of the largest"), mem_clock),
    field(mhz("graphics_clock", "Graphics", "clock of the graphics engine"), F::GraphicsClock),
    field(mhz("video_clock", "Video", "clock of the video engines"), F::VideoClock),
    by(
        words("throttle", "Clocks held by", 170, "why the clocks are not higher").aliases(&["clocks"]),
        |row| throttle(row.gpu),
    ),
    field(rate("pcie_rx", "PCIe in", "received over PCIe").sum(Sum::Total), F::PcieRx),
    field(rate("pcie_tx", "PCIe out", "sent over PCIe").sum(Sum::Total), F::PcieTx),
    field(rate("nvlink_rx", "NVLink in", "received over all NVLinks").sum(Sum::Total), F::NvlinkRx),
    field(rate("nvlink_tx", "NVLink out", "sent over all NVLinks").sum(Sum::Total), F::NvlinkTx),
    by(
        words(
            "link",
            "PCIe link",
            96,
            "generation and lanes of the PCIe link now, of the best that card and slot can do",
        ),
        pcie_link,
    ),
    by(words("nvlinks", "NVLinks", 78, "links that are up, of those there are"), nvlinks),
    by(count("replays", "Replays", "PCIe replays since the driver was loaded"), |row| {
        Value::counted(&row.gpu.health.pcie_replays)
    }),
    field(
        count("ecc_bad", "ECC bad", "uncorrected memory errors since the driver was loaded"),
        F::EccUncorrected,
    ),
    field(
        count("ecc_mended", "ECC corr.", "corrected memory errors since the driver was loaded"),
        F::EccCorrected,
    ),
    by(count("ecc_life_bad", "Life bad", "uncorrected memory errors of its whole life"), |row| {
        Value::counted(&row.gpu.health.ecc_life_uncorrected)
    }),
    by(count("ecc_life_mended", "Life corr.", "corrected memory errors of its whole life"), |row| {
        Value::counted(&row.gpu.health.ecc_life_corrected)
    }),
    by(count("retired", "Retired", "memory pages retired for an uncorrected error"), |row| {
        Value::counted(&row.gpu.health.retired_uncorrected)
    }),
    by(count("remapped", "Remapped", "memory rows remapped for an uncorrected error"), |row| {
        Value::counted(&row.gpu.health.remapped_uncorrected)
    }),
    by(
        words("remap", "Remapping", 104, "whether a memory row waits for a reset, or could not be remapped"),
        remap,
    ),
    field(pct("fan", "Fan", "speed of the fastest fan").sum(Sum::Most), F::Fan),
    field(Column::new("pstate", "P", Unit::Id, 34, "performance state, 0 the fastest"), F::PState),
    field(pct("enc", "Enc.", "video encoder"), F::Encoder),
    field(pct("dec", "Dec.", "video decoder"), F::Decoder),
    field(pct("jpeg", "JPEG", "JPEG decoder"), F::Jpeg),
    field(pct("ofa", "Flow", "optical-flow accelerator"), F::Ofa),
    field(
        Column::new("mem_reserved", "Reserved", Unit::Gib, 92, "memory that driver and firmware keep")
            .sum(Sum::Total),
        F::MemReserved,
    ),
    by(Column::new("bar", "BAR1", Unit::Gib, 92, "BAR1 memory in use, of all there is"), bar1),
    by(words("owners", "Jobs", 120, "jobs that have it").aliases(&["job"]), owners),
    by(count("processes", "Procs", "processes on it"), processes),
    by(words("architecture", "Architecture", 104, "architecture of the chip").aliases(&["arch"]), |row| {
        Value::said(&row.gpu.facts.architecture)
    }),
    by(words("capability", "CC", 46, "CUDA compute capability"), |row| {
        Value::said(&row.gpu.facts.compute_capability)
    }),
    by(count("cores", "Cores", "CUDA cores"), |row| Value::told(&row.gpu.facts.cores)),
    by(Column::new("numa", "NUMA", Unit::Id, 58, "NUMA node that it is nearest to"), |row| {
        Value::told(&row.gpu.facts.numa_node)
    }),
    by(words("affinity", "CPUs", 120, "CPUs that it is nearest to"), |row| {
        Value::said(&row.gpu.facts.cpu_affinity)
    }),
    by(words("mode", "Compute mode", 122, "who may use it"), |row| Value::said(&row.gpu.facts.compute_mode)),
    by(
        words("persistence", "Persistence", 96, "whether the driver stays loaded when nobody uses the card"),
        |row| Value::is(&row.gpu.facts.persistence, "on", "off"),
    ),
    by(words("ecc", "ECC", 52, "whether memory errors are corrected"), |row| {
        Value::is(&row.gpu.facts.ecc_mode, "on", "off")
    }),
    by(words("pci", "PCI", 130, "its place on the PCI bus"), |row| Value::said(&row.gpu.facts.pci)),
    by(words("uuid", "UUID", 300, "its identity"), |row| Value::text(row.gpu.facts.uuid.to_string())),
    by(words("serial", "Serial", 120, "its serial number"), |row| Value::said(&row.gpu.facts.serial)),
    by(words("vbios", "VBIOS", 120, "version of its firmware"), |row| Value::said(&row.gpu.facts.vbios)),
];

/// The columns in the order they have by themselves.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|told| told.column).collect()
}

/// What stands in a column.
pub fn value(row: &GpuRow<'_>, column: usize) -> Value {
    let Some(told) = COLUMNS.get(column) else { return Value::NONE };
    if row.gpu.fault.is_some() && !matches!(told.read, super::Read::By(_)) {
        return Value::Absent("the card cannot be read");
    }
    told.value(&row.gpu.row, |read| read(row))
}

/// The GPU that a MIG instance is a part of, if it is one and its GPU is there.
pub fn whole<'a>(node: &'a NodePicture, gpu: &GpuPicture) -> Option<&'a GpuPicture> {
    let parent = gpu.facts.mig_parent.as_ref()?;
    node.gpus.iter().find(|whole| whole.facts.uuid == *parent)
}

/// The positions of a node's GPUs, each instance after the GPU it is a part of, with its depth: 1 of an instance.
pub fn with_parts(node: &NodePicture, order: &[usize]) -> Vec<(usize, u8)> {
    let is_part = |at: usize| whole(node, &node.gpus[at]).is_some();
    let mut rows = Vec::with_capacity(order.len());
    for at in order.iter().copied().filter(|at| !is_part(*at)) {
        rows.push((at, 0));
        let uuid = &node.gpus[at].facts.uuid;
        let parts =
            (0..node.gpus.len()).filter(|part| node.gpus[*part].facts.mig_parent.as_ref() == Some(uuid));
        rows.extend(parts.map(|part| (part, 1)));
    }
    // An instance that is seen without its GPU stands by itself.
    let missing: Vec<(usize, u8)> =
        order.iter().filter(|at| rows.iter().all(|(row, _)| row != *at)).map(|at| (*at, 0)).collect();
    rows.extend(missing);
    rows
}

fn index(row: &GpuRow<'_>) -> Value {
    Value::Number(whole(row.node, row.gpu).unwrap_or(row.gpu).facts.index.into())
}

fn name(row: &GpuRow<'_>) -> Value {
    let facts = &row.gpu.facts;
    let Some(mig) = &facts.mig else {
        return match facts.name.value() {
            Some(name) => Value::text(text::model(name.as_str())),
            None => Value::said(&facts.name),
        };
    };
    let profile = mig.profile.as_ref().map_or("MIG".to_owned(), ToString::to_string);
    Value::Text(format!("{profile} · {}/{}", mig.gpu_instance, mig.compute_instance))
}

fn clock(row: &GpuRow<'_>, field: F, largest: &nodeglass_protocol::Reading<u32>) -> Value {
    use nodeglass_protocol::cell::Field as _;
    Value::of_whole(Value::cell(row.gpu.row.get(field), field.scale()), &Value::told(largest))
}

fn sm_clock(row: &GpuRow<'_>) -> Value {
    clock(row, F::SmClock, &row.gpu.facts.sm_clock_max_mhz)
}

fn mem_clock(row: &GpuRow<'_>) -> Value {
    clock(row, F::MemClock, &row.gpu.facts.mem_clock_max_mhz)
}

/// Why the clocks are not higher, in words.
pub fn throttle(gpu: &GpuPicture) -> Value {
    match gpu.row.get(F::Throttle).value() {
        Some(reasons) => in_words(reasons),
        None => Value::cell(gpu.row.get(F::Throttle), nodeglass_protocol::cell::Scale::Linear(1)),
    }
}

fn in_words(reasons: u32) -> Value {
    let held = REASONS.iter().filter(|reason| reasons & reason.bit != 0).map(|reason| reason.name);
    Value::text(held.collect::<Vec<_>>().join(", "))
}

fn said_flags(row: &GpuRow<'_>) -> Value {
    let mut parts: Vec<String> = row.gpu.fault.iter().map(ToString::to_string).collect();
    if row.gpu.fault.is_none() {
        parts.extend(flags::of(&row.gpu.row).into_iter().map(|flag| flag.text));
    }
    Value::text(parts.join(" "))
}

fn pcie_link(row: &GpuRow<'_>) -> Value {
    let (health, facts) = (&row.gpu.health, &row.gpu.facts);
    let (Some(generation), Some(width)) = (health.pcie_gen.value(), health.pcie_width.value()) else {
        return Value::counted(&health.pcie_gen);
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
    Value::of_whole(Value::counted(&health.bar1_used_bytes), &Value::counted(&health.bar1_total_bytes))
}

fn owners(row: &GpuRow<'_>) -> Value {
    Value::text(row.gpu.owners.iter().map(|owner| owner.job.to_string()).collect::<Vec<_>>().join(", "))
}

/// How many processes are on a GPU, which a list that failed does not say.
fn processes(row: &GpuRow<'_>) -> Value {
    let mut count =
        row.node.processes.iter().filter(|process| process.facts.gpu == row.gpu.facts.uuid).count() as u64;
    // The list of a divided GPU is that of its instances, too.
    let whole = whole(row.node, row.gpu).filter(|whole| whole.facts.uuid != row.gpu.facts.uuid);
    for gap in row.gpu.gaps.iter().chain(whole.into_iter().flat_map(|whole| &whole.gaps)) {
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
    use nodeglass_protocol::{GpuUuid, NodeName};

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
        value(&GpuRow { node, gpu: &node.gpus[gpu] }, find(&columns(), id).unwrap())
    }

    #[test]
    fn instances_stand_under_their_gpu_and_have_its_index() {
        let node = node(vec![
            gpu("A", 0, None),
            gpu("B", 1, None),
            gpu("MIG-1", 9, Some("A")),
            gpu("MIG-2", 8, Some("gone")),
        ]);
        assert_eq!(with_parts(&node, &[1, 0, 2, 3]), [(1, 0), (0, 0), (2, 1), (3, 0)]);
        assert_eq!(at(&node, 2, "gpu"), Value::Number(0));
        assert_eq!(at(&node, 2, "name"), Value::text("3g.40gb · 2/0"));
    }

    #[test]
    fn what_an_instance_does_not_tell_is_a_dash_with_a_reason() {
        let mut part = gpu("MIG-1", 9, Some("A"));
        part.row.set(F::Util, Cell::UNSUPPORTED);
        let node = node(vec![gpu("A", 0, None), part]);
        assert_eq!(at(&node, 1, "util"), Value::Absent("not supported by this card or driver"));
    }

    #[test]
    fn a_lost_card_tells_nothing_of_what_it_said_last() {
        let mut lost = gpu("A", 0, None);
        lost.row.set(F::Util, Cell::steps(97));
        lost.fault = Some("GPU is lost".into());
        let node = node(vec![lost]);
        assert!(at(&node, 0, "util").why_absent().is_some());
        assert_eq!(at(&node, 0, "flags"), Value::text("GPU is lost"));
    }

    #[test]
    fn a_gpu_whose_process_list_failed_does_not_have_no_processes() {
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
    fn clocks_and_links_are_told_with_what_they_could_be() {
        let mut card = gpu("A", 0, None);
        card.row.set(F::SmClock, Cell::steps(94));
        card.facts.sm_clock_max_mhz = nodeglass_protocol::Reading::Value(1_980);
        card.health.pcie_gen = nodeglass_protocol::Reading::Value(4);
        card.health.pcie_width = nodeglass_protocol::Reading::Value(16);
        let node = node(vec![card]);
        assert_eq!(at(&node, 0, "clock"), Value::Of(1_410, 1_980));
        assert_eq!(at(&node, 0, "link"), Value::text("4 ×16"));
        assert!(at(&node, 0, "throttle").why_absent().is_some());
        assert_eq!(in_words(0x4 | 0x20), Value::text("too hot (driver), power limit"));
    }
}
