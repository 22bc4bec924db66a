//! With the same library, nodeglass reports the same values as nvitop and gpustat.

use anyhow::{Context, Result, ensure};
use fake_nvml::install;
use nodeglass_tests::{relay, test_tools};
use serde_json::{Value, json};
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// nvitop's name of a reading, and its place in the output of `node-probe --once`.
const READINGS: &[(&str, &str)] = &[
    ("util_pct", "/sample/gpus/{}/util_pct"),
    ("mem_util_pct", "/sample/gpus/{}/mem_util_pct"),
    ("mem_used_bytes", "/sample/gpus/{}/mem_used_bytes"),
    ("mem_total_bytes", "/sample/gpus/{}/mem_total_bytes"),
    ("temp_c", "/sample/gpus/{}/temp_c"),
    ("power_mw", "/sample/gpus/{}/power_mw"),
    ("power_limit_mw", "/sample/gpus/{}/power_limit_mw"),
    ("fan_pct", "/sample/gpus/{}/fan_pct"),
    ("sm_clock_mhz", "/sample/gpus/{}/sm_clock_mhz"),
    ("mem_clock_mhz", "/sample/gpus/{}/mem_clock_mhz"),
    ("graphics_clock_mhz", "/sample/gpus/{}/graphics_clock_mhz"),
    ("video_clock_mhz", "/sample/gpus/{}/video_clock_mhz"),
    ("enc_pct", "/sample/gpus/{}/enc_pct"),
    ("dec_pct", "/sample/gpus/{}/dec_pct"),
    ("p_state", "/sample/gpus/{}/p_state"),
    ("ecc_uncorrected", "/sample/gpus/{}/ecc_uncorrected"),
    ("name", "/hello/gpus/{}/name"),
    ("uuid", "/hello/gpus/{}/uuid"),
    ("sm_clock_max_mhz", "/hello/gpus/{}/sm_clock_max_mhz"),
    ("mem_clock_max_mhz", "/hello/gpus/{}/mem_clock_max_mhz"),
    ("compute_mode", "/hello/gpus/{}/compute_mode"),
    ("persistence", "/hello/gpus/{}/persistence"),
    ("bar1_used_bytes", "/health/{}/bar1_used_bytes"),
    ("bar1_total_bytes", "/health/{}/bar1_total_bytes"),
];

/// The names for processes.
const OF_PROCESSES: &[(&str, &str)] = &[
    ("gpu_mem_bytes", "/now/gpu_mem_bytes"),
    ("sm_pct", "/now/sm_pct"),
    ("mem_bw_pct", "/now/mem_bw_pct"),
    ("enc_pct", "/now/enc_pct"),
    ("dec_pct", "/now/dec_pct"),
    ("user", "/facts/user"),
    ("threads", "/now/threads"),
];

/// A machine with the stand-in driver in a given state.
struct Machine {
    folder: TempDir,
}

impl Machine {
    fn new(state: &Value) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        install::install(folder.path())?;
        std::fs::write(folder.path().join("state.json"), state.to_string())?;
        Ok(Self { folder })
    }

    fn run(&self, program: &Path, args: &[&str]) -> Result<Value> {
        let output = Command::new(program)
            .args(args)
            .env("LD_LIBRARY_PATH", self.folder.path())
            .env("FAKE_NVML_STATE", self.folder.path().join("state.json"))
            .output()
            .with_context(|| format!("start {}", program.display()))?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        serde_json::from_slice(&output.stdout)
            .with_context(|| format!("{} failed: {stderr}", program.display()))
    }

    fn ours(&self) -> Result<Value> {
        let library = self.folder.path().join("libnvidia-ml.so.1");
        self.run(&relay::binary("node-probe")?, &["--once", "--nvml", &library.display().to_string()])
    }
}

/// A process that lives as long as the test.
struct Worker(std::process::Child);

