//! `node-probe selftest` against a stand-in of `nvidia-smi`: what is equal, what differs, and the load that it makes.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test's own machinery fails as its test does")]

use crate::harness::{Node, TIMEOUT};
use fake_nvml::install;
use serde_json::{Value, json};
use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Command, Output, Stdio},
    thread,
    time::{Duration, Instant},
};
use tempfile::TempDir;

/// Prints the columns of `gpus.tsv`, one for each GPU, as `nvidia-smi` would. Processes, utilisation and SM clock are those
/// of the first GPU in the state file.
const SMI: &str = r##"#!/bin/sh
here=$(dirname "$0")
case "$1" in
--help-query-gpu) cut -f 1 "$here/gpus.tsv" | sed 's/.*/"&"/' ;;
--query-compute-apps=*) awk -F '[:,]' '
    /"pid":/ { pid = $2 }
    /"mem_mib":/ { memory = $2 }
    /"kind": "C/ { print "GPU-a," pid "," memory }' "$FAKE_NVML_STATE" ;;
--query-gpu=*)
    now=$(awk -F '[:,]' '/^      "(util|sm_clock)":/ { gsub(/[" ]/, ""); print $1 "=" $2 }' "$FAKE_NVML_STATE")
    awk -F '\t' -v query="${1#*=}" -v now="$now" '
        BEGIN { count = split(now, lines, "\n"); for (at = 1; at <= count; at++) { split(lines[at], pair, "="); if (!(pair[1] in state)) state[pair[1]] = pair[2] } }
        { for (at = 2; at <= NF; at++) cell[$1, at] = $at; last = NF }
        END {
            cell["utilization.gpu", 2] = state["util"]; cell["clocks.sm", 2] = state["sm_clock"]
            count = split(query, names, ",")
            for (gpu = 2; gpu <= last; gpu++) {
                line = cell[names[1], gpu]
                for (at = 2; at <= count; at++) line = line ", " cell[names[at], gpu]
                print line
            }
        }' "$here/gpus.tsv" ;;
*) exit 2 ;;
esac
"##;

