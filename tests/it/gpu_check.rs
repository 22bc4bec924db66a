//! `node-probe selftest` with NVIDIA's own Python bindings as the reference: what moves is explained, and faults are found.

use anyhow::{Context, Result, ensure};
use fake_nvml::install;
use nodeglass_tests::{relay, test_tools};
use serde_json::{Value, json};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// The result of a check of which the probe sees one state of the driver and nvidia-ml-py another.
struct Check {
    status: Option<i32>,
    report: String,
}

impl Check {
    /// `None` without nvidia-ml-py.
    fn run(probe: &Value, reference: &Value, rounds: u32) -> Result<Option<Self>> {
        let Some(peers) = test_tools::peers() else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        let library = install::install(&folder.path().join("lib"))?;
        let path = |name: &str| folder.path().join(name);
        for (name, state) in [("probe.json", probe), ("reference.json", reference)] {
            install::write_state(&path(name), &serde_json::from_value(state.clone())?)?;
        }
        let python = format!(
            "#!/bin/sh\nFAKE_NVML_STATE={} exec {} \"$@\"\n",
            path("reference.json").display(),
            peers.join("python").display()
        );
        let program = folder.path().join("bin/python3");
        std::fs::create_dir(path("bin"))?;
        std::fs::write(&program, python)?;
        std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o755))?;
        let report = path("report.txt");
        let output = Command::new(relay::binary("node-probe")?)
            .args(["selftest", "--no-load", "--rounds", &rounds.to_string(), "--nvml"])
            .arg(library)
            .arg("--out")
            .arg(&report)
            .env("PATH", path("bin"))
            .env("FAKE_NVML_STATE", path("probe.json"))
            .output()?;
        let report = std::fs::read_to_string(&report).with_context(|| format!("{output:?}"))?;
        Ok(Some(Self { status: output.status.code(), report }))
    }

    /// Names of readings with a result.
    fn names(&self, result: &str) -> Vec<&str> {
        let rows = self.report.lines().filter_map(|line| line.strip_prefix(result));
        let mut names: Vec<_> = rows.filter_map(|row| row.split_whitespace().next()).collect();
        names.dedup();
        names
    }

    fn differs_in(&self, names: &[&str]) -> Result<()> {
        let different = self.names("DIFFERENT ");
        let missing: Vec<_> = names.iter().filter(|name| !different.contains(name)).collect();
        ensure!(missing.is_empty() && self.status == Some(5), "{missing:?} not in {}", self.report);
        Ok(())
    }
}

/// One GPU of each of several kinds, of which one is divided. Energy is left out: the stand-in counts it in each process.
fn machine() -> Value {
    let processes = json!([{"pid": 1, "mem_mib": 2_048}, {"pid": 4_000_001, "mem_mib": 512, "kind": "G"}]);
    let mig = json!([{"gi": 2, "profile": "3g.40gb", "util": 60, "processes": [{"pid": 12}]}]);
    let power = json!({"energy_mj": null});
    json!({"driver": "580.90.07", "gpus": [
        {"card": "h100", "util": 50, "power": power, "processes": processes},
        {"card": "rtx4090", "power": power, "fan": 40},
        {"card": "gb10", "power": power, "processes": [{"pid": 1, "mem_mib": 300}]},
        {"card": "h200", "power": power, "mig": mig},
    ]})
}

#[test]
fn readings_that_move_are_explained_and_all_others_equal() -> Result<()> {
    let mut moving = machine();
    moving["motion"] = json!(true);
    let Some(check) = Check::run(&moving, &moving, 8)? else { return Ok(()) };
    ensure!(check.status == Some(0) && check.names("DIFFERENT ").is_empty(), "{}", check.report);
    let (explained, equal) = (check.names("explained "), check.names("equal "));
    for name in ["util_pct", "power_mw", "sm_active_pct", "pcie_rx_bytes_s", "mem_total_bytes"] {
        ensure!(explained.contains(&name), "{name} is not explained in {}", check.report);
    }
    for name in ["serial", "gpu_mem_bytes", "power_limit_mw", "cpu_affinity", "nvlinks_up", "remap_pending"] {
        ensure!(equal.contains(&name), "{name} is not equal in {}", check.report);
    }
    Ok(())
}

