//! Identity newtypes, validated at the boundary so that names cannot be confused or injected.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

/// Error of parsing an identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// A node name with characters that a host name cannot contain.
    #[error(
        "accept {0:?} as a node name: only letters, digits, '.', '_' and '-' are allowed, the first a letter or digit"
    )]
    NodeName(String),
    /// A job id that is not a number.
    #[error("accept {0:?} as a job id: it must be a number")]
    JobId(String),
}

/// The name of a node as SLURM or the user gives it: `[A-Za-z0-9][A-Za-z0-9._-]{0,252}`.
///
/// Validated because it is passed to `ssh` and appears in URLs. Every line of a node carries its
/// name, so clones are cheap.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeName(Arc<str>);

impl NodeName {
    /// Validates and wraps a name.
    ///
    /// # Errors
    /// [`IdError::NodeName`] if a character is not allowed, or the name is empty or over 253 bytes.
    pub fn new(raw: impl Into<String>) -> Result<Self, IdError> {
        let raw = raw.into();
        let ok = (1..=253).contains(&raw.len())
            && raw.as_bytes()[0].is_ascii_alphanumeric()
            && raw.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'-'));
        if ok { Ok(Self(raw.into())) } else { Err(IdError::NodeName(raw.chars().take(80).collect())) }
    }

    /// The name.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NodeName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for NodeName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for NodeName {
    type Err = IdError;
    fn from_str(raw: &str) -> Result<Self, IdError> {
        Self::new(raw)
    }
}

impl Serialize for NodeName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for NodeName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(String::deserialize(deserializer)?).map_err(serde::de::Error::custom)
    }
}

/// SLURM's numeric job id (`%A`, `JobId=`): unique for array tasks and heterogeneous components
/// too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(pub u32);

impl fmt::Display for JobId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl FromStr for JobId {
    type Err = IdError;
    fn from_str(raw: &str) -> Result<Self, IdError> {
        raw.parse().map(Self).map_err(|_| IdError::JobId(raw.chars().take(80).collect()))
    }
}

/// The UUID of a GPU or MIG instance (`GPU-…`, `MIG-…`), its identity; the NVML index is not
/// stable.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct GpuUuid(crate::Text);

impl GpuUuid {
    /// Wraps a UUID as reported by NVML.
    pub fn new(raw: impl AsRef<str>) -> Self {
        Self(crate::Text::new(raw))
    }

    /// The UUID.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns whether it is that of a MIG instance, of which NVML reports no utilisation.
    pub fn is_mig_instance(&self) -> bool {
        self.as_str().starts_with("MIG-")
    }
}

impl fmt::Display for GpuUuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_names_are_accepted() {
        for name in ["gpu-node-01", "n1.cluster.example", "A_b", "10.0.0.1"] {
            assert!(NodeName::new(name).is_ok(), "{name}");
        }
    }

    #[test]
    fn names_that_ssh_or_a_shell_could_interpret_are_rejected() {
        for name in ["-oProxyCommand=x", "", "a b", "a;b", "a\0b", "[::1]", "a/b", "ä", "$(x)", ".hidden"] {
            assert!(NodeName::new(name).is_err(), "{name}");
        }
        assert!(NodeName::new("a".repeat(254)).is_err());
    }

    #[test]
    fn a_hostile_name_does_not_deserialise() {
        assert!(serde_json::from_str::<NodeName>(r#""-oProxyCommand=x""#).is_err());
    }
}
