//! Intel GPUs through the real probe, on trees as the drivers i915 and Xe show them.

use crate::amd::gpu;
use crate::harness::Probe;
use crate::sysfs::Tree;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::{Control, ProbeLine};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::json;
use std::{fs, os::unix::fs::symlink, path::Path};

/// PCI address of the GPU in most trees.
const PCI: &str = "0000:03:00.0";

/// An Arc B580 with the driver Xe.
pub fn add_b580(tree: &Tree, number: u32, pci: &str) {
    let gt = |name: &str| format!("tile0/gt0/{name}");
    tree.card(
        number,
        pci,
        "xe",
        &[
            ("vendor", "0x8086"),
            ("device", "0xe20b"),
            ("power/runtime_status", "active"),
            (&gt("freq0/act_freq"), "2850"),
            (&gt("freq0/rp0_freq"), "2900"),
            (&gt("freq0/throttle/status"), "1"),
            (&gt("freq0/throttle/reason_pl1"), "1"),
            (&gt("freq0/throttle/reason_thermal"), "0"),
            (&gt("gtidle/idle_residency_ms"), "5000"),
            ("tile0/gt1/freq0/act_freq", "0"),
            ("tile0/gt1/gtidle/idle_residency_ms", "90000"),
            ("hwmon/hwmon5/name", "xe"),
            ("hwmon/hwmon5/temp2_label", "pkg"),
            ("hwmon/hwmon5/temp2_input", "52000"),
            ("hwmon/hwmon5/temp3_label", "vram"),
            ("hwmon/hwmon5/temp3_input", "60000"),
            ("hwmon/hwmon5/energy1_input", "1000000000"),
            ("hwmon/hwmon5/power1_max", "190000000"),
            ("hwmon/hwmon5/fan1_input", "0"),
            ("hwmon/hwmon5/fan2_input", "1180"),
        ],
    );
}

