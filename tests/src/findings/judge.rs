//! Sums up what was found in many scenarios.

use super::cases::Fault;
use super::{Case, Observed};
use nodeglass_protocol::finding::FindingKind;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Row and column of the confusion matrix for the absence of findings.
const NOTHING: &str = "nothing";

/// Number of times that a kind was expected, found, missed, late, or found without a cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// Runs in which it must be found.
    pub expected: usize,
    /// Runs in which it was not.
    pub missed: usize,
    /// Runs in which it was found too late.
    pub late: usize,
    /// Runs in which it was resolved while its cause lasted, or not in time after that.
    pub resolved_wrongly: usize,
    /// Findings without a cause.
    pub false_alarms: usize,
    /// The longest time from the cause to the finding, in s.
    pub slowest_s: i64,
}

/// The sums of all runs.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Number of scenarios and runs.
    pub runs: usize,
    /// By kind.
    pub kinds: BTreeMap<&'static str, Tally>,
    /// The confusion matrix: for what each scenario contains (kinds joined by `+`, or `nothing`), in how many of its
    /// runs each kind was found; `nothing` counts runs without a finding.
    pub confusion: BTreeMap<String, BTreeMap<&'static str, usize>>,
    /// A line for each failure.
    pub failures: Vec<String>,
}

impl Summary {
    /// Adds a run.
    pub fn add(&mut self, case: &Case, seed: u64, observed: &[Observed]) {
        self.runs += 1;
        self.count_confusion(case, observed);
        let (faults, alarms) = case.judge(observed);
        for expected in &case.expected {
            let tally = self.kinds.entry(expected.kind.name()).or_default();
            tally.expected += 1;
            let found = observed.iter().filter(|found| expected.is_met_by(found));
            if let Some(found_s) = found.map(|found| found.found_s).min() {
                tally.slowest_s = tally.slowest_s.max(found_s - expected.begins_s);
            }
        }
        let mut fail = |kind: FindingKind, what: &str, detail: &str| {
            self.failures.push(format!("{} (seed {seed}): {} {what}{detail}", case.name, kind.name()));
        };
        for (kind, fault) in &faults {
            let tally = self.kinds.entry(kind.name()).or_default();
            let (count, what) = match fault {
                Fault::Missed => (&mut tally.missed, "missed"),
                Fault::Late => (&mut tally.late, "late"),
                Fault::ResolvedEarly => (&mut tally.resolved_wrongly, "resolved while its cause lasts"),
                Fault::ResolvedLate => (&mut tally.resolved_wrongly, "not resolved in time"),
            };
            *count += 1;
            fail(*kind, what, "");
        }
        for alarm in &alarms {
            fail(alarm.kind, "without a cause", &format!(" after {} s: {}", alarm.found_s, alarm.title));
            self.kinds.entry(alarm.kind.name()).or_default().false_alarms += 1;
        }
    }

    fn count_confusion(&mut self, case: &Case, observed: &[Observed]) {
        let expected: Vec<&str> = case.expected.iter().map(|expected| expected.kind.name()).collect();
        let cause = if expected.is_empty() { NOTHING.to_owned() } else { expected.join("+") };
        let mut found: BTreeSet<&str> = observed.iter().map(|found| found.kind.name()).collect();
        if found.is_empty() {
            found.insert(NOTHING);
        }
        let row = self.confusion.entry(cause).or_default();
        found.into_iter().for_each(|kind| *row.entry(kind).or_default() += 1);
    }

    /// Returns whether no finding was missed, late, or found without a cause.
    pub fn is_clean(&self) -> bool {
        self.failures.is_empty()
    }

    /// The sums as JSON.
    pub fn json(&self, scenarios: usize) -> Value {
        let sum = |of: fn(&Tally) -> usize| self.kinds.values().map(of).sum::<usize>();
        let kinds: BTreeMap<_, _> = self
            .kinds
            .iter()
            .map(|(kind, tally)| {
                let of = json!({
                    "expected": tally.expected, "missed": tally.missed, "late": tally.late,
                    "resolved_wrongly": tally.resolved_wrongly, "false_alarms": tally.false_alarms, "slowest_s": tally.slowest_s,
                });
                (*kind, of)
            })
            .collect();
        json!({
            "scenarios": scenarios, "runs": self.runs, "missed": sum(|tally| tally.missed),
            "late": sum(|tally| tally.late), "resolved_wrongly": sum(|tally| tally.resolved_wrongly),
            "false_alarms": sum(|tally| tally.false_alarms),
            "kinds": kinds, "confusion": self.confusion, "failures": self.failures,
        })
    }
}
