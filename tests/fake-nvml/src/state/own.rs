//! A reading that follows another one until the state file gives it a value of its own.

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What the file says of such a reading: `"follows"` (or nothing), `null`, or a value.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Own<T> {
    /// It is what the other reading is.
    #[default]
    Follows,
    /// The card does not offer it, whatever the other reading is.
    Absent,
    /// It is this.
    Is(T),
}

impl<T: Clone> Own<T> {
    /// The reading, if `followed` is what it follows.
    pub fn or(&self, followed: Option<T>) -> Option<T> {
        match self {
            Self::Follows => followed,
            Self::Absent => None,
            Self::Is(value) => Some(value.clone()),
        }
    }
}

/// How the three cases are written.
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

impl<T: Serialize> Serialize for Own<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let written = match self {
            Self::Follows => Written::Word(Word::Follows),
            Self::Absent => Written::Value(None),
            Self::Is(value) => Written::Value(Some(value)),
        };
        written.serialize(serializer)
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for Own<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(match Written::deserialize(deserializer)? {
            Written::Word(Word::Follows) => Self::Follows,
            Written::Value(None) => Self::Absent,
            Written::Value(Some(value)) => Self::Is(value),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn following_lacking_and_being_a_value_are_told_apart_on_both_ways() {
        for (text, own, reading) in
            [("\"follows\"", Own::Follows, Some(7)), ("null", Own::Absent, None), ("3", Own::Is(3), Some(3))]
        {
            let read: Own<u32> = serde_json::from_str(text).unwrap();
            assert_eq!((&read, read.or(Some(7))), (&own, reading));
            assert_eq!(serde_json::to_string(&own).unwrap(), text);
        }
        assert!(serde_json::from_str::<Own<u32>>("\"three\"").is_err());
    }
}
