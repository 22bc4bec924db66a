//! Detects GPU memory that no visible process holds: another user's, or left behind by a crash.

use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::unattributed::{HELD_MS, MIN_BYTES};
use nodeglass_protocol::{Cell, GpuField};

/// Explanation for a tooltip.
pub const ABOUT: &str = "More memory is in use than the visible processes hold. A process in another container \
    or of another user may hold it. If a crashed process left it behind, end the rest of the job, or reset the card.";

/// Returns how many bytes of a GPU no visible process holds, if it is enough to report.
pub fn bytes(node: &NodePicture, position: usize) -> Option<u64> {
    let used_bytes = used(node, position, node.gpus.get(position)?)?;
    node.unattributed_bytes(position, used_bytes).ok().filter(|bytes| *bytes >= MIN_BYTES)
}

/// Returns the minimum in use over a while.
fn used(node: &NodePicture, position: usize, gpu: &GpuPicture) -> Option<u64> {
    let now = gpu.row.value(GpuField::MemUsed)?;
    let trace = node.history.as_ref().and_then(|past| past.gpu(position, GpuField::MemUsed));
    let (Some(trace), Some(sampled_at_ms)) = (trace, node.sampled_at_ms) else { return Some(now) };
    let recent = trace.points().filter(|(at_ms, _)| at_ms + HELD_MS >= sampled_at_ms);
    let steps = recent.filter_map(|(_, cell)| cell.and_then(Cell::value)).min();
    Some(now.min(steps.map_or(now, |steps| u64::from(steps) * (64 << 20))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::picture::{History, ProcessGap, ProcessPicture};
    use nodeglass_protocol::process::{ProcessFacts, ProcessKind};
    use nodeglass_protocol::{GpuUuid, NodeName, ProcessField, Row};

    const GIB: u32 = 16;

    fn node(used_gib: u32, processes: &[Option<u32>]) -> NodePicture {
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new("A");
        gpu.row.set(GpuField::MemUsed, Cell::steps(used_gib * GIB));
        let process = |listed_bytes: &Option<u32>| {
            let facts = ProcessFacts::new(GpuUuid::new("A"), 7, ProcessKind::default());
            let mut row = Row::default();
            row.set(
                ProcessField::GpuMem,
                listed_bytes.map_or(Cell::UNSUPPORTED, |gib| Cell::steps(gib * 1_024)),
            );
            ProcessPicture { facts, row }
        };
        let processes = processes.iter().map(process).collect();
        NodePicture { gpus: vec![gpu], processes, ..NodePicture::new(NodeName::new("n1").unwrap()) }
    }

    #[test]
    fn memory_beyond_that_of_all_processes_is_reported() {
        assert_eq!(bytes(&node(30, &[Some(10), Some(12)]), 0), Some(8 << 30));
        assert_eq!(bytes(&node(30, &[]), 0), Some(30 << 30));
    }

    #[test]
    fn small_and_negative_differences_are_ignored() {
        assert_eq!(bytes(&node(1, &[Some(1)]), 0), None);
        assert_eq!(bytes(&node(10, &[Some(12)]), 0), None);
    }

    #[test]
    fn a_process_with_unknown_memory_may_hold_it_all() {
        assert_eq!(bytes(&node(30, &[Some(10), None]), 0), None);
    }

    #[test]
    fn the_reserve_of_an_old_driver_is_not_reported() {
        let mut node = node(2, &[Some(1)]);
        assert_eq!(bytes(&node, 0), Some(1 << 30));
        node.gpus[0].row.set(GpuField::MemReserved, Cell::UNSUPPORTED);
        assert_eq!(bytes(&node, 0), None);
    }

    #[test]
    fn instances_are_checked_separately_and_unified_memory_is_not() {
        let mut divided = node(30, &[]);
        let mut part = divided.gpus[0].clone();
        part.facts.uuid = GpuUuid::new("MIG");
        part.facts.mig_parent = Some(GpuUuid::new("A"));
        divided.gpus.push(part);
        assert_eq!((bytes(&divided, 0), bytes(&divided, 1)), (None, Some(30 << 30)));
        let mut shared = node(30, &[]);
        shared.gpus[0].facts.unified_memory = true;
        assert_eq!(bytes(&shared, 0), None);
    }

    #[test]
    fn possibly_missing_processes_suppress_the_report() {
        let mut node = node(30, &[]);
        node.gpus[0].gaps = vec![ProcessGap::Unsupported];
        assert_eq!(bytes(&node, 0), None);
    }

    #[test]
    fn memory_that_just_grew_is_not_reported_yet() {
        let mut node = node(30, &[Some(1)]);
        let mut past = History::default();
        for (at_ms, gib) in [(10_000, 1), (11_000, 1), (12_000, 30)] {
            node.gpus[0].row.set(GpuField::MemUsed, Cell::steps(gib * GIB));
            past.push(at_ms, node.gpus.iter().map(|gpu| &gpu.row), &node.host, 0);
        }
        node.history = Some(past);
        node.sampled_at_ms = Some(12_000);
        assert_eq!(bytes(&node, 0), None);
        node.sampled_at_ms = Some(40_000);
        assert_eq!(bytes(&node, 0), Some(29 << 30));
    }
}
