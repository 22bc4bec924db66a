//! What a graph shows of a GPU: a reading with history, in its unit and on its scale.

use crate::domain::text;
use crate::domain::throttle;
use nodeglass_protocol::field::Unit;
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::{Field as _, GpuField};
use std::borrow::Cow;

/// A field with history. Names, units and scales come from the catalogue; what is special about a
/// metric is stated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Metric(GpuField);

impl Default for Metric {
    fn default() -> Self {
        Self::UTIL
    }
}

impl Metric {
    /// Utilisation in %.
    pub const UTIL: Self = Self(GpuField::Util);
    /// SM active in % (GPM).
    pub const SM_ACTIVE: Self = Self(GpuField::SmActive);
    /// Memory in use in GiB.
    pub const MEMORY: Self = Self(GpuField::MemUsed);
    /// Power in W.
    pub const POWER: Self = Self(GpuField::Power);
    /// Temperature in °C.
    pub const TEMP: Self = Self(GpuField::Temp);
    /// SM clock in MHz.
    pub const CLOCK: Self = Self(GpuField::SmClock);
    /// Whether the clocks are throttled: 0 no, 50 for a normal reason, 100 for a warning.
    pub const THROTTLE: Self = Self(GpuField::Throttle);

    /// The first metrics of the menu.
    const FIRST: [Self; 7] =
        [Self::UTIL, Self::SM_ACTIVE, Self::MEMORY, Self::POWER, Self::TEMP, Self::CLOCK, Self::THROTTLE];

    /// Returns every metric, in the order of the menu.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = GpuField::HISTORY.iter().map(|field| Self(*field));
        Self::FIRST.into_iter().chain(others.filter(|metric| !Self::FIRST.contains(metric)))
    }

    /// Returns the title that the page shows.
    pub fn title(self) -> &'static str {
        self.0.metric().title
    }

    /// Returns its name in the URL and in exports, with the unit of its values.
    pub fn name(self) -> Cow<'static, str> {
        match (self, self.0.metric().unit) {
            (Self::MEMORY, _) => "memory_gib".into(),
            (Self::THROTTLE, _) => "throttle_level".into(),
            (_, Unit::Byte) => format!("{}_gib", self.0.metric().stem()).into(),
            (_, Unit::BytePerSecond) => format!("{}_mib_s", self.0.metric().stem()).into(),
            _ => self.0.name().into(),
        }
    }

    /// Parses a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|metric| metric.name() == name)
    }

    /// Returns the field that it shows.
    pub fn field(self) -> GpuField {
        self.0
    }

    /// Whether its values are shares in %.
    pub fn is_percent(self) -> bool {
        self.0.metric().unit == Unit::Percent
    }

    /// Converts a cell's steps to the metric's unit.
    pub fn measure(self, steps: u32) -> f32 {
        match self {
            Self::THROTTLE => throttle::level(steps) * 100.0,
            _ => self.convert(self.0.scale().value(u64::from(steps))),
        }
    }

    /// Converts a value of the field to the metric's unit: GiB and MiB/s instead of bytes.
    fn convert(self, value: u64) -> f32 {
        match self.0.metric().unit {
            Unit::Byte => (value >> 20) as f32 / 1_024.0,
            Unit::BytePerSecond => (value >> 20) as f32,
            _ => value as f32,
        }
    }

    /// Returns the maximum of its scale for a GPU, in its unit; `None` if not known yet.
    pub fn scale_max(self, gpu: &GpuPicture) -> Option<f32> {
        match self {
            Self::THROTTLE => Some(100.0),
            // Of a GPU that does not state its limit.
            Self::TEMP => Some(gpu.full_scale(self.0).map_or(100.0, |limit| self.convert(limit))),
            _ => gpu.full_scale(self.0).map(|whole| self.convert(whole)),
        }
    }

    /// Returns the deviation from the median that makes a GPU an outlier, as a fraction of the scale.
    pub fn outlier_threshold(self) -> f32 {
        match self {
            Self::TEMP | Self::MEMORY | Self::CLOCK => 0.10,
            _ => 0.15,
        }
    }

    /// Formats a value with its unit.
    pub fn format(self, value: f32) -> String {
        let whole = text::grouped(value.max(0.0).round() as u64);
        match (self, self.0.metric().unit) {
            (Self::THROTTLE, _) if value >= 60.0 => "held down".to_owned(),
            (Self::THROTTLE, _) if value >= 20.0 => "power limit".to_owned(),
            (Self::THROTTLE, _) => "free".to_owned(),
            (_, Unit::Byte) => format!("{} GiB", text::tenths(f64::from(value))),
            (_, Unit::BytePerSecond) => format!("{whole} MiB/s"),
            (_, unit) => format!("{whole} {}", unit.symbol()).trim_end().to_owned(),
        }
    }

    /// Returns the labels of the dark and the bright end of the colour scale.
    pub fn scale_labels(self) -> (&'static str, &'static str) {
        match self {
            Self::UTIL | Self::SM_ACTIVE => ("idle", "busy"),
            Self::MEMORY => ("empty", "full"),
            Self::POWER => ("0 W", "at its limit"),
            Self::TEMP => ("0 °C", "slows down"),
            Self::CLOCK => ("0 MHz", "highest"),
            Self::THROTTLE => ("free or idle", "heat, brake, hardware"),
            _ if self.is_percent() => ("0 %", "100 %"),
            _ => ("0", "highest"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::field::FullScale;

    #[test]
    fn every_field_with_history_is_a_metric_with_a_name_and_a_scale() {
        let fields: Vec<_> = Metric::all().map(Metric::field).collect();
        assert_eq!(fields.len(), GpuField::HISTORY.len());
        for metric in Metric::all() {
            assert!(GpuField::HISTORY.contains(&metric.field()), "{metric:?}");
            assert_eq!(Metric::from_name(&metric.name()), Some(metric));
            let scale = metric.field().metric().full_scale;
            assert!(metric == Metric::THROTTLE || scale != FullScale::None, "{metric:?} cannot be drawn");
        }
    }

    #[test]
    fn values_are_in_the_metrics_unit() {
        assert_eq!(Metric::MEMORY.format(Metric::MEMORY.measure(16 * 70 + 13)), "70.8 GiB");
        assert_eq!(Metric::CLOCK.format(Metric::CLOCK.measure(94)), "1,410 MHz");
        assert_eq!(Metric::THROTTLE.format(Metric::THROTTLE.measure(0x4)), "power limit");
        assert_eq!(Metric::THROTTLE.format(Metric::THROTTLE.measure(0x1)), "free");
    }

    #[test]
    fn an_unknown_scale_is_not_guessed() {
        let mut gpu = GpuPicture::default();
        assert_eq!((Metric::POWER.scale_max(&gpu), Metric::CLOCK.scale_max(&gpu)), (None, None));
        gpu.row.set(GpuField::PowerLimit, Cell::steps(400));
        assert_eq!(Metric::POWER.scale_max(&gpu), Some(400.0));
    }
}
