//! Deviation of each GPU from its peers, the GPUs of the same job and model, and detection of slow GPUs.
//!
//! The rules use the last two minutes in steps of ten seconds. They exclude steps in which the group pauses (a
//! checkpoint, an evaluation) or idles, because rank 0, which writes the checkpoint, is not slow. Temperature is not
//! compared: recorded jobs have GPUs that are 20 °C hotter than their peers and equally fast.

use crate::limits;
use crate::text;
use nodeglass_protocol::{Field as _, GpuField};
use std::ops::Range;

/// Length of a step in ms of the relay's clock.
pub const STEP_MS: u64 = 10_000;
/// Number of steps that are kept: ten minutes.
pub const STEPS: usize = 60;
/// Number of steps that are judged: two minutes.
const JUDGED_STEPS: usize = 12;
/// At least this many of them must be steps of work.
const MIN_STEPS: usize = 8;

/// Number of compared readings.
pub const COUNT: usize = 5;
/// The compared readings. Of several in which a GPU deviates, the first explains the others.
pub const FIELDS: [GpuField; COUNT] =
    [GpuField::SmClock, GpuField::Power, GpuField::SmActive, GpuField::Util, GpuField::MemUsed];
/// Positions in [`FIELDS`].
const CLOCK: usize = 0;
const POWER: usize = 1;
const SM_ACTIVE: usize = 2;
const UTIL: usize = 3;
const MEMORY: usize = 4;
/// From which deviation on a reading stands out, in %.
const LIMITS_PCT: [u32; COUNT] =
    [limits::CLOCK_PCT, limits::POWER_PCT, limits::ACTIVITY_PCT, limits::ACTIVITY_PCT, limits::MEMORY_PCT];
/// A median counts as at least this, in the unit of the reading: small values differ a lot in relation, and mean little.
const MIN_MEDIANS: [f32; COUNT] = [300.0, 50.0, 25.0, 50.0, (4_u64 << 30) as f32];

/// Means of the [`FIELDS`] in one step, in their units; NaN where unknown.
pub type Means = [f32; COUNT];
/// The means of a step without a sample.
pub const UNKNOWN: Means = [f32::NAN; COUNT];

/// Deviation of a GPU from the median of its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Deviation {
    /// The reading in which it deviates most.
    pub field: GpuField,
    /// Deviation in % of the median; reduced where the peers differ as well.
    pub percent: i32,
}

/// State of a GPU in one step in relation to its peers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StepDeviation {
    /// No sample.
    NoData,
    /// The group idled, or too few peers have data.
    NotCompared,
    /// The deviation.
    Value(Deviation),
}

/// From which deviations on a GPU is slow, in %; the settings may change them.
#[derive(Clone, Copy, Debug)]
pub struct SlowLimits {
    /// SM clock below the peers.
    pub clock_pct: u32,
    /// SM activity or utilisation below the peers.
    pub activity_pct: u32,
    /// Utilisation up to which a GPU does nothing, which is not slowness.
    pub idle_pct: u32,
}

impl Default for SlowLimits {
    fn default() -> Self {
        let (clock_pct, activity_pct) = (limits::CLOCK_PCT, limits::ACTIVITY_PCT);
        Self { clock_pct, activity_pct, idle_pct: limits::IDLE_PCT }
    }
}

/// A GPU that works less than its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Slow {
    /// Its position in the group.
    pub member: usize,
    /// The reading in which it is below them.
    pub field: GpuField,
    /// The deviation.
    pub away: Away,
    /// The first step of the run in which it is, if it is in the newest one, and whether the time before was not judged.
    pub since: Option<(usize, bool)>,
}

/// A reading of a GPU and of its peers, both as medians over the steps of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Away {
    /// Its own, in the unit of the reading.
    pub own: f32,
    /// That of the group.
    pub median: f32,
    /// The difference in % of the group's.
    pub percent: f32,
}

/// GPUs that are compared with each other.
#[derive(Debug, Default)]
pub struct Group {
    /// The means of each GPU in each step, oldest first.
    rows: Vec<Vec<Means>>,
    /// The median of the group in each step; NaN with fewer than [`limits::MIN_PEERS`] values.
    medians: Vec<Means>,
    /// The median distance from it.
    spreads: Vec<Means>,
}

