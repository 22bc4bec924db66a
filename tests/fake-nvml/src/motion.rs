//! GPUs that live: what a busy or idle card reads at a moment, the same for whoever asks.

use crate::state::Gpu;

/// Overwrites the moving readings of a GPU with those of moment `ms`.
///
/// Readings that the state file says are not offered stay so.
pub fn move_on(gpu: &mut Gpu, index: usize, busy: bool, ms: u64) {
    let seconds = ms as f64 / 1_000.0;
    let phase = index as f64 * 1.7;
    let slow = wave(seconds / 41.0 + phase);
    let fast = wave(seconds / 3.1 + 2.0 * phase);
    // A training step: mostly full, with a dip while the next batch is awaited.
    let load = if busy { 0.74 + 0.17 * slow + 0.09 * fast } else { 0.0 };
    set(&mut gpu.util, (load * 100.0) as u32);
    set(&mut gpu.mem_util, (load * 62.0) as u32);
    let limit = f64::from(gpu.power_limit_mw.unwrap_or(400_000));
    set(&mut gpu.power_mw, (limit * (0.15 + 0.8 * load) + 900.0 * fast) as u32);
    set(&mut gpu.temp, (31.0 + 41.0 * load + 2.0 * slow) as u32);
    let clock = f64::from(gpu.sm_clock_max.unwrap_or(1_410));
    set(&mut gpu.sm_clock, if busy { ((clock * (0.93 + 0.07 * slow)) as u32) / 15 * 15 } else { 210 });
    set(&mut gpu.throttle, if busy { u64::from(load > 0.97) << 2 } else { 1 });
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
            move_on(&mut gpu, 3, true, second * 1_000);
            assert!(gpu.util.unwrap() <= 100 && gpu.power_mw <= gpu.power_limit_mw);
            seen.insert(gpu.util);
        }
        assert!(seen.len() > 5);
    }

    #[test]
    fn a_reading_that_the_card_lacks_stays_away() {
        let mut gpu = Gpu { temp: None, ..Gpu::default() };
        move_on(&mut gpu, 0, true, 1);
        assert_eq!(gpu.temp, None);
    }
}
