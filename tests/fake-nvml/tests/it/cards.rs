//! Each card reports the identity and the limits of its model.

use crate::machine::{Machine, versioned, zeros};
use nvml_wrapper::{
    Device,
    enum_wrappers::device::{Clock, ClockId, TemperatureSensor, TemperatureThreshold},
    enums::device::{BusType, DeviceArchitecture},
    error::NvmlError,
};
use serde_json::json;

/// Asserts that a reading is unsupported.
macro_rules! lacks {
    ($($answer:expr),* $(,)?) => {$(
        assert!(matches!($answer, Err(NvmlError::NotSupported)), "{}: {:?}", stringify!($answer), $answer);
    )*};
}

fn capability(gpu: &Device<'_>) -> (i32, i32) {
    let capability = gpu.cuda_compute_capability().expect("every card has one");
    (capability.major, capability.minor)
}

#[test]
fn without_a_name_it_is_an_a100_with_its_identity() {
    let machine = Machine::new(&json!({"gpus": [{}, {}]}));
    let gpu = machine.gpu(1);
    assert_eq!(gpu.name().unwrap(), "NVIDIA A100-SXM4-80GB");
    assert_eq!(gpu.serial().unwrap(), "1320521000001");
    assert_eq!(gpu.vbios_version().unwrap(), "92.00.45.00.03");
    assert_eq!(gpu.board_part_number().unwrap(), "692-2G506-0200-003");
    assert_eq!(gpu.info_rom_image_version().unwrap(), "G506.0200.00.04");
    assert_eq!(gpu.gsp_firmware_version().unwrap(), "550.54.15");
    assert_eq!(gpu.architecture().unwrap(), DeviceArchitecture::Ampere);
    assert_eq!((capability(&gpu), gpu.num_cores().unwrap()), ((8, 0), 6_912));
    assert_eq!((gpu.memory_bus_width().unwrap(), gpu.bus_type().unwrap()), (5_120, BusType::Pcie));
    let pci = gpu.pci_info().unwrap();
    assert_eq!((pci.bus_id.as_str(), pci.pci_device_id), ("00000000:08:00.0", 0x20b2_10de));
    assert_eq!(machine.device_by_pci_bus_id("0000:08:00.0").unwrap().index().unwrap(), 1);
    let state = gpu.is_ecc_enabled().unwrap();
    assert!(state.currently_enabled && state.pending_enabled && gpu.is_in_persistent_mode().unwrap());
    lacks!(
        gpu.num_fans().and_then(|_| gpu.fan_speed(0)),
        gpu.is_accounting_enabled().and_then(|_| gpu.accounting_pids())
    );
    assert!(!gpu.gpm_support().unwrap());
}

#[test]
fn powers_and_limits_are_the_cards_own() {
    let machine =
        Machine::new(&json!({"gpus": [{"card": "h200", "power_mw": 512_345, "power_limit_mw": 600_000}]}));
    let gpu = machine.gpu(0);
    let limits = gpu.power_management_limit_constraints().unwrap();
    assert_eq!((limits.min_limit, limits.max_limit), (200_000, 700_000));
    assert_eq!((gpu.power_usage().unwrap(), gpu.enforced_power_limit().unwrap()), (512_345, 600_000));
    assert_eq!(
        (gpu.power_management_limit().unwrap(), gpu.power_management_limit_default().unwrap()),
        (600_000, 700_000)
    );
    for (field, wanted) in [(185, 512_345), (186, 512_345), (187, 200_000), (188, 700_000), (190, 600_000)] {
        assert_eq!(machine.field(&gpu, field, 0), Ok(wanted), "field {field}");
    }
}

#[test]
fn clocks_are_reported_by_kind_and_purpose() {
    let machine = Machine::new(
        &json!({"gpus": [{"card": "h100", "sm_clock": 1_755, "clocks": {"video": 1_400}, "throttle": 0x24}]}),
    );
    let gpu = machine.gpu(0);
    let now =
        [Clock::Graphics, Clock::SM, Clock::Memory, Clock::Video].map(|kind| gpu.clock_info(kind).unwrap());
    assert_eq!(now, [1_755, 1_755, 2_619, 1_400]);
    assert_eq!(gpu.max_clock_info(Clock::SM).unwrap(), 1_980);
    assert_eq!(gpu.applications_clock(Clock::Memory).unwrap(), 2_619);
    assert_eq!(gpu.clock(Clock::SM, ClockId::Current).unwrap(), 1_755);
    assert_eq!(gpu.current_throttle_reasons().unwrap().bits(), 0x24);
    assert_eq!(gpu.supported_throttle_reasons().unwrap().bits(), 0x1ff);
}

