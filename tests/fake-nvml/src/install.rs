//! Installs the library at the path where a client finds the driver's, for tests that depend on this crate.
//!
//! Depending on it is what makes cargo build `libfake_nvml.so` beside the test.

use crate::{state::State, symbol_versions};
use std::{
    collections::BTreeSet,
    env, fs, io,
    path::{Path, PathBuf},
};

/// Path of the state file on a machine whose environment the test does not control.
pub const STATE_PATH: &str = "/etc/fake-nvml.json";
/// Library names that clients open.
pub const NAMES: [&str; 2] = ["libnvidia-ml.so.1", "libnvidia-ml.so"];
/// A driver before MIG, with version 1 of process lists and memory.
const OLD: (u32, u32) = (440, 0);

/// The library that cargo built for this process's executable.
///
/// # Errors
/// If there is none beside the executable: the crate of the test must depend on `fake-nvml`.
pub fn library() -> io::Result<PathBuf> {
    let executable = env::current_exe()?;
    let folders = executable.ancestors().skip(1).take(2);
    let places =
        folders.flat_map(|folder| [folder.join("libfake_nvml.so"), folder.join("deps/libfake_nvml.so")]);
    let newest = places.filter_map(|path| Some((fs::metadata(&path).ok()?.modified().ok()?, path))).max();
    newest.map(|(_, path)| path).ok_or_else(|| io::Error::other("libfake_nvml.so is not beside the test"))
}

/// Copies the library into `folder` under both names; returns the path of the first.
///
/// # Errors
/// What [`library`] and copying may fail with.
pub fn install(folder: &Path) -> io::Result<PathBuf> {
    write(folder, &fs::read(library()?)?)
}

/// Like [`install`], for a driver of version `driver`: newer symbols are truly absent.
///
/// The version that the driver reports comes from the state file.
///
/// # Errors
/// What [`library`] and copying may fail with.
pub fn install_driver(folder: &Path, driver: (u32, u32)) -> io::Result<PathBuf> {
    let mut bytes = fs::read(library()?)?;
    let newer: BTreeSet<_> = symbol_versions::newer_than(driver).collect();
    let places: Vec<_> = symbols(&bytes).filter(|(_, name)| newer.contains(name)).collect();
    // A lookup finds the hash of such a name, but not the name.
    let ends: Vec<_> = places.into_iter().map(|(at, name)| at + name.len() - 1).collect();
    for end in ends {
        bytes[end] = b'-';
    }
    write(folder, &bytes)
}

/// Names in the string tables of the library that start like NVML's, with their offsets.
pub fn symbols(library: &[u8]) -> impl Iterator<Item = (usize, &str)> {
    let texts = library.split(|byte| *byte == 0).scan(0, |next, text| {
        let at = *next;
        *next += text.len() + 1;
        Some((at, text))
    });
    let named = texts.filter(|(_, text)| text.starts_with(b"nvml"));
    named.filter_map(|(at, text)| Some((at, std::str::from_utf8(text).ok()?)))
}

/// Like [`install_driver`], of a driver before 450.
///
/// # Errors
/// What [`library`] and copying may fail with.
pub fn install_old_driver(folder: &Path) -> io::Result<PathBuf> {
    install_driver(folder, OLD)
}

/// Replaces the state file atomically.
///
/// # Errors
/// If the folder cannot be written.
pub fn write_state(path: &Path, state: &State) -> io::Result<()> {
    let fresh = path.with_extension("new");
    fs::write(&fresh, serde_json::to_vec_pretty(state)?)?;
    fs::rename(fresh, path)
}

fn write(folder: &Path, bytes: &[u8]) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    for name in NAMES {
        fs::write(folder.join(name), bytes)?;
    }
    Ok(folder.join(NAMES[0]))
}
