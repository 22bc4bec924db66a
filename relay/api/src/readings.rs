//! The readings of a row in JSON: every metric of the catalogue with its value or `null`, and why values are absent.

use nodeglass_protocol::field::{Unit, ValueKind};
use nodeglass_protocol::{Cell, Field, GpuField, HostField, JobField, ProcessField, Row};
use serde::de::{IgnoredAny, MapAccess, Visitor};
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use utoipa::openapi::RefOr;
use utoipa::openapi::schema::{ObjectBuilder, Schema, SchemaType, Type};
use utoipa::{PartialSchema, ToSchema};

/// The current readings of a GPU, host, process or job: the value of each metric in the unit that its name ends with,
/// or `null`.
#[derive(Clone, Debug, PartialEq)]
pub struct Readings<F> {
    values: Vec<Option<u64>>,
    kind: PhantomData<F>,
}

/// Reason for a reading without a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Absence {
    /// This card, driver or host does not offer it.
    Unsupported,
    /// The last query failed.
    Failed,
}

/// Reasons for readings without a value, by metric. A metric that is `null` and not listed was not read yet.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = BTreeMap<String, Absence>)]
pub struct Absences(BTreeMap<Cow<'static, str>, Absence>);

impl<F: Field> Readings<F> {
    /// The readings of a row.
    pub fn new(row: &Row<F>) -> Self {
        Self { values: F::ALL.iter().map(|field| row.value(*field)).collect(), kind: PhantomData }
    }

    /// The value of a metric, if there is one.
    pub fn value(&self, field: F) -> Option<u64> {
        self.values.get(field.index()).copied().flatten()
    }
}

impl<F: Field> Default for Readings<F> {
    fn default() -> Self {
        Self { values: vec![None; F::ALL.len()], kind: PhantomData }
    }
}

impl Absences {
    /// Collects the reasons for readings of a row without a value.
    pub fn new<F: Field>(row: &Row<F>) -> Self {
        let absence = |field: F| match row.get(field) {
            Cell::UNSUPPORTED => Some(Absence::Unsupported),
            Cell::FAILED => Some(Absence::Failed),
            _ => None,
        };
        Self(F::ALL.iter().filter_map(|field| Some((field.name().into(), absence(*field)?))).collect())
    }

    /// Returns the reason for a metric without a value, if known.
    pub fn get(&self, metric: &str) -> Option<Absence> {
        self.0.get(metric).copied()
    }
}

impl<F: Field> Serialize for Readings<F> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(F::ALL.len()))?;
        for field in F::ALL {
            map.serialize_entry(field.name(), &self.value(*field))?;
        }
        map.end()
    }
}

impl<'de, F: Field> Deserialize<'de> for Readings<F> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ReadingsVisitor(PhantomData))
    }
}

/// Metrics of another version are ignored.
struct ReadingsVisitor<F>(PhantomData<F>);

impl<'de, F: Field> Visitor<'de> for ReadingsVisitor<F> {
    type Value = Readings<F>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the readings of a {}", F::ROW_KIND)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut readings = Readings::default();
        while let Some(name) = map.next_key::<String>()? {
            match F::from_name(&name) {
                Some(field) => readings.values[field.index()] = map.next_value()?,
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(readings)
    }
}

/// One property per metric of the catalogue, with its meaning.
impl<F: Field> PartialSchema for Readings<F> {
    fn schema() -> RefOr<Schema> {
        let number = SchemaType::from_iter([Type::Integer, Type::Null]);
        let object = F::ALL.iter().fold(ObjectBuilder::new(), |object, field| {
            let property = ObjectBuilder::new()
                .schema_type(number.clone())
                .minimum(Some(0))
                .description(Some(description(*field)));
            object.property(field.name(), property).required(field.name())
        });
        object.description(Some(format!("Current readings of a {}", F::ROW_KIND))).into()
    }
}

impl<F: Field> ToSchema for Readings<F> {
    fn name() -> std::borrow::Cow<'static, str> {
        match F::ROW_KIND {
            "gpu" => "GpuReadings",
            "host" => "HostReadings",
            "process" => "ProcessReadings",
            _ => "JobReadings",
        }
        .into()
    }
}

/// The readings of a GPU.
pub type GpuReadings = Readings<GpuField>;
/// The readings of a host.
pub type HostReadings = Readings<HostField>;
/// The readings of what a job uses of a node.
pub type JobReadings = Readings<JobField>;
/// The readings of a process.
pub type ProcessReadings = Readings<ProcessField>;

/// The meaning of a metric with its unit.
fn description<F: Field>(field: F) -> String {
    let metric = field.metric();
    let unit = match (metric.kind, metric.unit) {
        (ValueKind::BitMask, _) => ", as a bit mask".to_owned(),
        (_, Unit::Hundredth) => ", in hundredths".to_owned(),
        (_, Unit::One) => String::new(),
        (_, unit) => format!(", in {}", unit.symbol()),
    };
    format!("{}: {}{unit}", metric.title, metric.help)
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::{GpuField, Reading};

    #[test]
    fn a_missing_reading_is_null_with_its_reason_and_never_zero() {
        let mut row = Row::<GpuField>::default();
        row.set(GpuField::Util, GpuField::Util.cell(&Reading::Value(0)));
        row.set(GpuField::Power, Cell::FAILED);
        row.set(GpuField::NvlinkRx, Cell::UNSUPPORTED);
        let json = serde_json::to_value(Readings::new(&row)).unwrap();
        assert_eq!((&json["util_pct"], &json["power_w"]), (&0.into(), &serde_json::Value::Null));
        assert!(json["temp_c"].is_null());
        let absences = Absences::new(&row);
        assert_eq!(absences.get("power_w"), Some(Absence::Failed));
        assert_eq!(absences.get("nvlink_rx_bytes_s"), Some(Absence::Unsupported));
        assert_eq!(absences.get("temp_c"), None);
        let read: Readings<GpuField> = serde_json::from_value(json).unwrap();
        assert_eq!(read, Readings::new(&row));
    }

    #[test]
    fn metrics_of_another_version_are_ignored() {
        let read: Readings<GpuField> =
            serde_json::from_str(r#"{"util_pct":7,"magic":{"a":[1]},"temp_c":null}"#).unwrap();
        assert_eq!((read.value(GpuField::Util), read.value(GpuField::Temp)), (Some(7), None));
    }
}
