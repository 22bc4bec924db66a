//! The result of a check as text: a table for the terminal, and the whole report for an issue.

use super::judge::{Observed, Round, Verdict};
use std::{collections::BTreeMap, fmt::Write as _};

/// A reading that was compared with one reference in one phase.
#[derive(Clone, Debug)]
pub struct Comparison {
    /// Name of the reading.
    pub name: String,
    /// Label of the GPU: `GPU 0`.
    pub gpu: String,
    /// Process, for readings of a process.
    pub pid: Option<u32>,
    /// Name of the reference.
    pub reference: &'static str,
    /// `at rest` or `under load`.
    pub phase: &'static str,
    /// All rounds.
    pub rounds: Vec<Round>,
    /// The result.
    pub verdict: Verdict,
}

/// The result of a check.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Lines about the machine and the check.
    pub head: Vec<String>,
    /// CPU and memory of each program.
    pub costs: Vec<String>,
    /// All comparisons.
    pub comparisons: Vec<Comparison>,
}

/// Readings whose values identify a machine, which a report for an issue leaves out.
const PRIVATE: [&str; 3] = ["uuid", "serial", "pci"];
/// Maximum number of characters of a value.
const WIDTH: usize = 26;

impl Outcome {
    /// Number of comparisons that are equal, explained and different.
    pub fn counts(&self) -> [usize; 3] {
        let is = |wanted: usize| {
            self.comparisons.iter().filter(|comparison| rank(&comparison.verdict) == wanted).count()
        };
        [is(0), is(1), is(2)]
    }

    /// Returns whether something differs.
    pub fn is_different(&self) -> bool {
        self.counts()[2] > 0
    }

    /// The table: one row for each reading and reference, with the worst of all GPUs and phases.
    pub fn table(&self) -> String {
        let mut worst = BTreeMap::<(&str, bool, &str), &Comparison>::new();
        for comparison in &self.comparisons {
            let row = (comparison.name.as_str(), comparison.pid.is_some(), comparison.reference);
            let entry = worst.entry(row).or_insert(comparison);
            if comparison.weight() >= entry.weight() {
                *entry = comparison;
            }
        }
        self.text(worst.into_values())
    }

    /// The report: everything.
    pub fn report(&self) -> String {
        let mut comparisons: Vec<&Comparison> = self.comparisons.iter().collect();
        comparisons.sort_by_key(|comparison| std::cmp::Reverse(rank(&comparison.verdict)));
        self.text(comparisons.into_iter())
    }

    fn text<'a>(&self, comparisons: impl Iterator<Item = &'a Comparison>) -> String {
        let mut text = String::new();
        for line in &self.head {
            let _ = writeln!(text, "{line}");
        }
        let _ = writeln!(
            text,
            "\n{:<10} {:<22} {:<13} {:<7} {:<11} {:<WIDTH$} {:<WIDTH$} why",
            "result", "reading", "reference", "GPU", "phase", "node-probe", "reference's"
        );
        for comparison in comparisons {
            let (result, why) = match &comparison.verdict {
                Verdict::Equal => ("equal", ""),
                Verdict::Explained(why) => ("explained", why.as_str()),
                Verdict::Different(why) => ("DIFFERENT", why.as_str()),
            };
            let [probe, reference] =
                [comparison.value(|round| &round.probe), comparison.value(|round| &round.after)];
            let name = match comparison.pid {
                Some(pid) => format!("{} of {pid}", comparison.name),
                None => comparison.name.clone(),
            };
            let row = format!(
                "{result:<10} {name:<22} {:<13} {:<7} {:<11} {probe:<WIDTH$} {reference:<WIDTH$} {}",
                comparison.reference,
                comparison.gpu,
                comparison.phase,
                if comparison.is_private() { "" } else { why }
            );
            let _ = writeln!(text, "{}", row.trim_end());
        }
        text.push('\n');
        for line in &self.costs {
            let _ = writeln!(text, "{line}");
        }
        let [equal, explained, different] = self.counts();
        let _ = writeln!(text, "{equal} equal, {explained} explained, {different} different");
        text
    }
}

impl Comparison {
    /// Of comparisons with the same verdict, one with a value says more, and the last: under load, values are not zero.
    fn weight(&self) -> (usize, bool) {
        let has_value = self.rounds.iter().any(|round| !matches!(round.probe, Observed::Absent(_)));
        (rank(&self.verdict), has_value)
    }

    fn is_private(&self) -> bool {
        PRIVATE.contains(&self.name.as_str())
    }

    /// The last value of one side.
    fn value(&self, side: impl Fn(&Round) -> &Observed) -> String {
        let last = self.rounds.last().map(side);
        match last {
            Some(Observed::Text(_)) if self.is_private() => "(left out)".into(),
            Some(seen) => seen.to_string().chars().take(WIDTH).collect(),
            None => String::new(),
        }
    }
}

fn rank(verdict: &Verdict) -> usize {
    match verdict {
        Verdict::Equal => 0,
        Verdict::Explained(_) => 1,
        Verdict::Different(_) => 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn comparison(name: &str, phase: &'static str, value: Observed, verdict: Verdict) -> Comparison {
        let round = Round { before: value.clone(), probe: value.clone(), after: value };
        let (name, gpu) = (name.to_owned(), "GPU 0".to_owned());
        Comparison { name, gpu, pid: None, reference: "nvidia-smi", phase, rounds: vec![round], verdict }
    }

    #[test]
    fn the_table_has_the_worst_and_the_report_everything_but_identities() {
        let serial = || Observed::Text("1650000000001".into());
        let outcome = Outcome {
            comparisons: vec![
                comparison("temp_c", "at rest", Observed::Number(31.0), Verdict::Different("off".into())),
                comparison("temp_c", "under load", Observed::Number(60.0), Verdict::Equal),
                comparison("serial", "at rest", serial(), Verdict::Equal),
            ],
            ..Outcome::default()
        };
        assert_eq!((outcome.counts(), outcome.is_different()), ([2, 0, 1], true));
        let rows = |text: &str| text.lines().filter(|line| line.contains("temp_c")).count();
        assert_eq!((rows(&outcome.table()), rows(&outcome.report())), (1, 2));
        assert!(outcome.table().contains("DIFFERENT  temp_c"), "{}", outcome.table());
        assert!(!outcome.report().contains("1650000000001"));
    }
}
