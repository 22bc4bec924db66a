//! Derives a share's key from the owner's key and the share's terms, so that a link with altered terms
//! does not work; and seals stored terms with a key that the relay does not store, so that altered ones
//! are detected.

use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::Share;

/// The ticket of a share under this owner key.
pub(super) fn ticket(share: &Share, owner: &Key) -> Ticket {
    // Covers the whole share; the JSON encoding of one type is deterministic.
    let context = [b"share".as_slice(), &terms(share)].concat();
    Ticket::new(share.id.clone(), owner.derive(&context))
}

/// The seal over a share, its uid and what its relay watches, under [`Key::client_key`] of its holder. The relay does not store
/// that key but receives it with the holder's proof, so that a program that alters the stored share
/// cannot compute a new seal.
pub(super) fn seal(share: &Share, uid: Option<u32>, watches: &str, client_key: &Key) -> Key {
    let uid = uid.map_or(String::new(), |uid| uid.to_string());
    let sealed = [b"terms ".as_slice(), uid.as_bytes(), b" ", &terms(share), b" ", watches.as_bytes()];
    client_key.derive(&sealed.concat())
}

fn terms(share: &Share) -> Vec<u8> {
    serde_json::to_vec(share).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::share::{HiddenParts, Scope, ShareId, ShareTerms};

    fn share() -> Share {
        let terms = ShareTerms {
            label: "for Bob".into(),
            scope: Scope::Jobs(vec![JobId(17)]),
            hidden: HiddenParts::default(),
            to: None,
            expires_ms: 1,
            ends_with_job: true,
        };
        Share { id: ShareId::new("abc").unwrap(), created_ms: 0, terms }
    }

    #[test]
    fn t09_every_term_of_a_share_is_in_its_key() {
        let owner = Key::new([7; 32]);
        let known = ticket(&share(), &owner);
        assert!(known == ticket(&share(), &owner));
        let changed = |change: fn(&mut Share)| {
            let mut share = share();
            change(&mut share);
            ticket(&share, &owner)
        };
        let changes: [fn(&mut Share); 9] = [
            |share| share.id = ShareId::new("abd").unwrap(),
            |share| share.terms.scope = Scope::All,
            |share| share.terms.scope = Scope::Jobs(vec![JobId(17), JobId(18)]),
            |share| share.terms.scope = Scope::of_jobs(Vec::new(), vec![JobId(17)]),
            |share| share.terms.hidden.arguments = false,
            |share| share.terms.hidden.logs = false,
            |share| share.terms.to = Some("bob".into()),
            |share| share.terms.expires_ms = 2,
            |share| share.terms.ends_with_job = false,
        ];
        for change in changes {
            assert!(known.proof() != changed(change).proof());
            let mut altered = share();
            change(&mut altered);
            let client_key = known.proof().client_key();
            assert!(seal(&altered, None, "", &client_key) != seal(&share(), None, "", &client_key));
        }
        let client_key = known.proof().client_key();
        assert!(seal(&share(), Some(1), "", &client_key) != seal(&share(), None, "", &client_key));
        assert!(seal(&share(), None, "all", &client_key) != seal(&share(), None, "", &client_key));
        assert!(known.proof() != ticket(&share(), &Key::new([8; 32])).proof());
    }
}
