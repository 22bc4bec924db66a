//! Peers that may present the owner's key: a stolen key is worthless on another user's connection.
//!
//! The kernel identifies the peer ([`super::peer`]). Peers that it cannot identify are rejected unless the owner
//! allowed them (`--trust-uid`).

use super::peer::{Peer, ProxiedUser};

/// A peer besides the owner that may present the owner's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// This user of the machine.
    User(u32),
    /// A peer that the kernel cannot identify, as from another network namespace.
    Unknown,
    /// A peer on another machine, over TLS.
    Remote,
}

/// The peers that may present the owner's key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    owner: Peer,
    others: Vec<Trusted>,
}

impl Trust {
    /// Allows the user who runs this relay, and these peers.
    pub fn new(others: Vec<Trusted>) -> Self {
        Self { owner: Peer::owner(), others }
    }

    /// Returns whether the owner's key is accepted from `peer`.
    pub fn allows_owner_from(&self, peer: Peer) -> bool {
        let trusted = |who| self.others.contains(&who);
        match peer {
            _ if peer == self.owner => true,
            Peer::User(uid) => trusted(Trusted::User(uid)),
            Peer::Unknown => trusted(Trusted::Unknown),
            Peer::Remote(_) => trusted(Trusted::Remote),
            // Other applications of the proxy's origin run in the same browser and may read the key, so
            // the proxy itself must state that it authenticated the owner.
            Peer::Behind { visitor, .. } => visitor == ProxiedUser::Owner,
        }
    }

    /// Returns whether a link for one tab is accepted from `peer`. The owner created it, so a proxy need
    /// not identify its user, but must not name another.
    pub fn allows_tab_from(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Behind { visitor: ProxiedUser::Unnamed, .. }) || self.allows_owner_from(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const MALLORY: u32 = 1_666_666;
    const FAR: Peer = Peer::Remote(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)));

    #[test]
    fn t27_behind_a_proxy_the_owners_key_needs_the_proxy_to_name_the_owner() {
        let trust = Trust::new(vec![Trusted::Unknown, Trusted::Remote]);
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for (visitor, by_key, by_tab) in [
            (ProxiedUser::Owner, true, true),
            (ProxiedUser::Unnamed, false, true),
            (ProxiedUser::Other, false, false),
        ] {
            let peer = Peer::Behind { ip, visitor };
            assert_eq!(trust.allows_owner_from(peer), by_key, "{visitor:?}");
            assert_eq!(trust.allows_tab_from(peer), by_tab, "{visitor:?}");
        }
        assert!(!trust.allows_tab_from(Peer::User(MALLORY)));
    }

    #[test]
    fn t02_the_owners_key_is_accepted_from_the_owner_and_trusted_peers_only() {
        let others = [Peer::User(MALLORY), Peer::Unknown, FAR];
        let trust = Trust::new(Vec::new());
        assert!(trust.allows_owner_from(Peer::owner()));
        assert_eq!(others.map(|peer| trust.allows_owner_from(peer)), [false; 3]);
        for (who, may) in [
            (Trusted::User(MALLORY), [true, false, false]),
            (Trusted::User(MALLORY + 1), [false; 3]),
            (Trusted::Unknown, [false, true, false]),
            (Trusted::Remote, [false, false, true]),
        ] {
            let trust = Trust::new(vec![who]);
            assert_eq!(others.map(|peer| trust.allows_owner_from(peer)), may, "{who:?}");
        }
    }
}
