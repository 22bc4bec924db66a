//! Trusted proxies, whose forwarded headers are used; forwarded headers of other peers are ignored.

use super::peer::{Peer, ProxiedUser};
use nodeglass_protocol::Text;
use std::net::IpAddr;

/// A trusted proxy: its user on this machine, or its address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Proxy {
    /// A user of this machine.
    User(u32),
    /// Another machine, over TLS.
    Address(IpAddr),
}

/// The trusted proxies.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Proxies {
    trusted: Vec<Proxy>,
    user_header: Option<UserHeader>,
}

/// The header in which a proxy names the authenticated user.
#[derive(Clone, Debug, PartialEq, Eq)]
struct UserHeader {
    name: String,
    /// The owner's login name; `None` matches no user.
    owner: Option<Text>,
}

impl Proxies {
    /// Trusts these proxies.
    pub fn new(trusted: Vec<Proxy>) -> Self {
        Self { trusted, user_header: None }
    }

    /// Sets the header in which the proxies name the authenticated user; `owner` is the owner's login
    /// name.
    #[must_use]
    pub fn naming_visitors(self, header: String, owner: Option<Text>) -> Self {
        Self { user_header: Some(UserHeader { name: header, owner }), ..self }
    }

    /// The header in which they name the authenticated user, if configured.
    pub fn user_header(&self) -> Option<&str> {
        self.user_header.as_ref().map(|header| header.name.as_str())
    }

    /// The user that a value of this header denotes.
    pub fn visitor(&self, user: Option<&str>) -> ProxiedUser {
        match (user, &self.user_header) {
            (Some(user), Some(UserHeader { owner: Some(owner), .. })) if user == owner.as_str() => {
                ProxiedUser::Owner
            }
            (Some(_), Some(_)) => ProxiedUser::Other,
            _ => ProxiedUser::Unnamed,
        }
    }

    /// Returns whether `peer` is a trusted proxy.
    pub fn include(&self, peer: Peer) -> bool {
        let known = |proxy| self.trusted.contains(&proxy);
        match peer {
            Peer::User(uid) => known(Proxy::User(uid)),
            Peer::Remote(ip) => known(Proxy::Address(ip)),
            Peer::Unknown | Peer::Behind { .. } => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn t27_only_a_trusted_proxy_may_forward() {
        let (near, far): (IpAddr, IpAddr) = ("10.0.0.9".parse().unwrap(), "10.0.0.8".parse().unwrap());
        let proxies = Proxies::new(vec![Proxy::User(33), Proxy::Address(near)]);
        assert!(proxies.include(Peer::User(33)) && proxies.include(Peer::Remote(near)));
        let behind = Peer::Behind { ip: near, visitor: ProxiedUser::Owner };
        for peer in [Peer::User(34), Peer::Remote(far), Peer::Unknown, behind, Peer::owner()] {
            assert!(!proxies.include(peer), "{peer:?}");
            assert!(!Proxies::default().include(peer), "{peer:?}");
        }
    }

    #[test]
    fn t27_a_visitor_is_the_owner_only_by_the_exact_name_and_if_names_are_required() {
        let proxies = Proxies::new(vec![Proxy::User(33)]);
        assert_eq!(proxies.visitor(Some("alice")), ProxiedUser::Unnamed);
        let naming = proxies.clone().naming_visitors("X-Forwarded-User".into(), Some("alice".into()));
        for (user, visitor) in [
            (Some("alice"), ProxiedUser::Owner),
            (Some("Alice"), ProxiedUser::Other),
            (Some("alice@example.org"), ProxiedUser::Other),
            (Some("bob"), ProxiedUser::Other),
            (None, ProxiedUser::Unnamed),
        ] {
            assert_eq!(naming.visitor(user), visitor, "{user:?}");
        }
        let ownerless = proxies.naming_visitors("X-Forwarded-User".into(), None);
        assert_eq!(ownerless.visitor(Some("alice")), ProxiedUser::Other);
    }
}
