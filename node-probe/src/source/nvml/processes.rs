//! Process lists of each GPU: merges NVML's three lists in all layouts of all drivers, and records
//! failures.

use super::device::DeviceHandle;
use super::error;
use super::ffi_compat::{self, List, POISON, RawList};
use crate::clock;
use crate::source::bound::fair_cap;
use crate::source::{GpuProcess, GpuProcessList, calls::CallTracker};
use nodeglass_protocol::probe::{MAX_PROCESSES, ProcessGap, ProcessKind, ProcessReadings};
use nodeglass_protocol::{GpuUuid, Reading};
use std::{collections::BTreeMap, sync::Arc};

/// Maximum pid of Linux (`PID_MAX_LIMIT`, 2²²).
const PID_MAX: u32 = 1 << 22;
/// NVML's value for unknown memory.
const NOT_AVAILABLE: u64 = u64::MAX;

/// NVML's three lists with the kind of process they contain.
const LISTS: [(List, ProcessKind); 3] = [
    (List::Compute, ProcessKind { compute: true, graphics: false, mps: false }),
    (List::Graphics, ProcessKind { compute: false, graphics: true, mps: false }),
    (List::Mps, ProcessKind { compute: false, graphics: false, mps: true }),
];

/// Merged list entries of a process.
#[derive(Default)]
struct Found {
    mem_bytes: Option<u64>,
    kind: ProcessKind,
}

