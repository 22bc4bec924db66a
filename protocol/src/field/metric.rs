//! A field's entry in the catalogue: its names, unit, resolution, meaning and use.

use super::Scale;
use super::wording::{self, VendorWording, Vendors, Wording};

/// Unit of a field's values. Names of fields end with [`Unit::suffix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// A count, a code or a bit mask.
    One,
    /// %.
    Percent,
    /// W.
    Watt,
    /// Wh.
    WattHour,
    /// °C.
    Celsius,
    /// Bytes.
    Byte,
    /// Bytes per second.
    BytePerSecond,
    /// MHz.
    Megahertz,
    /// Hundredths.
    Hundredth,
    /// Seconds.
    Second,
}

impl Unit {
    /// Returns the suffix of the names of fields with this unit.
    pub const fn suffix(self) -> &'static str {
        match self {
            Self::One => "",
            Self::Percent => "_pct",
            Self::Watt => "_w",
            Self::WattHour => "_wh",
            Self::Celsius => "_c",
            Self::Byte => "_bytes",
            Self::BytePerSecond => "_bytes_s",
            Self::Megahertz => "_mhz",
            Self::Hundredth => "_centi",
            Self::Second => "_s",
        }
    }

    /// Symbol after a number.
    pub const fn symbol(self) -> &'static str {
        match self {
            Self::One | Self::Hundredth => "",
            Self::Percent => "%",
            Self::Watt => "W",
            Self::WattHour => "Wh",
            Self::Celsius => "°C",
            Self::Byte => "B",
            Self::BytePerSecond => "B/s",
            Self::Megahertz => "MHz",
            Self::Second => "s",
        }
    }

    /// Suffix of a Prometheus name, and how many of Prometheus' base units make one of this unit.
    const fn base(self) -> (&'static str, f64) {
        match self {
            Self::One => ("", 1.0),
            Self::Percent => ("_ratio", 0.01),
            Self::Watt => ("_watts", 1.0),
            Self::WattHour => ("_joules", 3_600.0),
            Self::Celsius => ("_celsius", 1.0),
            Self::Byte => ("_bytes", 1.0),
            Self::BytePerSecond => ("_bytes_per_second", 1.0),
            Self::Megahertz => ("_hertz", 1e6),
            Self::Hundredth => ("", 0.01),
            Self::Second => ("_seconds", 1.0),
        }
    }
}

/// The kind of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// A quantity that rises and falls.
    Gauge,
    /// A count that only rises until it is reset.
    Counter,
    /// A set of flags.
    BitMask,
    /// One of several states, as a number.
    State,
}

/// Retention of a field's recent values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Retention {
    /// Only the newest value.
    None,
    /// In the history of full topics.
    Full,
    /// In the history of every topic, the overview included.
    Summary,
}

/// The aggregate of a field's values over several rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aggregate {
    /// Not at all.
    None,
    /// Their sum.
    Sum,
    /// Their mean.
    Mean,
    /// The largest.
    Max,
}

/// Topic of a field; fields of a group are shown together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Group {
    /// Utilisation.
    Activity,
    /// Memory, storage and swap.
    Memory,
    /// Power and energy.
    Power,
    /// Temperatures and fans.
    Temperature,
    /// Clocks and what limits them.
    Clocks,
    /// Video, JPEG and optical-flow engines.
    Engines,
    /// Transfers over PCIe and NVLink.
    Links,
    /// Errors.
    Errors,
    /// Waiting for a resource.
    Pressure,
    /// Local disks.
    Disks,
    /// Network and InfiniBand.
    Network,
    /// The system as a whole.
    System,
}

/// A fact of a GPU that limits one of its readings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Temperature at which it slows down.
    SlowdownTemperature,
    /// Maximum operating temperature of its memory.
    MemoryTemperature,
    /// Maximum SM clock.
    SmClock,
    /// Maximum memory clock.
    MemoryClock,
    /// Maximum graphics clock.
    GraphicsClock,
    /// Maximum video clock.
    VideoClock,
}

/// The value that fills a field's scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullScale<F> {
    /// Unbounded.
    None,
    /// A constant in the field's unit.
    Constant(u64),
    /// The value of another field, of which this one is a part.
    Field(F),
    /// A fact of the GPU.
    Limit(Limit),
}