#[test]
fn all_readings_of_xe_are_mapped() {
    let tree = Tree::new();
    add_b580(&tree, 0, PCI);
    tree.file("usr/share/misc/pci.ids", "8086  Intel Corporation\n\te20b  Battlemage G21 [Arc B580]\n");
    let report = tree.report();
    let facts = &report["hello"]["gpus"][0];
    assert_eq!((&facts["name"], &facts["vendor"]), (&json!("Intel Arc B580"), &json!("intel")));
    assert_eq!((&facts["uuid"], &facts["sm_clock_max_mhz"]), (&json!("Intel-0000:03:00.0"), &json!(2_900)));
    let gpu = gpu(&report);
    let expected = json!({
        "util_pct": 100, "sm_clock_mhz": 2_850, "temp_c": 52, "mem_temp_c": 60, "power_mw": 0,
        "power_limit_mw": 190_000, "energy_mj": 1_000_000, "throttle_reasons": 4, "fan_rpm": 1_180,
        "mem_used_bytes": "unsupported", "mem_util_pct": "unsupported",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(gpu[name], *value, "{name}");
    }
}

#[test]
fn the_power_limit_has_the_name_that_the_card_offers() {
    let limit_of = |attributes: &[(&str, &str)]| {
        let tree = Tree::new();
        tree.card(0, PCI, "xe", &[("device", "0xe223"), ("hwmon/hwmon3/energy1_input", "5")]);
        tree.attributes(PCI, attributes);
        gpu(&tree.report())["power_limit_mw"].clone()
    };
    let (burst, sustained) = (("hwmon/hwmon3/power1_cap", "275000000"), ("hwmon/hwmon3/power1_max", "0"));
    assert_eq!(limit_of(&[burst]), 275_000);
    assert_eq!(limit_of(&[burst, sustained]), 275_000, "a limit of 0 is switched off");
    assert_eq!(limit_of(&[("hwmon/hwmon3/power1_rated_max", "190000000")]), 190_000);
    assert_eq!(limit_of(&[("hwmon/hwmon3/power2_max", "120000000")]), 120_000);
    assert_eq!(limit_of(&[sustained]), "unsupported");
}

#[test]
fn power_and_utilisation_follow_their_counters() {
    let tree = Tree::new();
    add_b580(&tree, 0, PCI);
    let mut probe = Probe::start(tree.command());
    probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
    probe.sample(|sample| sample.gpus.len() == 1 && sample.gpus[0].util_pct == Reading::Value(100));
    // More idle time than has passed is all of it.
    tree.attributes(
        PCI,
        &[("tile0/gt0/gtidle/idle_residency_ms", "500000"), ("tile0/gt1/gtidle/idle_residency_ms", "500000")],
    );
    probe.sample(|sample| sample.gpus[0].util_pct == Reading::Value(0));
    tree.attributes(PCI, &[("hwmon/hwmon5/energy1_input", "1010000000")]);
    let sample = probe.sample(|sample| sample.gpus[0].power_mw.value().is_some_and(|power| *power > 0));
    // 10 J since the last sample, which was half a second before; on a busy machine longer, or shorter to catch up. More
    // energy would be implausible then.
    let power_mw = *sample.gpus[0].power_mw.value().unwrap();
    assert!((100..=400_000).contains(&power_mw), "{power_mw}");
}

#[test]
fn a_card_with_several_gts_of_i915_reports_the_busiest() {
    let tree = Tree::new();
    tree.card(
        1,
        PCI,
        "i915",
        &[
            ("vendor", "0x8086"),
            ("device", "0x56a0"),
            ("hwmon/hwmon2/name", "i915"),
            ("hwmon/hwmon2/energy1_input", "77000000"),
            ("hwmon/hwmon2/power1_max", "0"),
            ("hwmon/hwmon2/temp1_input", "48000"),
            ("drm/card1/gt/gt0/rps_act_freq_mhz", "600"),
            ("drm/card1/gt/gt0/rps_RP0_freq_mhz", "2400"),
            ("drm/card1/gt/gt0/rc6_residency_ms", "1"),
            ("drm/card1/gt/gt0/throttle_reason_status", "0"),
            ("drm/card1/gt/gt1/rps_act_freq_mhz", "1400"),
            ("drm/card1/gt/gt1/throttle_reason_status", "1"),
            ("drm/card1/gt/gt1/throttle_reason_thermal", "1"),
            ("drm/card1/gt/gt1/throttle_reason_pl4", "1"),
        ],
    );
    let report = tree.report();
    let gpu = gpu(&report);
    let expected = json!({
        "util_pct": 100, "sm_clock_mhz": 1_400, "temp_c": 48, "throttle_reasons": 0x44, "energy_mj": 77_000,
        "power_limit_mw": "unsupported", "mem_temp_c": "unsupported",
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(gpu[name], *value, "{name}");
    }
    assert_eq!(report["hello"]["gpus"][0]["name"], "Intel GPU 56a0");
}

#[test]
fn the_tiles_of_a_data_centre_gpu_are_one_gpu_with_its_own_memory() {
    let tree = Tree::new();
    tree.card(
        0,
        PCI,
        "i915",
        &[
            ("device", "0x0bd5"),
            ("drm/card0/lmem_total_bytes", "137438953472"),
            ("drm/card0/lmem_avail_bytes", "34359738368"),
            ("drm/card0/gt/gt0/rps_act_freq_mhz", "1550"),
            ("drm/card0/gt/gt1/rps_act_freq_mhz", "1600"),
            ("hwmon/hwmon1/energy1_input", "5"),
        ],
    );
    let report = tree.report();
    let gpu = gpu(&report);
    assert_eq!(
        (&gpu["mem_used_bytes"], &gpu["mem_total_bytes"]),
        (&json!(103_079_215_104_u64), &json!(137_438_953_472_u64))
    );
    assert_eq!((&gpu["sm_clock_mhz"], &gpu["util_pct"]), (&json!(1_600), &json!("unsupported")));
}

#[test]
fn the_sensors_of_the_card_are_not_those_of_one_gt() {
    let tree = Tree::new();
    tree.card(
        0,
        PCI,
        "i915",
        &[
            ("device", "0x0bd5"),
            ("hwmon/hwmon10/name", "i915_gt0"),
            ("hwmon/hwmon10/energy1_input", "111000"),
            ("hwmon/hwmon11/name", "i915"),
            ("hwmon/hwmon11/energy1_input", "999000"),
            ("hwmon/hwmon11/power1_max", "600000000"),
            ("hwmon/hwmon9/name", "i915_gt1"),
            ("hwmon/hwmon9/energy1_input", "222000"),
        ],
    );
    let report = tree.report();
    assert_eq!([&gpu(&report)["energy_mj"], &gpu(&report)["power_limit_mw"]], [999, 600_000]);
}

#[test]
fn what_cannot_be_a_count_or_an_idle_time_is_no_reading() {
    let tree = Tree::new();
    add_b580(&tree, 0, PCI);
    tree.attributes(
        PCI,
        &[
            ("hwmon/hwmon5/energy1_input", "18446744073709551615"),
            ("tile0/gt0/gtidle/idle_residency_ms", "0"),
        ],
    );
    let report = tree.report();
    let gpu = gpu(&report);
    for name in ["energy_mj", "power_mw"] {
        assert_eq!(gpu[name]["failed"], "the counter reads 18446744073709551615", "{name}");
    }
    assert_eq!(gpu["util_pct"], "unsupported", "its power-down states are switched off");
}

#[test]
fn the_memory_of_xe_is_the_sum_of_its_tiles() {
    let tree = Tree::new();
    add_b580(&tree, 0, PCI);
    tree.attributes(
        PCI,
        &[
            ("tile0/physical_vram_size_bytes", "12884901888"),
            ("tile1/physical_vram_size_bytes", "12884901888"),
        ],
    );
    assert_eq!(gpu(&tree.report())["mem_total_bytes"], 25_769_803_776_u64);
    tree.attributes(PCI, &[("tile0/physical_vram_size_bytes", "0"), ("tile1/physical_vram_size_bytes", "0")]);
    assert_eq!(gpu(&tree.report())["mem_total_bytes"], "unsupported");
}

#[test]
fn the_gpu_of_a_processor_is_known_by_its_slot_and_by_having_no_sensors() {
    let of = |pci: &str, attributes: &[(&str, &str)]| {
        let tree = Tree::new();
        tree.card(0, pci, "xe", &[("device", "0xb080")]);
        tree.attributes(pci, attributes);
        let report = tree.report();
        let facts = &report["hello"]["gpus"][0];
        (facts["unified_memory"].clone(), facts["minor"].clone())
    };
    let integrated = (json!(true), json!("unsupported"));
    assert_eq!(of("0000:00:02.0", &[]), integrated);
    assert_eq!(of("0000:00:02.1", &[]), integrated, "a virtual function of it");
    // The slot that a virtual machine gives to a card.
    let card = [("hwmon/hwmon4/name", "xe"), ("hwmon/hwmon4/energy1_input", "7")];
    assert_eq!(of("0000:00:02.0", &card), (json!(false), json!(0)));
    assert_eq!(of("0000:03:00.1", &[]), (json!(false), json!(0)), "a virtual function of a card");
}

#[test]
fn each_throttle_reason_of_a_newer_platform_is_known() {
    let reasons = |names: &[&str]| {
        let tree = Tree::new();
        add_b580(&tree, 0, PCI);
        let throttle = "tile0/gt0/freq0/throttle";
        fs::remove_file(tree.path(PCI, &format!("{throttle}/reason_pl1"))).unwrap();
        for name in names {
            tree.attributes(PCI, &[(&format!("{throttle}/reason_{name}"), "1")]);
        }
        gpu(&tree.report())["throttle_reasons"].clone()
    };
    assert_eq!(reasons(&["soc_thermal"]), 0x40);
    assert_eq!(reasons(&["mem_thermal", "psys_pl2"]), 0x44);
    assert_eq!(reasons(&["fastvmode"]), 0x8, "one that is not known");
}

#[test]
fn processes_of_xe_have_memory_and_a_share_of_all_engines() {
    let tree = Tree::new();
    add_b580(&tree, 0, PCI);
    let pid = std::process::id();
    let fdinfo = |busy: u64, total: u64| {
        format!(
            "drm-driver:\txe\ndrm-client-id:\t3\ndrm-pdev:\t{PCI}\ndrm-resident-vram0:\t2 GiB\ndrm-resident-gtt:\t1 GiB\n\
             drm-cycles-ccs:\t{busy}\ndrm-total-cycles-ccs:\t{total}\ndrm-engine-capacity-ccs:\t2\n"
        )
    };
    tree.open_file(pid, 4, "/dev/dri/renderD128", &fdinfo(0, 1_000));
    let mut probe = Probe::start(tree.command());
    probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
    let list = probe.processes(|list| !list.processes.is_empty());
    assert_eq!(list.processes[0].now.gpu_mem_bytes, Reading::Value(2 << 30));
    assert_eq!(list.processes[0].facts.pid, pid);
    // Renamed, because the kernel never shows a part of the text.
    let new = tree.file("new", fdinfo(1_000, 2_000));
    fs::rename(new, tree.root().join(format!("proc/{pid}/fdinfo/4"))).unwrap();
    let share = |line: ProbeLine| match line {
        ProbeLine::ProcessReadings(readings) => {
            readings.now.first().and_then(|now| now.sm_pct.value().copied()).filter(|share| *share > 0)
        }
        ProbeLine::Processes(list) => list
            .processes
            .first()
            .and_then(|process| process.now.sm_pct.value().copied())
            .filter(|share| *share > 0),
        _ => None,
    };
    assert_eq!(probe.until(share), 50);
}

#[test]
fn pipes_loops_and_huge_files_in_place_of_attributes_fail_alone() {
    let tree = Tree::new();
    add_b580(&tree, 0, PCI);
    let replaced = |name: &str| {
        let path = tree.path(PCI, name);
        fs::remove_file(&path).unwrap();
        path
    };
    let pipe = |path: &Path| mknodat(CWD, path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    pipe(&replaced("tile0/gt0/freq0/throttle/status"));
    pipe(&replaced("hwmon/hwmon5/temp2_input"));
    let path = replaced("hwmon/hwmon5/temp3_input");
    symlink(&path, &path).unwrap();
    tree.attribute(PCI, "hwmon/hwmon5/power1_max", vec![b'7'; 1 << 20]);
    // A list of names that is a pipe would block the thread that opens it.
    fs::create_dir_all(tree.root().join("usr/share/misc")).unwrap();
    pipe(&tree.root().join("usr/share/misc/pci.ids"));
    // Cards whose links lead nowhere or to themselves are none.
    tree.link("sys/class/drm/card7/device", "device");
    tree.link("sys/class/drm/card8", "card8");
    let report = tree.report();
    assert_eq!(report["hello"]["gpus"].as_array().unwrap().len(), 1);
    let gpu = gpu(&report);
    assert_eq!(gpu["temp_c"]["failed"], "not a regular file");
    assert!(gpu["mem_temp_c"]["failed"].as_str().unwrap().contains("symbolic links"), "{gpu}");
    assert_eq!(gpu["power_limit_mw"]["failed"], "longer than it should be");
    assert_eq!(gpu["sm_clock_mhz"], 2_850, "the others are read as before");
}
