//! The feed: the task that owns the connection to the relay, reconnects with back-off, and reports its state.

mod backoff;
mod connection;
mod credential;
mod disconnect;
mod feed;
pub mod key;
mod pending_requests;
mod task;

pub use credential::Credential;
pub use disconnect::DisconnectReason;
pub use feed::{Feed, LinkState};
pub use task::start;
