//! The summary of a test run: passed, failed and skipped tests per tier, with the names of the latter
//! two and the reasons of failures.

use crate::shell::duration;
use std::fmt;
use std::time::Duration;

/// Printed by a test that is skipped (`tests/src/skip.rs`).
const SKIPPED: &str = "SKIPPED ";

/// Prefix of the ignore reason of a test that is run by others, elsewhere.
const PART_OF_OTHERS: &str = "it is run by other tests";

/// Maximum number of lines, and of characters of a line, that the summary shows of a failed test's output.
const REASON_LINES: usize = 6;
const REASON_COLUMNS: usize = 300;

/// The results of a tier.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    passed: usize,
    failed: Vec<String>,
    skipped: Vec<Skip>,
    /// The first lines that each failed test printed: why it failed, for a reader of the end of a long log.
    why: Vec<(String, Vec<String>)>,
    /// Whether the output of the last test in `why` continues.
    in_output: bool,
    /// Names in the runner's last `failures:` list before its closing line.
    list: Option<Vec<String>>,
    /// Tests that reported that they were skipped; the runner counts them as passed.
    unshown: usize,
    /// The runner failed although no test did.
    broken: bool,
}

/// A skipped test, and why.
#[derive(Debug, PartialEq, Eq)]
struct Skip {
    test: String,
    why: String,
}

impl Tally {
    /// Processes a line of output of the runner or a test.
    pub(crate) fn note(&mut self, line: &str) {
        self.note_output(line);
        if let Some((_, skip)) = line.split_once(SKIPPED) {
            let (test, why) = skip.split_once(": ").unwrap_or((skip, "no reason given"));
            self.skip(test, why);
            self.unshown += 1;
        } else if let Some(counts) = line.strip_prefix("test result: ") {
            self.passed += count(counts, " passed");
            let failed = self.list.take().unwrap_or_default();
            let unnamed = count(counts, " failed").saturating_sub(failed.len());
            self.failed.extend(failed);
            self.failed.extend(std::iter::repeat_n("(not named by the runner)".to_owned(), unnamed));
        } else if line == "failures:" {
            self.list = Some(Vec::new());
        } else if let (Some(list), Some(name)) = (&mut self.list, line.strip_prefix("    ")) {
            list.push(name.to_owned());
        } else if let Some((test, why)) = line.split_once(" ... ignored") {
            let why = why.trim_start_matches([',', ' ']);
            if why.starts_with(PART_OF_OTHERS) {
                return;
            }
            self.skip(test.trim_start_matches("test "), if why.is_empty() { "ignored" } else { why });
        }
    }

    /// Keeps the first lines of a failed test's output.
    fn note_output(&mut self, line: &str) {
        if let Some(test) = line.strip_prefix("---- ").and_then(|rest| rest.strip_suffix(" stdout ----")) {
            self.why.push((test.to_owned(), Vec::new()));
            self.in_output = true;
        } else if line == "failures:"
            || line.starts_with("stack backtrace")
            || line.starts_with("Stack backtrace")
        {
            self.in_output = false;
        } else if self.in_output
            && !line.trim().is_empty()
            && let Some((_, lines)) = self.why.last_mut()
            && lines.len() < REASON_LINES
        {
            lines.push(line.chars().take(REASON_COLUMNS).collect());
        }
    }

    fn skip(&mut self, test: &str, why: &str) {
        self.skipped.push(Skip { test: test.to_owned(), why: why.to_owned() });
    }

    /// Processes the exit status of the runner.
    pub(crate) fn end(&mut self, success: bool) {
        self.broken |= !success && self.failed.is_empty();
        self.passed = self.passed.saturating_sub(std::mem::take(&mut self.unshown));
        self.list = None;
    }
}

/// The number before a word in `ok. 3 passed; 0 failed; …`.
fn count(counts: &str, word: &str) -> usize {
    let before = counts.split(word).next().unwrap_or_default();
    before.rsplit(' ').next().and_then(|number| number.parse().ok()).unwrap_or(0)
}

