//! Installs cargo-nextest and runs tests with it, each in a process of its own (`.config/nextest.toml`).

use crate::junit::{self, TestCase};
use crate::pins::Pinned;
use crate::shell::{self, cargo, root, target};
use crate::system;
use crate::tools::prebuilt_or_built;
use anyhow::{Context, Result, bail, ensure};
use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The version of the crate. The PyPI package's version is in `pins/`, and a test keeps them equal.
const VERSION: &str = "0.9.148";
const PREBUILT: Pinned = Pinned { name: "nextest", shown_by: "bin/cargo-nextest" };

/// Targets that cargo builds for the tests. Always of the whole workspace: another selection would unify features
/// differently and rebuild dependencies.
pub(crate) const TARGETS: [&str; 4] = ["--workspace", "--lib", "--bins", "--tests"];

/// Exit codes of nextest for "some tests failed" and "no test matches".
const TESTS_FAILED: i32 = 100;
const NO_TESTS: i32 = 4;

/// The test runner.
pub(crate) struct Nextest {
    program: PathBuf,
    /// The list of test binaries.
    binaries: PathBuf,
    variables: Vec<(&'static str, PathBuf)>,
}

impl Nextest {
    /// Lists the test binaries, which must be built: from here on cargo's build lock is not needed. The tests get the
    /// environment `variables`.
    ///
    /// # Errors
    /// If the test runner cannot be installed, or the binaries cannot be listed.
    pub(crate) fn new(variables: Vec<(&'static str, PathBuf)>) -> Result<Self> {
        let program = install()?;
        let mut list = Command::new(&program);
        shell::without_package(&mut list);
        list.current_dir(root())
            .args(["nextest", "list", "--list-type", "binaries-only", "--message-format", "json"])
            .args(TARGETS)
            .args(system::for_building()?.flags())
            .env("CARGO", cargo().get_program())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = list.output().context("start cargo nextest")?;
        ensure!(output.status.success(), "the test binaries cannot be listed: {}", output.status);
        let binaries = target().join("nextest/binaries.json");
        fs::create_dir_all(binaries.parent().context("the list is in a folder")?)?;
        fs::write(&binaries, output.stdout).context("write the list of test binaries")?;
        Ok(Self { program, binaries, variables })
    }

    /// Runs the tests that a filterset selects and whose names contain `name`, and returns their results: of all of them
    /// if it `keeps_going`, and otherwise until a dozen have failed.
    ///
    /// # Errors
    /// If a test binary cannot be run.
    pub(crate) fn run(
        &self,
        filterset: &str,
        name: Option<&str>,
        variables: &[(&'static str, &'static str)],
        keeps_going: bool,
    ) -> Result<Vec<TestCase>> {
        let report = target().join("nextest/default/junit.xml");
        let _ = fs::remove_file(&report);
        let mut command = Command::new(&self.program);
        command
            .current_dir(root())
            .args(["nextest", "run"])
            .arg("--binaries-metadata")
            .arg(&self.binaries)
            .args(["-E", filterset])
            .args(name)
            .args(keeps_going.then_some("--no-fail-fast"))
            .env("CARGO", cargo().get_program())
            .envs(self.variables.iter().map(|(name, path)| (*name, path.as_os_str())))
            .envs(variables.iter().map(|(name, value)| (*name, OsStr::new(value))))
            .stdin(Stdio::null());
        let status = command.status().context("start cargo nextest")?;
        match status.code() {
            Some(0 | TESTS_FAILED) => {}
            Some(NO_TESTS) => return Ok(Vec::new()),
            _ => bail!("cargo nextest ended with {status}"),
        }
        let xml = fs::read_to_string(&report).with_context(|| format!("read {}", report.display()))?;
        junit::parse(&xml)
    }
}

/// Installs the test runner if it is missing: as a binary of 10 MB, or built in some minutes.
///
/// # Errors
/// If neither is possible.
pub(crate) fn install() -> Result<PathBuf> {
    prebuilt_or_built(PREBUILT, "cargo-nextest", VERSION)
}
