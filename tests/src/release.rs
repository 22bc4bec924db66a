//! Packs the programs that were built as `cargo xtask dist` packs a release.

use crate::relay::binary;
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Packs these kinds from a folder with `relay` and `node-probe`; returns the files by name.
///
/// # Errors
/// If `cargo xtask dist` fails, with its output.
pub fn pack(programs: &Path, out: &Path, kinds: &[&str]) -> Result<BTreeMap<String, PathBuf>> {
    // As on machines with another umask and time zone. The checkout may get a commit meanwhile, of another time.
    let xtask = binary("xtask")?;
    let mut command = Command::new("sh");
    command.args(["-c", "umask 027; exec \"$0\" dist \"$@\""]).arg(xtask).args(kinds);
    command
        .args(["--url", "https://example.org/nodeglass"])
        .arg("--programs")
        .arg(programs)
        .arg("--out")
        .arg(out)
        .env("TZ", "Asia/Tokyo")
        .env("SOURCE_DATE_EPOCH", "1700000000");
    output(&mut command)?;
    let files = fs::read_dir(out)?.filter_map(|entry| Some(entry.ok()?.path()));
    let files = files.filter(|path| path.is_file());
    Ok(files.filter_map(|path| Some((path.file_name()?.to_str()?.to_owned(), path))).collect())
}

/// The only file with such a name.
///
/// # Errors
/// If there is none, or another one.
pub fn one<'a>(files: &'a BTreeMap<String, PathBuf>, suffix: &str) -> Result<&'a Path> {
    let mut found = files.iter().filter(|(name, _)| name.ends_with(suffix));
    let (_, path) = found.next().with_context(|| format!("no {suffix}: {files:?}"))?;
    ensure!(found.next().is_none(), "more than one {suffix}: {files:?}");
    Ok(path)
}

/// The programs that were built, without debug information, which would take most of the time.
///
/// # Errors
/// If `strip` fails.
pub fn stripped(folder: &Path) -> Result<()> {
    for name in ["relay", "node-probe"] {
        output(Command::new("strip").arg("-o").arg(folder.join(name)).arg(binary(name)?))?;
    }
    Ok(())
}

/// Scripts that run the programs that were built: small files, for tests of their packing.
///
/// # Errors
/// If a program was not built, or a file cannot be written.
pub fn scripts(folder: &Path) -> Result<()> {
    for name in ["relay", "node-probe", "node-probe-aarch64"] {
        let program = binary(name.trim_end_matches("-aarch64"))?;
        fs::write(folder.join(name), format!("#!/bin/sh\nexec '{}' \"$@\"\n", program.display()))?;
        fs::set_permissions(folder.join(name), Permissions::from_mode(0o755))?;
    }
    Ok(())
}

/// What a program prints.
///
/// # Errors
/// If it fails, with its output.
pub fn output(command: &mut Command) -> Result<String> {
    let output = command.stdin(Stdio::null()).output().with_context(|| format!("{command:?}"))?;
    let (out, errors) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    ensure!(output.status.success(), "{command:?}: {out}{errors}");
    Ok(out.into_owned())
}
