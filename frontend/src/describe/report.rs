//! Content of a job's report: its figures, formatted and as numbers that can be compared.

use super::{Fact, FactGroup};
use crate::describe::fact::bytes;
use crate::domain::compared::Part;
use crate::domain::{health, outcome, text};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::note::Note;
use nodeglass_protocol::report::{Report, Throttled, Totals};
use nodeglass_protocol::{JobId, Text};
use nodeglass_rules::gpu_hours::{GpuHours, USAGE_KNOWN_PCT};
use nodeglass_rules::number::{ColumnFormat, carbon, energy, energy_unit, money, percent, precise};
use std::borrow::Cow;

/// A figure of a report.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The label.
    pub label: Cow<'static, str>,
    /// Formatted, with its unit.
    pub value: String,
    /// Explanation, such as the amount requested.
    pub note: String,
    /// The number, to compare with another job's; `None` for text.
    pub number: Option<f64>,
    /// Fraction of what was allocated, to draw as a bar, with the CSS class of its hue.
    pub bar: Option<(f64, &'static str)>,
    /// Whether it is of the whole run, however much of it was observed.
    pub is_of_whole_run: bool,
    /// The share of the run that it is of, in %, if that may be less than what was observed.
    pub known_pct: Option<f64>,
    /// Unit of the number.
    pub unit: Unit,
}

/// The unit of a figure: beside others of its kind, all are written in the same one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// It is always the same.
    Same,
    /// GPU hours.
    Hours,
    /// Bytes, or a multiple of them.
    Bytes,
    /// kWh, or Wh.
    Energy,
}

/// The units of bytes, and their size.
const BYTES: [(&str, f64); 6] = [
    ("B", 1.0),
    ("KiB", 1_024.0),
    ("MiB", 1_048_576.0),
    ("GiB", 1_073_741_824.0),
    ("TiB", 1_099_511_627_776.0),
    ("PiB", 1_125_899_906_842_624.0),
];
/// Largest ratio of two figures that are written in the same unit and with the same decimals.
const MAX_RATIO: f64 = 1_000.0;

impl Unit {
    /// Writes figures so that they can be compared: in one unit, with the same number of decimals; `None` if each is
    /// written for itself.
    pub fn alike(self, numbers: &[f64]) -> Option<Vec<String>> {
        let highest = numbers.iter().copied().fold(0.0, f64::max);
        let lowest = numbers.iter().copied().filter(|number| *number > 0.0).fold(highest, f64::min);
        if numbers.len() < 2 || highest > lowest * MAX_RATIO {
            return None;
        }
        let (unit, factor) = match self {
            Self::Same => return None,
            Self::Hours => ("h", 1.0),
            Self::Energy => energy_unit([highest]),
            Self::Bytes => {
                let (unit, size) = BYTES.iter().rev().find(|(_, size)| highest >= *size).unwrap_or(&BYTES[0]);
                (*unit, 1.0 / size)
            }
        };
        let scaled = || numbers.iter().map(|number| number * factor);
        let format = ColumnFormat::of(scaled());
        Some(scaled().map(|number| format!("{} {unit}", format.write(number))).collect())
    }
}

/// Largest difference of the observed shares of two runs, in percentage points, with which what was observed of them is
/// compared.
const COMPARABLE_POINTS: f64 = 5.0;

/// Returns whether as much was observed of a run as of another one.
pub fn is_observed_alike(a: &Report, b: &Report) -> bool {
    is_as_much(a.observed_pct, b.observed_pct)
}

/// Returns whether two shares of runs, in %, are so close that what they are of can be compared.
pub fn is_as_much(a: f64, b: f64) -> bool {
    (a - b).abs() <= COMPARABLE_POINTS
}

/// Figures that belong together.
#[derive(Clone, Debug, PartialEq)]
pub struct Figures {
    /// The title.
    pub title: &'static str,
    /// The figures that are known.
    pub figures: Vec<Figure>,
}

