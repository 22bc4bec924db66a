//! Build id of a probe: the hash of its executable, by which the relay avoids unnecessary uploads.

use sha2::{Digest, Sha256};
use std::{fs::File, io, path::Path};

/// Number of hex digits of a build id.
pub const LENGTH: usize = 16;

/// Returns the build id of the running probe: the first [`LENGTH`] hex digits of the SHA-256 of its
/// file.
///
/// # Errors
/// If `/proc/self/exe` cannot be read.
pub fn own() -> io::Result<String> {
    of(Path::new("/proc/self/exe"))
}

/// Returns the build id of a probe's file.
///
/// # Errors
/// If the file cannot be read.
pub fn of(file: &Path) -> io::Result<String> {
    let mut hash = Sha256::new();
    io::copy(&mut File::open(file)?, &mut hash)?;
    let mut digits = hex::encode(hash.finalize());
    digits.truncate(LENGTH);
    Ok(digits)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_a_prefix_of_the_sha256_of_the_file() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("x");
        std::fs::write(&file, "abc").unwrap();
        assert_eq!(of(&file).unwrap(), "ba7816bf8f01cfea");
    }
}
