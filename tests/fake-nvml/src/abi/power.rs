//! Power draw, limits, and energy.

use super::{
    Answer,
    exports::{getters, getters_of_each},
    offered,
};
use crate::state::Gpu;
use std::time::Instant;

/// Energy since the driver was loaded, in mJ.
pub(super) fn energy_mj(gpu: &Gpu) -> Answer<u64> {
    let initial = offered(gpu.power.energy_mj)?;
    Ok(initial + gpu.counters.energy.at(Instant::now()) as u64)
}

getters! {
    nvmlDeviceGetPowerUsage() -> u32 = |ctx| offered(ctx.board()?.power_mw);
    nvmlDeviceGetPowerManagementMode() -> u32 = |ctx| offered(ctx.board()?.power_limit_mw).map(|_| 1);
    nvmlDeviceGetEnforcedPowerLimit() -> u32 = |ctx| offered(ctx.board()?.power_limit_mw);
    nvmlDeviceGetPowerManagementLimit() -> u32 =
        |ctx| offered(ctx.board()?.power.requested.or(ctx.gpu.power_limit_mw));
    nvmlDeviceGetPowerManagementDefaultLimit() -> u32 = |ctx| offered(ctx.board()?.power.default);
    nvmlDeviceGetTotalEnergyConsumption() -> u64 = |ctx| energy_mj(ctx.board()?);
    nvmlDeviceGetPowerSource() -> u32 = |ctx| offered(ctx.board()?.power.source);
}

getters_of_each! {
    nvmlDeviceGetPowerManagementLimitConstraints(least, most) -> u32 = |ctx| {
        let power = &ctx.board()?.power;
        Ok([offered(power.min)?, offered(power.max)?])
    };
}
