//! Binds the configured addresses and a private socket that only the owner can reach, or says why it
//! cannot.

use super::tls::Tls;
use nodeglass_access::runtime_dir::RuntimeDir;
use nodeglass_access::safe_path;
use nodeglass_config::BindAddr;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use tokio::net::{TcpListener, TcpSocket, UnixListener};

/// Length of the accept queue. With a short one, one user's flood makes others wait a second for the
/// retry of their kernel. The kernel clamps it to `net.core.somaxconn`.
const BACKLOG: u32 = 4096;

/// Error of listening. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Another process listens there.
    #[error(
        "{addr} is already in use; try --bind {} \
         (`relay link` lists your own relays)",
        suggest_other(addr)
    )]
    InUse {
        /// The address.
        addr: BindAddr,
    },
    /// The path exists and is not a socket.
    #[error("{} exists and is not a socket; choose another path, or remove it", .0.display())]
    NotASocket(PathBuf),
    /// Other users could replace the socket.
    #[error(
        "{addr}: {why}, so another user could take the place of the relay; choose a folder that \
         only you can write to"
    )]
    UnsafeFolder {
        /// The socket.
        addr: BindAddr,
        /// The unsafe folder, with the reason.
        why: safe_path::Exposed,
    },
    /// The connection could be intercepted.
    #[error("the relay does not listen on {0} without encryption")]
    Unencrypted(BindAddr),
    /// The system call failed.
    #[error("cannot listen on {addr}: {source}")]
    Io {
        /// The address.
        addr: BindAddr,
        /// The reason.
        source: io::Error,
    },
}

fn suggest_other(addr: &BindAddr) -> String {
    match addr {
        BindAddr::Tcp(addr) | BindAddr::Tls(addr) => {
            SocketAddr::new(addr.ip(), addr.port().checked_add(1).unwrap_or(8080)).to_string()
        }
        BindAddr::Unix(_) | BindAddr::Owner(_) => format!("{addr}.2"),
    }
}

/// Bound listeners that do not serve yet.
#[derive(Debug)]
pub struct Listeners {
    open: Vec<Listener>,
    /// On `[::1]`, in addition to those on 127.0.0.1.
    ipv6_loopback: Vec<Listener>,
    /// Ports of 127.0.0.1 that another program has bound on `[::1]`.
    ipv6_loopback_taken: Vec<u16>,
    private: Option<Listener>,
}

/// A bound listener.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
    Unix(UnixListener, SocketFile),
    /// Unix socket of a proxy of the owner, who needs no key.
    Owner(UnixListener, SocketFile),
}

/// The file of a Unix socket, removed on drop.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

impl Listener {
    /// The path of its socket's file, if it has one.
    pub(super) fn file(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) | Self::Tls(..) => None,
            Self::Unix(_, file) | Self::Owner(_, file) => Some(&file.0),
        }
    }

    /// Binds a Unix socket again whose file was deleted. Does nothing while its folder is gone, or others could replace it.
    pub(super) fn restore_file(&mut self) {
        let (Self::Unix(socket, file) | Self::Owner(socket, file)) = self else { return };
        let path = &file.0;
        if safe_path::check_folder(path).is_err() {
            return;
        }
        match open_unix(path) {
            Ok(opened) => {
                *socket = opened;
                tracing::warn!(path = %path.display(), "the socket was deleted, and is created again");
            }
            Err(error) => tracing::debug!(path = %path.display(), %error, "the socket is not created again"),
        }
    }
}

/// Returns whether the file of a socket was deleted.
pub(super) fn is_deleted(path: &Path) -> bool {
    std::fs::symlink_metadata(path).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
}

/// Binds all addresses or none. Addresses that other machines can reach require `tls`.
///
/// # Errors
/// The [`BindError`] of the first that fails.
pub async fn bind(addrs: &[BindAddr], tls: Option<&Tls>) -> Result<Listeners, BindError> {
    let mut open = Vec::new();
    for addr in addrs {
        let tcp = |at: &SocketAddr| open_tcp(*at).map_err(|source| failed(addr, source));
        open.push(match (addr, tls) {
            (BindAddr::Tcp(at), _) => Listener::Tcp(tcp(at)?),
            (BindAddr::Tls(at), Some(tls)) => Listener::Tls(tcp(at)?, tls.clone()),
            (BindAddr::Tls(_), None) => return Err(BindError::Unencrypted(addr.clone())),
            (BindAddr::Unix(path) | BindAddr::Owner(path), _) => {
                safe_path::check_folder(path)
                    .map_err(|why| BindError::UnsafeFolder { addr: addr.clone(), why })?;
                bind_unix(addr, path, path)?
            }
        });
    }
    let mut listeners =
        Listeners { open, ipv6_loopback: Vec::new(), ipv6_loopback_taken: Vec::new(), private: None };
    listeners.open_ipv6_loopback();
    Ok(listeners)
}

