//! A relay watches a machine whose cards are the stand-in driver's: what a test writes into the state file is what they read.

use crate::relay::TestRelay;
use anyhow::{Context, Result};
use fake_nvml::{install, state::State};
use serde_json::Value;
use std::path::PathBuf;
use tempfile::TempDir;

/// A relay of one machine, and the cards of that machine.
#[derive(Debug)]
pub struct Machine {
    relay: TestRelay,
    state: PathBuf,
    _driver: TempDir,
}

impl Machine {
    /// A machine with these cards; the state is what the stand-in's README describes.
    ///
    /// # Errors
    /// When the state is not one, or the relay does not start.
    pub fn start(state: &Value) -> Result<Self> {
        let driver = tempfile::tempdir().context("make a folder for the driver")?;
        install::install(driver.path()).context("install the stand-in driver")?;
        Self::with_driver(driver, state)
    }

    /// The same with a driver of another version; what came later is truly absent.
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
        let environment =
            [("LD_LIBRARY_PATH", driver.path().as_os_str()), ("FAKE_NVML_STATE", path.as_os_str())];
        let relay = TestRelay::start_in(&["--local"], environment)?;
        Ok(Self { relay, state: path, _driver: driver })
    }

    /// Changes what the cards read.
    ///
    /// # Errors
    /// When the state is not one.
    pub fn set(&self, state: &Value) -> Result<()> {
        write(&self.state, state)
    }

    /// The relay that watches it.
    pub fn relay(&self) -> &TestRelay {
        &self.relay
    }
}

/// Read as a state first: a misspelt key is the test's fault and not a card that is silent.
fn write(path: &std::path::Path, state: &Value) -> Result<()> {
    let state: State = serde_json::from_value(state.clone()).context("read the state of the cards")?;
    install::write_state(path, &state).context("write the state of the cards")
}
