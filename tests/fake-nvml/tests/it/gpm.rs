//! GPM metrics need two filled samples of one device, a tenth of a second apart, on Hopper and later.

use crate::machine::Machine;
use nvml_wrapper::{
    enums::gpm::GpmMetricId::{self, *},
    error::NvmlError,
    gpm::{GpmSample, gpm_metrics_get},
};
use serde_json::json;
use std::{thread, time::Duration};

/// Longer than the driver's refresh interval.
const SAMPLE_INTERVAL: Duration = Duration::from_millis(150);

/// The values of metrics between two samples.
fn values(machine: &Machine, pair: &[GpmSample<'_>; 2], ids: &[GpmMetricId]) -> Vec<f64> {
    let metrics = gpm_metrics_get(machine, &pair[0], &pair[1], ids).expect("a pair");
    metrics.into_iter().map(|metric| metric.expect("a metric").value).collect()
}

#[test]
fn two_samples_yield_the_metrics_of_the_state() {
    let gpm = json!({"tensor": 61.5, "occupancy": 20.0});
    let state = json!({"gpus": [{"card": "h100", "util": 80, "gpm": gpm,
        "pcie": {"rx_kib_s": 102_400}, "nvlink": {"tx_kib_s": 1_843_200, "down": [17]}}]});
    let machine = Machine::new(&state);
    let gpu = machine.gpu(0);
    assert!(gpu.gpm_support().unwrap() && !gpu.gpm_streaming_enabled().unwrap());
    let sample = || gpu.gpm_sample().unwrap();
    let pair = [sample(), {
        thread::sleep(SAMPLE_INTERVAL);
        sample()
    }];
    let found =
        values(&machine, &pair, &[GraphicsUtil, SmUtil, SmOccupancy, AnyTensorUtil, DramBwUtil, Fp32Util]);
    assert_eq!(found, [80.0, 72.0, 20.0, 61.5, 44.0, 12.0]);
    let near = |id, wanted: f64| {
        let found = values(&machine, &pair, &[id])[0];
        assert!((found - wanted).abs() <= wanted * 0.01, "{id:?}: {found} is not {wanted}");
    };
    near(PcieRxPerSec, 100.0);
    near(NvlinkTotalTxPerSec, 1_800.0);
    near(NvlinkL0TxPerSec, 1_800.0 / 17.0);
    assert_eq!(values(&machine, &pair, &[PcieTxPerSec, NvlinkL17TxPerSec]), [0.0, 0.0]);
}

#[test]
fn samples_that_are_not_a_pair_are_refused() {
    let machine = Machine::new(&json!({"gpus": [{"card": "h100"}, {"card": "h100"}]}));
    let (one, other) = (machine.gpu(0), machine.gpu(1));
    let (first, strange) = (one.gpm_sample().unwrap(), other.gpm_sample().unwrap());
    let refused = |a: &GpmSample<'_>, b: &GpmSample<'_>| {
        matches!(gpm_metrics_get(&machine, a, b, &[SmUtil]), Err(NvmlError::InvalidArg))
    };
    assert!(refused(&first, &strange), "of two devices");
    assert!(refused(&first, &first), "only one");
    let never_filled = empty_sample(&machine);
    assert!(refused(&first, &never_filled) && refused(&never_filled, &first));
    let soon = one.gpm_sample().unwrap();
    assert!(values(&machine, &[first, soon], &[SmUtil])[0].is_nan(), "of one refresh");
}

/// A sample that was allocated but not filled.
fn empty_sample(machine: &Machine) -> GpmSample<'_> {
    let alloc = machine.lib().nvmlGpmSampleAlloc.as_ref().expect("the driver has this call");
    let mut sample = std::ptr::null_mut();
    #[expect(unsafe_code, reason = "nvml-wrapper fills every sample that it allocates")]
    // SAFETY: the sample comes from this library, and nothing else frees it.
    unsafe {
        assert_eq!(alloc(&raw mut sample), 0);
        GpmSample::from_handle(machine, sample)
    }
}

#[test]
fn a_card_before_hopper_has_none() {
    let machine = Machine::new(&json!({"gpus": [{}]}));
    assert!(!machine.gpu(0).gpm_support().unwrap());
    assert!(matches!(machine.gpu(0).gpm_sample(), Err(NvmlError::NotSupported)));
}

#[test]
fn a_metric_can_fail_alone() {
    let machine =
        Machine::new(&json!({"gpus": [{"card": "h100", "gpm": {"fp64": null}, "errors": {"gpm:5": 4}}]}));
    let gpu = machine.gpu(0);
    let sample = || gpu.gpm_sample().unwrap();
    let (first, second) = (sample(), {
        thread::sleep(SAMPLE_INTERVAL);
        sample()
    });
    let metrics = gpm_metrics_get(&machine, &first, &second, &[SmUtil, AnyTensorUtil, Fp64Util]).unwrap();
    assert!(metrics[0].is_ok());
    assert!(matches!(metrics[1], Err(NvmlError::NoPermission)));
    assert!(matches!(metrics[2], Err(NvmlError::NotSupported)));
}

#[test]
fn each_instance_has_its_own_metrics_through_its_gpu() {
    let mig = json!([{"gi": 3, "profile": "3g.40gb", "util": 50}, {"gi": 5, "profile": "1g.10gb", "gpm": {"sm": 9.0}}]);
    let machine = Machine::new(&json!({"gpus": [{"card": "h100", "mig": mig}]}));
    let gpu = machine.gpu(0);
    let sample = |gi| gpu.gpm_mig_sample(gi).unwrap();
    let (three, five) = (sample(3), sample(5));
    thread::sleep(SAMPLE_INTERVAL);
    assert_eq!(values(&machine, &[three, sample(3)], &[SmUtil, AnyTensorUtil]), [45.0, 25.0]);
    assert_eq!(values(&machine, &[five, sample(5)], &[SmUtil, AnyTensorUtil]), [9.0, 0.0]);
    let pair = [sample(3), sample(3)];
    let traffic = gpm_metrics_get(&machine, &pair[0], &pair[1], &[PcieRxPerSec]).unwrap();
    assert!(matches!(traffic[0], Err(NvmlError::NotSupported)), "traffic is the GPU's");
    assert!(matches!(gpu.gpm_mig_sample(4), Err(NvmlError::NotFound)));
    assert!(matches!(gpu.mig_device_by_index(0).unwrap().gpm_sample(), Err(NvmlError::NotSupported)));
}
