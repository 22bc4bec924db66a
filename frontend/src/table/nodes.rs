//! The columns of nodes: the totals of their GPUs, and the readings of their hosts.

use super::column::{CellStyle, Column, Sum};
use super::definition::{ColumnDef, computed, metric, styled, with_catalogue};
use super::value::{CellUnit, NO_GPU, Value};
use crate::domain::health::Health;
use crate::domain::ownership;
use crate::domain::totals::{Totals, Usage};
use nodeglass_protocol::picture::{Link, NodeFacts, NodePicture};
use nodeglass_protocol::{Cell, GpuField, HostField as F, JobId};
use std::sync::{Arc, LazyLock};

/// A node with what is computed once for all its columns.
pub struct NodeRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The job whose GPUs count.
    job: Option<JobId>,
    /// The totals of its GPUs.
    totals: Totals,
    /// Its health.
    health: Arc<Health>,
}

impl<'a> NodeRow<'a> {
    /// Creates the row of a node, counting the GPUs of a job if there is one.
    pub fn new(node: &'a NodePicture, job: Option<JobId>, health: Arc<Health>) -> Self {
        let mut totals = Totals::default();
        ownership::counting_gpus(node, job).for_each(|gpu| totals.add(gpu));
        Self { node, job, totals, health }
    }
}

impl NodeRow<'_> {
    /// Returns a total of a field, or that none of its GPUs supports the field.
    fn total(&self, field: GpuField, total: Value) -> Value {
        let mut gpus = ownership::counting_gpus(self.node, self.job);
        if total.why_absent().is_none() || self.node.head.facts.is_none() {
            return total;
        }
        if self.node.gpus.is_empty() && self.node.head.no_gpu.is_some() {
            return NO_GPU;
        }
        let is_unsupported =
            !self.node.gpus.is_empty() && gpus.all(|gpu| gpu.row.get(field) == Cell::UNSUPPORTED);
        if is_unsupported { Value::UNSUPPORTED } else { total }
    }
}

