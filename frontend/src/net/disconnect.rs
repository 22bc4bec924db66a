//! Reasons for the end of a connection to the relay.

use super::credential::Credential;
use nodeglass_protocol::live::CloseReason;

/// Stored in place of the key in a guest's tab that has no key, or no longer; how the share ended follows.
const SHARE_OVER: &str = "over";

/// Reason for the end of a connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// It could not be opened, or it was lost.
    Broken,
    /// The relay did not respond in time.
    Silent,
    /// The relay did not prove that it knows the key, so no proof was sent to it.
    Unverified,
    /// The relay did not accept the key.
    Refused,
    /// The relay does not know the share, or has removed it.
    NoSuchShare,
    /// The owner's key is correct, but the connection belongs to another user; holds the name if the kernel
    /// reports it.
    NotTheOwner(Option<String>),
    /// The owner's key is correct, but the proxy in between named no user, or another one.
    NotByProxy {
        /// Whether the proxy named another user.
        other_user: bool,
    },
    /// The relay of the site does not know who the viewer is.
    NotIdentified,
    /// The single-tab link was used or has expired, or its session has ended.
    TabLinkExpired,
    /// The share is restricted to the user with this name, and the connection belongs to another one.
    NotForYou(String),
    /// The owner, whose name is held if known, revoked the share.
    Revoked(Option<String>),
    /// The share or its job has ended.
    Expired,
    /// Page and relay have no wire version in common.
    Version,
    /// A message could not be decoded.
    Malformed,
    /// The page did not read its messages fast enough.
    TooSlow,
    /// The relay shut down.
    ShutDown,
    /// The browser provides no random numbers, which the proof of the key needs.
    NoRandom,
}

impl DisconnectReason {
    /// Returns whether a retry without user action is pointless.
    pub fn is_final(&self) -> bool {
        !matches!(self, Self::Broken | Self::Silent | Self::Malformed | Self::TooSlow | Self::ShutDown)
    }

    /// Returns whether the last picture stays although the reason is final: a relay that was restarted has
    /// another key, and what it showed its owner remains the owner's.
    pub fn keeps_picture(&self) -> bool {
        *self == Self::Unverified
    }

    /// Returns the reason to show while retries go on: a failed retry says less than how the connection ended.
    pub fn after(self, earlier: Option<Self>) -> Self {
        match self {
            Self::Broken | Self::Silent => earlier.unwrap_or(self),
            reason => reason,
        }
    }

    /// Returns whether the share has ended for good, so that the page must forget its contents.
    pub fn ends_share(&self) -> bool {
        matches!(self, Self::NoSuchShare | Self::Revoked(_) | Self::Expired)
    }

    /// Returns whether the reason concerns a share, so that entering the owner's key would not help.
    pub fn concerns_share(&self) -> bool {
        self.ends_share() || matches!(self, Self::NotForYou(_))
    }

    /// Adds the name of the relay's owner to a reason that names the owner.
    pub fn with_owner(self, owner: Option<String>) -> Self {
        match self {
            Self::Revoked(_) => Self::Revoked(owner),
            reason => reason,
        }
    }

    /// Encodes how a share ended as `over`, `over:expired` or `over:revoked:OWNER`, for the tab's storage.
    pub fn share_end(&self) -> String {
        match self {
            Self::Revoked(owner) => format!("{SHARE_OVER}:revoked:{}", owner.as_deref().unwrap_or_default()),
            Self::Expired => format!("{SHARE_OVER}:expired"),
            _ => SHARE_OVER.to_owned(),
        }
    }

    /// Decodes [`Self::share_end`]; `None` for anything else.
    pub fn from_share_end(text: &str) -> Option<Self> {
        let rest = text.strip_prefix(SHARE_OVER)?;
        let owner = rest.strip_prefix(":revoked:").map(|owner| (!owner.is_empty()).then(|| owner.to_owned()));
        Some(match (owner, rest) {
            (Some(owner), _) => Self::Revoked(owner),
            (None, ":expired") => Self::Expired,
            (None, _) => Self::NoSuchShare,
        })
    }

    /// Interprets the reason for a credential: an unknown share is not a wrong key.
    pub fn for_credential(self, credential: &Credential) -> Self {
        match self {
            // A relay does not disclose which shares and tabs exist: for an unknown one, it proves a random key.
            Self::Refused | Self::Unverified if credential.is_share() => Self::NoSuchShare,
            Self::Refused | Self::Unverified if credential.is_single_tab() => Self::TabLinkExpired,
            reason => reason,
        }
    }
}

impl From<CloseReason> for DisconnectReason {
    fn from(close_reason: CloseReason) -> Self {
        match close_reason {
            CloseReason::Refused => Self::Refused,
            CloseReason::NotTheOwner { user } => Self::NotTheOwner(user.map(|user| user.to_string())),
            CloseReason::NotByProxy { other_user } => Self::NotByProxy { other_user },
            CloseReason::NotIdentified => Self::NotIdentified,
            CloseReason::NotForYou { to } => Self::NotForYou(to.to_string()),
            CloseReason::Revoked => Self::Revoked(None),
            CloseReason::Expired => Self::Expired,
            CloseReason::Version { .. } => Self::Version,
            CloseReason::Unreadable => Self::Malformed,
            CloseReason::TooSlow => Self::TooSlow,
            CloseReason::ShuttingDown => Self::ShutDown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_retry_does_not_replace_the_relays_farewell() {
        let ended = Some(DisconnectReason::ShutDown);
        assert_eq!(DisconnectReason::Broken.after(ended.clone()), DisconnectReason::ShutDown);
        assert_eq!(DisconnectReason::Silent.after(ended.clone()), DisconnectReason::ShutDown);
        assert_eq!(DisconnectReason::Malformed.after(ended), DisconnectReason::Malformed);
        assert_eq!(DisconnectReason::Broken.after(None), DisconnectReason::Broken);
    }

    #[test]
    fn how_a_share_ended_survives_in_the_tabs_storage() {
        for end in [
            DisconnectReason::Revoked(Some("alice".to_owned())),
            DisconnectReason::Revoked(None),
            DisconnectReason::Expired,
            DisconnectReason::NoSuchShare,
        ] {
            assert_eq!(DisconnectReason::from_share_end(&end.share_end()), Some(end.clone()), "{end:?}");
        }
        assert_eq!(DisconnectReason::from_share_end("k=0123"), None);
    }

    #[test]
    fn only_the_owners_picture_stays_when_the_key_differs() {
        assert!(DisconnectReason::Unverified.keeps_picture());
        for gone in
            [DisconnectReason::Refused, DisconnectReason::NoSuchShare, DisconnectReason::Revoked(None)]
        {
            assert!(!gone.keeps_picture(), "{gone:?}");
        }
    }
}
