//! Metrics of graphs: a GPU's reading with history, in its unit and on its scale.

use crate::domain::text;
use crate::domain::throttle;
use nodeglass_protocol::field::{Unit, Vendors};
use nodeglass_protocol::picture::GpuPicture;
use nodeglass_protocol::{Field as _, GpuField};
use std::borrow::Cow;

/// A field with history, or the deviation from the median of a GPU's peers. Names, units and scales of
/// fields come from the catalogue; what is special about a metric is stated here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GraphMetric(Option<GpuField>);

impl Default for GraphMetric {
    fn default() -> Self {
        Self::UTIL
    }
}

impl GraphMetric {
    /// Utilisation in %.
    pub const UTIL: Self = Self(Some(GpuField::Util));
    /// SM active in % (GPM).
    pub const SM_ACTIVE: Self = Self(Some(GpuField::SmActive));
    /// Memory in use in GiB.
    pub const MEMORY: Self = Self(Some(GpuField::MemUsed));
    /// Power in W.
    pub const POWER: Self = Self(Some(GpuField::Power));
    /// Temperature in °C.
    pub const TEMP: Self = Self(Some(GpuField::Temp));
    /// SM clock in MHz.
    pub const CLOCK: Self = Self(Some(GpuField::SmClock));
    /// Whether the clocks are throttled: 0 no, 50 for a normal reason, 100 for a warning.
    pub const THROTTLE: Self = Self(Some(GpuField::Throttle));

    /// Deviation from the median of the GPUs of the same job and model, in %; see
    /// [`crate::domain::deviation`].
    pub const DEVIATION: Self = Self(None);

    /// The first metrics of the menu.
    const FIRST: [Self; 8] = [
        Self::UTIL,
        Self::DEVIATION,
        Self::CLOCK,
        Self::POWER,
        Self::SM_ACTIVE,
        Self::MEMORY,
        Self::TEMP,
        Self::THROTTLE,
    ];

    /// Returns the metrics that the overview can show: its nodes have the history of few fields. The deviation is
    /// mainly the clock's.
    pub fn in_overview() -> impl Iterator<Item = Self> {
        let is_known =
            |metric: &Self| GpuField::SUMMARY_HISTORY.contains(&metric.0.unwrap_or(GpuField::SmClock));
        [Self::UTIL, Self::DEVIATION, Self::CLOCK, Self::POWER].into_iter().filter(is_known)
    }

    /// Returns every metric, in the order of the menu.
    pub fn all() -> impl Iterator<Item = Self> {
        let others = GpuField::HISTORY.iter().map(|field| Self(Some(*field)));
        Self::FIRST.into_iter().chain(others.filter(|metric| !Self::FIRST.contains(metric)))
    }

