//! The relay listens where it was told to and on a socket of its owner's alone, or says why it cannot.

use super::serve;
use super::tls::Tls;
use crate::access::proxies::Proxies;
use crate::access::runtime_dir::RuntimeDir;
use crate::access::safe_path;
use crate::config::BindAddr;
use axum::Router;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{TcpListener, TcpSocket, UnixListener};
use tokio::sync::watch;

/// Connections the kernel keeps until they are accepted: with few, one user's flood makes others' wait for the
/// next try of their kernel, a second later. The kernel lowers it to its own limit (`net.core.somaxconn`).
const BACKLOG: u32 = 4096;

/// Why the relay cannot listen. Each is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// Somebody listens there already.
    #[error(
        "{addr} is in use: if it is your own relay, `relay link` prints its link; \
         if not, it cannot be seen whose it is, and another address will do: --bind {}",
        another(addr)
    )]
    InUse {
        /// The address.
        addr: BindAddr,
    },
    /// There is something else at the socket's path.
    #[error("{} exists and is not a socket; the relay does not remove it, so choose another path", .0.display())]
    NotASocket(PathBuf),
    /// Others could put a socket of their own in its place.
    #[error(
        "unix:{}: {why}, so that another user could listen there in the relay's place; choose a folder that \
         only you can write to",
        path.display()
    )]
    UnsafeFolder {
        /// The socket.
        path: PathBuf,
        /// What is wrong with which folder.
        why: safe_path::Exposed,
    },
    /// Whoever is on the way could read along.
    #[error("the relay does not listen on {0} without encryption")]
    Unencrypted(BindAddr),
    /// The system said no.
    #[error("the relay cannot listen on {addr}: {source}")]
    Io {
        /// The address.
        addr: BindAddr,
        /// Why.
        source: io::Error,
    },
}

fn another(addr: &BindAddr) -> String {
    match addr {
        BindAddr::Tcp(addr) | BindAddr::Tls(addr) => {
            SocketAddr::new(addr.ip(), addr.port().checked_add(1).unwrap_or(8080)).to_string()
        }
        BindAddr::Unix(path) => format!("unix:{}.2", path.display()),
    }
}

/// Open listeners that serve nobody yet.
#[derive(Debug)]
pub struct Listeners {
    open: Vec<Listener>,
    /// At `[::1]`, beside those at 127.0.0.1.
    beside: Vec<Listener>,
    /// Ports of 127.0.0.1 that somebody else has at `[::1]`.
    not_beside: Vec<u16>,
    own: Option<Listener>,
}

/// One of them.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    Tls(TcpListener, Tls),
    Unix(UnixListener, SocketFile),
}

/// A socket's file; dropping it removes it.
#[derive(Debug)]
pub(super) struct SocketFile(PathBuf);

impl Drop for SocketFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// Opens every address, or none. Those that other machines can reach need `tls`.
///
/// # Errors
/// [`BindError`] of the first one that fails.
pub async fn bind(addrs: &[BindAddr], tls: Option<&Tls>) -> Result<Listeners, BindError> {
    let mut open = Vec::new();
    for addr in addrs {
        let tcp = |at: &SocketAddr| open_tcp(*at).map_err(|source| failed(addr, source));
        open.push(match (addr, tls) {
            (BindAddr::Tcp(at), _) => Listener::Tcp(tcp(at)?),
            (BindAddr::Tls(at), Some(tls)) => Listener::Tls(tcp(at)?, tls.clone()),
            (BindAddr::Tls(_), None) => return Err(BindError::Unencrypted(addr.clone())),
            (BindAddr::Unix(path), _) => {
                safe_path::check_folder(path)
                    .map_err(|why| BindError::UnsafeFolder { path: path.clone(), why })?;
                bind_unix(addr, path, path)?
            }
        });
    }
    let mut listeners = Listeners { open, beside: Vec::new(), not_beside: Vec::new(), own: None };
    listeners.open_beside();
    Ok(listeners)
}

/// Opens a TCP listener.
fn open_tcp(at: SocketAddr) -> io::Result<TcpListener> {
    let socket = if at.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }?;
    // A port whose last connections are still closing is free.
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

/// Opens a socket whose file is at `path`, and which is reached by `way`.
fn bind_unix(addr: &BindAddr, path: &Path, way: &Path) -> Result<Listener, BindError> {
    match std::fs::symlink_metadata(path) {
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) if std::os::unix::net::UnixStream::connect(way).is_ok() => {
            return Err(BindError::InUse { addr: addr.clone() });
        }
        // Left behind by a relay that was killed.
        Ok(_) => std::fs::remove_file(path).map_err(|source| failed(addr, source))?,
        Err(_) => {}
    }
    let listener = open_unix(way).map_err(|source| failed(addr, source))?;
    Ok(Listener::Unix(listener, SocketFile(path.to_owned())))
}

/// Opens a socket that only its owner may connect to. Linux gives the file the mode of the unbound
/// socket, so there is no moment at which others could.
fn open_unix(path: &Path) -> io::Result<UnixListener> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::fs::fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    rustix::net::listen(&socket, BACKLOG as i32)?;
    UnixListener::from_std(socket.into())
}

impl Listeners {
    /// Listens at `[::1]`, too, wherever a port of 127.0.0.1 is open: `ssh -L 8080:localhost:8080` and `localhost`
    /// in a browser may lead there, and any other user could take it. A machine without IPv6 needs none.
    fn open_beside(&mut self) {
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
                Ok(tcp) => self.beside.push(Listener::Tcp(tcp)),
                Err(error) if error.kind() == io::ErrorKind::AddrInUse => self.not_beside.push(port),
                Err(error) => tracing::debug!(%error, port, "not listening at [::1]"),
            }
        }
    }

    /// The ports of 127.0.0.1 at which another program listens on `[::1]`.
    pub fn taken_beside(&self) -> &[u16] {
        &self.not_beside
    }

    /// Opens a socket in the owner's runtime directory besides: no other user can listen in its place.
    /// It is no address that was asked for, so it is not among [`Listeners::addresses`].
    ///
    /// # Errors
    /// [`BindError`] when the directory's file system has no sockets.
    pub fn open_own(&mut self, dir: &RuntimeDir, name: &str) -> Result<PathBuf, BindError> {
        let path = dir.path().join(name);
        self.own = Some(bind_unix(&BindAddr::Unix(path.clone()), &path, &dir.socket(name))?);
        Ok(path)
    }

    /// Where they listen, with the port that the kernel chose where 0 was asked for.
    pub fn addresses(&self) -> Vec<BindAddr> {
        let address = |listener: &Listener| match listener {
            Listener::Tcp(tcp) => tcp.local_addr().ok().map(BindAddr::Tcp),
            Listener::Tls(tcp, _) => tcp.local_addr().ok().map(BindAddr::Tls),
            Listener::Unix(_, file) => Some(BindAddr::Unix(file.0.clone())),
        };
        self.open.iter().filter_map(address).collect()
    }

    /// Serves until `shutdown` turns true, then gives everybody a moment to leave. These proxies have connection_limit
    /// of their own.
    pub async fn serve(self, router: Router, proxies: Arc<Proxies>, shutdown: watch::Receiver<bool>) {
        let all = self.open.into_iter().chain(self.beside).chain(self.own).collect();
        serve::serve(all, router, proxies, shutdown).await;
    }
}
