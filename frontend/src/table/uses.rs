//! The columns of what jobs use of a node, by their cgroups.

use super::column::{Column, Sum};
use super::value::{Unit, Value};
use super::{Told, by, field, part};
use nodeglass_protocol::JobField as F;
use nodeglass_protocol::picture::{JobUsagePicture, NodePicture};

/// What a job uses of a node.
pub struct UseRow<'a> {
    /// The node.
    pub node: &'a NodePicture,
    /// The job and its readings.
    pub used: &'a JobUsagePicture,
    /// What the job is called.
    pub name: &'a str,
}

type Of = Told<fn(&UseRow<'_>) -> Value, F>;

/// Position of the column that names the node; a table of one node leaves it out.
pub const NODE: usize = 0;

static COLUMNS: [Of; 7] = [
    by(Column::new("node", "Node", Unit::Words, 112, "the node").rank(0), |row| {
        Value::text(row.node.name.as_str())
    }),
    by(Column::new("job", "Job", Unit::Words, 92, "SLURM's number of the job").rank(0), |row| {
        Value::text(row.used.job.to_string())
    }),
    by(Column::new("name", "Name", Unit::Words, 120, "what the job is called").rank(3).grows(), |row| {
        Value::text(row.name)
    }),
    part(
        Column::new("cpu", "CPU", Unit::Percent, 120, "CPU time, of what it may use; 100 % is one core")
            .rank(1)
            .sum(Sum::Total),
        F::Cpu,
        F::CpuLimit,
    ),
    part(
        Column::new("mem", "RAM", Unit::Gib, 120, "memory of the host, of what it may use")
            .rank(1)
            .sum(Sum::Total),
        F::MemUsed,
        F::MemLimit,
    ),
    field(
        Column::new("shm", "Shared", Unit::Gib, 96, "shared memory and tmpfs within it")
            .rank(3)
            .sum(Sum::Total),
        F::Shmem,
    ),
    field(
        Column::new(
            "oom",
            "OOM kills",
            Unit::Count,
            82,
            "how often its limit of memory killed one of its processes",
        )
        .rank(2)
        .sum(Sum::Total),
        F::OomKills,
    ),
];

/// The columns in the order they have by themselves.
pub fn columns() -> Vec<Column> {
    COLUMNS.iter().map(|told| told.column).collect()
}

/// What stands in a column.
pub fn value(row: &UseRow<'_>, column: usize) -> Value {
    COLUMNS.get(column).map_or(Value::NONE, |told| told.value(&row.used.row, |read| read(row)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::table::column::find;
    use nodeglass_protocol::{Cell, JobId, NodeName, Row};

    #[test]
    fn a_job_without_a_limit_has_a_part_of_no_whole() {
        let node = NodePicture::new(NodeName::new("n1").unwrap());
        let mut used = JobUsagePicture { job: JobId(17), row: Row::default() };
        used.row.set(F::MemUsed, Cell::steps(64));
        used.row.set(F::MemLimit, Cell::UNSUPPORTED);
        let at = |used: &JobUsagePicture, id| {
            value(&UseRow { node: &node, used, name: "train" }, find(&columns(), id).unwrap())
        };
        assert_eq!(at(&used, "mem"), Value::Number(1 << 30));
        used.row.set(F::MemLimit, Cell::steps(128));
        assert_eq!(at(&used, "mem"), Value::Of(1 << 30, 2 << 30));
        assert!(at(&used, "oom").why_absent().is_some());
    }
}
