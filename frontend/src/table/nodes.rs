//! The columns of nodes: the sums of their GPUs, and everything that their hosts tell.

use super::column::{Column, Look, Sum};
use super::value::{Unit, Value};
use super::{Told, by, field, part};
use crate::health::Health;
use crate::roster;
use crate::totals::{Part, Totals};
use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::{HostField as F, JobId};
use std::sync::Arc;

/// A node with what is worked out once for all its columns.
pub struct NodeRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// What its GPUs come to.
    totals: Totals,
    /// Its state.
    health: Arc<Health>,
}

impl<'a> NodeRow<'a> {
    /// A node in this state, of which the GPUs of a job count if there is one.
    pub fn new(node: &'a NodePicture, job: Option<JobId>, health: Arc<Health>) -> Self {
        let mut totals = Totals::default();
        roster::counted(node, job).for_each(|gpu| totals.add(gpu));
        Self { node, totals, health }
    }
}

type Of = Told<fn(&NodeRow<'_>) -> Value, F>;

const fn rate(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::MibPerSecond, 108, about).sum(Sum::Total)
}

const fn size(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Gib, 116, about)
}

const fn waits(id: &'static str, title: &'static str, about: &'static str) -> Column {
    Column::new(id, title, Unit::Percent, 92, about)
}

const fn words(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, Unit::Words, width, about)
}

static COLUMNS: [Of; 28] = [
    by(words("node", "Node", 140, "its name in SLURM").rank(0).look(Look::Own), |row| {
        Value::text(row.node.name.as_str())
    }),
    by(Column::new("gpus", "GPUs", Unit::Count, 52, "its GPUs that count").rank(5).sum(Sum::Total), |row| {
        // Before a node was reached once, nobody knows whether it has any.
        Value::number(row.node.head.facts.as_ref().map(|_| row.totals.gpus as u64))
    }),
    by(
        words("heat", "Every GPU, last 10 min", 120, "a line for each GPU, brighter is busier")
            .rank(2)
            .grows()
            .look(Look::Picture),
        |_| Value::NONE,
    ),
    by(
        Column::new("util", "Utilisation", Unit::Percent, 96, "mean of its GPUs")
            .rank(0)
            .look(Look::Util)
            .sum(Sum::Mean),
        |row| Value::number(row.totals.util_pct()),
    ),
    by(
        Column::new("mem", "Memory", Unit::Gib, 120, "device memory in use of all there is")
            .rank(3)
            .sum(Sum::Total),
        |row| share(row.totals.mem),
    ),
    by(
        Column::new("power", "Power", Unit::Watt, 124, "power of its GPUs, of the limits in force")
            .rank(4)
            .sum(Sum::Total),
        |row| share(row.totals.power),
    ),
    by(
        Column::new("temp", "°C", Unit::Celsius, 44, "temperature of the hottest GPU").rank(6).sum(Sum::Most),
        |row| Value::number(row.totals.hottest_c),
    ),
    field(
        Column::new("cpu", "CPU", Unit::Percent, 62, "busy share of all CPUs of the host")
            .rank(7)
            .sum(Sum::Mean),
        F::Cpu,
    ),
    part(
        size("ram", "RAM", "memory of the host in use, of all there is").rank(7).sum(Sum::Total),
        F::MemUsed,
        F::MemTotal,
    ),
    by(words("state", "State", 130, "the link to it, and what is worth a look").rank(1), |row| {
        Value::text(row.health.word.as_str())
    }),
    field(
        Column::new("load", "Load", Unit::Hundredth, 62, "tasks that want to run, mean of a minute"),
        F::Load1,
    ),
    part(size("swap", "Swap", "swap in use, of all there is"), F::SwapUsed, F::SwapTotal),
    part(size("shm", "/dev/shm", "used of /dev/shm, of its size"), F::ShmUsed, F::ShmTotal),
    part(size("tmp", "/tmp", "used of /tmp, of its size"), F::TmpUsed, F::TmpTotal),
    part(
        size("scratch", "Scratch", "used of the scratch disk, of its size"),
        F::ScratchUsed,
        F::ScratchTotal,
    ),
    field(rate("disk_read", "Disk in", "read from local disks"), F::DiskRead),
    field(rate("disk_write", "Disk out", "written to local disks"), F::DiskWrite),
    field(rate("net_rx", "Net in", "received from the network"), F::NetRx),
    field(rate("net_tx", "Net out", "sent to the network"), F::NetTx),
    field(rate("ib_rx", "IB in", "received over InfiniBand or RoCE"), F::IbRx),
    field(rate("ib_tx", "IB out", "sent over InfiniBand or RoCE"), F::IbTx),
    field(
        Column::new(
            "ib_errors",
            "IB errors",
            Unit::Count,
            84,
            "errors of the InfiniBand links since they came up",
        ),
        F::IbErrors,
    ),
    field(waits("psi_cpu", "Waits CPU", "share of 10 s in which a task waited for a CPU"), F::PsiCpu),
    field(waits("psi_mem", "Waits mem", "share of 10 s in which a task waited for memory"), F::PsiMem),
    field(waits("psi_io", "Waits disk", "share of 10 s in which a task waited for a disk"), F::PsiIo),
    field(Column::new("uptime", "Up", Unit::Span, 84, "time since it was started"), F::Uptime),
    by(words("driver", "Driver", 100, "version of NVIDIA's driver"), |row| {
        row.node.head.facts.as_ref().map_or(Value::NOT_YET, |facts| Value::said(&facts.driver))
    }),
    by(words("kernel", "Kernel", 170, "release of its kernel"), |row| {
        row.node.head.facts.as_ref().map_or(Value::NOT_YET, |facts| Value::text(facts.kernel.as_str()))
    }),
];