/// The figures of a report, by subject; figures that were never known are left out.
pub fn figures(report: &Report) -> Vec<Figures> {
    let groups = [
        ("GPUs", gpus(report)),
        ("CPUs and memory", host(report)),
        ("Data moved", data(report)),
        ("Job", job(report)),
        ("SLURM accounting", accounting(report)),
    ];
    let shown = groups.into_iter().filter(|(_, figures)| !figures.is_empty());
    shown.map(|(title, figures)| Figures { title, figures }).collect()
}

/// Returns the figures as facts.
pub fn facts(report: &Report) -> Vec<FactGroup> {
    let fact = |figure: Figure| Fact {
        bar: figure.bar,
        ..Fact::new(figure.label, figure.value).with_note(figure.note)
    };
    figures(report)
        .into_iter()
        .map(|group| FactGroup::new(group.title, group.figures.into_iter().map(fact)))
        .collect()
}

fn gpus(report: &Report) -> Vec<Figure> {
    let totals = &report.totals;
    if totals.gpus == 0 {
        return Vec::new();
    }
    let spent = GpuHours::from(totals);
    let hours = |label: &'static str, hours: f64| Figure {
        unit: Unit::Hours,
        ..Figure::new(label, format!("{} h", precise(hours)), Some(hours))
    };
    let used = spent.pct_of_observed(spent.used).map(|pct| (pct / 100.0, "hue-busy"));
    let mut figures = vec![
        Figure::new("Number", text::grouped(u64::from(totals.gpus)), Some(f64::from(totals.gpus)))
            .of_whole_run(),
        hours("GPU hours allocated", spent.allocated).of_whole_run(),
        hours("GPU hours observed", spent.observed.min(spent.allocated)),
        Figure { bar: used, ..hours("GPU hours used", spent.used) },
        hours("GPU hours idle", spent.idle),
    ];
    if spent.slowed > 0.0 {
        let note = "of those used".to_owned();
        figures.insert(4, Figure { note, ..hours("GPU hours lost to slow GPUs", spent.slowed) });
    }
    if spent.hung > 0.0 {
        figures.push(hours("GPU hours lost to hangs", spent.hung));
    }
    figures.extend(totals.util_pct.map(|util| Figure {
        bar: Some((util / 100.0, "hue-busy")),
        note: if report.has_sm_activity() {
            "SM activity of MIG instances".to_owned()
        } else {
            String::new()
        },
        ..Figure::new("Mean utilisation", format!("{} %", precise(util)), Some(util))
    }));
    figures.extend(totals.gpu_mem_peak_bytes.map(|peak| {
        let size = totals.gpu_mem_total_bytes.filter(|size| *size > 0);
        Figure {
            note: size.map_or_else(String::new, |size| format!("of {}, highest of one GPU", bytes(size))),
            bar: size.map(|size| (peak as f64 / size as f64, "hue-mem")),
            unit: Unit::Bytes,
            ..Figure::new("Peak memory", bytes(peak), Some(peak as f64))
        }
    }));
    figures.extend(totals.sm_clock_mhz.map(|mhz| {
        Figure::new("Mean SM clock", format!("{} MHz", text::grouped(mhz.round() as u64)), Some(mhz))
    }));
    let measured = match totals.energy_known_pct {
        99.5.. => String::new(),
        known => format!("power measured for {} of the run", percent(known)),
    };
    figures.extend(totals.energy_kwh.map(|kwh| Figure {
        note: measured.clone(),
        unit: Unit::Energy,
        ..Figure::new("Energy", energy(kwh), Some(kwh))
    }));
    figures.extend(
        totals.co2_kg.map(|kg| Figure { note: measured, ..Figure::new("CO₂", carbon(kg), Some(kg)) }),
    );
    figures.extend(totals.cost.as_ref().map(|cost| {
        let (number, value) = (Some(cost.amount), money(cost.amount, cost.currency.as_str()));
        let note = "for all allocated GPU hours".to_owned();
        Figure { note, ..Figure::new("Cost", value, number).of_whole_run() }
    }));
    figures.extend(totals.throttled.iter().map(|Throttled { reason, seconds }| Figure {
        note: "sum over the GPUs".to_owned(),
        ..Figure::new(format!("Throttled: {reason}"), text::span(seconds.round() as u64), Some(*seconds))
    }));
    let faults = [
        ("Xid errors", u64::from(totals.xids)),
        ("Uncorrected ECC errors", totals.ecc_uncorrected.unwrap_or(0)),
        ("Corrected ECC errors", totals.ecc_corrected.unwrap_or(0)),
    ];
    let faults = faults.into_iter().filter(|(_, count)| *count > 0);
    figures.extend(faults.map(|(label, count)| Figure::new(label, text::grouped(count), Some(count as f64))));
    figures
}

