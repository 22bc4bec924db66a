//! Delivery of notices and metrics, as resources.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Delivery of the notices of a channel since the relay's start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ChannelStatus {
    /// `webhook`, `command` or `mail`.
    pub channel: String,
    /// Number of notices that were accepted.
    pub delivered: u64,
    /// Number of notices that were given up after their attempts failed.
    pub failed: u64,
    /// Number of notices that were left out because too many waited.
    pub dropped: u64,
}

/// Delivery of the metrics by remote write since the relay's start, in samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct RemoteWriteStatus {
    /// Number of samples that the server accepted.
    pub sent: u64,
    /// Number of samples that the server refused for good, with a status such as 400.
    pub refused: u64,
    /// Number of samples that were dropped because the spool was full or could not be read.
    pub dropped: u64,
    /// Number of samples that wait, in memory and in the spool.
    pub pending: u64,
    /// Size of what waits, in bytes.
    pub pending_bytes: u64,
    /// Size of the accepted requests, in bytes.
    pub sent_bytes: u64,
    /// Number of requests that failed and are repeated.
    pub retries: u64,
}
