//! Injected hangs, errors and lost GPUs affect every call.

use crate::machine::Machine;
use nvml_wrapper::{enum_wrappers::device::TemperatureSensor, error::NvmlError};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// Calls of each kind, by symbol.
fn calls(machine: &Machine) -> Vec<(&'static str, Result<(), NvmlError>)> {
    let gpu = machine.gpu(0);
    vec![
        ("nvmlDeviceGetTemperature", gpu.temperature(TemperatureSensor::Gpu).map(|_| ())),
        ("nvmlDeviceGetEccMode", gpu.is_ecc_enabled().map(|_| ())),
        ("nvmlDeviceGetName", gpu.name().map(|_| ())),
        ("nvmlDeviceGetComputeRunningProcesses_v3", gpu.running_compute_processes().map(|_| ())),
        ("nvmlDeviceGetMemoryInfo_v2", gpu.memory_info().map(|_| ())),
        (
            "nvmlDeviceGetFieldValues",
            gpu.field_values_for(&[nvml_wrapper::structs::device::FieldId(82)]).map(|_| ()),
        ),
        ("nvmlGpmSampleGet", gpu.gpm_sample().map(|_| ())),
        ("nvmlDeviceGetNvLinkState", gpu.link_wrapper_for(0).is_active().map(|_| ())),
        ("nvmlDeviceGetCpuAffinity", gpu.cpu_affinity(1).map(|_| ())),
        ("nvmlDeviceGetGspFirmwareVersion", gpu.gsp_firmware_version().map(|_| ())),
        ("nvmlDeviceGetEncoderSessions", gpu.encoder_sessions().map(|_| ())),
        (
            "nvmlDeviceGetTopologyNearestGpus",
            gpu.topology_nearest_gpus(nvml_wrapper::enum_wrappers::device::TopologyLevel::Node).map(|_| ()),
        ),
        (
            "nvmlDeviceGetPcieThroughput",
            gpu.pcie_throughput(nvml_wrapper::enum_wrappers::device::PcieUtilCounter::Send).map(|_| ()),
        ),
    ]
}

fn with(gpu: Value, machine: Value) -> Machine {
    let mut state = json!({"gpus": [gpu]});
    state["gpus"][0]["card"] = json!("h100");
    for (key, value) in machine.as_object().into_iter().flatten() {
        state[key] = value.clone();
    }
    Machine::new(&state)
}

#[test]
fn every_call_can_be_forbidden_on_one_gpu_or_on_all() {
    let symbols: Vec<_> = calls(&with(json!({}), json!({})))
        .into_iter()
        .map(|(symbol, answer)| {
            answer.unwrap();
            symbol
        })
        .collect();
    let errors: Value =
        symbols.iter().map(|symbol| (symbol.to_string(), json!(4))).collect::<serde_json::Map<_, _>>().into();
    for machine in [with(json!({"errors": errors}), json!({})), with(json!({}), json!({"errors": errors}))] {
        for (symbol, answer) in calls(&machine) {
            assert!(matches!(answer, Err(NvmlError::NoPermission)), "{symbol}: {answer:?}");
        }
    }
}

#[test]
fn a_lost_gpu_fails_every_call() {
    for (symbol, answer) in calls(&with(json!({"lost": true}), json!({}))) {
        assert!(matches!(answer, Err(NvmlError::GpuLost)), "{symbol}: {answer:?}");
    }
    let machine = Machine::new(&json!({"gpus": [{"lost_at_enumeration": true}]}));
    assert!(matches!(machine.device_by_index(0), Err(NvmlError::GpuLost)));
}

#[test]
fn a_call_a_field_and_a_metric_can_hang() {
    let machine =
        with(json!({"hang_ms": {"field:82": 120}}), json!({"hang_ms": {"nvmlDeviceGetNvLinkState": 120}}));
    let gpu = machine.gpu(0);
    let timed = |call: &dyn Fn()| {
        let begin = Instant::now();
        call();
        begin.elapsed()
    };
    assert!(
        timed(&|| {
            machine.field(&gpu, 82, 0).unwrap();
        }) >= Duration::from_millis(120)
    );
    assert!(
        timed(&|| {
            gpu.link_wrapper_for(0).is_active().unwrap();
        }) >= Duration::from_millis(120)
    );
    assert!(
        timed(&|| {
            machine.field(&gpu, 83, 0).unwrap();
        }) < Duration::from_millis(100)
    );
}

#[test]
fn an_unloaded_driver_fails_every_call() {
    let machine = with(json!({}), json!({}));
    let gpu = machine.gpu(0);
    machine.set(&json!({"init": 18, "gpus": [{}]}));
    assert!(matches!(gpu.name(), Err(NvmlError::LibRmVersionMismatch)));
    machine.set(&json!({"gpus": []}));
    assert!(matches!(gpu.name(), Err(NvmlError::InvalidArg)), "the GPU has fallen off");
}