/// Fields of `nvidia-smi` for the two GPUs of [`state`].
const ROWS: [(&str, [&str; 2]); 18] = [
    ("uuid", ["GPU-a", "GPU-b"]),
    ("index", ["0", "1"]),
    ("name", ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3"]),
    ("serial", ["1650000000001", "1650000000002"]),
    ("pci.bus_id", ["00000000:07:00.0", "00000000:08:00.0"]),
    ("compute_mode", ["Default", "Exclusive_Process"]),
    ("persistence_mode", ["Enabled", "Disabled"]),
    ("utilization.gpu", ["0", "0"]),
    ("clocks.sm", ["345", "345"]),
    ("power.min_limit", ["200.00", "200.00"]),
    ("temperature.gpu", ["31", "44"]),
    ("temperature.memory", ["37", "[N/A]"]),
    ("memory.total", ["81559", "81559"]),
    ("fan.speed", ["[N/A]", "30"]),
    ("pstate", ["P0", "P2"]),
    ("clocks_throttle_reasons.active", ["0x0000000000000001", "0x0000000000000004"]),
    ("ecc.errors.corrected.volatile.total", ["0", "17"]),
    ("remapped_rows.pending", ["No", "No"]),
];

/// Two GPUs.
fn state() -> Value {
    let gpu = |uuid: &str, serial: &str| {
        json!({"card": "h100", "uuid": uuid, "board": {"serial": serial}, "sm_clock": 345, "power": {"energy_mj": null},
            "processes": []})
    };
    let (mut first, mut second) = (gpu("GPU-a", "1650000000001"), gpu("GPU-b", "1650000000002"));
    first["temp"] = json!(31);
    for (name, value) in [("temp", 44), ("fan", 30), ("p_state", 2), ("throttle", 4), ("ecc_corrected", 17)] {
        second[name] = json!(value);
    }
    second["thermal"] = json!({"mem": null});
    second["board"]["compute_mode"] = json!(3);
    second["board"]["persistence"] = json!(false);
    json!({"driver": "580.90.07", "gpus": [first, second]})
}

/// A node with `nvidia-smi` and without Python.
struct Machine {
    node: Node,
    folder: TempDir,
}

impl Machine {
    fn new(state: &Value) -> Self {
        let it = Self { node: Node::new(state), folder: tempfile::tempdir().unwrap() };
        it.smi(|_, cells| cells);
        let program = it.folder.path().join("nvidia-smi");
        fs::write(&program, SMI).unwrap();
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
        for tool in ["sh", "awk", "cut", "sed", "dirname"] {
            let path = std::env::split_paths(&std::env::var_os("PATH").unwrap())
                .map(|folder| folder.join(tool))
                .find(|path| path.is_file());
            std::os::unix::fs::symlink(path.unwrap(), it.folder.path().join(tool)).unwrap();
        }
        it
    }

    /// Writes what `nvidia-smi` prints.
    fn smi(&self, change: impl Fn(&str, [&'static str; 2]) -> [&'static str; 2]) {
        let rows = ROWS.map(|(name, cells)| format!("{name}\t{}\n", change(name, cells).join("\t")));
        fs::write(self.folder.path().join("gpus.tsv"), rows.concat()).unwrap();
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.node.selftest_command();
        command.args(arguments).arg("--out").arg(self.report_path());
        command.env("PATH", self.folder.path()).env("LANG", "C");
        command
    }

    fn report_path(&self) -> PathBuf {
        self.folder.path().join("report.txt")
    }

    fn check(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Runs a check at rest; returns the rows of what differs, and checks the exit status.
    fn differences(&self) -> Vec<String> {
        let output = self.check(&["--no-load", "--rounds", "3"]);
        let report = fs::read_to_string(self.report_path()).unwrap_or_else(|_| panic!("{output:?}"));
        let rows: Vec<String> =
            report.lines().filter_map(|line| line.strip_prefix("DIFFERENT")).map(str::to_owned).collect();
        assert_eq!(output.status.code(), Some(if rows.is_empty() { 0 } else { 5 }), "{report}");
        rows
    }

    /// The process whose context the first GPU has.
    fn load(&self) -> Option<u64> {
        let state: Value = serde_json::from_slice(&fs::read(self.node.state_path()).ok()?).ok()?;
        let process = &state["gpus"][0]["processes"][0];
        (state["gpus"][0]["util"] == 100).then(|| process["pid"].as_u64())?
    }

    /// The same, of one reading of one GPU.
    fn only_difference(&self) -> [String; 2] {
        let rows = self.differences();
        let words: Vec<&str> = rows.first().map(|row| row.split_whitespace().collect()).unwrap_or_default();
        assert!(rows.len() == 1, "{rows:#?}");
        [words[0].to_owned(), words[3].to_owned()]
    }
}

#[test]
fn equal_readings_agree_and_the_report_names_no_machine() {
    let machine = Machine::new(&state());
    assert_eq!(machine.differences(), [""; 0]);
    let report = fs::read_to_string(machine.report_path()).unwrap();
    for expected in [
        "driver 580.90.07",
        "GPU 1: NVIDIA H100",
        "load: none, measured at rest only",
        "node-probe, once a second",
    ] {
        assert!(report.contains(expected), "{expected} in {report}");
    }
    let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
    for private in ["1650000000001", "GPU-a", "07:00.0", &format!(" {} ", host.trim())] {
        assert!(!report.to_lowercase().contains(&private.to_lowercase()), "{private} in {report}");
    }
}

#[test]
fn a_faulty_reading_is_found_whatever_is_wrong_with_it() {
    let machine = Machine::new(&state());
    let faults: [(&str, usize, &str, &str); 6] = [
        ("temperature.gpu", 0, "32", "temp_c"),
        ("power.min_limit", 1, "200000.00", "power_min_mw"),
        ("memory.total", 0, "81560", "mem_total_bytes"),
        ("temperature.memory", 1, "36", "mem_temp_c"),
        ("clocks_throttle_reasons.active", 1, "0x0000000000000024", "throttle_reasons"),
        ("compute_mode", 0, "Prohibited", "compute_mode"),
    ];
    for (field, gpu, cell, reading) in faults {
        machine.smi(|name, mut cells| {
            if name == field {
                cells[gpu] = cell;
            }
            cells
        });
        assert_eq!(machine.only_difference(), [reading, &gpu.to_string()], "{field}");
    }
}

#[test]
fn swapped_gpus_and_a_missing_gpu_are_found() {
    let machine = Machine::new(&state());
    machine.smi(|name, [first, second]| if name == "uuid" { [second, first] } else { [first, second] });
    let swapped = machine.differences();
    for reading in ["index", "serial", "temp_c", "fan_pct", "p_state", "ecc_corrected"] {
        assert!(
            swapped.iter().filter(|row| row.contains(&format!(" {reading} "))).count() == 2,
            "{reading} in {swapped:#?}"
        );
    }
    machine.smi(|name, [first, second]| if name == "uuid" { ["GPU-c", second] } else { [first, second] });
    let missing = machine.differences();
    assert!(missing.iter().any(|row| row.contains("uuid") && row.contains("another")), "{missing:#?}");
    assert!(missing.iter().any(|row| row.contains("temp_c") && row.contains("GPU 0")), "{missing:#?}");
}

#[test]
fn a_process_that_one_side_does_not_list_is_found() {
    let mut with_process = state();
    with_process["gpus"][0]["processes"] = json!([{"pid": 1, "mem_mib": 512}]);
    let machine = Machine::new(&with_process);
    assert_eq!(machine.differences(), [""; 0]);
    let smi = machine.folder.path().join("nvidia-smi");
    for (from, to) in
        [("print \"GPU-a,\" pid", "print \"GPU-a, 2\""), ("print \"GPU-a,\" pid", "print \"GPU-b,\" pid")]
    {
        fs::write(&smi, SMI.replace(from, to)).unwrap();
        let rows = machine.differences();
        assert!(rows.iter().any(|row| row.contains("gpu_mem_bytes of")), "{rows:#?}");
    }
    // nvidia-smi lists compute processes only.
    fs::write(&smi, SMI).unwrap();
    with_process["gpus"][0]["processes"][0]["kind"] = json!("G");
    machine.node.set(&with_process);
    assert_eq!(machine.differences(), [""; 0]);
}

#[test]
fn without_a_gpu_or_a_reference_nothing_is_compared() {
    let machine = Machine::new(&json!({"gpus": []}));
    assert_eq!(machine.check(&[]).status.code(), Some(3));
    let machine = Machine::new(&state());
    fs::remove_file(machine.folder.path().join("nvidia-smi")).unwrap();
    let output = machine.check(&[]);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status.code() == Some(3) && stderr.contains("neither nvidia-smi nor nvidia-ml-py"),
        "{output:?}"
    );
}

/// A machine with one idle GPU, and its CUDA library.
fn idle() -> (Machine, String) {
    let machine = Machine::new(&state());
    let cuda = install::library().unwrap().display().to_string();
    (machine, cuda)
}

#[test]
fn an_idle_gpu_is_loaded_and_compared_under_load() {
    let (machine, cuda) = idle();
    let output = machine.check(&["--rounds", "3", "--cuda", &cuda]);
    let report = fs::read_to_string(machine.report_path()).unwrap_or_else(|_| panic!("{output:?}"));
    assert_eq!(output.status.code(), Some(0), "{report}");
    assert!(report.contains("load: GPU 0 by a kernel of this program\n"), "{report}");
    let loaded = |reading: &str| {
        report.lines().any(|line| line.contains(reading) && line.contains("GPU 0   under load  100 "))
    };
    assert!(loaded(" util_pct "), "{report}");
    assert!(
        report.lines().any(|line| line.contains("gpu_mem_bytes of") && line.contains("under load")),
        "{report}"
    );
}

#[test]
fn without_cuda_and_on_a_gpu_in_use_the_check_is_at_rest_only() {
    let (machine, cuda) = idle();
    let reason = |arguments: &[&str]| {
        let output = machine.check(&[&["--rounds", "2"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let report = fs::read_to_string(machine.report_path()).unwrap();
        let line = report.lines().find(|line| line.starts_with("load: ")).unwrap_or_default();
        line.strip_prefix("load: none, measured at rest only: ")
            .unwrap_or_else(|| panic!("{report}"))
            .to_owned()
    };
    assert!(reason(&["--cuda", "/nonexistent/libcuda.so.1"]).contains("/nonexistent/libcuda.so.1"));
    let mut refusing = state();
    refusing["errors"] = json!({"cuModuleLoadData": 218});
    machine.node.set(&refusing);
    assert!(reason(&["--cuda", &cuda]).contains("cuModuleLoadData failed: CUDA_ERROR_INVALID_PTX"));
    let mut used = state();
    for gpu in 0..2 {
        used["gpus"][gpu]["mem_used_mib"] = json!(9_000);
    }
    machine.node.set(&used);
    assert!(reason(&["--cuda", &cuda]).contains("every GPU is in use"));
}

#[test]
fn the_load_ends_with_the_check_even_if_that_is_killed() {
    let (machine, cuda) = idle();
    let mut check =
        machine.command(&["--rounds", "3", "--cuda", &cuda]).stdout(Stdio::null()).spawn().unwrap();
    let load = until(|| machine.load());
    check.kill().unwrap();
    check.wait().unwrap();
    until(|| (!is_running(load)).then_some(()));
}

#[test]
fn a_load_ends_with_its_parent_while_its_stdin_stays_open() {
    let (machine, cuda) = idle();
    let mut parent = Command::new("sh")
        .args(["-c", "\"$0\" \"$@\" </dev/zero & wait", env!("CARGO_BIN_EXE_node-probe")])
        .args(["selftest-load", &cuda, "0000:07:00.0"])
        .env("FAKE_NVML_STATE", machine.node.state_path())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let load = until(|| machine.load());
    parent.kill().unwrap();
    parent.wait().unwrap();
    until(|| (!is_running(load)).then_some(()));
}

/// Returns whether a process exists and is no zombie.
fn is_running(pid: u64) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.trim().is_empty() && !rest.trim_start().starts_with('Z'))
}

/// Waits for a value.
fn until<T>(mut value: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = value() {
            return value;
        }
        assert!(start.elapsed() < TIMEOUT, "it did not happen");
        thread::sleep(Duration::from_millis(10));
    }
}
