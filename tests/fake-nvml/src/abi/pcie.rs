//! PCIe: the link's state and its traffic.

use super::{Answer, DeviceContext, INVALID_ARGUMENT, exports::getters, offered};
use crate::state::Gpu;
use std::{
    thread,
    time::{Duration, Instant},
};

/// Speed of a lane by generation, in Mb/s.
const LANE_MB_S: [u32; 7] = [0, 2_500, 5_000, 8_000, 16_000, 32_000, 64_000];

/// Current generation, the host's maximum, the GPU's maximum.
fn generation(ctx: &DeviceContext<'_>, which: usize) -> Answer<u32> {
    Ok(offered(ctx.board()?.pcie.generation)?[which])
}

fn width(ctx: &DeviceContext<'_>, which: usize) -> Answer<u32> {
    Ok(offered(ctx.board()?.pcie.width)?[which])
}

/// KiB/s sent (0) or received (1); blocks the caller during the measurement.
fn throughput(ctx: &DeviceContext<'_>, counter: u32) -> Answer<u32> {
    let pcie = &ctx.physical_gpu()?.pcie;
    let kib_s = match counter {
        0 => pcie.tx_kib_s,
        1 => pcie.rx_kib_s,
        _ => return Err(INVALID_ARGUMENT),
    };
    let kib_s = offered(kib_s)?;
    thread::sleep(Duration::from_millis(pcie.measure_ms));
    Ok(kib_s as u32)
}

/// Bytes sent (0) or received (1) since the driver was loaded; the hardware has 32 bits for them.
pub(super) fn counted_bytes(gpu: &Gpu, way: usize) -> Answer<u32> {
    let initial = offered(gpu.pcie.counted)?[way];
    Ok((initial + gpu.counters.pcie[way].at(Instant::now()) as u64) as u32)
}

getters! {
    nvmlDeviceGetCurrPcieLinkGeneration() -> u32 = |ctx| generation(&ctx, 0);
    nvmlDeviceGetMaxPcieLinkGeneration() -> u32 = |ctx| generation(&ctx, 1);
    nvmlDeviceGetGpuMaxPcieLinkGeneration() -> u32 = |ctx| generation(&ctx, 2);
    nvmlDeviceGetCurrPcieLinkWidth() -> u32 = |ctx| width(&ctx, 0);
    nvmlDeviceGetMaxPcieLinkWidth() -> u32 = |ctx| width(&ctx, 1);
    nvmlDeviceGetPcieSpeed() -> u32 =
        |ctx| LANE_MB_S.get(generation(&ctx, 0)? as usize).copied().ok_or(INVALID_ARGUMENT);
    // The enumeration of speeds has the same numbers as generations.
    nvmlDeviceGetPcieLinkMaxSpeed() -> u32 = |ctx| generation(&ctx, 1);
    nvmlDeviceGetPcieThroughput(counter: u32) -> u32 = |ctx| throughput(&ctx, counter);
    nvmlDeviceGetPcieReplayCounter() -> u32 = |ctx| Ok(offered(ctx.board()?.pcie.replays)?[0]);
}
