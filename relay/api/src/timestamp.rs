//! A moment in JSON: RFC 3339 in UTC, with milliseconds only where they are known.

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaFormat, Type};
use utoipa::openapi::{KnownFormat, RefOr};
use utoipa::{PartialSchema, ToSchema};

/// The last moment that RFC 3339 can write: the end of the year 9999, in ms since 1970.
const MAX_MS: u64 = 253_402_300_799_999;

/// A moment in ms since 1970, by the login node's clock. In JSON: `2026-11-25T06:07:25Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Timestamp(u64);

impl Timestamp {
    /// From ms since 1970.
    pub fn from_millis(ms: u64) -> Self {
        Self(ms.min(MAX_MS))
    }

    /// From s since 1970; `None` before.
    pub fn from_secs(s: i64) -> Option<Self> {
        u64::try_from(s).ok().map(|s| Self::from_millis(s.saturating_mul(1_000)))
    }

    /// In ms since 1970.
    pub fn as_millis(self) -> u64 {
        self.0
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = UNIX_EPOCH + Duration::from_millis(self.0);
        match self.0 % 1_000 {
            0 => humantime::format_rfc3339_seconds(at).fmt(f),
            _ => humantime::format_rfc3339_millis(at).fmt(f),
        }
    }
}

impl std::str::FromStr for Timestamp {
    type Err = humantime::TimestampError;

    fn from_str(raw: &str) -> Result<Self, Self::Err> {
        let at: SystemTime = humantime::parse_rfc3339_weak(raw)?;
        let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
        Ok(Self::from_millis(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)))
    }
}

impl Serialize for Timestamp {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Timestamp {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

impl PartialSchema for Timestamp {
    fn schema() -> RefOr<Schema> {
        let format = SchemaFormat::KnownFormat(KnownFormat::DateTime);
        ObjectBuilder::new().schema_type(Type::String).format(Some(format)).into()
    }
}

impl ToSchema for Timestamp {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_is_written_with_the_resolution_that_it_has() {
        let written = |ms| Timestamp::from_millis(ms).to_string();
        assert_eq!(written(1_795_586_845_000), "2026-11-25T06:07:25Z");
        assert_eq!(written(1_795_586_845_120), "2026-11-25T06:07:25.120Z");
        assert_eq!(written(u64::MAX), "9999-12-31T23:59:59.999Z");
        assert_eq!(Timestamp::from_secs(-1), None);
        for ms in [0, 1_795_586_845_120] {
            assert_eq!(written(ms).parse(), Ok(Timestamp::from_millis(ms)));
        }
        assert!("yesterday".parse::<Timestamp>().is_err());
    }
}
