//! Process lists and per-process utilisation, including NVML's protocol and driver errors.

use crate::machine::{Machine, raw, versioned, zeros};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::{nvmlProcessUtilizationInfo_v1_t, nvmlProcessesUtilizationInfo_v1_t};
use serde_json::json;

/// More entries than any list has here.
const ROOM: usize = 8;

/// The bytes that a driver writes for two entries into a buffer of eight, and the count.
fn written(machine: &Machine) -> (u32, Vec<u8>) {
    const POISON: u8 = 0xa5;
    let call =
        machine.lib().nvmlDeviceGetComputeRunningProcesses_v3.as_ref().expect("the driver has this call");
    let mut buffer = vec![0_u64; ROOM * 4];
    let mut count = ROOM as u32;
    #[expect(unsafe_code, reason = "the plain bytes are what is tested")]
    // SAFETY: room for eight entries of 32 bytes, the longest there are.
    let bytes = unsafe {
        buffer.as_mut_ptr().cast::<u8>().write_bytes(POISON, ROOM * 32);
        assert_eq!(call(raw(&machine.gpu(0)), &raw mut count, buffer.as_mut_ptr().cast()), 0);
        std::slice::from_raw_parts(buffer.as_ptr().cast::<u8>(), ROOM * 32).to_vec()
    };
    let end = bytes.iter().rposition(|byte| *byte != POISON).map_or(0, |last| last + 1);
    (count, bytes[..end].to_vec())
}

#[test]
fn entries_are_as_long_as_the_driver_writes_them() {
    for stride in [16, 24, 32] {
        let machine =
            Machine::new(&json!({"v3_stride": stride, "gpus": [{"processes": [{"pid": 71}, {"pid": 72}]}]}));
        let (count, bytes) = written(&machine);
        assert_eq!((count, bytes.len()), (2, 2 * stride), "stride {stride}");
        assert_eq!((bytes[0], bytes[stride]), (71, 72), "stride {stride}");
    }
}

#[test]
fn lists_are_by_kind_and_report_the_required_size() {
    let processes =
        json!([{"pid": 1, "mem_mib": 3}, {"pid": 2, "kind": "G"}, {"pid": 3, "kind": "CM", "mem_mib": null}]);
    let machine = Machine::new(&json!({"gpus": [{"processes": processes}, {}]}));
    let gpu = machine.gpu(0);
    let pids = |list: Vec<nvml_wrapper::struct_wrappers::device::ProcessInfo>| {
        list.iter().map(|info| info.pid).collect::<Vec<_>>()
    };
    assert_eq!(pids(gpu.running_compute_processes().unwrap()), [1, 3]);
    assert_eq!(pids(gpu.running_graphics_processes().unwrap()), [2]);
    assert_eq!(pids(gpu.mps_running_compute_processes().unwrap()), [3]);
    assert_eq!(gpu.running_compute_processes_count().unwrap(), 2);
    assert!(machine.gpu(1).running_compute_processes().unwrap().is_empty());
}

#[test]
fn utilisation_is_sampled_for_active_processes() {
    let processes = json!([{"pid": 1}, {"pid": 2}, {"pid": 3, "sm": null, "mem": null}, {"pid": 4, "sm": 250, "enc": 9, "age_ms": 60_000}]);
    let machine = Machine::new(&json!({"gpus": [{"util": 80, "mem_util": 40, "processes": processes}, {}]}));
    let gpu = machine.gpu(0);
    let all = gpu.process_utilization_stats(0).unwrap();
    let found: Vec<_> = all.iter().map(|one| (one.pid, one.sm_util, one.mem_util, one.enc_util)).collect();
    assert_eq!(found, [(1, 20, 10, 0), (2, 20, 10, 0), (4, 250, 10, 9)], "equal shares by default");
    let oldest = all.iter().map(|one| one.timestamp).min().unwrap();
    assert_eq!(gpu.process_utilization_stats(oldest).unwrap().len(), 2, "only what is newer");
    let newest = all.iter().map(|one| one.timestamp).max().unwrap() + 10_000_000;
    assert!(matches!(gpu.process_utilization_stats(newest), Err(NvmlError::NotFound)));
    assert!(
        matches!(machine.gpu(1).process_utilization_stats(0), Err(NvmlError::NotFound)),
        "no process is listed"
    );
}

#[test]
fn the_newer_call_reports_more_engines_and_the_required_size() {
    let machine =
        Machine::new(&json!({"gpus": [{"util": 80, "processes": [{"pid": 1, "jpg": 5, "ofa": 6}]}, {}]}));
    let call = &machine.lib().nvmlDeviceGetProcessesUtilizationInfo;
    let mut room: [nvmlProcessUtilizationInfo_v1_t; 4] = zeros();
    let ask = |gpu, count, buffer| {
        let initial = nvmlProcessesUtilizationInfo_v1_t {
            processSamplesCount: count,
            procUtilArray: buffer,
            ..zeros()
        };
        versioned(&machine.gpu(gpu), call, 1, initial)
            .map(|done| (done.processSamplesCount, done.lastSeenTimeStamp))
    };
    assert_eq!(ask(0, 0, std::ptr::null_mut()), Err(7));
    assert_eq!(ask(1, 4, room.as_mut_ptr()), Err(6));
    let (count, seen) = ask(0, 4, room.as_mut_ptr()).unwrap();
    assert_eq!((count, room[0].timeStamp), (1, seen));
    assert_eq!((room[0].pid, room[0].smUtil, room[0].jpgUtil, room[0].ofaUtil), (1, 80, 5, 6));
}

#[test]
fn accounting_remembers_if_root_has_switched_it_on() {
    let accounting = json!({"on": true, "ended": [{"pid": 40, "util": 33, "most_mib": 7, "time_ms": 1_500}]});
    let machine = Machine::new(
        &json!({"gpus": [{"util": 60, "accounting": accounting, "processes": [{"pid": 50, "mem_mib": 9}]}, {}]}),
    );
    let gpu = machine.gpu(0);
    assert!(gpu.is_accounting_enabled().unwrap() && !machine.gpu(1).is_accounting_enabled().unwrap());
    assert_eq!(
        (gpu.accounting_pids().unwrap(), gpu.accounting_buffer_size().unwrap()),
        (vec![40, 50], 4_000)
    );
    let (ended, running) = (gpu.accounting_stats_for(40).unwrap(), gpu.accounting_stats_for(50).unwrap());
    assert_eq!(
        (ended.gpu_utilization, ended.max_memory_usage, ended.time, ended.is_running),
        (Some(33), Some(7 << 20), 1_500, false)
    );
    assert_eq!((running.gpu_utilization, running.time, running.is_running), (Some(60), 0, true));
    assert!(matches!(gpu.accounting_stats_for(99), Err(NvmlError::NotFound)));
    assert!(matches!(machine.gpu(1).accounting_pids(), Err(NvmlError::NotSupported)));
}