fn host(report: &Report) -> Vec<Figure> {
    let totals = &report.totals;
    let cpus = totals.cpus_used.map(|used| {
        let allocated = totals.cpus_allocated.map(f64::from).filter(|cpus| *cpus > 0.0);
        Figure {
            note: allocated.map_or_else(String::new, |cpus| format!("of {}, mean", precise(cpus))),
            bar: allocated.map(|cpus| (used / cpus, "hue-host")),
            ..Figure::new("CPUs used", precise(used), Some(used))
        }
    });
    let peak = totals.cpus_peak.map(|peak| Figure::new("Peak CPUs", precise(peak), Some(peak)));
    let mem = totals.mem_peak_bytes.map(|peak| {
        let requested = totals.mem_requested_bytes.filter(|requested| *requested > 0);
        Figure {
            note: requested
                .map_or_else(String::new, |requested| format!("of {} requested", bytes(requested))),
            bar: requested.map(|requested| (peak as f64 / requested as f64, "hue-mem")),
            unit: Unit::Bytes,
            ..Figure::new("Peak memory", bytes(peak), Some(peak as f64))
        }
    });
    let kills = totals.oom_kills.filter(|kills| *kills > 0);
    let kills = kills.map(|kills| Figure::new("OOM kills", text::grouped(kills), Some(kills as f64)));
    let known = [cpus, peak, mem].into_iter().flatten().map(|figure| figure.of_known_usage(totals));
    known.chain(kills).collect()
}

fn data(report: &Report) -> Vec<Figure> {
    let totals = &report.totals;
    let amounts = [
        ("PCIe received", totals.pcie_rx_bytes, ""),
        ("PCIe sent", totals.pcie_tx_bytes, ""),
        ("GPU links received", totals.link_rx_bytes, ""),
        ("GPU links sent", totals.link_tx_bytes, ""),
        ("Network received", totals.nodes_net_rx_bytes, "by its nodes as a whole"),
        ("Network sent", totals.nodes_net_tx_bytes, "by its nodes as a whole"),
        ("Local disks read", totals.nodes_disk_read_bytes, "by its nodes as a whole"),
        ("Local disks written", totals.nodes_disk_write_bytes, "by its nodes as a whole"),
    ];
    let known = amounts.into_iter().filter_map(|(label, amount, note)| Some((label, amount?, note)));
    known
        .map(|(label, amount, note)| Figure {
            note: note.to_owned(),
            unit: Unit::Bytes,
            ..Figure::new(label, bytes(amount.max(0.0) as u64), Some(amount))
        })
        .map(|figure| figure.of_known_usage(totals))
        .collect()
}

