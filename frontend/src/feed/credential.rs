//! What a link carries: a key and whose it is, the owner's or a share's; each fits one kind of tab only.

use nodeglass_protocol::handshake::{Exchange, Key};
use nodeglass_protocol::live::KeyId;
use nodeglass_protocol::share::{ShareId, Ticket};

/// A key and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The owner's.
    Owner(Key),
    /// A share's.
    Share(Ticket),
    /// The owner's, for the first tab that uses it.
    Tab(Ticket),
    /// What a link for one tab became when it was used: good in this tab alone, and never stored.
    Session {
        /// The link's id.
        id: ShareId,
        /// The key that only this tab and the relay know.
        key: Key,
        /// The link, for as long as the relay has not confirmed that it accepted the proof of it.
        unconfirmed: Option<Ticket>,
    },
}

impl Credential {
    /// Reads a fragment (`k=KEY`, `s=ID.KEY`, `t=ID.KEY`), a link that ends in one, or the owner's key by itself.
    pub fn of_link(text: &str) -> Option<Self> {
        let text = text.trim();
        let fragment = text.rsplit_once('#').map_or(text, |(_, fragment)| fragment);
        match (fragment.strip_prefix("s="), fragment.strip_prefix("t=")) {
            (Some(share), _) => share.parse().ok().map(Self::Share),
            (None, Some(tab)) => tab.parse().ok().map(Self::Tab),
            (None, None) => fragment.strip_prefix("k=").unwrap_or(fragment).parse().ok().map(Self::Owner),
        }
    }

    /// Whether a fragment means to be one, readable or not.
    pub fn is_meant(fragment: &str) -> bool {
        ["k=", "s=", "t="].iter().any(|kind| fragment.starts_with(kind))
    }

    /// The fragment again, for this browser's own tabs and nobody else; a session has none.
    pub fn reveal(&self) -> Option<String> {
        match self {
            Self::Owner(key) => Some(format!("k={}", key.reveal())),
            Self::Share(ticket) => Some(format!("s={}", ticket.reveal())),
            Self::Tab(ticket) => Some(format!("t={}", ticket.reveal())),
            Self::Session { .. } => None,
        }
    }

    /// Whose it is, as the relay is told.
    pub fn id(&self) -> KeyId {
        match self {
            Self::Owner(_) => KeyId::Owner,
            Self::Share(ticket) => KeyId::Share(ticket.id.clone()),
            Self::Tab(Ticket { id, .. }) | Self::Session { id, .. } => KeyId::Tab(id.clone()),
        }
    }

    /// Whether it is good in one tab only.
    pub fn is_for_one_tab(&self) -> bool {
        matches!(self, Self::Tab(_) | Self::Session { .. })
    }

    /// What it is once the relay has received the proof of it. The connection may break before the page learns
    /// whether that happened.
    pub fn proved(&self, exchange: &Exchange<'_>) -> Self {
        match self {
            Self::Tab(ticket) => Self::Session {
                id: ticket.id.clone(),
                key: exchange.session_key(&ticket.proof()),
                unconfirmed: Some(ticket.clone()),
            },
            other => other.clone(),
        }
    }

    /// What it is from now on that the relay accepted it.
    pub fn accepted(self) -> Self {
        match self {
            Self::Session { id, key, .. } => Self::Session { id, key, unconfirmed: None },
            other => other,
        }
    }

    /// The link to try again where the relay does not know the session: it never received the proof.
    pub fn before_proof(&self) -> Option<Self> {
        match self {
            Self::Session { unconfirmed, .. } => unconfirmed.clone().map(Self::Tab),
            _ => None,
        }
    }

    /// Whether it is a share's.
    pub fn is_share(&self) -> bool {
        matches!(self, Self::Share(_))
    }

    /// The key that both ends prove to hold. A relay can check a share's without keeping its link.
    pub fn proof(&self) -> Key {
        match self {
            Self::Owner(key) | Self::Session { key, .. } => key.clone(),
            Self::Share(ticket) | Self::Tab(ticket) => ticket.proof(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> String {
        Key::new([7; 32]).reveal()
    }

    #[test]
    fn a_key_is_found_in_a_link_a_fragment_and_by_itself() {
        let key = key();
        for given in [
            key.clone(),
            format!("k={key}"),
            format!("#k={key}"),
            format!("  http://127.0.0.1:8080/job/17#k={key}\n"),
        ] {
            let found = Credential::of_link(&given).unwrap_or_else(|| panic!("{given}"));
            assert_eq!((found.id(), found.reveal()), (KeyId::Owner, Some(format!("k={key}"))), "{given}");
        }
    }

    #[test]
    fn the_link_of_a_share_is_its_id_and_its_key() {
        let share = format!("s=k3jq9x.{}", key());
        for given in [share.clone(), format!("#{share}"), format!("http://127.0.0.1:8080/#{share} ")] {
            let found = Credential::of_link(&given).unwrap_or_else(|| panic!("{given}"));
            assert!(found.is_share() && found.reveal().as_deref() == Some(&share), "{given}");
            assert_eq!(found.id(), KeyId::Share("k3jq9x".parse().unwrap()));
        }
    }

    #[test]
    fn a_link_for_one_tab_becomes_a_session_that_has_no_link() {
        let link = Credential::of_link(&format!("https://portal/#t=k3jq9x.{}", key())).unwrap();
        assert_eq!(link.id(), KeyId::Tab("k3jq9x".parse().unwrap()));
        assert!(link.is_for_one_tab() && !link.is_share());
        let nonce = |n| nodeglass_protocol::handshake::Nonce([n; 32]);
        let exchange = Exchange { client: nonce(1), server: nonce(2), authority: "portal" };
        let unconfirmed = link.proved(&exchange);
        assert_eq!(unconfirmed.before_proof(), Some(link.clone()), "the proof may be lost");
        let session = unconfirmed.accepted();
        assert_eq!(session.before_proof(), None);
        assert_eq!((session.id(), session.reveal()), (link.id(), None));
        assert_eq!(session.proof(), exchange.session_key(&link.proof()));
        assert_ne!(session.proof(), link.proof());
        assert_eq!(
            session.proved(&exchange).accepted(),
            session,
            "it stays the same when the tab comes back"
        );
    }

    #[test]
    fn what_is_no_credential_is_none() {
        let key = key();
        for given in ["", "k=", "http://127.0.0.1:8080/", "k=short", "x=AAAA", "s=", "s=id", "s=id.short"] {
            assert_eq!(Credential::of_link(given), None, "{given}");
        }
        for given in [format!("s=.{key}"), format!("s=ID.{key}"), format!("s=a/b.{key}"), format!("s={key}")]
        {
            assert_eq!(Credential::of_link(&given), None, "{given}");
        }
    }

    /// An owner's key that is called a share's, or the other way round, opens nothing.
    #[test]
    fn a_share_proves_another_key_than_the_one_in_its_link() {
        let key = key();
        let owner = Credential::of_link(&format!("k={key}")).unwrap();
        let share = Credential::of_link(&format!("s=id.{key}")).unwrap();
        assert_eq!(owner.proof().reveal(), key);
        assert_eq!(share.proof(), Key::new([7; 32]).derive(b"share handshake"));
        assert_ne!(share.proof(), owner.proof());
    }

    #[test]
    fn a_cut_off_link_is_still_meant_as_one() {
        assert!(Credential::is_meant("s=id.AAA") && Credential::is_meant("k="));
        assert!(!Credential::is_meant("") && !Credential::is_meant("main"));
    }
}
