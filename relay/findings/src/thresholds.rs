//! Thresholds of the detectors, which the settings may change, the kinds that are turned off, and own rules.

use super::rule::Rule;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_rules::limits::{ACTIVITY_PCT, CLOCK_PCT, IDLE_PCT, MOSTLY_IDLE_PCT};
use std::fmt;
use std::str::FromStr;

/// Defines [`Thresholds`] and [`THRESHOLDS`].
macro_rules! thresholds {
    ($($(#[$doc:meta])* $field:ident = $default:tt in $least:literal..=$most:literal, $name:literal, $what:literal, [$($kind:ident),+];)*) => {
        /// The thresholds, the kinds that are turned off, and own rules.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct Thresholds {
            $($(#[$doc])* pub $field: u32,)*
            /// Kinds that are not looked for.
            pub off: Vec<FindingKind>,
            /// Rules of the settings, at most [`MAX_RULES`](super::rule::MAX_RULES).
            pub rules: Vec<Rule>,
        }

        impl Default for Thresholds {
            fn default() -> Self {
                Self { $($field: $default,)* off: Vec::new(), rules: Vec::new() }
            }
        }

        impl Thresholds {
            /// Changes one.
            pub fn set(&mut self, change: &ThresholdChange) {
                match change.name {
                    $($name => self.$field = change.value,)*
                    _ => {}
                }
            }
        }

        /// All thresholds.
        pub const THRESHOLDS: &[Threshold] = &[$(Threshold {
            name: $name,
            what: $what,
            default: $default,
            least: $least,
            most: $most,
            kinds: &[$(FindingKind::$kind),+],
        },)*];
    };
}

thresholds! {
    /// Utilisation of a step in % up to which a GPU did nothing in it.
    idle_pct = IDLE_PCT in 0..=50, "idle-pct", "utilisation in % up to which a GPU is idle", [UnusedGpus, IdleGpus];
    /// For how long GPUs must be idle, in minutes.
    idle_minutes = 10 in 10..=1440, "idle-minutes", "minutes for which GPUs must be idle", [UnusedGpus, IdleGpus];
    /// Mean utilisation of a job's GPUs in % up to which they are mostly idle.
    mostly_idle_pct = MOSTLY_IDLE_PCT in 1..=50, "mostly-idle-pct", "mean utilisation in % up to which GPUs are mostly idle", [MostlyIdle];
    /// Over how long that mean is taken, in minutes.
    mostly_idle_minutes = 60 in 30..=110, "mostly-idle-minutes", "minutes over which the mean utilisation is taken", [MostlyIdle];
    /// For how long all GPUs must wait, in minutes.
    hang_minutes = 2 in 1..=9, "hang-minutes", "minutes for which all GPUs must wait", [CollectiveHang];
    /// Minimum deviation of a GPU's SM clock below the median of its peers, in %.
    straggler_clock_pct = CLOCK_PCT in 3..=90, "straggler-clock-pct", "SM clock below the peers, in %", [Straggler];
    /// Minimum deviation of a GPU's activity below the median of its peers, in %.
    straggler_activity_pct = ACTIVITY_PCT in 5..=90, "straggler-activity-pct", "activity below the peers, in %", [Straggler];
    /// SM activity in % up to which a busy GPU is inefficient.
    efficiency_pct = 20 in 1..=80, "efficiency-pct", "SM activity in % up to which a busy GPU does little", [LowEfficiency];
    /// Within how many hours memory must be exhausted.
    forecast_hours = 6 in 1..=48, "forecast-hours", "hours within which memory is exhausted", [GpuMemoryForecast, JobMemoryForecast, HostMemory];
    /// For how long memory must grow, in minutes.
    forecast_minutes = 15 in 3..=60, "forecast-minutes", "minutes for which memory must grow", [GpuMemoryForecast, JobMemoryForecast, HostMemory];
    /// Memory of a job in % of its limit.
    job_memory_pct = 90 in 50..=99, "job-memory-pct", "memory of a job in % of its limit", [JobMemoryForecast];
    /// Memory of a host in use, in %.
    host_memory_pct = 97 in 50..=100, "host-memory-pct", "memory of a node in use, in %", [HostMemory];
    /// Use of a file system in %.
    disk_pct = 95 in 50..=100, "disk-pct", "use of a file system, in %", [DiskFull];
    /// Difference of the clocks of a node and the login node in s.
    clock_skew_seconds = 5 in 1..=3600, "clock-skew-seconds", "seconds by which the clock of a node is wrong", [ClockSkew];
    /// Minimum deviation of a node's GPUs below others of their model, in %.
    model_pct = 12 in 3..=90, "model-pct", "power limit or SM clock below other nodes' GPUs of the model, in %", [SlowerThanModel];
    /// Use of the DRAM bandwidth from which it limits a job, in %.
    bandwidth_pct = 70 in 30..=100, "bandwidth-pct", "DRAM bandwidth in % from which it limits a job", [MemoryBound];
    /// Time before the limit of a job at which it is mentioned at most, in minutes.
    limit_minutes = 60 in 1..=1440, "limit-minutes", "minutes before a time limit", [TimeLimit];
}

/// A threshold that the settings may change.
#[derive(Clone, Copy, Debug)]
pub struct Threshold {
    /// Its name in the settings.
    pub name: &'static str,
    /// Description, with its unit.
    pub what: &'static str,
    /// Its value without a setting.
    pub default: u32,
    /// The least value.
    pub least: u32,
    /// The largest value.
    pub most: u32,
    /// Kinds of findings that it applies to.
    pub kinds: &'static [FindingKind],
}

/// A threshold of the settings: `NAME=VALUE`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThresholdChange {
    name: &'static str,
    value: u32,
}

/// Error of a threshold of the settings.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ThresholdError {
    /// It has no value.
    #[error("write NAME=NUMBER, such as idle-pct=10")]
    Syntax,
    /// There is none with this name.
    #[error("there is no threshold {0:?}; there are {names}", names = names())]
    Unknown(String),
    /// The value is not a whole number.
    #[error("{value:?} is not a number; {name} must be a whole number from {least} to {most}")]
    NotANumber {
        /// The threshold.
        name: &'static str,
        /// The text of the setting.
        value: String,
        /// The least value.
        least: u32,
        /// The largest value.
        most: u32,
    },
    /// The value is out of range.
    #[error("{name} must be from {least} to {most}")]
    Range {
        /// The threshold.
        name: &'static str,
        /// The least value.
        least: u32,
        /// The largest value.
        most: u32,
    },
}

fn names() -> String {
    THRESHOLDS.iter().map(|threshold| threshold.name).collect::<Vec<_>>().join(", ")
}

impl FromStr for ThresholdChange {
    type Err = ThresholdError;

    fn from_str(raw: &str) -> Result<Self, ThresholdError> {
        let (name, value) = raw.split_once('=').ok_or(ThresholdError::Syntax)?;
        let known = THRESHOLDS.iter().find(|threshold| threshold.name == name.trim());
        let Some(&Threshold { name, least, most, .. }) = known else {
            return Err(ThresholdError::Unknown(name.to_owned()));
        };
        // Wider than a threshold: what is too large or negative is out of range.
        match value.trim().parse::<i64>() {
            Ok(number) => match u32::try_from(number) {
                Ok(value) if (least..=most).contains(&value) => Ok(Self { name, value }),
                _ => Err(ThresholdError::Range { name, least, most }),
            },
            Err(_) => {
                let value = value.trim().chars().take(40).collect();
                Err(ThresholdError::NotANumber { name, value, least, most })
            }
        }
    }
}

impl fmt::Display for ThresholdChange {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.name, self.value)
    }
}

