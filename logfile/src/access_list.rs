//! Whether a file has a POSIX access control list (ACL).
//!
//! With an ACL, the group bits of the mode are the list's *mask*: the maximum for every user and
//! group in the list. They reveal neither who these are, nor the permissions of the owning group.

use rustix::fs::{fgetxattr, getxattr};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

const NAME: &str = "system.posix_acl_access";

/// Returns whether the file or folder at `path` has an ACL; links are followed. `true` if the attribute
/// cannot be read.
pub fn is_on_path(path: &Path) -> bool {
    is_there(getxattr(path, NAME, &mut [0_u8; 0]))
}

/// Returns whether an open file or folder has an ACL. The descriptor may be opened with `O_PATH`.
pub fn is_on(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    match fgetxattr(fd, NAME, &mut [0_u8; 0]) {
        // Opened with `O_PATH`: read it through the link in /proc, which leads to the same file.
        Err(Errno::BADF) => is_on_path(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd()))),
        found => is_there(found),
    }
}

fn is_there(length: Result<usize>) -> bool {
    // `ENOTSUP` has the same number on Linux.
    !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
}
