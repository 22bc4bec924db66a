//! Memory of a GPU that no visible process holds is noticed: someone else's, or left behind by a crash.

use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::{Cell, GpuField, ProcessField};

/// Less than this is nobody's fault: contexts, caches of the driver, and the steps of the readings.
pub const LEAST_BYTES: u64 = 1 << 30;
/// For so long it must have been in use, for processes are told less often than memory.
const HELD_MS: u64 = 12_000;

/// What it is, for a title.
pub const ABOUT: &str = "More memory is in use than the processes that can be seen hold. A process in another \
    container or of another user may hold it, or one that crashed left it behind; then only a reset of the card \
    helps, or the end of what remains of the job.";

/// How many bytes of a GPU nobody who can be seen holds, if it is enough to be told.
///
/// `mem_used` is without what driver and firmware reserve; where the driver cannot tell them apart, a part of
/// what is in use is theirs and is left out here by its usual size.
pub fn of(node: &NodePicture, position: usize) -> Option<u64> {
    let gpu = node.gpus.get(position)?;
    let uuid = &gpu.facts.uuid;
    // What a GPU that is divided uses is used by its parts; shared memory is the host's.
    let divided = node.gpus.iter().any(|part| part.facts.mig_parent.as_ref() == Some(uuid));
    if gpu.fault.is_some() || gpu.facts.unified_memory || divided {
        return None;
    }
    // Processes that are not listed may hold it, and that is said already.
    let whole = node.gpus.iter().find(|whole| Some(&whole.facts.uuid) == gpu.facts.mig_parent.as_ref());
    if !gpu.gaps.is_empty() || whole.is_some_and(|whole| !whole.gaps.is_empty()) {
        return None;
    }
    let mut held = 0;
    for process in node.processes.iter().filter(|process| process.facts.gpu == *uuid) {
        // One that does not say how much it holds may hold all of it.
        held += process.row.value(ProcessField::GpuMem)?;
    }
    let kept = if gpu.row.get(GpuField::MemReserved) == Cell::UNSUPPORTED { LEAST_BYTES } else { 0 };
    let unseen = used(node, position, gpu)?.checked_sub(held + kept)?;
    (unseen >= LEAST_BYTES).then_some(unseen)
}

/// The least that was in use for a while.
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
    use nodeglass_protocol::{GpuUuid, NodeName, Row};

    const GIB: u32 = 16;

    fn node(used_gib: u32, processes: &[Option<u32>]) -> NodePicture {
        let mut gpu = GpuPicture::default();
        gpu.facts.uuid = GpuUuid::new("A");
        gpu.row.set(GpuField::MemUsed, Cell::steps(used_gib * GIB));
        let process = |held: &Option<u32>| {
            let facts = ProcessFacts::new(GpuUuid::new("A"), 7, ProcessKind::default());
            let mut row = Row::default();
            row.set(ProcessField::GpuMem, held.map_or(Cell::UNSUPPORTED, |gib| Cell::steps(gib * 1_024)));
            ProcessPicture { facts, row }
        };
        let processes = processes.iter().map(process).collect();
        NodePicture { gpus: vec![gpu], processes, ..NodePicture::new(NodeName::new("n1").unwrap()) }
    }

    #[test]
    fn memory_beyond_that_of_all_processes_is_told() {
        assert_eq!(of(&node(30, &[Some(10), Some(12)]), 0), Some(8 << 30));
        assert_eq!(of(&node(30, &[]), 0), Some(30 << 30));
    }

    #[test]
    fn a_little_is_nobodys_fault_and_less_than_none_is_none() {
        assert_eq!(of(&node(1, &[Some(1)]), 0), None);
        assert_eq!(of(&node(10, &[Some(12)]), 0), None);
    }

    #[test]
    fn a_process_that_does_not_tell_may_hold_it_all() {
        assert_eq!(of(&node(30, &[Some(10), None]), 0), None);
    }

    #[test]
    fn what_an_old_driver_reserves_is_not_taken_for_a_process() {
        let mut node = node(2, &[Some(1)]);
        assert_eq!(of(&node, 0), Some(1 << 30));
        node.gpus[0].row.set(GpuField::MemReserved, Cell::UNSUPPORTED);
        assert_eq!(of(&node, 0), None);
    }

    #[test]
    fn parts_of_a_gpu_answer_for_themselves_and_shared_memory_for_nothing() {
        let mut divided = node(30, &[]);
        let mut part = divided.gpus[0].clone();
        part.facts.uuid = GpuUuid::new("MIG");
        part.facts.mig_parent = Some(GpuUuid::new("A"));
        divided.gpus.push(part);
        assert_eq!((of(&divided, 0), of(&divided, 1)), (None, Some(30 << 30)));
        let mut shared = node(30, &[]);
        shared.gpus[0].facts.unified_memory = true;
        assert_eq!(of(&shared, 0), None);
    }

    #[test]
    fn where_processes_may_be_missing_their_memory_is_not_nobody_s() {
        let mut node = node(30, &[]);
        node.gpus[0].gaps = vec![ProcessGap::Unsupported];
        assert_eq!(of(&node, 0), None);
    }

    #[test]
    fn memory_that_just_grew_is_given_time_to_find_its_process() {
        let mut node = node(30, &[Some(1)]);
        let mut past = History::default();
        for (at_ms, gib) in [(10_000, 1), (11_000, 1), (12_000, 30)] {
            node.gpus[0].row.set(GpuField::MemUsed, Cell::steps(gib * GIB));
            past.push(at_ms, &node.gpus, &node.host, 0);
        }
        node.history = Some(past);
        node.sampled_at_ms = Some(12_000);
        assert_eq!(of(&node, 0), None);
        node.sampled_at_ms = Some(40_000);
        assert_eq!(of(&node, 0), Some(29 << 30));
    }
}
