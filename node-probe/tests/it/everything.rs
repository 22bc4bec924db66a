//! Every field has a value from its own source, and changes when the driver's value changes.

use crate::harness::{Node, Probe};
use nodeglass_protocol::Reading::{self, NotYet, Unsupported, Value};
use nodeglass_protocol::field::ReadingSet as _;
use nodeglass_protocol::gpu::{GpuFacts, GpuPath};
use nodeglass_protocol::probe::Sample;
use nodeglass_protocol::{Field, GpuField};
use serde_json::{Value as Json, json};

/// A driver that supports every field.
const DRIVER: &str = "580.90.07";

fn with(gpu: Json) -> Json {
    json!({"driver": DRIVER, "gpus": [gpu]})
}

fn reported(of: &impl serde::Serialize) -> serde_json::Map<String, Json> {
    let json = serde_json::to_value(of).expect("types of the wire are JSON");
    json.as_object().cloned().expect("a struct is an object")
}

/// A sample after `seq` whose rates are known.
fn settled(probe: &mut Probe, seq: u64) -> Sample {
    probe.sample(|sample| sample.seq > seq + 1 && !sample.gpus.is_empty())
}

/// Readings that NVML does not have.
const OF_OTHERS: [GpuField; 3] = [GpuField::HotspotTemp, GpuField::HostMemUsed, GpuField::FanRpm];

#[test]
fn a_gpu_with_all_features_has_a_value_for_every_reading() {
    let node = Node::new(&with(json!({"card": "h100", "fan": 40})));
    let mut probe = node.start(&[]);
    let sample = settled(&mut probe, 1).gpus.remove(0);
    assert_eq!(sample.fault, None);
    for field in GpuField::ALL.iter().filter(|field| !field.metric().is_derived) {
        let is_read = sample.reading(*field).value().is_some();
        assert_eq!(is_read, !OF_OTHERS.contains(field), "{field:?} in {sample:?}");
    }
}

#[test]
fn every_reading_changes_with_the_driver() {
    let node = Node::new(&with(json!({"card": "h100"})));
    let mut probe = node.start(&[]);
    let before = settled(&mut probe, 0);
    node.set(&with(json!({
        "card": "h100", "util": 91, "mem_util": 42, "mem_total_mib": 80000, "mem_used_mib": 70000, "mem_reserved_mib": 500,
        "temp": 61, "thermal": {"mem": 77}, "power_mw": 650000, "power_limit_mw": 690000,
        "power": {"instant": 655000, "energy_mj": 5000000}, "sm_clock": 1755, "mem_clock": 2600,
        "clocks": {"graphics": 1750, "video": 1500}, "throttle": 36, "ecc_uncorrected": 3, "ecc_corrected": 17,
        "p_state": 1, "fan": 66, "engines": {"encoder": 11, "decoder": 12, "jpeg": 13, "ofa": 14},
        "pcie": {"rx_kib_s": 3000000, "tx_kib_s": 2000000}, "nvlink": {"rx_kib_s": 90000000, "tx_kib_s": 80000000},
        "gpm": {"graphics": 88, "sm": 81, "occupancy": 33, "tensor": 55, "dram": 44, "fp64": 1, "fp32": 22, "fp16": 7},
    })));
    let moved = probe.sample(|sample| sample.gpus[0].util_pct == Value(91));
    let after = reported(&settled(&mut probe, moved.seq + 1).gpus[0]);
    let wanted = json!({
        "util_pct": 91, "mem_util_pct": 42, "mem_used_bytes": 70000_u64 << 20, "mem_total_bytes": 80000_u64 << 20,
        "mem_reserved_bytes": 500 << 20, "temp_c": 61, "mem_temp_c": 77, "power_mw": 650000,
        "power_instant_mw": 655000, "power_limit_mw": 690000, "sm_clock_mhz": 1755, "mem_clock_mhz": 2600,
        "graphics_clock_mhz": 1750, "video_clock_mhz": 1500, "throttle_reasons": 36, "ecc_uncorrected": 3,
        "ecc_corrected": 17, "p_state": 1, "fan_pct": 66, "enc_pct": 11, "dec_pct": 12, "jpg_pct": 13, "ofa_pct": 14,
        "graphics_active_pct": 88, "sm_active_pct": 81, "sm_occupancy_pct": 33, "tensor_active_pct": 55,
        "dram_active_pct": 44, "fp64_active_pct": 1, "fp32_active_pct": 22, "fp16_active_pct": 7,
    });
    let rates = [
        ("pcie_rx_bytes_s", 3000000_u64),
        ("pcie_tx_bytes_s", 2000000),
        ("nvlink_rx_bytes_s", 90000000),
        ("nvlink_tx_bytes_s", 80000000),
    ];
    for (name, value) in &after {
        let rate = rates.iter().find(|(rate, _)| rate == name).map(|(_, kib)| kib * 1024);
        match (wanted.get(name), rate) {
            (Some(wanted), _) => assert_eq!(value, wanted, "{name}"),
            (None, Some(rate)) => {
                let value = value.as_u64().unwrap();
                assert!(value.abs_diff(rate) < rate / 4, "{name} {value} {rate}");
            }
            // `throttle` 36 is the power limit and the temperature.
            (None, None) if name == "power_capped_pct" || name == "thermal_capped_pct" => {
                assert!((90..=100).contains(&value.as_u64().unwrap()), "{name} {value}");
            }
            (None, None) if OF_OTHERS.iter().any(|field| field.metric().reading == name) => {
                assert_eq!(value, "unsupported", "{name}");
            }
            (None, None) => {
                assert_eq!(name, "energy_mj", "a reading that this test does not know");
                assert!(value.as_u64().unwrap() > *before.gpus[0].energy_mj.value().unwrap() + 4_000_000);
            }
        }
    }
    let of_probes = GpuField::ALL.iter().filter(|field| !field.metric().is_derived);
    assert_eq!(after.len(), of_probes.count());
}

