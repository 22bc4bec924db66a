//! Delivery of notices, as a resource.

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
