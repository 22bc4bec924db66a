//! What the tests measure with is fetched once: other monitors to compare readings with, and a judge of accessibility.

use crate::shell::{run, step, which};
use crate::tools::{Scratch, home};
use anyhow::Result;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The monitors whose readings ours are compared with, as PyPI knows them.
const PEERS: &[&str] = &["nvitop==1.7.2", "gpustat==1.1.1"];
/// Deque's rules for accessible pages, as npm knows them.
const AXE: &str = "4.14.1";

/// The variables by which tests find the instruments; one that cannot be had is left out, and its
/// tests say that they are skipped.
///
/// # Errors
/// When one that could be had cannot be installed.
pub(crate) fn variables() -> Result<Vec<(&'static str, PathBuf)>> {
    let home = home()?;
    let mut found = Vec::new();
    if which("python3").is_some() {
        found.push(("NODEGLASS_PEERS", peers(&home)?));
    }
    if which("npm").is_some() {
        found.push(("NODEGLASS_AXE", axe(&home)?));
    }
    Ok(found)
}

/// A Python environment of their own with the peers in it; the folder of its programs.
fn peers(home: &Path) -> Result<PathBuf> {
    let dir = home.join(format!("peers-{}", PEERS.join("-").replace("==", "-")));
    let bin = dir.join("bin");
    if bin.join("nvitop").is_file() {
        return Ok(bin);
    }
    step(&format!("installing {}", PEERS.join(" ")), || {
        // An environment knows its own path, so it cannot be made elsewhere and moved; what is left of
        // a broken one is in the way.
        let _ = std::fs::remove_dir_all(&dir);
        run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
        run(Command::new(bin.join("python")).args(["-m", "pip", "install", "--quiet"]).args(PEERS))
    })?;
    Ok(bin)
}

/// The script that judges a page.
fn axe(home: &Path) -> Result<PathBuf> {
    let dir = home.join(format!("axe-core-{AXE}"));
    let script = dir.join("node_modules/axe-core/axe.min.js");
    if script.is_file() {
        return Ok(script);
    }
    step(&format!("installing axe-core {AXE}"), || {
        let part = Scratch::new(home, "axe-core")?;
        let package = format!("axe-core@{AXE}");
        let quiet = ["--no-audit", "--no-fund", "--loglevel=error"];
        run(Command::new("npm").arg("install").arg("--prefix").arg(part.path()).args(quiet).arg(&package))?;
        part.become_(&dir)
    })?;
    Ok(script)
}