#[test]
fn a_gpu_with_all_features_has_every_fact() {
    let node = Node::new(&with(json!({"card": "h100"})));
    let hello = node.start(&[]).hello(|hello| !hello.gpus.is_empty());
    for (name, value) in reported(&hello.gpus[0]) {
        let absent = value.is_null() || value == "unsupported" || value.get("failed").is_some();
        assert_eq!(absent, name == "mig" || name == "mig_parent", "{name}: {value}");
    }
}

#[test]
fn every_fact_belongs_to_its_gpu() {
    let state = json!({"driver": DRIVER, "conf_compute": [2, 1, 0], "gpus": [{
        "card": "h100", "name": "NVIDIA H100 NVL", "uuid": "GPU-x", "minor": 3, "bus": 0x4f,
        "sm_clock_max": 1785, "mem_clock_max": 2600, "clocks": {"graphics_max": 1780, "video_max": 1600},
        "temp_slowdown": 88, "thermal": {"shutdown": 93, "gpu_max": 84, "mem_max": 96},
        "power": {"default": 600000, "min": 210000, "max": 610000}, "power_limit_mw": 400000,
        "pcie": {"generation": [4, 5, 5], "width": [8, 16]},
        "board": {
            "serial": "1650000000001", "vbios": "96.00.AA.00.02", "architecture": 10, "compute_capability": [10, 3],
            "cores": 12345, "numa_node": 1, "cpus": "0-1", "compute_mode": 3, "persistence": false,
        },
        "ecc": {"mode": false},
    }]});
    let node = Node::new(&state);
    let hello = node.start(&[]).hello(|hello| !hello.gpus.is_empty());
    let wanted = json!({
        "uuid": "GPU-x", "index": 0, "vendor": "nvidia", "minor": 3, "pci": "00000000:4F:00.0", "name": "NVIDIA H100 NVL",
        "sm_clock_max_mhz": 1785, "mem_clock_max_mhz": 2600, "graphics_clock_max_mhz": 1780, "video_clock_max_mhz": 1600,
        "temp_slowdown_c": 88, "temp_shutdown_c": 93, "temp_gpu_max_c": 84, "temp_mem_max_c": 96,
        "power_default_mw": 600000, "power_min_mw": 210000, "power_max_mw": 610000, "pcie_gen_max": 5,
        "pcie_width_max": 16, "serial": "1650000000001", "vbios": "96.00.AA.00.02", "architecture": "Blackwell",
        "compute_capability": "10.3", "cores": 12345, "numa_node": 1, "cpu_affinity": "0-1",
        "compute_mode": "exclusive process", "persistence": false, "ecc_mode": false, "mig_mode": false,
        "confidential": true, "unified_memory": false, "mig_parent": null, "mig": null,
        "virtualization": "none",
    });
    let facts = reported(&hello.gpus[0]);
    for (name, value) in &facts {
        assert_eq!(Some(value), wanted.get(name), "{name}, unknown to this test or wrong");
    }
    assert_eq!(facts.len(), wanted.as_object().unwrap().len());
}

