//! Parses the JUnit report that cargo-nextest writes.

use anyhow::{Context, Result};
use roxmltree::{Document, Node};
use std::time::Duration;

/// Prefix of the line that a test prints when it skips itself (`tests/src/skip.rs`).
const SKIPPED: &str = "SKIPPED ";

/// The result of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct TestCase {
    /// The test binary: `package`, `package::bin/name` or `package::name`.
    pub(crate) binary: String,
    /// The path of the test in its binary.
    pub(crate) name: String,
    pub(crate) took: Duration,
    pub(crate) outcome: Outcome,
}

/// Outcome of a test.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Passed,
    /// It failed, with this output, and passed at a later attempt.
    Flaky {
        output: String,
    },
    /// It returned early, because something is missing here.
    Skipped {
        reason: String,
    },
    /// With its output.
    Failed {
        output: String,
    },
}

impl TestCase {
    /// The binary and the path of the test.
    pub(crate) fn id(&self) -> String {
        format!("{} {}", self.binary, self.name)
    }
}

/// Parses a report.
///
/// # Errors
/// If it is not a JUnit report.
pub(crate) fn parse(xml: &str) -> Result<Vec<TestCase>> {
    // The output of a test may hold characters that XML cannot, which cargo-nextest does not replace.
    let is_valid = |letter: char| !matches!(letter, '\u{fffe}' | '\u{ffff}');
    let xml: String = xml.chars().map(|letter| if is_valid(letter) { letter } else { '\u{fffd}' }).collect();
    let document = Document::parse(&xml).context("parse the test report")?;
    let cases = document.descendants().filter(|node| node.has_tag_name("testcase"));
    cases.map(|case| test_case(case).context("a test of the report is incomplete")).collect()
}

fn test_case(case: Node<'_, '_>) -> Option<TestCase> {
    let seconds: f64 = case.attribute("time")?.parse().ok()?;
    Some(TestCase {
        binary: case.parent_element()?.attribute("name")?.to_owned(),
        name: case.attribute("name")?.to_owned(),
        took: Duration::try_from_secs_f64(seconds).ok()?,
        outcome: outcome(case),
    })
}

fn outcome(case: Node<'_, '_>) -> Outcome {
    let text = |name: &str| case.children().find(|node| node.has_tag_name(name)).and_then(|node| node.text());
    let output =
        || [text("system-err"), text("system-out")].into_iter().flatten().collect::<Vec<_>>().join("\n");
    let failure = case.children().find(|node| node.has_tag_name("failure") || node.has_tag_name("error"));
    if let Some(failure) = failure {
        let kind = failure.attribute("type").unwrap_or("failed");
        return Outcome::Failed { output: format!("{kind}\n{}", output()) };
    }
    if let Some(flaky) = case.children().find(|node| node.has_tag_name("flakyFailure")) {
        let parts = flaky.children().filter(|node| node.has_tag_name("system-err"));
        return Outcome::Flaky { output: parts.filter_map(|node| node.text()).collect() };
    }
    match output().lines().find_map(|line| line.split_once(SKIPPED)) {
        Some((_, skip)) => {
            let reason = skip.split_once(": ").map_or(skip, |(_, reason)| reason);
            Outcome::Skipped { reason: reason.to_owned() }
        }
        None => Outcome::Passed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const REPORT: &str = r#"<?xml version="1.0" encoding="UTF-8"?>
<testsuites name="nextest-run" tests="3" failures="1" errors="0" time="1.5">
  <testsuite name="nodeglass-tests::it" tests="3" disabled="0" errors="0" failures="1">
    <testcase name="a::b" classname="nodeglass-tests::it" time="1.250"/>
    <testcase name="a::c" classname="nodeglass-tests::it" time="0.5">
      <failure type="test failure with exit code 101">thread 'a::c' panicked</failure>
      <system-out>running 1 test</system-out>
      <system-err>left: 1 &lt; 2</system-err>
    </testcase>
    <testcase name="a::e" classname="nodeglass-tests::it" time="0.1">
      <flakyFailure timestamp="2026-11-28T00:00:00Z" time="61" type="test failure with exit code 101">
        <system-err>Error: no list of jobs</system-err>
      </flakyFailure>
    </testcase>
    <testcase name="a::d" classname="nodeglass-tests::it" time="0.1">
      <system-err>SKIPPED a::d: no chromium: none</system-err>
    </testcase>
  </testsuite>
</testsuites>"#;

    #[test]
    fn results_times_and_reasons_are_parsed() {
        let cases = parse(REPORT).unwrap();
        assert_eq!(cases.len(), 4);
        assert_eq!((cases[0].id().as_str(), cases[0].took.as_millis()), ("nodeglass-tests::it a::b", 1_250));
        assert_eq!(cases[0].outcome, Outcome::Passed);
        let Outcome::Failed { output } = &cases[1].outcome else { panic!("{cases:?}") };
        assert!(output.starts_with("test failure with exit code 101\nleft: 1 < 2"), "{output}");
        assert_eq!(cases[2].outcome, Outcome::Flaky { output: "Error: no list of jobs".into() });
        assert_eq!(cases[3].outcome, Outcome::Skipped { reason: "no chromium: none".into() });
    }

    #[test]
    fn a_character_that_xml_has_not_is_replaced() {
        let cases = parse(&REPORT.replace("no list of jobs", "no list\u{fffe} of jobs")).unwrap();
        assert_eq!(cases[2].outcome, Outcome::Flaky { output: "Error: no list\u{fffd} of jobs".into() });
    }

    #[test]
    fn anything_else_is_an_error() {
        assert!(parse("no report").is_err());
        assert!(parse("<testsuites><testcase name='x'/></testsuites>").is_err());
    }
}