fn job(report: &Report) -> Vec<Figure> {
    let limit =
        report.limit_s.map_or_else(String::new, |limit_s| format!("of {} allowed", text::span(limit_s)));
    let share = report.limit_s.filter(|limit_s| *limit_s > 0);
    let run_time = Figure {
        note: limit,
        bar: share.map(|limit_s| (report.elapsed_s as f64 / limit_s as f64, "hue-host")),
        ..Figure::new("Run time", text::duration(report.elapsed_s), Some(report.elapsed_s as f64))
            .of_whole_run()
    };
    let observed = Figure {
        note: "of the run time".to_owned(),
        ..Figure::new("Observed", percent(report.observed_pct), None)
    };
    let application = report.application.as_ref();
    let application = application.map(|name| Figure::new("Application", name.to_string(), None));
    [run_time, observed].into_iter().chain(application).collect()
}

/// Returns the statement of SLURM's accounting.
fn accounting(report: &Report) -> Vec<Figure> {
    let Some(stated) = &report.accounting else { return Vec::new() };
    let exit = match stated.signal {
        Some(signal) => format!("{}, signal {signal}", stated.exit_code),
        None => stated.exit_code.to_string(),
    };
    let steps = stated.step_exit_code.filter(|code| *code > 0);
    let exit = Figure {
        note: steps.map_or_else(String::new, |code| format!("{code} of a step")),
        ..Figure::new("Exit code", exit, None)
    };
    let memory = stated.max_rss_bytes.map(|peak| Figure {
        note: "MaxRSS: highest of any task".to_owned(),
        ..Figure::new("Task memory", bytes(peak), Some(peak as f64)).of_whole_run()
    });
    let reason = stated.reason.as_ref().map(|reason| Figure::new("Reason", reason.to_string(), None));
    [Figure::new("State", stated.state.to_string(), None), exit]
        .into_iter()
        .chain(memory)
        .chain(reason)
        .collect()
}

/// When a job ran.
pub fn run(report: &Report) -> Option<Part> {
    let from_s = report.start_s?;
    Part::new(from_s, from_s.checked_add(i64::try_from(report.elapsed_s).ok()?)?)
}

/// Returns the part of a job's run that was observed: its end, because a relay that starts later has no readings from before.
pub fn observed(report: &Report) -> Option<Part> {
    let run = run(report)?;
    let observed_s = run.length_s() as f64 * report.observed_pct / 100.0;
    run.since(run.to_s.saturating_sub(observed_s as i64)).or(Some(run))
}

/// Returns SLURM's state of a job in words, as the list of jobs has them: `out of host memory`.
pub fn state_text(state: &Text, is_final: bool) -> String {
    if !is_final && state.as_str().is_empty() {
        return "not ended".to_owned();
    }
    let ended = Job::new(JobId(0), Text::default(), JobState::Ended(state.clone()));
    outcome::failure(&ended).map_or_else(|| health::state_label(&ended), |failure| failure.label)
}

/// Returns the difference of a figure from another job's, as a percentage: `+14 %`; empty if it is too small to show.
pub fn difference(number: Option<f64>, base: Option<f64>) -> String {
    let (Some(number), Some(base)) = (number, base) else { return String::new() };
    if base.abs() < f64::EPSILON {
        return String::new();
    }
    match (100.0 * (number / base - 1.0)).round() as i64 {
        0 => String::new(),
        more @ 1..=999 => format!("+{more} %"),
        1_000.. => format!("× {}", text::grouped((number / base).round() as u64)),
        // Rounded, it would state that nothing is left.
        -100 if number > 0.0 => "−99.9 %".to_owned(),
        less => format!("−{} %", less.unsigned_abs()),
    }
}

impl Figure {
    fn new(label: impl Into<Cow<'static, str>>, value: String, number: Option<f64>) -> Self {
        let (label, note) = (label.into(), String::new());
        Self {
            label,
            value,
            note,
            number,
            bar: None,
            is_of_whole_run: false,
            known_pct: None,
            unit: Unit::Same,
        }
    }

    fn of_whole_run(self) -> Self {
        Self { is_of_whole_run: true, ..self }
    }

