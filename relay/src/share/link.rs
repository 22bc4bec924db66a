//! The key of a share follows from the owner's key and the share's terms, so that no term can be changed in a link.

use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::share::{Share, ShareId};
use std::fmt;

/// What a link holds besides the id. Its `Debug` shows nothing.
///
/// A holder proves [`Secret::handshake_key`], not the secret itself: what the relay keeps of a share over
/// a restart does not tell its link.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Key);

impl Secret {
    /// The secret of a share under this owner's key.
    pub fn of(share: &Share, owner: &Key) -> Self {
        // The whole of the share is in it, and JSON of one type has one form.
        let terms = serde_json::to_vec(share).unwrap_or_default();
        let context = [b"share".as_slice(), &terms].concat();
        Self(owner.derive(&context))
    }

    /// Reads one.
    pub fn parse(text: &str) -> Option<Self> {
        text.parse().ok().map(Self)
    }

    /// The key that its holder proves.
    pub fn handshake_key(&self) -> Key {
        self.0.derive(b"share handshake")
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// The fragment of a share's link.
pub fn fragment(id: &ShareId, secret: &Secret) -> String {
    format!("#s={id}.{}", secret.0.reveal())
}

/// The two parts of `ID.KEY`, as a fragment or a `Bearer` names them.
pub fn credential(text: &str) -> Option<(ShareId, Secret)> {
    let (id, secret) = text.split_once('.')?;
    Some((ShareId::new(id).ok()?, Secret::parse(secret)?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::{Hides, Scope, ShareTerms};

    fn share() -> Share {
        let terms = ShareTerms {
            label: "for Bob".into(),
            scope: Scope::Jobs(vec![JobId(17)]),
            hides: Hides::default(),
            to: None,
            expires_ms: 1,
            ends_with_job: true,
        };
        Share { id: ShareId::new("abc").unwrap(), made_ms: 0, terms }
    }

    #[test]
    fn t09_every_term_of_a_share_is_in_its_key() {
        let owner = Key::new([7; 32]);
        let known = Secret::of(&share(), &owner);
        assert!(known == Secret::of(&share(), &owner));
        let changed = |change: fn(&mut Share)| {
            let mut share = share();
            change(&mut share);
            Secret::of(&share, &owner)
        };
        let changes: [fn(&mut Share); 8] = [
            |share| share.id = ShareId::new("abd").unwrap(),
            |share| share.terms.scope = Scope::All,
            |share| share.terms.scope = Scope::Jobs(vec![JobId(17), JobId(18)]),
            |share| share.terms.hides.arguments = false,
            |share| share.terms.hides.logs = false,
            |share| share.terms.to = Some("bob".into()),
            |share| share.terms.expires_ms = 2,
            |share| share.terms.ends_with_job = false,
        ];
        for change in changes {
            assert!(known != changed(change));
        }
        assert!(known != Secret::of(&share(), &Key::new([8; 32])));
    }

    #[test]
    fn a_link_is_read_back_and_what_is_none_is_not() {
        let secret = Secret::of(&share(), &Key::new([7; 32]));
        let link = fragment(&share().id, &secret);
        let (id, read) = credential(link.strip_prefix("#s=").unwrap()).unwrap();
        assert!(id == share().id && read == secret);
        for wrong in ["", ".", "abc", "abc.", "abc.short", ".AAAA", "ABC.AAAA"] {
            assert!(credential(wrong).is_none(), "{wrong}");
        }
    }

    #[test]
    fn what_the_relay_keeps_is_not_what_the_link_holds() {
        let secret = Secret::of(&share(), &Key::new([7; 32]));
        assert!(secret.handshake_key() != secret.0);
        assert_eq!(format!("{secret:?}"), "Secret(…)");
    }
}