impl Group {
    /// Compares GPUs, given the means of each in the same steps, oldest first.
    pub fn new(rows: Vec<Vec<Means>>) -> Self {
        let mut group = Self::default();
        group.advance(0, 0, rows);
        group
    }

    /// Drops the `gone` oldest steps, and replaces those from `first` on by others.
    pub fn advance(&mut self, gone: usize, first: usize, newer: Vec<Vec<Means>>) {
        self.rows.resize(newer.len(), Vec::new());
        for (row, newer) in self.rows.iter_mut().zip(newer) {
            shift(row, gone, first);
            row.extend(newer);
        }
        shift(&mut self.medians, gone, first);
        shift(&mut self.spreads, gone, first);
        for step in self.medians.len()..self.rows.first().map_or(0, Vec::len) {
            let (medians, spreads) = self.step(step);
            self.medians.push(medians);
            self.spreads.push(spreads);
        }
    }

    /// Returns the medians of a step, and the median distances from them.
    fn step(&self, step: usize) -> (Means, Means) {
        let (mut medians, mut spreads) = (UNKNOWN, UNKNOWN);
        for slot in 0..COUNT {
            let known = || self.rows.iter().filter_map(|row| known(row[step][slot]));
            if known().count() >= limits::MIN_PEERS
                && let Some(middle) = median(known())
            {
                medians[slot] = middle;
                spreads[slot] = median(known().map(|value| (value - middle).abs())).unwrap_or(0.0);
            }
        }
        (medians, spreads)
    }

    /// Returns the steps that are judged.
    fn judged(&self) -> Range<usize> {
        self.medians.len().saturating_sub(JUDGED_STEPS)..self.medians.len()
    }

    /// Returns whether most GPUs work in a step: they are busy, and draw power as in other steps `around` it.
    fn works(&self, step: usize, around: Range<usize>) -> bool {
        self.medians[step][UTIL] >= limits::WORKING_PCT && !self.waits(step, around)
    }

    /// Returns whether most GPUs draw much less than in other steps.
    fn waits(&self, step: usize, around: Range<usize>) -> bool {
        let most_w = self.medians[around].iter().map(|medians| medians[POWER]).fold(0.0, f32::max);
        self.medians[step][POWER] < most_w * limits::WORKING_POWER
    }

    /// Returns the judged steps in which most GPUs work, oldest first; `None` of too few.
    fn worked(&self) -> Option<Vec<usize>> {
        let steps: Vec<usize> = self.judged().filter(|step| self.works(*step, self.judged())).collect();
        (steps.len() >= MIN_STEPS).then_some(steps)
    }

    /// Returns whether most GPUs were busy in a step of the last ten minutes.
    pub fn has_worked(&self) -> bool {
        self.medians.iter().any(|medians| medians[UTIL] >= limits::WORKING_PCT)
    }

    /// Returns a reading of a GPU and of its peers; `None` if it is unknown in half of the steps of work, or there
    /// are too few such steps.
    pub fn away(&self, member: usize, field: GpuField) -> Option<Away> {
        self.away_in(member, FIELDS.iter().position(|known| *known == field)?, &self.worked()?)
    }

    fn away_in(&self, member: usize, slot: usize, steps: &[usize]) -> Option<Away> {
        let row = self.rows.get(member)?;
        let pairs =
            || steps.iter().filter_map(|step| known(row[*step][slot]).zip(known(self.medians[*step][slot])));
        if pairs().count() * 2 < steps.len() {
            return None;
        }
        let (own, middle) = (median(pairs().map(|pair| pair.0))?, median(pairs().map(|pair| pair.1))?);
        Some(Away { own, median: middle, percent: 100.0 * (own - middle) / middle.max(MIN_MEDIANS[slot]) })
    }

    /// Returns how far each GPU is from its peers; `None` if it is not compared, or the group does not work.
    pub fn deviations(&self) -> Vec<Option<Deviation>> {
        let Some(steps) = self.worked() else { return vec![None; self.rows.len()] };
        let has_power = steps.iter().any(|step| !self.medians[*step][POWER].is_nan());
        let lasting = |member| {
            std::array::from_fn(|slot| match is_shown(slot, has_power) {
                true => self.away_in(member, slot, &steps).map_or(f32::NAN, |away| away.percent),
                false => f32::NAN,
            })
        };
        let lasting: Vec<Means> = (0..self.rows.len()).map(lasting).collect();
        let spreads: Means = std::array::from_fn(|slot| {
            median(lasting.iter().filter_map(|row| known(row[slot]).map(f32::abs))).unwrap_or(0.0)
        });
        lasting.iter().map(|row| strongest(row, &spreads)).collect()
    }

