//! Addresses that a relay may listen on: loopback and Unix sockets, or any with TLS.

use nodeglass_access::runtime_dir::MAX_SOCKET_PATH;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddr {
    /// TCP on a loopback address.
    Tcp(SocketAddr),
    /// TLS on an address that other machines can reach.
    Tls(SocketAddr),
    /// A Unix socket that only its owner may open.
    Unix(PathBuf),
    /// A Unix socket for a proxy that runs as the owner and authenticates the owner: who connects needs no key.
    Owner(PathBuf),
}

/// Error of an address to listen on. Messages are complete sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindAddrError {
    /// Other machines could connect and intercept traffic.
    #[error(
        "{addr} can be reached from other machines, so it needs --tls-cert and --tls-key; without TLS, \
         bind 127.0.0.1:{port} and connect through `ssh -L {port}:127.0.0.1:{port} …`"
    )]
    NeedsTls {
        /// The requested address.
        addr: SocketAddr,
        /// Its port.
        port: u16,
    },
    /// A wildcard address without a host name.
    #[error(
        "{0} means every address of this machine; bind a single one, \
         or set --allowed-host to the name that browsers use"
    )]
    Everywhere(SocketAddr),
    /// A host name.
    #[error(
        "{addr} is a name, which may resolve to any address; use an IP address, \
         or bind 127.0.0.1:{port} and connect through `ssh -L {port}:127.0.0.1:{port} …`"
    )]
    Name {
        /// The requested address.
        addr: String,
        /// Its port.
        port: u16,
    },
    /// No port, or no port number.
    #[error(
        "{0:?} is not an address to listen on; use IP:PORT, such as 127.0.0.1:8080, unix:/path/to/socket, or owner:/path/to/socket"
    )]
    Unclear(String),
    /// The path cannot be a Unix socket.
    #[error(
        "{0:?} is not a path for a Unix socket; use unix: or owner: and an absolute path of at most 107 bytes"
    )]
    UnixPath(String),
}

impl FromStr for BindAddr {
    type Err = BindAddrError;

    fn from_str(raw: &str) -> Result<Self, BindAddrError> {
        for (prefix, of) in [("unix:", Self::Unix as fn(PathBuf) -> Self), ("owner:", Self::Owner)] {
            let Some(path) = raw.strip_prefix(prefix) else { continue };
            let fits = path.starts_with('/') && path.len() <= MAX_SOCKET_PATH && !path.contains('\0');
            return if fits { Ok(of(path.into())) } else { Err(BindAddrError::UnixPath(raw.into())) };
        }
        let unclear = || BindAddrError::Unclear(raw.to_owned());
        let (host, port) = raw.rsplit_once(':').ok_or_else(unclear)?;
        let port: u16 = port.parse().map_err(|_| unclear())?;
        let addr = match host {
            "" => return Err(unclear()),
            "localhost" => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            // A name could resolve to any address, now or later, so only addresses are accepted.
            _ => raw.parse().map_err(|_| match host.contains(':') {
                true => unclear(),
                false => BindAddrError::Name { addr: raw.to_owned(), port },
            })?,
        };
        Ok(if is_loopback(addr.ip()) { Self::Tcp(addr) } else { Self::Tls(addr) })
    }
}

impl BindAddr {
    /// Checks whether a relay with or without a certificate and a host name may listen here.
    ///
    /// # Errors
    /// [`BindAddrError::NeedsTls`] or [`BindAddrError::Everywhere`].
    pub fn check(&self, has_tls: bool, has_name: bool) -> Result<(), BindAddrError> {
        match self {
            Self::Tls(addr) if !has_tls => Err(BindAddrError::NeedsTls { addr: *addr, port: addr.port() }),
            Self::Tls(addr) if addr.ip().is_unspecified() && !has_name => {
                Err(BindAddrError::Everywhere(*addr))
            }
            _ => Ok(()),
        }
    }
}

fn is_loopback(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_loopback(),
        IpAddr::V6(ip) => ip.is_loopback(),
    }
}

impl fmt::Display for BindAddr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(addr) | Self::Tls(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Owner(path) => write!(f, "owner:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_loopback_is_accepted() {
        for (raw, shown) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("127.3.2.1:0", "127.3.2.1:0"),
            ("[::1]:9000", "[::1]:9000"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("unix:/run/user/1000/nodeglass.sock", "unix:/run/user/1000/nodeglass.sock"),
            ("owner:/run/user/1000/jupyter.sock", "owner:/run/user/1000/jupyter.sock"),
        ] {
            assert_eq!(raw.parse::<BindAddr>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn t29_a_reachable_address_without_tls_is_refused_with_advice() {
        for raw in
            ["0.0.0.0:8080", "10.0.0.7:8080", "[::]:8080", "[2001:db8::1]:8080", "[::ffff:127.0.0.1]:8080"]
        {
            let addr: BindAddr = raw.parse().unwrap();
            assert!(matches!(addr, BindAddr::Tls(_)), "{raw}");
            let error = addr.check(false, true).unwrap_err();
            assert!(matches!(error, BindAddrError::NeedsTls { port: 8080, .. }), "{raw}: {error}");
            assert!(error.to_string().contains("ssh -L 8080:127.0.0.1:8080"), "{error}");
            assert_eq!(addr.check(true, true), Ok(()));
        }
        assert_eq!("127.0.0.1:8080".parse::<BindAddr>().unwrap().check(false, false), Ok(()));
    }

    #[test]
    fn an_address_that_stands_for_all_needs_a_name_that_people_can_use() {
        let check = |raw: &str, has_name| raw.parse::<BindAddr>().unwrap().check(true, has_name);
        assert!(matches!(check("0.0.0.0:8443", false), Err(BindAddrError::Everywhere(_))));
        assert_eq!(check("0.0.0.0:8443", true), Ok(()));
        assert_eq!(check("10.0.0.7:8443", false), Ok(()));
        let error = "login1:8443".parse::<BindAddr>().unwrap_err();
        assert!(error.to_string().contains("use an IP address"), "{error}");
    }

    #[test]
    fn an_invalid_address_is_answered_with_the_syntax() {
        for raw in
            ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", ":8080", "::1:8080x", "fe80::1:80"]
        {
            let error = raw.parse::<BindAddr>().unwrap_err();
            assert!(matches!(error, BindAddrError::Unclear(_)), "{raw}: {error}");
        }
        for raw in ["unix:relative", "owner:relative", "owner:"] {
            assert!(matches!(raw.parse::<BindAddr>(), Err(BindAddrError::UnixPath(_))), "{raw}");
        }
    }
}
