//! The probes of the release archives run on old systems.

use anyhow::{Context, Result, ensure};
use fake_nvml::install;
use nodeglass_relay::launch::upload::platform::{Glibc, Needs};
use nodeglass_tests::test_tools;
use serde_json::Value;
use std::path::Path;
use std::process::Command;

/// The glibc of RHEL 7 and CentOS 7.
const OLDEST: Glibc = Glibc(2, 17);
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];

#[test]
fn the_released_probes_need_no_glibc_newer_than_2_17() -> Result<()> {
    let Some(folder) = test_tools::portable_probes() else { return Ok(()) };
    for machine in MACHINES {
        let program = read(&folder, machine)?;
        let needs = Needs::of(&program);
        ensure!(needs.machine == Some(machine), "{machine}: the program is for {:?}", needs.machine);
        let glibc = needs.glibc.with_context(|| format!("{machine}: no version of glibc is referenced"))?;
        ensure!(glibc <= OLDEST, "{machine}: the program needs glibc {glibc}");
    }
    Ok(())
}

#[test]
fn the_released_probe_reads_the_driver_like_the_one_built_here() -> Result<()> {
    let Some(folder) = test_tools::portable_probes() else { return Ok(()) };
    let driver = tempfile::tempdir()?;
    let library = install::install(driver.path())?;
    std::fs::write(driver.path().join("state.json"), r#"{"gpus": [{}, {}]}"#)?;
    let output = Command::new(folder.join(format!("node-probe-{}", std::env::consts::ARCH)))
        .args(["--once", "--json", "--nvml"])
        .arg(library)
        .env("FAKE_NVML_STATE", driver.path().join("state.json"))
        .output()
        .context("run the released probe")?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let read: Value = serde_json::from_slice(&output.stdout)?;
    let gpus = read["sample"]["gpus"].as_array().context("it reads GPUs")?;
    ensure!(gpus.len() == 2 && gpus.iter().all(|gpu| gpu["util_pct"].is_u64()), "{gpus:?}");
    Ok(())
}

fn read(folder: &Path, machine: &str) -> Result<Vec<u8>> {
    let path = folder.join(format!("node-probe-{machine}"));
    std::fs::read(&path).with_context(|| format!("read {}", path.display()))
}
