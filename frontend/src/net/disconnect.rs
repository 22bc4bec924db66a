//! Why a connection to the relay ended.

use super::credential::Credential;
use nodeglass_protocol::live::CloseReason;

/// Why a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DisconnectReason {
    /// It could not be opened, or it was lost.
    Broken,
    /// The relay did not answer in time.
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