    /// Returns how far a GPU is from its peers in a step.
    pub fn in_step(&self, member: usize, step: usize) -> StepDeviation {
        let Some(row) = self.rows.get(member).and_then(|row| row.get(step)) else {
            return StepDeviation::NoData;
        };
        let medians = &self.medians[step];
        let last = self.medians.len();
        let waits = |step: usize| {
            self.waits(step, step.saturating_sub(JUDGED_STEPS - 1)..(step + JUDGED_STEPS).min(last))
        };
        // Where a pause begins and ends, GPUs are in it at different times: those steps belong to it.
        let pauses = (step.saturating_sub(1)..(step + 2).min(last)).any(waits);
        if medians.iter().all(|median| median.is_nan()) || !pauses && medians[UTIL] < limits::WORKING_PCT {
            return StepDeviation::NotCompared;
        }
        if pauses && row.iter().any(|value| !value.is_nan()) {
            return StepDeviation::Value(Deviation { field: GpuField::Power, percent: 0 });
        }
        let of_median = |slot: usize, value: f32| 100.0 * value / medians[slot].max(MIN_MEDIANS[slot]);
        let away = std::array::from_fn(|slot| match is_shown(slot, !medians[POWER].is_nan()) {
            true => of_median(slot, row[slot] - medians[slot]),
            false => f32::NAN,
        });
        let spreads = std::array::from_fn(|slot| of_median(slot, self.spreads[step][slot]));
        strongest(&away, &spreads).map_or(StepDeviation::NoData, StepDeviation::Value)
    }

    /// Returns the slow GPUs: below their peers in four fifths of the steps of work, and outside of the spread of
    /// their peers. A GPU that is slow in several readings is listed once, for the first of clock, SM activity and
    /// utilisation. `nodes` has the node of each GPU, grouped by node. `None` while the group does not work.
    pub fn slow<N: PartialEq>(&self, nodes: &[N], limits: &SlowLimits) -> Option<Vec<Slow>> {
        let worked = self.worked()?;
        let in_stage = self.in_stages(nodes, &worked);
        let mut found: Vec<Slow> = Vec::new();
        for slot in [CLOCK, SM_ACTIVE, UTIL] {
            let mut slow = self.slow_in(slot, &worked, limits);
            // The work of a stage differs; its clock is not lower for that.
            slow.retain(|slow| slot == CLOCK || !in_stage[slow.member]);
            if slow.len() <= (self.rows.len() / limits::UNEQUAL_PARTS).max(1) {
                slow.retain(|slow| found.iter().all(|known| known.member != slow.member));
                found.append(&mut slow);
            }
        }
        Some(found)
    }

    /// Returns the GPUs that are below the others in one reading.
    fn slow_in(&self, slot: usize, worked: &[usize], limits: &SlowLimits) -> Vec<Slow> {
        let limit_pct = if slot == CLOCK { limits.clock_pct } else { limits.activity_pct };
        let count = |step: usize| self.rows.iter().filter(|row| !row[step][slot].is_nan()).count();
        // A step of which a part is missing compares nothing.
        let is_compared = |step: &&usize| count(**step) * 10 >= self.rows.len() * 9;
        let steps: Vec<usize> = worked.iter().filter(is_compared).copied().collect();
        if steps.len() < MIN_STEPS {
            return Vec::new();
        }
        let is_below = |row: &[Means], step: usize| {
            let (value, middle) = (row[step][slot], self.medians[step][slot]);
            let least = limit_pct as f32 / 100.0 * middle.max(MIN_MEDIANS[slot]);
            // An idle GPU is another finding.
            let is_idle = row[step][UTIL] <= limits.idle_pct as f32;
            !is_idle && middle - value > least.max(limits::SPREADS * self.spreads[step][slot])
        };
        let judge = |(member, row): (usize, &Vec<Means>)| {
            let below: Vec<bool> = steps.iter().map(|step| is_below(row, *step)).collect();
            let is_slow = below.iter().filter(|below| **below).count() * 5 >= steps.len() * 4;
            let away = is_slow.then(|| self.away_in(member, slot, &steps)).flatten()?;
            let run = below.iter().rev().take_while(|below| **below).count();
            let since = (run > 0).then(|| (steps[steps.len() - run], run == steps.len()));
            Some(Slow { member, field: FIELDS[slot], away, since })
        };
        self.rows.iter().enumerate().filter_map(judge).collect()
    }

