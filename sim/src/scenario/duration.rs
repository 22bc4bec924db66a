//! Durations in scenario files: `-4h58m`, `25s`, or whole seconds.

use serde::de::{self, Deserializer, Visitor};
use serde::{Deserialize, Serialize};
use std::fmt;

/// A time relative to the scenario's start, or a length of time, in ms.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(transparent)]
pub struct SignedDuration {
    /// Milliseconds; negative before the start.
    pub ms: i64,
}

/// Maximum absolute value: ten years, so that sums cannot overflow.
const MAX_S: i64 = 10 * 366 * 86_400;

impl SignedDuration {
    /// Creates a duration from seconds.
    pub const fn seconds(seconds: i64) -> Self {
        Self { ms: seconds * 1_000 }
    }

    /// Parses `1d2h3m4s` with any of its parts, with or without a sign.
    fn parse(raw: &str) -> Option<Self> {
        let (sign, length) = match raw.strip_prefix('-') {
            Some(length) => (-1, length),
            None => (1, raw.strip_prefix('+').unwrap_or(raw)),
        };
        let length = humantime::parse_duration(length).ok()?;
        let ms = i64::try_from(length.as_millis()).ok()?;
        (ms <= MAX_S * 1_000).then_some(Self { ms: sign * ms })
    }
}

impl<'de> Deserialize<'de> for SignedDuration {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SignedDurationVisitor)
    }
}

struct SignedDurationVisitor;

impl Visitor<'_> for SignedDurationVisitor {
    type Value = SignedDuration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a time such as \"90s\", \"-4h58m\" or \"2d\", of at most ten years")
    }

    fn visit_str<E: de::Error>(self, raw: &str) -> Result<SignedDuration, E> {
        SignedDuration::parse(raw).ok_or_else(|| E::invalid_value(de::Unexpected::Str(raw), &self))
    }

    fn visit_i64<E: de::Error>(self, seconds: i64) -> Result<SignedDuration, E> {
        if seconds.unsigned_abs() > MAX_S.unsigned_abs() {
            return Err(E::invalid_value(de::Unexpected::Signed(seconds), &self));
        }
        Ok(SignedDuration::seconds(seconds))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_parsed_in_human_notation() {
        for (raw, seconds) in [("90s", 90), ("-4h58m", -17_880), ("2d", 172_800), ("+1d1h1m1s", 90_061)] {
            assert_eq!(SignedDuration::parse(raw), Some(SignedDuration::seconds(seconds)), "{raw}");
        }
    }

    #[test]
    fn malformed_durations_are_rejected() {
        for raw in ["", "-", "5", "5x", "m5", "1h-2m", "99999999999999999999s", "9999999d", "5ä"] {
            assert_eq!(SignedDuration::parse(raw), None, "{raw}");
        }
    }
}
