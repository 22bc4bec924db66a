//! Facts and groups of facts, and how their values are formatted.

use crate::domain::text;
use nodeglass_protocol::field::{Field, FullScale, Group, Unit, ValueKind};
use nodeglass_protocol::gpu::{Described, FactKind, FactReading, Problem, Section, Virtualization};
use nodeglass_protocol::{Cell, Reading, Row};
use nodeglass_rules::number;

/// Emphasis of a fact.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Emphasis {
    /// Normal, or neither good nor bad.
    #[default]
    Plain,
    /// A missing value; the text says why.
    Absent,
    /// A warning.
    Warning,
    /// An error.
    Error,
}

/// One fact.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fact {
    /// The label.
    pub label: String,
    /// The value, or why it is missing.
    pub value: String,
    /// Explanation or advice, shown in a quiet colour after the value.
    pub note: String,
    /// The emphasis.
    pub emphasis: Emphasis,
    /// Fraction to draw as a bar, with the CSS class of its hue.
    pub bar: Option<(f64, &'static str)>,
    /// The field that it shows, by name.
    pub field: Option<&'static str>,
    /// Whether the source does not support it; such facts are listed together at the end of a group.
    pub unsupported: bool,
}

impl Fact {
    /// Creates a fact.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Self {
        Self { label: label.into(), value: value.into(), ..Self::default() }
    }

    /// Creates a fact from a reading, or the reason why it is missing.
    pub fn read<T>(label: &str, reading: &Reading<T>, write: impl Fn(&T) -> String) -> Self {
        match reading {
            Reading::Value(value) => Self::new(label, write(value)),
            Reading::NotYet => Self::absent(label, text::absence(Cell::NOT_YET)),
            Reading::Unsupported => {
                Self { unsupported: true, ..Self::absent(label, text::absence(Cell::UNSUPPORTED)) }
            }
            Reading::Failed(why) if why.is_hidden() => Self::absent(label, why.as_str()),
            Reading::Failed(why) => Self::absent(label, &format!("failed: {why}")),
        }
    }

    /// Creates a fact from a field of a row, or the reason why it is missing.
    pub fn cell<F: Field>(label: &str, row: &Row<F>, field: F, write: impl Fn(u64) -> String) -> Self {
        let cell = row.get(field);
        let Some(value) = row.value(field) else {
            let unsupported = cell == Cell::UNSUPPORTED;
            // In the list of those that are not supported, the title of the group says too little about it.
            let label = if unsupported { field.metric().title } else { label };
            return Self {
                field: Some(field.name()),
                unsupported,
                ..Self::absent(label, text::absence(cell))
            };
        };
        Self { field: Some(field.name()), ..Self::new(label, write(value)) }
    }

    /// Creates a fact from a field as the catalogue describes it. `full` is the value that fills its
    /// scale, if it is known.
    pub fn metric<F: Field>(row: &Row<F>, field: F, full: Option<u64>, hue: &'static str) -> Self {
        let metric = field.metric();
        let full = full.filter(|full| *full > 0);
        let format = |value| format_value(metric.unit, value);
        let fact = Self::cell(metric.label, row, field, |value| match full {
            Some(full) if metric.unit != Unit::Percent => format!("{} of {}", format(value), format(full)),
            _ => format(value),
        });
        let share = row.value(field).zip(full).map(|(value, full)| value as f64 / full as f64);
        Self { bar: share.map(|share| (share, hue)), ..fact.with_note(metric.help) }
    }

    /// Creates a fact from a percentage, with a bar.
    pub fn percent<F: Field>(label: &str, row: &Row<F>, field: F, hue: &'static str) -> Self {
        let fact = Self::cell(label, row, field, |value| format!("{value} %"));
        Self { bar: row.value(field).map(|value| (value as f64 / 100.0, hue)), ..fact }
    }

    /// Creates a fact from a used and a total number of bytes, with a bar.
    pub fn part<F: Field>(label: &str, row: &Row<F>, part: F, whole: F, hue: &'static str) -> Self {
        let known = row.value(whole).filter(|whole| *whole > 0);
        let fact = Self::cell(label, row, part, |used| match known {
            Some(whole) => format!("{} of {}", bytes(used), bytes(whole)),
            None => bytes(used),
        });
        let share = row.value(part).zip(known).map(|(used, whole)| used as f64 / whole as f64);
        Self { bar: share.map(|share| (share, hue)), ..fact }
    }

    fn absent(label: &str, why: &str) -> Self {
        Self { emphasis: Emphasis::Absent, ..Self::new(label, why) }
    }

    /// Adds a note, unless the value is missing.
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        if self.emphasis != Emphasis::Absent {
            self.note = note.into();
        }
        self
    }

    /// Sets the emphasis if a condition holds.
    pub fn with_emphasis_if(mut self, is_so: bool, emphasis: Emphasis) -> Self {
        if is_so && self.emphasis != Emphasis::Absent {
            self.emphasis = emphasis;
        }
        self
    }
}

