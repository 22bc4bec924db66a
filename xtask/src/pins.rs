//! What comes from PyPI and npm is pinned to the byte: `pins/` names each file's version and hash, and nothing else is taken.

use crate::shell::{root, run, step};
use crate::tools::Scratch;
use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Something that one file, or folder, of `pins/` names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pinned {
    /// Its name in `pins/`.
    pub(crate) name: &'static str,
    /// The file that shows that it is installed, below its folder.
    pub(crate) shown_by: &'static str,
}

impl Pinned {
    /// Installs Python packages into an environment of their own; returns its folder.
    ///
    /// # Errors
    /// When pip fails, as it does for a file that is not the pinned one.
    pub(crate) fn by_pip(self, home: &Path) -> Result<PathBuf> {
        let pins = folder().join(format!("{}.txt", self.name));
        let dir = self.dir(home, &[&pins])?;
        if dir.join(self.shown_by).is_file() {
            return Ok(dir);
        }
        step(&format!("installing {}", self.name), || {
            // An environment knows its own path, so it cannot be made elsewhere and moved; what is left of
            // a broken one is in the way.
            let _ = fs::remove_dir_all(&dir);
            run(Command::new("python3").args(["-m", "venv"]).arg(&dir))?;
            let install = ["-m", "pip", "install", "--quiet", "--no-deps", "--require-hashes", "-r"];
            run(Command::new(dir.join("bin/python")).args(install).arg(&pins))
        })?;
        Ok(dir)
    }

    /// Installs a package of npm; returns its folder.
    ///
    /// # Errors
    /// When npm fails, as it does for a file that is not the pinned one.
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
            // `ci` takes what the lock file says or nothing; nobody's script runs on the way.
            let flags = ["ci", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"];
            run(Command::new("npm").current_dir(part.path()).args(flags))?;
            part.become_(&dir)
        })?;
        Ok(dir)
    }

    /// Its folder is named by its pins: other pins, another folder.
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
