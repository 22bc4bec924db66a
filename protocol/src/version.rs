//! Version negotiation: each side announces a range, and the newest common version is used.

use serde::{Deserialize, Serialize};

/// Newest version of the probe wire (probe → relay) that this build supports.
pub const PROBE_WIRE: u16 = 2;
/// Newest version of the live wire (relay ⇄ page) that this build supports.
pub const LIVE_WIRE: u16 = 2;
/// WebSocket subprotocol of the compact binary form of the live wire.
pub const SUBPROTOCOL_BINARY: &str = "nodeglass.v1";
/// WebSocket subprotocol of the JSON form of the live wire, for humans and scripts.
pub const SUBPROTOCOL_JSON: &str = "nodeglass.v1.json";

/// Inclusive range of supported versions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct VersionRange {
    /// Oldest supported version.
    pub min: u16,
    /// Newest supported version.
    pub max: u16,
}

impl VersionRange {
    /// A range of a single version.
    pub const fn only(version: u16) -> Self {
        Self { min: version, max: version }
    }

    /// Returns the newest version in both ranges, or `None` if they do not overlap.
    pub fn common(self, other: Self) -> Option<u16> {
        let newest = self.max.min(other.max);
        (newest >= self.min.max(other.min)).then_some(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_common_version_wins() {
        let (old, new) = (VersionRange { min: 1, max: 2 }, VersionRange { min: 2, max: 5 });
        assert_eq!(old.common(new), Some(2));
        assert_eq!(new.common(old), Some(2));
    }

    #[test]
    fn disjoint_ranges_have_no_common_version() {
        assert_eq!(VersionRange::only(1).common(VersionRange::only(2)), None);
    }
}
