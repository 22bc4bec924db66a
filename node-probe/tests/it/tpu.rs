//! TPUs through a stand-in for libtpuinfo, which crashes, hangs and lies.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use crate::harness::Probe;
use crate::sysfs::Tree;
use nodeglass_protocol::probe::{Hello, Sample};
use nodeglass_protocol::{Reading, Vendor};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use rustix::process::{Pid, test_kill_process};
use serde_json::{Value, json};
use std::fs;
use std::os::unix::fs::symlink;

/// 16 GiB, the memory of a chip.
const HBM: i64 = 16 << 30;

/// Adds chips of a generation, with device files.
fn add_chips(tree: &Tree, count: u32, device_id: &str) {
    for number in 0..count {
        let device = format!("sys/devices/pci0000:00/0000:00:0{}.0", 4 + number);
        for (name, content) in
            [("vendor", "0x1ae0"), ("device", device_id), ("class", "0x120000"), ("numa_node", "-1")]
        {
            tree.file(&format!("{device}/{name}"), format!("{content}\n"));
        }
        tree.link(
            &format!("sys/bus/pci/devices/0000:00:0{}.0", 4 + number),
            &format!("../../../../{device}"),
        );
        tree.link(&format!("sys/class/accel/accel{number}/device"), &format!("../../../../{device}"));
    }
}

fn devices(count: i64) -> Vec<Value> {
    let device = |id| json!({"id": id, "used": (id + 1) << 30, "total": HBM, "duty": 10.0 * (id + 1) as f64});
    // Not in order.
    (0..count).rev().map(device).collect()
}

/// Sets what the library reports.
fn set(tree: &Tree, state: &Value) {
    let path = tree.root().join("tpuinfo.json");
    fs::write(path.with_extension("new"), state.to_string()).unwrap();
    fs::rename(path.with_extension("new"), path).unwrap();
}

fn start(tree: &Tree) -> Probe {
    let mut command = tree.command();
    command.args(["--silence-ms", "120000"]).arg("--libtpuinfo").arg(fake_tpuinfo::library().unwrap());
    command.env("FAKE_TPUINFO", tree.root().join("tpuinfo.json"));
    Probe::start(command)
}

/// Returns whether every device fails for a reason with this text.
fn fails(sample: &Sample, text: &str) -> bool {
    let is =
        |reading: &Reading<u64>| matches!(reading, Reading::Failed(why) if why.to_string().contains(text));
    !sample.gpus.is_empty() && sample.gpus.iter().all(|gpu| is(&gpu.util_pct) && is(&gpu.mem_used_bytes))
}

fn names(hello: &Hello) -> Vec<String> {
    hello.gpus.iter().map(|gpu| gpu.name.value().unwrap().to_string()).collect()
}

#[test]
fn a_chip_of_the_seventh_generation_has_two_devices() {
    let tree = Tree::new();
    add_chips(&tree, 2, "0x0076");
    set(&tree, &json!({"devices": devices(4)}));
    let hello = start(&tree).hello(|hello| !hello.gpus.is_empty());
    assert_eq!(names(&hello), ["TPU v7x"; 4]);
}

#[test]
fn chips_have_their_metrics_and_holders() {
    let tree = Tree::new();
    add_chips(&tree, 4, "0x0063");
    tree.open_file(4_711, 9, "/dev/accel2", "");
    set(&tree, &json!({"devices": devices(4), "prints": "{\"report\":\"not a reply\"}"}));
    let mut probe = start(&tree);
    let hello = probe.hello(|hello| hello.gpus.len() == 4);
    assert_eq!(names(&hello), ["TPU v5e"; 4]);
    assert_eq!(hello.gpus[2].vendor, Vendor::Tpu);
    let sample = probe.sample(|sample| sample.gpus.iter().any(|gpu| gpu.util_pct.value().is_some()));
    let read: Vec<_> = sample
        .gpus
        .iter()
        .map(|gpu| {
            (
                gpu.util_pct.value().copied(),
                gpu.mem_used_bytes.value().copied(),
                gpu.mem_total_bytes.value().copied(),
            )
        })
        .collect();
    let gib = |number: u64| Some(number << 30);
    assert_eq!(read, [1, 2, 3, 4].map(|number| (Some(10 * number), gib(number), gib(16))));
    let processes = probe.processes(|list| !list.processes.is_empty());
    let holders: Vec<_> =
        processes.processes.iter().map(|process| (process.facts.gpu.clone(), process.facts.pid)).collect();
    assert_eq!(holders, [(hello.gpus[2].uuid.clone(), 4_711)]);
}

