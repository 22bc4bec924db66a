//! Detects that this process cannot unload the library of a replaced driver.
//!
//! After a driver update the new library must be loaded. `dlclose` may not unload the old one (a
//! thread may hang in a call, or the library may refuse), and `dlopen` returns a loaded library of
//! the same name. Then only a new process can load the new one.

use std::{ffi::OsStr, fs, os::unix::ffi::OsStrExt, os::unix::fs::MetadataExt, path::Path};

/// Returns whether a file with the library's name is mapped into this process but no longer exists at its
/// path.
pub fn holds_replaced(library: &OsStr) -> bool {
    fs::read("/proc/self/maps").is_ok_and(|maps| is_replaced(&maps, library))
}

fn is_replaced(maps: &[u8], library: &OsStr) -> bool {
    let Some(name) = Path::new(library).file_name() else { return false };
    // Installed libraries are symbolic links to a file with the version in its name.
    let stem = name.as_bytes().split(|byte| *byte == b'.').next().unwrap_or_default();
    maps.split(|byte| *byte == b'\n').filter_map(Mapping::of).any(|mapping| {
        let file_name = mapping.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        file_name.starts_with(stem) && !mapping.is_installed()
    })
}

/// A line of `/proc/PID/maps` for a file.
struct Mapping<'a> {
    inode: u64,
    path: &'a [u8],
}

impl<'a> Mapping<'a> {
    /// `address perms offset dev inode path`, with blanks before the path.
    fn of(line: &'a [u8]) -> Option<Self> {
        let mut rest = line;
        let mut words = [&line[..0]; 5];
        for word in &mut words {
            let end = rest.iter().position(|byte| *byte == b' ')?;
            (*word, rest) = (&rest[..end], rest[end..].trim_ascii_start());
        }
        let inode = std::str::from_utf8(words[4]).ok()?.parse().ok()?;
        rest.starts_with(b"/").then_some(Self { inode, path: rest })
    }

    /// Returns whether the path still leads to the file. Its device is not compared, because `stat` and the
    /// kernel's list differ on some file systems.
    fn is_installed(&self) -> bool {
        fs::metadata(OsStr::from_bytes(self.path)).is_ok_and(|meta| meta.ino() == self.inode)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maps(path: &Path, inode: u64, suffix: &str) -> Vec<u8> {
        format!(
            "55d0-55d1 r-xp 00000000 08:01 7                          /usr/bin/node-probe\n\
             7f00-7f01 rw-p 00000000 00:00 0 \n\
             7f02-7f03 r-xp 00001000 08:01 {inode}                    {}{suffix}\n",
            path.display()
        )
        .into_bytes()
    }

    #[test]
    fn a_mapped_but_uninstalled_library_is_detected() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("libnvidia-ml.so.535.54");
        fs::write(&file, "old").unwrap();
        let inode = fs::metadata(&file).unwrap().ino();
        let library = OsStr::new("libnvidia-ml.so.1");
        assert!(!is_replaced(&maps(&file, inode, ""), library));
        assert!(is_replaced(&maps(&file, inode + 1, ""), library), "another file has its name");
        assert!(is_replaced(&maps(&file, inode, " (deleted)"), library));
        assert!(!is_replaced(&maps(&file, inode + 1, ""), OsStr::new("libcuda.so.1")));
        assert!(!is_replaced(b"", library));
    }
}