#[test]
fn a_probe_that_repeats_old_values_is_found() -> Result<()> {
    let mut moving = machine();
    moving["motion"] = json!(true);
    let mut still = machine();
    // A plausible value of a busy GPU.
    still["gpus"][0]["power_mw"] = json!(620_000);
    let Some(check) = Check::run(&still, &moving, 8)? else { return Ok(()) };
    check.differs_in(&["power_mw", "power_instant_mw", "temp_c"])
}

#[test]
fn what_only_one_client_lists_and_wrong_rates_are_found() -> Result<()> {
    let probe = machine();
    let mut reference = machine();
    reference["gpus"][0]["processes"] = json!([{"pid": 1, "mem_mib": 2_049}]);
    reference["gpus"][0]["gpm"] = json!({"sm": 90});
    reference["gpus"][1]["pcie"] = json!({"rx_kib_s": 2_000_000});
    let Some(check) = Check::run(&probe, &reference, 3)? else { return Ok(()) };
    // The memory of one process by one MiB, and the other process.
    check.differs_in(&["gpu_mem_bytes", "mem_used_bytes", "sm_active_pct", "pcie_rx_bytes_s"])
}

#[test]
fn gpus_in_another_order_are_found_under_their_uuids() -> Result<()> {
    let mut probe = machine();
    let uuids = ["GPU-a", "GPU-b", "GPU-c", "GPU-d"];
    for (gpu, uuid) in uuids.iter().enumerate() {
        probe["gpus"][gpu]["uuid"] = json!(uuid);
    }
    let mut reference = probe.clone();
    (reference["gpus"][0]["uuid"], reference["gpus"][1]["uuid"]) = (json!("GPU-b"), json!("GPU-a"));
    let Some(check) = Check::run(&probe, &reference, 3)? else { return Ok(()) };
    check.differs_in(&["index", "name", "pci", "mem_total_bytes", "fan_pct", "cores"])
}

/// The wheel beside the program is enough.
#[test]
fn nvidia_ml_py_is_imported_from_its_wheel() -> Result<()> {
    let Some(peers) = test_tools::peers() else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let bin = folder.path().join("bin");
    std::fs::create_dir(&bin)?;
    std::fs::copy(relay::binary("node-probe")?, bin.join("node-probe"))?;
    // A wheel is a zip archive of the modules.
    let modules = peers.join("python");
    let script =
        "import sys, zipfile, pynvml; zipfile.ZipFile(sys.argv[1], 'w').write(pynvml.__file__, 'pynvml.py')";
    let wheel = bin.join("nvidia_ml_py-13.0-py3-none-any.whl");
    ensure!(
        Command::new(&modules).args(["-c", script]).arg(&wheel).status()?.success(),
        "the wheel was not written"
    );
    let base = "import sys, os; print(os.path.realpath(sys.executable))";
    let python = Command::new(&modules).args(["-c", base]).output()?;
    std::os::unix::fs::symlink(Path::new(String::from_utf8(python.stdout)?.trim()), bin.join("python3"))?;
    let library = install::install(&folder.path().join("lib"))?;
    let state = folder.path().join("state.json");
    install::write_state(&state, &serde_json::from_value(json!({"gpus": [{}]}))?)?;
    let output = Command::new(bin.join("node-probe"))
        .args(["selftest", "--no-load", "--rounds", "1", "--out", "report.txt", "--nvml"])
        .arg(library)
        .current_dir(folder.path())
        .env("PATH", &bin)
        .env("FAKE_NVML_STATE", &state)
        .output()?;
    ensure!(output.status.success(), "{output:?}");
    ensure!(
        String::from_utf8(output.stdout)?.contains("nvidia-ml-py unknown version, at each round: "),
        "no cost"
    );
    Ok(())
}
