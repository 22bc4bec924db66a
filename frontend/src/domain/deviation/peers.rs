//! Compares the GPUs of one group step by step, and judges which of them are outliers now.

use super::{CLOCK, COUNT, MEMORY, POWER, QUANTITIES, SM_ACTIVE, UTIL};
use crate::chart::{Point, Window, WindowCache};
use crate::domain::metric::Metric;

/// Fewer GPUs than this are not compared: of three, two that agree may be the exception.
pub const MIN_PEERS: usize = 4;
/// Steps that a deviation is judged over: a minute.
const JUDGED_STEPS: usize = 20;
/// Steps among which those are searched: pauses are skipped.
const SEARCHED_STEPS: usize = 60;
/// Fewer steps than this are no basis for a judgement.
const MIN_STEPS: usize = 10;
/// An outlier deviates this many times as far as the median GPU: where all differ, none stands out.
const SPREADS: u16 = 4;
/// An outlier stays one until its deviation falls below this share of the limit, in %.
const STAYS_PCT: u16 = 80;
/// Steps without the deviation that do not end it.
const TOLERATED_STEPS: usize = 3;
/// Median utilisation in % below which a group idles.
const IDLE_UTIL_PCT: f32 = 10.0;
/// Share of the highest median power below which a group pauses: ranks that wait draw a quarter.
const PAUSE_POWER: f32 = 0.5;
/// Utilisation in % up to which a GPU counts as idle while its peers work.
const UNUSED_UTIL_PCT: f32 = 5.0;
/// Deviation of the memory in use, in %, from which the GPUs of a node hold another part of the model than their peers,
/// if all of them have it.
const STAGE_MEMORY_PCT: u8 = 10;
/// How far the GPUs of a stage may differ in that deviation, in percentage points.
const STAGE_ALIKE_PCT: u8 = 5;
/// Marks a deviation that is not known.
const UNKNOWN: i8 = i8::MIN;

/// How far a GPU is from the median of its peers.
#[derive(Clone, Debug, PartialEq)]
pub struct Deviation {
    /// The metric in which it deviates most.
    pub metric: Metric,
    /// Deviation in % of the median; smaller than measured where the peers differ as well, unless it
    /// is an outlier.
    pub percent: i32,
    /// What makes it an outlier, if it is one.
    pub outlier: Option<Outlier>,
}

/// A deviation that stands out and lasts.
#[derive(Clone, Debug, PartialEq)]
pub struct Outlier {
    /// Deviation from the median, in the metric's unit.
    pub away: f32,
    /// How long it has lasted, in ms.
    pub lasts_ms: u64,
    /// Whether the time before is unknown.
    pub or_longer: bool,
}

/// What a GPU was in one step in relation to its peers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum StepDeviation {
    /// No sample.
    NoData,
    /// The group idled, or too few peers have data.
    NotCompared,
    /// The metric in which it deviated most, and by how much in % of the median.
    Value(Metric, i8),
}

/// GPUs that are compared with each other, on the grid of a [`Window`].
#[derive(Default)]
pub struct PeerGroup {
    cache: WindowCache,
    window: Option<Window>,
    steps: Vec<Step>,
    /// Deviations of each GPU in each step, in % of the median.
    rows: Vec<Vec<[i8; COUNT]>>,
    deviations: Vec<Option<Deviation>>,
}

/// The group in one step.
#[derive(Clone, Copy)]
struct Step {
    /// Median of each quantity in its unit; `None` with fewer than [`MIN_PEERS`] values.
    medians: [Option<f32>; COUNT],
    /// Median of the absolute deviations, in % of the median.
    spreads: [u8; COUNT],
}

/// What a group did in a step.
#[derive(Clone, Copy, PartialEq)]
enum Activity {
    Unknown,
    Idle,
    /// All wait, as for a checkpoint.
    Pause,
    Work,
}