/// Facts that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FactGroup {
    /// The title.
    pub title: &'static str,
    /// A sentence before the facts.
    pub note: String,
    /// The facts.
    pub facts: Vec<Fact>,
}

impl FactGroup {
    /// Creates a group; facts that are not supported are listed together at its end.
    pub fn new(title: &'static str, facts: impl IntoIterator<Item = Fact>) -> Self {
        let (missing, mut facts): (Vec<Fact>, Vec<Fact>) =
            facts.into_iter().partition(|fact| fact.unsupported);
        if !missing.is_empty() {
            let names: Vec<String> = missing.into_iter().map(|fact| fact.label).collect();
            facts.push(Fact::absent("Not supported", &names.join(", ")));
        }
        Self { title, note: String::new(), facts }
    }

    /// Adds a sentence before the facts.
    pub fn with_note(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// Appends the fields of a group that none of the facts shows, as the catalogue describes them.
/// `full` returns the value that fills a field's scale. Bit masks have sections of their own, and a
/// field that is the full scale of another one is shown with it.
pub fn with_catalogue<F: Field>(
    mut facts: Vec<Fact>,
    group: Group,
    row: &Row<F>,
    full: impl Fn(F) -> Option<u64>,
    hue: &'static str,
) -> Vec<Fact> {
    let is_whole = |field: F| F::ALL.iter().any(|part| part.metric().full_scale == FullScale::Field(field));
    for field in F::ALL.iter().copied() {
        let metric = field.metric();
        let is_shown = facts.iter().any(|fact| fact.field == Some(metric.name));
        if metric.group == group && metric.kind != ValueKind::BitMask && !is_shown && !is_whole(field) {
            facts.push(Fact::metric(row, field, full(field), hue));
        }
    }
    facts
}

/// Returns the readings of facts or health that their description lists in a section.
pub fn listed<T>(described: &'static [Described<T>], of: &T, section: Section) -> impl Iterator<Item = Fact> {
    described.iter().filter(move |described| described.section == section).map(move |described| {
        let (title, kind, reading) = (described.title, described.kind, described.reading(of));
        let fact = match reading {
            FactReading::Text(reading) => Fact::read(title, reading, ToString::to_string),
            FactReading::Number(reading) => {
                Fact::read(title, reading, |number| quantity(kind, (*number).into()))
            }
            FactReading::Counter(reading) => Fact::read(title, reading, |number| quantity(kind, *number)),
            FactReading::Flag(reading) if kind == FactKind::Mode => Fact::read(title, reading, on_off),
            FactReading::Flag(reading) => Fact::read(title, reading, yes_no),
            FactReading::Virtualization(reading) => {
                Fact::read(title, reading, |mode| virtualization(*mode).to_owned())
            }
        };
        match described.problem.filter(|_| reading.is_set()) {
            Some(Problem::Warning(note)) => fact.with_note(note).with_emphasis_if(true, Emphasis::Warning),
            Some(Problem::Error(note)) => fact.with_note(note).with_emphasis_if(true, Emphasis::Error),
            None => fact,
        }
    })
}

fn quantity(kind: FactKind, number: u64) -> String {
    match kind {
        FactKind::MilliwattLimit | FactKind::MilliwattMinimum => {
            format!("{} W", text::grouped(number.div_ceil(1_000)))
        }
        FactKind::CelsiusLimit => format!("{number} °C"),
        FactKind::MegahertzLimit => format!("{} MHz", text::grouped(number)),
        FactKind::Bytes => bytes(number),
        _ => text::grouped(number),
    }
}

fn virtualization(mode: Virtualization) -> &'static str {
    match mode {
        Virtualization::None => "none",
        Virtualization::PassThrough => "passed to this virtual machine as a whole",
        Virtualization::VgpuGuest => "vGPU of this virtual machine",
        Virtualization::VgpuHost => "host of vGPUs",
        Virtualization::VsgaHost => "host of shared graphics (vSGA)",
    }
}

/// Formats a value with the unit of the catalogue.
pub fn format_value(unit: Unit, value: u64) -> String {
    match unit {
        Unit::Byte => bytes(value),
        Unit::BytePerSecond => rate(value),
        Unit::Hundredth => text::tenths(value as f64 / 100.0),
        Unit::Second => text::span(value),
        Unit::WattHour => number::energy(value as f64 / 1_000.0),
        Unit::One => text::grouped(value),
        Unit::Percent | Unit::Watt | Unit::Celsius | Unit::Megahertz => {
            format!("{} {}", text::grouped(value), unit.symbol())
        }
    }
}

pub use text::{bytes, rate};

/// Formats a boolean as `yes` or `no`.
fn on_off(is: &bool) -> String {
    if *is { "on" } else { "off" }.to_owned()
}

fn yes_no(is: &bool) -> String {
    if *is { "yes" } else { "no" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::GpuField;

    #[test]
    fn a_missing_reading_shows_the_drivers_reason_and_never_zero() {
        let failed: Reading<u32> = Reading::Failed("GPU is lost".into());
        let fact = Fact::read("Serial", &failed, u32::to_string);
        assert_eq!((fact.value.as_str(), fact.emphasis), ("failed: GPU is lost", Emphasis::Absent));
        let hidden: Reading<u32> = Reading::Failed("hidden: belongs to another user".into());
        let fact = Fact::read("Command line", &hidden, u32::to_string);
        assert_eq!((fact.value.as_str(), fact.unsupported), ("hidden: belongs to another user", false));
        let not_yet = Fact::cell("Power", &Row::default(), GpuField::Power, |watts| watts.to_string());
        assert_eq!(not_yet.value, "not read yet");
    }

    #[test]
    fn unsupported_facts_are_listed_together_in_one_line() {
        let none: Reading<u32> = Reading::Unsupported;
        let read = |label| Fact::read(label, &none, u32::to_string);
        let group = FactGroup::new("Power", [read("Average"), Fact::new("Limit", "300 W"), read("Energy")]);
        let entries: Vec<(&str, &str)> =
            group.facts.iter().map(|fact| (fact.label.as_str(), fact.value.as_str())).collect();
        assert_eq!(entries, [("Limit", "300 W"), ("Not supported", "Average, Energy")]);
    }

    #[test]
    fn a_note_is_omitted_where_the_value_is_missing() {
        let none: Reading<u32> = Reading::NotYet;
        let fact = Fact::read("Replays", &none, u32::to_string)
            .with_note("few are normal")
            .with_emphasis_if(true, Emphasis::Error);
        assert_eq!((fact.note.as_str(), fact.emphasis), ("", Emphasis::Absent));
    }

    #[test]
    fn bytes_have_a_suitable_unit() {
        let entries = [0, 900, 4 << 20, 80 << 30, (70 << 30) + (820 << 20), 3 << 40].map(bytes);
        assert_eq!(entries, ["0 B", "900 B", "4 MiB", "80 GiB", "70.8 GiB", "3.0 TiB"].map(String::from));
        let large = [(1_000 << 40) + 1, 2_542_500 << 30, 3 << 50, u64::MAX].map(bytes);
        assert_eq!(large, ["1,000 TiB", "2.4 PiB", "3.0 PiB", "16,384 PiB"].map(String::from));
        assert_eq!(rate(12 << 20), "12 MiB/s");
    }
}
