//! What a link carries: a key and whose it is, the owner's or a share's; each fits one kind of tab only.

use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::KeyId;
use nodeglass_protocol::share::Ticket;

/// A key and whose it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Credential {
    /// The owner's.
    Owner(Key),
    /// A share's.
    Share(Ticket),
}

impl Credential {
    /// Reads a fragment (`k=KEY`, `s=ID.KEY`), a link that ends in one, or the owner's key by itself.
    pub fn of_link(text: &str) -> Option<Self> {
        let text = text.trim();
        let fragment = text.rsplit_once('#').map_or(text, |(_, fragment)| fragment);
        match fragment.strip_prefix("s=") {
            Some(share) => share.parse().ok().map(Self::Share),
            None => fragment.strip_prefix("k=").unwrap_or(fragment).parse().ok().map(Self::Owner),
        }
    }

    /// Whether a fragment means to be one, readable or not.
    pub fn is_meant(fragment: &str) -> bool {
        fragment.starts_with("k=") || fragment.starts_with("s=")
    }

    /// The fragment again: for this browser's own tabs and nobody else.
    pub fn reveal(&self) -> String {
        match self {
            Self::Owner(key) => format!("k={}", key.reveal()),
            Self::Share(ticket) => format!("s={}", ticket.reveal()),
        }
    }

    /// Whose it is, as the relay is told.
    pub fn id(&self) -> KeyId {
        match self {
            Self::Owner(_) => KeyId::Owner,
            Self::Share(ticket) => KeyId::Share(ticket.id.clone()),
        }
    }

    /// Whether it is a share's.
    pub fn is_share(&self) -> bool {
        matches!(self, Self::Share(_))
    }

    /// The key that both ends prove to hold. A relay can check a share's without keeping its link.
    pub fn proof(&self) -> Key {
        match self {
            Self::Owner(key) => key.clone(),
            Self::Share(ticket) => ticket.proof(),
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
            assert_eq!((found.id(), found.reveal()), (KeyId::Owner, format!("k={key}")), "{given}");
        }
    }

    #[test]
    fn the_link_of_a_share_is_its_id_and_its_key() {
        let share = format!("s=k3jq9x.{}", key());
        for given in [share.clone(), format!("#{share}"), format!("http://127.0.0.1:8080/#{share} ")] {
            let found = Credential::of_link(&given).unwrap_or_else(|| panic!("{given}"));
            assert!(found.is_share() && found.reveal() == share, "{given}");
            assert_eq!(found.id(), KeyId::Share("k3jq9x".parse().unwrap()));
        }
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
