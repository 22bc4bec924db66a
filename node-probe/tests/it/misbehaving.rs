//! Implausible driver results are never shown as values, used as counts, or able to hang the probe.

use crate::harness::{Node, Probe};
use nodeglass_protocol::Reading::{self, Failed, Unsupported, Value};
use nodeglass_protocol::probe::{GpuSample, Hello, ProbeLine};
use serde_json::{Value as Json, json};
use std::fs;

/// Larger than any real count.
const ALL: u32 = u32::MAX;

fn failed<T>(why: &str) -> Reading<T> {
    Failed(why.into())
}

fn sample_of(gpu: Json) -> GpuSample {
    let node = Node::new(&json!({"driver": "580.90.07", "gpus": [gpu]}));
    node.start(&[]).sample(|sample| !sample.gpus.is_empty()).gpus.remove(0)
}

/// Peak memory of a process in KiB (`VmHWM`).
fn most_kib(probe: &Probe) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", probe.pid())).expect("the probe runs");
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("Linux reports it");
    line.trim().trim_end_matches(" kB").parse().expect("it is in kB")
}

#[test]
fn implausible_values_fail_with_the_reported_number() {
    let gpu = sample_of(json!({
        "card": "h100", "util": 255, "mem_util": 4_294_967_295_u32, "engines": {"encoder": 255, "decoder": 101},
        "temp": 4_294_967_256_u32, "thermal": {"mem": 4_294_967_254_u32}, "power_mw": ALL, "power_limit_mw": ALL,
        "sm_clock": ALL, "mem_total_mib": 81_920, "mem_used_mib": 953_674, "p_state": 99, "fan": 255,
        "ecc_uncorrected": u64::MAX, "ecc_corrected": ALL,
    }));
    let wanted: [(&Reading<u64>, &str); 14] = [
        (&gpu.util_pct, "NVML reported 255 %"),
        (&gpu.mem_util_pct, "NVML reported 4294967295 %"),
        (&gpu.enc_pct, "NVML reported 255 %"),
        (&gpu.dec_pct, "NVML reported 101 %"),
        (&gpu.temp_c, "NVML reported -40 °C"),
        (&gpu.mem_temp_c, "NVML reported -42 °C"),
        (&gpu.power_mw, "NVML reported 4294967295 mW"),
        (&gpu.power_limit_mw, "NVML reported 4294967295 mW"),
        (&gpu.sm_clock_mhz, "NVML reported 4294967295 MHz"),
        (&gpu.mem_used_bytes, "NVML reported 999999668224 of 85899345920 bytes"),
        (&gpu.p_state, "NVML reported P-state 99"),
        (&gpu.fan_pct, "NVML reported 255 %"),
        (&gpu.ecc_uncorrected, "NVML reported 18446744073709551615"),
        (&gpu.ecc_corrected, "NVML reported 4294967295"),
    ];
    for (reading, why) in wanted {
        assert_eq!(*reading, failed(why));
    }
    // The other readings are unaffected.
    assert!(gpu.mem_clock_mhz.value().is_some() && gpu.mem_total_bytes == Value(81_920 << 20));
}

#[test]
fn temperature_falls_back_to_the_older_call() {
    for code in [3, 13, 25] {
        let gpu = sample_of(json!({"temp": 41, "errors": {"nvmlDeviceGetTemperatureV": code}}));
        assert_eq!(gpu.temp_c, Value(41), "{code}");
    }
    let gpu = sample_of(json!({"temp": 41, "errors": {"nvmlDeviceGetTemperature": 3}}));
    assert_eq!(gpu.temp_c, Value(41));
}

