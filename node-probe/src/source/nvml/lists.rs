//! Who is on a GPU: NVML's three lists made one, in whatever layout the driver wrote them.

use super::device::Seat;
use super::legacy::{self, List, POISON, RawList};
use super::word;
use crate::source::{Occupant, calls::Calls};
use nodeglass_protocol::probe::{ProcessKind, ProcessReadings};
use nodeglass_protocol::{GpuUuid, Reading};
use nvml_wrapper::Device;
use std::collections::BTreeMap;

/// The largest pid that Linux gives (`PID_MAX_LIMIT`, 2²²).
const PID_MAX: u32 = 1 << 22;
/// What NVML says when it does not know the memory.
const NOT_AVAILABLE: u64 = u64::MAX;

/// Every process of every GPU; those of an instance under the instance. Each list is read into `raw`.
pub fn occupants(seats: &[Seat<'_>], raw: &mut RawList, calls: &Calls) -> Vec<Occupant> {
    let mut found: BTreeMap<(usize, u32), Occupant> = BTreeMap::new();
    for (position, seat) in seats.iter().enumerate().filter(|(_, seat)| seat.mig.is_none()) {
        let Ok(device) = &seat.device else { continue };
        calls.enter_gpu(seat.index);
        for list in [List::Compute, List::Graphics, List::Mps] {
            if legacy::processes(device, list, raw).is_err() {
                continue;
            }
            for entry in entries(raw) {
                let position = instance_of(seats, seat, entry.instance).unwrap_or(position);
                enter(&mut found, (position, entry.pid), &seats[position].uuid, &entry, list);
            }
        }
    }
    found.into_values().collect()
}

/// What all processes on a GPU use of its memory, in bytes; unsupported if NVML knows it of none.
pub fn memory_of_all(device: &Device<'_>) -> Reading<u64> {
    let (mut raw, mut known) = (RawList::default(), BTreeMap::new());
    let mut unknown = false;
    for list in [List::Compute, List::Graphics, List::Mps] {
        match legacy::processes(device, list, &mut raw) {
            Ok(()) => {
                for entry in entries(&raw) {
                    unknown |= entry.mem_bytes.is_none();
                    known.extend(entry.mem_bytes.map(|bytes| (entry.pid, bytes)));
                }
            }
            Err(error) if word::unsupported(&error) => {}
            Err(error) => return Reading::Failed(word::of(&error).into()),
        }
    }
    match known.values().copied().reduce(u64::saturating_add) {
        None if unknown => Reading::Unsupported,
        sum => Reading::Value(sum.unwrap_or(0)),
    }
}

/// The position of the instance that an entry names.
fn instance_of(seats: &[Seat<'_>], gpu: &Seat<'_>, ids: Option<(u32, u32)>) -> Option<usize> {
    let ids = ids?;
    seats
        .iter()
        .position(|seat| seat.mig.as_ref().is_some_and(|mig| mig.parent == gpu.uuid && mig.ids == Some(ids)))
}

fn enter(
    found: &mut BTreeMap<(usize, u32), Occupant>,
    key: (usize, u32),
    gpu: &GpuUuid,
    entry: &Entry,
    list: List,
) {
    let occupant = found.entry(key).or_insert_with(|| Occupant {
        gpu: gpu.clone(),
        pid: entry.pid,
        now: ProcessReadings { gpu_mem_bytes: Reading::Unsupported, ..ProcessReadings::default() },
        kind: ProcessKind::default(),
    });
    // A process in two lists has the same memory in both; one of them may not know it.
    let known = occupant.now.gpu_mem_bytes.value().copied().max(entry.mem_bytes);
    occupant.now.gpu_mem_bytes = known.map_or(Reading::Unsupported, Reading::Value);
    match list {
        List::Compute => occupant.kind.compute = true,
        List::Graphics => occupant.kind.graphics = true,
        List::Mps => occupant.kind.mps = true,
    }
}

/// One entry of a list.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    pid: u32,
    mem_bytes: Option<u64>,
    /// GPU instance and compute instance, on a GPU in MIG mode.
    instance: Option<(u32, u32)>,
}

/// The entries of a raw list; none if its layout makes no sense.
///
/// The layout is told by how far NVML wrote, for it cannot be told by the symbol's name: entries of
/// version 1 have 16 bytes, those of 2 and 3 have 24, but `_v3` of drivers 535.43 to 535.86 writes
/// 32, and one container was seen where it writes 16.
fn entries(raw: &RawList) -> Vec<Entry> {
    let written = raw.words.iter().rposition(|word| *word != POISON).map_or(0, |last| last + 1);
    if raw.count == 0 || !written.is_multiple_of(raw.count) || !(2..=4).contains(&(written / raw.count)) {
        return Vec::new();
    }
    let entries: Vec<_> = raw.words[..written].chunks_exact(written / raw.count).map(entry).collect();
    let sane = |entry: &Entry| (1..=PID_MAX).contains(&entry.pid);
    if entries.iter().all(sane) { entries } else { Vec::new() }
}

fn entry(words: &[u64]) -> Entry {
    let ids = words.get(2).map(|ids| (*ids as u32, (*ids >> 32) as u32));
    Entry {
        // The upper half is padding, which nobody has to write.
        pid: words[0] as u32,
        mem_bytes: (words[1] != NOT_AVAILABLE).then_some(words[1]),
        instance: ids.filter(|(gi, ci)| *gi != u32::MAX && *ci != u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A list as a driver with entries of `words` words writes it.
    fn written(list: &[(u32, u64)], words: usize) -> RawList {
        let mut buffer = vec![POISON; (list.len() + 3) * 4];
        for (at, (pid, mem)) in list.iter().enumerate() {
            let full = [POISON & !0xffff_ffff | u64::from(*pid), *mem, u64::MAX, 0];
            buffer[at * words..(at + 1) * words].copy_from_slice(&full[..words]);
        }
        RawList { count: list.len(), words: buffer }
    }

    proptest! {
        #[test]
        fn each_layout_of_each_driver_is_read_the_same(
            list in prop::collection::vec((1u32..=PID_MAX, 0u64..1 << 40), 0..80),
            words in 2usize..=4,
        ) {
            let read: Vec<_> = entries(&written(&list, words)).into_iter().map(|e| (e.pid, e.mem_bytes)).collect();
            let wanted: Vec<_> = list.into_iter().map(|(pid, mem)| (pid, Some(mem))).collect();
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn no_buffer_is_too_strange(count in 0usize..50, words in prop::collection::vec(any::<u64>(), 0..200)) {
            let read = entries(&RawList { count, words });
            prop_assert!(read.iter().all(|entry| entry.pid > 0 && entry.pid <= PID_MAX));
        }
    }

    #[test]
    fn memory_that_nvml_does_not_know_is_not_a_number() {
        assert_eq!(entries(&written(&[(7, u64::MAX)], 3))[0].mem_bytes, None);
    }
}
