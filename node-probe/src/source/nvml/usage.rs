//! GPU utilization of each process since the last query.

use super::ffi::{self, Utilization};
use super::{REPORTER, device::DeviceHandle, device_state::DeviceState, query_cache::Query};
use crate::clock;
use crate::source::plausible::{self, Quantity};
use crate::source::{GpuProcess, calls::CallTracker};
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::ProcessReadings;
use std::collections::HashMap;

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
            plausible::gpu_process(gpu_process, device_state.mem_total_bytes, REPORTER);
        });
    }
}

/// A process on the GPU without an active sample used nothing of it.
fn set_utilization(now: &mut ProcessReadings, pid: u32, latest: &Reading<HashMap<u32, Utilization>>) {
    let share = |of: fn(&Utilization) -> u32| match latest {
        Reading::Value(active) => {
            let share = active.get(&pid).map_or(0, |sample| of(sample).into());
            plausible::checked(Reading::Value(share), Quantity::Percent, REPORTER)
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
        let sample = Utilization { pid: 7, timestamp_us: 1, sm: 255, mem: 1, enc: 0, dec: 0 };
        set_utilization(&mut now, 7, &Reading::Value(HashMap::from([(7, sample)])));
        assert_eq!(now.sm_pct, Reading::Failed("NVML reported 255 %".into()));
        assert_eq!((now.mem_bw_pct, now.enc_pct), (Reading::Value(1), Reading::Value(0)));
    }
}
