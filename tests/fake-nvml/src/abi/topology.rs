//! Topology between GPUs, and peer access to memory.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, called, exports::getters, handle, nvlink, on_device, put::put,
};
use crate::state::State;
use nvml_wrapper_sys::bindings::{nvmlDevice_t, nvmlReturn_t};

/// `nvmlGpuTopologyLevel_t`: one board; several PCIe switches; one NUMA node; across nodes.
const INTERNAL: u32 = 0;
const MULTIPLE: u32 = 20;
const NODE: u32 = 40;
const SYSTEM: u32 = 50;

/// `nvmlGpuP2PStatus_t`, and the index of NVLink.
const P2P_OK: u32 = 0;
const P2P_CHIPSET: u32 = 1;
const P2P_NOT_SUPPORTED: u32 = 5;
const BY_NVLINK: u32 = 2;
/// `nvmlBrandType_t`: data-centre GPUs, which also have peer access over PCIe.
const DATA_CENTRE: u32 = 14;

/// Topology level between two GPUs: from the file; by default pairs share a switch and halves a NUMA node.
fn level(state: &State, one: usize, other: usize) -> u32 {
    let given = state.topology.as_ref().and_then(|rows| rows.get(one)?.get(other));
    match given {
        Some(level) => *level,
        None if one == other => INTERNAL,
        None if state.socket(one) != state.socket(other) => SYSTEM,
        None if one / 2 == other / 2 => MULTIPLE,
        None => NODE,
    }
}

fn other(state: &State, device: nvmlDevice_t) -> Answer<DeviceContext<'_>> {
    let ctx = DeviceContext::find(state, device)?;
    ctx.board().map(|_| ctx)
}

fn nearest(ctx: &DeviceContext<'_>, wanted: u32) -> Answer<Vec<nvmlDevice_t>> {
    ctx.board()?;
    let others = (0..ctx.state.gpus.len()).filter(|other| *other != ctx.index);
    let near = others.filter(|other| level(ctx.state, ctx.index, *other) == wanted);
    Ok(near.map(|other| handle(other, None)).collect())
}

/// Whether one GPU can access the other's memory: read, write, NVLink, atomics, PCIe.
fn p2p(one: &DeviceContext<'_>, other: &DeviceContext<'_>, kind: u32) -> Answer<u32> {
    let data_centre = [one, other].iter().all(|ctx| ctx.gpu.board.brand == DATA_CENTRE);
    match kind {
        _ if one.gpu.mig_mode() || other.gpu.mig_mode() => Ok(P2P_NOT_SUPPORTED),
        0..=3 if nvlink::joined(one, other) => Ok(P2P_OK),
        BY_NVLINK => Ok(P2P_NOT_SUPPORTED),
        0 | 1 | 3 | 4 => Ok(if data_centre { P2P_OK } else { P2P_CHIPSET }),
        _ => Err(INVALID_ARGUMENT),
    }
}

getters! {
    nvmlDeviceGetTopologyCommonAncestor(device2: nvmlDevice_t) -> u32 = |ctx| {
        ctx.board()?;
        Ok(level(ctx.state, ctx.index, other(ctx.state, device2)?.index))
    };
    nvmlDeviceGetP2PStatus(device2: nvmlDevice_t, kind: u32) -> u32 = |ctx| {
        ctx.board()?;
        p2p(&ctx, &other(ctx.state, device2)?, kind)
    };
    nvmlDeviceOnSameBoard(device2: nvmlDevice_t) -> i32 = |ctx| {
        Ok(i32::from(ctx.index == other(ctx.state, device2)?.index))
    };
}

/// Fills a list of handles; with a count of zero, it writes their number.
///
/// # Safety
/// `count` is null or valid; `devices` is null or has `*count` elements.
unsafe fn put_handles(
    count: *mut u32,
    devices: *mut nvmlDevice_t,
    answer: Answer<Vec<nvmlDevice_t>>,
) -> nvmlReturn_t {
    // SAFETY: by the caller's word.
    let room = if count.is_null() { 0 } else { unsafe { *count } };
    match answer {
        Ok(list) if room > 0 && !devices.is_null() => {
            for (at, device) in list.into_iter().take(room as usize).enumerate() {
                // SAFETY: `at` is less than `*count`.
                unsafe { devices.add(at).write(device) };
            }
            super::SUCCESS
        }
        // SAFETY: by the caller's word.
        answer => unsafe { put(count, answer.map(|list| list.len() as u32)) },
    }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetTopologyNearestGpus(
    device: nvmlDevice_t,
    level: u32,
    count: *mut u32,
    devices: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetTopologyNearestGpus", device, |ctx| nearest(&ctx, level));
    // SAFETY: by NVML's contract the list has as many elements as `count` says.
    unsafe { put_handles(count, devices, answer) }
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlSystemGetTopologyGpuSet(
    cpu: u32,
    count: *mut u32,
    devices: *mut nvmlDevice_t,
) -> nvmlReturn_t {
    let answer = called("nvmlSystemGetTopologyGpuSet", |state| {
        let contexts = (0..state.gpus.len()).map(|index| DeviceContext::find(state, handle(index, None)));
        let contexts: Vec<_> = contexts.collect::<Answer<_>>()?;
        let near = contexts.iter().filter(|ctx| super::affinity::cpus(ctx).contains(&(cpu as usize)));
        Ok(near.map(|ctx| handle(ctx.index, None)).collect())
    });
    // SAFETY: by NVML's contract the list has as many elements as `count` says.
    unsafe { put_handles(count, devices, answer) }
}
