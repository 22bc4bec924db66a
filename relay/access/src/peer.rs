//! Identifies the user at the other end of a local connection; the uid comes from the kernel and cannot
//! be forged.

use rustix::fd::OwnedFd;
use rustix::io;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Mutex, PoisonError};
use tokio::net::UnixStream;

/// The peer of a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// Not identified: the socket is closed already, or in another network namespace.
    #[default]
    Unknown,
    /// A user of this machine, by uid.
    User(u32),
    /// Another machine, over TLS.
    Remote(IpAddr),
    /// A client behind a trusted proxy.
    Behind {
        /// The address that the proxy states.
        ip: IpAddr,
        /// The user that the proxy authenticated, if it is configured to state it.
        visitor: ProxiedUser,
    },
}

/// The user that a trusted proxy states.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ProxiedUser {
    /// Not stated.
    #[default]
    Unnamed,
    /// The user who runs this relay.
    Owner,
    /// Another user.
    Other,
    /// A person of the site, by uid: the proxy of a site's relay named them.
    Person(u32),
}

impl Peer {
    /// The user who runs this relay.
    pub fn owner() -> Self {
        Self::User(rustix::process::geteuid().as_raw())
    }

    /// The uid that the kernel reports, if known.
    pub fn uid(self) -> Option<u32> {
        match self {
            Self::User(uid) => Some(uid),
            Self::Unknown | Self::Remote(_) | Self::Behind { .. } => None,
        }
    }

    /// The peer of an accepted Unix connection (`SO_PEERCRED`).
    pub fn of_unix(stream: &UnixStream) -> Self {
        stream.peer_cred().map_or(Self::Unknown, |cred| Self::User(cred.uid()))
    }

    /// The peer of an accepted TCP connection on loopback (netlink `sock_diag`).
    ///
    /// With `ssh -L` the other end is sshd's child, which runs as the user who logged in.
    ///
    /// # Errors
    /// If the query fails; nothing is then known about the peer.
    pub fn of_tcp(kernel: &SockDiag, near: SocketAddr, far: SocketAddr) -> io::Result<Self> {
        Ok(kernel.uid(near, far)?.map_or(Self::Unknown, Self::User))
    }

    /// The peer of an accepted TCP connection on any address: another machine, or a user of this one.
    ///
    /// # Errors
    /// As [`Peer::of_tcp`].
    pub fn of_any_tcp(kernel: &SockDiag, near: SocketAddr, far: SocketAddr) -> io::Result<Self> {
        // A listener on [::] reports IPv4-mapped addresses, which sock_diag does not find.
        let [near, far] = [near, far].map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()));
        Ok(match Self::of_tcp(kernel, near, far)? {
            Self::Unknown if near.ip() != far.ip() => Self::Remote(far.ip()),
            peer => peer,
        })
    }
}

/// Queries the kernel's socket table over netlink. The netlink socket stays open, so that peers can be
/// identified even when no file descriptor is left.
#[derive(Debug, Default)]
pub struct SockDiag(Mutex<Option<OwnedFd>>);

impl SockDiag {
    /// The uid of the socket at the remote end; `None` if no process holds it any more.
    fn uid(&self, near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let socket = match &mut *open {
            Some(socket) => socket,
            closed => closed.insert(Self::open()?),
        };
        let result = query(socket, near, far);
        if result.is_err() {
            // A late response must not be mistaken for the response to the next query.
            *open = None;
        }
        result
    }

    /// Opens the netlink socket in advance, while file descriptors are available.
    ///
    /// # Errors
    /// If the kernel refuses.
    pub fn prepare(&self) -> io::Result<()> {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if open.is_none() {
            *open = Some(Self::open()?);
        }
        Ok(())
    }

    fn open() -> io::Result<OwnedFd> {
        net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))
    }
}

// From linux/netlink.h, linux/sock_diag.h, linux/inet_diag.h and netinet/tcp.h.
const HEADER: usize = 16;
const REQUEST: usize = HEADER + 56;
const NLM_F_REQUEST: u16 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const IPPROTO_TCP: u8 = 6;
const AF_INET: u8 = 2;
const AF_INET6: u8 = 10;
const ESTABLISHED: u8 = 1;
const FIN_WAIT: [u8; 2] = [4, 5];
const STATE_AT: usize = HEADER + 1;
const UID_AT: usize = HEADER + 64;
const INODE_AT: usize = HEADER + 68;

