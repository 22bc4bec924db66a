//! A real JupyterLab in which the wheel of nodeglass is installed.

use crate::process::Process;
use crate::relay::binary;
use crate::test_tools;
use anyhow::{Context, Result, ensure};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

/// The Python package with the client and the programs.
const PACKAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python");

/// A running JupyterLab of the user of this test; it ends on drop, and so do the servers that it started.
#[derive(Debug)]
pub struct JupyterLab {
    url: String,
    process: Process,
    _home: TempDir,
}

impl JupyterLab {
    /// Installs the wheel with the programs that were built, and starts JupyterLab with these environment variables; skips
    /// the test if a tool is missing.
    ///
    /// # Errors
    /// If the wheel cannot be built or installed, or JupyterLab does not start.
    pub fn start(variables: &[(&str, &str)]) -> Result<Option<Self>> {
        let (Some(python), Some(jupyter)) = (test_tools::python(), test_tools::jupyter()) else {
            return Ok(None);
        };
        let home = tempfile::tempdir()?;
        std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o700))?;
        let packages = install(&python, &jupyter, home.path())?;
        let mut command = Command::new(jupyter.with_file_name("jupyter-lab"));
        command.args(["--no-browser", "--allow-root", "--ip", "127.0.0.1", "--port", "0"]);
        command.env("PYTHONPATH", packages).env("HOME", home.path()).current_dir(home.path());
        command.envs(variables.iter().copied());
        let mut process = Process::start(&mut command)?;
        let url = process.wait_for("its address", |line| {
            let (_, address) = line.split_once("http://127.0.0.1:")?;
            address.contains("/lab?token=").then(|| format!("http://127.0.0.1:{}", address.trim()))
        })?;
        Ok(Some(Self { url, process, _home: home }))
    }

    /// The address that opens it in a browser, with its token.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// What it printed.
    pub fn log(&self) -> String {
        self.process.output().text()
    }
}

/// Builds the wheel and installs it below `folder`; returns the folder of its packages.
pub(crate) fn install(python: &Path, jupyter: &Path, folder: &Path) -> Result<PathBuf> {
    let (programs, wheels, venv) = (folder.join("programs"), folder.join("wheels"), folder.join("venv"));
    std::fs::create_dir(&programs)?;
    for name in ["relay", "node-probe"] {
        // Links: the wheel needs the content only.
        std::os::unix::fs::symlink(binary(name)?, programs.join(name))?;
    }
    let machine = std::env::consts::ARCH;
    let mut build = Command::new(python);
    build.args(["-m", "hatchling", "build", "-t", "wheel", "-d"]).arg(&wheels).current_dir(PACKAGE);
    build.env("NODEGLASS_PROGRAMS", &programs).env("NODEGLASS_PLATFORM", format!("linux_{machine}"));
    finish(&mut build)?;
    let wheel = std::fs::read_dir(&wheels)?.next().context("a wheel")??.path();
    // With the version of Python that Jupyter has.
    finish(Command::new(jupyter).args(["-m", "venv", "--without-pip"]).arg(&venv))?;
    let mut install = Command::new(python);
    install.args(["-m", "pip", "--python"]).arg(venv.join("bin/python"));
    finish(install.args(["install", "--quiet", "--no-deps", "--no-index"]).arg(wheel))?;
    let lib = std::fs::read_dir(venv.join("lib"))?.next().context("the folder of a Python")??.path();
    Ok(lib.join("site-packages"))
}

fn finish(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("run {command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
