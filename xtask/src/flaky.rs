//! Repeats tests on a busy machine, and lists failed ones.

use crate::junit::Outcome;
use crate::report::reason;
use crate::shell::duration;
use crate::tiers::{self, Selection};
use anyhow::{Context, Result, ensure};
use std::collections::BTreeMap;
use std::process::{Child, Command, ExitCode, Stdio};
use std::time::Instant;

/// Default number of runs, and of busy loops beside them.
const RUNS: u32 = 20;
const LOAD: u32 = 4;

/// The arguments of `cargo xtask flaky`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Options {
    runs: u32,
    load: u32,
    tests: Selection,
}

impl Options {
    /// Parses the arguments of `cargo xtask flaky`.
    ///
    /// # Errors
    /// A sentence about the invalid argument.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let (mut runs, mut load, mut others) = (RUNS, LOAD, Vec::new());
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut number = || args.next().and_then(|number| number.parse().ok());
            match arg.as_str() {
                "--runs" => runs = number().filter(|runs| *runs > 0).context("--runs needs a number")?,
                "--load" => load = number().context("--load needs a number of busy loops")?,
                other => others.push(other.to_owned()),
            }
        }
        Ok(Self { runs, load, tests: Selection::parse(&others)?.for_repetition()? })
    }
}

/// The failures of a test.
#[derive(Debug, Default)]
struct Failures {
    count: u32,
    first: Vec<String>,
}

/// Builds the tests, runs them repeatedly beside busy loops, and lists what failed.
pub(crate) fn run(options: &Options) -> Result<ExitCode> {
    let nextest = tiers::prepare(&options.tests)?;
    let load = Load::start(options.load)?;
    let (start, mut failures, mut tests) = (Instant::now(), BTreeMap::<String, Failures>::new(), 0);
    for run in 1..=options.runs {
        println!("\n── run {run} of {}, beside {} busy loops ──", options.runs, options.load);
        let report = options.tests.run(&nextest)?;
        for case in report.cases() {
            tests += u32::from(!matches!(case.outcome, Outcome::Skipped { .. }));
            if let Outcome::Failed { output } = &case.outcome {
                let failures = failures.entry(case.id()).or_default();
                failures.count += 1;
                if failures.first.is_empty() {
                    failures.first = reason(output);
                }
            }
        }
    }
    drop(load);
    ensure!(tests > 0, "no test is selected");
    println!("\n── {} runs in {} ──", options.runs, duration(start.elapsed()));
    for (test, failures) in &failures {
        println!("{test}: failed {} of {} times", failures.count, options.runs);
        for line in &failures.first {
            println!("    | {line}");
        }
    }
    let failed: u32 = failures.values().map(|failures| failures.count).sum();
    println!("{} passed, {failed} failed", tests - failed);
    Ok(if failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Busy loops, which end when this is dropped.
struct Load(Vec<Child>);

impl Load {
    fn start(number: u32) -> Result<Self> {
        let mut load = Self(Vec::new());
        for _ in 0..number {
            // Less than the tests: on two cores, four equals would leave them a third.
            let mut shell = Command::new("nice");
            // It ends by itself should this process be killed.
            shell.args([
                "-n",
                "10",
                "sh",
                "-c",
                &format!(
                    "while kill -0 {}; do i=0; while [ $i -lt 100000 ]; do i=$((i+1)); done; done",
                    std::process::id()
                ),
            ]);
            let shell = shell.stdin(Stdio::null()).stderr(Stdio::null()).spawn();
            load.0.push(shell.context("start a busy loop")?);
        }
        Ok(load)
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(args: &[&str]) -> Result<Options> {
        Options::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn runs_load_and_tests_are_parsed() {
        let parsed = options(&["--runs", "3", "--tier", "lab", "--load", "0", "stale"]).unwrap();
        let tests = Selection::parse(&["stale".into(), "--tier".into(), "lab".into()]).unwrap();
        let tests = tests.for_repetition().unwrap();
        assert_eq!(parsed, Options { runs: 3, load: 0, tests });
        assert_eq!(options(&[]).unwrap().runs, RUNS);
        for wrong in [&["--runs", "0"][..], &["--runs"], &["--load", "many"], &["--moon"], &["--lint"]] {
            assert!(options(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn busy_loops_end_with_their_guard() {
        let load = Load::start(2).unwrap();
        let pids: Vec<_> = load.0.iter().map(Child::id).collect();
        drop(load);
        assert!(pids.iter().all(|pid| !std::path::Path::new(&format!("/proc/{pid}")).exists()));
    }
}