impl PeerGroup {
    /// Advances to a window, recomputing only the newest steps unless `stamp` changed, and judges each
    /// GPU, of which `nodes` names the node. `read` returns the values of a GPU's metric from a step on, in the metric's unit.
    /// Returns whether anything is new.
    pub fn advance(
        &mut self,
        window: Window,
        stamp: u64,
        nodes: &[usize],
        is_over: bool,
        mut read: impl FnMut(usize, Metric, usize) -> Vec<Point>,
    ) -> bool {
        let Some((gone, first)) = self.cache.advance(window, stamp) else { return false };
        self.window = Some(window);
        let count = nodes.len();
        if first == 0 {
            (self.steps, self.rows) = (Vec::new(), vec![Vec::new(); count]);
            self.deviations = vec![None; count];
        }
        let empty = Step { medians: [None; COUNT], spreads: [0; COUNT] };
        shift(&mut self.steps, gone, first, window.steps(), empty);
        for row in &mut self.rows {
            shift(row, gone, first, window.steps(), [UNKNOWN; COUNT]);
        }
        for (at, quantity) in QUANTITIES.iter().enumerate() {
            let values: Vec<Vec<Point>> = (0..count).map(|gpu| read(gpu, quantity.metric, first)).collect();
            (first..window.steps()).for_each(|step| self.compare(at, step, first, &values));
        }
        self.judge(&window, nodes, is_over, &mut read);
        true
    }

    /// Returns how far a GPU is from its peers; `None` if it is not compared.
    pub fn deviation(&self, gpu: usize) -> Option<&Deviation> {
        self.deviations.get(gpu)?.as_ref()
    }

    /// Returns how far a GPU was from its peers at a moment.
    pub fn at(&self, gpu: usize, at_ms: u64) -> StepDeviation {
        let step = self.window.and_then(|window| window.step_at(at_ms));
        step.map_or(StepDeviation::NoData, |step| self.in_step(gpu, step, self.peak_power()))
    }

    /// Returns a GPU's deviations in % on the grid of another window, from a step on.
    pub fn points(&self, gpu: usize, other: &Window, first: usize) -> Vec<Point> {
        let (peak, last) = (self.peak_power(), self.steps.len().saturating_sub(1));
        // Several steps of the other window may lie within one of its own.
        let mut before = (usize::MAX, Point::Gap);
        let mut point = |step: usize| {
            let at_ms = other.at_ms(step) + other.step_ms() / 2;
            let own = self.window?;
            // The newest step is not complete before three seconds have passed.
            let newest = at_ms >= own.end_ms() && at_ms < own.end_ms() + 2 * own.step_ms();
            let step = if newest { last } else { own.step_at(at_ms)? };
            if before.0 != step {
                let point = match self.in_step(gpu, step, peak) {
                    StepDeviation::NoData => Point::Gap,
                    StepDeviation::NotCompared => Point::Unsupported,
                    StepDeviation::Value(_, percent) => Point::Value(percent.unsigned_abs().into()),
                };
                before = (step, point);
            }
            Some(before.1)
        };
        (first..other.steps()).map(|step| point(step).unwrap_or_default()).collect()
    }

    /// Compares one quantity of all GPUs in one step; `values` begin at the step `first`.
    fn compare(&mut self, at: usize, step: usize, first: usize, values: &[Vec<Point>]) {
        let value = |row: &Vec<Point>| row.get(step - first).and_then(|point| point.value());
        let mut known: Vec<f32> = values.iter().filter_map(value).collect();
        self.steps[step].medians[at] = None;
        if known.len() < MIN_PEERS {
            self.rows.iter_mut().for_each(|row| row[step][at] = UNKNOWN);
            return;
        }
        let median = median(&mut known);
        self.steps[step].medians[at] = Some(median);
        if matches!(at, SM_ACTIVE | UTIL) && self.steps[step].medians[POWER].is_none() {
            // Only the power distinguishes the rank that writes a checkpoint from an idle one.
            self.rows.iter_mut().for_each(|row| row[step][at] = UNKNOWN);
            return;
        }
        let reference = median.max(QUANTITIES[at].min_median);
        let mut distances = Vec::with_capacity(known.len());
        for (row, value) in self.rows.iter_mut().zip(values.iter().map(value)) {
            let away = value.map(|value| ((value - median) / reference * 100.0).clamp(-100.0, 100.0));
            row[step][at] = away.map_or(UNKNOWN, |away| away.round() as i8);
            distances.extend(away.map(f32::abs));
        }
        self.steps[step].spreads[at] = spread(&mut distances);
    }

    /// Returns the highest median power, that of full work.
    fn peak_power(&self) -> f32 {
        self.steps.iter().filter_map(|step| step.medians[POWER]).fold(0.0, f32::max)
    }

