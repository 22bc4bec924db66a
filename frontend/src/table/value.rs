//! What stands in a cell of a table is a value that can be shown, compared, searched and exported alike.

use crate::text;
use nodeglass_protocol::cell::Scale;
use nodeglass_protocol::{Cell, Reading};
use std::cmp::Ordering;
use std::fmt::Display;

/// What stands in a cell.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    /// Nothing, and why.
    Absent(&'static str),
    /// A quantity in the base of its column's unit: bytes, %, W, s.
    Number(u64),
    /// A part of a whole, both in the base of the unit.
    Of(u64, u64),
    /// Words or a name.
    Text(String),
}

/// What a column's numbers count, and how they are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Words.
    Words,
    /// A number that is a name, such as a pid: never grouped.
    Id,
    /// How many.
    Count,
    /// %.
    Percent,
    /// Bytes, shown in GiB.
    Gib,
    /// Bytes a second, shown in MiB.
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
    /// Seconds, shown as a clock.
    Clock,
    /// Seconds, shown at a glance.
    Span,
}

impl Unit {
    /// What stands in the head of a column, if anything.
    pub fn head(self) -> &'static str {
        match self {
            Self::Percent => "%",
            Self::Gib => "GiB",
            Self::MibPerSecond => "MiB/s",
            Self::Watt => "W",
            Self::WattHour => "kWh",
            Self::Celsius => "°C",
            Self::Megahertz => "MHz",
            Self::Words | Self::Id | Self::Count | Self::Hundredth | Self::Clock | Self::Span => "",
        }
    }

    /// What a name in a file ends with, so that it says its unit.
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
            Self::Clock | Self::Span => "_s",
            Self::Words | Self::Id | Self::Count => "",
        }
    }

    /// Whether figures stand under each other.
    pub fn is_number(self) -> bool {
        self != Self::Words
    }

    /// A number as it is shown.
    pub fn show(self, number: u64) -> String {
        match self {
            Self::Gib => text::gib(number),
            Self::MibPerSecond => text::grouped(number >> 20),
            Self::WattHour => text::tenths(number as f64 / 1_000.0),
            Self::Hundredth => text::tenths(number as f64 / 100.0),
            Self::Clock => text::clock(number),
            Self::Span => text::span(number),
            Self::Id | Self::Megahertz => number.to_string(),
            Self::Words | Self::Count | Self::Percent | Self::Watt | Self::Celsius => text::grouped(number),
        }
    }

    /// The whole of a part as it is shown, which needs no decimals.
    fn show_whole(self, number: u64) -> String {
        if self == Self::Gib { text::whole_gib(number) } else { self.show(number) }
    }
}

impl Value {
    /// Nothing is there to be told, which is no fault.
    pub const NONE: Self = Self::Absent("none");
    /// It was not read yet.
    pub const NOT_YET: Self = Self::Absent("not read yet");

    /// A reading of a row in the base unit, by what the cell's steps are worth.
    pub fn cell(cell: Cell, scale: Scale) -> Self {
        match cell.value() {
            Some(steps) => Self::Number(scale.value(u64::from(steps))),
            None => Self::Absent(text::absence(cell)),
        }
    }

    /// A fact in words.
    pub fn said<T: Display>(reading: &Reading<T>) -> Self {
        Self::of(reading, |value| Self::Text(value.to_string()))
    }

    /// A fact that is a number.
    pub fn told(reading: &Reading<u32>) -> Self {
        Self::of(reading, |value| Self::Number((*value).into()))
    }

    /// A fact that counts.
    pub fn counted(reading: &Reading<u64>) -> Self {
        Self::of(reading, |value| Self::Number(*value))
    }

    /// A fact that holds or does not.
    pub fn is(reading: &Reading<bool>, yes: &str, no: &str) -> Self {
        Self::of(reading, |value| Self::text(if *value { yes } else { no }))
    }

    fn of<T>(reading: &Reading<T>, value: impl Fn(&T) -> Self) -> Self {
        match reading {
            Reading::Value(told) => value(told),
            Reading::NotYet => Self::NOT_YET,
            Reading::Unsupported => Self::Absent(text::absence(Cell::UNSUPPORTED)),
            Reading::Failed(_) => Self::Absent(text::absence(Cell::FAILED)),
        }
    }

