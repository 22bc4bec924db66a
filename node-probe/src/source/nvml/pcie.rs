//! What goes over PCIe, by the best of three sources that the card has.
//!
//! 1. GPM (Hopper and later) counts in the hardware, from look to look.
//! 2. The byte counters (fields 197 and 198, drivers from 555 on) wrap at 32 bits, within 0.14 s on a
//!    link of generation 4 with 16 lanes. A rate is taken from them only if the link is too slow to have
//!    moved 2³² bytes since the last look: otherwise 12 GB/s would be shown as 3.4 GB/s.
//! 3. `nvmlDeviceGetPcieThroughput` measures for 20 ms and blocks that long, for each direction. A look
//!    has time for a few GPUs; the others keep what was measured last.
//!
//! The throughput call is preferred to reading the counters twice within 20 ms, because NVIDIA documents
//! its window, and nothing says how often the counters are brought up to date.

use super::query_cache::{Query, QueryCache};
use crate::counter_rate::CounterRate;
use nodeglass_protocol::Reading;
use nvml_wrapper::Device;
use nvml_wrapper::enum_wrappers::device::PcieUtilCounter;
use std::time::{Duration, Instant};

/// Bytes in a KiB, the unit of the throughput call.
const KIB: u64 = 1_024;
/// What a reading says if the card has nothing but a counter that cannot be trusted.
const WRAPS: &str = "the card's PCIe counter wraps faster than it is read";
/// How long one GPU's measurement takes: 20 ms in each direction.
const MEASURE: Duration = Duration::from_millis(40);
/// Share of the time between two looks that may be spent on measuring: 1/`PART`.
const PART: u32 = 10;
/// GPUs that are measured again at a look, however short the interval.
const FEWEST: usize = 2;
/// GPUs that are measured for the first time at a look.
const FIRST: usize = 8;
/// Bytes a second of one lane in one direction, by generation from 1 on, rounded up: what the coding
/// leaves, without the packets' overhead.
const LANE_BYTES_S: [u64; 7] =
    [250_000_000, 500_000_000, 985_000_000, 1_970_000_000, 3_940_000_000, 7_880_000_000, 15_760_000_000];
/// Lanes of a link of which nothing is known.
const MAX_LANES: u64 = 16;

/// Both directions of one GPU, as it sends and as it receives.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PerDirection<T> {
    /// Sent by the GPU.
    pub tx: T,
    /// Received by the GPU.
    pub rx: T,
}

/// The PCIe traffic of one GPU from look to look.
#[derive(Clone, Debug, Default)]
pub struct Pcie {
    counters: PerDirection<CounterRate>,
    /// What the link moves at most in one direction, in bytes/s; 0 until [`Pcie::set_link`].
    most_bytes_s: u64,
    /// What was measured last, in bytes/s.
    measured: Option<PerDirection<Reading<u64>>>,
    /// Whether nothing but a measurement tells the rate, by the last look.
    wants_measuring: bool,
}

impl Pcie {
    /// Takes note of the fastest that the link can be, by generation and lanes.
    pub fn set_link(&mut self, generation: Option<u32>, lanes: Option<u32>) {
        let generation =
            generation.filter(|generation| *generation > 0).map(|generation| generation as usize - 1);
        let lane = generation.and_then(|at| LANE_BYTES_S.get(at)).or(LANE_BYTES_S.last());
        let lanes = lanes.filter(|lanes| *lanes > 0).map_or(MAX_LANES, u64::from);
        self.most_bytes_s = lane.copied().unwrap_or(u64::MAX).saturating_mul(lanes);
    }

    /// Whether it was measured, and that is all that is known.
    pub fn is_measured(&self) -> bool {
        self.wants_measuring && self.measured.is_some()
    }

    /// The rates in bytes/s since the last look, from `counted` bytes at `mono_ns`; `None` where the counter
    /// may have wrapped more than once.
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

    /// The rates in bytes/s by the counters, or by measuring if only that tells them and it is this GPU's turn.
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
        let most = self.most_bytes_s;
        PerDirection {
            tx: best(measured.tx, by_counter.tx, most),
            rx: best(measured.rx, by_counter.rx, most),
        }
    }

    /// Forgets what was measured: something better told it, or the GPU cannot be read.
    pub fn forget(&mut self) {
        (self.measured, self.wants_measuring) = (None, false);
    }
}

/// Asks NVML to measure.
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

/// What is shown of one direction: what was measured if that worked, otherwise what the counter says.
/// `counter` is `None` if it may have wrapped more than once.
fn best(measured: Reading<u64>, counter: Option<Reading<u64>>, most_bytes_s: u64) -> Reading<u64> {
    match (measured, counter) {
        // An eighth more: the window of the measurement is not exact.
        (Reading::Value(rate), _) if rate > most_bytes_s.saturating_add(most_bytes_s / 8) => {
            Reading::Failed(format!("NVML reported {rate} bytes/s, more than the link can carry").into())
        }
        (Reading::Unsupported, None) => Reading::Failed(WRAPS.into()),
        (Reading::Unsupported, Some(counted)) => counted,
        (measured, _) => measured,
    }
}

/// Whether a GPU may be measured at this look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Measure {
    /// It is its turn.
    Turn,
    /// If it was never measured before.
    First,
    /// It has to wait.
    Never,
}

/// Whose turn it is to be measured: a few GPUs at each look, one after the other.
#[derive(Debug, Default)]
pub struct MeasurementSchedule {
    next: usize,
    last_look: Option<Instant>,
    schedule: Vec<usize>,
    firsts: usize,
}

impl MeasurementSchedule {
    /// Begins a look at `all`, and deals out turns; the longer the last look is ago, the more.
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

    /// Whether the GPU at a position may be measured at this look.
    pub fn of(&self, position: usize) -> Measure {
        match () {
            () if self.schedule.contains(&position) => Measure::Turn,
            () if self.firsts < FIRST => Measure::First,
            () => Measure::Never,
        }
    }

    /// Takes note of a GPU that was measured for the first time.
    pub fn count_first(&mut self) {
        self.firsts += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fastest_that_a_link_can_be_follows_from_generation_and_lanes() {
        let most = |generation, lanes| {
            let mut pcie = Pcie::default();
            pcie.set_link(generation, lanes);
            pcie.most_bytes_s
        };
        assert_eq!(most(Some(4), Some(16)), 31_520_000_000);
        assert_eq!(most(Some(1), Some(1)), 250_000_000);
        // Of what is not known, the fastest is assumed.
        assert_eq!(most(None, None), most(Some(99), Some(16)));
        assert_eq!(most(None, None), most(Some(7), Some(16)));
    }

    #[test]
    fn what_was_measured_wins_and_no_counter_that_may_have_wrapped_is_shown() {
        let value = |rate| Reading::Value(rate);
        assert_eq!(best(value(6), None, 100), value(6));
        assert_eq!(best(Reading::Unsupported, None, 100), Reading::Failed(WRAPS.into()));
        assert_eq!(best(Reading::Unsupported, Some(value(3)), 100), value(3));
        assert_eq!(best(Reading::Unsupported, Some(Reading::Unsupported), 100), Reading::Unsupported);
        let denied = || Reading::Failed("insufficient permissions".into());
        assert_eq!(best(denied(), None, 100), denied());
        assert!(matches!(best(value(113), None, 100), Reading::Failed(_)));
    }

    #[test]
    fn every_gpu_has_its_turn_and_a_longer_interval_measures_more_of_them() {
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
    fn only_a_few_gpus_are_measured_for_the_first_time_at_one_look() {
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
