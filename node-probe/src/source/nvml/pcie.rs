//! PCIe throughput from the best of three data sources that the GPU supports.
//!
//! 1. GPM (Hopper and later): hardware counters between two samples.
//! 2. Byte counters (fields 197 and 198, drivers from 555 on). They have 32 bits and overflow within
//!    0.14 s on a link of generation 4 with 16 lanes. They are used only if the link cannot have
//!    transferred 2³² bytes since the previous sample; otherwise 12 GB/s would appear as 3.4 GB/s.
//! 3. `nvmlDeviceGetPcieThroughput` measures for 20 ms per direction and blocks meanwhile. Each
//!    sampling cycle has time for a few GPUs; the others keep their last measurement.
//!
//! The throughput call is preferred to reading the counters twice within 20 ms, because NVIDIA
//! documents its window, but not the update interval of the counters.

use super::query_cache::{Query, QueryCache};
use crate::counter_rate::CounterRate;
use nodeglass_protocol::Reading;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use std::time::{Duration, Instant};

/// Bytes per KiB, the unit of the throughput call.
const KIB: u64 = 1_024;
/// Failure reason if the GPU has only a counter that may have overflowed.
const WRAPS: &str = "the card's PCIe counter wraps faster than it is read";
/// Duration of one measurement: 20 ms in each direction.
const MEASURE: Duration = Duration::from_millis(40);
/// Fraction of the sampling interval that measurements may take: 1/`PART`.
const PART: u32 = 10;
/// Minimum number of GPUs measured per cycle, however short the interval.
const FEWEST: usize = 2;
/// Maximum number of GPUs measured for the first time per cycle.
const FIRST: usize = 8;
/// Data rate of one lane in one direction in bytes/s, by generation from 1 on, rounded up: after
/// line coding, before packet overhead.
const LANE_BYTES_S: [u64; 7] =
    [250_000_000, 500_000_000, 985_000_000, 1_970_000_000, 3_940_000_000, 7_880_000_000, 15_760_000_000];
/// Assumed number of lanes if unknown.
const MAX_LANES: u64 = 16;

/// A value per direction, from the GPU's perspective.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerDirection<T> {
    /// Sent by the GPU.
    pub tx: T,
    /// Received by the GPU.
    pub rx: T,
}

/// PCIe throughput of one GPU.
#[derive(Clone, Debug, Default)]
pub struct Pcie {
    counters: PerDirection<CounterRate>,
    /// Maximum data rate of the link in one direction, in bytes/s; 0 until [`Pcie::set_link`].
    most_bytes_s: u64,
    /// Last measurement in bytes/s.
    measured: Option<PerDirection<Reading<u64>>>,
    /// Whether only a measurement yields the rate, according to the last cycle.
    wants_measuring: bool,
}

impl Pcie {
    /// Sets the maximum data rate from generation and lanes.
    pub fn set_link(&mut self, generation: Option<u32>, lanes: Option<u32>) {
        let generation =
            generation.filter(|generation| *generation > 0).map(|generation| generation as usize - 1);
        let lane = generation.and_then(|at| LANE_BYTES_S.get(at)).or(LANE_BYTES_S.last());
        let lanes = lanes.filter(|lanes| *lanes > 0).map_or(MAX_LANES, u64::from);
        self.most_bytes_s = lane.copied().unwrap_or(u64::MAX).saturating_mul(lanes);
    }

    /// Returns the maximum data rate of the link in one direction, in bytes/s.
    pub const fn max_bytes_s(&self) -> u64 {
        self.most_bytes_s
    }

    /// Returns whether the GPU depends on measurements and has been measured.
    pub fn is_measured(&self) -> bool {
        self.wants_measuring && self.measured.is_some()
    }

    /// Returns the rates in bytes/s from `counted` bytes at `mono_ns`; `None` where the counter may
    /// have overflowed more than once.
    pub fn count(
        &mut self,
        (counted, mono_ns): (PerDirection<Reading<u64>>, u64),
    ) -> PerDirection<Option<Reading<u64>>> {
        let most = self.most_bytes_s;
        PerDirection {
            tx: self.counters.tx.rate_below(counted.tx, mono_ns, most),
            rx: self.counters.rx.rate_below(counted.rx, mono_ns, most),
        }
    }

    /// Returns the rates in bytes/s from the counters, or from a measurement if needed and
    /// permitted.
    pub fn rates(
        &mut self,
        by_counter: PerDirection<Option<Reading<u64>>>,
        device: &Device<'_>,
        queries: &mut QueryCache,
        may: Measure,
    ) -> PerDirection<Reading<u64>> {
        let is_told =
            |reading: &Option<Reading<u64>>| matches!(reading, Some(Reading::Value(_) | Reading::NotYet));
        if is_told(&by_counter.tx) && is_told(&by_counter.rx) {
            self.forget();
            return PerDirection {
                tx: by_counter.tx.unwrap_or_default(),
                rx: by_counter.rx.unwrap_or_default(),
            };
        }
        self.wants_measuring = true;
        let measured = match (self.measured.take(), may) {
            (Some(measured), Measure::First | Measure::Never) => measured,
            (None, Measure::Never) => return PerDirection::default(),
            _ => measure(device, queries),
        };
        self.measured = Some(measured.clone());
        PerDirection { tx: best(measured.tx, by_counter.tx), rx: best(measured.rx, by_counter.rx) }
    }

