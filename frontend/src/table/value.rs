//! The value of a table cell, which can be shown, compared, searched and exported.

use crate::domain::text;
use nodeglass_protocol::field::Scale;
use nodeglass_protocol::{Cell, Reading};
use std::cmp::Ordering;
use std::fmt::Display;

/// The value of a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Missing, and why.
    Absent(&'static str),
    /// A quantity in the base unit of its column: bytes, %, W, s.
    Number(u64),
    /// A part and its maximum, both in the base unit.
    Part(u64, u64),
    /// Text or a name.
    Text(String),
    /// Text, and its tags: further texts by which a filter finds it.
    Tagged(String, Vec<String>),
}

/// The instance of a whole GPU.
pub const NO_INSTANCE: Value = Value::Absent("a whole GPU");

/// The value of a column about GPUs for a node that has none.
pub const NO_GPU: Value = Value::Absent("the node has no GPU");

/// The deviation of a GPU whose job has too few for a comparison.
pub const TOO_FEW_PEERS: Value = Value::Absent("fewer than 4 GPUs of this model in its job");

/// The value of a column about pending jobs for one that is not.
pub const NOT_PENDING: Value = Value::Absent("it does not wait");

/// The value of a column about the start of a pending job that SLURM has not planned.
pub const NO_START: Value = Value::Absent("SLURM states no start");

/// The unit of a column's numbers, and how they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CellUnit {
    /// Text.
    Text,
    /// A number that is a name, such as a pid: never grouped.
    Id,
    /// A count.
    Count,
    /// %.
    Percent,
    /// Bytes, shown in GiB.
    Gib,
    /// Bytes per second, shown in MiB.
    MibPerSecond,
    /// W.
    Watt,
    /// Wh, shown in kWh.
    WattHour,
    /// °C.
    Celsius,
    /// MHz.
    Megahertz,
    /// Hundredths.
    Hundredth,
    /// Seconds, shown by their two largest units.
    Span,
}

impl CellUnit {
    /// Returns how a table shows values of a unit of the catalogue.
    pub const fn of_catalogue(unit: nodeglass_protocol::field::Unit) -> Self {
        use nodeglass_protocol::field::Unit as Catalogue;
        match unit {
            Catalogue::One => Self::Count,
            Catalogue::Percent => Self::Percent,
            Catalogue::Watt => Self::Watt,
            Catalogue::WattHour => Self::WattHour,
            Catalogue::Celsius => Self::Celsius,
            Catalogue::Byte => Self::Gib,
            Catalogue::BytePerSecond => Self::MibPerSecond,
            Catalogue::Megahertz => Self::Megahertz,
            Catalogue::Hundredth => Self::Hundredth,
            Catalogue::Second => Self::Span,
        }
    }

    /// Returns the default width of a column, in px.
    pub const fn width(self) -> u16 {
        match self {
            Self::Id => 34,
            Self::Percent => 58,
            Self::Hundredth => 62,
            Self::Watt | Self::Celsius => 66,
            Self::Count => 76,
            Self::Gib | Self::WattHour => 92,
            Self::Span => 96,
            Self::Megahertz => 100,
            Self::Text | Self::MibPerSecond => 108,
        }
    }

    /// Returns the unit in the head of a column, if any.
    pub fn head(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Gib => "GiB",
            Self::MibPerSecond => "MiB/s",
            Self::Watt => "W",
            Self::WattHour => "kWh",
            Self::Celsius => "°C",
            Self::Megahertz => "MHz",
            Self::Text | Self::Id | Self::Count | Self::Hundredth | Self::Span => "",
        }
    }

    /// Returns the unit suffix of a name in a file.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Percent => "_pct",
            Self::Gib => "_bytes",
            Self::MibPerSecond => "_bytes_s",
            Self::Watt => "_w",
            Self::WattHour => "_wh",
            Self::Celsius => "_c",
            Self::Megahertz => "_mhz",
            Self::Hundredth => "_centi",
            Self::Span => "_s",
            Self::Text | Self::Id | Self::Count => "",
        }
    }

    /// Returns whether figures are aligned.
    pub fn is_number(self) -> bool {
        self != Self::Text
    }

    /// Formats a number.
    pub fn show(self, number: u64) -> String {
        match self {
            Self::Gib => text::gib(number),
            Self::MibPerSecond => text::grouped(number >> 20),
            Self::WattHour => text::tenths(number as f64 / 1_000.0),
            Self::Hundredth => text::tenths(number as f64 / 100.0),
            Self::Span => text::span(number),
            Self::Id => number.to_string(),
            Self::Text | Self::Count | Self::Percent | Self::Watt | Self::Celsius | Self::Megahertz => {
                text::grouped(number)
            }
        }
    }

    /// Formats the maximum of a part, which needs no decimals.
    fn show_whole(self, number: u64) -> String {
        if self == Self::Gib { text::whole_gib(number) } else { self.show(number) }
    }
}