    /// A figure of [`Totals::usage_known_pct`] of the run.
    fn of_known_usage(self, totals: &Totals) -> Self {
        let known = totals.usage_known_pct;
        let part = (known < USAGE_KNOWN_PCT).then(|| format!("known for {} of the run", percent(known)));
        let notes = [Some(self.note).filter(|note| !note.is_empty()), part];
        let note = notes.into_iter().flatten().collect::<Vec<_>>().join(", ");
        Self { note, known_pct: Some(known), ..self }
    }
}

/// Returns the texts of the notes that every one of these jobs has, in the order of the first one: where their
/// courses can be aligned.
pub fn common_notes(reports: &[Report]) -> Vec<Text> {
    let Some(first) = reports.first().filter(|_| reports.len() > 1) else {
        return Vec::new();
    };
    // After its end a job has no course.
    let is_during = |report: &Report, note: &Note| {
        let at_s = i64::try_from(note.at_ms / 1_000).unwrap_or(i64::MAX);
        let after_s = report.start_s.and_then(|start_s| u64::try_from(at_s - start_s).ok());
        after_s.is_some_and(|after_s| after_s < report.elapsed_s)
    };
    let has = |report: &Report, text: &Text| {
        let first = report.notes.iter().find(|note| note.text == *text);
        first.is_some_and(|note| is_during(report, note))
    };
    let mut texts = Vec::new();
    for note in &first.notes {
        if !texts.contains(&note.text) && reports.iter().all(|report| has(report, &note.text)) {
            texts.push(note.text.clone());
        }
    }
    texts
}

/// Returns when a job has its first note with a text, in s since 1970.
pub fn note_at_s(report: &Report, text: &Text) -> Option<i64> {
    let note = report.notes.iter().find(|note| note.text == *text)?;
    i64::try_from(note.at_ms / 1_000).ok()
}

#[cfg(test)]
pub mod tests {
    use super::*;
    use nodeglass_protocol::note::{NoteId, NoteSource};
    use nodeglass_protocol::report::Totals;

    /// A report of an hour from 1,000 s on, with notes at these times in s.
    pub fn report_with(notes: &[(u64, &str)]) -> Report {
        let note = |(at_s, text): &(u64, &str)| Note {
            id: NoteId::from_bits(*at_s),
            job: None,
            node: None,
            rank: None,
            at_ms: at_s * 1_000,
            text: (*text).into(),
            source: NoteSource::Job,
        };
        Report {
            job: JobId(17),
            label: "17".into(),
            name: "train".into(),
            user: "alice".into(),
            account: None,
            partition: "gpu".into(),
            state: "COMPLETED".into(),
            exit: None,
            accounting: None,
            application: None,
            is_final: true,
            at_s: 4_600,
            start_s: Some(1_000),
            ended_s: Some(4_600),
            elapsed_s: 3_600,
            limit_s: None,
            nodes: Vec::new(),
            node_count: 1,
            observed_pct: 100.0,
            totals: Totals::default(),
            gpus: Vec::new(),
            advice: Vec::new(),
            notes: notes.iter().map(note).collect(),
            lacks_notes: false,
            findings: Vec::new(),
        }
    }

    #[test]
    fn runs_of_which_different_parts_were_observed_are_compared_as_a_whole_alone() {
        let of = |observed_pct| {
            let totals =
                Totals { gpus: 2, gpu_hours_allocated: 2.0, energy_kwh: Some(1.0), ..Totals::default() };
            Report { observed_pct, totals, ..report_with(&[]) }
        };
        assert!(is_observed_alike(&of(99.0), &of(95.0)));
        assert!(!is_observed_alike(&of(99.0), &of(34.0)));
        let shown = figures(&of(34.0));
        let whole = shown.iter().flat_map(|group| &group.figures).filter(|figure| figure.is_of_whole_run);
        let labels: Vec<_> = whole.map(|figure| figure.label.clone()).collect();
        assert_eq!(labels, ["Number", "GPU hours allocated", "Run time"]);
    }

