//! The processes that have a TPU open, found by their file descriptors.
//!
//! libtpuinfo's own list fails as a whole if one chip is idle or one process cannot be read.

use crate::source::proc_files::{ProcFiles, Unknown};
use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    path::Path,
};

/// Minimum time between two passes over all processes.
const INTERVAL_NS: u64 = 5_000_000_000;

/// Finds the holders of device files.
#[derive(Debug)]
pub struct Holders {
    processes: ProcFiles,
    scanned_ns: Option<u64>,
    by_file: BTreeMap<String, BTreeSet<u32>>,
    is_partial: bool,
}

impl Holders {
    /// Creates a scanner of `/proc`.
    pub fn new(root: &Path) -> Self {
        Self {
            processes: ProcFiles::new(root),
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
        let pids = self.processes.pids()?;
        (self.is_partial, self.by_file) = (self.processes.hides_others(&pids), BTreeMap::new());
        for pid in pids {
            match self.processes.open_files(pid) {
                Ok(open) => {
                    let names = open.iter().filter_map(|(_, path)| path.to_str()?.strip_prefix("/dev/"));
                    for name in names.filter(|name| files.contains(*name)) {
                        self.by_file.entry(name.to_owned()).or_default().insert(pid);
                    }
                }
                Err(Unknown::Hidden) => self.is_partial = true,
                Err(Unknown::Irrelevant) => {}
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

    /// Returns whether processes of other people cannot be read.
    pub const fn is_partial(&self) -> bool {
        self.is_partial
    }
}
