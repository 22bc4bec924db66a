//! Installs the tools that build the page, once per version, outside of `target/` and shared by all
//! checkouts.

use crate::pins::Pinned;
use crate::scratch::Scratch;
use crate::shell::{cargo, long_step, output_of, root, run, step, which};
use crate::system;
use anyhow::{Context, Result, bail};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compilation target of the page.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
const TRUNK: &str = "0.21.14";
const BINARYEN: Pinned = Pinned { name: "binaryen", shown_by: "node_modules/.bin/wasm-opt" };

/// The tools that build the page.
pub(crate) struct PageTools {
    /// Folders to prepend to PATH.
    bins: Vec<PathBuf>,
}

impl PageTools {
    /// A command that finds these tools first.
    pub(crate) fn command(&self, program: &str) -> Command {
        let here = self.bins.iter().map(|bin| bin.join(program)).find(|file| file.is_file());
        let mut command = Command::new(here.unwrap_or_else(|| program.into()));
        command.current_dir(root()).env("PATH", self.path());
        command
    }

    fn path(&self) -> OsString {
        let path = std::env::var_os("PATH").unwrap_or_default();
        let dirs = self.bins.iter().cloned().chain(std::env::split_paths(&path));
        std::env::join_paths(dirs).expect("what was split from PATH can be joined again")
    }
}

/// Installs missing tools for building the page.
///
/// # Errors
/// A sentence about what is missing and how to get it.
pub(crate) fn page_tools() -> Result<PageTools> {
    wasm_target()?;
    let home = home()?;
    let bindgen = locked_version("wasm-bindgen")?;
    let trunk_features = ["--locked", "--no-default-features", "--features", "rustls"];
    Ok(PageTools {
        bins: vec![
            cargo_tool(&home, "trunk", "trunk", TRUNK, &trunk_features, "5 min")?,
            // Without `--locked`: the tool's own lock may name crates that a registry mirror no longer
            // serves.
            cargo_tool(&home, "wasm-bindgen", "wasm-bindgen-cli", &bindgen, &[], "2 min")?,
            wasm_opt(&home)?,
        ],
    })
}

/// `${XDG_CACHE_HOME:-~/.cache}/nodeglass/tools`.
pub(crate) fn home() -> Result<PathBuf> {
    let cache = std::env::var_os("XDG_CACHE_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    let cache = match cache {
        Some(cache) => cache,
        None => Path::new(&std::env::var_os("HOME").context("set HOME or XDG_CACHE_HOME")?).join(".cache"),
    };
    Ok(cache.join("nodeglass/tools"))
}

/// Adds the WASM target of the active toolchain.
pub(crate) fn wasm_target() -> Result<()> {
    rust_target(WASM)
}

/// Adds a compilation target of the active toolchain.
pub(crate) fn rust_target(name: &str) -> Result<()> {
    let sysroot =
        output_of("rustc", &["--print", "sysroot"]).context("rustc is not there: see https://rustup.rs")?;
    if Path::new(&sysroot).join("lib/rustlib").join(name).is_dir() {
        return Ok(());
    }
    if which("rustup").is_none() {
        bail!(
            "the Rust standard library for {name} is missing and there is no rustup to add it: install rustup \
             (https://rustup.rs), or your distribution's package for it (Debian: libstd-rust-dev-wasm32 for \
             {WASM})"
        );
    }
    step(&format!("adding the target {name}"), || run(Command::new("rustup").args(["target", "add", name])))
}

/// Installs a Rust program with a fast-compiling profile: it runs for seconds and is built once. `usually` is how
/// long that takes on two cores.
pub(crate) fn cargo_tool(
    home: &Path,
    name: &str,
    package: &str,
    version: &str,
    flags: &[&str],
    usually: &str,
) -> Result<PathBuf> {
    let dir = home.join(format!("{name}-{version}"));
    let bin = dir.join("bin");
    if bin.join(name).is_file() {
        return Ok(bin);
    }
    system::for_building()?;
    long_step(&format!("installing {package} {version}, once"), usually, || {
        let part = Scratch::new(home, name)?;
        let build = Scratch::new(home, &format!("{name}-build"))?;
        run(cargo()
            .current_dir(home)
            .args(["install", package, "--version", version, "--quiet", "--root"])
            .arg(part.path())
            .args(flags)
            .env("CARGO_TARGET_DIR", build.path())
            .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "0")
            .env("CARGO_PROFILE_RELEASE_LTO", "off")
            .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "16")
            .env("CARGO_PROFILE_RELEASE_DEBUG", "0"))?;
        part.commit(&dir)
    })?;
    Ok(bin)
}

/// Installs wasm-opt from npm's binaryen: Debian's is too old for current WASM features.
fn wasm_opt(home: &Path) -> Result<PathBuf> {
    if which("npm").is_none() {
        bail!(
            "npm is missing, which brings wasm-opt: install Node.js 18 or newer (Debian: apt-get install npm)"
        );
    }
    Ok(BINARYEN.by_npm(home)?.join("node_modules/.bin"))
}

/// The version of a crate in Cargo.lock.
fn locked_version(name: &str) -> Result<String> {
    let lock = std::fs::read_to_string(root().join("Cargo.lock")).context("read Cargo.lock")?;
    version_in(&lock, name).with_context(|| format!("Cargo.lock does not name {name}"))
}

fn version_in(lock: &str, name: &str) -> Option<String> {
    let entry = lock.split("[[package]]").find(|entry| {
        entry.lines().any(|line| line.strip_prefix("name = ").is_some_and(|n| n.trim_matches('"') == name))
    })?;
    let version = entry.lines().find_map(|line| line.strip_prefix("version = "))?;
    Some(version.trim_matches('"').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_very_crate() {
        let lock = "[[package]]\nname = \"wasm-bindgen-futures\"\nversion = \"0.4.1\"\n\n\
                    [[package]]\nname = \"wasm-bindgen\"\nversion = \"0.2.130\"\n";
        assert_eq!(version_in(lock, "wasm-bindgen").as_deref(), Some("0.2.130"));
        assert_eq!(version_in(lock, "wasm"), None);
    }
}