type Def = ColumnDef<fn(&NodeRow<'_>) -> Value, F>;

const fn text_column(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Column {
    Column::new(id, title, CellUnit::Text, width, about)
}

static COLUMNS: LazyLock<Vec<Def>> = LazyLock::new(|| {
    with_catalogue(vec![
        computed(
            text_column("node", "Node", 140, "its name in SLURM").rank(0).style(CellStyle::Custom),
            |row| Value::text(row.node.name.as_str()),
        ),
        computed(
            Column::new("gpus", "GPUs", CellUnit::Count, 52, "its GPUs, of the job if there is one")
                .rank(5)
                .sum(Sum::Total),
            |row| {
                // Before the first connection it is unknown whether a node has any.
                Value::number(row.node.head.facts.as_ref().map(|_| row.totals.gpus as u64))
            },
        ),
        computed(
            text_column("heat", "All GPUs, last 10 min", 120, "one line per GPU; brighter is busier")
                .rank(2)
                .grows()
                .style(CellStyle::Graphic),
            |_| Value::NONE,
        ),
        computed(
            Column::new("util", "Utilisation", CellUnit::Percent, 96, "mean of its GPUs")
                .rank(0)
                .style(CellStyle::Util)
                .sum(Sum::Mean),
            |row| row.total(GpuField::Util, Value::number(row.totals.util_pct())),
        ),
        computed(
            Column::new("mem", "Memory", CellUnit::Gib, 120, "GPU memory in use, of all")
                .rank(3)
                .sum(Sum::Total),
            |row| row.total(GpuField::MemUsed, share(row.totals.mem)),
        ),
        computed(
            Column::new("power", "Power", CellUnit::Watt, 124, "power of its GPUs, of the limits in force")
                .rank(4)
                .sum(Sum::Total),
            |row| row.total(GpuField::Power, share(row.totals.power)),
        ),
        computed(
            Column::new("temp", "°C", CellUnit::Celsius, 44, "temperature of the hottest GPU")
                .rank(6)
                .sum(Sum::Max),
            |row| row.total(GpuField::Temp, Value::number(row.totals.hottest_c)),
        ),
        styled(F::Cpu, |column| column.width(62).rank(7)),
        styled(F::MemUsed, |column| column.width(116).rank(7)),
        computed(
            text_column("state", "State", 130, "state of its connection, and what needs attention")
                .rank(1)
                .grows(),
            |row| {
                // Without a reason, and of a live node that has a problem.
                let live = (row.node.head.link == Link::Live).then(|| "live".to_owned());
                let tags = live.into_iter().chain([row.health.label.clone()]);
                Value::Tagged(state(row.node, &row.health), tags.collect())
            },
        ),
        metric(F::Load1),
        styled(F::SwapUsed, |column| column.width(116)),
        styled(F::ShmUsed, |column| column.width(116)),
        styled(F::TmpUsed, |column| column.width(116)),
        styled(F::ScratchUsed, |column| column.width(116)),
        metric(F::DiskRead),
        metric(F::DiskWrite),
        metric(F::NetRx),
        metric(F::NetTx),
        metric(F::IbRx),
        metric(F::IbTx),
        styled(F::IbErrors, |column| column.width(84)),
        styled(F::PsiCpu, |column| column.width(92)),
        styled(F::PsiMem, |column| column.width(92)),
        styled(F::PsiIo, |column| column.width(92)),
        metric(F::Uptime),
        computed(text_column("driver", "Driver", 100, "version of the GPU driver"), |row| {
            let driver = row.node.head.facts.as_ref().and_then(|facts| facts.drivers().next());
            driver.map_or(Value::NOT_YET, |(_, versions)| Value::text_reading(&versions.driver))
        }),
        computed(text_column("kernel", "Kernel", 170, "release of its kernel"), |row| {
            row.node.head.facts.as_ref().map_or(Value::NOT_YET, |facts| Value::text(facts.kernel.as_str()))
        }),
    ])
});

/// Returns the columns in their default order.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|column| column.column).collect()
}

/// Returns the value of a column.
pub fn value(row: &NodeRow<'_>, column: usize) -> Value {
    let value =
        COLUMNS.get(column).map_or(Value::NONE, |column| column.value(&row.node.host, |read| read(row)));
    // The state says why, once.
    let is_unknown = value.why_absent().is_some() && row.node.sampled_at_ms.is_none();
    if is_unknown { Value::Absent("unknown: the node has sent no data yet") } else { value }
}

/// Returns the state of a node, with the reason for a connection that failed.
pub fn state(node: &NodePicture, health: &Health) -> String {
    match &node.head.link {
        Link::Down { reason, .. } | Link::Refused { reason, .. } if !reason.is_empty() => {
            format!("{}: {reason}", health.label)
        }
        Link::Ended => health.label.clone(),
        _ => match node.head.facts.as_ref().and_then(NodeFacts::confinement) {
            Some(confinement) if node.head.no_gpu.is_none() => format!("{}; {confinement}", health.label),
            _ => health.label.clone(),
        },
    }
}

/// Returns the aggregate of a column about GPUs, given the totals of the listed nodes: each GPU counts the same, for
/// any number of GPUs in its node. `None` if it is the aggregate of the column's values.
pub fn sum(totals: &Totals, column: &str) -> Option<Value> {
    match column {
        "util" => Some(Value::number(totals.util_pct())),
        _ => None,
    }
}

/// Returns a used amount with its maximum, if known.
pub fn share(usage: Usage) -> Value {
    match (usage.used, usage.capacity) {
        (Some(used), Some(capacity)) => Value::Part(used, capacity),
        (Some(used), None) => Value::Number(used),
        (None, _) => Value::Absent("not reported by any GPU"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::health;
    use crate::table::column::find;
    use nodeglass_protocol::picture::{GpuPicture, SourceState};
    use nodeglass_protocol::{Cell, GpuField, GpuUuid, NodeName};

    fn at(node: &NodePicture, id: &str) -> Value {
        value(&NodeRow::new(node, None, Arc::new(health::for_node(node, 0))), find(&columns(), id).unwrap())
    }

    #[test]
    fn a_node_sums_its_gpus_and_counts_a_partitioned_one_once() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Util, Cell::steps(50));
        gpu.facts.uuid = GpuUuid::new("A");
        let mut part = gpu.clone();
        part.facts.uuid = GpuUuid::new("part of A");
        part.facts.mig_parent = Some(GpuUuid::new("A"));
        node.gpus = vec![gpu.clone(), gpu, part];
        assert!(at(&node, "gpus").why_absent().is_some(), "nothing is known before the first hello");
        node.head.facts = Some(Default::default());
        assert_eq!((at(&node, "gpus"), at(&node, "util")), (Value::Number(2), Value::Number(50)));
        assert!(at(&node, "mem").why_absent().is_some());
    }

    #[test]
    fn a_host_shows_used_amounts_with_their_maximum() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.host.set(F::MemUsed, Cell::steps(16));
        node.host.set(F::MemTotal, Cell::steps(64));
        node.host.set(F::SwapUsed, Cell::UNSUPPORTED);
        assert_eq!(at(&node, "ram"), Value::Part(1 << 30, 4 << 30));
        assert!(at(&node, "swap").why_absent().is_some());
        node.sampled_at_ms = Some(1_000);
        assert_eq!(at(&node, "driver"), Value::NOT_YET);
    }

    #[test]
    fn a_node_that_was_never_reached_shows_its_reason_once_and_no_zero() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = Link::Down { reason: "SSH timed out".into(), retry_at_ms: 9_000 };
        assert_eq!(at(&node, "state").line(CellUnit::Text), "down: SSH timed out");
        for column in columns().iter().filter(|column| !["node", "state"].contains(&column.id)) {
            assert_eq!(
                at(&node, column.id),
                Value::Absent("unknown: the node has sent no data yet"),
                "{}",
                column.id
            );
        }
    }

    #[test]
    fn a_node_whose_probe_sees_one_jobs_gpus_says_so() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.link = Link::Live;
        let visible = "1 of 4 GPUs visible: this probe was adopted into job 17";
        let sources = vec![SourceState::confined(visible.into())];
        node.head.facts = Some(NodeFacts { sources, ..NodeFacts::default() });
        let state = at(&node, "state").line(CellUnit::Text);
        assert!(state.ends_with(&format!("; {visible}")), "{state}");
        assert!(at(&node, "state").searched(CellUnit::Text).contains(&"live".to_owned()));
        node.head.no_gpu = Some(visible.into());
        let state = at(&node, "state").line(CellUnit::Text);
        assert!(!state.contains(visible), "it is stated as the reason already: {state}");
    }

    #[test]
    fn a_total_that_no_gpu_supports_is_unsupported() {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        node.head.facts = Some(NodeFacts::default());
        let mut gpu = GpuPicture::default();
        gpu.row.set(GpuField::Power, Cell::UNSUPPORTED);
        node.gpus = vec![gpu];
        node.sampled_at_ms = Some(1_000);
        assert_eq!(at(&node, "power"), Value::UNSUPPORTED);
        assert_ne!(at(&node, "temp"), Value::UNSUPPORTED, "not read yet");
        node.gpus.clear();
        assert_eq!(at(&node, "power").why_absent(), Some("not reported by any GPU"), "none is listed yet");
        node.head.no_gpu = Some("no driver".into());
        assert_eq!(at(&node, "power"), NO_GPU);
    }

    #[test]
    fn the_mean_utilisation_counts_each_gpu_once() {
        let mut totals = Totals::default();
        for util in [100, 100, 100, 20] {
            let mut gpu = GpuPicture::default();
            gpu.row.set(GpuField::Util, Cell::steps(util));
            totals.add(&gpu);
        }
        assert_eq!((sum(&totals, "util"), sum(&totals, "mem")), (Some(Value::Number(80)), None));
    }
}