/// The columns in the order they have by themselves.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|told| told.column).collect()
}

/// What stands in a column.
pub fn value(row: &NodeRow<'_>, column: usize) -> Value {
    COLUMNS.get(column).map_or(Value::NONE, |told| told.value(&row.node.host, |read| read(row)))
}

/// A part with its whole, as far as they are told.
pub fn share(part: Part) -> Value {
    match (part.used, part.whole) {
        (Some(used), Some(whole)) => Value::Of(used, whole),
        (Some(used), None) => Value::Number(used),
        (None, _) => Value::Absent("no GPU tells"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::health;
    use crate::table::column::find;
    use nodeglass_protocol::picture::GpuPicture;
    use nodeglass_protocol::{Cell, GpuField, GpuUuid, NodeName};

    fn at(node: &NodePicture, id: &str) -> Value {
        value(&NodeRow::new(node, None, Arc::new(health::of_node(node, 0))), find(&columns(), id).unwrap())
    }

    #[test]
    fn a_node_is_the_sum_of_its_gpus_and_a_divided_one_counts_once() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Util, Cell::steps(50));
        gpu.facts.uuid = GpuUuid::new("A");
        let mut part = gpu.clone();
        part.facts.uuid = GpuUuid::new("part of A");
        part.facts.mig_parent = Some(GpuUuid::new("A"));
        node.gpus = vec![gpu.clone(), gpu, part];
        assert_eq!(at(&node, "gpus"), Value::NONE, "nothing is known before the first hello");
        node.head.facts = Some(Default::default());
        assert_eq!((at(&node, "gpus"), at(&node, "util")), (Value::Number(2), Value::Number(50)));
        assert!(at(&node, "mem").why_absent().is_some());
    }

    #[test]
    fn a_host_tells_parts_of_wholes() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.host.set(F::MemUsed, Cell::steps(16));
        node.host.set(F::MemTotal, Cell::steps(64));
        node.host.set(F::SwapUsed, Cell::UNSUPPORTED);
        assert_eq!(at(&node, "ram"), Value::Of(1 << 30, 4 << 30));
        assert!(at(&node, "swap").why_absent().is_some());
        assert_eq!(at(&node, "driver"), Value::NOT_YET);
    }
}
