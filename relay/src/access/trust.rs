//! The owner's key opens for the owner's own connections only: a stolen key in another user's hands is worth nothing.
//!
//! Who calls is the kernel's word ([`super::peer`]); where the kernel cannot say, the answer is no,
//! unless the owner said that it is yes (`--trust-uid`).

use super::peer::{Peer, Visitor};

/// Somebody, besides the owner, whose connections may show the owner's key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trusted {
    /// This user of the machine.
    User(u32),
    /// Whoever the kernel cannot name, as from another network namespace.
    Unknown,
    /// Whoever comes from another machine, over TLS.
    Remote,
}

/// From whom the owner's key is taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    owner: Peer,
    others: Vec<Trusted>,
}

impl Trust {
    /// Trust in who runs this relay, and in these.
    pub fn new(others: Vec<Trusted>) -> Self {
        Self { owner: Peer::owner(), others }
    }

    /// Whether the owner may be at the other end of such a connection.
    pub fn owner_may_come_from(&self, peer: Peer) -> bool {
        let trusted = |who| self.others.contains(&who);
        match peer {
            _ if peer == self.owner => true,
            Peer::User(uid) => trusted(Trusted::User(uid)),
            Peer::Unknown => trusted(Trusted::Unknown),
            Peer::Remote(_) => trusted(Trusted::Remote),
            // Other applications of the proxy's origin run in the same browser and may find the key, so that
            // the proxy must say itself that it let the owner in.
            Peer::Behind { visitor, .. } => visitor == Visitor::Owner,
        }
    }

    /// Whether a link for one tab may be used from such a connection: who made it is the owner, so that a
    /// proxy need not name its visitor, but must not name another.
    pub fn tab_may_come_from(&self, peer: Peer) -> bool {
        matches!(peer, Peer::Behind { visitor: Visitor::Unnamed, .. }) || self.owner_may_come_from(peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const MALLORY: u32 = 1_666_666;
    const FAR: Peer = Peer::Remote(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 9)));

    #[test]
    fn t27_behind_a_proxy_the_owners_key_needs_the_proxys_word() {
        let trust = Trust::new(vec![Trusted::Unknown, Trusted::Remote]);
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        for (visitor, by_key, by_tab) in
            [(Visitor::Owner, true, true), (Visitor::Unnamed, false, true), (Visitor::Other, false, false)]
        {
            let peer = Peer::Behind { ip, visitor };
            assert_eq!(trust.owner_may_come_from(peer), by_key, "{visitor:?}");
            assert_eq!(trust.tab_may_come_from(peer), by_tab, "{visitor:?}");
        }
        assert!(!trust.tab_may_come_from(Peer::User(MALLORY)));
    }

    #[test]
    fn t02_only_the_owner_and_who_is_trusted_by_name_may_bring_the_owners_key() {
        let strangers = [Peer::User(MALLORY), Peer::Unknown, FAR];
        let trust = Trust::new(Vec::new());
        assert!(trust.owner_may_come_from(Peer::owner()));
        assert_eq!(strangers.map(|peer| trust.owner_may_come_from(peer)), [false; 3]);
        for (who, may) in [
            (Trusted::User(MALLORY), [true, false, false]),
            (Trusted::User(MALLORY + 1), [false; 3]),
            (Trusted::Unknown, [false, true, false]),
            (Trusted::Remote, [false, false, true]),
        ] {
            let trust = Trust::new(vec![who]);
            assert_eq!(strangers.map(|peer| trust.owner_may_come_from(peer)), may, "{who:?}");
        }
    }
}
