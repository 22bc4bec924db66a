//! How the readings among the facts and the health of a GPU are described: bounds, and how the page shows them.

use super::Virtualization;
use crate::{Reading, Text};
use std::convert::Infallible;

/// A reading of `T`, which is the facts or the health of a GPU.
#[derive(Debug)]
pub struct Described<T: 'static> {
    /// Kind of its values.
    pub kind: FactKind,
    /// Group in the details of a GPU.
    pub section: Section,
    /// Its title there.
    pub title: &'static str,
    /// Its column in the table of GPUs, if it has one.
    pub column: Option<TableColumn>,
    /// Meaning of a set or non-zero value, if it is a problem.
    pub problem: Option<Problem>,
    pub(super) read: fn(&T) -> FactReading<'_>,
    pub(super) clear: fn(&mut T, Absent),
}

/// A reading without a value.
pub type Absent = Reading<Infallible>;

/// Meaning of a set or non-zero reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Problem {
    /// A warning, and its explanation.
    Warning(&'static str),
    /// An error, and its explanation.
    Error(&'static str),
}

/// Kind of a fact's values, from which their unit and bounds follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FactKind {
    /// A name, an address or a version.
    Text,
    /// Whether a mode is on.
    Mode,
    /// Whether something is the case.
    State,
    /// A number of a thing.
    Id,
    /// Number of things.
    Amount,
    /// Number of occurrences.
    Count,
    /// A temperature in °C that is a limit.
    CelsiusLimit,
    /// A clock in MHz that is a limit.
    MegahertzLimit,
    /// A power in mW that is a limit.
    MilliwattLimit,
    /// A power in mW that is a lower bound, which may be 0.
    MilliwattMinimum,
    /// A PCIe generation or link width that is a limit.
    PcieLimit,
    /// A PCIe generation or link width.
    Pcie,
    /// A number of bytes.
    Bytes,
}

/// A group of the details of a GPU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Section {
    /// Name and place.
    Identity,
    /// How it is set up.
    Modes,
    /// Power limits.
    Power,
    /// Temperature limits.
    Temperature,
    /// Errors of its memory, and their repair.
    Errors,
    /// None: it is a part of the line of another fact or reading.
    None,
}

/// A column of the table of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct TableColumn {
    /// Its id in filters, in the URL and in files.
    pub id: &'static str,
    /// Its title.
    pub title: &'static str,
    /// Its width in px.
    pub width: u16,
    /// Content, one phrase.
    pub about: &'static str,
    /// Other names in filters.
    pub aliases: &'static [&'static str],
}

impl TableColumn {
    pub(super) const fn new(id: &'static str, title: &'static str, width: u16, about: &'static str) -> Self {
        Self { id, title, width, about, aliases: &[] }
    }
}

/// The reading of a fact.
#[derive(Clone, Copy, Debug)]
pub enum FactReading<'a> {
    /// A text.
    Text(&'a Reading<Text>),
    /// A number.
    Number(&'a Reading<u32>),
    /// A counter.
    Counter(&'a Reading<u64>),
    /// Whether something is so.
    Flag(&'a Reading<bool>),
    /// The kind of virtualization.
    Virtualization(&'a Reading<Virtualization>),
}

impl FactReading<'_> {
    /// Returns whether it is known to be set, or not zero.
    pub fn is_set(self) -> bool {
        match self {
            Self::Number(reading) => reading.value().is_some_and(|number| *number > 0),
            Self::Counter(reading) => reading.value().is_some_and(|number| *number > 0),
            Self::Flag(reading) => reading.value() == Some(&true),
            Self::Text(_) | Self::Virtualization(_) => false,
        }
    }
}

impl<T> Described<T> {
    /// Returns the reading.
    pub fn reading<'a>(&self, of: &'a T) -> FactReading<'a> {
        (self.read)(of)
    }

    /// Replaces the reading by one without a value.
    pub fn clear(&self, of: &mut T, absent: Absent) {
        (self.clear)(of, absent);
    }
}

/// Describes a reading: field, type, kind, section and title, then what is special about it.
macro_rules! described {
    ($field:ident: $type:ident, $kind:ident, $section:ident, $title:literal $(, $part:ident = $value:expr)*) => {
        Described {
            $($part: Some($value),)*
            ..Described {
                kind: FactKind::$kind,
                section: Section::$section,
                title: $title,
                column: None,
                problem: None,
                read: |of| FactReading::$type(&of.$field),
                clear: |of, absent| of.$field = absent.map(|never| match never {}),
            }
        }
    };
}
pub(super) use described;
