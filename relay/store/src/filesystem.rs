//! File systems that support SQLite's write-ahead log: it needs memory that all of its readers share, so they must be
//! on one machine.

use std::path::Path;

/// The way in which SQLite makes transactions atomic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Journal {
    /// Write-ahead log: readers do not wait for writers.
    Wal,
    /// Rollback journal: works wherever locks do.
    Delete,
}

/// File systems of several machines, by the magic number of `statfs(2)`: NFS, Lustre, GPFS, FUSE, CIFS, SMB2,
/// Ceph, AFS, BeeGFS, 9p.
const SHARED: [u64; 10] = [
    0x6969,
    0x0bd0_0bd0,
    0x4750_4653,
    0x6573_5546,
    0xff53_4d42,
    0xfe53_4d42,
    0x00c3_6400,
    0x5346_414f,
    0x1983_0326,
    0x0102_1997,
];

/// Returns whether a directory is on a file system of several machines, or on an unknown one.
pub fn is_shared(dir: &Path) -> bool {
    Journal::of(dir) == Journal::Delete
}

impl Journal {
    /// Returns the journal for a database in this directory; the one that always works if its file system is unknown.
    pub(super) fn of(dir: &Path) -> Self {
        match rustix::fs::statfs(dir) {
            #[expect(clippy::cast_sign_loss, reason = "the number is a bit pattern")]
            Ok(found) => Self::of_magic(found.f_type as u64),
            Err(_) => Self::Delete,
        }
    }

    fn of_magic(magic: u64) -> Self {
        // The kernel sign-extends the numbers of some.
        if SHARED.contains(&(magic & 0xffff_ffff)) { Self::Delete } else { Self::Wal }
    }

    /// Its name in SQL.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Wal => "WAL",
            Self::Delete => "DELETE",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_write_ahead_log_is_for_local_file_systems_only() {
        let (ext4, nfs, cifs) = (0xef53, 0x6969, 0xffff_ffff_ff53_4d42);
        assert_eq!(
            [ext4, nfs, cifs].map(Journal::of_magic),
            [Journal::Wal, Journal::Delete, Journal::Delete]
        );
        assert_eq!(Journal::of(Path::new("/nowhere")), Journal::Delete);
    }
}