    /// Returns the title that the page shows.
    pub fn title(self) -> &'static str {
        match self.0 {
            Some(GpuField::Throttle) => "Throttling",
            Some(field) => field.metric().title,
            None => "Deviation from the job's median",
        }
    }

    /// Returns the title for devices of some vendors.
    pub fn title_for(self, vendors: Vendors) -> &'static str {
        match self.0 {
            Some(GpuField::Throttle) | None => self.title(),
            Some(field) => field.metric().wording(vendors).title,
        }
    }

    /// Returns the title within a sentence: `utilisation`, `SM clock`.
    pub fn phrase(self) -> String {
        let title = self.title();
        let is_acronym = title.chars().nth(1).is_some_and(char::is_uppercase);
        if is_acronym { title.to_owned() } else { title[..1].to_lowercase() + &title[1..] }
    }

    /// Returns the unit of the catalogue.
    fn unit(self) -> Unit {
        self.0.map_or(Unit::Percent, |field| field.metric().unit)
    }

    /// Returns its name in the URL and in exports, with the unit of its values.
    pub fn name(self) -> Cow<'static, str> {
        let Some(field) = self.0 else { return "deviation_pct".into() };
        match (self, self.unit()) {
            (Self::MEMORY, _) => "memory_gib".into(),
            (Self::THROTTLE, _) => "throttle_level".into(),
            (_, Unit::Byte) => format!("{}_gib", field.metric().stem()).into(),
            (_, Unit::BytePerSecond) => format!("{}_mib_s", field.metric().stem()).into(),
            _ => field.name().into(),
        }
    }

    /// Returns the metric of a field, if its history is kept.
    pub fn of(field: GpuField) -> Option<Self> {
        Self::all().find(|metric| metric.field() == Some(field))
    }

    /// Parses a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|metric| metric.name() == name)
    }

    /// Returns the field that it shows; `None` for the deviation, which is computed.
    pub fn field(self) -> Option<GpuField> {
        self.0
    }

    /// Returns whether its values are shares in %.
    pub fn is_percent(self) -> bool {
        self.unit() == Unit::Percent
    }

    /// Converts a cell's steps to the metric's unit.
    pub fn measure(self, steps: u32) -> f32 {
        match self {
            Self::THROTTLE => throttle::level(steps) * 100.0,
            Self(Some(field)) => self.convert(field.scale().value(u64::from(steps))),
            Self(None) => steps as f32,
        }
    }

    /// Converts a value of the field to the metric's unit: GiB and MiB/s instead of bytes.
    fn convert(self, value: u64) -> f32 {
        match self.unit() {
            Unit::Byte => (value >> 20) as f32 / 1_024.0,
            Unit::BytePerSecond => (value >> 20) as f32,
            _ => value as f32,
        }
    }

    /// Returns the maximum of its scale for a GPU, in its unit; `None` if not known yet.
    pub fn scale_max(self, gpu: &GpuPicture) -> Option<f32> {
        match self {
            Self::THROTTLE | Self::DEVIATION => Some(100.0),
            // Of a GPU that does not state its limit.
            Self::TEMP => Some(self.full_scale(gpu).unwrap_or(100.0)),
            _ => self.full_scale(gpu),
        }
    }

    fn full_scale(self, gpu: &GpuPicture) -> Option<f32> {
        gpu.full_scale(self.0?).map(|whole| self.convert(whole))
    }

    /// Returns whether a level of throttling is worth a warning: heat, power brake or hardware.
    pub fn is_throttled(self, level: f32) -> bool {
        self == Self::THROTTLE && level >= 60.0
    }

    /// Formats a value with its unit.
    pub fn format(self, value: f32) -> String {
        let whole = text::grouped(value.max(0.0).round() as u64);
        match (self, self.unit()) {
            _ if self.is_throttled(value) => "throttled".to_owned(),
            (Self::THROTTLE, _) if value >= 20.0 => "power cap".to_owned(),
            (Self::THROTTLE, _) => "none".to_owned(),
            (_, Unit::Byte) => format!("{} GiB", text::tenths(f64::from(value))),
            (_, Unit::BytePerSecond) => format!("{whole} MiB/s"),
            (_, unit) => format!("{whole} {}", unit.symbol()).trim_end().to_owned(),
        }
    }

    /// Returns the labels of the dark and the bright end of the whole colour scale.
    pub fn scale_labels(self) -> (&'static str, &'static str) {
        match self {
            Self::UTIL | Self::SM_ACTIVE => ("0 % idle", "100 % busy"),
            Self::MEMORY => ("0 % empty", "100 % full"),
            Self::POWER => ("0 W", "power limit"),
            Self::TEMP => ("0 °C", "throttle point"),
            Self::CLOCK => ("0 MHz", "highest clock"),
            Self::THROTTLE => ("none", "thermal/power/hardware throttling"),
            Self::DEVIATION => ("like its peers", "50 % or more from the median"),
            _ if self.is_percent() => ("0 %", "100 %"),
            _ => ("0", "maximum"),
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
        let fields: Vec<_> = GraphMetric::all().filter_map(GraphMetric::field).collect();
        assert_eq!((fields.len(), GraphMetric::all().count()), (GpuField::HISTORY.len(), fields.len() + 1));
        for metric in GraphMetric::all() {
            assert_eq!(GraphMetric::from_name(&metric.name()), Some(metric));
            let Some(field) = metric.field() else { continue };
            assert!(GpuField::HISTORY.contains(&field), "{metric:?}");
            let scale = field.metric().full_scale;
            assert!(
                metric == GraphMetric::THROTTLE || scale != FullScale::None,
                "{metric:?} cannot be drawn"
            );
        }
    }

    #[test]
    fn values_are_in_the_metrics_unit() {
        assert_eq!(GraphMetric::MEMORY.format(GraphMetric::MEMORY.measure(16 * 70 + 13)), "70.8 GiB");
        assert_eq!(GraphMetric::CLOCK.format(GraphMetric::CLOCK.measure(94)), "1,410 MHz");
        assert_eq!(GraphMetric::THROTTLE.format(GraphMetric::THROTTLE.measure(0x4)), "power cap");
        assert_eq!(GraphMetric::THROTTLE.format(GraphMetric::THROTTLE.measure(0x1)), "none");
    }

    #[test]
    fn a_title_within_a_sentence_keeps_its_acronym() {
        let phrases =
            [GraphMetric::UTIL, GraphMetric::CLOCK, GraphMetric::DEVIATION].map(GraphMetric::phrase);
        assert_eq!(phrases, ["utilisation", "SM clock", "deviation from the job's median"]);
        assert!(GraphMetric::all().all(|metric| metric.title().is_char_boundary(1)));
    }

    #[test]
    fn an_unknown_scale_is_not_guessed() {
        let mut gpu = GpuPicture::default();
        assert_eq!((GraphMetric::POWER.scale_max(&gpu), GraphMetric::CLOCK.scale_max(&gpu)), (None, None));
        gpu.row.set(GpuField::PowerLimit, Cell::steps(400));
        assert_eq!(GraphMetric::POWER.scale_max(&gpu), Some(400.0));
    }
}
