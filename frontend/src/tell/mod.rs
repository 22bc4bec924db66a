//! What is known of a thing is told as groups of facts, each with a word where a number is missing.

pub mod commands;
pub mod gpu;
pub mod held;
pub mod host;
pub mod job;
pub mod process;
pub mod share;
pub mod wear;

use crate::text;
use nodeglass_protocol::cell::Field;
use nodeglass_protocol::{Cell, Reading, Row};

/// How a fact is meant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mood {
    /// As it should be, or neither good nor bad.
    #[default]
    Plain,
    /// There is no value; the words say why.
    Absent,
    /// Worth a look.
    Attention,
    /// Someone should act.
    Bad,
}

/// One thing that is known.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Fact {
    /// What it is about.
    pub label: String,
    /// The value, or why there is none.
    pub value: String,
    /// What it means, or what to do; quiet words after the value.
    pub more: String,
    /// How it is meant.
    pub mood: Mood,
    /// Share of a whole to draw as a bar, with the class of its hue.
    pub bar: Option<(f64, &'static str)>,
    /// Whether the source does not offer it; such facts of a group are named together.
    pub unsupported: bool,
}

impl Fact {
    /// A value.
    pub fn new(label: impl Into<String>, value: impl Into<String>) -> Self {
        Self { label: label.into(), value: value.into(), ..Self::default() }
    }

    /// A fact of the driver's or the system's, or its own word why it is not known.
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

    /// A reading, or why there is none.
    pub fn cell<F: Field>(label: &str, row: &Row<F>, field: F, write: impl Fn(u64) -> String) -> Self {
        let cell = row.get(field);
        let Some(value) = row.value(field) else {
            let unsupported = cell == Cell::UNSUPPORTED;
            return Self { unsupported, ..Self::absent(label, text::absence(cell)) };
        };
        Self::new(label, write(value))
    }

    /// A share in %, with its bar.
    pub fn percent<F: Field>(label: &str, row: &Row<F>, field: F, hue: &'static str) -> Self {
        let fact = Self::cell(label, row, field, |value| format!("{value} %"));
        Self { bar: row.value(field).map(|value| (value as f64 / 100.0, hue)), ..fact }
    }

    /// A part of a whole in bytes, with its bar.
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
        Self { mood: Mood::Absent, ..Self::new(label, why) }
    }

    /// The same with words after it; they are for a value, not for the lack of one.
    pub fn with(mut self, more: impl Into<String>) -> Self {
        if self.mood != Mood::Absent {
            self.more = more.into();
        }
        self
    }

    /// The same in a mood, if it is so.
    pub fn if_so(mut self, is_so: bool, mood: Mood) -> Self {
        if is_so && self.mood != Mood::Absent {
            self.mood = mood;
        }
        self
    }
}

/// Facts that belong together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Group {
    /// What they are about.
    pub title: &'static str,
    /// A sentence before them.
    pub note: String,
    /// The facts.
    pub facts: Vec<Fact>,
}

impl Group {
    /// The facts of a group; those that are not offered are named together at its end.
    pub fn new(title: &'static str, facts: impl IntoIterator<Item = Fact>) -> Self {
        let (missing, mut facts): (Vec<Fact>, Vec<Fact>) =
            facts.into_iter().partition(|fact| fact.unsupported);
        if !missing.is_empty() {
            let names: Vec<String> = missing.into_iter().map(|fact| fact.label).collect();
            facts.push(Fact::absent("Not offered", &names.join(", ")));
        }
        Self { title, note: String::new(), facts }
    }

    /// The same with a sentence before them.
    pub fn noted(self, note: impl Into<String>) -> Self {
        Self { note: note.into(), ..self }
    }
}

/// Bytes on the scale that suits them: `812 MiB`, `70.8 GiB`, `1.2 TiB`.
pub fn bytes(bytes: u64) -> String {
    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;
    const TIB: u64 = 1 << 40;
    match bytes {
        0..KIB => format!("{bytes} B"),
        KIB..MIB => format!("{} KiB", bytes / KIB),
        MIB..GIB => format!("{} MiB", bytes / MIB),
        GIB..TIB if bytes.is_multiple_of(GIB) => format!("{} GiB", bytes / GIB),
        GIB..TIB => format!("{} GiB", text::tenths(bytes as f64 / GIB as f64)),
        _ => format!("{} TiB", text::tenths(bytes as f64 / TIB as f64)),
    }
}

/// A rate on the scale that suits it.
pub fn rate(bytes_s: u64) -> String {
    format!("{}/s", bytes(bytes_s))
}

/// `yes` or `no`.
pub fn on(is: &bool) -> String {
    if *is { "on" } else { "off" }.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::GpuField;

    #[test]
    fn the_drivers_own_word_is_told_and_never_a_zero() {
        let failed: Reading<u32> = Reading::Failed("GPU is lost".into());
        let fact = Fact::read("Serial", &failed, u32::to_string);
        assert_eq!((fact.value.as_str(), fact.mood), ("failed: GPU is lost", Mood::Absent));
        let hidden: Reading<u32> = Reading::Failed("hidden: belongs to another user".into());
        let fact = Fact::read("Command line", &hidden, u32::to_string);
        assert_eq!((fact.value.as_str(), fact.unsupported), ("hidden: belongs to another user", false));
        let not_yet = Fact::cell("Power", &Row::default(), GpuField::Power, |watts| watts.to_string());
        assert_eq!(not_yet.value, "not read yet");
    }

    #[test]
    fn what_a_card_does_not_offer_is_named_together_in_one_line() {
        let none: Reading<u32> = Reading::Unsupported;
        let read = |label| Fact::read(label, &none, u32::to_string);
        let group = Group::new("Power", [read("Average"), Fact::new("Limit", "300 W"), read("Energy")]);
        let told: Vec<(&str, &str)> =
            group.facts.iter().map(|fact| (fact.label.as_str(), fact.value.as_str())).collect();
        assert_eq!(told, [("Limit", "300 W"), ("Not offered", "Average, Energy")]);
    }

    #[test]
    fn words_about_a_value_are_not_said_where_there_is_none() {
        let none: Reading<u32> = Reading::NotYet;
        let fact = Fact::read("Replays", &none, u32::to_string).with("few are normal").if_so(true, Mood::Bad);
        assert_eq!((fact.more.as_str(), fact.mood), ("", Mood::Absent));
    }

    #[test]
    fn bytes_choose_their_scale() {
        let told = [0, 900, 4 << 20, 80 << 30, (70 << 30) + (820 << 20), 3 << 40].map(bytes);
        assert_eq!(told, ["0 B", "900 B", "4 MiB", "80 GiB", "70.8 GiB", "3.0 TiB"].map(String::from));
        assert_eq!(rate(12 << 20), "12 MiB/s");
    }
}