#[test]
fn a_rate_is_not_yet_known_at_the_first_sample() {
    let node = Node::new(&with(json!({"card": "h100", "util": 50})));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| !sample.gpus.is_empty()).gpus.remove(0);
    for reading in
        [&first.sm_active_pct, &first.tensor_active_pct, &first.pcie_rx_bytes_s, &first.nvlink_tx_bytes_s]
    {
        assert_eq!(*reading, NotYet);
    }
    let second = probe.sample(|_| true).gpus.remove(0);
    assert_eq!((second.sm_active_pct, second.tensor_active_pct), (Value(45), Value(25)));
}

#[test]
fn gpus_before_hopper_have_counters_instead_of_gpm() {
    // The counter of bytes has 32 bits: it wraps during this test.
    let near = u32::MAX as u64 - 100_000_000;
    let pcie = json!({"rx_kib_s": 200_000, "tx_kib_s": 100_000, "counted": [near, near]});
    let node = Node::new(&with(json!({"card": "a100-80g", "util": 50, "pcie": pcie})));
    let mut probe = node.start(&[]);
    let first = probe.sample(|sample| !sample.gpus.is_empty());
    for _ in 0..4 {
        let gpu = probe.sample(|sample| sample.seq > first.seq).gpus.remove(0);
        for reading in [&gpu.sm_active_pct, &gpu.sm_occupancy_pct, &gpu.dram_active_pct, &gpu.fp16_active_pct]
        {
            assert_eq!(*reading, Unsupported);
        }
        let near = |reading: &Reading<u64>, rate: u64| {
            reading.value().is_some_and(|it| it.abs_diff(rate) < rate / 4)
        };
        assert!(
            near(&gpu.pcie_rx_bytes_s, 204_800_000) && near(&gpu.pcie_tx_bytes_s, 102_400_000),
            "{gpu:?}"
        );
    }
}

#[test]
fn features_unknown_to_the_driver_are_unsupported() {
    let node = Node::new(&json!({"driver": "535.104.05", "gpus": [{"card": "h100"}]}));
    let old = Node::with_old_driver(&json!({"driver": "470.57.02", "gpus": [{"card": "a100-80g"}]}));
    for node in [node, old] {
        let mut probe = node.start(&[]);
        let hello = reported(&probe.hello(|hello| !hello.gpus.is_empty()).gpus[0]);
        let health = reported(&probe.health(|_| true).gpus[0]);
        let sample = reported(&settled(&mut probe, 1).gpus[0]);
        for (name, value) in hello.iter().chain(&sample).chain(&health) {
            assert!(value.get("failed").is_none(), "{name}: {value}");
        }
    }
}

#[test]
fn a_forbidden_field_fails_without_affecting_others() {
    let errors = json!({"field:186": 4, "field:138": 999, "gpm:5": 3, "nvmlDeviceGetJpgUtilization": 4});
    let node = Node::new(&with(json!({"card": "h100", "errors": errors})));
    let gpu = settled(&mut node.start(&[]), 1).gpus.remove(0);
    assert_eq!(gpu.power_instant_mw, Reading::Failed("insufficient permissions".into()));
    assert_eq!(gpu.jpg_pct, Reading::Failed("insufficient permissions".into()));
    assert_eq!(gpu.nvlink_tx_bytes_s, Reading::Failed("unknown error".into()));
    assert_eq!(gpu.tensor_active_pct, Unsupported);
    assert_eq!((gpu.mem_temp_c, gpu.nvlink_rx_bytes_s, gpu.sm_active_pct), (Value(36), Value(0), Value(0)));
}

#[test]
fn unsupported_queries_are_repeated_with_the_next_inventory() {
    let refusing = json!({"field:82": 3, "nvmlDeviceGetPerformanceState": 3, "nvmlGpmQueryDeviceSupport": 3});
    let node = Node::new(&with(json!({"card": "h100", "errors": refusing})));
    let mut probe = node.start(&[]);
    let gpu = settled(&mut probe, 0).gpus.remove(0);
    assert_eq!([&gpu.mem_temp_c, &gpu.p_state, &gpu.sm_active_pct], [&Unsupported; 3]);
    node.set(&with(json!({"card": "h100"})));
    probe.sample(|sample| {
        let gpu = &sample.gpus[0];
        [&gpu.mem_temp_c, &gpu.p_state, &gpu.sm_active_pct].iter().all(|reading| reading.value().is_some())
    });
}

