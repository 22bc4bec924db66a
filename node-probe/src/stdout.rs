//! The standard output, which belongs to the probe alone: vendors' libraries print to it, too.

use std::{fs::File, io};

/// Takes the standard output. What anything else prints there goes to stderr from now on.
///
/// # Errors
/// If no descriptor is left.
pub fn take() -> io::Result<File> {
    let stdout = File::from(rustix::io::fcntl_dupfd_cloexec(io::stdout(), 3)?);
    rustix::stdio::dup2_stdout(io::stderr())?;
    Ok(stdout)
}
