//! The summary of a test run: passed, failed and skipped tests per tier, the reasons, and the slowest tests.

use crate::junit::{Outcome, TestCase};
use crate::shell::duration;
use std::cmp::Reverse;
use std::fmt;
use std::time::Duration;

/// Maximum number of lines, and of characters of a line, that the summary shows of a failed test's output.
const REASON_LINES: usize = 8;
const REASON_COLUMNS: usize = 300;
/// Number of tests in the list of the slowest.
const SLOWEST: usize = 30;

/// The name of a tier, and whether a test belongs to it.
pub(crate) type TierTests = (&'static str, fn(&TestCase) -> bool);

/// The results of all tiers.
#[derive(Debug, Default)]
pub(crate) struct Report {
    tiers: Vec<(&'static str, Vec<TestCase>)>,
    took: Duration,
}

impl Report {
    /// Sorts the results of a run into tiers: the first whose predicate holds.
    pub(crate) fn new(cases: Vec<TestCase>, tiers: &[TierTests], took: Duration) -> Self {
        let mut sorted: Vec<_> = tiers.iter().map(|(name, _)| (*name, Vec::new())).collect();
        for case in cases {
            if let Some(index) = tiers.iter().position(|(_, contains)| contains(&case)) {
                sorted[index].1.push(case);
            }
        }
        Self { tiers: sorted, took }
    }

    /// Returns whether nothing failed; skips count as failures if `strict`.
    pub(crate) fn is_good(&self, strict: bool) -> bool {
        self.cases().all(|case| match case.outcome {
            Outcome::Passed | Outcome::Flaky { .. } => true,
            Outcome::Skipped { .. } => !strict,
            Outcome::Failed { .. } => false,
        })
    }

    /// The slowest tests, as a Markdown table.
    pub(crate) fn slowest(&self) -> String {
        let mut cases: Vec<_> = self.cases().collect();
        cases.sort_by_key(|case| Reverse(case.took));
        let rows = cases.iter().take(SLOWEST);
        let rows = rows.map(|case| format!("| {:.0} | `{}` |\n", case.took.as_secs_f64(), case.name));
        format!("| s | test |\n|--:|--|\n{}", rows.collect::<String>())
    }

    /// All results.
    pub(crate) fn cases(&self) -> impl Iterator<Item = &TestCase> {
        self.tiers.iter().flat_map(|(_, cases)| cases)
    }
}

/// Passed, failed and skipped tests.
fn counts<'a>(cases: impl Iterator<Item = &'a TestCase>) -> (usize, usize, usize) {
    cases.fold((0, 0, 0), |(passed, failed, skipped), case| match case.outcome {
        Outcome::Passed | Outcome::Flaky { .. } => (passed + 1, failed, skipped),
        Outcome::Failed { .. } => (passed, failed + 1, skipped),
        Outcome::Skipped { .. } => (passed, failed, skipped + 1),
    })
}

/// The lines of a failed test's output that tell most: those from the panic on, or else the last ones.
pub(crate) fn reason(output: &str) -> Vec<String> {
    let is_noise =
        |line: &&str| line.trim().is_empty() || line.starts_with("note: ") || line.starts_with("running ");
    // Rust's and anyhow's heading, which differ in case.
    let lines = output.lines().take_while(|line| !line.trim().eq_ignore_ascii_case("stack backtrace:"));
    let lines: Vec<&str> = lines.filter(|line| !is_noise(line)).collect();
    let start = lines
        .iter()
        .position(|line| line.contains("panicked at") || line.starts_with("Error: "))
        .unwrap_or_else(|| lines.len().saturating_sub(REASON_LINES));
    let shown = lines[start..].iter().take(REASON_LINES);
    shown.map(|line| line.chars().take(REASON_COLUMNS).collect()).collect()
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n── summary ──")?;
        for (tier, cases) in &self.tiers {
            let (passed, failed, skipped) = counts(cases.iter());
            let total = duration(cases.iter().map(|case| case.took).sum());
            writeln!(f, "{tier:8} {passed:4} passed {failed:4} failed {skipped:4} skipped   {total} in all")?;
            for case in cases {
                match &case.outcome {
                    Outcome::Passed => {}
                    Outcome::Skipped { reason } => writeln!(f, "    skipped  {}: {reason}", case.name)?,
                    Outcome::Flaky { output } | Outcome::Failed { output } => {
                        let is_flaky = matches!(case.outcome, Outcome::Flaky { .. });
                        writeln!(f, "    {:8} {}", if is_flaky { "flaky" } else { "failed" }, case.name)?;
                        for line in reason(output) {
                            writeln!(f, "             | {line}")?;
                        }
                    }
                }
            }
        }
        let (passed, failed, skipped) = counts(self.cases());
        writeln!(f, "the tests took {}", duration(self.took))?;
        writeln!(f, "{passed} passed, {failed} failed, {skipped} skipped")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn case(name: &str, outcome: Outcome) -> TestCase {
        TestCase { binary: "it".into(), name: name.into(), took: Duration::from_secs(2), outcome }
    }

    fn report(cases: Vec<TestCase>) -> Report {
        Report::new(
            cases,
            &[("lab", |case| case.name.starts_with("lab::")), ("edge", |_| true)],
            Duration::ZERO,
        )
    }

    #[test]
    fn failures_and_skips_are_named() {
        let output = "exit code 101\nrunning 1 test\nthread 'b' panicked at b.rs:1:2:\nleft: 1\n\
                      stack backtrace:\n   0: rust_begin_unwind";
        let report = report(vec![
            case("lab::a", Outcome::Passed),
            case("b", Outcome::Failed { output: output.into() }),
            case("c", Outcome::Skipped { reason: "needs a GPU".into() }),
        ]);
        let text = report.to_string();
        assert!(text.contains("lab         1 passed    0 failed"), "{text}");
        let failure =
            "failed   b\n             | thread 'b' panicked at b.rs:1:2:\n             | left: 1\n    sk";
        assert!(text.contains(failure), "{text}");
        assert!(text.contains("skipped  c: needs a GPU"), "{text}");
        assert!(text.ends_with("1 passed, 1 failed, 1 skipped\n"), "{text}");
        assert!(!report.is_good(false));
    }

    #[test]
    fn a_skipped_test_is_a_failure_only_if_strict() {
        let report = report(vec![case("a", Outcome::Skipped { reason: "no chromium".into() })]);
        assert!(report.is_good(false) && !report.is_good(true));
    }

    #[test]
    fn the_slowest_tests_come_first() {
        let mut slow = case("slow", Outcome::Passed);
        slow.took = Duration::from_secs(60);
        let table = report(vec![case("fast", Outcome::Passed), slow]).slowest();
        assert_eq!(table, "| s | test |\n|--:|--|\n| 60 | `slow` |\n| 2 | `fast` |\n");
    }

    #[test]
    fn without_a_panic_the_end_of_the_output_is_shown() {
        let output: String = (0..20).map(|line| format!("line {line}\n")).collect();
        assert_eq!(reason(&output).last().unwrap(), "line 19");
        assert_eq!(
            reason("Error: no job\n\nCaused by:\n    timeout\n\nStack backtrace:\n   0: main"),
            ["Error: no job", "Caused by:", "    timeout"]
        );
    }
}
