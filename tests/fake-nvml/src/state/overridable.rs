//! A reading that is derived from another one unless the state file overrides it.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A value of the state file: `"follows"` (or nothing), `null`, or a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Overridable<T> {
    /// It equals the other reading.
    #[default]
    Follows,
    /// Unsupported, for any value of the other reading.
    Absent,
    /// The value of the state file.
    Value(T),
}

impl<T: Clone> Overridable<T> {
    /// Returns the reading; `followed` is the value that it follows by default.
    pub fn or(&self, followed: Option<T>) -> Option<T> {
        match self {
            Self::Follows => followed,
            Self::Absent => None,
            Self::Value(value) => Some(value.clone()),
        }
    }
}

/// The serialised forms of the three cases.
#[derive(Serialize, Deserialize)]
#[serde(untagged)]
enum Written<T> {
    Word(Word),
    Value(Option<T>),
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Follows,
}

impl<T: Serialize> Serialize for Overridable<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self {
            Self::Follows => Written::Word(Word::Follows),
            Self::Absent => Written::Value(None),
            Self::Value(value) => Written::Value(Some(value)),
        };
        written.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Overridable<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Word(Word::Follows) => Self::Follows,
            Written::Value(None) => Self::Absent,
            Written::Value(Some(value)) => Self::Value(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_absent_and_given_values_survive_a_round_trip() {
        for (text, own, reading) in [
            ("\"follows\"", Overridable::Follows, Some(7)),
            ("null", Overridable::Absent, None),
            ("3", Overridable::Value(3), Some(3)),
        ] {
            let read: Overridable<u32> = serde_json::from_str(text).unwrap();
            assert_eq!((&read, read.or(Some(7))), (&own, reading));
            assert_eq!(serde_json::to_string(&own).unwrap(), text);
        }
        assert!(serde_json::from_str::<Overridable<u32>>("\"three\"").is_err());
    }
}
