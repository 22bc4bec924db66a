//! Fills [`GpuField::MemUnattributed`]: steady, so that it changes seldom.

use nodeglass_protocol::picture::NodePicture;
use nodeglass_protocol::unattributed::{HELD_MS, MIN_BYTES};
use nodeglass_protocol::{Cell, GpuField, GpuUuid};
use std::collections::HashMap;

/// The GPUs of a node with memory that no process holds.
#[derive(Debug, Default)]
pub(super) struct Unattributed {
    gpus: HashMap<GpuUuid, Excess>,
    /// Whether the probe has listed processes.
    has_list: bool,
}

/// Unattributed memory of one GPU, in steps of [`MIN_BYTES`]. A decrease counts at once, an increase
/// after [`HELD_MS`]: memory is reported more often than processes.
#[derive(Debug, Default)]
struct Excess {
    steps: u32,
    /// Start of the time in which there was more, and the least in it.
    more: Option<(u64, u32)>,
}

impl Unattributed {
    /// Records that there is a process list.
    pub(super) fn take_list(&mut self) {
        self.has_list = true;
    }

    /// Sets the cells of all GPUs, after a sample at `now_ms`.
    pub(super) fn take_sample(&mut self, node: &mut NodePicture, now_ms: u64) {
        for position in 0..node.gpus.len() {
            let cell = self.cell(node, position, now_ms);
            node.gpus[position].row.set(GpuField::MemUnattributed, cell);
        }
        if self.gpus.len() > node.gpus.len() {
            self.gpus.retain(|uuid, _| node.gpus.iter().any(|gpu| gpu.facts.uuid == *uuid));
        }
    }

    fn cell(&mut self, node: &NodePicture, position: usize, now_ms: u64) -> Cell {
        let gpu = &node.gpus[position];
        let bytes = match gpu.row.value(GpuField::MemUsed) {
            _ if !self.has_list => Err(Cell::NOT_YET),
            Some(used_bytes) => node.unattributed_bytes(position, used_bytes),
            None => Err(gpu.row.get(GpuField::MemUsed)),
        };
        match bytes.map(|bytes| u32::try_from(bytes / MIN_BYTES).unwrap_or(u32::MAX)) {
            Ok(steps) if steps > 0 => {
                Cell::steps(self.gpus.entry(gpu.facts.uuid.clone()).or_default().take(steps, now_ms))
            }
            other => {
                // Hashing the UUID of each GPU in each second would cost more than all the rest.
                if !self.gpus.is_empty() {
                    self.gpus.remove(&gpu.facts.uuid);
                }
                other.map_or_else(|missing| missing, Cell::steps)
            }
        }
    }
}

impl Excess {
    /// Enters a reading and returns what to show.
    fn take(&mut self, steps: u32, now_ms: u64) -> u32 {
        if steps <= self.steps {
            *self = Self { steps, more: None };
            return steps;
        }
        let (since_ms, least) = self.more.map_or((now_ms, steps), |(since, least)| (since, least.min(steps)));
        self.more = Some((since_ms, least));
        if now_ms.saturating_sub(since_ms) >= HELD_MS {
            *self = Self { steps: least, more: None };
        }
        self.steps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::gpu::Virtualization;
    use nodeglass_protocol::picture::{GpuPicture, ProcessGap};
    use nodeglass_protocol::{NodeName, Reading};

    const STEPS_PER_GIB: u32 = 16;

    fn node(gpus: usize) -> NodePicture {
        let gpu = |index| {
            let mut gpu = GpuPicture::default();
            gpu.facts.uuid = GpuUuid::new(format!("GPU-{index}"));
            gpu
        };
        NodePicture { gpus: (0..gpus).map(gpu).collect(), ..NodePicture::new(NodeName::new("n1").unwrap()) }
    }

    /// What is shown after samples with so much memory in use, in GiB, without any process.
    fn shown(samples: &[(u64, u32)]) -> Vec<u32> {
        let (mut node, mut unattributed) = (node(1), Unattributed::default());
        unattributed.take_list();
        let mut show = |(second, gib): &(u64, u32)| {
            node.gpus[0].row.set(GpuField::MemUsed, Cell::steps(gib * STEPS_PER_GIB));
            unattributed.take_sample(&mut node, second * 1_000);
            node.gpus[0].row.get(GpuField::MemUnattributed).value().unwrap()
        };
        samples.iter().map(&mut show).collect()
    }

    #[test]
    fn an_increase_counts_when_it_has_lasted_and_a_decrease_at_once() {
        assert_eq!(shown(&[(0, 8), (11, 8), (12, 8), (13, 3), (14, 0)]), [0, 0, 8, 3, 0]);
        assert_eq!(shown(&[(0, 8), (6, 2), (12, 9), (18, 9), (30, 9)]), [0, 0, 2, 2, 9]);
    }

    #[test]
    fn memory_that_was_freed_in_between_starts_anew() {
        assert_eq!(shown(&[(0, 8), (11, 0), (12, 8), (23, 8), (24, 8)]), [0, 0, 0, 0, 8]);
    }

    #[test]
    fn what_is_unknown_is_not_zero() {
        let (mut node, mut unattributed) = (node(5), Unattributed::default());
        for gpu in &mut node.gpus {
            gpu.row.set(GpuField::MemUsed, Cell::steps(8 * STEPS_PER_GIB));
        }
        let cells = |node: &mut NodePicture, unattributed: &mut Unattributed| {
            unattributed.take_sample(node, 0);
            node.gpus.iter().map(|gpu| gpu.row.get(GpuField::MemUnattributed)).collect::<Vec<_>>()
        };
        assert_eq!(cells(&mut node, &mut unattributed), [Cell::NOT_YET; 5]);
        unattributed.take_list();
        node.gpus[0].gaps = vec![ProcessGap::Failed("unknown error".into())];
        node.gpus[1].facts.unified_memory = true;
        node.gpus[2].row.set(GpuField::MemUsed, Cell::FAILED);
        node.gpus[4].facts.virtualization = Reading::Value(Virtualization::VgpuHost);
        let known = [Cell::FAILED, Cell::UNSUPPORTED, Cell::FAILED, Cell::steps(0), Cell::UNSUPPORTED];
        assert_eq!(cells(&mut node, &mut unattributed), known);
    }

    #[test]
    fn only_gpus_with_an_excess_that_are_still_there_take_memory() {
        let (mut node, mut unattributed) = (node(2), Unattributed::default());
        unattributed.take_list();
        for gpu in &mut node.gpus {
            gpu.row.set(GpuField::MemUsed, Cell::steps(8 * STEPS_PER_GIB));
        }
        unattributed.take_sample(&mut node, 0);
        assert_eq!(unattributed.gpus.len(), 2);
        node.gpus.truncate(1);
        unattributed.take_sample(&mut node, 1_000);
        assert_eq!(unattributed.gpus.len(), 1);
        node.gpus[0].row.set(GpuField::MemUsed, Cell::steps(0));
        unattributed.take_sample(&mut node, 2_000);
        assert_eq!(unattributed.gpus.len(), 0);
    }
}
