//! AMD GPUs through the real probe, on trees as their kernel driver shows them.

use crate::harness::{Node, Probe};
use crate::sysfs::{Tree, gpu_metrics};
use nodeglass_protocol::probe::Control;
use nodeglass_protocol::{Reading, Vendor};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use std::fs;

/// PCI address of most GPUs below.
const PCI: &str = "0000:c3:00.0";
/// What is read of a suspended GPU.
const ASLEEP: &str = "the GPU is suspended, and reading it would wake it";

/// An Instinct MI210, with two processes of ROCm and one that decodes video.
pub fn mi210() -> Tree {
    let tree = Tree::new();
    add_mi210(&tree, 1, PCI, "2b3f0a1c5d6e7f80");
    tree
}

/// Adds such a card.
pub fn add_mi210(tree: &Tree, number: u32, pci: &str, unique_id: &str) {
    tree.card(
        number,
        pci,
        "amdgpu",
        &[
            ("vendor", "0x1002"),
            ("device", "0x740f"),
            ("revision", "0x02"),
            ("class", "0x038000"),
            ("unique_id", unique_id),
            ("product_name", "AMD INSTINCT MI210"),
            ("serial_number", "692231000123"),
            ("vbios_version", "113-D67301-063"),
            ("numa_node", "1"),
            ("local_cpulist", "32-63"),
            ("gpu_busy_percent", "97"),
            ("mem_busy_percent", "41"),
            ("mem_info_vram_used", "34359738368"),
            ("mem_info_vram_total", "68702699520"),
            ("mem_info_gtt_used", "12582912"),
            ("mem_info_gtt_total", "135000000000"),
            ("pp_dpm_sclk", "0: 500Mhz\n1: 800Mhz\n2: 1700Mhz *"),
            ("pp_dpm_mclk", "0: 400Mhz\n1: 1600Mhz *"),
            ("current_link_speed", "16.0 GT/s PCIe"),
            ("current_link_width", "8"),
            ("max_link_speed", "16.0 GT/s PCIe"),
            ("max_link_width", "16"),
            ("pcie_replay_count", "3"),
            ("power/runtime_status", "active"),
            ("ras/umc_err_count", "ue: 1\nce: 12"),
            ("ras/gfx_err_count", "ue: 0\nce: 2"),
            ("ras/gpu_vram_bad_pages", "0x00001a2b : 0x00001000 : R\n0x00001a2c : 0x00001000 : P"),
            ("hwmon/hwmon4/name", "amdgpu"),
            ("hwmon/hwmon4/temp1_label", "edge"),
            ("hwmon/hwmon4/temp1_input", "54000"),
            ("hwmon/hwmon4/temp1_crit", "100000"),
            ("hwmon/hwmon4/temp1_emergency", "105000"),
            ("hwmon/hwmon4/temp2_label", "junction"),
            ("hwmon/hwmon4/temp2_input", "68000"),
            ("hwmon/hwmon4/temp3_label", "mem"),
            ("hwmon/hwmon4/temp3_input", "61000"),
            ("hwmon/hwmon4/temp3_crit", "94000"),
            ("hwmon/hwmon4/power1_average", "241000000"),
            ("hwmon/hwmon4/power1_cap", "300000000"),
            ("hwmon/hwmon4/power1_cap_default", "300000000"),
            ("hwmon/hwmon4/power1_cap_max", "300000000"),
            ("hwmon/hwmon4/power1_cap_min", "0"),
            ("hwmon/hwmon4/freq1_label", "sclk"),
            ("hwmon/hwmon4/freq1_input", "1695000000"),
            ("hwmon/hwmon4/freq2_label", "mclk"),
            ("hwmon/hwmon4/freq2_input", "1600000000"),
        ],
    );
    let energy = 65_536 * 3_600;
    let throttled = 1 << 36 | 1;
    tree.attribute(pci, "gpu_metrics", gpu_metrics(120, 1, 3, &[(24, energy, 8), (112, throttled, 8)]));
}