#[test]
fn older_chips_are_two_devices_and_known_without_the_library() {
    let tree = Tree::new();
    add_chips(&tree, 1, "0x0027");
    tree.file("sys/devices/pci0000:00/0000:00:04.0/subsystem_device", "0x004f\n");
    let mut command = tree.command();
    command.args(["--libtpuinfo", "/nonexistent/libtpuinfo.so"]);
    let mut probe = Probe::start(command);
    assert_eq!(names(&probe.hello(|hello| hello.gpus.len() == 2)), ["TPU v3"; 2]);
    let sample = probe.sample(|sample| sample.gpus.len() == 2 && sample.gpus[0].util_pct != Reading::NotYet);
    assert!(fails(&sample, "libtpuinfo.so is not installed"), "{sample:?}");
}

#[test]
fn a_library_that_hangs_crashes_or_lies_costs_its_own_readings_only() {
    let tree = Tree::new();
    add_chips(&tree, 2, "0x005e");
    tree.open_file(4_711, 9, "/dev/accel0", "");
    let good = json!({"devices": devices(2)});
    set(&tree, &good);
    let mut probe = start(&tree);
    let is_good = |sample: &Sample| sample.gpus.iter().all(|gpu| gpu.util_pct.value().is_some());
    probe.sample(|sample| sample.gpus.len() == 2 && is_good(sample));
    for (state, why) in [
        (json!({"devices": devices(2), "panics": true}), "panic: two types of chips"),
        (json!({"devices": devices(2), "hangs": true}), "did not respond within 5 s"),
        (
            json!({"devices": devices(2), "count": 2_000_000_000}),
            "counts 2000000000 devices, the kernel lists 2",
        ),
        (json!({"devices": devices(2), "status": 2}), "does not report metrics"),
    ] {
        set(&tree, &state);
        probe.sample(|sample| fails(sample, why));
        set(&tree, &good);
        probe.sample(|sample| sample.gpus.len() == 2 && is_good(sample));
    }
    let worker = children(probe.pid());
    assert_eq!(worker.len(), 1, "one worker is left, and no zombie");
    drop(probe);
    let worker = Pid::from_raw(worker[0]).unwrap();
    while test_kill_process(worker).is_ok() {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
}

#[test]
fn idle_chips_have_no_readings_and_no_failures() {
    let tree = Tree::new();
    add_chips(&tree, 1, "0x006f");
    tree.link("proc/4711/fd/0", "/dev/null");
    set(&tree, &json!({"devices": devices(1), "status": 2}));
    let mut probe = start(&tree);
    // The second sample has the worker's response.
    let first = probe.sample(|sample| sample.gpus.len() == 1).seq;
    let sample = probe.sample(|sample| sample.seq > first + 2);
    assert_eq!(sample.gpus[0].util_pct, Reading::NotYet);
    assert!(sample.gpus[0].fault.is_none());
}

#[test]
fn pipes_loops_and_huge_files_in_place_of_attributes_do_not_stop_the_source() {
    let tree = Tree::new();
    add_chips(&tree, 2, "0x0063");
    let device = tree.root().join("sys/devices/pci0000:00/0000:00:04.0");
    mknodat(CWD, device.join("max_link_width"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    symlink("current_link_width", device.join("current_link_width")).unwrap();
    fs::write(device.join("local_cpulist"), vec![b'7'; 1 << 20]).unwrap();
    // Chips that cannot be identified are none.
    tree.link("sys/bus/pci/devices/0000:00:09.0", "0000:00:09.0");
    let other = tree.file("sys/bus/pci/devices/0000:00:0a.0/device", "0x0063\n");
    mknodat(CWD, other.with_file_name("vendor"), FileType::Fifo, Mode::RUSR, 0).unwrap();
    set(&tree, &json!({"devices": devices(2)}));
    let mut probe = start(&tree);
    let hello = probe.hello(|hello| !hello.gpus.is_empty());
    assert_eq!(hello.gpus.len(), 2);
    assert!(matches!(hello.gpus[0].pcie_width_max, Reading::Failed(_)), "{:?}", hello.gpus[0].pcie_width_max);
    assert!(matches!(hello.gpus[0].cpu_affinity, Reading::Failed(_)), "{:?}", hello.gpus[0].cpu_affinity);
    probe.sample(|sample| sample.gpus.iter().all(|gpu| gpu.util_pct.value().is_some()));
}

/// Child processes, whichever thread started them.
fn children(pid: u32) -> Vec<i32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("children")).ok());
    let pids = |list: String| list.split_whitespace().filter_map(|pid| pid.parse().ok()).collect::<Vec<_>>();
    lists.flat_map(pids).collect()
}
