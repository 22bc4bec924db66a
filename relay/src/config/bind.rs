//! An address that a relay may listen on is one that nobody outside this machine can reach.

use crate::access::runtime_dir::MAX_SOCKET_PATH;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::str::FromStr;

/// Where a relay listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BindAddr {
    /// TCP on a loopback address.
    Tcp(SocketAddr),
    /// A Unix socket that only its owner may open.
    Unix(PathBuf),
}

/// Why a relay does not listen there. Each is a sentence for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BindAddrError {
    /// Others could connect.
    #[error(
        "{addr} can be reached from other machines, and the relay does not encrypt by itself; \
         bind 127.0.0.1:{port} and come in through `ssh -L {port}:127.0.0.1:{port} …`"
    )]
    NotLoopback {
        /// What was asked for.
        addr: String,
        /// Its port.
        port: u16,
    },
    /// No port, or no port number.
    #[error(
        "{0:?} is not an address to listen on; write HOST:PORT, such as 127.0.0.1:8080, or unix:/path/to/socket"
    )]
    Unclear(String),
    /// The path cannot be a Unix socket.
    #[error("{0:?} is not a path for a Unix socket; write unix: and an absolute path of at most 107 bytes")]
    UnixPath(String),
}

impl FromStr for BindAddr {
    type Err = BindAddrError;

    fn from_str(raw: &str) -> Result<Self, BindAddrError> {
        if let Some(path) = raw.strip_prefix("unix:") {
            let fits = path.starts_with('/') && path.len() <= MAX_SOCKET_PATH && !path.contains('\0');
            return if fits { Ok(Self::Unix(path.into())) } else { Err(BindAddrError::UnixPath(raw.into())) };
        }
        let unclear = || BindAddrError::Unclear(raw.to_owned());
        let (host, port) = raw.rsplit_once(':').ok_or_else(unclear)?;
        let port: u16 = port.parse().map_err(|_| unclear())?;
        let addr = match host {
            "" => return Err(unclear()),
            "localhost" => SocketAddr::from((Ipv4Addr::LOCALHOST, port)),
            // A name could resolve to any address, now or later, so only addresses are taken.
            _ => raw.parse().map_err(|_| match host.contains(':') {
                true => unclear(),
                false => not_loopback(raw, port),
            })?,
        };
        if is_loopback(addr.ip()) { Ok(Self::Tcp(addr)) } else { Err(not_loopback(raw, port)) }
    }
}

fn not_loopback(raw: &str, port: u16) -> BindAddrError {
    BindAddrError::NotLoopback { addr: raw.to_owned(), port }
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
            Self::Tcp(addr) => addr.fmt(f),
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_loopback_is_taken() {
        for (raw, shown) in [
            ("127.0.0.1:8080", "127.0.0.1:8080"),
            ("127.3.2.1:0", "127.3.2.1:0"),
            ("[::1]:9000", "[::1]:9000"),
            ("localhost:8080", "127.0.0.1:8080"),
            ("unix:/run/user/1000/nodeglass.sock", "unix:/run/user/1000/nodeglass.sock"),
        ] {
            assert_eq!(raw.parse::<BindAddr>().unwrap().to_string(), shown);
        }
    }

    #[test]
    fn an_address_that_others_can_reach_is_refused_with_the_way_out() {
        for raw in ["0.0.0.0:8080", "10.0.0.7:8080", "[::]:8080", "[::ffff:127.0.0.1]:8080", "login1:8080"] {
            let error = raw.parse::<BindAddr>().unwrap_err();
            assert!(matches!(error, BindAddrError::NotLoopback { port: 8080, .. }), "{raw}: {error}");
            assert!(error.to_string().contains("ssh -L 8080:127.0.0.1:8080"), "{error}");
        }
    }

    #[test]
    fn what_is_no_address_is_told_how_to_write_one() {
        for raw in
            ["", "8080", "127.0.0.1", "127.0.0.1:", "127.0.0.1:99999", ":8080", "::1:8080x", "fe80::1:80"]
        {
            let error = raw.parse::<BindAddr>().unwrap_err();
            assert!(matches!(error, BindAddrError::Unclear(_)), "{raw}: {error}");
        }
        assert!(matches!("unix:relative".parse::<BindAddr>(), Err(BindAddrError::UnixPath(_))));
    }
}
