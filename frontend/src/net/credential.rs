//! The credential in a link: a key, and whether it belongs to the owner or to a share.

use nodeglass_protocol::handshake::{Exchange, Key};
use nodeglass_protocol::live::KeyId;
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::ShareId;

/// A key and its kind.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The owner's key.
    Owner(Key),
    /// A share's key.
    Share(Ticket),
    /// The owner's key, for the first tab that uses it.
    Tab(Ticket),
    /// The session that replaces a used single-tab link. It is valid in this tab only and never stored.
    Session {
        /// The link's id.
        id: ShareId,
        /// The key that only this tab and the relay know.
        key: Key,
        /// The link, until the relay has confirmed that it accepted the proof.
        unconfirmed: Option<Ticket>,
    },
    /// No key: the relay of a site identifies the person by the connection.
    Person,
}

impl Credential {
    /// Parses a fragment (`k=KEY`, `s=ID.KEY`, `t=ID.KEY`), a link with such a fragment, or the owner's bare
    /// key.
    pub fn from_link(text: &str) -> Option<Self> {
        // A sentence may go on behind a link.
        let text = text.trim().trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '>', '"', '\'']);
        let fragment = text.rsplit_once('#').map_or(text, |(_, fragment)| fragment);
        match (fragment.strip_prefix("s="), fragment.strip_prefix("t=")) {
            (Some(share), _) => share.parse().ok().map(Self::Share),
            (None, Some(tab)) => tab.parse().ok().map(Self::Tab),
            (None, None) => fragment.strip_prefix("k=").unwrap_or(fragment).parse().ok().map(Self::Owner),
        }
    }

    /// Returns whether a fragment looks like a credential, well-formed or not.
    pub fn looks_like_key(fragment: &str) -> bool {
        ["k=", "s=", "t="].iter().any(|kind| fragment.starts_with(kind))
    }

    /// Returns the link fragment, which contains the key, for this browser's own tabs only; a session has none.
    pub fn reveal(&self) -> Option<String> {
        match self {
            Self::Owner(key) => Some(format!("k={}", key.reveal())),
            Self::Share(ticket) => Some(format!("s={}", ticket.reveal())),
            Self::Tab(ticket) => Some(format!("t={}", ticket.reveal())),
            Self::Session { .. } | Self::Person => None,
        }
    }

    /// Returns the key id to send to the relay.
    pub fn id(&self) -> KeyId {
        match self {
            Self::Owner(_) => KeyId::Owner,
            Self::Share(ticket) => KeyId::Share(ticket.id.clone()),
            Self::Tab(Ticket { id, .. }) | Self::Session { id, .. } => KeyId::Tab(id.clone()),
            Self::Person => KeyId::Person,
        }
    }

    /// Returns whether it is valid in one tab only.
    pub fn is_single_tab(&self) -> bool {
        matches!(self, Self::Tab(_) | Self::Session { .. })
    }

    /// Returns the credential after the proof was sent. The connection may break before the page learns
    /// whether the relay received it.
    pub fn after_proof(&self, exchange: &Exchange<'_>) -> Self {
        match self {
            Self::Tab(ticket) => Self::Session {
                id: ticket.id.clone(),
                key: exchange.session_key(&ticket.proof()),
                unconfirmed: Some(ticket.clone()),
            },
            other => other.clone(),
        }
    }

    /// Returns the credential once the relay has accepted it.
    pub fn after_accept(self) -> Self {
        match self {
            Self::Session { id, key, .. } => Self::Session { id, key, unconfirmed: None },
            other => other,
        }
    }

    /// Returns the single-tab link to retry if the relay does not know the session, because it never received the
    /// proof.
    pub fn unconfirmed_link(&self) -> Option<Self> {
        match self {
            Self::Session { unconfirmed, .. } => unconfirmed.clone().map(Self::Tab),
            _ => None,
        }
    }

    /// Returns whether it belongs to a share.
    pub fn is_share(&self) -> bool {
        matches!(self, Self::Share(_))
    }

    /// Returns the key that both ends prove, if there is one. A relay can verify a share's key without storing its link.
    pub fn proof_key(&self) -> Option<Key> {
        match self {
            Self::Owner(key) | Self::Session { key, .. } => Some(key.clone()),
            Self::Share(ticket) | Self::Tab(ticket) => Some(ticket.proof()),
            Self::Person => None,
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
    fn a_key_is_parsed_from_a_link_a_fragment_or_alone() {
        let key = key();
        for given in [
            key.clone(),
            format!("k={key}"),
            format!("#k={key}"),
            format!("  http://127.0.0.1:8080/job/17#k={key}\n"),
        ] {
            let found = Credential::from_link(&given).unwrap_or_else(|| panic!("{given}"));
            assert_eq!((found.id(), found.reveal()), (KeyId::Owner, Some(format!("k={key}"))), "{given}");
        }
    }

    #[test]
    fn a_share_link_has_an_id_and_a_key() {
        let share = format!("s=k3jq9x.{}", key());
        let link = format!("http://127.0.0.1:8080/#{share}");
        for given in [share.clone(), format!("#{share}"), format!("{link} "), format!("{link}>.")] {
            let found = Credential::from_link(&given).unwrap_or_else(|| panic!("{given}"));
            assert!(found.is_share() && found.reveal().as_deref() == Some(&share), "{given}");
            assert_eq!(found.id(), KeyId::Share("k3jq9x".parse().unwrap()));
        }
    }

    #[test]
    fn a_single_tab_link_becomes_a_session_without_a_link() {
        let link = Credential::from_link(&format!("https://portal/#t=k3jq9x.{}", key())).unwrap();
        assert_eq!(link.id(), KeyId::Tab("k3jq9x".parse().unwrap()));
        assert!(link.is_single_tab() && !link.is_share());
        let nonce = |n| nodeglass_protocol::handshake::Nonce([n; 32]);
        let exchange = Exchange { client: nonce(1), server: nonce(2), authority: "portal" };
        let unconfirmed = link.after_proof(&exchange);
        assert_eq!(unconfirmed.unconfirmed_link(), Some(link.clone()), "the proof may be lost");
        let session = unconfirmed.after_accept();
        assert_eq!(session.unconfirmed_link(), None);
        assert_eq!((session.id(), session.reveal()), (link.id(), None));
        assert_eq!(session.proof_key(), link.proof_key().map(|key| exchange.session_key(&key)));
        assert_ne!(session.proof_key(), link.proof_key());
        assert_eq!(
            session.after_proof(&exchange).after_accept(),
            session,
            "it is the same when the tab returns"
        );
    }

    #[test]
    fn malformed_credentials_are_rejected() {
        let key = key();
        for given in ["", "k=", "http://127.0.0.1:8080/", "k=short", "x=AAAA", "s=", "s=id", "s=id.short"] {
            assert_eq!(Credential::from_link(given), None, "{given}");
        }
        for given in [format!("s=.{key}"), format!("s=ID.{key}"), format!("s=a/b.{key}"), format!("s={key}")]
        {
            assert_eq!(Credential::from_link(&given), None, "{given}");
        }
    }

    /// An owner's key that is presented as a share's, or vice versa, opens nothing.
    #[test]
    fn a_share_proves_a_key_derived_from_its_link() {
        let key = key();
        let owner = Credential::from_link(&format!("k={key}")).unwrap();
        let share = Credential::from_link(&format!("s=id.{key}")).unwrap();
        assert_eq!(owner.proof_key().map(|key| key.reveal()), Some(key));
        assert_eq!(share.proof_key(), Some(Key::new([7; 32]).derive(b"share handshake")));
        assert_ne!(share.proof_key(), owner.proof_key());
    }

    #[test]
    fn a_truncated_link_still_looks_like_a_key() {
        assert!(Credential::looks_like_key("s=id.AAA") && Credential::looks_like_key("k="));
        assert!(!Credential::looks_like_key("") && !Credential::looks_like_key("main"));
    }
}