    /// Returns what the group did in a step. Where a pause begins and ends, GPUs are in it at different
    /// times: those steps belong to it.
    fn activity(&self, step: usize, peak: f32) -> Activity {
        let pauses =
            |step: usize| step < self.steps.len() && self.own_activity(step, peak) == Activity::Pause;
        match self.own_activity(step, peak) {
            Activity::Work if pauses(step + 1) || step > 0 && pauses(step - 1) => Activity::Pause,
            own => own,
        }
    }

    fn own_activity(&self, step: usize, peak: f32) -> Activity {
        let medians = &self.steps[step].medians;
        match (medians[UTIL], medians[POWER]) {
            (Some(util), _) if util < IDLE_UTIL_PCT => Activity::Idle,
            (_, Some(power)) if power < peak * PAUSE_POWER => Activity::Pause,
            _ if medians.iter().any(Option::is_some) => Activity::Work,
            _ => Activity::Unknown,
        }
    }

    fn in_step(&self, gpu: usize, step: usize, peak: f32) -> StepDeviation {
        let Some(row) = self.rows.get(gpu).filter(|row| step < row.len()) else {
            return StepDeviation::NoData;
        };
        let is_known = row[step].iter().any(|away| *away != UNKNOWN);
        match self.activity(step, peak) {
            Activity::Unknown | Activity::Idle => return StepDeviation::NotCompared,
            _ if !is_known => return StepDeviation::NoData,
            Activity::Pause => return StepDeviation::Value(Metric::POWER, 0),
            Activity::Work => {}
        }
        let limits = std::array::from_fn(|at| limit(at, self.steps[step].spreads[at]));
        // Of three steps, so that the heat map does not show every short difference.
        let recent = lasting(row, &[step, step.saturating_sub(1), step.saturating_sub(2)]);
        match strongest(&recent, &limits) {
            Some((at, percent)) => StepDeviation::Value(QUANTITIES[at].metric, percent),
            None => StepDeviation::NoData,
        }
    }

    /// Returns the newest steps to judge by, newest first: those of work; of a pause only if it lasts.
    fn judged_steps(&self, is_over: bool, peak: f32) -> Vec<usize> {
        let has_value = |step: &usize| self.steps[*step].medians.iter().any(Option::is_some);
        let newest = (0..self.steps.len()).rev().find(has_value).filter(|_| is_over);
        let end = newest.map_or(self.steps.len(), |newest| newest + 1);
        let of = |wanted: &[Activity]| -> Vec<usize> {
            let searched = (end.saturating_sub(SEARCHED_STEPS)..end).rev();
            searched.filter(|step| wanted.contains(&self.activity(*step, peak))).take(JUDGED_STEPS).collect()
        };
        [of(&[Activity::Work]), of(&[Activity::Work, Activity::Pause])]
            .into_iter()
            .find(|steps| steps.len() >= MIN_STEPS)
            .unwrap_or_default()
    }

    fn judge(
        &mut self,
        window: &Window,
        nodes: &[usize],
        is_over: bool,
        read: &mut impl FnMut(usize, Metric, usize) -> Vec<Point>,
    ) {
        let peak = self.peak_power();
        let steps = self.judged_steps(is_over, peak);
        if steps.is_empty() {
            self.deviations.fill(None);
            return;
        }
        let lasting: Vec<[i8; COUNT]> = self.rows.iter().map(|row| lasting(row, &steps)).collect();
        let limits: [u8; COUNT] = std::array::from_fn(|at| {
            let known = lasting.iter().map(|row| row[at]).filter(|away| *away != UNKNOWN);
            limit(at, spread(&mut known.map(|away| f32::from(away).abs()).collect::<Vec<_>>()))
        });
        let sides: [[bool; 2]; COUNT] = std::array::from_fn(|at| exceptional_sides(&lasting, at, limits[at]));
        let in_stage = in_stages(&lasting, nodes);
        let before = std::mem::take(&mut self.deviations);
        let verdict = |gpu: usize| {
            let row = &lasting[gpu];
            let was = before.get(gpu).and_then(Option::as_ref).filter(|was| was.outlier.is_some());
            let stands_out = |at: usize| {
                let is_same = was.is_some_and(|was| was.metric == QUANTITIES[at].metric);
                let factor = if is_same { STAYS_PCT } else { 100 };
                // The work of a stage differs; its clock is not lower for that.
                let is_usual = in_stage[gpu] && !(at == CLOCK && row[at] < 0);
                row[at] != UNKNOWN
                    && !is_usual
                    && sides[at][usize::from(row[at] > 0)]
                    && u16::from(row[at].unsigned_abs()) * 100 >= u16::from(limits[at]) * factor
            };
            let is_unused = stands_out(UTIL) && row[UTIL] < 0 && self.is_unused(gpu, &steps);
            let cause = if is_unused { Some(UTIL) } else { (0..COUNT).find(|at| stands_out(*at)) };
            match cause {
                Some(at) => self.outlier(gpu, at, limits[at], window, &steps, peak, read),
                None => {
                    let (at, percent) = strongest(row, &limits)?;
                    let metric = QUANTITIES[at].metric;
                    Some(Deviation { metric, percent: percent.into(), outlier: None })
                }
            }
        };
        self.deviations = (0..self.rows.len()).map(verdict).collect();
    }