#[test]
fn unified_memory_usage_is_the_sum_over_processes() {
    let processes =
        json!([{"pid": 4_000_001, "mem_mib": 300}, {"pid": 4_000_002, "mem_mib": 20, "kind": "G"}]);
    let gpus = json!([{"card": "gb10", "processes": processes}, {"card": "gh200"}, {"card": "h100"}]);
    let node = Node::new(&json!({"driver": DRIVER, "gpus": gpus}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|hello| !hello.gpus.is_empty());
    let unified: Vec<_> = hello.gpus.iter().map(|gpu: &GpuFacts| gpu.unified_memory).collect();
    assert_eq!(unified, [true, true, false]);
    let sample = probe.sample(|sample| !sample.gpus.is_empty());
    assert_eq!(sample.gpus[0].mem_used_bytes, Value(320 << 20));
    assert_eq!(sample.gpus[0].mem_total_bytes, Value(hello.mem_total_bytes));
    assert_eq!(sample.gpus[0].mem_reserved_bytes, Unsupported);
    assert_eq!(sample.gpus[1].mem_total_bytes, Value(97_871 << 20));
}

#[test]
fn a_dedicated_gpu_never_gets_the_host_memory_size() {
    let silent = |lists: bool| {
        let mut errors = json!({"nvmlDeviceGetMemoryInfo": 3, "nvmlDeviceGetMemoryInfo_v2": 3});
        for kind in ["Compute", "Graphics", "MPSCompute"].iter().filter(|_| !lists) {
            for version in ["", "_v2", "_v3"] {
                errors[format!("nvmlDeviceGet{kind}RunningProcesses{version}")] = json!(3);
            }
        }
        errors
    };
    let gpus = json!([
        {"card": "h100", "errors": silent(true)},
        {"card": "gb10", "errors": silent(true)},
        {"card": "gb10", "errors": silent(false)},
    ]);
    let node = Node::new(&json!({"driver": DRIVER, "gpus": gpus}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|hello| !hello.gpus.is_empty());
    let unified: Vec<_> = hello.gpus.iter().map(|gpu: &GpuFacts| gpu.unified_memory).collect();
    assert_eq!(unified, [false, true, true]);
    let sample = probe.sample(|sample| !sample.gpus.is_empty());
    let memory = |gpu: usize| (&sample.gpus[gpu].mem_used_bytes, &sample.gpus[gpu].mem_total_bytes);
    assert_eq!(memory(0), (&Unsupported, &Unsupported));
    assert_eq!(memory(1), (&Value(0), &Value(hello.mem_total_bytes)));
    assert_eq!(memory(2), (&Unsupported, &Value(hello.mem_total_bytes)));
}

#[test]
fn connections_between_gpus_are_nvlinks_or_pcie() {
    let switched =
        json!({"driver": DRIVER, "gpus": [{"card": "h100"}, {"card": "h100", "nvlink": {"down": [4]}}]});
    let topology = |state: &Json| Node::new(state).start(&[]).hello(|hello| !hello.gpus.is_empty()).topology;
    use GpuPath::{HostBridge, NvLink, PciSwitch, Same, System};
    assert_eq!(topology(&switched), [[Same, NvLink(17)], [NvLink(17), Same]]);
    let bridged = json!({"remote": "gpu", "links": 4});
    let direct = json!({"gpus": [{"nvlink": bridged}, {"nvlink": bridged}]});
    assert_eq!(topology(&direct), [[Same, NvLink(4)], [NvLink(4), Same]]);
    let plain = json!({"card": "t4", "nvlink": null});
    let pcie = json!({"topology": [[0, 10, 30], [10, 0, 50], [30, 50, 0]], "gpus": [plain, plain, plain]});
    assert_eq!(
        topology(&pcie),
        [[Same, PciSwitch, HostBridge], [PciSwitch, Same, System], [HostBridge, System, Same]]
    );
    assert!(topology(&json!({"gpus": [{}]})).is_empty());
}
