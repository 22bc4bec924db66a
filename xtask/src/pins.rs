//! Pins packages from PyPI and npm by version and hash in `pins/`; nothing else is installed.

use crate::scratch::Scratch;
use crate::shell::{root, run, step};
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A pinned package, with a file or folder in `pins/`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    /// Its name in `pins/`.
    pub(crate) name: &'static str,
    /// A file below its folder that shows that it is installed.
    pub(crate) shown_by: &'static str,
}

impl Pinned {
    /// Installs Python packages into an environment of their own; returns its folder.
    ///
    /// # Errors
    /// If pip fails, as it does for a file that does not match its hash.
    pub(crate) fn by_pip(self, home: &Path) -> Result<PathBuf> {
        let pins = folder().join(format!("{}.txt", self.name));
        let dir = self.dir(home, &[&pins])?;
        if dir.join(self.shown_by).is_file() {
            return Ok(dir);
        }
        step(&format!("installing {}", self.name), || {
            // A virtual environment contains its own path, so it cannot be moved into place; remains of a
            // broken one are removed.
            let _ = fs::remove_dir_all(&dir);
            run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
            let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r"];
            run(Command::new(dir.join("bin/python")).args(install).arg(&pins))
        })?;
        Ok(dir)
    }

    /// Installs an npm package; returns its folder.
    ///
    /// # Errors
    /// If npm fails, as it does for a file that does not match its hash.
    pub(crate) fn by_npm(self, home: &Path) -> Result<PathBuf> {
        let files = ["package.json", "package-lock.json"].map(|file| folder().join(self.name).join(file));
        let dir = self.dir(home, &[&files[0], &files[1]])?;
        if dir.join(self.shown_by).exists() {
            return Ok(dir);
        }
        step(&format!("installing {}", self.name), || {
            let part = Scratch::new(home, self.name)?;
            for file in &files {
                let name = file.file_name().context("a file has a name")?;
                fs::copy(file, part.path().join(name)).with_context(|| format!("copy {}", file.display()))?;
            }
            // `ci` installs exactly the versions of the lock file, and runs no scripts.
            let flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
            run(Command::new("npm").current_dir(part.path()).args(flags))?;
            part.commit(&dir)
        })?;
        Ok(dir)
    }

    /// Named by a hash of its pins, so that other pins use another folder.
    fn dir(self, home: &Path, pins: &[&Path]) -> Result<PathBuf> {
        let mut hash = Sha256::new();
        for file in pins {
            hash.update(fs::read(file).with_context(|| format!("read {}", file.display()))?);
        }
        let hash = hash.finalize().iter().take(4).fold(String::new(), |mut out, byte| {
            let _ = write!(out, "{byte:02x}");
            out
        });
        Ok(home.join(format!("{}-{hash}", self.name)))
    }
}

fn folder() -> PathBuf {
    root().join("xtask/pins")
}