impl Value {
    /// A missing value that is not an error.
    pub const NONE: Self = Self::Absent("none");
    /// Not read yet.
    pub const NOT_YET: Self = Self::Absent("not read yet");
    /// The device or its driver does not offer it.
    pub const UNSUPPORTED: Self = Self::Absent(text::UNSUPPORTED);

    /// Converts a cell to the base unit, given the scale of its field.
    pub fn cell(cell: Cell, scale: Scale) -> Self {
        match cell.value() {
            Some(steps) => Self::Number(scale.value(u64::from(steps))),
            None => Self::Absent(text::absence(cell)),
        }
    }

    /// Converts a textual fact.
    pub fn text_reading<T: Display>(reading: &Reading<T>) -> Self {
        Self::from_reading(reading, |value| Self::Text(value.to_string()))
    }

    /// Converts a numeric fact.
    pub fn number_reading(reading: &Reading<u32>) -> Self {
        Self::from_reading(reading, |value| Self::Number((*value).into()))
    }

    /// Converts a counter.
    pub fn count_reading(reading: &Reading<u64>) -> Self {
        Self::from_reading(reading, |value| Self::Number(*value))
    }

    /// Converts a boolean fact.
    pub fn bool_reading(reading: &Reading<bool>, yes: &str, no: &str) -> Self {
        Self::from_reading(reading, |value| Self::text(if *value { yes } else { no }))
    }

    fn from_reading<T>(reading: &Reading<T>, value: impl Fn(&T) -> Self) -> Self {
        match reading {
            Reading::Value(known) => value(known),
            Reading::NotYet => Self::NOT_YET,
            Reading::Unsupported => Self::UNSUPPORTED,
            Reading::Failed(_) => Self::Absent(text::absence(Cell::FAILED)),
        }
    }

    /// Returns a text; an empty one is missing.
    pub fn text(text: impl Into<String>) -> Self {
        let text = text.into();
        if text.is_empty() { Self::NONE } else { Self::Text(text) }
    }

    /// Returns a number, or a missing value.
    pub fn number(number: Option<u64>) -> Self {
        number.map_or(Self::NONE, Self::Number)
    }

    /// Combines a part with its maximum, if both are known.
    pub fn ratio(part: Self, whole: &Self) -> Self {
        match (part, whole) {
            (Self::Number(part), Self::Number(whole)) => Self::Part(part, *whole),
            (part, _) => part,
        }
    }

