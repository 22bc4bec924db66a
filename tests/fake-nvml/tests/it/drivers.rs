//! Older drivers truly lack newer symbols.

use crate::machine::Machine;
use fake_nvml::{install, symbol_versions};
use nvml_wrapper::error::NvmlError;
use serde_json::json;
use std::collections::BTreeSet;

#[test]
fn every_symbol_that_has_a_date_is_exported() {
    let library = std::fs::read(install::library().unwrap()).unwrap();
    let exported: BTreeSet<_> = install::symbols(&library).map(|(_, name)| name).collect();
    let missing: Vec<_> =
        symbol_versions::newer_than((0, 0)).filter(|symbol| !exported.contains(symbol)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_later_symbol_is_absent_and_the_others_work() {
    let state = json!({"driver": "470.57.02", "gpus": [{"util": 7}]});
    let machine = Machine::with_driver((470, 57), &state);
    let gpu = machine.gpu(0);
    assert_eq!(gpu.utilization_rates().unwrap().gpu, 7);
    assert!(gpu.mig_mode().is_ok(), "MIG is older");
    let absent = |answer: Result<(), NvmlError>| matches!(answer, Err(NvmlError::FailedToLoadSymbol(_)));
    assert!(absent(gpu.memory_info().map(|_| ())) && absent(gpu.num_cores().map(|_| ())));
    assert!(absent(gpu.gpm_support().map(|_| ())) && absent(gpu.running_compute_processes().map(|_| ())));
    assert_eq!(machine.field(&gpu, 186, 0), Err(2), "nor does it know later fields");
}

#[test]
fn the_driver_with_long_entries_lacks_the_v3_call() {
    let machine =
        Machine::with_driver((535, 54), &json!({"driver": "535.54.03", "v3_stride": 32, "gpus": [{}]}));
    let lib = machine.lib();
    assert!(
        lib.nvmlDeviceGetConfComputeMemSizeInfo.is_ok() && lib.nvmlDeviceGetRunningProcessDetailList.is_err()
    );
    assert!(
        lib.nvmlDeviceGetComputeRunningProcesses_v3.is_ok()
            && lib.nvmlDeviceGetProcessesUtilizationInfo.is_err()
    );
}
