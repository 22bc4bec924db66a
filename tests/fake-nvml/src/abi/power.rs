//! Power: what a board draws, what it may draw, and what it has drawn.

use super::{
    Answer,
    exports::{getters, getters_of_each},
    offered,
};
use crate::state::Gpu;
use std::time::Instant;

/// What was drawn since the driver was loaded, in mJ.
pub(super) fn energy_mj(gpu: &Gpu) -> Answer<u64> {
    let begun = offered(gpu.power.energy_mj)?;
    Ok(begun + gpu.meters.energy.at(Instant::now()) as u64)
}

getters! {
    nvmlDeviceGetPowerUsage() -> u32 = |seat| offered(seat.board()?.power_mw);
    nvmlDeviceGetPowerManagementMode() -> u32 = |seat| offered(seat.board()?.power_limit_mw).map(|_| 1);
    nvmlDeviceGetEnforcedPowerLimit() -> u32 = |seat| offered(seat.board()?.power_limit_mw);
    nvmlDeviceGetPowerManagementLimit() -> u32 =
        |seat| offered(seat.board()?.power.requested.or(seat.gpu.power_limit_mw));
    nvmlDeviceGetPowerManagementDefaultLimit() -> u32 = |seat| offered(seat.board()?.power.default);
    nvmlDeviceGetTotalEnergyConsumption() -> u64 = |seat| energy_mj(seat.board()?);
    nvmlDeviceGetPowerSource() -> u32 = |seat| offered(seat.board()?.power.source);
}

getters_of_each! {
    nvmlDeviceGetPowerManagementLimitConstraints(least, most) -> u32 = |seat| {
        let power = &seat.board()?.power;
        Ok([offered(power.min)?, offered(power.max)?])
    };
}