/// Opens a TCP listener.
fn open_tcp(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // Allows binding while earlier connections of this port are in TIME_WAIT.
    socket.set_reuseaddr(true)?;
    socket.bind(at)?;
    socket.listen(BACKLOG)
}

fn failed(addr: &BindAddr, source: io::Error) -> BindError {
    match source.kind() {
        io::ErrorKind::AddrInUse => BindError::InUse { addr: addr.clone() },
        _ => BindError::Io { addr: addr.clone(), source },
    }
}

/// Binds a Unix socket with its file at `path`, connecting by `connect_path`.
fn bind_unix(addr: &BindAddr, path: &Path, connect_path: &Path) -> Result<Listener, BindError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) if std::os::unix::net::UnixStream::connect(connect_path).is_ok() => {
            return Err(BindError::InUse { addr: addr.clone() });
        }
        // Left behind by a relay that was killed.
        Ok(_) => std::fs::remove_file(path).map_err(|source| failed(addr, source))?,
        Err(_) => {}
    }
    let listener = open_unix(connect_path).map_err(|source| failed(addr, source))?;
    let file = SocketFile(path.to_owned());
    Ok(match addr {
        BindAddr::Owner(_) => Listener::Owner(listener, file),
        _ => Listener::Unix(listener, file),
    })
}

/// Binds a socket that only its owner may connect to. Linux gives the file the mode of the unbound socket, so others
/// cannot connect at any moment.
fn open_unix(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG as i32)?;
    UnixListener::from_std(socket.into())
}

impl Listeners {
    /// Also listens on `[::1]` for each port of 127.0.0.1: `ssh -L 8080:localhost:8080` and `localhost`
    /// in a browser may resolve to it, and any other user could bind it. Does nothing on a machine
    /// without IPv6.
    fn open_ipv6_loopback(&mut self) {
        let mut taken: Vec<u16> = Vec::new();
        let mut wanted: Vec<u16> = Vec::new();
        for addr in self.addresses() {
            match addr {
                BindAddr::Tcp(at) if at.ip() == Ipv4Addr::LOCALHOST => wanted.push(at.port()),
                BindAddr::Tcp(at) | BindAddr::Tls(at) if at.is_ipv6() => taken.push(at.port()),
                _ => {}
            }
        }
        for port in wanted.into_iter().filter(|port| !taken.contains(port)) {
            match open_tcp(SocketAddr::from((Ipv6Addr::LOCALHOST, port))) {
                Ok(tcp) => self.ipv6_loopback.push(Listener::Tcp(tcp)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => self.ipv6_loopback_taken.push(port),
                Err(error) => tracing::debug!(%error, port, "not listening at [::1]"),
            }
        }
    }

    /// Ports of 127.0.0.1 for which another program listens on `[::1]`.
    pub fn ports_taken_on_ipv6(&self) -> &[u16] {
        &self.ipv6_loopback_taken
    }

    /// Additionally binds a socket in the owner's runtime directory, which no other user can replace. It
    /// was not configured, so it is not among [`Listeners::addresses`].
    ///
    /// # Errors
    /// [`BindError`] if the directory's file system does not support sockets.
    pub fn open_private(&mut self, dir: &RuntimeDir, name: &str) -> Result<PathBuf, BindError> {
        let path = dir.path().join(name);
        self.private = Some(bind_unix(&BindAddr::Unix(path.clone()), &path, &dir.socket(name))?);
        Ok(path)
    }

    /// The bound addresses, with the port that the kernel assigned for port 0.
    pub fn addresses(&self) -> Vec<BindAddr> {
        let address = |listener: &Listener| match listener {
            Listener::Tcp(tcp) => tcp.local_addr().ok().map(BindAddr::Tcp),
            Listener::Tls(tcp, _) => tcp.local_addr().ok().map(BindAddr::Tls),
            Listener::Unix(_, file) => Some(BindAddr::Unix(file.0.clone())),
            Listener::Owner(_, file) => Some(BindAddr::Owner(file.0.clone())),
        };
        self.open.iter().filter_map(address).collect()
    }

    /// All open listeners, the private one included.
    pub(super) fn into_all(self) -> Vec<Listener> {
        self.open.into_iter().chain(self.ipv6_loopback).chain(self.private).collect()
    }
}