    /// Returns whether a GPU does nothing while its peers work.
    fn is_unused(&self, gpu: usize, steps: &[usize]) -> bool {
        let is_unused = |step: &&usize| {
            let (median, away) = (self.steps[**step].medians[UTIL], self.rows[gpu][**step][UTIL]);
            let reference = median.map(|median| median.max(QUANTITIES[UTIL].min_median));
            let util = median.zip(reference).map(|(median, of)| median + of * f32::from(away) / 100.0);
            away != UNKNOWN && util.is_some_and(|util| util <= UNUSED_UTIL_PCT)
        };
        steps.iter().filter(is_unused).count() * 2 > steps.len()
    }

    /// Describes an outlier: how far it is from the median, and for how long.
    #[expect(clippy::too_many_arguments, reason = "all of it is the context of one judgement")]
    fn outlier(
        &self,
        gpu: usize,
        at: usize,
        limit: u8,
        window: &Window,
        steps: &[usize],
        peak: f32,
        read: &mut impl FnMut(usize, Metric, usize) -> Vec<Point>,
    ) -> Option<Deviation> {
        let metric = QUANTITIES[at].metric;
        let (newest, oldest) = (*steps.first()?, *steps.last()?);
        let values = read(gpu, metric, oldest);
        let pair = |step: &usize| Some((values.get(step - oldest)?.value()?, self.steps[*step].medians[at]?));
        let (mut away, mut medians): (Vec<f32>, Vec<f32>) =
            steps.iter().filter_map(pair).map(|(value, median)| (value - median, median)).unzip();
        if away.is_empty() {
            return None;
        }
        let (away, reference) = (median(&mut away), median(&mut medians).max(QUANTITIES[at].min_median));
        let (start, or_longer) = self.start(gpu, at, limit, away < 0.0, newest, peak);
        Some(Deviation {
            metric,
            percent: (away / reference * 100.0).round() as i32,
            outlier: Some(Outlier {
                away,
                lasts_ms: window.at_ms(newest + 1).saturating_sub(window.at_ms(start)),
                or_longer,
            }),
        })
    }

    /// Returns the step in which a deviation began, and whether the time before is unknown.
    fn start(
        &self,
        gpu: usize,
        at: usize,
        limit: u8,
        is_below: bool,
        newest: usize,
        peak: f32,
    ) -> (usize, bool) {
        let (mut start, mut without) = (newest, 0);
        for step in (0..=newest).rev() {
            let away = self.rows[gpu][step][at];
            if away == UNKNOWN || self.activity(step, peak) != Activity::Work {
                continue;
            }
            if (away < 0) == is_below && away.unsigned_abs() >= limit / 2 {
                (start, without) = (step, 0);
            } else {
                without += 1;
                if without > TOLERATED_STEPS {
                    return (start, false);
                }
            }
        }
        (start, without == 0)
    }
}

/// Drops `gone` items at the left, keeps those before `first`, and fills up to `count`.
fn shift<T: Clone>(row: &mut Vec<T>, gone: usize, first: usize, count: usize, filler: T) {
    row.drain(..gone.min(row.len()));
    row.truncate(first);
    row.resize(count, filler);
}

/// Returns the median, of an even number of values the mean of the two in the middle; reorders them.
/// Between two clusters of equal size, it is as far from the one as from the other.
fn median(values: &mut [f32]) -> f32 {
    let middle = values.len() / 2;
    let is_even = values.len().is_multiple_of(2);
    let (below, upper, _) = values.select_nth_unstable_by(middle, f32::total_cmp);
    let upper = *upper;
    if is_even { (upper + below.iter().copied().fold(f32::MIN, f32::max)) / 2.0 } else { upper }
}