/// The results of all tiers.
#[derive(Debug, Default)]
pub(crate) struct Report {
    tiers: Vec<(&'static str, Tally, Duration)>,
}

impl Report {
    /// Adds a tier.
    pub(crate) fn add(&mut self, tier: &'static str, tally: Tally, took: Duration) {
        self.tiers.push((tier, tally, took));
    }

    /// Returns whether nothing failed; skips count as failures if `strict`.
    pub(crate) fn is_good(&self, strict: bool) -> bool {
        self.tiers.iter().all(|(_, tally, _)| {
            !tally.broken && tally.failed.is_empty() && (tally.skipped.is_empty() || !strict)
        })
    }

    fn total(&self, count: impl Fn(&Tally) -> usize) -> usize {
        self.tiers.iter().map(|(_, tally, _)| count(tally)).sum()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "\n── summary ──")?;
        for (tier, tally, took) in &self.tiers {
            let (passed, failed, skipped) = (tally.passed, tally.failed.len(), tally.skipped.len());
            let took = duration(*took);
            writeln!(f, "{tier:8} {passed:4} passed {failed:4} failed {skipped:4} skipped   {took}")?;
            for test in &tally.failed {
                writeln!(f, "    failed   {test}")?;
                let why = tally.why.iter().find(|(of, _)| of == test);
                for line in why.iter().flat_map(|(_, lines)| lines) {
                    writeln!(f, "             | {line}")?;
                }
            }
            for Skip { test, why } in &tally.skipped {
                writeln!(f, "    skipped  {test}: {why}")?;
            }
            if tally.broken {
                writeln!(f, "    broken   the test runner itself failed; see above")?;
            }
        }
        let (passed, failed) = (self.total(|tally| tally.passed), self.total(|tally| tally.failed.len()));
        let failed = failed + self.total(|tally| usize::from(tally.broken));
        writeln!(f, "{passed} passed, {failed} failed, {} skipped", self.total(|tally| tally.skipped.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(lines: &str, success: bool) -> Report {
        let mut tally = Tally::default();
        lines.lines().for_each(|line| tally.note(line));
        tally.end(success);
        let mut report = Report::default();
        report.add("unit", tally, Duration::from_secs(1));
        report
    }

    #[test]
    fn failures_and_skips_are_named() {
        let report = report(
            "test a::b ... ok\ntest a::c ... FAILED\ntest a::d ... ignored, needs a GPU\n\nfailures:\n\n\
             ---- a::c stdout ----\n    left: 1\n\nfailures:\n    a::c\n\n\
             test result: FAILED. 1 passed; 1 failed; 1 ignored; 0 measured",
            false,
        );
        let text = report.to_string();
        assert!(text.contains("failed   a::c\n             |     left: 1\n    skipped"), "{text}");
        assert!(text.contains("skipped  a::d: needs a GPU"), "{text}");
        assert!(text.ends_with("1 passed, 1 failed, 1 skipped\n"), "{text}");
        assert!(!report.is_good(false));
    }

    #[test]
    fn a_test_that_skips_itself_has_not_passed() {
        let lines = "test a ... SKIPPED a: no chromium\nok\ntest b ... ok\n\
                     test result: ok. 2 passed; 0 failed; 0 ignored";
        let report = report(lines, true);
        assert!(report.to_string().ends_with("1 passed, 0 failed, 1 skipped\n"), "{report}");
        assert!(report.is_good(false));
        assert!(!report.is_good(true), "with CI=true a skip is a failure");
    }

    #[test]
    fn what_other_tests_run_is_not_skipped() {
        let lines = "test a ... ignored, it is run by other tests, inside the cluster\n\
                     test result: ok. 0 passed; 0 failed; 1 ignored";
        assert!(report(lines, true).is_good(true));
    }

    #[test]
    fn a_runner_that_dies_is_a_failure_though_no_test_failed() {
        assert!(!report("test a ... ok\nerror: could not compile", false).is_good(false));
    }
}