    /// Discards the last measurement, because a better source is available or the GPU cannot be
    /// read.
    pub fn forget(&mut self) {
        (self.measured, self.wants_measuring) = (None, false);
    }
}

/// Measures both directions.
fn measure(device: &Device<'_>, queries: &mut QueryCache) -> PerDirection<Reading<u64>> {
    let mut measure_direction = |query, counter| {
        queries
            .query(query, || device.pcie_throughput(counter))
            .map(|kib_s| u64::from(kib_s).saturating_mul(KIB))
    };
    PerDirection {
        tx: measure_direction(Query::PcieThroughputTx, PcieUtilCounter::Send),
        rx: measure_direction(Query::PcieThroughputRx, PcieUtilCounter::Receive),
    }
}

/// Selects the measurement if it succeeded, otherwise the counter, which is `None` if it may have
/// overflowed more than once.
fn best(measured: Reading<u64>, counter: Option<Reading<u64>>) -> Reading<u64> {
    match (measured, counter) {
        (Reading::Unsupported, None) => Reading::Failed(WRAPS.into()),
        (Reading::Unsupported, Some(counted)) => counted,
        (measured, _) => measured,
    }
}

/// Whether a GPU may be measured in this cycle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// The GPU is scheduled.
    Turn,
    /// Only if it was never measured before.
    First,
    /// Not in this cycle.
    Never,
}

/// Round-robin schedule of measurements: a few GPUs per cycle.
#[derive(Debug, Default)]
pub struct MeasurementSchedule {
    next: usize,
    last_look: Option<Instant>,
    schedule: Vec<usize>,
    firsts: usize,
}

impl MeasurementSchedule {
    /// Starts a cycle; the longer the interval, the more GPUs are scheduled.
    pub fn begin<'a>(&mut self, all: impl Iterator<Item = &'a Pcie>, now: Instant) {
        let since =
            self.last_look.replace(now).map_or(Duration::ZERO, |last| now.saturating_duration_since(last));
        let affordable = (since / PART).as_millis() / MEASURE.as_millis();
        let many = usize::try_from(affordable).unwrap_or(usize::MAX).max(FEWEST);
        let waiting: Vec<_> =
            all.enumerate().filter(|(_, pcie)| pcie.is_measured()).map(|(at, _)| at).collect();
        let first = waiting.partition_point(|at| *at < self.next);
        self.schedule = waiting.iter().cycle().skip(first).take(many.min(waiting.len())).copied().collect();
        self.next = self.schedule.last().map_or(0, |last| last + 1);
        self.firsts = 0;
    }

    /// Returns whether the GPU at a position may be measured in this cycle.
    pub fn of(&self, position: usize) -> Measure {
        match () {
            () if self.schedule.contains(&position) => Measure::Turn,
            () if self.firsts < FIRST => Measure::First,
            () => Measure::Never,
        }
    }

    /// Records a first measurement.
    pub fn count_first(&mut self) {
        self.firsts += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_maximum_link_rate_follows_from_generation_and_lanes() {
        let most = |generation, lanes| {
            let mut pcie = Pcie::default();
            pcie.set_link(generation, lanes);
            pcie.most_bytes_s
        };
        assert_eq!(most(Some(4), Some(16)), 31_520_000_000);
        assert_eq!(most(Some(1), Some(1)), 250_000_000);
        // The fastest link is assumed if unknown.
        assert_eq!(most(None, None), most(Some(99), Some(16)));
        assert_eq!(most(None, None), most(Some(7), Some(16)));
    }

    #[test]
    fn measurements_win_and_ambiguous_counters_are_not_used() {
        let value = |rate| Reading::Value(rate);
        assert_eq!(best(value(6), None), value(6));
        assert_eq!(best(Reading::Unsupported, None), Reading::Failed(WRAPS.into()));
        assert_eq!(best(Reading::Unsupported, Some(value(3))), value(3));
        assert_eq!(best(Reading::Unsupported, Some(Reading::Unsupported)), Reading::Unsupported);
        let denied = || Reading::Failed("insufficient permissions".into());
        assert_eq!(best(denied(), None), denied());
    }

    #[test]
    fn gpus_are_measured_round_robin_and_more_per_longer_interval() {
        let waiting =
            Pcie { wants_measuring: true, measured: Some(PerDirection::default()), ..Pcie::default() };
        let mut all = vec![waiting; 5];
        all[1] = Pcie::default();
        let (mut schedule, start) = (MeasurementSchedule::default(), Instant::now());
        let mut take = |ms| {
            schedule.begin(all.iter(), start + Duration::from_millis(ms));
            schedule.schedule.clone()
        };
        assert_eq!([take(0), take(1_000), take(2_000)], [vec![0, 2], vec![3, 4], vec![0, 2]]);
        assert_eq!(take(62_000), [3, 4, 0, 2]);
    }

    #[test]
    fn first_measurements_per_cycle_are_limited() {
        let mut schedule = MeasurementSchedule::default();
        schedule.begin(std::iter::empty(), Instant::now());
        for _ in 0..FIRST {
            assert_eq!(schedule.of(7), Measure::First);
            schedule.count_first();
        }
        assert_eq!(schedule.of(7), Measure::Never);
        schedule.begin(std::iter::empty(), Instant::now());
        assert_eq!(schedule.of(7), Measure::First);
    }
}
