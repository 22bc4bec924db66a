//! The columns of job usage: what each job uses of a node, by its cgroup.

use super::column::Column;
use super::definition::{ColumnDef, computed, styled, with_catalogue};
use super::value::{CellUnit, Value};
use nodeglass_protocol::JobField as F;
use nodeglass_protocol::picture::{JobUsagePicture, NodePicture};
use std::sync::LazyLock;

/// Resource usage of a job on a node.
pub struct JobUsageRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The job and its readings.
    pub usage: &'a JobUsagePicture,
    /// The job's name.
    pub name: &'a str,
}

type Def = ColumnDef<fn(&JobUsageRow<'_>) -> Value, F>;

/// Position of the column that names the node; omitted in a table of one node.
pub const NODE: usize = 0;

static COLUMNS: LazyLock<Vec<Def>> = LazyLock::new(|| {
    with_catalogue(vec![
        computed(Column::new("node", "Node", CellUnit::Text, 112, "the node").rank(0), |row| {
            Value::text(row.node.name.as_str())
        }),
        computed(Column::new("job", "Job", CellUnit::Text, 92, "SLURM's number of the job").rank(0), |row| {
            Value::text(row.usage.job.to_string())
        }),
        computed(Column::new("name", "Name", CellUnit::Text, 120, "the job's name").rank(3).grows(), |row| {
            Value::text(row.name)
        }),
        styled(F::Cpu, |column| column.width(120).rank(1)),
        styled(F::MemUsed, |column| column.width(120).rank(1)),
        styled(F::Shmem, |column| column.width(96).rank(3)),
        styled(F::OomKills, |column| column.width(82).rank(2)),
    ])
});

/// Returns the columns in their default order.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|column| column.column).collect()
}

/// Returns the value of a column.
pub fn value(row: &JobUsageRow<'_>, column: usize) -> Value {
    COLUMNS.get(column).map_or(Value::NONE, |column| column.value(&row.usage.row, |read| read(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::column::find;
    use nodeglass_protocol::{Cell, JobId, NodeName, Row};

    #[test]
    fn a_job_without_a_limit_has_no_maximum() {
        let node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut usage = JobUsagePicture { job: JobId(17), row: Row::default() };
        usage.row.set(F::MemUsed, Cell::steps(64));
        usage.row.set(F::MemLimit, Cell::UNSUPPORTED);
        let at = |usage: &JobUsagePicture, id| {
            value(&JobUsageRow { node: &node, usage, name: "train" }, find(&columns(), id).unwrap())
        };
        assert_eq!(at(&usage, "mem"), Value::Number(1 << 30));
        usage.row.set(F::MemLimit, Cell::steps(128));
        assert_eq!(at(&usage, "mem"), Value::Part(1 << 30, 2 << 30));
        assert!(at(&usage, "oom").why_absent().is_some());
    }
}
