//! MIG profiles in the driver's notation: `3g.40gb` is three of seven slices with 40 GB.

use serde::de::{self, Deserialize, Deserializer};

/// A MIG profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// Number of slices out of seven.
    pub slices: u32,
    /// Memory, in GB.
    pub mem_gb: u64,
}

impl Profile {
    fn parse(raw: &str) -> Option<Self> {
        let (slices, memory) = raw.split_once("g.")?;
        let slices = slices.parse().ok().filter(|slices| (1..=7).contains(slices))?;
        let mem_gb = memory.strip_suffix("gb")?.parse().ok().filter(|gb| (1..=1_000).contains(gb))?;
        Some(Self { slices, mem_gb })
    }
}

impl<'de> Deserialize<'de> for Profile {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let raw = String::deserialize(deserializer)?;
        Self::parse(&raw)
            .ok_or_else(|| de::Error::custom(format!("{raw:?} is not a MIG profile such as \"3g.40gb\"")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_profile_is_slices_and_memory() {
        assert_eq!(Profile::parse("3g.40gb"), Some(Profile { slices: 3, mem_gb: 40 }));
        for raw in ["", "3g", "8g.80gb", "0g.5gb", "3g.40", "g.gb", "1g.99999gb"] {
            assert_eq!(Profile::parse(raw), None, "{raw}");
        }
    }
}