fn add_kfd(tree: &Tree, gpu_id: u32, processes: &[(u32, u64, u64)]) {
    let node = "sys/class/kfd/kfd/topology/nodes";
    tree.file(
        &format!("{node}/0/properties"),
        "cpu_cores_count 64\nsimd_count 0\nsimd_per_cu 0\nlocation_id 0\ndomain 0\n",
    );
    tree.file(
        &format!("{node}/1/properties"),
        "cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\nlocation_id 49920\ndomain 0\n",
    );
    tree.file(&format!("{node}/0/gpu_id"), "0\n");
    tree.file(&format!("{node}/1/gpu_id"), format!("{gpu_id}\n"));
    for (pid, vram, units) in processes {
        let folder = format!("sys/class/kfd/kfd/proc/{pid}");
        tree.file(&format!("{folder}/vram_{gpu_id}"), format!("{vram}\n"));
        tree.file(&format!("{folder}/stats_{gpu_id}/cu_occupancy"), format!("{units}\n"));
    }
}

/// The only GPU of a sample.
pub fn gpu(report: &Value) -> &Value {
    assert_eq!(report["sample"]["gpus"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["sample"]["gpus"][0].get("fault"), None, "{report}");
    &report["sample"]["gpus"][0]
}

#[test]
fn all_readings_of_an_instinct_are_mapped() {
    let report = mi210().report();
    assert_eq!(report["hello"]["sources"].as_array().map(Vec::len), Some(2), "NVIDIA is absent, AMD is not");
    assert_eq!(
        report["hello"]["sources"][1]["status"]["ready"]["driver"],
        "amdgpu of Linux 6.8.0-45-generic"
    );
    let facts = &report["hello"]["gpus"][0];
    let expected = json!({
        "uuid": "AMD-2b3f0a1c5d6e7f80", "index": 0, "vendor": "amd", "minor": 0, "pci": "00000000:C3:00.0",
        "name": "AMD INSTINCT MI210", "serial": "692231000123", "vbios": "113-D67301-063", "numa_node": 1,
        "cpu_affinity": "32-63", "sm_clock_max_mhz": 1_700, "mem_clock_max_mhz": 1_600,
        "temp_slowdown_c": 100, "temp_shutdown_c": 105, "temp_mem_max_c": 94, "power_default_mw": 300_000,
        "pcie_gen_max": 4, "pcie_width_max": 16, "ecc_mode": true, "mig_mode": "unsupported",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(facts[name], *value, "{name}");
    }
    let gpu = gpu(&report);
    let expected = json!({
        "util_pct": 97, "mem_util_pct": 41, "mem_used_bytes": 34_359_738_368_u64,
        "mem_total_bytes": 68_702_699_520_u64, "temp_c": 54, "mem_temp_c": 61, "hotspot_temp_c": 68, "host_mem_used_bytes": 12_582_912, "power_mw": 241_000,
        "power_limit_mw": 300_000, "sm_clock_mhz": 1_695, "mem_clock_mhz": 1_600, "energy_mj": 3_600_000,
        "throttle_reasons": 0x44, "ecc_corrected": 14, "ecc_uncorrected": 1, "sm_active_pct": "unsupported",
        "fan_pct": "unsupported",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(gpu[name], *value, "{name}");
    }
    let health = &report["health"][0];
    assert_eq!([&health["pcie_gen"], &health["pcie_width"], &health["pcie_replays"]], [4, 8, 3]);
    assert_eq!((&health["retired_uncorrected"], &health["retired_pending"]), (&json!(1), &json!(true)));
}

#[test]
fn the_hbm_generation_reports_through_its_table() {
    let tree = Tree::new();
    tree.card(
        1,
        PCI,
        "amdgpu",
        &[
            ("device", "0x74a1"),
            ("revision", "0x00"),
            ("unique_id", "0"),
            ("gpu_busy_percent", "100"),
            ("mem_info_vram_used", "1073741824"),
            ("mem_info_vram_total", "206158430208"),
            ("current_compute_partition", "SPX"),
            ("hwmon/hwmon7/temp2_label", "junction"),
            ("hwmon/hwmon7/temp2_input", "63000"),
            ("hwmon/hwmon7/power1_cap", "750000000"),
        ],
    );
    tree.file("usr/share/libdrm/amdgpu.ids", "# List\n1.0.0\n74A1,\t00,\tAMD Instinct MI300X\n");
    let links = (0..16).map(|link| (104 + 8 * link, 1_000, 8));
    let fields = [
        (6, 55, 2),
        (10, 612, 2),
        (14, 37, 2),
        (88, 5, 8),
        (240, 2_100, 2),
        (242, 2_107, 2),
        (280, 1_300, 2),
    ];
    tree.attribute(PCI, "gpu_metrics", gpu_metrics(288, 1, 4, &links.chain(fields).collect::<Vec<_>>()));
    let report = tree.report();
    let (facts, gpu) = (&report["hello"]["gpus"][0], gpu(&report));
    assert_eq!((&facts["uuid"], &facts["name"]), (&json!("AMD-0000:c3:00.0"), &json!("AMD Instinct MI300X")));
    assert_eq!(facts["compute_mode"], "one partition (SPX)");
    let expected = json!({
        "temp_c": 63, "mem_temp_c": 55, "power_mw": 612_000, "mem_util_pct": 37, "sm_clock_mhz": 2_107,
        "mem_clock_mhz": 1_300, "nvlink_rx_bytes_s": 0, "nvlink_tx_bytes_s": 0,
        "throttle_reasons": "unsupported",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(gpu[name], *value, "{name}");
    }
    assert_eq!(report["health"][0]["pcie_replays"], 5);
}

#[test]
fn a_card_behind_its_own_switch_has_the_link_of_the_slot() {
    let tree = Tree::new();
    let pci = "0000:02:00.0/0000:03:00.0";
    tree.card(0, pci, "amdgpu", &[("vendor", "0x1002")]);
    tree.attributes(
        pci,
        &[
            ("current_link_speed", "32.0 GT/s PCIe"),
            ("current_link_width", "16"),
            ("pwm1", "9"),
            ("hwmon/hwmon2/pwm1", "102"),
        ],
    );
    tree.attributes(
        "0000:02:00.0",
        &[
            ("vendor", "0x1002"),
            ("class", "0x060400"),
            ("current_link_speed", "8.0 GT/s PCIe"),
            ("current_link_width", "4"),
        ],
    );
    tree.file("sys/devices/pci0000:00/0000:00:01.1/vendor", "0x1002\n");
    tree.file("sys/devices/pci0000:00/0000:00:01.1/class", "0x060400\n");
    tree.file("sys/devices/pci0000:00/0000:00:01.1/current_link_width", "1\n");
    tree.attributes("0000:02:00.0", &[("max_link_width", "16"), ("max_link_speed", "32.0 GT/s PCIe")]);
    tree.file("sys/devices/pci0000:00/0000:00:01.1/max_link_width", "8\n");
    let report = tree.report();
    assert_eq!([&report["health"][0]["pcie_gen"], &report["health"][0]["pcie_width"]], [3, 4]);
    let facts = &report["hello"]["gpus"][0];
    assert_eq!(
        [&facts["pcie_gen_max"], &facts["pcie_width_max"]],
        [5, 8],
        "the slot has fewer lanes than the card"
    );
    assert_eq!(gpu(&report)["fan_pct"], 40);
}

#[test]
fn a_processor_with_a_gpu_counts_the_host_memory_that_it_uses() {
    let tree = Tree::new();
    tree.card(
        0,
        "0000:04:00.0",
        "amdgpu",
        &[
            ("device", "0x1681"),
            ("gpu_busy_percent", "12"),
            ("mem_info_vram_used", "268435456"),
            ("mem_info_vram_total", "536870912"),
            ("mem_info_gtt_used", "1073741824"),
            ("mem_info_gtt_total", "8589934592"),
            ("hwmon/hwmon3/temp1_label", "edge"),
            ("hwmon/hwmon3/temp1_input", "47000"),
            ("hwmon/hwmon3/power1_input", "11000000"),
        ],
    );
    tree.attribute(
        "0000:04:00.0",
        "gpu_metrics",
        gpu_metrics(152, 2, 3, &[(76, 1_800, 2), (80, 2_400, 2), (120, 0, 8)]),
    );
    let fdinfo = "drm-driver:\tamdgpu\ndrm-pdev:\t0000:04:00.0\ndrm-client-id:\t7\ndrm-memory-vram:\t1024 KiB\n\
        drm-memory-gtt:\t2048 KiB\ndrm-engine-gfx:\t50 ns\n";
    tree.open_file(std::process::id(), 5, "/dev/dri/renderD128", fdinfo);
    let report = tree.report();
    let (facts, gpu) = (&report["hello"]["gpus"][0], gpu(&report));
    assert_eq!((&facts["unified_memory"], &facts["minor"]), (&json!(true), &json!("unsupported")));
    assert_eq!(
        (&gpu["mem_used_bytes"], &gpu["mem_total_bytes"]),
        (&json!(1_342_177_280), &json!(9_126_805_504_u64))
    );
    assert_eq!([&gpu["power_mw"], &gpu["sm_clock_mhz"], &gpu["throttle_reasons"]], [11_000, 1_800, 0]);
    assert_eq!(report["processes"][0]["now"]["gpu_mem_bytes"], 3 << 20);
    assert_eq!(report["processes"][0]["facts"]["kind"]["graphics"], true);
}

#[test]
fn processes_are_found_by_their_files_and_by_the_compute_driver() {
    let tree = mi210();
    let (own, other) = (std::process::id(), 1);
    add_kfd(&tree, 4_242, &[(own, 8 << 30, 52), (other, 2 << 30, 0), (99_999_999, 0, 0)]);
    let client = |id: u64, kib: u64| {
        format!(
            "drm-driver:\tamdgpu\ndrm-pdev:\t{PCI}\ndrm-client-id:\t{id}\ndrm-memory-vram:\t{kib} KiB\ndrm-engine-dec:\t0 ns\n"
        )
    };
    tree.open_file(own, 3, "/dev/null", &client(9, 1));
    tree.open_file(own, 7, "/dev/dri/renderD129", &client(51, 1_024));
    // A descriptor of the same client, as `dup` makes them, does not count twice.
    tree.open_file(own, 8, "/dev/dri/renderD129", &client(51, 1_024));
    tree.open_file(own, 9, "/dev/kfd", "pos:\t0\n");
    tree.open_file(own, 10, "/dev/dri/card1", "junk\n:::\ndrm-pdev:\n");
    let report = tree.report();
    let processes: Vec<_> = report["processes"].as_array().unwrap().iter().collect();
    assert_eq!(processes.len(), 2, "{processes:?}");
    assert_eq!(processes[0]["facts"]["pid"], 1);
    assert_eq!(processes[1]["facts"]["pid"], own);
    assert_eq!(
        [&processes[0]["now"]["gpu_mem_bytes"], &processes[1]["now"]["gpu_mem_bytes"]],
        [2_u64 << 30, 8 << 30]
    );
    // 52 of 104 compute units.
    assert_eq!([&processes[1]["now"]["sm_pct"], &processes[1]["now"]["dec_pct"]], [50, 0]);
    assert_eq!(report["hello"]["gpus"][0]["architecture"], "gfx90a");
    assert_eq!(report["process_gaps"], json!([]));
}

#[test]
fn what_cannot_be_read_is_neither_zero_nor_an_obstacle() {
    let tree = mi210();
    let odd = |name: &str, content: &[u8]| _ = tree.attribute(PCI, name, content);
    odd("gpu_busy_percent", b"18446744073709551616\n");
    odd("mem_busy_percent", b"101\n");
    odd("mem_info_vram_used", &vec![b'7'; 1 << 20]);
    odd("mem_info_vram_total", b"\xff\xfe\n");
    odd("hwmon/hwmon4/temp1_input", b"-12000\n");
    odd("hwmon/hwmon4/freq1_input", b"");
    odd("gpu_metrics", &gpu_metrics(120, 1, 3, &[])[..77]);
    odd("ras/umc_err_count", b"ue: -1\nce: lots\n");
    let replace_by = |name: &str| {
        let path = tree.path(PCI, name);
        fs::remove_file(&path).unwrap();
        path
    };
    mknodat(CWD, replace_by("hwmon/hwmon4/power1_average"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)
        .unwrap();
    let path = replace_by("hwmon/hwmon4/power1_cap");
    std::os::unix::fs::symlink(&path, &path).unwrap();
    fs::create_dir(replace_by("current_link_width")).unwrap();
    replace_by("hwmon/hwmon4/temp3_input");
    let report = tree.report();
    let gpu = gpu(&report);
    let failed = |name: &str| {
        gpu[name]["failed"].as_str().unwrap_or_else(|| panic!("{name}: {}", gpu[name])).to_owned()
    };
    assert_eq!(failed("util_pct"), "not the number that it should be");
    assert_eq!(failed("mem_util_pct"), "the driver reported 101 %");
    assert_eq!(failed("mem_used_bytes"), "longer than it should be");
    assert_eq!(failed("mem_total_bytes"), "not the text that it should be");
    assert_eq!(failed("temp_c"), "the driver reported -12 °C");
    assert_eq!(failed("power_mw"), "not a regular file");
    assert_eq!(failed("ecc_corrected"), "not the error counts that they should be");
    assert!(failed("power_limit_mw").contains("symbolic links"), "{}", failed("power_limit_mw"));
    assert_eq!(
        (&gpu["mem_temp_c"], &gpu["throttle_reasons"]),
        (&json!("unsupported"), &json!("unsupported"))
    );
    assert_eq!(gpu["mem_clock_mhz"], 1_600, "the others are read as before");
    assert!(report["health"][0]["pcie_width"]["failed"].is_string());
}

#[test]
fn a_suspended_gpu_is_not_read() {
    let tree = mi210();
    tree.attributes(PCI, &[("power/runtime_status", "suspended")]);
    let report = tree.report();
    let gpu = gpu(&report);
    assert_eq!([&gpu["util_pct"]["failed"], &gpu["power_mw"]["failed"]], [ASLEEP, ASLEEP]);
    assert_eq!(report["hello"]["gpus"][0]["name"], "AMD INSTINCT MI210");
    assert_eq!(report["hello"]["gpus"][0]["power_max_mw"], Value::Null, "not known yet");
}

#[test]
fn a_machine_without_amd_gpus_does_not_mention_them() {
    let tree = Tree::new();
    // The display controller of a board's management processor, and a virtual GPU.
    tree.card(0, "0000:02:00.0", "ast", &[("vendor", "0x1a03")]);
    tree.card(1, "0000:05:00.0", "virtio-pci", &[("vendor", "0x1af4")]);
    let output = tree.once();
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(3));
    assert_eq!(report["hello"]["sources"].as_array().map(Vec::len), Some(1), "{report}");
    assert_eq!(report["hello"]["sources"][0]["vendor"], "nvidia");
    assert!(!String::from_utf8_lossy(&output.stderr).contains("AMD"));
}

#[test]
fn a_gpu_that_vanishes_is_lost_and_one_that_appears_is_added() {
    let tree = mi210();
    add_mi210(&tree, 2, "0000:c6:00.0", "1111111111111111");
    let mut command = tree.command();
    command.args(["--retry-ms", "100"]);
    let mut probe = Probe::start(command);
    probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
    probe.hello(|hello| hello.gpus.len() == 2);
    fs::remove_file(tree.root().join("sys/class/drm/card1")).unwrap();
    let sample = probe.sample(|sample| sample.gpus.len() == 2 && sample.gpus[0].fault.is_some());
    assert!(sample.gpus[0].fault.as_ref().unwrap().as_str().starts_with("GPU is lost"));
    assert_eq!(sample.gpus[1].util_pct, Reading::Value(97));
    add_mi210(&tree, 3, "0000:c9:00.0", "3333333333333333");
    probe.hello(|hello| hello.gpus.len() == 3);
}

#[test]
fn gpus_of_three_vendors_are_read_by_one_probe() {
    let tree = mi210();
    crate::intel::add_b580(&tree, 2, "0000:c6:00.0");
    let node = Node::new(&json!({"gpus": [{"uuid": "GPU-1", "util": 55}]}));
    let mut command = node.command();
    command.arg("--sysroot").arg(tree.root());
    let mut probe = Probe::start(command);
    let hello = probe.hello(|_| true);
    let vendors: Vec<_> = hello.gpus.iter().map(|gpu| gpu.vendor).collect();
    assert_eq!(vendors, [Vendor::Nvidia, Vendor::Amd, Vendor::Intel]);
    let numbers = [&hello.gpus[1].minor, &hello.gpus[2].minor];
    assert_eq!(numbers, [&Reading::Unsupported; 2], "SLURM counts all in one sequence");
    let sample = probe.sample(|sample| sample.gpus.len() == 3);
    assert_eq!(sample.gpus[1].util_pct, Reading::Value(97));
    assert_eq!(sample.gpus[2].sm_clock_mhz, Reading::Value(2_850));
    assert!(sample.gpus[0].fault.is_none());
}

/// The memory and identity of the GPU of a processor with a carve-out of 512 MiB.
fn of_apu(attributes: &[(&str, &str)], table: Option<Vec<u8>>) -> [Value; 4] {
    let tree = Tree::new();
    tree.card(
        0,
        PCI,
        "amdgpu",
        &[
            ("vendor", "0x1002"),
            ("mem_info_vram_used", "155189248"),
            ("mem_info_vram_total", "536870912"),
            ("mem_info_gtt_used", "25769803776"),
            ("mem_info_gtt_total", "133143986176"),
        ],
    );
    tree.attributes(PCI, attributes);
    if let Some(table) = table {
        tree.attribute(PCI, "gpu_metrics", table);
    }
    let report = tree.report();
    let (facts, gpu) = (&report["hello"]["gpus"][0], gpu(&report));
    [&gpu["mem_total_bytes"], &gpu["mem_used_bytes"], &facts["unified_memory"], &facts["minor"]]
        .map(Value::clone)
}

#[test]
fn the_gpu_of_a_processor_is_known_by_any_of_its_marks() {
    let integrated =
        [json!(133_680_857_088_u64), json!(25_924_993_024_u64), json!(true), json!("unsupported")];
    assert_eq!(of_apu(&[("device", "0x15d8")], None), integrated);
    assert_eq!(of_apu(&[("device", "0x1586")], None), integrated);
    assert_eq!(of_apu(&[("device", "0xffff"), ("hwmon/hwmon3/in1_label", "vddnb")], None), integrated);
    // A table of a later version than is known.
    assert_eq!(of_apu(&[("device", "0xffff")], Some(gpu_metrics(300, 3, 7, &[]))), integrated);
    let discrete = of_apu(&[("device", "0x740f")], Some(gpu_metrics(120, 1, 3, &[])));
    assert_eq!(discrete[0], 536_870_912);
    assert_eq!(discrete[3], 0);
}

#[test]
fn a_fan_that_only_counts_turns_has_a_share_of_its_highest_speed() {
    let tree = Tree::new();
    tree.card(
        0,
        PCI,
        "amdgpu",
        &[("device", "0x744c"), ("hwmon/hwmon3/fan1_input", "1650"), ("hwmon/hwmon3/fan1_max", "3300")],
    );
    let report = tree.report();
    assert_eq!((&gpu(&report)["fan_pct"], &gpu(&report)["fan_rpm"]), (&json!(50), &json!(1_650)));
}

#[test]
fn the_second_die_of_a_card_has_no_power_of_its_own() {
    let tree = mi210();
    add_mi210(&tree, 2, "0000:c6:00.0", "1111111111111111");
    let of_second = ["power1_average", "power1_input", "power1_cap", "power1_cap_max", "power1_cap_default"];
    for name in of_second {
        tree.attributes("0000:c6:00.0", &[(&format!("hwmon/hwmon4/{name}"), "0")]);
    }
    let report = tree.report();
    let (facts, gpus) = (&report["hello"]["gpus"], &report["sample"]["gpus"]);
    assert!(gpus[0]["power_mw"].is_u64() && gpus[0]["power_limit_mw"].is_u64(), "{report}");
    for name in ["power_mw", "power_limit_mw"] {
        assert_eq!(gpus[1][name], "unsupported", "{name}");
    }
    for name in ["power_max_mw", "power_default_mw"] {
        assert_eq!(facts[1][name], "unsupported", "{name}");
    }
}

#[test]
fn implausible_values_of_any_vendor_fail() {
    let tree = Tree::new();
    // Nothing limits the power of the GPU of a processor.
    tree.card(
        0,
        PCI,
        "amdgpu",
        &[
            ("device", "0x744c"),
            ("mem_info_vram_used", "30000000000"),
            ("mem_info_vram_total", "25753026560"),
            ("mem_info_gtt_used", "18446744073709551615"),
            ("hwmon/hwmon3/power1_average", "4294967295000000"),
            ("hwmon/hwmon3/freq1_input", "65535000000000"),
            ("hwmon/hwmon3/fan1_input", "65535"),
            ("hwmon/hwmon3/fan1_max", "3"),
            ("hwmon/hwmon3/temp1_crit", "4294967295000"),
            ("pcie_replay_count", "18446744073709551615"),
        ],
    );
    let report = tree.report();
    let gpu = gpu(&report);
    let failed =
        |name: &str| gpu[name]["failed"].as_str().unwrap_or_else(|| panic!("{name}: {gpu}")).to_owned();
    assert_eq!(failed("mem_used_bytes"), "the driver reported 30000000000 of 25753026560 bytes");
    assert_eq!(failed("host_mem_used_bytes"), "the driver reported 18446744073709551615 bytes");
    assert_eq!(failed("power_mw"), "the driver reported 4294967295000 mW");
    assert_eq!(failed("sm_clock_mhz"), "the driver reported 65535000 MHz");
    assert_eq!(failed("fan_pct"), "the driver reported 2184500 %");
    assert_eq!(failed("fan_rpm"), "the driver reported 65535 rpm");
    assert_eq!(gpu["mem_total_bytes"], 25_753_026_560_u64);
    assert!(report["hello"]["gpus"][0]["temp_slowdown_c"]["failed"].is_string());
    assert!(report["health"][0]["pcie_replays"]["failed"].is_string());
}