#[test]
fn temperature_is_reported_with_its_thresholds() {
    let machine = Machine::new(
        &json!({"gpus": [{"temp": 60}, {"card": "h100", "temp": 60, "thermal": {"mem": 71}}, {"card": "rtx3090"}]}),
    );
    let (a100, h100, gamer) = (machine.gpu(0), machine.gpu(1), machine.gpu(2));
    let limit = |gpu: &Device<'_>, kind| gpu.temperature_threshold(kind);
    assert_eq!(limit(&a100, TemperatureThreshold::Shutdown).unwrap(), 95);
    assert_eq!(limit(&a100, TemperatureThreshold::Slowdown).unwrap(), 92);
    assert_eq!(limit(&a100, TemperatureThreshold::MemoryMax).unwrap(), 95);
    assert_eq!(limit(&a100, TemperatureThreshold::GpuMax).unwrap(), 85);
    assert_eq!(limit(&gamer, TemperatureThreshold::AcousticCurr).unwrap(), 83);
    lacks!(limit(&a100, TemperatureThreshold::AcousticMin));
    assert_eq!(a100.temperature(TemperatureSensor::Gpu).unwrap(), 60);
    // Memory temperature: derived, set, or unsupported.
    assert_eq!((machine.field(&a100, 82, 0), machine.field(&h100, 82, 0)), (Ok(66), Ok(71)));
    assert_eq!(machine.field(&gamer, 82, 0), Err(3));
    // Limits relative to the margin are signed, and exist from Hopper on.
    let limits = [193, 194, 195, 196].map(|field| machine.typed_field(&h100, field, 0).unwrap());
    assert_eq!(
        limits,
        [(5, u64::from((-8_i32).cast_unsigned())), (5, u64::from((-2_i32).cast_unsigned())), (5, 0), (5, 0)]
    );
    assert_eq!(machine.field(&a100, 193, 0), Err(3));
    let margin = |gpu: &Device<'_>| versioned(gpu, &machine.lib().nvmlDeviceGetMarginTemperature, 1, zeros());
    assert_eq!(margin(&h100).unwrap().marginTemperature, 87 - 2 - 60);
    assert_eq!(margin(&a100).err(), Some(3));
}

#[test]
fn a_card_for_players_has_fans_and_no_ecc() {
    let machine = Machine::new(&json!({"gpus": [{"card": "rtx3090", "fan": 42}]}));
    let gpu = machine.gpu(0);
    assert_eq!((gpu.num_fans().unwrap(), gpu.fan_speed(1).unwrap()), (2, 42));
    assert!(matches!(gpu.fan_speed(2), Err(NvmlError::InvalidArg)));
    assert_eq!((gpu.fan_speed_rpm(0).unwrap(), gpu.min_max_fan_speed().unwrap()), (1_260, (30, 100)));
    assert!(gpu.is_display_active().unwrap() && !gpu.is_in_persistent_mode().unwrap());
    lacks!(
        gpu.serial(),
        gpu.is_ecc_enabled(),
        gpu.board_part_number(),
        gpu.mig_mode(),
        gpu.applications_clock(Clock::SM)
    );
    assert!(!gpu.link_wrapper_for(0).is_active().unwrap());
}

#[test]
fn a_gpu_with_unified_memory_reports_no_memory_of_its_own() {
    let machine = Machine::new(&json!({"driver": "580.95.05", "gpus": [{"card": "gb10", "util": 50}]}));
    let gpu = machine.gpu(0);
    lacks!(gpu.memory_info(), gpu.bar1_memory_info(), gpu.enforced_power_limit(), gpu.memory_bus_width());
    lacks!(gpu.clock_info(Clock::Memory), gpu.pcie_replay_counter(), gpu.is_ecc_enabled());
    assert_eq!((gpu.current_pcie_link_gen().unwrap(), gpu.current_pcie_link_width().unwrap()), (1, 1));
    assert_eq!(gpu.pci_info().unwrap().bus_id, "0000000F:01:00.0");
    assert_eq!((gpu.utilization_rates().unwrap().gpu, capability(&gpu)), (50, (12, 1)));
    assert_eq!(machine.field(&gpu, 197, 0), Err(3));
}

