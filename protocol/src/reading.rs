//! A reading is a value, unsupported, failed or not yet taken; none of these is zero.

use crate::Text;
use serde::de::{self, IntoDeserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::{fmt, marker::PhantomData, ops::Deref};

/// One reading of one quantity.
///
/// In JSON: the bare value, `"unsupported"`, `{"failed": "reason"}`, or `null` (or left out) for not yet.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Reading<T> {
    /// Not taken yet.
    #[default]
    NotYet,
    /// This card, driver or host does not offer it.
    Unsupported,
    /// The query failed this time, with the reason; or the value is withheld, see
    /// [`FailureReason::is_hidden`].
    Failed(FailureReason),
    /// The value.
    Value(T),
}

impl<T> Reading<T> {
    /// Returns the value, if there is one.
    pub fn value(&self) -> Option<&T> {
        match self {
            Self::Value(value) => Some(value),
            _ => None,
        }
    }

    /// Returns whether the reading was not taken yet, so that JSON can omit the field.
    pub fn is_not_yet(&self) -> bool {
        matches!(self, Self::NotYet)
    }

    /// Applies `f` to a value; other variants are unchanged.
    pub fn map<U>(self, f: impl FnOnce(T) -> U) -> Reading<U> {
        match self {
            Self::NotYet => Reading::NotYet,
            Self::Unsupported => Reading::Unsupported,
            Self::Failed(why) => Reading::Failed(why),
            Self::Value(value) => Reading::Value(f(value)),
        }
    }
}

/// Reason of a failed reading. Boxed, so that the common successful reading stays small.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FailureReason(Box<Text>);

impl FailureReason {
    /// Prefix of reasons for values that are withheld by policy rather than failed.
    pub const HIDDEN: &str = "hidden";

    /// Returns whether the value is withheld by policy, such as the arguments of another user's process.
    pub fn is_hidden(&self) -> bool {
        self.0.as_str().starts_with(Self::HIDDEN)
    }
}

impl<T: Into<Text>> From<T> for FailureReason {
    fn from(why: T) -> Self {
        Self(Box::new(why.into()))
    }
}

impl Deref for FailureReason {
    type Target = Text;

    fn deref(&self) -> &Text {
        &self.0
    }
}

impl fmt::Display for FailureReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The binary form: an ordinary enum, because binary formats are not self-describing.
#[derive(Serialize, Deserialize)]
enum Compact<T> {
    NotYet,
    Unsupported,
    Failed(FailureReason),
    Value(T),
}

impl<T: Serialize> Serialize for Reading<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if serializer.is_human_readable() {
            return match self {
                Self::NotYet => serializer.serialize_none(),
                Self::Unsupported => serializer.serialize_str("unsupported"),
                Self::Failed(why) => {
                    let mut map = serializer.serialize_map(Some(1))?;
                    map.serialize_entry("failed", why)?;
                    map.end()
                }
                Self::Value(value) => value.serialize(serializer),
            };
        }
        match self {
            Self::NotYet => Compact::NotYet,
            Self::Unsupported => Compact::Unsupported,
            Self::Failed(why) => Compact::Failed(why.clone()),
            Self::Value(value) => Compact::Value(value),
        }
        .serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Reading<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        if deserializer.is_human_readable() {
            return deserializer.deserialize_any(HumanVisitor(PhantomData));
        }
        Ok(match Compact::deserialize(deserializer)? {
            Compact::NotYet => Self::NotYet,
            Compact::Unsupported => Self::Unsupported,
            Compact::Failed(why) => Self::Failed(why),
            Compact::Value(value) => Self::Value(value),
        })
    }
}

/// Deserializes the JSON form without buffering, because this runs for every reading of every line.
struct HumanVisitor<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for HumanVisitor<T> {
    type Value = Reading<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value, \"unsupported\", {\"failed\": reason} or null")
    }

    fn visit_unit<E: de::Error>(self) -> Result<Self::Value, E> {
        Ok(Reading::NotYet)
    }

    fn visit_bool<E: de::Error>(self, value: bool) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_u64<E: de::Error>(self, value: u64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_i64<E: de::Error>(self, value: i64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_f64<E: de::Error>(self, value: f64) -> Result<Self::Value, E> {
        T::deserialize(value.into_deserializer()).map(Reading::Value)
    }

    fn visit_str<E: de::Error>(self, value: &str) -> Result<Self::Value, E> {
        match value {
            "unsupported" => Ok(Reading::Unsupported),
            value => T::deserialize(value.into_deserializer()).map(Reading::Value),
        }
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Self::Value, A::Error> {
        T::deserialize(de::value::SeqAccessDeserializer::new(seq)).map(Reading::Value)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        match map.next_entry::<String, crate::Text>()? {
            Some((key, why)) if key == "failed" => Ok(Reading::Failed(why.into())),
            _ => Err(de::Error::custom("expected {\"failed\": reason}")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn through_json(reading: Reading<u32>, json: &str) {
        assert_eq!(serde_json::to_string(&reading).unwrap(), json);
        assert_eq!(serde_json::from_str::<Reading<u32>>(json).unwrap(), reading);
        let bytes = postcard::to_stdvec(&reading).unwrap();
        assert_eq!(postcard::from_bytes::<Reading<u32>>(&bytes).unwrap(), reading);
    }

    #[test]
    fn a_list_is_a_value_too() {
        let reading = Reading::Value(vec![1_u32, 2]);
        let json = serde_json::to_string(&reading).unwrap();
        assert_eq!(serde_json::from_str::<Reading<Vec<u32>>>(&json).unwrap(), reading);
    }

    #[test]
    fn every_variant_round_trips_in_both_forms() {
        through_json(Reading::Value(0), "0");
        through_json(Reading::NotYet, "null");
        through_json(Reading::Unsupported, "\"unsupported\"");
        through_json(Reading::Failed("GPU is lost".into()), r#"{"failed":"GPU is lost"}"#);
    }
}
