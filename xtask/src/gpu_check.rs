//! `cargo xtask gpu-check`: compares the readings of the probe with those of NVIDIA's own tools on this machine.

use crate::shell::{cargo, long_step, run as run_to_end, target};
use crate::{system, test_tools};
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};

/// Builds the probe as for a release, unless `--probe PATH` names one, and runs its check with all other arguments.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let (probe, rest) = match args {
        [option, path, rest @ ..] if option == "--probe" => (PathBuf::from(path), rest),
        [option, ..] if option == "--probe" => bail!("--probe needs the path of a node-probe"),
        rest => (built()?, rest),
    };
    let mut command = Command::new(&probe);
    command.arg("selftest").args(rest).env("PATH", path_with_python()?);
    let status = command.status().with_context(|| format!("start {}", probe.display()))?;
    Ok(status.code().and_then(|code| u8::try_from(code).ok()).map_or(ExitCode::FAILURE, ExitCode::from))
}

fn built() -> Result<PathBuf> {
    let openssl = system::for_building()?;
    long_step("building node-probe", "2 min the first time", || {
        run_to_end(cargo().args(["build", "--release", "--package", "node-probe"]).args(openssl.flags()))
    })?;
    Ok(target().join("release/node-probe"))
}

/// The path, after the Python with nvidia-ml-py that benchmarks use. Without one, or without network, the check makes do with
/// what the machine has.
fn path_with_python() -> Result<OsString> {
    let python = test_tools::for_benchmarks().unwrap_or_else(|error| {
        eprintln!("xtask: nvidia-ml-py was not installed: {error:#}");
        Vec::new()
    });
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = python.into_iter().map(|(_, folder)| folder).chain(std::env::split_paths(&path));
    Ok(std::env::join_paths(folders)?)
}
