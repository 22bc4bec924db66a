//! Field values have NVML's types, each driver's numbers, and individual return codes.

use crate::machine::Machine;
use nvml_wrapper::{enums::device::SampleValue, error::NvmlError, structs::device::FieldId};
use serde_json::json;

#[test]
fn one_call_returns_readings_and_an_error_for_each_failed_one() {
    let errors = json!({"field:186": 4});
    let machine = Machine::new(&json!({"gpus": [{"power_mw": 100_000, "errors": errors}]}));
    let ids = [82, 186, 185, 9_999].map(FieldId);
    let answers: Vec<_> =
        machine.gpu(0).field_values_for(&ids).unwrap().into_iter().map(|one| one.unwrap()).collect();
    assert_eq!(answers[0].value.as_ref().unwrap(), &SampleValue::U32(37));
    assert!(matches!(answers[1].value, Err(NvmlError::NoPermission)));
    assert!(matches!(answers[2].value, Err(NvmlError::NotSupported)), "an A100 has no average");
    assert!(matches!(answers[3].value, Err(NvmlError::InvalidArg)));
    assert!(answers.iter().all(|answer| answer.timestamp > 1_600_000_000_000_000));
}

#[test]
fn a_failure_of_a_field_can_be_of_every_gpu_or_of_one() {
    let machine =
        Machine::new(&json!({"errors": {"field:83": 999}, "gpus": [{}, {"errors": {"field:82": 3}}]}));
    let (one, other) = (machine.gpu(0), machine.gpu(1));
    assert_eq!((machine.field(&one, 83, 0), machine.field(&other, 83, 0)), (Err(999), Err(999)));
    assert_eq!((machine.field(&one, 82, 0), machine.field(&other, 82, 0)), (Ok(37), Err(3)));
}

#[test]
fn clock_event_reasons_have_the_number_that_the_driver_gives_them() {
    let held = json!({"throttled_ns": [1, 2, 3, 4, 5]});
    for (driver, ids) in
        [("575.57.08", [251, 252, 253]), ("580.65.06", [251, 252, 253]), ("580.82.07", [269, 270, 271])]
    {
        let machine = Machine::new(&json!({"driver": driver, "gpus": [{"clocks": held}]}));
        let found = ids.map(|id| machine.field(&machine.gpu(0), id, 0));
        assert_eq!(found, [Ok(3), Ok(4), Ok(5)], "{driver}");
    }
    let machine = Machine::new(&json!({"driver": "570.86.10", "gpus": [{"clocks": held}]}));
    assert_eq!(machine.field(&machine.gpu(0), 251, 0), Err(3), "power smoothing, which it lacks");
    assert_eq!(machine.field(&machine.gpu(0), 74, 0), Ok(1), "the power cap never moved");
}

#[test]
fn an_instance_has_no_fields_of_a_board() {
    let machine = Machine::new(&json!({"gpus": [{"mig": [{}]}]}));
    let gpu = machine.gpu(0);
    let instance = gpu.mig_device_by_index(0).unwrap();
    assert_eq!((machine.field(&instance, 82, 0), machine.field(&gpu, 82, 0)), (Err(3), Ok(37)));
    assert_eq!(machine.field(&gpu, 142, 0), Err(3), "rows are not reported while instances are on the GPU");
}
