//! Authentication: who a connection acts for, by its proof of a key.
//!
//! [`authenticator`] decides without any socket. It counts failed attempts by user, so that one user's
//! attempts cannot lock out another, and issues links that open the owner's view in a single tab.

mod attempts;
pub mod authenticator;
mod tab_links;
pub mod tokens;
