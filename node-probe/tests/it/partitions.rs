//! Partitions of AMD's Instinct GPUs through the real probe.

use crate::amd::add_mi210;
use crate::harness::Probe;
use crate::sysfs::Tree;
use nodeglass_protocol::Reading;
use nodeglass_protocol::probe::Control;
use serde_json::json;
use std::fs;

/// PCI address of the GPU of most trees.
const PCI: &str = "0000:c3:00.0";

/// An MI300X that is divided into eight partitions, seven of which have cards of their own.
fn divided() -> Tree {
    let tree = Tree::new();
    tree.card(
        0,
        PCI,
        "amdgpu",
        &[
            ("device", "0x74a1"),
            ("unique_id", "2b3f0a1c5d6e7f80"),
            ("gpu_busy_percent", "5"),
            ("mem_info_vram_used", "2147483648"),
            ("mem_info_vram_total", "206158430208"),
            ("current_compute_partition", "CPX"),
            ("hwmon/hwmon3/power1_input", "134000000"),
        ],
    );
    for number in 1..8 {
        let device = format!("sys/devices/platform/amdgpu_xcp_{number}");
        tree.file(&format!("{device}/uevent"), "DRIVER=amdgpu_xcp_drv\n");
        tree.link(&format!("sys/class/drm/card{number}/device"), &format!("../../../../{device}"));
    }
    tree
}

#[test]
fn each_partition_is_an_entry_with_its_share_of_the_memory() {
    let report = divided().report();
    let (facts, gpus) = (&report["hello"]["gpus"], report["sample"]["gpus"].as_array().unwrap());
    assert_eq!(gpus.len(), 8, "{report}");
    for (number, gpu) in (0..8).zip(gpus) {
        assert_eq!(gpu["mem_total_bytes"], 25_769_803_776_u64);
        assert_eq!(facts[number]["uuid"], format!("AMD-2b3f0a1c5d6e7f80/{number}"));
        assert_eq!((&facts[number]["minor"], &facts[number]["index"]), (&json!(number), &json!(number)));
        assert_eq!(facts[number]["compute_mode"], format!("partition {} of 8 (CPX)", number + 1));
        // The board's power is counted once.
        let power = if number == 0 { json!(134_000) } else { json!("unsupported") };
        assert_eq!(gpu["power_mw"], power);
    }
}

#[test]
fn processes_and_memory_in_use_are_those_of_the_partition() {
    let tree = divided();
    let node = "sys/class/kfd/kfd/topology/nodes";
    for number in 0..8 {
        let folder = format!("{node}/{}", number + 1);
        let properties =
            "simd_count 152\nsimd_per_cu 4\ngfx_target_version 90402\nlocation_id 49920\ndomain 0\n";
        tree.file(&format!("{folder}/properties"), properties);
        tree.file(&format!("{folder}/gpu_id"), format!("{}\n", 1_000 + number));
    }
    tree.file("sys/class/kfd/kfd/proc/4711/vram_1003", "1073741824\n");
    let report = tree.report();
    let gpus = report["sample"]["gpus"].as_array().unwrap();
    assert_eq!((&gpus[3]["mem_used_bytes"], &gpus[2]["mem_used_bytes"]), (&json!(1_073_741_824), &json!(0)));
    let processes = report["processes"].as_array().unwrap();
    assert_eq!(processes.len(), 1, "{processes:?}");
    assert_eq!(processes[0]["facts"]["gpu"], report["hello"]["gpus"][3]["uuid"]);
}

#[test]
fn partitions_of_a_full_node_do_not_exhaust_the_open_files() {
    let tree = Tree::new();
    for board in 0..8 {
        let pci = format!("0000:{board}1:00.0");
        add_mi210(&tree, board * 8, &pci, &format!("2b3f0a1c5d6e7f8{board}"));
        tree.attributes(&pci, &[("current_compute_partition", "CPX")]);
        for block in ["sdma", "mmhub", "hdp", "xgmi_wafl", "df", "smn", "mp0", "mp1", "fuse", "vcn", "jpeg"] {
            tree.attributes(&pci, &[(&format!("ras/{block}_err_count"), "ue: 0\nce: 0")]);
        }
        for part in 1..8 {
            let number = board * 8 + part;
            let device = format!("sys/devices/platform/amdgpu_xcp_{number}");
            tree.file(&format!("{device}/uevent"), "DRIVER=amdgpu_xcp_drv\n");
            tree.link(&format!("sys/class/drm/card{number}/device"), &format!("../../../../{device}"));
        }
    }
    let mut probe = Probe::start(tree.command());
    probe.send(&Control::Interval { ms: 500, phase_ms: 0 });
    let sample = probe.sample(|sample| sample.gpus.len() == 64);
    for (position, gpu) in sample.gpus.iter().enumerate() {
        assert_eq!(gpu.mem_total_bytes, Reading::Value(68_702_699_520 / 8), "{position}");
    }
    assert_eq!(sample.gpus[56].power_mw.value(), sample.gpus[0].power_mw.value());
    // The limit of open files is often 1,024, of which processes need some.
    let open = fs::read_dir(format!("/proc/{}/fd", probe.pid())).unwrap().count();
    assert!(open < 800, "{open}");
}
