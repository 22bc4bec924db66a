//! Files of `/proc/PID` that both the host's and the processes' readings are derived from.

pub(crate) mod devices;
pub(crate) mod environ;
pub(crate) mod job;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Maximum number of bytes that are read of a file.
pub(crate) const MAX_BYTES: u64 = 1 << 20;

/// Reads a file, at most [`MAX_BYTES`] of it: a process can make its arguments and its environment as long as its memory.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(MAX_BYTES).read_to_end(&mut bytes)?;
    Ok(bytes)
}