impl Worker {
    fn start() -> Result<Self> {
        Ok(Self(Command::new("sleep").arg("600").spawn()?))
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A reading in a common form: null if missing, text in lower case.
fn plain(value: Option<&Value>) -> Value {
    match value {
        Some(Value::String(word)) if word == "unsupported" => Value::Null,
        Some(Value::String(word)) => match word.to_lowercase().as_str() {
            "enabled" => json!(true),
            "disabled" => json!(false),
            word if word.len() <= 3 && word.starts_with('p') => {
                word[1..].parse::<u64>().map_or_else(|_| json!(word), |state| json!(state))
            }
            word => json!(word),
        },
        Some(Value::Object(failed)) if failed.contains_key("failed") => Value::Null,
        Some(value) => value.clone(),
        None => Value::Null,
    }
}

fn compare(what: &str, theirs: &Value, ours: &Value, pairs: &[(&str, &str)], place: &str) -> Vec<String> {
    let mut differences = Vec::new();
    for (name, pointer) in pairs {
        let (theirs, ours) = (plain(theirs.get(name)), plain(ours.pointer(&pointer.replace("{}", place))));
        if theirs != ours {
            differences.push(format!("{what} {name}: theirs {theirs}, ours {ours}"));
        }
    }
    differences
}

fn against_nvitop(state: &Value) -> Result<()> {
    let Some(peers) = test_tools::peers() else { return Ok(()) };
    let machine = Machine::new(state)?;
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("peers/nvitop_readings.py");
    let theirs = machine.run(&peers.join("python"), &[&script.display().to_string()])?;
    let ours = machine.ours()?;
    let gpus = theirs.as_array().context("nvitop's GPUs")?;
    ensure!(gpus.len() == ours["hello"]["gpus"].as_array().map_or(0, Vec::len), "{theirs}\n{ours}");
    let mut differences = Vec::new();
    for (index, gpu) in gpus.iter().enumerate() {
        differences.extend(compare(&format!("GPU {index}"), gpu, &ours, READINGS, &index.to_string()));
        for process in gpu["processes"].as_array().into_iter().flatten() {
            differences.extend(of_process(gpu, process, &ours)?);
        }
    }
    ensure!(differences.is_empty(), "{differences:#?}");
    Ok(())
}

/// A process of nvitop whose readings differ from ours.
fn of_process(gpu: &Value, process: &Value, ours: &Value) -> Result<Vec<String>> {
    let instances = ours["hello"]["gpus"].as_array().into_iter().flatten();
    // nvitop lists an instance's processes under its GPU as well; nodeglass lists them under the
    // instance only.
    let here: Vec<_> = instances
        .filter(|ours| ours["uuid"] == gpu["uuid"] || ours["mig_parent"] == gpu["uuid"])
        .map(|ours| &ours["uuid"])
        .collect();
    let same =
        |ours: &&Value| ours["facts"]["pid"] == process["pid"] && here.contains(&&ours["facts"]["gpu"]);
    let found = ours["processes"].as_array().into_iter().flatten().find(same);
    let found = found.with_context(|| format!("nvitop lists {process}, we do not: {ours}"))?;
    let what = format!("pid {}", process["pid"]);
    if found["now"]["sm_pct"] == "unsupported" {
        // Under MIG, NVML reports no utilisation per process. nvitop writes 0; nodeglass reports it as
        // unknown.
        let compared = [OF_PROCESSES[0], OF_PROCESSES[5], OF_PROCESSES[6]];
        return Ok(compare(&what, process, found, &compared, ""));
    }
    Ok(compare(&what, process, found, OF_PROCESSES, ""))
}

#[test]
fn a_busy_card_reads_as_in_nvitop() -> Result<()> {
    let worker = Worker::start()?;
    against_nvitop(&json!({"gpus": [
        {"util": 97, "mem_util": 41, "temp": 66, "power_mw": 301_500, "sm_clock": 1_380, "fan": 55,
         "p_state": 2, "processes": [{"pid": worker.0.id(), "mem_mib": 2_048}]},
        {},
    ]}))
}

#[test]
fn each_kind_of_card_reads_as_in_nvitop() -> Result<()> {
    for card in ["a100-80g", "h100", "h200", "rtx3090", "t4", "gh200"] {
        against_nvitop(&json!({"gpus": [{"card": card}]})).with_context(|| card.to_owned())?;
    }
    Ok(())
}

#[test]
fn a_divided_card_reads_as_in_nvitop() -> Result<()> {
    let worker = Worker::start()?;
    against_nvitop(&json!({"gpus": [{"mig": [
        {"gi": 1, "ci": 0, "processes": [{"pid": worker.0.id(), "mem_mib": 512}]},
        {"gi": 2, "ci": 0},
    ]}]}))
}

#[test]
fn a_busy_card_reads_as_in_gpustat() -> Result<()> {
    let Some(peers) = test_tools::peers() else { return Ok(()) };
    let worker = Worker::start()?;
    let machine = Machine::new(&json!({"gpus": [
        {"util": 61, "temp": 44, "power_mw": 251_000, "fan": 30,
         "processes": [{"pid": worker.0.id(), "mem_mib": 3_000}]},
    ]}))?;
    let theirs = machine.run(&peers.join("gpustat"), &["--json"])?;
    let ours = machine.ours()?;
    let (gpu, sample) = (&theirs["gpus"][0], &ours["sample"]["gpus"][0]);
    let number = |value: &Value| value.as_u64().unwrap_or(u64::MAX);
    let pairs = [
        ("utilization.gpu", number(&sample["util_pct"])),
        ("temperature.gpu", number(&sample["temp_c"])),
        ("fan.speed", number(&sample["fan_pct"])),
        ("power.draw", number(&sample["power_mw"]) / 1_000),
        ("enforced.power.limit", number(&sample["power_limit_mw"]) / 1_000),
        ("memory.used", number(&sample["mem_used_bytes"]) >> 20),
        ("memory.total", number(&sample["mem_total_bytes"]) >> 20),
    ];
    for (name, ours) in pairs {
        ensure!(number(&gpu[name]) == ours, "{name}: theirs {}, ours {ours}", gpu[name]);
    }
    let (their_process, our_process) = (&gpu["processes"][0], &ours["processes"][0]);
    ensure!(their_process["pid"] == our_process["facts"]["pid"], "{theirs}\n{ours}");
    ensure!(their_process["username"] == our_process["facts"]["user"], "{theirs}\n{ours}");
    ensure!(
        number(&their_process["gpu_memory_usage"]) == number(&our_process["now"]["gpu_mem_bytes"]) >> 20,
        "{theirs}\n{ours}"
    );
    Ok(())
}

/// A comparison that finds no difference would show nothing.
#[test]
fn a_difference_is_found() {
    let (theirs, ours) = (json!({"temp_c": 66}), json!({"sample": {"gpus": [{"temp_c": 67}]}}));
    let pair = [("temp_c", "/sample/gpus/{}/temp_c")];
    assert_eq!(compare("GPU 0", &theirs, &ours, &pair, "0").len(), 1);
    assert!(compare("GPU 0", &json!({"temp_c": 67}), &ours, &pair, "0").is_empty());
}
