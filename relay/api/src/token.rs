//! Tokens, as programs read and create them.

use super::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A named token: read-only access for the owner's own programs. Its secret is shown once, when it is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; `null` if it does not.
    pub expires_at: Option<Timestamp>,
    /// When it was last used with this relay.
    pub last_used_at: Option<Timestamp>,
}

/// A token that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name: letters, digits, `.`, `_` and `-`.
    #[schema(max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub name: String,
    /// Lifetime in days; without it, until it is revoked.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3650)]
    pub days: Option<u32>,
}

/// A new token with its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token.
    pub token: Token,
    /// What a program sends as `Authorization: Bearer SECRET`. It is stored nowhere.
    pub secret: String,
    /// Whether it is valid after a restart of the relay; the relay of a simulated cluster or a recording stores nothing.
    pub is_stored: bool,
}