    /// Returns for each GPU whether its node is a stage of a pipeline: all its GPUs have the same amount of memory more, or
    /// less, in use than the others. A node that is merely slow has as much in use as the others.
    fn in_stages<N: PartialEq>(&self, nodes: &[N], worked: &[usize]) -> Vec<bool> {
        let mut in_stages = Vec::with_capacity(nodes.len());
        for node in nodes.chunk_by(|one, next| one == next) {
            let members = in_stages.len()..in_stages.len() + node.len();
            let memory = members
                .map(|member| self.away_in(member, MEMORY, worked).map_or(f32::NAN, |away| away.percent));
            in_stages.resize(in_stages.len() + node.len(), is_stage(&memory.collect::<Vec<_>>()));
        }
        in_stages
    }
}

fn is_stage(memory: &[f32]) -> bool {
    let is_known = memory.len() > 1 && memory.iter().all(|away| !away.is_nan());
    let (least, most) =
        (memory.iter().copied().fold(f32::MAX, f32::min), memory.iter().copied().fold(f32::MIN, f32::max));
    let is_one_side = least >= limits::STAGE_MEMORY_PCT || most <= -limits::STAGE_MEMORY_PCT;
    is_known && is_one_side && most - least <= limits::STAGE_ALIKE_PCT
}

/// Returns whether a reading is shown as a deviation. Without the power, a checkpoint of rank 0 cannot be distinguished from
/// work that it does not do.
fn is_shown(slot: usize, has_power: bool) -> bool {
    has_power || !matches!(slot, SM_ACTIVE | UTIL)
}

/// Returns the reading in which a GPU is farthest from the median in relation to the limits, and that deviation, reduced where
/// the limit is raised because all GPUs differ.
fn strongest(away: &Means, spreads: &Means) -> Option<Deviation> {
    let limit = |slot: usize| (limits::SPREADS * spreads[slot]).max(LIMITS_PCT[slot] as f32);
    let ratio = |slot: usize| away[slot] / limit(slot);
    let known = (0..COUNT).filter(|slot| !away[*slot].is_nan());
    // The first of equal ones, so that it does not change without need.
    let slot = known.reduce(|best, slot| if ratio(slot).abs() > ratio(best).abs() { slot } else { best })?;
    let percent = (ratio(slot) * LIMITS_PCT[slot] as f32).clamp(-100.0, 100.0).round() as i32;
    Some(Deviation { field: FIELDS[slot], percent })
}

impl Deviation {
    /// Returns the reading and the deviation from the median: `SM clock −45 %`.
    pub fn label(&self) -> String {
        let sign = if self.percent < 0 { "−" } else { "+" };
        let amount = text::grouped(self.percent.unsigned_abs().into());
        format!("{} {sign}{amount} %", self.field.metric().title)
    }
}

/// Returns the median, of an even number of values the mean of the two in the middle: between two clusters of equal size, it
/// is as far from the one as from the other. `None` of none.
pub fn median(values: impl Iterator<Item = f32>) -> Option<f32> {
    median_of(&mut values.collect::<Vec<_>>())
}

/// Returns the same as [`median`]; reorders the values.
pub fn median_of(values: &mut [f32]) -> Option<f32> {
    if values.is_empty() {
        return None;
    }
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(values.len() / 2, f32::total_cmp);
    let upper = *upper;
    Some(if is_even { (upper + below.iter().copied().fold(f32::MIN, f32::max)) / 2.0 } else { upper })
}

fn known(value: f32) -> Option<f32> {
    (!value.is_nan()).then_some(value)
}

fn shift<T>(row: &mut Vec<T>, gone: usize, first: usize) {
    row.drain(..gone.min(row.len()));
    row.truncate(first);
}

#[cfg(test)]
mod tests;
