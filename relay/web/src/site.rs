//! People on the relay of a site: who the visitor of a connection is, without a key, and what that person sees.
//!
//! The kernel states the uid of a user of this machine; a trusted proxy names the user that it authenticated. Everyone else
//! is nobody: root, the account of the relay, proxies, other machines.

use super::Connection;
use nodeglass_access::peer::{Peer, ProxiedUser};
use nodeglass_access::people::{People, Person, Question};
use nodeglass_access::proxies::Proxies;
use nodeglass_access::trust::Trust;
use nodeglass_protocol::Text;
use nodeglass_share::{AccessGrant, Visibility};
use std::collections::{BTreeMap, BTreeSet};
use std::future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::sleep;

/// Time after which a connection is identified again: a user may have been removed, or logged out of the proxy.
const MAX_SESSION: Duration = Duration::from_secs(3_600);

/// The accounts of each user.
pub type Members = BTreeMap<Text, BTreeSet<Text>>;

/// The people of a site.
#[derive(Debug)]
pub struct Site {
    people: People,
    proxies: Arc<Proxies>,
    trust: Trust,
    admins: BTreeSet<Text>,
    /// The accounts of each user, if members of an account see its jobs.
    members: Option<watch::Receiver<Arc<Members>>>,
}

impl Site {
    /// The people of this machine. Proxies and peers that `trust` allows to present the owner's key are excluded.
    pub fn new(people: People, proxies: Arc<Proxies>, trust: Trust) -> Self {
        Self { people, proxies, trust, admins: BTreeSet::new(), members: None }
    }

    /// Shows these users everything.
    #[must_use]
    pub fn with_admins(self, admins: BTreeSet<Text>) -> Self {
        Self { admins, ..self }
    }

    /// Shows members of an account its jobs.
    #[must_use]
    pub fn with_members(self, members: watch::Receiver<Arc<Members>>) -> Self {
        Self { members: Some(members), ..self }
    }

    /// Identifies the user that a trusted proxy names.
    pub(crate) async fn named(&self, user: &str) -> ProxiedUser {
        match self.people.find(Question::Name(user.to_owned())).await {
            Some(person) => ProxiedUser::Person(person.uid),
            None => ProxiedUser::Other,
        }
    }

    /// Returns the grant of the person at the other end of a connection; `None` if it is not known who that is.
    pub(crate) async fn grant(&self, connection: &Connection) -> Option<AccessGrant> {
        let uid = match connection.peer {
            Peer::User(uid) | Peer::Behind { visitor: ProxiedUser::Person(uid), .. } => uid,
            Peer::Unknown | Peer::Remote(_) | Peer::Behind { .. } => return None,
        };
        let person = self.people.find(Question::Uid(uid)).await.filter(|person| self.is_person(person))?;
        Some(AccessGrant::Person(Arc::new(self.visibility(&person.name))))
    }

    /// Returns whether a user may be a person: programs of root and of proxies act for anyone.
    fn is_person(&self, person: &Person) -> bool {
        let peer = Peer::User(person.uid);
        person.uid != 0 && !self.proxies.include(peer) && !self.trust.allows_owner_from(peer)
    }

    fn visibility(&self, name: &Text) -> Visibility {
        if self.admins.contains(name) {
            return Visibility::of_admin(name.clone());
        }
        // Without a sender, nobody follows who is a member.
        let followed = self.members.as_ref().filter(|members| members.has_changed().is_ok());
        let members = followed.map(|members| members.borrow().clone());
        let accounts = members.and_then(|members| members.get(name).cloned()).unwrap_or_default();
        Visibility::of_person(name.clone(), accounts)
    }

    /// Waits until the person of a grant has to be identified again: what they see has changed, or it was long ago.
    /// Pending forever for others. Cancel safe.
    pub(crate) async fn outdated(site: Option<&Arc<Self>>, grant: &AccessGrant) {
        let (AccessGrant::Person(visibility), Some(site)) = (grant, site) else {
            return future::pending().await;
        };
        let changed = async {
            let (Some(mut members), Some(name)) = (site.members.clone(), visibility.person()) else {
                return future::pending().await;
            };
            while site.visibility(name) == **visibility {
                if members.changed().await.is_err() && site.visibility(name) == **visibility {
                    return future::pending().await;
                }
            }
        };
        tokio::select! {
            () = changed => {}
            () = sleep(MAX_SESSION) => {}
        }
    }
}
