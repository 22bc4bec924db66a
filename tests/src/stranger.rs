//! Another user of the same machine: what they connect, the kernel says is theirs.

use anyhow::{Context, Result, anyhow};
use rustix::process::Uid;
use std::net::TcpStream;

/// `nobody`, who is on every machine and owns nothing.
pub const NOBODY: u32 = 65_534;

/// Why no test can act as another user here, if so.
pub fn why_not() -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    (!root).then(|| "acting as another user needs root".to_owned())
}

/// Connects to `authority` as the user `uid`.
///
/// # Errors
/// When this process may not become that user, or nobody listens.
pub fn connect(uid: u32, authority: &str) -> Result<tokio::net::TcpStream> {
    let authority = authority.to_owned();
    let connected = std::thread::spawn(move || {
        let uid = Uid::from_raw(uid);
        // A thread has credentials of its own as far as the kernel is concerned, and this one ends here.
        rustix::thread::set_thread_res_uid(uid, uid, uid).context("become another user")?;
        let pipe = TcpStream::connect(authority).context("connect to the relay")?;
        pipe.set_nonblocking(true)?;
        anyhow::Ok(pipe)
    });
    let pipe = connected.join().map_err(|_| anyhow!("the thread of the other user failed"))??;
    Ok(tokio::net::TcpStream::from_std(pipe)?)
}
