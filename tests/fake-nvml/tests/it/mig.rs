//! MIG instances match their profiles, and are found from both sides.

use crate::machine::{Machine, raw};
use nvml_wrapper::error::NvmlError;
use nvml_wrapper_sys::bindings::nvmlGpuInstanceInfo_t;
use serde_json::json;

#[test]
fn an_instance_is_named_and_shaped_by_its_profile() {
    let mig = json!([{"gi": 1, "profile": "3g.40gb", "processes": [{"pid": 5, "mem_mib": 100}]}, {"gi": 9}]);
    let machine = Machine::new(&json!({"gpus": [{"mig": mig}]}));
    let gpu = machine.gpu(0);
    let mode = gpu.mig_mode().unwrap();
    assert_eq!((mode.current, mode.pending, gpu.mig_device_count().unwrap()), (1, 1, 7));
    let instance = gpu.mig_device_by_index(0).unwrap();
    assert_eq!(instance.name().unwrap(), "NVIDIA A100-SXM4-80GB MIG 3g.40gb");
    assert_eq!(gpu.mig_device_by_index(1).unwrap().name().unwrap(), "NVIDIA A100-SXM4-80GB MIG 1g.10gb");
    assert!(matches!(gpu.mig_device_by_index(2), Err(NvmlError::NotFound)));
    let shape = instance.attributes().unwrap();
    assert_eq!((shape.multiprocessor_count, shape.gpu_instance_slice_count), (42, 3));
    assert_eq!((shape.shared_decoder_count, shape.memory_size_mb), (2, 40_448));
    let memory = instance.memory_info().unwrap();
    assert_eq!((memory.total >> 20, memory.used >> 20), (40_448, 112));
    assert_eq!(instance.bar1_memory_info().unwrap().total >> 20, 65_536);
    assert_eq!(instance.mig_parent_device().unwrap().uuid().unwrap(), gpu.uuid().unwrap());
    assert!(instance.mig_is_mig_device_handle().unwrap() && !gpu.mig_is_mig_device_handle().unwrap());
}

#[test]
fn a_mig_gpu_and_its_instances_report_no_utilisation() {
    let machine =
        Machine::new(&json!({"gpus": [{"card": "h100", "util": 50, "mig": [{"processes": [{"pid": 5}]}]}]}));
    let gpu = machine.gpu(0);
    let instance = gpu.mig_device_by_index(0).unwrap();
    for device in [&gpu, &instance] {
        assert!(matches!(device.utilization_rates(), Err(NvmlError::NotSupported)));
        assert!(matches!(device.encoder_utilization(), Err(NvmlError::NotSupported)));
        assert!(matches!(device.decoder_utilization(), Err(NvmlError::NotSupported)));
        assert!(matches!(device.process_utilization_stats(0), Err(NvmlError::NotSupported)));
        assert!(matches!(device.is_accounting_enabled(), Err(NvmlError::NotSupported)));
    }
    assert!(gpu.power_usage().is_ok() && instance.power_usage().is_err());
}

#[test]
fn current_and_pending_mode_are_distinguished() {
    let machine = Machine::new(
        &json!({"gpus": [{"board": {"mig_pending": true}}, {"board": {"mig_mode": true}}, {"card": "t4"}]}),
    );
    let mode = |index| machine.gpu(index).mig_mode().map(|mode| (mode.current, mode.pending)).ok();
    assert_eq!([mode(0), mode(1), mode(2)], [Some((0, 1)), Some((1, 1)), None]);
    assert!(machine.gpu(1).utilization_rates().is_err(), "on, though nothing is on it yet");
}

#[test]
fn gpu_instances_are_listed_by_profile_with_their_ids() {
    let mig = json!([{"gi": 2, "ci": 0, "profile": "1c.3g.40gb"}, {"gi": 2, "ci": 1, "profile": "1c.3g.40gb"}, {"gi": 7}]);
    let machine = Machine::new(&json!({"gpus": [{"card": "h100", "mig": mig}]}));
    let gpu = machine.gpu(0);
    let profile = gpu.profile_info(2).unwrap();
    assert_eq!((profile.id, profile.slice_count, profile.instance_count), (9, 3, 2));
    assert_eq!(profile.multiprocessor_count, 48);
    let lib = machine.lib();
    let (list, info) =
        (lib.nvmlDeviceGetGpuInstances.as_ref().unwrap(), lib.nvmlGpuInstanceGetInfo.as_ref().unwrap());
    let ids = |profile| {
        let mut handles = [std::ptr::null_mut(); 7];
        let mut count = 0;
        #[expect(unsafe_code, reason = "nvml-wrapper does not make these calls")]
        // SAFETY: seven is the most instances there can be.
        unsafe {
            assert_eq!(list(raw(&gpu), profile, handles.as_mut_ptr(), &raw mut count), 0);
            handles[..count as usize]
                .iter()
                .map(|handle| {
                    let mut found: nvmlGpuInstanceInfo_t = crate::machine::zeros();
                    assert_eq!(info(*handle, &raw mut found), 0);
                    (found.id, found.profileId)
                })
                .collect::<Vec<_>>()
        }
    };
    assert_eq!(ids(9), [(2, 9)], "two compute instances, one GPU instance");
    assert_eq!(ids(19), [(7, 19)]);
    assert!(ids(0).is_empty());
}
