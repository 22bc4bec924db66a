//! Field selection: the parts of a resource that a client asks for, by dotted paths.

use serde_json::{Map, Value};
use std::fmt;

/// Maximum number of paths in a selection.
const MAX_PATHS: usize = 64;

/// The selected fields of a resource: `uuid,node,readings.util_pct`. Empty selects all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fields(Vec<Vec<String>>);

/// A path that no resource of the response has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnknownField {
    /// The path.
    pub path: String,
    /// The names that are possible at its place; none in a number, a text or a list.
    pub known: Vec<String>,
}

impl fmt::Display for UnknownField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.known.as_slice() {
            [] => write!(f, "there is no field {:?}: only an object has fields to select", self.path),
            known => write!(f, "there is no field {:?}; there are: {}", self.path, known.join(", ")),
        }
    }
}

impl Fields {
    /// Parses a list of paths, separated by commas; `None` if there are more than 64.
    pub fn parse(list: &str) -> Option<Self> {
        let paths = list.split(',').map(str::trim).filter(|path| !path.is_empty());
        let paths: Vec<_> = paths.map(|path| path.split('.').map(str::to_owned).collect()).collect();
        (paths.len() <= MAX_PATHS).then_some(Self(paths))
    }

    /// Returns whether everything is selected.
    pub fn is_all(&self) -> bool {
        self.0.is_empty()
    }

    /// Reduces a resource to the selected fields.
    ///
    /// # Errors
    /// [`UnknownField`] if it does not have one of them. The fields of a part that is `null` are not known, and
    /// selecting them yields `null`.
    pub fn select(&self, resource: Value) -> Result<Value, UnknownField> {
        if self.is_all() {
            return Ok(resource);
        }
        let mut selected = Map::new();
        for path in &self.0 {
            copy(&resource, path, path, &mut selected)?;
        }
        Ok(Value::Object(selected))
    }
}

fn copy(
    from: &Value,
    path: &[String],
    whole: &[String],
    to: &mut Map<String, Value>,
) -> Result<(), UnknownField> {
    let Some((name, rest)) = path.split_first() else { return Ok(()) };
    let Some(value) = from.get(name) else {
        let known = from.as_object().map(|object| object.keys().cloned().collect()).unwrap_or_default();
        return Err(UnknownField { path: whole.join("."), known });
    };
    if rest.is_empty() || value.is_null() {
        to.insert(name.clone(), value.clone());
        return Ok(());
    }
    match to.entry(name.clone()).or_insert_with(|| Value::Object(Map::new())) {
        Value::Object(inner) => copy(value, rest, whole, inner),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn select(list: &str, value: Value) -> Result<Value, UnknownField> {
        Fields::parse(list).unwrap().select(value)
    }

    #[test]
    fn paths_select_parts_of_parts() {
        let gpu =
            json!({"uuid": "GPU-1", "node": "n1", "readings": {"util_pct": 7, "temp_c": null}, "mig": null});
        assert_eq!(select("", gpu.clone()), Ok(gpu.clone()));
        let selected = select("uuid, readings.temp_c,readings.util_pct,mig.profile", gpu.clone());
        let expected = json!({"uuid": "GPU-1", "readings": {"temp_c": null, "util_pct": 7}, "mig": null});
        assert_eq!(selected, Ok(expected));
        assert_eq!(select("readings", gpu.clone()).unwrap()["readings"]["util_pct"], 7);
        for wrong in ["uid", "readings.util", "uuid.x", "node.name"] {
            let error = select(wrong, gpu.clone()).unwrap_err();
            assert_eq!(error.path, wrong);
        }
        let error = select("uuid.x.y", gpu.clone()).unwrap_err().to_string();
        assert_eq!(error, "there is no field \"uuid.x.y\": only an object has fields to select");
        assert!(select("uid", gpu).unwrap_err().known.contains(&"uuid".to_owned()));
    }

    #[test]
    fn the_number_of_paths_is_limited() {
        assert!(Fields::parse(&"a,".repeat(64)).is_some());
        assert!(Fields::parse(&"a,".repeat(65)).is_none());
    }
}
