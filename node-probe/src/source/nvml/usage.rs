//! GPU utilization of each process since the last query.

use super::ffi::{self, Utilization};
use super::plausible::{self, Quantity};
use super::{device::DeviceHandle, device_state::DeviceState, query_cache::Query};
use crate::clock;
use crate::source::{GpuProcess, calls::CallTracker};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::ProcessReadings;
use std::collections::HashMap;

/// Time span of the first query in µs, and of the first one after the clock was set.
const INITIAL_WINDOW_US: u64 = 2_000_000;
/// Maximum clock difference of the driver in µs, beyond which a timestamp counts as in the future.
const SLACK_US: u64 = 1_000_000;

/// Timestamps of the samples already used, so that each is used once.
///
/// NVML uses the wall clock, which may be set. A timestamp in the future must not become the start
/// of the next query, because nothing would be newer until then.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SampleCursor {
    /// Timestamp of the newest sample not in the future, in µs since 1970; 0 before the first.
    until_us: u64,
    /// Timestamp of the newest sample in the future.
    ahead_us: u64,
}

impl SampleCursor {
    /// Returns the start time of the next query, at `now_us` of the wall clock.
    fn since_us(&mut self, now_us: u64) -> u64 {
        if self.until_us > now_us.saturating_add(SLACK_US) {
            // The clock was set back: samples used so far are now in the future.
            self.ahead_us = self.ahead_us.max(self.until_us);
            self.until_us = 0;
        }
        if self.until_us == 0 {
            self.until_us = now_us.saturating_sub(INITIAL_WINDOW_US);
        }
        self.until_us
    }

    /// Selects the latest new sample per process. One in the future counts only if the process has
    /// no other: its timestamp is wrong, its values are not.
    fn latest(&mut self, samples: &[Utilization], now_us: u64) -> HashMap<u32, Utilization> {
        let cursor = *self;
        let is_ahead = |sample: &Utilization| sample.timestamp_us > now_us.saturating_add(SLACK_US);
        let mut latest: HashMap<u32, Utilization> = HashMap::new();
        for sample in samples {
            let newest = if is_ahead(sample) { &mut self.ahead_us } else { &mut self.until_us };
            *newest = sample.timestamp_us.max(*newest);
            let is_new =
                sample.timestamp_us > if is_ahead(sample) { cursor.ahead_us } else { cursor.until_us };
            let is_later = latest.get(&sample.pid).is_none_or(|known| {
                (!is_ahead(sample), sample.timestamp_us) > (!is_ahead(known), known.timestamp_us)
            });
            if is_new && is_later {
                latest.insert(sample.pid, *sample);
            }
        }
        latest
    }
}

