//! Whether a file has a POSIX access control list (ACL).
//!
//! With an ACL the group bits of the mode are the list's *mask*: the most that any user or group named in the list
//! may have. They do not tell who these are, nor what the owning group may do.

use rustix::fs::{fgetxattr, getxattr};
use rustix::io::{Errno, Result};
use std::os::fd::{AsFd, AsRawFd};
use std::path::Path;

const NAME: &str = "system.posix_acl_access";

/// Whether the file or folder at `path` has an ACL; links are followed. An attribute that cannot be read counts as one.
pub fn is_on_path(path: &Path) -> bool {
    is_there(getxattr(path, NAME, &mut [0_u8; 0]))
}

/// Whether an open file or folder has an ACL. The descriptor may be one of `O_PATH`.
pub fn is_on(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    match fgetxattr(fd, NAME, &mut [0_u8; 0]) {
        // Of `O_PATH`: then by the link in /proc, which leads to this very file.
        Err(Errno::BADF) => is_on_path(Path::new(&format!("/proc/self/fd/{}", fd.as_raw_fd()))),
        found => is_there(found),
    }
}

fn is_there(length: Result<usize>) -> bool {
    // `ENOTSUP` is the same number on Linux.
    !matches!(length, Err(Errno::NODATA | Errno::OPNOTSUPP))
}