/// Returns all processes of all GPUs; processes of an instance are listed under the instance. `raw` is a reusable
/// buffer.
pub fn gpu_processes(
    handles: &[DeviceHandle<'_>],
    uuids: Arc<[GpuUuid]>,
    raw: &mut RawList,
    calls: &CallTracker,
) -> GpuProcessList {
    let mut gpu_process_list =
        GpuProcessList { mono_ns: clock::mono_ns(), gpus: uuids, ..GpuProcessList::default() };
    let mut found: Vec<BTreeMap<u32, Found>> = handles.iter().map(|_| BTreeMap::new()).collect();
    for (position, handle) in handles.iter().enumerate().filter(|(_, handle)| handle.mig.is_none()) {
        let mut invalid = 0;
        for (list, kind) in LISTS {
            if handle.device.is_ok() {
                calls.begin_gpu_call(handle.index);
            }
            match listed(handle, list, raw) {
                Ok(listed) => {
                    invalid += listed.invalid;
                    for entry in listed.entries {
                        let position = instance_of(handles, handle, entry.instance).unwrap_or(position);
                        take(&mut found[position], entry, kind);
                    }
                }
                Err(reason) => {
                    let unread = list_instances(handles, handle, (list, kind), raw, &mut found, calls);
                    match reason {
                        Reading::Failed(why) => gpu_process_list.unread(unread, kind, (*why).clone()),
                        _ => gpu_process_list.unsupported(unread, kind),
                    }
                }
            }
        }
        if invalid > 0 {
            gpu_process_list.gap(&handle.uuid, ProcessGap::More(invalid));
        }
    }
    add(&mut gpu_process_list, handles, found);
    gpu_process_list
}

/// Adds what was found of each handle to the list.
fn add(list: &mut GpuProcessList, handles: &[DeviceHandle<'_>], found: Vec<BTreeMap<u32, Found>>) {
    // Bounded here, because each entry costs reads of `/proc`.
    let cap = fair_cap(found.iter().map(BTreeMap::len), MAX_PROCESSES);
    for (handle, processes) in handles.iter().zip(found) {
        if let Some(more) = processes.len().checked_sub(cap).filter(|more| *more > 0) {
            list.gap(&handle.uuid, ProcessGap::More(u32::try_from(more).unwrap_or(u32::MAX)));
        }
        let gpu_process = |(pid, Found { mem_bytes, kind })| {
            let gpu_mem_bytes = mem_bytes.map_or(Reading::Unsupported, Reading::Value);
            let now = ProcessReadings { gpu_mem_bytes, ..ProcessReadings::default() };
            GpuProcess { gpu: handle.uuid.clone(), pid, now, kind }
        };
        list.processes.extend(processes.into_iter().take(cap).map(gpu_process));
    }
}

/// Reads one list of each instance of a GPU that does not list all processes itself: in a container
/// with an instance alone, only that one does. Returns the GPU and the instances that were not read.
fn list_instances(
    handles: &[DeviceHandle<'_>],
    gpu: &DeviceHandle<'_>,
    (list, kind): (List, ProcessKind),
    raw: &mut RawList,
    found: &mut [BTreeMap<u32, Found>],
    calls: &CallTracker,
) -> Vec<GpuUuid> {
    let mut unread = vec![gpu.uuid.clone()];
    for (handle, found) in handles.iter().zip(found) {
        if handle.mig.as_ref().is_none_or(|mig| mig.parent != gpu.uuid) {
            continue;
        }
        calls.begin_next_call();
        match listed(handle, list, raw) {
            Ok(listed) => listed.entries.into_iter().for_each(|entry| take(found, entry, kind)),
            Err(_) => unread.push(handle.uuid.clone()),
        }
    }
    unread
}

/// Adds an entry to the processes of a GPU or instance.
fn take(found: &mut BTreeMap<u32, Found>, entry: Entry, kind: ProcessKind) {
    let process = found.entry(entry.pid).or_default();
    // A process in two lists has the same memory in both, but it may be unknown in one.
    process.mem_bytes = process.mem_bytes.max(entry.mem_bytes);
    process.kind = process.kind.union(kind);
}

/// Reads one list of a GPU. The error is the resulting reading: unsupported or failed.
fn listed(handle: &DeviceHandle<'_>, list: List, raw: &mut RawList) -> Result<Listed, Reading<()>> {
    let device = handle.device.as_ref().map_err(|why| Reading::Failed(why.why().into()))?;
    match error::reading(ffi_compat::processes(device, list, raw)) {
        Reading::Value(()) => entries(raw).map_err(|why| Reading::Failed(why.into())),
        other => Err(other),
    }
}

/// Returns the total GPU memory of all processes in bytes; unsupported if NVML reports it for none.
pub fn memory_of_all(handle: &DeviceHandle<'_>) -> Reading<u64> {
    let (mut raw, mut known) = (RawList::default(), BTreeMap::new());
    let (mut unknown, mut lists) = (false, 0);
    for (list, _) in LISTS {
        match listed(handle, list, &mut raw) {
            Ok(listed) => {
                lists += 1;
                for entry in listed.entries {
                    unknown |= entry.mem_bytes.is_none();
                    known.extend(entry.mem_bytes.map(|bytes| (entry.pid, bytes)));
                }
            }
            Err(Reading::Failed(why)) => return Reading::Failed(why),
            Err(_) => {}
        }
    }
    match known.values().copied().reduce(u64::saturating_add) {
        None if unknown || lists == 0 => Reading::Unsupported,
        sum => Reading::Value(sum.unwrap_or(0)),
    }
}

/// Returns the position of the instance that an entry refers to.
fn instance_of(
    handles: &[DeviceHandle<'_>],
    gpu: &DeviceHandle<'_>,
    ids: Option<(u32, u32)>,
) -> Option<usize> {
    let ids = ids?;
    handles.iter().position(|handle| {
        handle.mig.as_ref().is_some_and(|mig| mig.parent == gpu.uuid && mig.ids == Some(ids))
    })
}

/// An entry of a process list.
#[derive(Clone, Debug, PartialEq)]
struct Entry {
    pid: u32,
    mem_bytes: Option<u64>,
    /// GPU instance and compute instance ids, in MIG mode.
    instance: Option<(u32, u32)>,
}

/// Parsed process list.
#[derive(Clone, Debug, Default, PartialEq)]
struct Listed {
    entries: Vec<Entry>,
    /// Number of entries with an impossible pid: 0, or more than [`PID_MAX`].
    invalid: u32,
}

/// Parses a raw list.
///
/// The layout is inferred from how far NVML wrote, because the symbol's name does not identify it:
/// entries of version 1 have 16 bytes, those of 2 and 3 have 24, but `_v3` of drivers 535.43 to
/// 535.86 writes 32, and was observed to write 16 in a container.
///
/// # Errors
/// Description of an invalid list.
fn entries(raw: &RawList) -> Result<Listed, &'static str> {
    let written = raw.words.iter().rposition(|word| *word != POISON).map_or(0, |last| last + 1);
    if raw.count == 0 {
        return Ok(Listed::default());
    }
    if !written.is_multiple_of(raw.count) || !(2..=4).contains(&(written / raw.count)) {
        return Err("the driver wrote a process list of an unknown layout");
    }
    let all = raw.words[..written].chunks_exact(written / raw.count).map(entry);
    let (entries, invalid): (Vec<_>, Vec<_>) = all.partition(|entry| (1..=PID_MAX).contains(&entry.pid));
    // One impossible pid is an outlier; if there are no others, the layout was misdetected.
    if entries.is_empty() {
        return Err("the driver wrote a process list without any valid pid");
    }
    Ok(Listed { entries, invalid: u32::try_from(invalid.len()).unwrap_or(u32::MAX) })
}

fn entry(words: &[u64]) -> Entry {
    let ids = words.get(2).map(|ids| (*ids as u32, (*ids >> 32) as u32));
    Entry {
        // The upper half is padding and may be uninitialized.
        pid: words[0] as u32,
        mem_bytes: (words[1] != NOT_AVAILABLE).then_some(words[1]),
        instance: ids.filter(|(gi, ci)| *gi != u32::MAX && *ci != u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Encodes a list as a driver with entries of `words` words does.
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
        fn all_driver_layouts_parse_to_the_same_entries(
            list in prop::collection::vec((1u32..=PID_MAX, 0u64..1 << 40), 0..80),
            words in 2usize..=4,
        ) {
            let read: Vec<_> = entries(&written(&list, words)).unwrap().entries.into_iter().map(|e| (e.pid, e.mem_bytes)).collect();
            let wanted: Vec<_> = list.into_iter().map(|(pid, mem)| (pid, Some(mem))).collect();
            prop_assert_eq!(read, wanted);
        }

        #[test]
        fn no_buffer_is_too_strange(count in 0usize..50, words in prop::collection::vec(any::<u64>(), 0..200)) {
            let read = entries(&RawList { count, words }).unwrap_or_default();
            prop_assert!(read.entries.iter().all(|entry| entry.pid > 0 && entry.pid <= PID_MAX));
            prop_assert!(read.entries.len() + read.invalid as usize <= count);
        }
    }

    #[test]
    fn memory_that_nvml_does_not_know_is_not_a_number() {
        assert_eq!(entries(&written(&[(7, u64::MAX)], 3)).unwrap().entries[0].mem_bytes, None);
    }

    #[test]
    fn an_invalid_pid_does_not_affect_other_entries() {
        for odd in [0, PID_MAX + 1, u32::MAX] {
            let list = entries(&written(&[(7, 1), (odd, 2), (8, 3)], 3)).unwrap();
            let pids: Vec<_> = list.entries.iter().map(|entry| entry.pid).collect();
            assert_eq!((pids, list.invalid), (vec![7, 8], 1));
            assert!(entries(&written(&[(odd, 2)], 3)).is_err(), "nothing says that this is a pid");
        }
    }

    #[test]
    fn a_list_of_an_unknown_layout_is_not_an_empty_one() {
        let garbage = RawList { count: 7, words: vec![1; 11] };
        assert!(entries(&garbage).is_err());
        assert!(entries(&RawList { count: usize::MAX, ..garbage }).is_err());
    }
}
