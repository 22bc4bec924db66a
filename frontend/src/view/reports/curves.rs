//! The readings of a job over the time that is compared, loaded from the relay's history.

use crate::describe::bytes;
use crate::describe::report::run;
use crate::domain::compared::{Compared, Part};
use crate::state::page::Page;
use nodeglass_protocol::Text;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::range::{RangeQuery, Summaries, Summary};
use nodeglass_protocol::report::Report;
use nodeglass_protocol::{Cell, Field as _, GpuField};
use nodeglass_rules::number::precise;
use std::ops::Range;

/// The fields that can be compared; the first one is shown first.
pub const FIELDS: [(GpuField, &str); 4] = [
    (GpuField::Util, "Utilisation"),
    (GpuField::Power, "Power"),
    (GpuField::SmClock, "SM clock"),
    (GpuField::MemUsed, "Memory"),
];
/// Maximum number of slots of a line.
const SLOTS: u64 = 300;
/// The text in place of lines that the relay did not send.
const NO_RESPONSE: &str = "The relay did not send the readings.";
/// The part of a time without readings, at its start or its end, above which a graph leaves it out.
const MAX_BLANK: f64 = 0.1;

/// The readings of a job over a time, by the fields in [`FIELDS`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Curves {
    /// The mean over its GPUs in each slot; empty if the relay keeps none.
    pub lines: [Vec<Option<f32>>; FIELDS.len()],
    /// When the first slot begins, in ms since the start of the time; negative if it starts before it.
    pub first_ms: i64,
    /// Length of a slot in ms.
    pub slot_ms: u64,
    /// The summaries as figures.
    pub summaries: [Option<FieldSummary>; FIELDS.len()],
    /// Reason for which readings of a long-term storage are missing.
    pub problem: Option<Text>,
}

/// A field over the whole time that is compared.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FieldSummary {
    /// Mean over time and GPUs.
    pub mean: f32,
    /// The lowest and the highest value of any GPU; `None` if the history has none.
    pub extremes: Option<(f32, f32)>,
}

impl Curves {
    /// Returns the mean of a field of [`FIELDS`] in the slot at `at_ms` after the start; `None` if unknown.
    pub fn value_at(&self, field: usize, at_ms: u64) -> Option<f32> {
        let since_first_ms = u64::try_from(at_ms.cast_signed().checked_sub(self.first_ms)?).ok()?;
        let slot = usize::try_from(since_first_ms / self.slot_ms.max(1)).ok()?;
        *self.lines.get(field)?.get(slot)?
    }

    /// The first and the last time at which a field of [`FIELDS`] is known, in ms after the start.
    pub fn known_ms(&self, field: usize) -> Option<(u64, u64)> {
        let line = self.lines.get(field)?;
        let (first, last) =
            line.iter().position(Option::is_some).zip(line.iter().rposition(Option::is_some))?;
        // A little within the slots, so that a time that is rounded stays there.
        let margin_ms = (self.slot_ms / 20).max(1).cast_signed();
        let edge_ms = |slot: usize| self.first_ms + (slot as u64 * self.slot_ms).cast_signed();
        let (from_ms, to_ms) = (edge_ms(first) + margin_ms, edge_ms(last + 1) - margin_ms);
        Some((from_ms.max(0).unsigned_abs(), to_ms.max(0).unsigned_abs()))
    }

    /// Returns the part of `time`, whose readings these are, that a graph of them shows: less than all of it if it
    /// begins or ends with a long time that nobody observed.
    pub fn shown_of(&self, time: Part) -> Part {
        let known = (0..FIELDS.len()).filter_map(|field| self.known_ms(field));
        let Some((first_ms, last_ms)) = known.reduce(|all, one| (all.0.min(one.0), all.1.max(one.1))) else {
            return time;
        };
        let max_blank_s = (time.length_s() as f64 * MAX_BLANK) as i64;
        let seconds = |ms: u64| (ms / 1_000).cast_signed();
        let (first_s, last_s) = (time.from_s + seconds(first_ms), time.from_s + seconds(last_ms) + 1);
        let from_s = if first_s - time.from_s > max_blank_s { first_s } else { time.from_s };
        let to_s = if time.to_s - last_s > max_blank_s { last_s } else { time.to_s };
        Part::new(from_s, to_s).unwrap_or(time)
    }

