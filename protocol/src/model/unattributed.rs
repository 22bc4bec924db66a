//! GPU memory in use that no listed process holds: another container's or user's, or left behind by
//! a crash.

use crate::gpu::Virtualization;
use crate::picture::{GpuPicture, NodePicture};
use crate::process::ProcessGap;
use crate::{Cell, GpuField, ProcessField};

/// Less than this is not counted: contexts, caches of the driver, and the resolution of the
/// readings.
pub const MIN_BYTES: u64 = 1 << 30;
/// Time for which memory must have been in use without a process, in ms, because processes are reported less often
/// than memory.
pub const HELD_MS: u64 = 12_000;

impl NodePicture {
    /// Returns how many of the `used_bytes` of a GPU none of its listed processes holds.
    ///
    /// `mem_used_bytes` excludes what driver and firmware reserve. Where the driver cannot separate
    /// them, their usual size is subtracted here.
    ///
    /// # Errors
    /// The state of the reading that is missing.
    pub fn unattributed_bytes(&self, position: usize, used_bytes: u64) -> Result<u64, Cell> {
        let gpu = self.gpus.get(position).filter(|gpu| gpu.fault.is_none()).ok_or(Cell::NOT_YET)?;
        let uuid = &gpu.facts.uuid;
        // Memory of a partitioned GPU belongs to its instances; unified memory belongs to the host.
        let is_divided = self.gpus.iter().any(|part| part.facts.mig_parent.as_ref() == Some(uuid));
        // Virtual machines hold memory of their host's GPU without processes here.
        let is_host = matches!(
            gpu.facts.virtualization.value(),
            Some(Virtualization::VgpuHost | Virtualization::VsgaHost)
        );
        if gpu.facts.unified_memory || is_divided || is_host {
            return Err(Cell::UNSUPPORTED);
        }
        let reserved_bytes =
            if gpu.row.get(GpuField::MemReserved) == Cell::UNSUPPORTED { MIN_BYTES } else { 0 };
        let used_bytes = used_bytes.saturating_sub(reserved_bytes);
        // Processes that are not listed may hold it, which is reported already.
        if let Some(gap) = self.process_gaps(gpu).next() {
            return Err(if let ProcessGap::Failed(_) = gap { Cell::FAILED } else { Cell::UNSUPPORTED });
        }
        let mut left_bytes = used_bytes;
        for process in self.processes.iter().filter(|process| process.facts.gpu == *uuid) {
            // A process with unknown memory may hold all of it.
            let held_bytes = process.row.value(ProcessField::GpuMem);
            let held_bytes = held_bytes.ok_or_else(|| process.row.get(ProcessField::GpuMem))?;
            left_bytes = left_bytes.saturating_sub(held_bytes);
        }
        Ok(left_bytes)
    }

    /// Returns why processes of a GPU may be missing; a MIG instance has the gaps of its GPU.
    pub fn process_gaps<'a>(&'a self, gpu: &'a GpuPicture) -> impl Iterator<Item = &'a ProcessGap> {
        let parent = gpu.facts.mig_parent.as_ref();
        let whole = parent.and_then(|parent| self.gpus.iter().find(|whole| whole.facts.uuid == *parent));
        gpu.gaps.iter().chain(whole.into_iter().flat_map(|whole| &whole.gaps))
    }
}
