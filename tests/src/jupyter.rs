//! A real JupyterLab in which the wheel of nodeglass is installed.

use crate::process::Process;
use crate::release::{one, output, pack, stripped};
use crate::test_tools;
use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use tempfile::TempDir;

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

/// Installs the wheel of a release, with the programs that were built, below `folder`; returns the folder of its packages.
pub(crate) fn install(python: &Path, jupyter: &Path, folder: &Path) -> Result<PathBuf> {
    let (programs, wheels, venv) = (folder.join("programs"), folder.join("wheels"), folder.join("venv"));
    std::fs::create_dir(&programs)?;
    stripped(&programs)?;
    let files = pack(&programs, &wheels, &["wheel"])?;
    let wheel = one(&files, &format!("_{}.whl", std::env::consts::ARCH))?;
    // Installed beside Jupyter, which is shared by all tests, with the version of Python that it has.
    output(Command::new(jupyter).args(["-m", "venv", "--without-pip"]).arg(&venv))?;
    let pip = |into: &Path, args: &[&str], what: &str| {
        let mut pip = Command::new(python);
        pip.args(["-m", "pip", "--python"]).arg(into).args(["install", "--quiet", "--no-index"]);
        output(pip.args(args).arg(what)).map(drop)
    };
    pip(&venv.join("bin/python"), &["--no-deps"], &wheel.display().to_string())?;
    // What the documents install would find everything that it needs there.
    pip(jupyter, &["--dry-run"], &format!("{}[jupyter]", wheel.display()))?;
    let lib = std::fs::read_dir(venv.join("lib"))?.next().context("the folder of a Python")??.path();
    Ok(lib.join("site-packages"))
}
