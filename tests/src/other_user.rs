//! Acts as another user of the machine, as the kernel reports it.

use anyhow::{Context, Result, anyhow};
use rustix::process::Uid;
use std::net::TcpStream;

/// `nobody`, who exists on every machine and owns nothing.
pub const NOBODY: u32 = 65_534;

/// The login name of the user who runs the tests.
///
/// # Errors
/// If `id` is missing or prints nothing.
pub fn own_name() -> Result<String> {
    let output = std::process::Command::new("id").arg("-un").output().context("ask for our own name")?;
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Returns why no test can act as another user here, if so.
pub fn why_not() -> Option<String> {
    let root = rustix::process::geteuid().is_root();
    (!root).then(|| "acting as another user needs root".to_owned())
}

/// Connects to `authority` as the user `uid`.
///
/// # Errors
/// If this process may not become that user, or nothing listens.
pub fn connect(uid: u32, authority: &str) -> Result<tokio::net::TcpStream> {
    let pipe = become_user(uid, || TcpStream::connect(authority))?.context("connect to the relay")?;
    pipe.set_nonblocking(true)?;
    Ok(tokio::net::TcpStream::from_std(pipe)?)
}

/// Returns what `act` does as the user `uid`.
///
/// # Errors
/// If this process may not become that user.
pub fn become_user<T: Send>(uid: u32, act: impl FnOnce() -> T + Send) -> Result<T> {
    let as_user = || {
        let uid = Uid::from_raw(uid);
        // The kernel tracks credentials per thread, and this one ends here.
        rustix::thread::set_thread_res_uid(uid, uid, uid).context("become another user")?;
        Ok(act())
    };
    std::thread::scope(|scope| scope.spawn(as_user).join())
        .map_err(|_| anyhow!("the thread of the other user failed"))?
}

/// A tunnel whose connections to `authority` belong to the user, like connections of an SSH login; closed on drop.
#[derive(Debug)]
pub struct Tunnel {
    port: u16,
    task: tokio::task::JoinHandle<()>,
}

impl Tunnel {
    /// Opens it on a free loopback port.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn open(uid: u32, authority: &str) -> Result<Self> {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.context("take a port")?;
        let (port, authority) = (listener.local_addr()?.port(), authority.to_owned());
        let task = tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let Ok(mut far) = connect(uid, &authority) else { continue };
                tokio::spawn(async move { tokio::io::copy_bidirectional(&mut near, &mut far).await });
            }
        });
        Ok(Self { port, task })
    }

    /// Its local end, as `host:port`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}