    /// Returns whether the relay has responded.
    pub fn is_loaded(&self) -> bool {
        self.slot_ms > 0 || self.problem.is_some()
    }

    /// Joins slots to ones of about `slot_ms`.
    fn coarsen(&mut self, slot_ms: u64) {
        let count = slot_ms.checked_div(self.slot_ms).unwrap_or(1).max(1);
        self.slot_ms *= count;
        let mean = |slots: &[Option<f32>]| {
            let known = slots.iter().flatten();
            let count = known.clone().count();
            (count > 0).then(|| known.sum::<f32>() / count as f32)
        };
        for line in &mut self.lines {
            *line = line.chunks(usize::try_from(count).unwrap_or(usize::MAX)).map(mean).collect();
        }
    }

    /// Returns whether no field has a value.
    pub fn is_empty(&self) -> bool {
        self.lines.iter().flatten().all(Option::is_none)
    }

    /// Loads the readings of a job's GPUs over `time`.
    pub async fn load(page: &Page, report: &Report, time: Part) -> Self {
        let wall_ahead_ms = page.fleet.wall_ahead_ms();
        let relay_ms = |wall_s: i64| {
            u64::try_from(wall_s.saturating_mul(1_000).saturating_sub(wall_ahead_ms)).unwrap_or(0)
        };
        let (from_ms, to_ms) = (relay_ms(time.from_s), relay_ms(time.to_s));
        let query = RangeQuery {
            topic: Topic::Job(report.job),
            from_ms,
            to_ms,
            step_ms: (to_ms - from_ms).div_ceil(SLOTS).max(1),
            gpu_fields: FIELDS.iter().map(|(field, _)| field.name().into()).collect(),
            host_fields: Vec::new(),
        };
        let whole = |field| (run(report) == Some(time)).then(|| mean_of_run(field, report)).flatten();
        let Some(range) = page.feed.range(query).await else {
            return Self { problem: Some(NO_RESPONSE.into()), ..Self::default() };
        };
        let gpus = range.nodes.iter().flat_map(|node| &node.gpus);
        // The nodes may have run other jobs at other times.
        let own: Vec<_> = gpus.filter(|gpu| report.gpus.iter().any(|own| own.uuid == gpu.uuid)).collect();
        let slot_ms = range.step_ms.max(1);
        let slots = slots_within(from_ms, to_ms, slot_ms);
        let first_ms = (slots.start * slot_ms).cast_signed() - from_ms.cast_signed();
        let mut curves = Self { first_ms, slot_ms, problem: range.problem, ..Self::default() };
        for (at, (field, _)) in FIELDS.iter().enumerate() {
            let summaries: Vec<_> = own.iter().filter_map(|gpu| gpu.fields.get(at)).collect();
            let measure = |cell: Cell| Some(field.scale().value(u64::from(cell.value()?)) as f32);
            curves.lines[at] = line(&summaries, &slots, measure);
            curves.summaries[at] = summary(&summaries, &slots, measure, whole(*field));
        }
        curves
    }
}

/// Joins the slots of curves of one graph, so that all are as long as the longest: the means of shorter ones swing further, and
/// equal runs would look different.
pub fn with_equal_slots(mut all: Vec<Curves>) -> Vec<Curves> {
    let longest_ms = all.iter().map(|curves| curves.slot_ms).max().unwrap_or_default();
    all.iter_mut().for_each(|curves| curves.coarsen(longest_ms));
    all
}

