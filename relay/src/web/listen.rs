//! The relay listens where it was told to and on a socket of its owner's alone, or says why it cannot.

use super::serve;
use super::tls::Tls;
use crate::access::proxies::Proxies;
use crate::access::runtime_dir::RuntimeDir;
use crate::config::BindAddr;
use axum::Router;
use rustix::fs::Mode;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use std::io;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::watch;

/// Connections the kernel keeps until they are accepted.
const BACKLOG: i32 = 128;

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
        let tcp = async |tcp| TcpListener::bind(tcp).await.map_err(|source| failed(addr, source));
        open.push(match (addr, tls) {
            (BindAddr::Tcp(at), _) => Listener::Tcp(tcp(at).await?),
            (BindAddr::Tls(at), Some(tls)) => Listener::Tls(tcp(at).await?, tls.clone()),
            (BindAddr::Tls(_), None) => return Err(BindError::Unencrypted(addr.clone())),
            (BindAddr::Unix(path), _) => bind_unix(addr, path, path)?,
        });
    }
    Ok(Listeners { open, own: None })
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
    rustix::net::listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

impl Listeners {
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

    /// Serves until `shutdown` turns true, then gives everybody a moment to leave. These proxies have seats
    /// of their own.
    pub async fn serve(self, router: Router, proxies: Arc<Proxies>, shutdown: watch::Receiver<bool>) {
        serve::serve(self.open.into_iter().chain(self.own).collect(), router, proxies, shutdown).await;
    }
}
