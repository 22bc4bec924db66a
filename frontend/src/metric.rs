//! What a graph shows of a GPU: one of the readings whose past is kept, in its unit and on its scale.

use crate::{text, throttle};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::picture::GpuPicture;

/// A reading whose past is kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metric {
    /// Utilisation in %.
    #[default]
    Util,
    /// SM active in % (GPM).
    SmActive,
    /// Memory in use in GiB.
    Memory,
    /// Power in W.
    Power,
    /// Temperature in °C.
    Temp,
    /// SM clock in MHz.
    Clock,
    /// Whether the clocks are held down: 0 no, 50 for a normal reason, 100 for one that is worth a look.
    Throttle,
}

impl Metric {
    /// Every metric, in the order of the menu.
    pub const ALL: [Self; 7] =
        [Self::Util, Self::SmActive, Self::Memory, Self::Power, Self::Temp, Self::Clock, Self::Throttle];

    /// What the user reads.
    pub fn title(self) -> &'static str {
        match self {
            Self::Util => "Utilisation",
            Self::SmActive => "SM active",
            Self::Memory => "Memory",
            Self::Power => "Power",
            Self::Temp => "Temperature",
            Self::Clock => "SM clock",
            Self::Throttle => "Clocks held down",
        }
    }

    /// Its name in a URL and in a table of numbers, with the unit.
    pub fn name(self) -> &'static str {
        match self {
            Self::Util => "util_pct",
            Self::SmActive => "sm_active_pct",
            Self::Memory => "memory_gib",
            Self::Power => "power_w",
            Self::Temp => "temp_c",
            Self::Clock => "sm_clock_mhz",
            Self::Throttle => "throttle_level",
        }
    }

    /// The metric of a name.
    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|metric| metric.name() == name)
    }

    /// The field whose past it is.
    pub fn field(self) -> GpuField {
        match self {
            Self::Util => GpuField::Util,
            Self::SmActive => GpuField::SmActive,
            Self::Memory => GpuField::MemUsed,
            Self::Power => GpuField::Power,
            Self::Temp => GpuField::Temp,
            Self::Clock => GpuField::SmClock,
            Self::Throttle => GpuField::Throttle,
        }
    }

    /// The value of a cell's steps, in its unit.
    pub fn measure(self, steps: u32) -> f32 {
        match self {
            Self::Memory => steps as f32 / 16.0,
            Self::Clock => steps as f32 * 15.0,
            Self::Throttle => throttle::level(steps) * 100.0,
            _ => steps as f32,
        }
    }

    /// The top of its scale for a GPU, in its unit; `None` while it is not known.
    pub fn top(self, gpu: &GpuPicture) -> Option<f32> {
        let steps = |field| gpu.row.get(field).value();
        let fact = |reading: &nodeglass_protocol::Reading<u32>| reading.value().map(|value| *value as f32);
        match self {
            Self::Util | Self::SmActive | Self::Throttle => Some(100.0),
            Self::Memory => steps(GpuField::MemTotal).map(|total| self.measure(total)),
            Self::Power => steps(GpuField::PowerLimit).map(|limit| limit as f32),
            Self::Temp => Some(fact(&gpu.facts.temp_slowdown_c).unwrap_or(100.0)),
            Self::Clock => fact(&gpu.facts.sm_clock_max_mhz),
        }
    }

    /// How far from the median is far, as a share of the scale.
    pub fn far(self) -> f32 {
        match self {
            Self::Temp | Self::Memory | Self::Clock => 0.10,
            _ => 0.15,
        }
    }

    /// A value with its unit.
    pub fn words(self, value: f32) -> String {
        let whole = text::grouped(value.max(0.0).round() as u64);
        match self {
            Self::Util | Self::SmActive => format!("{whole} %"),
            Self::Memory => format!("{} GiB", text::tenths(f64::from(value))),
            Self::Power => format!("{whole} W"),
            Self::Temp => format!("{whole} °C"),
            Self::Clock => format!("{whole} MHz"),
            Self::Throttle if value >= 60.0 => "held down".to_owned(),
            Self::Throttle if value >= 20.0 => "power limit".to_owned(),
            Self::Throttle => "free".to_owned(),
        }
    }

    /// What dark and bright mean, in words.
    pub fn ends(self) -> (&'static str, &'static str) {
        match self {
            Self::Util | Self::SmActive => ("idle", "busy"),
            Self::Memory => ("empty", "full"),
            Self::Power => ("0 W", "at its limit"),
            Self::Temp => ("0 °C", "slows down"),
            Self::Clock => ("0 MHz", "highest"),
            Self::Throttle => ("free or idle", "heat, brake, hardware"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Cell;
    use nodeglass_protocol::picture::History;

    #[test]
    fn every_metric_has_a_past_and_every_past_a_metric() {
        for field in History::GPU_FIELDS {
            assert!(Metric::ALL.iter().any(|metric| metric.field() == field), "{field:?}");
        }
        for metric in Metric::ALL {
            assert!(History::GPU_FIELDS.contains(&metric.field()), "{metric:?}");
            assert_eq!(Metric::of_name(metric.name()), Some(metric));
        }
    }

    #[test]
    fn values_are_in_the_unit_that_is_said() {
        assert_eq!(Metric::Memory.words(Metric::Memory.measure(16 * 70 + 13)), "70.8 GiB");
        assert_eq!(Metric::Clock.words(Metric::Clock.measure(94)), "1,410 MHz");
        assert_eq!(Metric::Throttle.words(Metric::Throttle.measure(0x4)), "power limit");
        assert_eq!(Metric::Throttle.words(Metric::Throttle.measure(0x1)), "free");
    }

    #[test]
    fn a_scale_that_is_not_known_is_not_made_up() {
        let mut gpu = GpuPicture::default();
        assert_eq!((Metric::Power.top(&gpu), Metric::Clock.top(&gpu)), (None, None));
        gpu.row.set(GpuField::PowerLimit, Cell::steps(400));
        assert_eq!(Metric::Power.top(&gpu), Some(400.0));
    }
}