/// Returns what a graph shows of each of these times, whose readings `curves` are; `None` if that is all of it, as it is of
/// a part that the viewer chose.
pub fn observed_parts(compared: &[Compared], times: &[Option<Part>], curves: &[Curves]) -> Vec<Option<Part>> {
    let all = compared.iter().zip(times).zip(curves);
    let observed = |((one, time), curves): ((&Compared, &Option<Part>), &Curves)| {
        let time = time.filter(|_| one.part.is_none())?;
        Some(curves.shown_of(time)).filter(|shown| *shown != time)
    };
    all.map(observed).collect()
}

/// Returns the slots that lie within a time as a whole, so that values before and after it do not count; the slots
/// that it touches if it is shorter than that.
fn slots_within(from_ms: u64, to_ms: u64, slot_ms: u64) -> Range<u64> {
    let whole = from_ms.div_ceil(slot_ms)..to_ms / slot_ms;
    if whole.is_empty() { from_ms / slot_ms..to_ms.div_ceil(slot_ms) } else { whole }
}

/// The summaries of a GPU in some slots, by their position.
fn within<'a>(gpu: &'a Summaries, slots: &Range<u64>) -> impl Iterator<Item = (usize, Summary)> + use<'a> {
    let slots = slots.clone();
    let known = gpu.since(slots.start).take_while(move |(slot, _)| *slot < slots.end);
    known.filter_map(move |(slot, summary)| Some(((slot - slots.start) as usize, summary?)))
}

/// The mean of all GPUs in each slot.
fn line(gpus: &[&Summaries], slots: &Range<u64>, measure: impl Fn(Cell) -> Option<f32>) -> Vec<Option<f32>> {
    let count = (slots.end - slots.start).min(2 * SLOTS) as usize;
    let mut sums = vec![(0.0_f32, 0_u32); count];
    for (slot, summary) in gpus.iter().flat_map(|gpu| within(gpu, slots)) {
        if let (Some((sum, count)), Some(value)) = (sums.get_mut(slot), measure(summary.mean)) {
            (*sum, *count) = (*sum + value, *count + 1);
        }
    }
    sums.into_iter().map(|(sum, count)| (count > 0).then(|| sum / count as f32)).collect()
}

/// The mean of a field over a whole run as its report has it: the integral of all readings, while slots are means of ten
/// seconds and more, of which the first and the last one are partly before and after the run.
fn mean_of_run(field: GpuField, report: &Report) -> Option<f32> {
    let totals = &report.totals;
    let mean = match field {
        GpuField::Util => totals.util_pct,
        GpuField::SmClock => totals.sm_clock_mhz,
        GpuField::Power => {
            let known_h = totals.gpu_hours_allocated * totals.energy_known_pct / 100.0;
            totals.energy_kwh.filter(|_| known_h > 0.0).map(|kwh| kwh * 1_000.0 / known_h)
        }
        _ => None,
    };
    mean.map(|mean| mean as f32)
}

/// A field as figures; `whole` is its mean over a whole run, if that is what is compared.
fn summary(
    gpus: &[&Summaries],
    slots: &Range<u64>,
    measure: impl Fn(Cell) -> Option<f32>,
    whole: Option<f32>,
) -> Option<FieldSummary> {
    let all = || gpus.iter().flat_map(|gpu| within(gpu, slots)).map(|(_, summary)| summary);
    let of_slots = || {
        let means: Vec<f32> = all().filter_map(|summary| measure(summary.mean)).collect();
        (!means.is_empty()).then(|| means.iter().sum::<f32>() / means.len() as f32)
    };
    let low = all().filter_map(|summary| measure(summary.min)).reduce(f32::min);
    let high = all().filter_map(|summary| measure(summary.max)).reduce(f32::max);
    Some(FieldSummary { mean: whole.or_else(of_slots)?, extremes: low.zip(high) })
}

