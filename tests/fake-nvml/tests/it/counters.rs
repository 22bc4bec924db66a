//! Counters grow at the rates of the state file, and decrease only by wrapping.

use crate::machine::Machine;
use serde_json::json;
use std::time::{Duration, Instant};

/// Runs a closure for a while; returns its results before and after, and the seconds between.
fn over<T>(time: Duration, mut read: impl FnMut() -> T) -> (T, T, f64) {
    let (begin, before) = (Instant::now(), read());
    std::thread::sleep(time);
    let after = read();
    (before, after, begin.elapsed().as_secs_f64())
}

fn near(found: f64, wanted: f64) -> bool {
    (found - wanted).abs() <= wanted * 0.15
}

const WHILE: Duration = Duration::from_millis(400);

#[test]
fn energy_is_power_by_time_also_when_the_power_changes() {
    let machine = Machine::new(&json!({"gpus": [{"power_mw": 300_000}]}));
    let gpu = machine.gpu(0);
    let (before, after, seconds) = over(WHILE, || gpu.total_energy_consumption().unwrap());
    assert!(near((after - before) as f64, 300_000.0 * seconds), "{before} {after}");
    machine.set(&json!({"gpus": [{"power_mw": 60_000}]}));
    let (then, later, seconds) = over(WHILE, || machine.field(&gpu, 83, 0).unwrap());
    assert!(then >= after, "less power is no way back");
    assert!(near((later - then) as f64, 60_000.0 * seconds), "{then} {later}");
}

#[test]
fn bytes_over_pcie_are_counted_in_32_bits_by_drivers_that_count_them() {
    let pcie = |kib_s: u64, initial: u64| json!({"tx_kib_s": 0, "rx_kib_s": kib_s, "counted": [7, initial]});
    let state = |driver, pcie| json!({"driver": driver, "gpus": [{"pcie": pcie}]});
    let machine = Machine::new(&state("560.35.03", pcie(1 << 20, 0)));
    let gpu = machine.gpu(0);
    let (before, after, seconds) = over(WHILE, || machine.field(&gpu, 198, 0).unwrap());
    assert!(near((after - before) as f64, seconds * f64::from(1 << 30)), "{before} {after}");
    assert_eq!(machine.typed_field(&gpu, 197, 0), Ok((1, 7)), "an unsigned int that stands still");
    machine.set(&state("560.35.03", pcie(0, (1 << 32) + 5)));
    assert!(machine.field(&gpu, 198, 0).unwrap() < 1 << 32, "it has wrapped");
    machine.set(&state("550.54.15", pcie(0, 0)));
    assert_eq!(machine.field(&gpu, 198, 0), Err(2), "drivers before 555 do not know the field");
}

#[test]
fn measuring_throughput_blocks_the_caller_for_twenty_milliseconds() {
    use nvml_wrapper::enum_wrappers::device::PcieUtilCounter::{Receive, Send};
    let machine =
        Machine::new(&json!({"gpus": [{"pcie": {"tx_kib_s": 111, "rx_kib_s": 222, "replays": [3, 1]}}]}));
    let gpu = machine.gpu(0);
    let begin = Instant::now();
    assert_eq!((gpu.pcie_throughput(Send).unwrap(), gpu.pcie_throughput(Receive).unwrap()), (111, 222));
    assert!(begin.elapsed() >= Duration::from_millis(40));
    assert_eq!((gpu.pcie_replay_counter().unwrap(), machine.field(&gpu, 95, 0)), (3, Ok(1)));
    assert_eq!((gpu.current_pcie_link_gen().unwrap(), gpu.max_pcie_link_gen().unwrap()), (4, 4));
    assert_eq!((gpu.current_pcie_link_width().unwrap(), gpu.pcie_link_speed().unwrap()), (16, 16_000));
}

#[test]
fn the_time_that_a_clock_is_held_down_is_counted_by_reason() {
    use nvml_wrapper::enum_wrappers::device::PerformancePolicy;
    let machine = Machine::new(
        &json!({"driver": "580.95.05", "gpus": [{"throttle": 0x44, "clocks": {"throttled_ns": [0, 5, 0, 0, 9]}}]}),
    );
    let gpu = machine.gpu(0);
    let (before, after, seconds) = over(WHILE, || machine.field(&gpu, 74, 0).unwrap());
    assert!(near((after - before) as f64, seconds * 1e9), "the power cap holds");
    let (before, after, seconds) = over(WHILE, || machine.field(&gpu, 270, 0).unwrap());
    assert!(near((after - before) as f64, seconds * 1e9), "hardware holds for heat");
    assert_eq!(
        (machine.field(&gpu, 76, 0), machine.field(&gpu, 269, 0), machine.field(&gpu, 271, 0)),
        (Ok(5), Ok(0), Ok(9))
    );
    assert!(gpu.violation_status(PerformancePolicy::Power).unwrap().violation_time > 0);
}

#[test]
fn with_motion_readings_change_within_their_bounds() {
    let machine = Machine::new(&json!({"driver": "560.35.03", "motion": true, "gpus": [{"card": "h100"}]}));
    let gpu = machine.gpu(0);
    let util = gpu.utilization_rates().unwrap().gpu;
    assert!((70..=100).contains(&util));
    for read in [
        &|| gpu.total_energy_consumption().unwrap() as f64 as u64,
        &|| machine.field(&gpu, 138, u32::MAX).unwrap(),
        &|| machine.field(&gpu, 139, 0).unwrap(),
    ] as [&dyn Fn() -> u64; 3]
    {
        let (before, after, _) = over(Duration::from_millis(60), read);
        assert!(after > before, "{before} {after}");
    }
    assert!(gpu.power_usage().unwrap() < gpu.enforced_power_limit().unwrap());
}