    /// Returns the number to compare by.
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Self::Number(number) | Self::Part(number, _) => Some(*number),
            Self::Absent(_) | Self::Text(_) | Self::Tagged(..) => None,
        }
    }

    /// Returns the fraction of the maximum, 0 to 1; a percentage is one by itself.
    pub fn share(&self, unit: CellUnit) -> Option<f64> {
        match self {
            Self::Part(part, whole @ 1..) => Some(*part as f64 / *whole as f64),
            Self::Number(percent) if unit == CellUnit::Percent => Some(*percent as f64 / 100.0),
            _ => None,
        }
    }

    /// Returns why the value is missing, if it is.
    pub fn why_absent(&self) -> Option<&'static str> {
        match self {
            Self::Absent(why) => Some(why),
            _ => None,
        }
    }

    /// Returns the text of the cell, and the maximum separately.
    pub fn shown(&self, unit: CellUnit) -> (String, Option<String>) {
        match self {
            Self::Absent(_) => (text::ABSENT.to_owned(), None),
            Self::Number(number) => (unit.show(*number), None),
            Self::Part(part, whole) => (unit.show(*part), Some(unit.show_whole(*whole))),
            Self::Text(text) | Self::Tagged(text, _) => (text.clone(), None),
        }
    }

    /// Returns the same as one text.
    pub fn line(&self, unit: CellUnit) -> String {
        match self.shown(unit) {
            (part, Some(whole)) => format!("{part}/{whole}"),
            (whole, None) => whole,
        }
    }

    /// Returns the texts in which a filter searches, in lowercase: the line, and the tags.
    pub fn searched(&self, unit: CellUnit) -> Vec<String> {
        let tags = if let Self::Tagged(_, tags) = self { tags.as_slice() } else { &[] };
        [self.line(unit)].iter().chain(tags).map(|text| text.to_lowercase()).collect()
    }

    /// Compares two values of a column; for missing values see [`super::sort`].
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a) | Self::Tagged(a, _), Self::Text(b) | Self::Tagged(b, _)) => natural(a, b),
            _ => self.as_number().cmp(&other.as_number()),
        }
    }
}

/// Compares texts in natural order: `gpu-2` before `gpu-10`, ignoring case.
pub fn natural(a: &str, b: &str) -> Ordering {
    let (mut a, mut b) = (a.as_bytes(), b.as_bytes());
    loop {
        let (Some(first), Some(second)) = (a.first(), b.first()) else { return a.len().cmp(&b.len()) };
        if first.is_ascii_digit() && second.is_ascii_digit() {
            let (one, other) = (digits(&mut a), digits(&mut b));
            match one.len().cmp(&other.len()).then_with(|| one.cmp(other)) {
                Ordering::Equal => continue,
                unlike => return unlike,
            }
        }
        match first.to_ascii_lowercase().cmp(&second.to_ascii_lowercase()) {
            Ordering::Equal => (a, b) = (&a[1..], &b[1..]),
            unlike => return unlike,
        }
    }
}

/// Removes the leading digits of a text and returns them without leading zeros.
fn digits<'a>(text: &mut &'a [u8]) -> &'a [u8] {
    let end = text.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at(end);
    *text = rest;
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    &digits[zeros.min(digits.len().saturating_sub(1))..]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_within_names_compare_by_value() {
        let mut names = ["gpu-10", "GPU-2", "gpu-1", "gpu-02b", "cpu-3"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["cpu-3", "gpu-1", "GPU-2", "gpu-02b", "gpu-10"]);
    }

    #[test]
    fn a_missing_value_is_a_dash_with_a_reason_and_never_zero() {
        for cell in [Cell::NOT_YET, Cell::UNSUPPORTED, Cell::FAILED] {
            let value = Value::cell(cell, Scale::Linear(1));
            assert_eq!(value.line(CellUnit::Percent), text::ABSENT);
            assert!(value.why_absent().is_some_and(|why| !why.is_empty()));
            assert_eq!(value.as_number(), None);
        }
        assert_eq!(Value::cell(Cell::steps(0), Scale::Linear(1)).line(CellUnit::Percent), "0");
    }

    #[test]
    fn a_part_is_shown_with_its_maximum_and_compared_by_itself() {
        let value = Value::ratio(Value::Number(70 << 30), &Value::Number(80 << 30));
        assert_eq!(value.line(CellUnit::Gib), "70.0/80");
        assert_eq!((value.as_number(), value.share(CellUnit::Gib)), (Some(70 << 30), Some(0.875)));
        let lonely = Value::ratio(Value::Number(3), &Value::NOT_YET);
        assert_eq!(lonely, Value::Number(3));
    }

    #[test]
    fn a_pid_has_no_thousands_separator() {
        assert_eq!(CellUnit::Id.show(41_822), "41822");
        assert_eq!(
            [CellUnit::Count, CellUnit::Megahertz].map(|unit| unit.show(41_822)),
            ["41,822", "41,822"]
        );
        assert_eq!(CellUnit::MibPerSecond.show(3 << 30), "3,072");
    }
}
