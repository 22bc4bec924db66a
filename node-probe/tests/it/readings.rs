//! Each reading comes from the library, and unsupported ones are not numbers.

use crate::harness::{Node, probe};
use nodeglass_protocol::Reading::{self, Failed, Unsupported, Value};
use nodeglass_protocol::Vendor;
use nodeglass_protocol::probe::{GpuSample, SourceState, SourceVersions};
use serde_json::json;

#[test]
fn the_first_line_identifies_probe_and_node() {
    let node =
        Node::new(&json!({"gpus": [{"name": "NVIDIA H100", "uuid": "GPU-h", "minor": 5, "bus": 0x4f}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    assert_eq!(hello.pid, probe.pid());
    assert_eq!(hello.build.as_str().len(), node_probe::build::LENGTH);
    assert!(
        hello.cpus > 0 && hello.mem_total_bytes > 0 && !hello.boot_id.is_empty() && !hello.user.is_empty()
    );
    let versions = SourceVersions {
        driver: Value("550.54.15".into()),
        library: Value("12.550.54.15".into()),
        platform: Value("12.4".into()),
    };
    assert_eq!(hello.sources, [SourceState::ready(Vendor::Nvidia, versions)]);
    let gpu = &hello.gpus[0];
    assert_eq!(gpu.vendor, Vendor::Nvidia);
    assert_eq!((gpu.uuid.as_str(), gpu.index, &gpu.minor), ("GPU-h", 0, &Value(5)));
    assert_eq!((&gpu.name, &gpu.pci), (&Value("NVIDIA H100".into()), &Value("00000000:4F:00.0".into())));
    assert_eq!(
        (&gpu.sm_clock_max_mhz, &gpu.mem_clock_max_mhz, &gpu.temp_slowdown_c),
        (&Value(1410), &Value(1593), &Value(92))
    );
}

#[test]
fn each_reading_follows_the_driver() {
    let node = Node::new(&json!({"gpus": [{}, {}]}));
    let mut probe = node.start(&[]);
    let before = probe.sample(|sample| sample.gpus.len() == 2);
    node.set(&json!({"gpus": [{}, {
        "util": 97, "mem_util": 41, "mem_total_mib": 40960, "mem_used_mib": 12345, "mem_reserved_mib": 77, "temp": 66,
        "power_mw": 301500, "power_limit_mw": 350000, "sm_clock": 1380, "mem_clock": 1215, "throttle": 4,
        "ecc_uncorrected": 2, "ecc_corrected": 9, "p_state": 2, "fan": 55,
    }]}));
    let after = probe.sample(|sample| sample.gpus[1].util_pct == Value(97));
    // The file may change between two calls of one sample: use a later one.
    let settled = probe.sample(|sample| sample.seq > after.seq);
    let mib = |mib: u64| Value(mib << 20);
    let wanted = GpuSample {
        util_pct: Value(97),
        mem_util_pct: Value(41),
        mem_used_bytes: mib(12_345),
        mem_total_bytes: mib(40_960),
        mem_reserved_bytes: mib(77),
        temp_c: Value(66),
        power_mw: Value(301_500),
        power_limit_mw: Value(350_000),
        sm_clock_mhz: Value(1_380),
        mem_clock_mhz: Value(1_215),
        throttle_reasons: Value(4),
        ecc_uncorrected: Value(2),
        ecc_corrected: Value(9),
        p_state: Value(2),
        fan_pct: Value(55),
        // `everything.rs` covers the other ones.
        ..settled.gpus[1].clone()
    };
    assert_eq!(settled.gpus[1], wanted);
    let idle = |sample: &GpuSample| (sample.util_pct.clone(), sample.temp_c.clone(), sample.power_mw.clone());
    assert_eq!(idle(&settled.gpus[0]), idle(&before.gpus[0]));
}

#[test]
fn samples_are_numbered_without_gaps_and_monotonic() {
    let node = Node::new(&json!({"gpus": [{}]}));
    let mut probe = node.start(&[]);
    let mut last = probe.sample(|_| true);
    for _ in 0..4 {
        let next = probe.sample(|_| true);
        assert_eq!(next.seq, last.seq + 1);
        assert!(next.mono_ns > last.mono_ns && !next.replay);
        assert!(next.host.mem_used_bytes.value().is_some() && next.host.load1_centi.value().is_some());
        last = next;
    }
    assert!(last.host.cpu_pct.value().is_some());
}

#[test]
fn missing_readings_are_unsupported_and_failures_have_a_reason() {
    let lacking = json!({"util": null, "temp": null, "power_mw": null, "fan": null, "p_state": 32});
    let failing = json!({"errors": {"nvmlDeviceGetTemperatureV": 4, "nvmlDeviceGetPowerUsage": 999, "nvmlDeviceGetMinorNumber": 3}});
    let node = Node::new(&json!({"gpus": [lacking, failing]}));
    let mut probe = node.start(&[]);
    assert_eq!(probe.hello(|_| true).gpus[1].minor, Unsupported);
    let sample = probe.sample(|_| true);
    let [first, second] = &sample.gpus[..] else { panic!("two GPUs") };
    for reading in
        [&first.util_pct, &first.mem_util_pct, &first.temp_c, &first.power_mw, &first.fan_pct, &first.p_state]
    {
        assert_eq!(*reading, Unsupported);
    }
    assert_eq!(first.sm_clock_mhz, Value(210));
    assert_eq!(second.temp_c, Failed("insufficient permissions".into()));
    assert_eq!(second.power_mw, Failed("unknown error".into()));
    assert_eq!(second.util_pct, Value(0));
}

#[test]
fn a_driver_before_510_is_read_with_older_calls() {
    let process = json!({"pid": std::process::id(), "mem_mib": 100});
    let node = Node::with_old_driver(
        &json!({"gpus": [{"mem_used_mib": 1000, "mem_reserved_mib": 24, "processes": [process]}]}),
    );
    let mut probe = node.start(&[]);
    let sample = probe.sample(|sample| !sample.gpus.is_empty());
    // Version 1 counts reserved memory as used.
    assert_eq!(sample.gpus[0].mem_used_bytes, Value(1024 << 20));
    assert_eq!(sample.gpus[0].mem_total_bytes, Value(81_920 << 20));
    assert_eq!(sample.gpus[0].mem_reserved_bytes, Unsupported);
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(list.processes[0].facts.pid, std::process::id());
    assert_eq!(list.processes[0].now.gpu_mem_bytes, Value(100 << 20));
}

#[test]
fn instances_follow_their_gpu_without_board_readings() {
    let inner = json!({"pid": 4_000_001, "mem_mib": 5});
    let mig = json!([{"uuid": "MIG-a", "gi": 7, "mem_used_mib": 10}, {"uuid": "MIG-b", "gi": 8, "mem_used_mib": 20, "processes": [inner]}]);
    let node = Node::new(&json!({"gpus": [{"uuid": "GPU-0", "mig": mig}, {"uuid": "GPU-1"}]}));
    let mut probe = node.start(&[]);
    let hello = probe.hello(|_| true);
    let uuids: Vec<_> = hello.gpus.iter().map(|gpu| gpu.uuid.as_str()).collect();
    assert_eq!(uuids, ["GPU-0", "MIG-a", "MIG-b", "GPU-1"]);
    assert_eq!(hello.gpus[2].mig_parent.as_ref().unwrap().as_str(), "GPU-0");
    assert_eq!(hello.gpus[3].mig_parent, None);
    let sample = probe.sample(|_| true);
    assert_eq!(sample.gpus[0].util_pct, Unsupported);
    assert_eq!((&sample.gpus[0].temp_c, &sample.gpus[1].temp_c), (&Value(31), &Unsupported));
    assert_eq!(sample.gpus[2].mem_used_bytes, Value(20 << 20));
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!((list.processes.len(), list.processes[0].facts.gpu.as_str()), (1, "MIG-b"));
}

#[test]
fn changing_readings_are_observed() {
    let node = Node::new(&json!({"motion": true, "gpus": [{}]}));
    let mut probe = node.start(&[]);
    let first = probe.sample(|_| true);
    let moved =
        |reading: &Reading<u64>, before: &Reading<u64>| reading.value().is_some() && reading != before;
    probe.sample(|sample| moved(&sample.gpus[0].power_mw, &first.gpus[0].power_mw));
}

#[test]
fn once_prints_json_and_its_exit_status_reports_gpus() {
    let node = Node::new(&json!({"gpus": [{"util": 12}]}));
    let output = node.command().arg("--once").output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    let once: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(once["sample"]["gpus"][0]["util_pct"], 12);
    assert!(once["sample"]["host"]["cpu_pct"].is_u64() && once["processes"].is_array());
    // Rates need two readings.
    assert!(once["sample"]["gpus"][0]["nvlink_rx_bytes_s"].is_u64());
    assert!(once["health"][0]["nvlinks"][0]["rx_mib_s"].is_u64());
    for (state, why) in [
        (json!({"init": 9}), "node-probe: the NVIDIA driver is not loaded: its kernel module is missing\n"),
        (json!({}), "node-probe: the NVIDIA driver is loaded but shows no GPU to this user\n"),
    ] {
        node.set(&state);
        let output = node.command().arg("--once").output().unwrap();
        assert_eq!(
            (output.status.code(), String::from_utf8(output.stderr).unwrap().as_str()),
            (Some(3), why)
        );
        assert!(serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok());
    }
}

#[test]
fn a_probe_of_another_build_exits_at_once() {
    let output = probe().args(["--expect", "0123456789abcdef"]).output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let id = String::from_utf8(probe().arg("--build-id").output().unwrap().stdout).unwrap();
    assert_eq!(id.trim(), node_probe::build::of(env!("CARGO_BIN_EXE_node-probe").as_ref()).unwrap());
    let node = Node::new(&json!({"gpus": [{}]}));
    let output = node.command().args(["--once", "--expect", id.trim()]).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
}
