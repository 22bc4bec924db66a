//! The kernel says which user is at the other end of a local connection; nobody can lie about it.

use rustix::io;
use rustix::net::netlink::{SOCK_DIAG, SocketAddrNetlink};
use rustix::net::{self, AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};
use std::net::{IpAddr, SocketAddr};
use tokio::net::UnixStream;

/// Who is at the other end.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Peer {
    /// The kernel did not say: the socket is gone already, or is in another network namespace.
    #[default]
    Unknown,
    /// A user of this machine, by uid.
    User(u32),
    /// Somebody on another machine, over TLS.
    Remote(IpAddr),
    /// Somebody for whom a trusted proxy speaks, by the address that the proxy gives.
    Behind(IpAddr),
}

impl Peer {
    /// The user who runs this relay.
    pub fn owner() -> Self {
        Self::User(rustix::process::geteuid().as_raw())
    }

    /// The uid, where the kernel says one.
    pub fn uid(self) -> Option<u32> {
        match self {
            Self::User(uid) => Some(uid),
            Self::Unknown | Self::Remote(_) | Self::Behind(_) => None,
        }
    }

    /// The peer of an accepted Unix connection (`SO_PEERCRED`).
    pub fn of_unix(stream: &UnixStream) -> Self {
        stream.peer_cred().map_or(Self::Unknown, |cred| Self::User(cred.uid()))
    }

    /// The peer of an accepted TCP connection on loopback (netlink `sock_diag`).
    ///
    /// With `ssh -L` the other end is sshd's child, which runs as the user who logged in.
    pub fn of_tcp(near: SocketAddr, far: SocketAddr) -> Self {
        ask(near, far).ok().flatten().map_or(Self::Unknown, Self::User)
    }

    /// The peer of an accepted TCP connection on any address: another machine's, or a user of this one.
    pub fn of_any_tcp(near: SocketAddr, far: SocketAddr) -> Self {
        // A listener on [::] gives IPv4 in the clothes of IPv6, in which the kernel does not find the other end.
        let [near, far] = [near, far].map(|addr| SocketAddr::new(addr.ip().to_canonical(), addr.port()));
        match Self::of_tcp(near, far) {
            Self::Unknown if near.ip() != far.ip() => Self::Remote(far.ip()),
            peer => peer,
        }
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
const STATE_AT: usize = HEADER + 1;
const UID_AT: usize = HEADER + 64;

fn ask(near: SocketAddr, far: SocketAddr) -> io::Result<Option<u32>> {
    let socket =
        net::socket_with(AddressFamily::NETLINK, SocketType::DGRAM, SocketFlags::CLOEXEC, Some(SOCK_DIAG))?;
    net::sendto(&socket, &request(near, far), SendFlags::empty(), &SocketAddrNetlink::new(0, 0))?;
    let mut reply = [0; 512];
    // The kernel answers before `sendto` returns; DONTWAIT, because a lost answer must not stop the relay.
    let (_, len) = net::recv(&socket, &mut reply, RecvFlags::DONTWAIT)?;
    Ok(uid_in(&reply[..len.min(reply.len())]))
}

/// `inet_diag_req_v2` for the far end's socket: seen from there, `far` is local and `near` is remote.
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

/// `idiag_uid` of an established socket. Of a closing one the kernel says 0, which must not be taken for root.
fn uid_in(reply: &[u8]) -> Option<u32> {
    let kind = u16::from_ne_bytes(reply.get(4..6)?.try_into().ok()?);
    if kind != SOCK_DIAG_BY_FAMILY || *reply.get(STATE_AT)? != ESTABLISHED {
        return None;
    }
    Some(u32::from_ne_bytes(reply.get(UID_AT..UID_AT + 4)?.try_into().ok()?))
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
            let peer = Peer::of_tcp(server.local_addr().unwrap(), server.peer_addr().unwrap());
            assert_eq!(peer, Peer::owner(), "{bind}");
        }
    }

    #[test]
    fn a_connection_that_is_gone_has_no_known_user() {
        let (client, server) = pair("127.0.0.1:0");
        let (near, far) = (server.local_addr().unwrap(), server.peer_addr().unwrap());
        drop(client);
        assert_eq!(Peer::of_tcp(near, far), Peer::Unknown);
        drop(server);
        assert_eq!(Peer::of_tcp(near, far), Peer::Unknown);
    }

    #[test]
    fn a_user_of_this_machine_is_known_by_uid_on_every_address() {
        let listener = TcpListener::bind("[::]:0").unwrap();
        let addr = SocketAddr::from(([127, 0, 0, 1], listener.local_addr().unwrap().port()));
        let client = TcpStream::connect(addr).unwrap();
        let (server, far) = listener.accept().unwrap();
        let near = server.local_addr().unwrap();
        assert_eq!(Peer::of_any_tcp(near, far), Peer::owner());
        drop((client, server));
        assert_eq!(Peer::of_any_tcp(near, far), Peer::Unknown, "one of this machine is never remote");
        let far = SocketAddr::from(([192, 0, 2, 1], 4711));
        assert_eq!(Peer::of_any_tcp(addr, far), Peer::Remote(far.ip()));
    }

    #[test]
    fn an_answer_cut_short_is_no_answer() {
        let full = [0u8; HEADER + 72];
        for len in 0..full.len() {
            assert_eq!(uid_in(&full[..len]), None);
        }
    }
}
