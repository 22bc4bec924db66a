//! A single report of a node, for a terminal and for a pipe.
#![expect(clippy::unwrap_used, reason = "a test's own machinery fails as its test does")]

use crate::harness::{Node, probe};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use serde_json::{Value, json};
use std::fs::File;
use std::io::Read;
use std::process::{Command, Output, Stdio};

fn run_once(mut command: Command, arguments: &[&str]) -> Output {
    command.arg("--once").args(arguments).env_remove("COLUMNS").output().unwrap()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

fn two_gpus() -> Node {
    let pid = std::process::id();
    Node::new(&json!({"driver": "550.54.15", "gpus": [
        {"uuid": "GPU-a", "util": 97, "temp": 64, "power_mw": 312_000, "throttle": 4,
         "processes": [{"pid": pid, "mem_mib": 2_048}]},
        {"uuid": "GPU-b", "util": 0, "throttle": 0x48, "errors": {"nvmlDeviceGetPowerUsage": 999}},
    ]}))
}

#[test]
fn a_table_lists_each_gpu_and_process_and_names_missing_readings() {
    let node = two_gpus();
    let output = run_once(node.command(), &["--table"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    let row = |first: &str| {
        let rows = table.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" "));
        rows.into_iter().find(|row| row.starts_with(first)).unwrap_or_else(|| panic!("{first} in {table}"))
    };
    assert!(row("0 A100").contains(" 97 % ") && row("0 A100").contains(" 64 °C 312/"), "{table}");
    assert!(row("0 A100").ends_with(" power limit"), "{table}");
    assert!(row("1 A100").contains(" ! ") && row("1 A100").ends_with(" too hot (hardware)"), "{table}");
    assert!(row("! GPU 1 power").contains("unknown error"), "{table}");
    assert!(row(&format!("0 {}", std::process::id())).contains(" 2.0 GiB "), "{table}");
    assert!(row("Host ").contains(" CPUs") && row("Host ").contains("memory "), "{table}");
    assert!(!table.contains('\u{1b}'), "no colours into a pipe");
}

#[test]
fn a_table_fits_the_width_and_its_columns_are_aligned() {
    for width in [40, 60, 80, 120, 200] {
        let node = two_gpus();
        let mut command = node.command();
        command.args(["--once", "--table"]).env("COLUMNS", width.to_string());
        let table = text(&command.output().unwrap().stdout);
        let longest = table.lines().map(|line| line.chars().count()).max().unwrap();
        assert!(longest <= width, "{longest} of {width}:\n{table}");
        let lines: Vec<_> = table.lines().collect();
        let title = lines.iter().position(|line| line.trim_start().starts_with("GPU  Model")).unwrap();
        let right_end =
            |line: &str, word: &str| line.find(word).map(|at| line[..at + word.len()].chars().count());
        let util = right_end(lines[title], "Util").unwrap();
        assert_eq!(right_end(lines[title + 1], "97 %"), Some(util), "{table}");
    }
}

/// The output on a terminal of 100 columns, with or without colours.
fn on_terminal(mut command: Command, no_color: &str) -> String {
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
    grantpt(&terminal).unwrap();
    unlockpt(&terminal).unwrap();
    let name = ptsname(&terminal, Vec::new()).unwrap().into_string().unwrap();
    let size = rustix::termios::Winsize { ws_row: 30, ws_col: 100, ws_xpixel: 0, ws_ypixel: 0 };
    rustix::termios::tcsetwinsize(&terminal, size).unwrap();
    let other = File::options().read(true).write(true).open(name).unwrap();
    command.arg("--once").env_remove("COLUMNS").env("NO_COLOR", no_color).env("TERM", "xterm");
    let mut child = command.stdout(Stdio::from(other)).stderr(Stdio::null()).spawn().unwrap();
    drop(command);
    let mut printed = Vec::new();
    // The terminal ends with an error (EIO) once the program has closed it.
    let _ = File::from(terminal).read_to_end(&mut printed);
    child.wait().unwrap();
    text(&printed)
}

#[test]
fn a_terminal_gets_a_table_in_colour_and_a_pipe_gets_json() {
    let node = two_gpus();
    let table = on_terminal(node.command(), "");
    assert!(table.contains("Model") && table.contains("\u{1b}[1;31mtoo hot (hardware)"), "{table}");
    assert!(table.lines().all(|line| line.trim_end().len() < 200), "{table}");
    let table = on_terminal(node.command(), "1");
    assert!(table.contains("too hot (hardware)") && !table.contains('\u{1b}'), "{table}");
    let json: Value = serde_json::from_slice(&run_once(node.command(), &[]).stdout).unwrap();
    assert_eq!(json["sample"]["gpus"][0]["util_pct"], 97);
    let mut forced = node.command();
    forced.arg("--json");
    let json: Value = serde_json::from_str(&on_terminal(forced, "")).unwrap();
    assert_eq!(json["hello"]["gpus"].as_array().unwrap().len(), 2);
}

#[test]
fn unreadable_gpus_are_listed_on_stderr() {
    let state =
        |second: bool| json!({"gpus": [{"uuid": "GPU-a", "lost": true}, {"uuid": "GPU-b", "lost": second}]});
    let node = Node::new(&state(false));
    let output = run_once(node.command(), &[]);
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(text(&output.stderr), "node-probe: GPU 0: GPU is lost\n");
    node.set(&state(true));
    let output = run_once(node.command(), &["--table"]);
    assert_eq!(output.status.code(), Some(3));
    assert!(text(&output.stderr).ends_with("node-probe: no GPU of this node can be read\n"));
    assert_eq!(text(&output.stdout).matches("GPU is lost").count(), 2);
}

#[test]
fn a_node_without_a_driver_still_reports_its_host() {
    let mut command = probe();
    command.args(["--nvml", "libnvidia-ml-that-is-nowhere.so.1"]);
    let output = run_once(command, &[]);
    assert_eq!(output.status.code(), Some(3));
    let json: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(json["sample"]["mono_ns"].as_u64() > Some(0) && json["sample"]["wall_ms"].as_u64() > Some(0));
    assert!(text(&output.stderr).contains("the NVIDIA driver is not"));
    let mut command = probe();
    command.args(["--nvml", "libnvidia-ml-that-is-nowhere.so.1"]);
    let table = text(&run_once(command, &["--table"]).stdout);
    assert!(table.contains("  the NVIDIA driver is not") && table.contains("Host  "), "{table}");
}

#[test]
fn a_hung_gpu_is_omitted_from_the_report() {
    let node = Node::new(&json!({"gpus": [
        {"uuid": "GPU-a", "util": 5},
        {"uuid": "GPU-b", "hang_ms": {"nvmlDeviceGetPowerUsage": 60_000}},
    ]}));
    let output = run_once(node.command(), &["--table"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains(" 5 %") && table.contains("no answer from the driver since "), "{table}");
    assert!(table.contains("No processes on the GPUs that can be read."), "{table}");
    // The reason spans the whole row, so that it fits on a narrow terminal.
    let mut narrow = node.command();
    narrow.args(["--once", "--table"]).env("COLUMNS", "80");
    let table = text(&narrow.output().unwrap().stdout);
    assert!(table.lines().any(|line| line.contains("since ") && line.ends_with(" UTC")), "{table}");
}

#[test]
fn a_gpu_that_hangs_on_opening_is_omitted_from_the_report() {
    let node = Node::new(&json!({"gpus": [
        {"uuid": "GPU-a", "util": 5},
        {"uuid": "GPU-b", "hang_ms": {"nvmlDeviceGetName": 60_000}},
    ]}));
    let output = run_once(node.command(), &["--table"]);
    let table = text(&output.stdout);
    assert_eq!(output.status.code(), Some(0), "{table}");
    assert!(table.contains(" 5 %") && table.contains("no answer from the driver since "), "{table}");
}

#[test]
fn a_closed_stdout_is_a_failure() {
    let node = two_gpus();
    let mut command = node.command();
    let full = File::options().write(true).open("/dev/full").unwrap();
    let output = command.arg("--once").stdout(Stdio::from(full)).stderr(Stdio::piped()).spawn().unwrap();
    let output = output.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stderr).contains("No space left"));
    let closed = Command::new("sh")
        .args([
            "-c",
            "exec \"$0\" --once --json --nvml /nonexistent.so >&-",
            env!("CARGO_BIN_EXE_node-probe"),
        ])
        .output()
        .unwrap();
    assert_eq!(closed.status.code(), Some(1));
    assert!(text(&closed.stderr).contains("stdout is closed"), "{closed:?}");
}