#[test]
fn a_reading_comes_from_whichever_call_the_driver_offers() {
    let calls = [
        ("nvmlDeviceGetFanSpeed_v2", "nvmlDeviceGetFanSpeed"),
        ("nvmlDeviceGetCurrentClocksThrottleReasons", "nvmlDeviceGetCurrentClocksEventReasons"),
        ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
        ("nvmlDeviceGetTotalEnergyConsumption", "field:83"),
        ("nvmlDeviceGetPowerUsage", "field:186"),
        ("nvmlDeviceGetClockInfo", "nvmlDeviceGetClock"),
        ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
    ];
    let of = |names: &[&str], code: u32| {
        let errors: serde_json::Map<_, _> = names.iter().map(|name| ((*name).into(), code.into())).collect();
        let gpu = sample_of(json!({
            "card": "rtx4090", "fan": 41, "throttle": 4, "power_mw": 200_000, "sm_clock": 2_500, "errors": errors,
        }));
        let GpuSample {
            fan_pct, throttle_reasons, power_limit_mw, energy_mj, power_mw, sm_clock_mhz, ..
        } = gpu;
        [fan_pct, throttle_reasons, power_limit_mw, energy_mj, power_mw, sm_clock_mhz, gpu.mem_total_bytes]
    };
    let (first, second) = calls.iter().copied().unzip::<_, _, Vec<_>, Vec<_>>();
    let values = of(&[], 0);
    for code in [3, 13, 25] {
        for names in [&first, &second] {
            for (position, reading) in of(names, code).iter().enumerate() {
                // The energy grows meanwhile.
                let is_same = *reading == values[position] || position == 3 && reading.value().is_some();
                assert!(is_same, "{code} {}: {reading:?}, not {:?}", names[position], values[position]);
            }
        }
    }
    assert!(of(&[&first[..], &second[..]].concat(), 3).iter().all(|reading| *reading == Unsupported));
}

#[test]
fn processes_come_from_whichever_list_the_driver_offers() {
    let newest = ["nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2"];
    for (count, code) in [(1, 3), (2, 13), (2, 25)] {
        let errors: serde_json::Map<_, _> =
            newest[..count].iter().map(|name| ((*name).into(), code.into())).collect();
        let node = Node::new(&json!({"gpus": [{
            "card": "a100-80g", "errors": errors, "processes": [{"pid": 4_000_001, "mem_mib": 100}],
        }]}));
        let list = node.start(&[]).processes(|list| !list.processes.is_empty() || !list.gaps.is_empty());
        assert_eq!((list.processes.len(), list.gaps.len()), (1, 0), "{code}: {:?}", list.gaps);
        assert_eq!(list.processes[0].now.gpu_mem_bytes, Value(100 << 20), "{code}");
    }
}

#[test]
fn health_facts_and_processes_are_bounded_too() {
    let node = Node::new(&json!({"driver": "580.90.07", "gpus": [{
        "card": "h100", "sm_clock_max": ALL, "temp_slowdown": ALL, "processes": [{"pid": 101, "mem_mib": 1 << 30}],
        "pcie": {"bar1_mib": [1_u64 << 43, 7], "replays": [ALL, 0], "width": [255, 16]},
    }]}));
    let mut probe = node.start(&[]);
    let facts = probe.hello(|hello| !hello.gpus.is_empty()).gpus.remove(0);
    assert_eq!(facts.sm_clock_max_mhz, failed("NVML reported 4294967295 MHz"));
    assert_eq!(facts.temp_slowdown_c, failed("NVML reported -1 °C"));
    let (list, health) = probe.processes_and_health();
    let why = "NVML reported 1125899906842624 of 85520809984 bytes";
    assert_eq!(list.processes[0].now.gpu_mem_bytes, failed(why));
    let health = &health.gpus[0];
    assert_eq!(health.bar1_total_bytes, failed("NVML reported 9223372036854775808 bytes"));
    assert_eq!(health.pcie_replays, failed("NVML reported 4294967295"));
    assert_eq!(health.pcie_width, failed("NVML reported 255"));
}

#[test]
fn implausible_counts_fail_without_allocation() {
    let node = Node::new(&json!({"gpus": [{
        "card": "t4", "fan": 40, "processes": [{"pid": 101, "sm": 9}],
        "retired": {"single_bit": [4096]},
        "numbers": {
            "nvmlDeviceGetNumFans": ALL, "nvmlDeviceGetProcessUtilization": ALL, "nvmlDeviceGetRetiredPages": ALL,
            "nvmlDeviceGetRetiredPages_v2": ALL,
        },
    }]}));
    let mut probe = node.start(&[]);
    let (list, health) = probe.processes_and_health();
    let implausible = "NVML reported 4294967295 entries, which is implausible";
    assert_eq!(list.processes[0].now.sm_pct, failed(implausible));
    let health = &health.gpus[0];
    assert_eq!(health.retired_corrected, failed(implausible));
    let sample = probe.sample(|sample| sample.seq > 4);
    assert_eq!(sample.gpus[0].fan_pct, failed("NVML reported 4294967295 fans"));
    assert!(most_kib(&probe) < 64 << 10, "{} KiB", most_kib(&probe));
}