/// A metric: one entry of the catalogue.
#[derive(Clone, Copy, Debug)]
pub struct Metric<F> {
    /// Name with unit, as in JSON, links and exports: `power_w`.
    pub name: &'static str,
    /// Name of the reading that fills it, on the probe's wire: `power_mw`.
    pub reading: &'static str,
    /// Divisor that converts the unit of the reading to the unit of the field.
    pub divisor: u64,
    /// Unit of its values.
    pub unit: Unit,
    /// Its resolution.
    pub scale: Scale,
    /// Kind of its values.
    pub kind: ValueKind,
    /// Title on its own: `SM clock`.
    pub title: &'static str,
    /// Title within its group: `SM`.
    pub label: &'static str,
    /// Title of a narrow column.
    pub short: &'static str,
    /// Meaning, as a phrase.
    pub help: &'static str,
    /// Words where vendors name it differently.
    pub variants: &'static [VendorWording],
    /// Topic.
    pub group: Group,
    /// Retention of recent values.
    pub retention: Retention,
    /// Whether the summary of a node includes it.
    pub in_summary: bool,
    /// Whether the relay computes it from other readings; what a probe sends as it is ignored.
    pub is_derived: bool,
    /// Whether it is constant or changes in one direction only, so that its newest value is the
    /// best guess for an earlier time.
    pub is_stable: bool,
    /// The aggregate over several rows.
    pub aggregate: Aggregate,
    /// The value that fills its scale.
    pub full_scale: FullScale<F>,
    column: &'static str,
}

impl<F: Copy> Metric<F> {
    /// A gauge with equal steps of one unit.
    pub(super) const fn gauge(
        name: &'static str,
        unit: Unit,
        group: Group,
        title: &'static str,
        help: &'static str,
    ) -> Self {
        Self {
            name,
            reading: "",
            divisor: 1,
            unit,
            scale: Scale::Linear(1),
            kind: ValueKind::Gauge,
            title,
            label: title,
            short: title,
            help,
            variants: &[],
            group,
            retention: Retention::None,
            in_summary: false,
            is_derived: false,
            is_stable: false,
            aggregate: Aggregate::None,
            full_scale: FullScale::None,
            column: "",
        }
    }

    /// A share in %.
    pub(super) const fn percent(
        name: &'static str,
        group: Group,
        title: &'static str,
        help: &'static str,
    ) -> Self {
        Self::gauge(name, Unit::Percent, group, title, help).full_scale(FullScale::Constant(100)).mean()
    }

    /// A size in bytes, in steps of `step`.
    pub(super) const fn bytes(
        name: &'static str,
        step: u64,
        group: Group,
        title: &'static str,
        help: &'static str,
    ) -> Self {
        Self::gauge(name, Unit::Byte, group, title, help).scale(Scale::Linear(step)).sum()
    }

    /// A rate in bytes per second, in logarithmic steps from 1 MiB/s.
    pub(super) const fn rate(
        name: &'static str,
        group: Group,
        title: &'static str,
        help: &'static str,
    ) -> Self {
        Self::gauge(name, Unit::BytePerSecond, group, title, help).scale(Scale::Logarithmic(1 << 20)).sum()
    }

    /// A clock in MHz, in steps of `step`.
    pub(super) const fn clock(
        name: &'static str,
        step: u64,
        title: &'static str,
        help: &'static str,
    ) -> Self {
        Self::gauge(name, Unit::Megahertz, Group::Clocks, title, help).scale(Scale::Linear(step)).mean()
    }

    /// A count that only rises.
    pub(super) const fn counter(
        name: &'static str,
        unit: Unit,
        group: Group,
        title: &'static str,
        help: &'static str,
    ) -> Self {
        let gauge = Self::gauge(name, unit, group, title, help);
        Self { kind: ValueKind::Counter, ..gauge }.stable().sum()
    }

    /// Sets the reading that fills the field, and how many of its units make one of the field's.
    pub(super) const fn read_from(self, reading: &'static str, divisor: u64) -> Self {
        Self { reading, divisor, ..self }
    }

    /// Sets the resolution.
    pub(super) const fn scale(self, scale: Scale) -> Self {
        Self { scale, ..self }
    }