/// Formats a value of the field at a position in [`FIELDS`].
pub fn format_value(field: usize, value: f32) -> String {
    let field = FIELDS[field].0;
    match field {
        GpuField::MemUsed => bytes(f64::from(value) as u64),
        _ => format!("{} {}", precise(f64::from(value)), field.metric().unit.symbol()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::describe::report::tests::report_with;
    use nodeglass_protocol::JobId;

    fn summaries(slots: &[(u64, u32, u32, u32)]) -> Summaries {
        let mut summaries = Summaries::default();
        for (slot, mean, min, max) in slots {
            let [mean, min, max] = [*mean, *min, *max].map(Cell::steps);
            summaries.push(*slot, Summary { mean, min, max });
        }
        summaries
    }

    fn measure(cell: Cell) -> Option<f32> {
        Some(cell.value()? as f32)
    }

    #[test]
    fn runs_of_one_graph_have_slots_of_one_length() {
        let of = |slot_ms: u64, line: &[Option<f32>]| {
            let lines = [line.to_vec(), Vec::new(), Vec::new(), Vec::new()];
            Curves { lines, first_ms: 1_000, slot_ms, ..Curves::default() }
        };
        let stored = of(2_000, &[Some(50.0)]);
        let recent = of(1_000, &[Some(100.0), Some(0.0), None, Some(80.0), None, None, Some(10.0)]);
        let joined = of(2_000, &[Some(50.0), Some(80.0), None, Some(10.0)]);
        let missing = Curves::default();
        let equal = with_equal_slots(vec![stored.clone(), recent, missing.clone()]);
        assert_eq!(equal, [stored, joined, missing.clone()]);
        assert!(equal[0].is_loaded() && !missing.is_loaded());
    }

    #[test]
    fn the_value_at_a_time_is_that_of_its_slot() {
        let lines = [vec![Some(10.0), None, Some(30.0)], Vec::new(), Vec::new(), Vec::new()];
        let curves = Curves { lines, first_ms: 5_000, slot_ms: 10_000, ..Curves::default() };
        let at = |ms| curves.value_at(0, ms);
        assert_eq!([at(4_999), at(5_000), at(14_999)], [None, Some(10.0), Some(10.0)]);
        assert_eq!([at(15_000), at(25_000), at(35_000), at(u64::MAX)], [None, Some(30.0), None, None]);
        assert_eq!((curves.value_at(1, 5_000), curves.value_at(9, 5_000)), (None, None));
        assert_eq!(Curves { first_ms: -5_000, ..curves }.value_at(0, 0), Some(10.0));
    }

    #[test]
    fn only_slots_within_the_time_count() {
        // The slots that the time cuts hold what was before and after it.
        let gpu = summaries(&[(0, 0, 0, 0), (1, 50, 40, 60), (2, 50, 45, 55), (3, 0, 0, 50)]);
        let slots = slots_within(4_000, 35_000, 10_000);
        assert_eq!(slots, 1..3);
        assert_eq!(line(&[&gpu], &slots, measure), [Some(50.0), Some(50.0)]);
        let expected = FieldSummary { mean: 50.0, extremes: Some((40.0, 60.0)) };
        assert_eq!(summary(&[&gpu], &slots, measure, None), Some(expected));
    }

    #[test]
    fn a_whole_run_has_the_mean_of_its_report() {
        let mut report = report_with(&[]);
        report.totals.util_pct = Some(64.0);
        report.totals.gpu_hours_allocated = 4.0;
        (report.totals.energy_kwh, report.totals.energy_known_pct) = (Some(0.6), 50.0);
        let mean = |field| mean_of_run(field, &report);
        assert_eq!((mean(GpuField::Util), mean(GpuField::Power)), (Some(64.0), Some(300.0)));
        assert_eq!((mean(GpuField::SmClock), mean(GpuField::MemUsed)), (None, None));
        let gpu = summaries(&[(1, 50, 40, 60), (2, 90, 45, 95)]);
        let of = |gpus: &[&Summaries]| summary(gpus, &(1..3), measure, Some(64.0));
        assert_eq!(of(&[&gpu]), Some(FieldSummary { mean: 64.0, extremes: Some((40.0, 95.0)) }));
        assert_eq!(of(&[]), Some(FieldSummary { mean: 64.0, extremes: None }), "longer ago than the history");
        assert_eq!(mean_of_run(GpuField::Power, &report_with(&[])), None);
    }

    #[test]
    fn the_first_and_the_last_known_time_are_those_of_slots_with_a_value() {
        let lines = [vec![None, Some(10.0), None, Some(30.0), None], vec![None], Vec::new(), Vec::new()];
        let curves = Curves { lines, first_ms: 2_000, slot_ms: 10_000, ..Curves::default() };
        assert_eq!(curves.known_ms(0), Some((12_500, 41_500)));
        assert_eq!([curves.known_ms(1), curves.known_ms(2), curves.known_ms(9)], [None; 3]);
        assert_eq!([12_500, 41_500].map(|ms| curves.value_at(0, ms)), [Some(10.0), Some(30.0)]);
    }

    #[test]
    fn a_graph_leaves_out_a_long_time_that_nobody_observed() {
        let time = Part { from_s: 1_000, to_s: 1_100 };
        let shown = |line: &[Option<f32>]| {
            let lines = [Vec::new(), line.to_vec(), Vec::new(), Vec::new()];
            Curves { lines, slot_ms: 10_000, ..Curves::default() }.shown_of(time)
        };
        let (known, none) = (Some(1.0), None);
        assert_eq!(shown(&[none, known, known, known, known, known, known, known, known, none]), time);
        assert_eq!(shown(&[none; 10]), time);
        let late = shown(&[none, none, none, none, none, none, none, known, known, known]);
        assert_eq!(late, Part { from_s: 1_070, to_s: 1_100 });
        let early = shown(&[known, none, known, none, none, none, none, none, none, none]);
        assert_eq!(early, Part { from_s: 1_000, to_s: 1_030 });
    }

    #[test]
    fn of_runs_of_which_the_end_was_observed_a_comparison_shows_the_end() {
        let time = Part { from_s: 1_000, to_s: 1_100 };
        let (known, none) = (Some(1.0), None);
        let curves = |line: [Option<f32>; 10]| {
            let lines = [line.to_vec(), Vec::new(), Vec::new(), Vec::new()];
            Curves { lines, slot_ms: 10_000, ..Curves::default() }
        };
        let late = curves([none, none, none, none, none, none, none, known, known, known]);
        let whole = Compared::whole(JobId(17));
        let part = Compared { part: Some(time), ..whole };
        let compared = [whole, whole, part, whole];
        let readings = [late.clone(), curves([known; 10]), late.clone(), late];
        let shown = observed_parts(&compared, &[Some(time), Some(time), Some(time), None], &readings);
        assert_eq!(shown, [Some(Part { from_s: 1_070, to_s: 1_100 }), None, None, None]);
        assert_eq!(observed_parts(&compared, &[Some(time); 4], &[]), [], "nothing is loaded yet");
    }

    #[test]
    fn of_a_short_time_the_slots_that_it_touches_count() {
        assert_eq!(slots_within(12_000, 19_000, 10_000), 1..2);
        assert_eq!(slots_within(18_000, 24_000, 10_000), 1..3);
    }

    #[test]
    fn gaps_and_gpus_without_values_are_no_zeros() {
        let (gpu, none) = (summaries(&[(1, 50, 50, 50), (3, 70, 70, 70)]), Summaries::default());
        assert_eq!(line(&[&gpu, &none], &(1..4), measure), [Some(50.0), None, Some(70.0)]);
        assert_eq!(summary(&[&none], &(1..4), measure, None), None);
    }
}
