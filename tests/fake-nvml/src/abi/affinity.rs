//! CPUs and memory of the machine near a GPU.

use super::{DeviceContext, INVALID_ARGUMENT, exports::getters, offered, on_device, put::put_some};
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};
use std::{ffi::c_ulong, fs};

/// `NVML_AFFINITY_SCOPE_SOCKET`, the larger of the two scopes.
const SCOPE_SOCKET: u32 = 1;

/// Returns the CPUs near a GPU: of the state file, of its NUMA node, or all.
pub(super) fn cpus(ctx: &DeviceContext<'_>) -> Vec<usize> {
    let node = format!("/sys/devices/system/node/node{}/cpulist", ctx.state.socket(ctx.index));
    let machine = fs::read_to_string(node).or_else(|_| fs::read_to_string("/sys/devices/system/cpu/present"));
    listed(&ctx.gpu.board.cpus.or(machine.ok()).unwrap_or_default())
}

/// Parses `0-3,8`.
fn listed(text: &str) -> Vec<usize> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    text.split(',').filter_map(range).flatten().collect()
}

/// A set of numbers as a bit mask, in as many words as the caller provides.
fn bits(numbers: &[usize], words: u32) -> Vec<c_ulong> {
    let mut set = vec![0; words as usize];
    for number in numbers {
        if let Some(word) = set.get_mut(number / c_ulong::BITS as usize) {
            *word |= 1 << (number % c_ulong::BITS as usize);
        }
    }
    set
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetCpuAffinity(
    device: nvmlDevice_t,
    words: u32,
    set: *mut c_ulong,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetCpuAffinity", device, |ctx| Ok(bits(&cpus(&ctx), words)));
    // SAFETY: by NVML's contract the set has this many words.
    unsafe { put_some(words, set, answer) }
}

macro_rules! within_scope {
    ($($symbol:ident = |$ctx:ident| $numbers:expr;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $symbol(device: nvmlDevice_t, words: u32, set: *mut c_ulong, scope: u32) -> nvmlReturn_t {
            let answer = on_device(stringify!($symbol), device, |$ctx| {
                if scope > SCOPE_SOCKET { Err(INVALID_ARGUMENT) } else { Ok(bits(&$numbers, words)) }
            });
            // SAFETY: by NVML's contract the set has this many words.
            unsafe { put_some(words, set, answer) }
        }
    )*};
}

within_scope! {
    nvmlDeviceGetCpuAffinityWithinScope = |ctx| cpus(&ctx);
    nvmlDeviceGetMemoryAffinity = |ctx| [ctx.state.socket(ctx.index) as usize];
}

getters! {
    nvmlDeviceGetNumaNodeId() -> u32 = |ctx| offered(ctx.board()?.board.numa_node);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_cpus_becomes_the_bits_of_a_set() {
        assert_eq!(listed("0-2,8\n"), [0, 1, 2, 8]);
        assert_eq!(bits(&listed("0-2,64-65,200"), 2), [7, 3]);
        assert!(listed("").is_empty());
    }
}