    /// Sets what the values are.
    pub(super) const fn kind(self, kind: ValueKind) -> Self {
        Self { kind, ..self }
    }

    /// Sets the title within the group.
    pub(super) const fn label(self, label: &'static str) -> Self {
        Self { label, ..self }
    }

    /// Sets the title of a narrow column.
    pub(super) const fn short(self, short: &'static str) -> Self {
        Self { short, ..self }
    }

    /// Sets the id of the column, by default the name without its unit.
    pub(super) const fn column(self, column: &'static str) -> Self {
        Self { column, ..self }
    }

    /// Sets the words for some vendors.
    pub(super) const fn variants(self, variants: &'static [VendorWording]) -> Self {
        Self { variants, ..self }
    }

    /// Keeps the history in full topics, so that the field can be graphed.
    pub(super) const fn with_history(self) -> Self {
        Self { retention: Retention::Full, ..self }
    }

    /// Keeps the history in every topic.
    pub(super) const fn with_summary_history(self) -> Self {
        Self { retention: Retention::Summary, ..self }
    }

    /// Includes the field in the summary of a node.
    pub(super) const fn in_summary(self) -> Self {
        Self { in_summary: true, ..self }
    }

    /// Marks the field as computed by the relay.
    pub(super) const fn derived(self) -> Self {
        Self { is_derived: true, ..self }
    }

    /// Marks the field as constant or monotonic.
    pub(super) const fn stable(self) -> Self {
        Self { is_stable: true, ..self }
    }

    /// Adds the values of several rows.
    pub(super) const fn sum(self) -> Self {
        Self { aggregate: Aggregate::Sum, ..self }
    }

    /// Averages the values of several rows.
    pub(super) const fn mean(self) -> Self {
        Self { aggregate: Aggregate::Mean, ..self }
    }

    /// Takes the largest of the values of several rows.
    pub(super) const fn max(self) -> Self {
        Self { aggregate: Aggregate::Max, ..self }
    }

    /// Keeps the values of several rows apart.
    pub(super) const fn no_aggregate(self) -> Self {
        Self { aggregate: Aggregate::None, ..self }
    }

    /// Sets the value that fills the scale.
    pub(super) const fn full_scale(self, full_scale: FullScale<F>) -> Self {
        Self { full_scale, ..self }
    }

    /// Makes the field a part of another one.
    pub(super) const fn part_of(self, whole: F) -> Self {
        self.full_scale(FullScale::Field(whole))
    }

    /// Returns its names and meaning for accelerators of some vendors.
    pub fn wording(&self, vendors: Vendors) -> Wording {
        let default = Wording { title: self.title, label: self.label, short: self.short, help: self.help };
        wording::find(self.variants, vendors).unwrap_or(default)
    }

    /// Name without its unit: `power`.
    pub fn stem(&self) -> &'static str {
        self.name.strip_suffix(self.unit.suffix()).unwrap_or(self.name)
    }

    /// Id of its column in tables, filters and links.
    pub fn column_id(&self) -> &'static str {
        if self.column.is_empty() { self.stem() } else { self.column }
    }

    /// Returns whether its recent values are kept.
    pub const fn has_history(&self) -> bool {
        !matches!(self.retention, Retention::None)
    }

    /// Name in Prometheus' conventions, in base units: `nodeglass_gpu_power_watts`.
    pub fn prometheus_name(&self, row_kind: &str) -> String {
        let total = if self.kind == ValueKind::Counter { "_total" } else { "" };
        format!("nodeglass_{row_kind}_{}{}{total}", self.stem(), self.unit.base().0)
    }

    /// Help text for Prometheus: the meaning as a sentence.
    pub fn prometheus_help(&self) -> String {
        let mut letters = self.help.chars();
        letters.next().map_or(String::new(), |first| format!("{}{}.", first.to_uppercase(), letters.as_str()))
    }

    /// Converts a value in the field's unit to Prometheus' base unit.
    pub fn prometheus_value(&self, value: u64) -> f64 {
        match self.unit {
            // A division is exact to the last digit that is shown.
            Unit::Percent | Unit::Hundredth => value as f64 / 100.0,
            unit => value as f64 * unit.base().1,
        }
    }
}