#[test]
fn a_grace_hopper_is_a_numa_node_with_links_to_its_cpu() {
    let machine = Machine::new(&json!({"gpus": [{"card": "gh200"}, {}]}));
    let gpu = machine.gpu(0);
    assert_eq!(gpu.numa_node_id().unwrap(), 1);
    lacks!(machine.gpu(1).numa_node_id(), gpu.bar1_memory_info());
    assert_eq!((machine.field(&gpu, 170, 0), machine.field(&gpu, 172, 9)), (Ok(10), Ok(44_712)));
    // The module's draw has its own scope.
    assert_eq!((machine.field(&gpu, 186, 0), machine.field(&gpu, 186, 1)), (Ok(82_000), Ok(171_000)));
    assert!(gpu.memory_info().unwrap().total > 90 << 30);
}

#[test]
fn retired_pages_and_remapped_rows_are_reported_by_generation() {
    let t4 = json!({"card": "t4", "retired": {"single_bit": [4096], "double_bit": [8192, 12288], "pending": [false, true]}});
    let a100 = json!({"remapped": {"corrected": 3, "uncorrected": 1, "pending": true, "histogram": [638, 1, 1, 0, 0]}});
    let machine = Machine::new(&json!({"gpus": [t4, a100]}));
    let (t4, a100) = (machine.gpu(0), machine.gpu(1));
    use nvml_wrapper::enum_wrappers::device::RetirementCause::{
        DoubleBitEccError, MultipleSingleBitEccErrors,
    };
    let pages = t4.retired_pages(DoubleBitEccError).unwrap();
    assert_eq!(pages.iter().map(|page| page.address).collect::<Vec<_>>(), [8_192, 12_288]);
    assert_eq!(t4.retired_pages(MultipleSingleBitEccErrors).unwrap().len(), 1);
    assert!(t4.are_pages_pending_retired().unwrap());
    assert_eq!(
        [29, 30, 31, 92, 93].map(|field| machine.field(&t4, field, 0)),
        [Ok(1), Ok(2), Ok(1), Ok(0), Ok(1)]
    );
    assert_eq!(
        [142, 143, 144, 145].map(|field| machine.field(&a100, field, 0)),
        [Ok(3), Ok(1), Ok(1), Ok(0)]
    );
    lacks!(a100.retired_pages(DoubleBitEccError), a100.are_pages_pending_retired());
    assert_eq!(machine.field(&t4, 142, 0), Err(3));
}

#[test]
fn errors_are_counted_by_kind_time_and_place() {
    use nvml_wrapper::enum_wrappers::device::{
        EccCounter::{Aggregate, Volatile},
        MemoryError::{Corrected, Uncorrected},
        MemoryLocation::{Device as Dram, L2Cache},
    };
    let ecc = json!({"aggregate_uncorrected": 7, "sram_parity": [1, 3], "sram_secded": [0, 2]});
    let machine = Machine::new(&json!({"gpus": [{"ecc_uncorrected": 2, "ecc_corrected": 9, "ecc": ecc}]}));
    let gpu = machine.gpu(0);
    assert_eq!(gpu.total_ecc_errors(Corrected, Volatile).unwrap(), 9);
    assert_eq!(gpu.total_ecc_errors(Corrected, Aggregate).unwrap(), 9, "it follows");
    assert_eq!(gpu.total_ecc_errors(Uncorrected, Aggregate).unwrap(), 7);
    assert_eq!(gpu.memory_error_counter(Uncorrected, Aggregate, Dram).unwrap(), 2);
    lacks!(gpu.memory_error_counter(Uncorrected, Volatile, L2Cache));
    let sram = versioned(&gpu, &machine.lib().nvmlDeviceGetSramEccErrorStatus, 1, zeros()).unwrap();
    assert_eq!((sram.volatileUncParity, sram.aggregateUncParity, sram.aggregateUncSecDed), (1, 3, 2));
    assert_eq!([3, 4, 5, 6].map(|field| machine.field(&gpu, field, 0)), [Ok(9), Ok(2), Ok(9), Ok(7)]);
}

#[test]
fn engines_and_encoder_sessions_are_reported() {
    let engines =
        json!({"encoder": 12, "decoder": 34, "sessions": [{"pid": 7, "fps": 30}, {"pid": 8, "fps": 60}]});
    let machine = Machine::new(&json!({"gpus": [{"engines": engines}, {}]}));
    let gpu = machine.gpu(0);
    assert_eq!(gpu.encoder_utilization().unwrap().utilization, 12);
    assert_eq!(gpu.decoder_utilization().unwrap().utilization, 34);
    assert_eq!(
        (gpu.encoder_stats().unwrap().session_count, gpu.encoder_stats().unwrap().average_fps),
        (2, 45)
    );
    assert_eq!(gpu.encoder_sessions().unwrap()[1].pid, 8);
    assert!(machine.gpu(1).encoder_sessions().unwrap().is_empty());
    assert_eq!(gpu.fbc_stats().unwrap().sessions_count, 0);
}