    #[test]
    fn another_time_of_a_run_is_one_that_was_observed() {
        use crate::domain::compared::Compared;
        let other = |observed_pct| {
            let report = Report { observed_pct, ..report_with(&[]) };
            Compared::whole(report.job).another_time(observed(&report))?.part
        };
        assert_eq!(other(100.0), Part::new(1_000, 2_800));
        // The relay began in the last quarter.
        assert_eq!(other(25.0), Part::new(3_700, 4_150));
        assert_eq!(other(0.0), Part::new(1_000, 2_800));
    }

    #[test]
    fn hours_lost_to_slow_gpus_are_beside_those_used() {
        let totals = Totals { gpus: 2, gpu_hours_used: 9.0, gpu_hours_slowed: 8.5, ..Totals::default() };
        let shown = gpus(&Report { totals, ..report_with(&[]) });
        let used = shown.iter().position(|figure| figure.label == "GPU hours used").unwrap();
        let lost = &shown[used + 1];
        assert_eq!(
            (lost.label.as_ref(), lost.value.as_str(), lost.note.as_str()),
            ("GPU hours lost to slow GPUs", "8.5 h", "of those used")
        );
    }

    #[test]
    fn page_and_relay_state_the_same_figures_of_a_job() {
        use crate::domain::deviation::fleets;
        let toml = fleets::fleet(1, 1, "training", &[("idle_gpu", 1, 3)]);
        let (fleet, now_ms) = fleets::played(&toml, 10, |_, _, _| {});
        let report = fleet.job_record(JobId(17), nodeglass_report::Until::Now, now_ms).unwrap().report();
        let stated = nodeglass_report::text(&report, None, &|at_s| at_s.to_string());
        let line = |name: &str| {
            let line = stated.lines().find_map(|line| line.trim_start().strip_prefix(name));
            line.unwrap_or_else(|| panic!("no {name:?} in {stated}")).trim()
        };
        let shown = figures(&report);
        let figure = |label: &str| {
            let mut figures = shown.iter().flat_map(|group| &group.figures);
            figures
                .find(|figure| figure.label == label)
                .unwrap_or_else(|| panic!("no {label:?} in {shown:?}"))
        };
        let hours = ["GPU hours observed", "GPU hours allocated", "GPU hours used", "GPU hours idle"];
        for label in hours {
            let number = precise(figure(label).number.unwrap());
            assert!(line("GPU hours").contains(&number), "{label} {number}: {stated}");
        }
        let rounded = |label: &str| figure(label).number.unwrap().round();
        assert!(line("Utilisation").starts_with(&format!("{} %", rounded("Mean utilisation"))), "{stated}");
        assert!(line("GPUs").starts_with(&figure("Number").value), "{stated}");
        assert!(line("Energy").starts_with(&figure("Energy").value), "{stated}");
        assert!(report.totals.gpu_hours_idle > 0.0 && report.totals.gpu_hours_used > 0.0, "{stated}");
    }

    #[test]
    fn courses_are_aligned_at_notes_that_every_job_has() {
        let one = report_with(&[
            (1_010, "epoch 1"),
            (1_020, "loss is NaN"),
            (2_000, "epoch 2"),
            (2_500, "epoch 1"),
        ]);
        let other = report_with(&[(1_600, "epoch 2"), (1_300, "epoch 1")]);
        let texts = common_notes(&[one.clone(), other.clone()]);
        assert_eq!(texts, [Text::from("epoch 1"), "epoch 2".into()]);
        assert_eq!(common_notes(std::slice::from_ref(&one)), []);
        let late = report_with(&[(5_000, "epoch 1"), (900, "epoch 2")]);
        assert_eq!(common_notes(&[one.clone(), late]), [], "they are not of the run");
        assert_eq!(common_notes(&[one.clone(), other.clone(), report_with(&[])]), []);
        assert_eq!(note_at_s(&one, &"epoch 1".into()), Some(1_010));
        assert_eq!(note_at_s(&other, &"epoch 2".into()), Some(1_600));
        assert_eq!(note_at_s(&other, &"loss is NaN".into()), None);
    }