#[test]
fn a_process_list_of_any_length_does_not_stop_sampling() {
    for length in [65_601, 1_000_000, ALL] {
        let numbers = json!({"nvmlDeviceGetComputeRunningProcesses_v3": length});
        let node = Node::new(&json!({"gpus": [{"numbers": numbers}]}));
        let mut probe = node.start(&[]);
        probe.sample(|sample| sample.seq > 3 && sample.gpus[0].fault.is_none());
        assert!(most_kib(&probe) < 64 << 10, "{length}: {} KiB", most_kib(&probe));
    }
}

#[test]
fn an_implausible_number_of_instances_is_rejected() {
    let numbers = json!({"nvmlDeviceGetMaxMigDeviceCount": ALL});
    let node = Node::new(&json!({"gpus": [{"mig": [{"uuid": "MIG-a"}], "numbers": numbers}, {"util": 5}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|hello| !hello.gpus.is_empty());
    assert_eq!(hello.gpus.len(), 2);
    let why = "NVML reported 4294967295 entries, which is implausible";
    assert_eq!(hello.gpus[0].mig_mode, failed(why));
    assert_eq!(probe.sample(|sample| sample.gpus.len() == 2).gpus[1].util_pct, Value(5));
}

#[test]
fn an_implausible_number_of_gpus_means_no_driver() {
    let absent = |line: ProbeLine| match line {
        ProbeLine::Hello(hello) => match hello.sources[0].absent_reason() {
            Some(why) if why.as_str().contains("implausible") => Some(why.to_string()),
            _ => None,
        },
        _ => None,
    };
    let count = json!({"nvmlDeviceGetCount_v2": ALL});
    let node = Node::new(&json!({"numbers": count, "gpus": [{}]}));
    let mut probe = node.start(&[]);
    let why = "the NVIDIA driver does not work: NVML reported 4294967295 GPUs, which is implausible";
    assert_eq!(probe.until(absent), why);
    // And while the probe runs.
    node.set(&json!({"gpus": [{}]}));
    probe.sample(|sample| sample.gpus.len() == 1);
    node.set(&json!({"numbers": count, "gpus": [{}]}));
    assert_eq!(probe.until(absent), why);
    assert!(most_kib(&probe) < 64 << 10, "{} KiB", most_kib(&probe));
}

#[test]
fn gpus_that_nvml_only_counts_are_not_listed_and_the_others_stay() {
    let node = Node::new(&json!({"gpus": [{"util": 7}, {"util": 8}]}));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus.len() == 2);
    for count in [15, ALL] {
        node.set(&json!({"numbers": {"nvmlDeviceGetCount_v2": count}, "gpus": [{"util": 9}, {"util": 8}]}));
        // Whatever is stated meanwhile: never that the driver is ready and has other GPUs.
        let is_wrong = |hello: &Hello| hello.sources[0].absent_reason().is_none() && hello.gpus.len() != 2;
        let settled = probe.until(|line| match line {
            ProbeLine::Hello(hello) if is_wrong(&hello) => Some(Err(hello.gpus.len())),
            ProbeLine::Hello(hello) if hello.sources[0].absent_reason().is_some() => Some(Ok(())),
            ProbeLine::Sample(sample) if sample.gpus.first().is_some_and(|gpu| gpu.util_pct == Value(9)) => {
                Some(Ok(()))
            }
            _ => None,
        });
        assert_eq!(settled, Ok(()), "{count}");
        node.set(&json!({"gpus": [{"util": 7}, {"util": 8}]}));
        probe.sample(|sample| sample.gpus.len() == 2 && sample.gpus[0].util_pct == Value(7));
    }
}

#[test]
fn links_without_version_and_remote_end_are_no_failures() {
    let link = |version: u32, remote: &str| {
        let nvlink = json!({"links": 2, "down": [0, 1], "version": version, "remote": remote});
        let node = Node::new(&json!({"gpus": [{"nvlink": nvlink}]}));
        node.start(&[]).health(|_| true).gpus.remove(0).nvlinks.remove(0)
    };
    let none = link(0, "unknown");
    assert_eq!((&none.version, &none.remote, &none.up), (&Unsupported, &Unsupported, &Value(false)));
    assert_eq!(link(8, "switch").version, Value(6));
    let newer = "newer than NVLink 6.0, by NVML's number 11: update nodeglass to see which";
    assert_eq!(link(11, "switch").version, failed(newer));
}

#[test]
fn single_and_batched_failures_have_the_same_message() {
    for (code, text) in [
        (1, "the connection to the NVIDIA driver was lost"),
        (2, "the driver rejected the request"),
        (6, "the driver found nothing of the kind"),
        (17, "blocked by the operating system or a cgroup"),
        (27, "the driver is not ready yet"),
    ] {
        let errors = json!({"nvmlDeviceGetPowerUsage": code, "nvmlDeviceGetFieldValues": code});
        let gpu = sample_of(json!({"card": "h100", "errors": errors}));
        assert_eq!((&gpu.power_mw, &gpu.power_instant_mw), (&failed(text), &failed(text)), "{code}");
    }
}

#[test]
fn a_gpu_without_a_uuid_is_read_and_not_called_lost() {
    let node = Node::new(&json!({"gpus": [{"util": 8, "errors": {"nvmlDeviceGetUUID": 999}}]}));
    let mut probe = node.start(&[]);
    assert_eq!(probe.hello(|hello| !hello.gpus.is_empty()).gpus[0].uuid.as_str(), "UNKNOWN-0");
    assert_eq!(probe.sample(|sample| !sample.gpus.is_empty()).gpus[0].util_pct, Value(8));
}

#[test]
fn readings_beyond_the_limits_of_the_card_fail() {
    let gpu = sample_of(json!({"card": "rtx4090", "numbers": {
        "nvmlDeviceGetPowerUsage": 3_700_000, "nvmlDeviceGetClockInfo": 40_000,
    }}));
    assert!(matches!((&gpu.power_mw, &gpu.sm_clock_mhz), (Failed(_), Failed(_))), "{gpu:?}");
    assert!(gpu.power_limit_mw.value().is_some());
}

#[test]
fn two_gpus_with_the_same_uuid_or_none_are_two() {
    let process = |pid: u32| json!([{"pid": pid, "mem_mib": 100, "sm": 40}]);
    let node = Node::new(&json!({"gpus": [
        {"uuid": "GPU-a", "util": 40, "processes": process(4_000_001)},
        {"uuid": "GPU-a", "util": 40, "processes": process(4_000_002)},
        {"uuid": "", "util": 40, "processes": process(4_000_003)},
    ]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|hello| hello.gpus.len() == 3);
    let uuids: Vec<_> = hello.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    assert_eq!(uuids, ["GPU-a", "UNKNOWN-1", "UNKNOWN-2"]);
    let list = probe.processes(|list| {
        let shares = || list.processes.iter().map(|process| &process.now.sm_pct);
        shares().count() == 3 && shares().all(|share| *share == Value(40))
    });
    let gpus: Vec<_> = list.processes.iter().map(|process| process.facts.gpu.as_str()).collect();
    assert_eq!(gpus, uuids);
}

#[test]
fn what_the_library_prints_is_not_among_the_lines() {
    let call = "nvmlDeviceGetPowerUsage";
    let node = Node::new(&json!({"prints": call, "gpus": [{"util": 8}]}));
    // Each line is parsed, and a message among them fails the test.
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.seq > 2 && sample.gpus.len() == 1);
    let output = node.command().args(["--once", "--json"]).output().expect("it runs");
    let report: Json = serde_json::from_slice(&output.stdout).expect("JSON alone");
    assert_eq!(report["sample"]["gpus"][0]["util_pct"], 8);
    assert!(String::from_utf8_lossy(&output.stderr).contains("a message of the library"));
}

#[test]
fn a_library_that_ends_the_process_is_the_reason_of_a_failure() {
    let why = "a vendor's library ended the process";
    let node = Node::new(&json!({"gpus": [{}]}));
    let mut probe = node.start(&[]);
    probe.sample(|sample| sample.gpus.len() == 1);
    node.set(&json!({"exits": "nvmlDeviceGetPowerUsage", "gpus": [{}]}));
    assert_eq!(probe.bye(), format!("internal error: {why}"));
    assert_eq!(probe.ended().code(), Some(1));
    let output = node.command().args(["--once", "--json"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains(why), "{output:?}");
}
