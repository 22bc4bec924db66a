//! The processes of a node and the files that they have open, as `/proc` shows them.

use std::{
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Maximum number of processes.
const MAX_PROCESSES: usize = 1 << 16;
/// Maximum number of descriptors of a process.
const MAX_DESCRIPTORS: usize = 4_096;
/// Lowest uid of people; below are services, which do not compute.
const FIRST_UID: u32 = 1_000;

/// The processes below `/proc`.
#[derive(Debug)]
pub struct ProcFiles {
    proc: PathBuf,
    own_uid: u32,
}

/// Reason for not knowing the files of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// It has ended, or is a service.
    Irrelevant,
    /// It belongs to another person and cannot be read.
    Hidden,
}

impl ProcFiles {
    /// The `/proc` below `root`.
    pub fn new(root: &Path) -> Self {
        Self { proc: root.join("proc"), own_uid: rustix::process::geteuid().as_raw() }
    }

    /// Returns all processes.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn pids(&self) -> io::Result<Vec<u32>> {
        let entries = fs::read_dir(&self.proc)?.take(MAX_PROCESSES);
        Ok(entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect())
    }

    /// Returns whether `/proc` does not even list the processes of other people, as with `hidepid=2`: every machine and
    /// container has a process 1, which is not this user's.
    pub fn hides_others(&self, pids: &[u32]) -> bool {
        self.own_uid != 0 && !pids.contains(&1)
    }

    /// Returns the folder of a process.
    pub fn folder(&self, pid: u32) -> PathBuf {
        self.proc.join(pid.to_string())
    }

    /// Returns the descriptors of a process, each with the path of its file.
    ///
    /// # Errors
    /// If the process has ended or cannot be read.
    pub fn open_files(&self, pid: u32) -> Result<Vec<(u32, PathBuf)>, Unknown> {
        let folder = self.folder(pid);
        let entries = match fs::read_dir(folder.join("fd")) {
            Ok(entries) => entries.take(MAX_DESCRIPTORS),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied && self.is_of_others(&folder) => {
                return Err(Unknown::Hidden);
            }
            Err(_) => return Err(Unknown::Irrelevant),
        };
        let file = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let descriptor = entry.file_name().to_str()?.parse().ok()?;
            Some((descriptor, fs::read_link(entry.path()).ok()?))
        };
        Ok(entries.filter_map(file).collect())
    }

    fn is_of_others(&self, folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|folder| folder.uid() >= FIRST_UID && folder.uid() != self.own_uid)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_without_the_first_process_hides_others_except_from_root() {
        let of = |own_uid| ProcFiles { proc: PathBuf::new(), own_uid };
        assert!(of(1_000).hides_others(&[4_711, 4_712]));
        assert!(!of(1_000).hides_others(&[1, 4_711]));
        assert!(!of(0).hides_others(&[4_711]));
    }
}
