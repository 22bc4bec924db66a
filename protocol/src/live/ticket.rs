//! Tickets: what the link of a share or of a single tab contains.

use super::handshake::Key;
use crate::share::ShareId;
use std::str::FromStr;

/// Content of a share's link: id and secret key, written `ID.KEY`. `Debug` does not reveal the key.
///
/// A holder proves [`Ticket::proof`] instead of the key in the link, so that a share's key never
/// passes for an owner's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The share's id.
    pub id: ShareId,
    key: Key,
}

/// Error of parsing a ticket.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("read the key of a share: it is ID.KEY, as its link has it behind `#s=`")]
pub struct TicketError;

impl Ticket {
    /// Creates the ticket of a share.
    pub fn new(id: ShareId, key: Key) -> Self {
        Self { id, key }
    }

    /// Returns `ID.KEY`; only for the link's fragment, a `Bearer` token or this browser's own tabs.
    pub fn reveal(&self) -> String {
        format!("{}.{}", self.id, self.key.reveal())
    }

    /// The key whose possession both ends prove.
    pub fn proof(&self) -> Key {
        self.key.derive(b"share handshake")
    }
}

impl FromStr for Ticket {
    type Err = TicketError;
    fn from_str(raw: &str) -> Result<Self, TicketError> {
        let (id, key) = raw.split_once('.').ok_or(TicketError)?;
        Ok(Self { id: id.parse().map_err(|_| TicketError)?, key: key.parse().map_err(|_| TicketError)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tickets_round_trip_and_malformed_ones_are_rejected() {
        let ticket = Ticket::new(ShareId::new("abc").unwrap(), Key::new([7; 32]));
        assert_eq!(ticket.reveal().parse(), Ok(ticket.clone()));
        assert!(!format!("{ticket:?}").contains(&ticket.key.reveal()));
        for wrong in ["", ".", "abc", "abc.", "abc.short", ".AAAA", "ABC.AAAA"] {
            assert_eq!(wrong.parse::<Ticket>(), Err(TicketError), "{wrong}");
        }
    }

    #[test]
    fn the_proved_key_differs_from_the_key_in_the_link() {
        let ticket = Ticket::new(ShareId::new("abc").unwrap(), Key::new([7; 32]));
        assert!(ticket.proof() != ticket.key);
    }
}
