//! The live wire: messages between relay and page, identical in binary and JSON, and the state that they
//! update.

mod apply;
mod change;
pub mod codec;
pub mod detail;
pub mod frame;
pub mod handshake;
mod message;
mod snapshot;
pub mod ticket;
mod topic;

pub use change::{Change, HealthChange, NodeReadings, Readings, RowReadings};
pub use detail::MAX_LINKS;
pub use message::*;
pub use snapshot::SnapshotWriter;
pub use topic::Topic;

/// Longest range that a page shows of a long-term storage, in days.
pub const MAX_HISTORY_DAYS: u16 = 366;
/// Initial value of the relay's clock. It exceeds the length of any history, so that samples taken
/// before the relay started have a valid time.
pub const CLOCK_STARTS_AT_MS: u64 = (MAX_HISTORY_DAYS as u64 + 1) * 24 * 3_600_000;
/// Largest message a page may send, in bytes.
pub const MAX_CLIENT_MESSAGE: usize = 16 * 1024;
/// Maximum number of topics that a page may subscribe to.
pub const MAX_TOPICS: usize = 8;
/// Maximum number of logs that a page may follow.
pub const MAX_LOGS: usize = 4;
