//! Tokens, as programs read and create them.

use super::Timestamp;
use nodeglass_protocol::Text;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A named token: read-only access for programs of one user. Its secret is shown once, when it is created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Token {
    /// Its name.
    pub name: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires; `null` for a token of an earlier version that does not.
    pub expires_at: Option<Timestamp>,
    /// When it was last used, or up to ten minutes before that if with another relay.
    pub last_used_at: Option<Timestamp>,
    /// Login name of the only user of this machine who may use it; `null` if anyone may.
    #[serde(default)]
    pub user: Option<Text>,
}

/// A token that is to be created.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewToken {
    /// Its name: letters, digits, `.`, `_` and `-`.
    #[schema(max_length = 64, pattern = "^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    pub name: String,
    /// Lifetime in days; 90 by default.
    #[serde(default)]
    #[schema(minimum = 1, maximum = 3650)]
    pub days: Option<u32>,
    /// Login name of the only user of this machine who may use it; by default, the user who runs the relay.
    #[serde(default)]
    pub user: Option<String>,
    /// Whether every user who has the secret may use it.
    #[serde(default)]
    pub any_user: bool,
}

/// A new token with its secret.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// The token.
    pub token: Token,
    /// The text that a program sends as `Authorization: Bearer SECRET`. The relay does not store it.
    pub secret: String,
    /// Whether it is valid after a restart of the relay; the relay of a simulated cluster or a recording stores nothing.
    pub is_stored: bool,
}