/// Fills in the utilization of each process. Not supported under MIG.
pub fn fill<'nvml>(
    handles: &[DeviceHandle<'nvml>],
    device_states: &mut [DeviceState<'nvml>],
    gpu_processes: &mut [GpuProcess],
    calls: &CallTracker,
) {
    for (handle, device_state) in handles.iter().zip(device_states) {
        let mut here =
            gpu_processes.iter_mut().filter(|gpu_process| gpu_process.gpu == handle.uuid).peekable();
        let Ok(device) = &handle.device else { continue };
        if here.peek().is_none() {
            continue;
        }
        calls.begin_gpu_call(handle.index);
        device_state.queries.begin(None);
        let now_us = clock::wall_ns() / 1_000;
        let since_us = device_state.usage.since_us(now_us);
        let samples =
            device_state.queries.query(Query::Processes, || ffi::process_utilization(device, since_us));
        let latest = samples.map(|samples| device_state.usage.latest(&samples, now_us));
        here.for_each(|gpu_process| {
            set_utilization(&mut gpu_process.now, gpu_process.pid, &latest);
            plausible::gpu_process(gpu_process, device_state.mem_total_bytes);
        });
    }
}

/// A process on the GPU without an active sample used nothing of it.
fn set_utilization(now: &mut ProcessReadings, pid: u32, latest: &Reading<HashMap<u32, Utilization>>) {
    let share = |of: fn(&Utilization) -> u32| match latest {
        Reading::Value(active) => {
            let share = active.get(&pid).map_or(0, |sample| of(sample).into());
            plausible::checked(Reading::Value(share), Quantity::Percent)
        }
        Reading::Unsupported => Reading::Unsupported,
        Reading::Failed(why) => Reading::Failed(why.clone()),
        Reading::NotYet => Reading::NotYet,
    };
    now.sm_pct = share(|sample| sample.sm);
    now.mem_bw_pct = share(|sample| sample.mem);
    now.enc_pct = share(|sample| sample.enc);
    now.dec_pct = share(|sample| sample.dec);
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000;
    const NOW: u64 = 1_700_000_000 * SECOND;

    fn sample(pid: u32, timestamp_us: u64, sm: u32) -> Utilization {
        Utilization { pid, timestamp_us, sm, mem: 1, enc: 0, dec: 0 }
    }

    /// Returns the reported utilization of process 1 if the driver has `samples`.
    fn query(cursor: &mut SampleCursor, now_us: u64, samples: &[Utilization]) -> Option<u32> {
        let since = cursor.since_us(now_us);
        let reported_value: Vec<_> =
            samples.iter().copied().filter(|sample| sample.timestamp_us > since).collect();
        cursor.latest(&reported_value, now_us).get(&1).map(|sample| sample.sm)
    }

    #[test]
    fn each_sample_counts_once_and_the_latest_wins() {
        let mut cursor = SampleCursor::default();
        let samples = [sample(1, NOW - 3 * SECOND, 99), sample(1, NOW - 100, 30), sample(1, NOW - 200, 20)];
        assert_eq!(query(&mut cursor, NOW, &samples), Some(30));
        assert_eq!(query(&mut cursor, NOW + SECOND, &samples), None);
    }

    #[test]
    fn a_sample_in_the_future_hides_no_later_one() {
        let mut cursor = SampleCursor::default();
        let ahead = sample(1, NOW + 3_600 * SECOND, 40);
        assert_eq!(query(&mut cursor, NOW, &[ahead]), Some(40));
        for second in 1..60 {
            let now = NOW + second * SECOND;
            assert_eq!(query(&mut cursor, now, &[ahead, sample(1, now, 50)]), Some(50), "{second}");
        }
        // By itself it has been used already.
        assert_eq!(query(&mut cursor, NOW + 60 * SECOND, &[ahead]), None);
    }

    #[test]
    fn utilization_continues_when_the_clock_is_set() {
        for step in [-40_i64, 40, -3_600, 3_600] {
            let mut cursor = SampleCursor::default();
            let mut samples = Vec::new();
            for second in 0..20_u64 {
                let stepped = if second < 6 { 0 } else { step };
                let now = (NOW + second * SECOND).saturating_add_signed(stepped * SECOND as i64);
                samples.push(sample(1, now, 40 + second as u32));
                assert_eq!(query(&mut cursor, now, &samples), Some(40 + second as u32), "{step} {second}");
            }
            // The process becomes idle: samples from before the clock was set do not reappear.
            let now = (NOW + 21 * SECOND).saturating_add_signed(step * SECOND as i64);
            assert_eq!(query(&mut cursor, now, &samples), None, "{step}");
        }
    }

    #[test]
    fn inactive_processes_use_nothing_and_unknown_usage_is_not_zero() {
        let mut now = ProcessReadings::default();
        set_utilization(&mut now, 7, &Reading::Value(HashMap::new()));
        assert_eq!((&now.sm_pct, &now.dec_pct), (&Reading::Value(0), &Reading::Value(0)));
        set_utilization(&mut now, 7, &Reading::Unsupported);
        assert_eq!(now.sm_pct, Reading::Unsupported);
        set_utilization(&mut now, 7, &Reading::Failed("insufficient permissions".into()));
        assert_eq!(now.mem_bw_pct, Reading::Failed("insufficient permissions".into()));
    }

    #[test]
    fn an_implausible_value_fails_without_affecting_others() {
        let mut now = ProcessReadings::default();
        set_utilization(&mut now, 7, &Reading::Value(HashMap::from([(7, sample(7, NOW, 255))])));
        assert_eq!(now.sm_pct, Reading::Failed("NVML reported 255 %".into()));
        assert_eq!((now.mem_bw_pct, now.enc_pct), (Reading::Value(1), Reading::Value(0)));
    }
}