    #[test]
    fn states_are_words_and_not_slurms_names() {
        let words = |state: &str| state_text(&state.into(), true);
        assert_eq!(words("OUT_OF_MEMORY"), "out of host memory");
        assert_eq!(
            [words("COMPLETED"), words("NODE_FAIL"), words("")],
            ["completed", "node failed", "ended"]
        );
        assert_eq!([words("TIMEOUT"), words("SPECIAL_EXIT")], ["time limit reached", "special exit"]);
        assert_eq!(
            [state_text(&"RUNNING".into(), false), state_text(&"".into(), false)],
            ["running", "not ended"]
        );
    }

    #[test]
    fn a_run_is_as_long_as_the_report_says() {
        assert_eq!(run(&report_with(&[])), Part::new(1_000, 4_600));
        assert_eq!(run(&Report { start_s: None, ..report_with(&[]) }), None);
        assert_eq!(run(&Report { elapsed_s: 0, ..report_with(&[]) }), None);
    }

    #[test]
    fn figures_beside_each_other_have_one_unit_and_the_same_decimals() {
        const GIB: f64 = 1_073_741_824.0;
        let written = |unit: Unit, numbers: &[f64]| unit.alike(numbers).map(|all| all.join(", "));
        assert_eq!(written(Unit::Bytes, &[2_662.4 * GIB, 929.3 * GIB]).unwrap(), "2.60 TiB, 0.91 TiB");
        assert_eq!(written(Unit::Hours, &[1_998.2, 53.6]).unwrap(), "1,998 h, 54 h");
        assert_eq!(written(Unit::Energy, &[0.7657, 0.1202]).unwrap(), "765.7 Wh, 120.2 Wh");
        assert_eq!(written(Unit::Hours, &[1_998.2, 0.4]), None, "its unit would hide the lesser");
        assert_eq!([written(Unit::Same, &[1.0, 2.0]), written(Unit::Hours, &[1.0])], [None, None]);
        assert_eq!(written(Unit::Hours, &[0.0, 0.0]).unwrap(), "0 h, 0 h");
    }

    #[test]
    fn a_difference_is_a_percentage_of_the_first_job() {
        let of = |number, base| difference(Some(number), Some(base));
        assert_eq!(of(114.0, 100.0), "+14 %");
        assert_eq!(of(1_380.0, 1_755.0), "−21 %");
        assert_eq!(of(5_000.0, 100.0), "× 50");
        assert_eq!([of(1.0, 10_000.0), of(0.0, 10_000.0)], ["−99.9 %", "−100 %"]);
        assert_eq!((of(100.2, 100.0), of(1.0, 0.0)), (String::new(), String::new()));
        assert_eq!(difference(None, Some(1.0)), "");
    }

    #[test]
    fn each_cause_of_throttling_is_a_figure_of_its_own() {
        let mut report = report_with(&[]);
        report.totals.gpus = 1;
        let throttled = |reason: &str, seconds| Throttled { reason: reason.into(), seconds };
        report.totals.throttled = vec![throttled("too hot", 90.0), throttled("power brake", 30.0)];
        let shown: Vec<(String, String)> = gpus(&report)
            .into_iter()
            .filter(|figure| figure.label.starts_with("Throttled"))
            .map(|figure| (figure.label.into_owned(), figure.value))
            .collect();
        let expected = [("Throttled: too hot", "1 min"), ("Throttled: power brake", "30 s")];
        assert_eq!(shown, expected.map(|(label, value)| (label.to_owned(), value.to_owned())));
    }
}
