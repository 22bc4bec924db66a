//! How much of a GPU each of its processes uses, since the last time it was asked.

use super::{asker::Ask, device::Seat, past::Past};
use crate::clock;
use crate::source::{Occupant, calls::Calls};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::ProcessReadings;
use nvml_wrapper::Device;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::struct_wrappers::device::ProcessUtilizationSample;
use std::collections::HashMap;

/// How far back the first look goes, in µs.
const FIRST_LOOK_US: u64 = 2_000_000;

/// Fills in what each occupant uses. Under MIG, NVML does not say.
pub fn fill<'nvml>(
    seats: &[Seat<'nvml>],
    pasts: &mut [Past<'nvml>],
    occupants: &mut [Occupant],
    calls: &Calls,
) {
    for (seat, past) in seats.iter().zip(pasts) {
        let mut here = occupants.iter_mut().filter(|occupant| occupant.gpu == seat.uuid).peekable();
        let Ok(device) = &seat.device else { continue };
        if here.peek().is_none() {
            continue;
        }
        calls.enter_gpu(seat.index);
        past.asker.begin(None);
        let since = past.usage_seen_us;
        let told = past.asker.ask(Ask::Processes, || samples(device, since));
        let told = told.map(|samples| {
            let newest = samples.iter().map(|sample| sample.timestamp).max();
            past.usage_seen_us = newest.unwrap_or(0).max(since);
            latest(samples, since)
        });
        here.for_each(|occupant| enter(&mut occupant.now, occupant.pid, &told));
    }
}

/// Of several samples of a process the latest, without those that are stale or impossible.
fn latest(samples: Vec<ProcessUtilizationSample>, since: u64) -> HashMap<u32, ProcessUtilizationSample> {
    let mut latest: HashMap<u32, ProcessUtilizationSample> = HashMap::new();
    for sample in samples {
        let shares = [sample.sm_util, sample.mem_util, sample.enc_util, sample.dec_util];
        let sane = sample.timestamp > since && shares.iter().all(|share| *share <= 100);
        let older = latest.get(&sample.pid).is_none_or(|known| known.timestamp < sample.timestamp);
        if sane && older {
            latest.insert(sample.pid, sample);
        }
    }
    latest
}

fn samples(device: &Device<'_>, since: u64) -> Result<Vec<ProcessUtilizationSample>, NvmlError> {
    let since = match since {
        0 => (clock::wall_ns() / 1_000).saturating_sub(FIRST_LOOK_US),
        since => since,
    };
    let ask = || device.process_utilization_stats(since);
    // The list may grow between the wrapper's two calls, of which the first asks how long it is.
    let result = match ask() {
        Err(NvmlError::InsufficientSize(_)) => ask(),
        result => result,
    };
    match result {
        // So NVML says that nobody was active.
        Err(NvmlError::NotFound) => Ok(Vec::new()),
        result => result,
    }
}

/// Whoever is on the GPU and not among the active ones used nothing of it.
fn enter(now: &mut ProcessReadings, pid: u32, told: &Reading<HashMap<u32, ProcessUtilizationSample>>) {
    let share = |of: fn(&ProcessUtilizationSample) -> u32| match told {
        Reading::Value(active) => Reading::Value(active.get(&pid).map_or(0, |sample| of(sample).into())),
        Reading::Unsupported => Reading::Unsupported,
        Reading::Failed(why) => Reading::Failed(why.clone()),
        Reading::NotYet => Reading::NotYet,
    };
    now.sm_pct = share(|sample| sample.sm_util);
    now.mem_bw_pct = share(|sample| sample.mem_util);
    now.enc_pct = share(|sample| sample.enc_util);
    now.dec_pct = share(|sample| sample.dec_util);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(pid: u32, timestamp: u64, sm_util: u32) -> ProcessUtilizationSample {
        ProcessUtilizationSample { pid, timestamp, sm_util, mem_util: 1, enc_util: 0, dec_util: 0 }
    }

    #[test]
    fn stale_and_impossible_samples_are_left_out_and_the_latest_wins() {
        let samples = vec![
            sample(1, 100, 10),
            sample(1, 300, 30),
            sample(1, 200, 20),
            sample(2, 50, 99),
            sample(3, 400, 4_000_000_000),
        ];
        let latest = latest(samples, 50);
        assert_eq!(latest.get(&1).map(|sample| sample.sm_util), Some(30));
        assert_eq!(latest.len(), 1);
    }

    #[test]
    fn who_is_not_active_uses_nothing_and_who_cannot_be_told_is_not_zero() {
        let mut now = ProcessReadings::default();
        enter(&mut now, 7, &Reading::Value(HashMap::new()));
        assert_eq!((&now.sm_pct, &now.dec_pct), (&Reading::Value(0), &Reading::Value(0)));
        enter(&mut now, 7, &Reading::Unsupported);
        assert_eq!(now.sm_pct, Reading::Unsupported);
        enter(&mut now, 7, &Reading::Failed("insufficient permissions".into()));
        assert_eq!(now.mem_bw_pct, Reading::Failed("insufficient permissions".into()));
    }
}
