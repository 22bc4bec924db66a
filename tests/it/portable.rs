//! The probes of the release archives run on old systems.

use anyhow::{Context, Result, ensure};
use fake_nvml::install;
use nodeglass_launch::upload::platform::{Glibc, Needs};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::Link;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::relay::{TestRelay, binary};
use nodeglass_tests::sshd::Sshd;
use nodeglass_tests::test_tools;
use serde_json::Value;
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
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

/// The ELF header of a program for a processor that this machine is not.
fn foreign_program() -> Vec<u8> {
    const EM_AARCH64: u8 = 183;
    const EM_X86_64: u8 = 62;
    let machine = if cfg!(target_arch = "x86_64") { EM_AARCH64 } else { EM_X86_64 };
    let mut header = vec![0; 64];
    header[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    (header[16], header[18], header[20], header[52]) = (2, machine, 1, 64);
    header
}

#[tokio::test]
async fn a_node_gets_the_probe_for_its_processor() -> Result<()> {
    let Some(sshd) = Sshd::start()? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let install = |name: &str, program: &[u8]| -> Result<()> {
        let path = folder.path().join(name);
        std::fs::write(&path, program)?;
        Ok(std::fs::set_permissions(&path, Permissions::from_mode(0o755))?)
    };
    install("node-probe", &foreign_program())?;
    let probe = folder.path().join("node-probe").display().to_string();
    let host = format!("gpu1:{}", sshd.port());
    let arguments = ["--host", &host, "--probe", &probe];
    let path = sshd.path();
    {
        let relay = TestRelay::start_in(&arguments, [("PATH", path.as_os_str())])?;
        let mut client = Client::connect(relay.link(), Form::Binary).await?;
        client.subscribe(&[Topic::Overview]).await?;
        let is_unfit = |known: &Known| {
            let mut links = known.picture.nodes.iter().map(|node| &node.head.link);
            links.any(
                |link| matches!(link, Link::Refused { reason, .. } if reason.as_str().contains("processors")),
            )
        };
        client.until(&Topic::Overview, "the reason, without such a probe", is_unfit).await?;
    }
    let own = std::fs::read(binary("node-probe")?)?;
    install(&format!("node-probe-{}", std::env::consts::ARCH), &own)?;
    let relay = TestRelay::start_in(&arguments, [("PATH", path.as_os_str())])?;
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    let is_live = |known: &Known| known.picture.nodes.iter().any(|node| node.head.link == Link::Live);
    client.until(&Topic::Overview, "a live node", is_live).await?;
    Ok(())
}
