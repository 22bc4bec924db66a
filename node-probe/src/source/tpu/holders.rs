//! The processes that have a TPU open, found by their file descriptors.
//!
//! libtpuinfo's own list fails as a whole if one chip is idle or one process cannot be read.

use crate::source::drm::card::{self, MAX_ENTRIES};
use std::{
    collections::{BTreeMap, BTreeSet},
    fs, io,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// Minimum time between two passes over all processes.
const INTERVAL_NS: u64 = 5_000_000_000;
/// Maximum number of descriptors of a process.
const MAX_DESCRIPTORS: usize = 4_096;
/// Lowest uid of people; below are services, which do not compute.
const FIRST_UID: u32 = 1_000;

/// Finds the holders of device files.
#[derive(Debug)]
pub struct Holders {
    proc: PathBuf,
    own_uid: u32,
    scanned_ns: Option<u64>,
    by_file: BTreeMap<String, BTreeSet<u32>>,
    is_partial: bool,
}

impl Holders {
    /// Creates a scanner of `/proc`.
    pub fn new(root: &Path) -> Self {
        Self {
            proc: root.join("proc"),
            own_uid: rustix::process::geteuid().as_raw(),
            scanned_ns: None,
            by_file: BTreeMap::new(),
            is_partial: false,
        }
    }

    /// Updates the holders of these files below `/dev`, at most every five seconds.
    ///
    /// # Errors
    /// If `/proc` cannot be read.
    pub fn update(&mut self, now_ns: u64, files: &BTreeSet<String>) -> io::Result<()> {
        if self.scanned_ns.is_some_and(|at_ns| now_ns.saturating_sub(at_ns) < INTERVAL_NS) {
            return Ok(());
        }
        let names = fs::read_dir(&self.proc)?.take(MAX_ENTRIES);
        let names = names.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let pids: Vec<u32> = names.filter_map(|name| card::number(&name, "")).collect();
        (self.is_partial, self.by_file) = (false, BTreeMap::new());
        for pid in pids {
            let folder = self.proc.join(pid.to_string());
            match open_files(&folder) {
                Ok(open) => {
                    for file in open.intersection(files) {
                        self.by_file.entry(file.clone()).or_default().insert(pid);
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                    self.is_partial |= self.is_of_others(&folder);
                }
                // It has ended.
                Err(_) => {}
            }
        }
        self.scanned_ns = Some(now_ns);
        Ok(())
    }

    /// Returns the processes that have a file open.
    pub fn of(&self, file: Option<&str>) -> impl ExactSizeIterator<Item = u32> {
        static NONE: BTreeSet<u32> = BTreeSet::new();
        file.and_then(|file| self.by_file.get(file)).unwrap_or(&NONE).iter().copied()
    }

    /// Whether processes of other people cannot be read.
    pub const fn is_partial(&self) -> bool {
        self.is_partial
    }

    fn is_of_others(&self, folder: &Path) -> bool {
        fs::metadata(folder).is_ok_and(|meta| meta.uid() >= FIRST_UID && meta.uid() != self.own_uid)
    }
}

/// Returns the files below `/dev` that a process has open.
fn open_files(folder: &Path) -> io::Result<BTreeSet<String>> {
    let entries = fs::read_dir(folder.join("fd"))?.take(MAX_DESCRIPTORS);
    let targets = entries.filter_map(|entry| fs::read_link(entry.ok()?.path()).ok());
    Ok(targets.filter_map(|target| Some(target.to_str()?.strip_prefix("/dev/")?.to_owned())).collect())
}
