//! SHA-256 checksums of what was packed.

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

/// The checksum of a file, in hexadecimal digits.
pub(super) fn sha256(path: &Path) -> Result<String> {
    let mut file = fs::File::open(path).with_context(|| format!("open {}", path.display()))?;
    let mut hash = Sha256::new();
    std::io::copy(&mut file, &mut hash)?;
    Ok(hash.finalize().iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    }))
}

/// Writes `SHA256SUMS` of these files, as `sha256sum --check` reads it.
pub(super) fn write(out: &Path, files: &[PathBuf]) -> Result<PathBuf> {
    let mut lines = files
        .iter()
        .map(|file| Ok(format!("{}  {}\n", sha256(file)?, file.strip_prefix(out)?.display())))
        .collect::<Result<Vec<_>>>()?;
    lines.sort_by(|a, b| a[64..].cmp(&b[64..]));
    let sums = out.join("SHA256SUMS");
    fs::write(&sums, lines.concat())?;
    Ok(sums)
}
