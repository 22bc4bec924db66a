//! Identity of a device: names, numbers and versions that do not change while it runs.

use super::{
    DeviceContext, INVALID_ARGUMENT, NOT_SUPPORTED,
    exports::{getters, getters_by_version, getters_of_each, getters_of_text},
    offered, on_device,
    put::{chars, put_text},
};
use crate::state::Gpu;
use crate::state::identity::{bus, gpu_uuid, mig_uuid, serial};
use nvml_wrapper_sys::bindings::{
    nvmlDevice_t, nvmlPciInfo_t, nvmlPciInfoExt_v1_t, nvmlPlatformInfo_v2_t, nvmlReturn_t,
};
use std::ffi::c_char;

/// `NVML_GSP_FIRMWARE_VERSION_BUF_SIZE`: the call does not pass the length of its buffer.
const GSP_LENGTH: u32 = 64;

/// `00000000:07:00.0`, as NVML writes it.
pub(super) fn bus_id(index: usize, gpu: &Gpu) -> String {
    format!("{:08X}:{:02X}:00.0", gpu.domain, bus(index, gpu))
}

/// `10de:20b2` as NVML has it, with the vendor in the lower half.
fn pci_id(text: &str) -> u32 {
    let half = |text: &str| u32::from_str_radix(text, 16).unwrap_or(0);
    text.split_once(':').map_or(0, |(vendor, device)| half(device) << 16 | half(vendor))
}

/// Returns the PCI address and ids of a GPU, also of the GPU at the other end of a link.
pub(super) fn pci(index: usize, gpu: &Gpu) -> nvmlPciInfo_t {
    let id = bus_id(index, gpu);
    nvmlPciInfo_t {
        busIdLegacy: chars(&id[4..]),
        domain: gpu.domain,
        bus: bus(index, gpu),
        device: 0,
        pciDeviceId: pci_id(&gpu.board.pci_device),
        pciSubSystemId: pci_id(&gpu.board.pci_subsystem),
        busId: chars(&id),
    }
}

fn module(ctx: &DeviceContext<'_>) -> Option<u32> {
    ctx.gpu.board.module.or(Some(ctx.index as u32 + 1))
}

getters_of_text! {
    nvmlDeviceGetName() = |ctx| Ok(match ctx.mig {
        Some((_, mig)) => mig.full_name(ctx.gpu),
        None => ctx.gpu.name.clone(),
    });
    nvmlDeviceGetUUID() = |ctx| Ok(match ctx.mig {
        Some((position, mig)) => mig_uuid(ctx.index, position, mig),
        None => gpu_uuid(ctx.index, ctx.gpu),
    });
    nvmlDeviceGetSerial() = |ctx| offered(serial(ctx.index, ctx.gpu));
    nvmlDeviceGetVbiosVersion() = |ctx| offered(ctx.gpu.board.vbios.clone());
    nvmlDeviceGetBoardPartNumber() = |ctx| offered(ctx.gpu.board.part_number.clone());
    nvmlDeviceGetInforomImageVersion() = |ctx| offered(ctx.board()?.board.inforom_image.clone());
    nvmlDeviceGetInforomVersion(object: u32) = |ctx| {
        let versions = &ctx.board()?.board.inforom;
        versions.get(object as usize).ok_or(INVALID_ARGUMENT)?.clone().ok_or(NOT_SUPPORTED)
    };
}

getters! {
    nvmlDeviceGetIndex() -> u32 = |ctx| Ok(ctx.mig.map_or(ctx.index, |(position, _)| position) as u32);
    nvmlDeviceGetMinorNumber() -> u32 = |ctx| Ok(ctx.board()?.minor.unwrap_or(ctx.index as u32));
    nvmlDeviceGetBoardId() -> u32 = |ctx| Ok(bus(ctx.index, ctx.board()?) << 8);
    nvmlDeviceGetMultiGpuBoard() -> u32 = |ctx| ctx.board().map(|_| 0);
    nvmlDeviceGetModuleId() -> u32 = |ctx| offered(module(&ctx));
    nvmlDeviceGetPciInfo() -> nvmlPciInfo_t = |ctx| Ok(pci(ctx.index, ctx.gpu));
    nvmlDeviceGetPciInfo_v2() -> nvmlPciInfo_t = |ctx| Ok(pci(ctx.index, ctx.gpu));
    nvmlDeviceGetPciInfo_v3() -> nvmlPciInfo_t = |ctx| Ok(pci(ctx.index, ctx.gpu));
    nvmlDeviceGetBrand() -> u32 = |ctx| Ok(ctx.gpu.board.brand);
    nvmlDeviceGetArchitecture() -> u32 = |ctx| Ok(ctx.gpu.board.architecture);
    nvmlDeviceGetNumGpuCores() -> u32 = |ctx| offered(ctx.board()?.board.cores);
    nvmlDeviceGetBusType() -> u32 = |ctx| Ok(if ctx.gpu.mem_total_mib.is_some() { 2 } else { 3 });
    nvmlDeviceGetIrqNum() -> u32 = |ctx| Ok(bus(ctx.index, ctx.board()?) + 100);
}

getters_of_each! {
    nvmlDeviceGetCudaComputeCapability(major, minor) -> i32 =
        |ctx| Ok(ctx.gpu.board.compute_capability.map(|number| number as i32));
}

getters_by_version! {
    nvmlDeviceGetPciInfoExt(nvmlPciInfoExt_v1_t, 1) = |ctx, asked| {
        let pci = pci(ctx.index, ctx.gpu);
        Ok(nvmlPciInfoExt_v1_t {
            domain: pci.domain,
            bus: pci.bus,
            device: 0,
            pciDeviceId: pci.pciDeviceId,
            pciSubSystemId: pci.pciSubSystemId,
            // Display controller, 3D: a GPU without display outputs.
            baseClass: 0x03,
            subClass: 0x02,
            busId: pci.busId,
            ..asked
        })
    };
    // Only racks report the position of a GPU; a server reports its module.
    nvmlDeviceGetPlatformInfo(nvmlPlatformInfo_v2_t, 2) = |ctx, asked| {
        ctx.board()?.nvlink.as_ref().ok_or(NOT_SUPPORTED)?;
        Ok(nvmlPlatformInfo_v2_t {
            ibGuid: [0; 16],
            chassisSerialNumber: [0; 16],
            slotNumber: 0,
            trayIndex: 0,
            hostId: 1,
            peerType: 1,
            moduleId: offered(module(&ctx))? as u8,
            ..asked
        })
    };
}

#[unsafe(no_mangle)]
unsafe extern "C" fn nvmlDeviceGetGspFirmwareVersion(device: nvmlDevice_t, out: *mut c_char) -> nvmlReturn_t {
    let answer = on_device("nvmlDeviceGetGspFirmwareVersion", device, |ctx| {
        offered(ctx.gpu.board.gsp.or(Some(ctx.state.driver.clone())))
    });
    // SAFETY: by NVML's contract the buffer is null or has this many bytes.
    unsafe { put_text(out, GSP_LENGTH, answer) }
}

getters_of_each! {
    nvmlDeviceGetGspFirmwareMode(enabled, by_default) -> u32 = |ctx| {
        let on = u32::from(ctx.gpu.board.gsp.or(Some(String::new())).is_some());
        Ok([on, on])
    };
}
