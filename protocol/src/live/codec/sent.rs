//! The cells of a node that viewers have received: the baseline of the next delta.

use crate::field::{ROW_WIDTH, Row};
use crate::picture::{GpuPicture, JobUsagePicture, NodePicture, ProcessPicture};
use crate::{Cell, GpuField, HostField, JobField, ProcessField};

/// Rows of cells by position, as deltas refer to them: GPUs, then the host, then processes, then
/// job usage.
pub(super) trait Rows {
    /// Number of GPUs and number of processes.
    fn counts(&self) -> (usize, usize);

    /// Mutably borrows the cells of a row by position; `None` past the last row.
    fn row_mut(&mut self, index: usize) -> Option<&mut [Cell; ROW_WIDTH]>;
}

impl Rows for NodePicture {
    fn counts(&self) -> (usize, usize) {
        (self.gpus.len(), self.processes.len())
    }

    fn row_mut(&mut self, index: usize) -> Option<&mut [Cell; ROW_WIDTH]> {
        Self::row_mut(self, index)
    }
}

/// The cells of a node that viewers have received, and their sample time.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SentRows {
    /// Time of the newest sample that was sent, by the relay's clock.
    pub sampled_at_ms: Option<u64>,
    gpus: Vec<Row<GpuField>>,
    host: Row<HostField>,
    processes: Vec<Row<ProcessField>>,
    job_usage: Vec<Row<JobField>>,
}

impl SentRows {
    /// The rows of a node that was sent in full.
    pub fn of(node: &NodePicture) -> Self {
        let mut rows = Self { sampled_at_ms: node.sampled_at_ms, host: node.host.clone(), ..Self::default() };
        rows.set_gpus(&node.gpus);
        rows.set_processes(&node.processes);
        rows.set_job_usage(&node.job_usage);
        rows
    }

    /// Replaces the GPUs, which were sent in full.
    pub fn set_gpus(&mut self, gpus: &[GpuPicture]) {
        self.gpus = gpus.iter().map(|gpu| gpu.row.clone()).collect();
    }

    /// Replaces the processes, which were sent in full.
    pub fn set_processes(&mut self, processes: &[ProcessPicture]) {
        self.processes = processes.iter().map(|process| process.row.clone()).collect();
    }

    /// Replaces the job usage, which was sent in full.
    pub fn set_job_usage(&mut self, job_usage: &[JobUsagePicture]) {
        self.job_usage = job_usage.iter().map(|usage| usage.row.clone()).collect();
    }

    /// Copies the cells into a picture of the same node, so that it shows what viewers have
    /// received.
    pub fn copy_into(&self, node: &mut NodePicture) {
        node.sampled_at_ms = self.sampled_at_ms;
        node.host.clone_from(&self.host);
        node.gpus.iter_mut().zip(&self.gpus).for_each(|(gpu, row)| gpu.row.clone_from(row));
        node.processes.iter_mut().zip(&self.processes).for_each(|(process, row)| process.row.clone_from(row));
        node.job_usage.iter_mut().zip(&self.job_usage).for_each(|(usage, row)| usage.row.clone_from(row));
    }

    /// Borrows the cells of a row by position.
    pub(super) fn row(&self, index: usize) -> Option<&[Cell; ROW_WIDTH]> {
        let (gpus, processes) = self.counts();
        match index {
            i if i < gpus => Some(self.gpus[i].cells()),
            i if i == gpus => Some(self.host.cells()),
            i if i <= gpus + processes => Some(self.processes[i - gpus - 1].cells()),
            i => self.job_usage.get(i - gpus - processes - 1).map(Row::cells),
        }
    }
}

impl Rows for SentRows {
    fn counts(&self) -> (usize, usize) {
        (self.gpus.len(), self.processes.len())
    }

    fn row_mut(&mut self, index: usize) -> Option<&mut [Cell; ROW_WIDTH]> {
        let (gpus, processes) = self.counts();
        match index {
            i if i < gpus => Some(self.gpus[i].cells_mut()),
            i if i == gpus => Some(self.host.cells_mut()),
            i if i <= gpus + processes => Some(self.processes[i - gpus - 1].cells_mut()),
            i => self.job_usage.get_mut(i - gpus - processes - 1).map(Row::cells_mut),
        }
    }
}
