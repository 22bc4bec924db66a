//! Simulated load: readings of a busy or idle GPU as a function of time.

use crate::state::{Gpu, Mig};

/// KiB/s over PCIe at full load: sent, received. Batches come in, gradients of one node stay on NVLink.
const PCIE_FULL: [f64; 2] = [600_000.0, 2_400_000.0];
/// Maximum power of a GPU without a limit.
const NO_LIMIT_MW: u32 = 140_000;
/// Share of NVLink's bandwidth at full load.
const NVLINK_FULL: f64 = 0.3;

/// Overwrites the changing readings of a GPU with those at time `ms`; an idle one keeps power and clocks
/// of the state file.
///
/// Readings that the state file marks as unsupported remain so.
pub fn apply_load(gpu: &mut Gpu, index: usize, busy: bool, ms: u64) {
    let phase_now = LoadPhase::of(index, busy, ms);
    let load = phase_now.load;
    set(&mut gpu.util, (load * 100.0) as u32);
    set(&mut gpu.mem_util, (load * 62.0) as u32);
    let (idle, limit) = (gpu.power_mw.unwrap_or(0), gpu.power_limit_mw.unwrap_or(NO_LIMIT_MW));
    let drawn = if busy { f64::from(limit) * (0.15 + 0.8 * load) } else { f64::from(idle) };
    set(&mut gpu.power_mw, (drawn + 900.0 * phase_now.fast) as u32);
    set(&mut gpu.temp, (31.0 + 41.0 * load + 2.0 * phase_now.slow) as u32);
    set(&mut gpu.fan, (30.0 + 45.0 * load) as u32);
    if busy {
        let clock = f64::from(gpu.sm_clock_max.unwrap_or(1_410));
        set(&mut gpu.sm_clock, ((clock * (0.93 + 0.07 * phase_now.slow)) as u32) / 15 * 15);
        gpu.mem_clock = gpu.mem_clock.and(gpu.mem_clock_max);
        set(&mut gpu.p_state, 0);
    }
    set(&mut gpu.throttle, if busy { u64::from(load > 0.97) << 2 } else { 1 });
    set(&mut gpu.pcie.tx_kib_s, (PCIE_FULL[0] * load) as u64);
    set(&mut gpu.pcie.rx_kib_s, (PCIE_FULL[1] * load) as u64);
    if let Some(nvlink) = &mut gpu.nvlink {
        let full = f64::from(nvlink.speed_mb_s) * f64::from(nvlink.active()) * 1e6 / 1_024.0;
        nvlink.tx_kib_s = (full * NVLINK_FULL * load) as u64;
        nvlink.rx_kib_s = (full * NVLINK_FULL * load * 0.98) as u64;
    }
    for (position, mig) in gpu.mig.iter_mut().enumerate() {
        apply_instance_load(mig, index * 7 + position, ms);
    }
}

/// Updates an instance, which is active if it has processes.
fn apply_instance_load(mig: &mut Mig, index: usize, ms: u64) {
    mig.util = (LoadPhase::of(index, !mig.processes.is_empty(), ms).load * 100.0) as u32;
}

/// Load of a card at one time.
struct LoadPhase {
    slow: f64,
    fast: f64,
    load: f64,
}

impl LoadPhase {
    fn of(index: usize, busy: bool, ms: u64) -> Self {
        let seconds = ms as f64 / 1_000.0;
        let phase = index as f64 * 1.7;
        let slow = wave(seconds / 41.0 + phase);
        let fast = wave(seconds / 3.1 + 2.0 * phase);
        // A training step: mostly full, with a dip while waiting for the next batch.
        Self { slow, fast, load: if busy { 0.74 + 0.17 * slow + 0.09 * fast } else { 0.0 } }
    }
}

fn set<T>(reading: &mut Option<T>, value: T) {
    if reading.is_some() {
        *reading = Some(value);
    }
}

/// From 0 to 1 and back once per unit.
fn wave(turns: f64) -> f64 {
    0.5 + 0.5 * (turns * std::f64::consts::TAU).sin()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_gpu_moves_and_stays_within_its_bounds() {
        let mut seen = std::collections::BTreeSet::new();
        for second in 0..120 {
            let mut gpu = Gpu::default();
            apply_load(&mut gpu, 3, true, second * 1_000);
            assert!(gpu.util.unwrap() <= 100 && gpu.power_mw <= gpu.power_limit_mw);
            assert!(gpu.pcie.rx_kib_s > Some(0) && gpu.nvlink.unwrap().tx_kib_s > 0);
            seen.insert(gpu.util);
        }
        assert!(seen.len() > 5);
    }

    #[test]
    fn an_idle_gpu_draws_little_and_moves_no_bytes() {
        let mut gpu = Gpu::default();
        apply_load(&mut gpu, 0, false, 5_000);
        assert_eq!((gpu.util, gpu.throttle, gpu.pcie.tx_kib_s), (Some(0), Some(1), Some(0)));
        assert!(gpu.power_mw.unwrap() < 70_000 && gpu.nvlink.unwrap().rx_kib_s == 0);
    }

    #[test]
    fn a_card_that_wakes_up_leaves_its_idle_clocks() {
        let mut gpu: Gpu = serde_json::from_str(r#"{"card": "t4"}"#).unwrap();
        assert_eq!((gpu.p_state, gpu.mem_clock), (Some(8), Some(405)));
        apply_load(&mut gpu, 0, true, 1);
        assert_eq!((gpu.p_state, gpu.mem_clock), (Some(0), Some(5_001)));
    }

    #[test]
    fn a_reading_that_the_card_lacks_stays_away() {
        let mut gpu = Gpu { temp: None, ..Gpu::default() };
        apply_load(&mut gpu, 0, true, 1);
        assert_eq!((gpu.temp, gpu.fan), (None, None));
    }

    #[test]
    fn an_instance_is_busy_if_it_has_a_process() {
        let busy = Mig { processes: vec![crate::state::Process::default()], ..Mig::default() };
        let mut gpu = Gpu { mig: vec![Mig::default(), busy], ..Gpu::default() };
        apply_load(&mut gpu, 0, true, 1);
        assert!(gpu.mig[0].util == 0 && gpu.mig[1].util > 50);
    }
}