impl Thresholds {
    /// The defaults with some changes, without some kinds.
    pub fn new(changes: &[ThresholdChange], off: &[FindingKind]) -> Self {
        let mut thresholds = Self { off: off.to_vec(), ..Self::default() };
        changes.iter().for_each(|change| thresholds.set(change));
        thresholds
    }

    /// Maximum detection latency of a kind, in ms.
    pub fn found_within_ms(&self, kind: FindingKind) -> u64 {
        let default = Self::default();
        let more_minutes = match kind {
            // Of some GPUs, twice the time: from five minutes to the ten that are kept.
            FindingKind::CollectiveHang => (2 * self.hang_minutes).clamp(5, 10) - 5,
            FindingKind::GpuMemoryForecast | FindingKind::JobMemoryForecast | FindingKind::HostMemory => {
                self.forecast_minutes.saturating_sub(default.forecast_minutes)
            }
            FindingKind::MostlyIdle => self.mostly_idle_minutes.saturating_sub(default.mostly_idle_minutes),
            _ => 0,
        };
        kind.found_within_ms() + u64::from(more_minutes) * 60_000 + self.extra_confirm_ms(kind)
    }

    /// Additional confirmation time of a kind, in ms: of `idle-minutes`, what exceeds the ten minutes of readings that are
    /// kept.
    pub fn extra_confirm_ms(&self, kind: FindingKind) -> u64 {
        match kind {
            FindingKind::UnusedGpus | FindingKind::IdleGpus => {
                u64::from(self.idle_minutes.saturating_sub(Self::default().idle_minutes)) * 60_000
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_default_is_in_its_range_and_can_be_set() {
        for threshold in THRESHOLDS {
            assert!((threshold.least..=threshold.most).contains(&threshold.default), "{}", threshold.name);
            let change: ThresholdChange = format!("{}={}", threshold.name, threshold.most).parse().unwrap();
            assert_ne!(Thresholds::new(&[change], &[]), Thresholds::default(), "{}", threshold.name);
        }
    }

    #[test]
    fn invalid_thresholds_are_refused() {
        for (raw, error) in [
            ("idle-pct", ThresholdError::Syntax),
            ("idle=5", ThresholdError::Unknown("idle".to_owned())),
            ("idle-pct=51", ThresholdError::Range { name: "idle-pct", least: 0, most: 50 }),
            ("idle-pct=-1", ThresholdError::Range { name: "idle-pct", least: 0, most: 50 }),
            (
                "idle-pct=five",
                ThresholdError::NotANumber { name: "idle-pct", value: "five".to_owned(), least: 0, most: 50 },
            ),
        ] {
            assert_eq!(raw.parse::<ThresholdChange>(), Err(error), "{raw}");
        }
    }
}
