//! Folders that appear complete or not at all.

use anyhow::{Context, Result};
use std::path::{Path, PathBuf};

/// A temporary folder that is renamed once it is complete.
pub(crate) struct Scratch(PathBuf);

impl Scratch {
    pub(crate) fn new(home: &Path, name: &str) -> Result<Self> {
        let dir = home.join(format!(".{name}-{}", std::process::id()));
        std::fs::create_dir_all(&dir).with_context(|| format!("make the folder {}", dir.display()))?;
        Ok(Self(dir))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// Renames it.
    pub(crate) fn commit(self, dir: &Path) -> Result<()> {
        // Replaces a broken or incomplete one.
        let _ = std::fs::remove_dir_all(dir);
        std::fs::rename(&self.0, dir).with_context(|| format!("put {} in its place", dir.display()))
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