/// Returns the median of a GPU's deviations over some steps, if it has values in half of them.
fn lasting(row: &[[i8; COUNT]], steps: &[usize]) -> [i8; COUNT] {
    std::array::from_fn(|at| {
        // Sorted by insertion: of so few values, that is fast.
        let mut sorted = [UNKNOWN; JUDGED_STEPS];
        let mut count = 0;
        for away in steps.iter().map(|step| row[*step][at]).filter(|away| *away != UNKNOWN) {
            let mut place = count;
            while place > 0 && sorted[place - 1] > away {
                sorted[place] = sorted[place - 1];
                place -= 1;
            }
            sorted[place] = away;
            count += 1;
        }
        if count * 2 < steps.len() { UNKNOWN } else { sorted[count.saturating_sub(1) / 2] }
    })
}

/// Returns the median distance of all GPUs, in % of the median; the upper of the two in the middle, as
/// of four GPUs with loads of their own two may be close to each other.
fn spread(distances: &mut [f32]) -> u8 {
    match distances.len() / 2 {
        0 => 0,
        middle => distances.select_nth_unstable_by(middle, f32::total_cmp).1.round() as u8,
    }
}

/// Returns the deviation that makes a GPU an outlier, in %, given how far GPUs usually are.
fn limit(at: usize, spread: u8) -> u8 {
    let usual = u16::from(spread) * SPREADS;
    usual.clamp(u16::from(QUANTITIES[at].limit_pct.unsigned_abs()), 255) as u8
}

/// Returns for the sides below and above whether few enough GPUs deviate there: more than a quarter
/// of the group is another stage of a pipeline rather than an exception. Two slow nodes of eight are
/// still outliers.
fn exceptional_sides(lasting: &[[i8; COUNT]], at: usize, limit: u8) -> [bool; 2] {
    let known = || lasting.iter().map(|row| row[at]).filter(|away| *away != UNKNOWN);
    let count = known().count();
    let side = |is_above: bool| {
        known().filter(|away| (*away > 0) == is_above && away.unsigned_abs() >= limit).count()
    };
    [false, true].map(|is_above| count >= MIN_PEERS && side(is_above) <= (count / 4).max(1))
}

/// Returns for each GPU whether its node is a stage of a pipeline: all its GPUs have the same amount of memory more, or
/// less, in use than the others. Ranks that do the same work hold the same parameters, so that a node that is merely
/// slow has as much in use as the others.
fn in_stages(lasting: &[[i8; COUNT]], nodes: &[usize]) -> Vec<bool> {
    let mut rest = lasting;
    let mut in_stages = Vec::with_capacity(nodes.len());
    // The GPUs of a node follow each other.
    for node in nodes.chunk_by(|one, next| one == next) {
        let (here, after) = rest.split_at(node.len());
        rest = after;
        in_stages.resize(in_stages.len() + here.len(), is_stage(here));
    }
    in_stages
}

fn is_stage(node: &[[i8; COUNT]]) -> bool {
    let memory = || node.iter().map(|row| row[MEMORY]);
    let (Some(least), Some(most)) = (memory().min(), memory().max()) else { return false };
    let closest = least.unsigned_abs().min(most.unsigned_abs());
    node.len() > 1
        && least != UNKNOWN
        && least.signum() == most.signum()
        && closest >= STAGE_MEMORY_PCT
        && most.abs_diff(least) <= STAGE_ALIKE_PCT
}

/// Returns the quantity in which a GPU is farthest from the median in relation to the limits, and
/// that deviation, reduced where the limit is raised because all GPUs differ.
fn strongest(row: &[i8; COUNT], limits: &[u8; COUNT]) -> Option<(usize, i8)> {
    let reduced = |at: usize| {
        let share = f32::from(QUANTITIES[at].limit_pct) / f32::from(limits[at]);
        (f32::from(row[at]) * share).round() as i8
    };
    let ratio = |at: &usize| f32::from(row[*at].unsigned_abs()) / f32::from(limits[*at]);
    let known = (0..COUNT).filter(|at| row[*at] != UNKNOWN);
    // The first of equal ones, so that the cause does not change without need.
    let at = known.reduce(|best, at| if ratio(&at) > ratio(&best) { at } else { best })?;
    Some((at, reduced(at)))
}

#[cfg(test)]
mod tests;
