//! Delivery of notices, by channel.

use nodeglass_api::ChannelStatus;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Counts of all channels. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct NotificationCounts(Vec<Arc<ChannelCounts>>);

/// Counts of one channel since the relay's start.
#[derive(Debug)]
pub(super) struct ChannelCounts {
    channel: &'static str,
    pub(super) delivered: AtomicU64,
    pub(super) failed: AtomicU64,
    pub(super) dropped: AtomicU64,
}

impl ChannelCounts {
    pub(super) fn new(channel: &'static str) -> Self {
        let none = AtomicU64::default;
        Self { channel, delivered: none(), failed: none(), dropped: none() }
    }
}

impl NotificationCounts {
    pub(super) fn new(channels: impl Iterator<Item = Arc<ChannelCounts>>) -> Self {
        Self(channels.collect())
    }

    /// The counts now; empty if no channel is configured.
    pub fn list(&self) -> Vec<ChannelStatus> {
        let status = |counts: &Arc<ChannelCounts>| ChannelStatus {
            channel: counts.channel.to_owned(),
            delivered: counts.delivered.load(Ordering::Relaxed),
            failed: counts.failed.load(Ordering::Relaxed),
            dropped: counts.dropped.load(Ordering::Relaxed),
        };
        self.0.iter().map(status).collect()
    }
}