fn query(socket: &OwnedFd, near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
    net::sendto(socket, &request(near, far), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut reply = [0; 512];
    // The kernel responds before `sendto` returns; DONTWAIT, so that a lost response cannot block the relay.
    let (_, len) = net::recv(socket, &mut reply, RecvFlags::DONTWAIT)?;
    Ok(uid_in(&reply[..len.min(reply.len())]))
}

/// `inet_diag_req_v2` for the remote end's socket: from its point of view, `far` is local and `near` is
/// remote.
fn request(near: SocketAddr, far: SocketAddr) -> [u8; REQUEST] {
    let mut out = [0; REQUEST];
    out[0..4].copy_from_slice(&(REQUEST as u32).to_ne_bytes());
    out[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    out[6..8].copy_from_slice(&NLM_F_REQUEST.to_ne_bytes());
    let body = &mut out[HEADER..];
    body[0] = if far.is_ipv4() { AF_INET } else { AF_INET6 };
    body[1] = IPPROTO_TCP;
    body[4..8].fill(0xff); // every state
    body[8..10].copy_from_slice(&far.port().to_be_bytes());
    body[10..12].copy_from_slice(&near.port().to_be_bytes());
    put_ip(&mut body[12..28], far.ip());
    put_ip(&mut body[28..44], near.ip());
    body[48..56].fill(0xff); // no cookie
    out
}

fn put_ip(out: &mut [u8], ip: IpAddr) {
    match ip {
        IpAddr::V4(ip) => out[..4].copy_from_slice(&ip.octets()),
        IpAddr::V6(ip) => out.copy_from_slice(&ip.octets()),
    }
}

/// The `idiag_uid` of a socket that a process holds. For an orphaned socket the kernel reports 0, which
/// must not be mistaken for root; a half-closed one still has its owner.
fn uid_in(reply: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
    let state = *reply.get(STATE_AT)?;
    let number = |at: usize| Some(u32::from_ne_bytes(reply.get(at..at + 4)?.try_into().ok()?));
    let is_held = number(INODE_AT)? != 0 && FIN_WAIT.contains(&state);
    if kind != SOCK_DIAG_BY_FAMILY || !(state == ESTABLISHED || is_held) {
        return None;
    }
    number(UID_AT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    fn pair(bind: &str) -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind(bind).unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn the_kernel_names_the_user_behind_a_connection() {
        for bind in ["127.0.0.1:0", "[::1]:0"] {
            let (_client, server) = pair(bind);
            let peer =
                Peer::of_tcp(&SockDiag::default(), server.local_addr().unwrap(), server.peer_addr().unwrap());
            assert_eq!(peer, Ok(Peer::owner()), "{bind}");
        }
    }

    #[test]
    fn a_connection_that_is_gone_has_no_known_user() {
        let (client, server) = pair("127.0.0.1:0");
        let (near, far) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        let kernel = SockDiag::default();
        drop(client);
        assert_eq!(Peer::of_tcp(&kernel, near, far), Ok(Peer::Unknown));
        drop(server);
        assert_eq!(Peer::of_tcp(&kernel, near, far), Ok(Peer::Unknown));
    }

    #[test]
    fn a_half_closed_connection_still_has_a_uid() {
        let (client, server) = pair("127.0.0.1:0");
        let (near, far) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        client.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(Peer::of_tcp(&SockDiag::default(), near, far), Ok(Peer::owner()));
    }

    #[test]
    fn without_sock_diag_no_user_is_known() {
        let (_client, server) = pair("127.0.0.1:0");
        let (near, far) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        let file = std::fs::File::open("/dev/null").unwrap();
        let kernel = SockDiag(Mutex::new(Some(file.into())));
        assert!(Peer::of_tcp(&kernel, near, far).is_err());
        assert_eq!(Peer::of_tcp(&kernel, near, far), Ok(Peer::owner()), "the next query succeeds");
    }

    #[test]
    fn a_user_of_this_machine_is_known_by_uid_on_every_address() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let client = TcpStream::connect(addr).unwrap();
        let (server, far) = listener.accept().unwrap();
        let (near, kernel) = (server.local_addr().unwrap(), SockDiag::default());
        assert_eq!(Peer::of_any_tcp(&kernel, near, far), Ok(Peer::owner()));
        drop((client, server));
        assert_eq!(Peer::of_any_tcp(&kernel, near, far), Ok(Peer::Unknown), "a local peer is never remote");
        let far = SocketAddr::from(([192, 0, 2, 1], 4711));
        assert_eq!(Peer::of_any_tcp(&kernel, addr, far), Ok(Peer::Remote(far.ip())));
    }

    #[test]
    fn a_truncated_response_is_rejected() {
        let full = [0u8; HEADER + 72];
        for len in 0..full.len() {
            assert_eq!(uid_in(&full[..len]), None);
        }
    }
}