    /// Words; empty ones are none.
    pub fn text(words: impl Into<String>) -> Self {
        let words = words.into();
        if words.is_empty() { Self::NONE } else { Self::Text(words) }
    }

    /// A number, or none.
    pub fn number(number: Option<u64>) -> Self {
        number.map_or(Self::NONE, Self::Number)
    }

    /// A part with its whole, if both are there.
    pub fn of_whole(part: Self, whole: &Self) -> Self {
        match (part, whole) {
            (Self::Number(part), Self::Number(whole)) => Self::Of(part, *whole),
            (part, _) => part,
        }
    }

    /// The number that it is compared by.
    pub fn as_number(&self) -> Option<u64> {
        match self {
            Self::Number(number) | Self::Of(number, _) => Some(*number),
            Self::Absent(_) | Self::Text(_) => None,
        }
    }

    /// Its share of the whole, 0 to 1: a percentage is one by itself.
    pub fn share(&self, unit: Unit) -> Option<f64> {
        match self {
            Self::Of(part, whole @ 1..) => Some(*part as f64 / *whole as f64),
            Self::Number(percent) if unit == Unit::Percent => Some(*percent as f64 / 100.0),
            _ => None,
        }
    }

    /// Why there is nothing, if there is nothing.
    pub fn why_absent(&self) -> Option<&'static str> {
        match self {
            Self::Absent(why) => Some(why),
            _ => None,
        }
    }

    /// What is read in the cell; the whole of a part is told apart.
    pub fn shown(&self, unit: Unit) -> (String, Option<String>) {
        match self {
            Self::Absent(_) => (text::ABSENT.to_owned(), None),
            Self::Number(number) => (unit.show(*number), None),
            Self::Of(part, whole) => (unit.show(*part), Some(unit.show_whole(*whole))),
            Self::Text(words) => (words.clone(), None),
        }
    }

    /// The same in one piece.
    pub fn line(&self, unit: Unit) -> String {
        match self.shown(unit) {
            (part, Some(whole)) => format!("{part}/{whole}"),
            (whole, None) => whole,
        }
    }

    /// The order of two values of a column, what is absent left out: see [`super::sort`].
    pub fn compare(&self, other: &Self) -> Ordering {
        match (self, other) {
            (Self::Text(a), Self::Text(b)) => natural(a, b),
            _ => self.as_number().cmp(&other.as_number()),
        }
    }
}

/// Compares texts as people do: `gpu-2` before `gpu-10`, without regard to case.
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

/// Takes the digits off the front of a text, without the zeros they begin with.
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
    fn numbers_within_names_count() {
        let mut names = ["gpu-10", "GPU-2", "gpu-1", "gpu-02b", "cpu-3"];
        names.sort_by(|a, b| natural(a, b));
        assert_eq!(names, ["cpu-3", "gpu-1", "GPU-2", "gpu-02b", "gpu-10"]);
    }

    #[test]
    fn every_absence_is_a_dash_that_says_why_and_never_a_zero() {
        for cell in [Cell::NOT_YET, Cell::UNSUPPORTED, Cell::FAILED] {
            let value = Value::cell(cell, Scale::Linear(1));
            assert_eq!(value.line(Unit::Percent), text::ABSENT);
            assert!(value.why_absent().is_some_and(|why| !why.is_empty()));
            assert_eq!(value.as_number(), None);
        }
        assert_eq!(Value::cell(Cell::steps(0), Scale::Linear(1)).line(Unit::Percent), "0");
    }

    #[test]
    fn a_part_is_shown_with_its_whole_and_compared_by_itself() {
        let value = Value::of_whole(Value::Number(70 << 30), &Value::Number(80 << 30));
        assert_eq!(value.line(Unit::Gib), "70.0/80");
        assert_eq!((value.as_number(), value.share(Unit::Gib)), (Some(70 << 30), Some(0.875)));
        let lonely = Value::of_whole(Value::Number(3), &Value::NOT_YET);
        assert_eq!(lonely, Value::Number(3));
    }

    #[test]
    fn a_pid_has_no_thousands() {
        assert_eq!(Unit::Id.show(41_822), "41822");
        assert_eq!(Unit::Count.show(41_822), "41,822");
        assert_eq!(Unit::MibPerSecond.show(3 << 30), "3,072");
    }
}
