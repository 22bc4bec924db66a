//! A relay on a machine with a fake driver, whose readings follow a state file.

use crate::relay::TestRelay;
use anyhow::{Context, Result};
use fake_nvml::{install, state::State};
use serde_json::Value;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// A relay that watches one machine with fake GPUs.
#[derive(Debug)]
pub struct Machine {
    relay: TestRelay,
    state: PathBuf,
    driver: TempDir,
}

impl Machine {
    /// A machine with these GPUs, in the format of the fake driver's README.
    ///
    /// # Errors
    /// If the state is invalid, or the relay does not start.
    pub fn start(state: &Value) -> Result<Self> {
        let driver = tempfile::tempdir().context("make a folder for the driver")?;
        install::install(driver.path()).context("install the stand-in driver")?;
        Self::with_driver(driver, state)
    }

    /// Starts it with another driver version, without newer functions.
    ///
    /// # Errors
    /// As [`Machine::start`].
    pub fn start_with_driver(version: (u32, u32), state: &Value) -> Result<Self> {
        let driver = tempfile::tempdir().context("make a folder for the driver")?;
        install::install_driver(driver.path(), version).context("install the stand-in driver")?;
        Self::with_driver(driver, state)
    }

    fn with_driver(driver: TempDir, state: &Value) -> Result<Self> {
        let path = driver.path().join("state.json");
        write(&path, state)?;
        let relay = TestRelay::start_in(&["--local"], environment(&driver, &path))?;
        Ok(Self { relay, state: path, driver })
    }

    /// Changes the state of the GPUs.
    ///
    /// # Errors
    /// If the state is invalid.
    pub fn set(&self, state: &Value) -> Result<()> {
        write(&self.state, state)
    }

    /// The environment in which another program uses the same driver.
    pub fn environment(&self) -> [(&'static str, &OsStr); 2] {
        environment(&self.driver, &self.state)
    }

    /// The relay that watches it.
    pub fn relay(&self) -> &TestRelay {
        &self.relay
    }
}

fn environment<'a>(driver: &'a TempDir, state: &'a Path) -> [(&'static str, &'a OsStr); 2] {
    [("LD_LIBRARY_PATH", driver.path().as_os_str()), ("FAKE_NVML_STATE", state.as_os_str())]
}

/// Validates the state first: a misspelt key is an error of the test.
fn write(path: &Path, state: &Value) -> Result<()> {
    let state: State = serde_json::from_value(state.clone()).context("read the state of the cards")?;
    install::write_state(path, &state).context("write the state of the cards")
}
