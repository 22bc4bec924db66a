//! NVLink: each link by its number, its remote device, and its errors.

use super::{
    Answer, DeviceContext, INVALID_ARGUMENT, NOT_SUPPORTED,
    exports::{getters, getters_by_version},
    identity,
    put::chars,
};
use crate::state::{Gpu, NvLink, Remote};
use nvml_wrapper_sys::bindings::{
    nvmlNvLinkInfo_v2_t, nvmlNvlinkFirmwareInfo_t, nvmlNvlinkFirmwareVersion_t, nvmlPciInfo_t,
};
use std::time::Instant;

/// Maximum number of links that a call accepts.
const MAX_LINKS: u32 = 18;

/// The card's NVLink.
pub(super) fn nvlink(gpu: &Gpu) -> Answer<&NvLink> {
    gpu.nvlink.as_ref().ok_or(NOT_SUPPORTED)
}

/// The card's NVLink, if it has a link of this number.
pub(super) fn link(gpu: &Gpu, link: u32) -> Answer<&NvLink> {
    let nvlink = nvlink(gpu)?;
    match link {
        _ if link >= MAX_LINKS => Err(INVALID_ARGUMENT),
        _ if link >= nvlink.links => Err(NOT_SUPPORTED),
        _ => Ok(nvlink),
    }
}

/// Returns the link, if it is up.
pub(super) fn link_up(gpu: &Gpu, number: u32) -> Answer<&NvLink> {
    let nvlink = link(gpu, number)?;
    if nvlink.up(number) { Ok(nvlink) } else { Err(NOT_SUPPORTED) }
}

/// KiB sent (0) or received (1) over one active link since the driver was loaded.
pub(super) fn counted_kib(gpu: &Gpu, way: usize) -> Answer<u64> {
    let nvlink = nvlink(gpu)?;
    let initial = nvlink.counted_kib[way] / u64::from(nvlink.active().max(1));
    Ok(initial + gpu.counters.nvlink[way].at(Instant::now()) as u64)
}

/// An error counter of a link, as `nvmlNvLinkErrorCounter_t` numbers them.
pub(super) fn errors(nvlink: &NvLink, link: u32, kind: usize) -> Answer<u64> {
    let counters = nvlink.errors.get(link as usize).copied().unwrap_or_default();
    counters.get(kind).copied().ok_or(INVALID_ARGUMENT)
}

/// The GPU at the remote end of a link: links are assigned to the others in order.
fn peer(ctx: &DeviceContext<'_>, link: u32, nvlink: &NvLink) -> Option<usize> {
    let others = ctx.state.gpus.len().checked_sub(1).filter(|others| *others > 0)?;
    let step = link as usize * others / nvlink.links.max(1) as usize;
    Some((ctx.index + 1 + step) % ctx.state.gpus.len())
}

/// Returns whether a link of one GPU leads to the other, or both lead to a switch.
pub(super) fn joined(one: &DeviceContext<'_>, other: &DeviceContext<'_>) -> bool {
    let (Some(mine), Some(theirs)) = (&one.gpu.nvlink, &other.gpu.nvlink) else { return false };
    match mine.remote {
        Remote::Switch => theirs.remote == Remote::Switch && mine.active() > 0 && theirs.active() > 0,
        Remote::Gpu => {
            (0..mine.links).any(|link| mine.up(link) && peer(one, link, mine) == Some(other.index))
        }
        Remote::Npu | Remote::Unknown => false,
    }
}

/// The GPU's NVLink, if its remote end can be queried: for a link that is down, it is unknown.
fn end_of<'a>(ctx: &DeviceContext<'a>, number: u32) -> Answer<&'a NvLink> {
    let nvlink = link(ctx.board()?, number)?;
    if nvlink.remote == Remote::Unknown { Ok(nvlink) } else { link_up(ctx.gpu, number) }
}

fn remote(ctx: &DeviceContext<'_>, number: u32) -> Answer<nvmlPciInfo_t> {
    let nvlink = end_of(ctx, number)?;
    match nvlink.remote {
        Remote::Gpu => {
            let peer = peer(ctx, number, nvlink).ok_or(NOT_SUPPORTED)?;
            Ok(identity::pci(peer, &ctx.state.gpus[peer]))
        }
        // Links are distributed over a few switches, which are on a separate bus.
        Remote::Switch => Ok(bridge(0xc4 + number % 4, 0x22a3_10de)),
        Remote::Npu => Ok(bridge(4, 0x04ea_1014)),
        Remote::Unknown => Ok(nvmlPciInfo_t { busId: chars(""), ..bridge(0, 0) }),
    }
}

fn bridge(bus: u32, pci_id: u32) -> nvmlPciInfo_t {
    let id = format!("00000000:{bus:02X}:00.0");
    nvmlPciInfo_t {
        busIdLegacy: chars(&id[4..]),
        domain: 0,
        bus,
        device: 0,
        pciDeviceId: pci_id,
        pciSubSystemId: 0,
        busId: chars(&id),
    }
}

/// Peer access, system memory access, atomics of both, SLI bridge, valid.
fn capability(ctx: &DeviceContext<'_>, number: u32, capability: u32) -> Answer<u32> {
    link_up(ctx.board()?, number)?;
    match capability {
        0..=3 | 5 => Ok(1),
        4 => Ok(0),
        _ => Err(INVALID_ARGUMENT),
    }
}

getters! {
    nvmlDeviceGetNvLinkState(number: u32) -> u32 =
        |ctx| Ok(link(ctx.board()?, number)?.up(number).into());
    nvmlDeviceGetNvLinkVersion(number: u32) -> u32 = |ctx| Ok(link(ctx.board()?, number)?.version);
    nvmlDeviceGetNvLinkCapability(number: u32, kind: u32) -> u32 = |ctx| capability(&ctx, number, kind);
    nvmlDeviceGetNvLinkRemotePciInfo(number: u32) -> nvmlPciInfo_t = |ctx| remote(&ctx, number);
    nvmlDeviceGetNvLinkRemotePciInfo_v2(number: u32) -> nvmlPciInfo_t = |ctx| remote(&ctx, number);
    nvmlDeviceGetNvLinkRemoteDeviceType(number: u32) -> u32 =
        |ctx| Ok(match end_of(&ctx, number)?.remote {
            Remote::Gpu => 0,
            Remote::Npu => 1,
            Remote::Switch => 2,
            Remote::Unknown => 255,
        });
    nvmlDeviceGetNvLinkErrorCounter(number: u32, kind: u32) -> u64 =
        |ctx| errors(link(ctx.board()?, number)?, number, kind as usize);
}

getters_by_version! {
    nvmlDeviceGetNvLinkInfo(nvmlNvLinkInfo_v2_t, 2) = |ctx, asked| {
        nvlink(ctx.board()?)?;
        let none = nvmlNvlinkFirmwareVersion_t { ucodeType: 0, major: 0, minor: 0, subMinor: 0 };
        let firmware = nvmlNvlinkFirmwareInfo_t { firmwareVersion: [none; 100], numValidEntries: 0 };
        Ok(nvmlNvLinkInfo_v2_t { isNvleEnabled: 0, firmwareInfo: firmware, ..asked })
    };
}
