//! A proxy speaks for others only if the owner said so; what anybody else forwards is not heard.

use super::peer::Peer;
use std::net::IpAddr;

/// A proxy by which the kernel knows it: its user on this machine, its address elsewhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// A user of this machine.
    User(u32),
    /// A machine, over TLS.
    Address(IpAddr),
}

/// The proxies that are trusted.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies(Vec<Proxy>);

impl Proxies {
    /// Trust in these.
    pub fn new(trusted: Vec<Proxy>) -> Self {
        Self(trusted)
    }

    /// Whether what this peer forwards is heard.
    pub fn include(&self, peer: Peer) -> bool {
        let known = |proxy| self.0.contains(&proxy);
        match peer {
            Peer::User(uid) => known(Proxy::User(uid)),
            Peer::Remote(ip) => known(Proxy::Address(ip)),
            Peer::Unknown | Peer::Behind(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t27_only_a_proxy_that_was_named_speaks_for_others() {
        let (near, far): (IpAddr, IpAddr) = ("10.0.0.9".parse().unwrap(), "10.0.0.8".parse().unwrap());
        let proxies = Proxies::new(vec![Proxy::User(33), Proxy::Address(near)]);
        assert!(proxies.include(Peer::User(33)) && proxies.include(Peer::Remote(near)));
        for peer in [Peer::User(34), Peer::Remote(far), Peer::Unknown, Peer::Behind(near), Peer::owner()] {
            assert!(!proxies.include(peer), "{peer:?}");
            assert!(!Proxies::default().include(peer), "{peer:?}");
        }
    }
}
