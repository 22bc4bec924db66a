//! Runs the tests in tiers, from those without requirements to those with a cluster and a browser; skips
//! are reported.

use crate::report::{Report, Tally};
use crate::shell::{self, cargo, step};
use crate::system::{self, OpenSsl};
use crate::{page, test_tools, tools};
use anyhow::{Context, Result, anyhow, bail};
use std::io::{BufRead, BufReader, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// A tier of tests.
struct Tier {
    name: &'static str,
    description: &'static str,
    parts: &'static [Part],
    /// Whether it runs at the same time as the tier before it: it mostly waits, and shares nothing with it.
    beside_previous: bool,
}

/// A part of a tier, run by one command.
struct Part {
    /// Test targets. Always of the whole workspace: another selection would unify features differently
    /// and rebuild dependencies.
    targets: &'static [&'static str],
    /// Prefix of its tests in the integration binary, if it is only those.
    module: Option<&'static str>,
    /// Additional arguments of the test runner.
    flags: &'static [&'static str],
}

const UNITS: &[&str] = &["--lib", "--bins"];
const SYSTEM: &[&str] = &["--test", "it"];
const EVERY_INTEGRATION: &[&str] = &["--test", "*"];
const OTHER_TIERS: &[&str] = &["--skip", "house::", "--skip", "lab::", "--skip", "browser::"];
/// For tests that share one cluster, or one machine's CPU with a browser.
const SERIAL: &[&str] = &["--test-threads=1"];

const TIERS: &[Tier] = &[
    Tier {
        name: "unit",
        description: "pure cores, and the rules of the house",
        parts: &[
            Part { targets: UNITS, module: None, flags: &[] },
            Part { targets: SYSTEM, module: Some("house::"), flags: &[] },
        ],
        beside_previous: false,
    },
    Tier {
        name: "edge",
        description: "each edge against its real counterpart, and the relay as a program",
        parts: &[Part { targets: EVERY_INTEGRATION, module: None, flags: OTHER_TIERS }],
        beside_previous: false,
    },
    Tier {
        name: "lab",
        description: "whole journeys on a real SLURM cluster",
        parts: &[Part { targets: SYSTEM, module: Some("lab::"), flags: SERIAL }],
        beside_previous: true,
    },
    Tier {
        name: "browser",
        description: "a real browser doing what a user does",
        parts: &[Part { targets: SYSTEM, module: Some("browser::"), flags: SERIAL }],
        beside_previous: false,
    },
];

/// The selected tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    filter: Option<String>,
    tier: Option<String>,
    /// Environment variables for the tests.
    variables: Vec<(&'static str, &'static str)>,
}

impl Selection {
    /// One complete tier, with an environment variable.
    pub(crate) fn tier_with(name: &str, variable: (&'static str, &'static str)) -> Self {
        Self { filter: None, tier: Some(name.to_owned()), variables: vec![variable] }
    }

    /// Only the tests whose names contain `filter`.
    pub(crate) fn only(self, filter: &str) -> Self {
        Self { filter: Some(filter.to_owned()), ..self }
    }

    /// Parses the arguments of `cargo xtask test`.
    ///
    /// # Errors
    /// A sentence about the invalid argument.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut selection = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--tier" => {
                    let name = args.next().context("--tier needs a name")?;
                    if !TIERS.iter().any(|tier| tier.name == name) {
                        bail!("there is no tier {name:?}; the tiers are {}", names());
                    }
                    selection.tier = Some(name.clone());
                }
                flag if flag.starts_with('-') => bail!("{flag:?} is not understood"),
                filter => selection.filter = Some(filter.to_owned()),
            }
        }
        Ok(selection)
    }

    fn selects(&self, tier: &Tier) -> bool {
        self.tier.as_ref().is_none_or(|name| name == tier.name)
    }
}

fn names() -> String {
    TIERS.iter().map(|tier| tier.name).collect::<Vec<_>>().join(", ")
}

/// Installs, builds, and runs the selected tiers.
pub(crate) fn run(selection: &Selection) -> Result<ExitCode> {
    let test_tools = prepare(selection)?;
    let mut report = Report::default();
    let selected: Vec<&Tier> = TIERS.iter().filter(|tier| selection.selects(tier)).collect();
    for together in selected.chunk_by(|_, next| next.beside_previous) {
        for (tier, tally, took) in run_together(together, selection, &test_tools)? {
            report.add(tier, tally, took);
        }
    }
    print!("{report}");
    let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    Ok(if report.is_good(strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The results of a tier, and how long it ran.
type TierResult = (&'static str, Tally, Duration);

/// Runs tiers at the same time. The first prints as it runs, each other one when it is done.
fn run_together(
    tiers: &[&'static Tier],
    selection: &Selection,
    test_tools: &TestTools,
) -> Result<Vec<TierResult>> {
    let Some((first, others)) = tiers.split_first() else { return Ok(Vec::new()) };
    std::thread::scope(|scope| {
        let others: Vec<_> = others
            .iter()
            .map(|tier| {
                scope.spawn(|| {
                    let mut output = Vec::new();
                    let result = run_tier(tier, selection, test_tools, &mut output);
                    std::io::stdout().lock().write_all(&output)?;
                    result
                })
            })
            .collect();
        let mut results = vec![run_tier(first, selection, test_tools, &mut std::io::stdout())?];
        for other in others {
            results.push(other.join().map_err(|_| anyhow!("a tier ended with a panic"))??);
        }
        Ok(results)
    })
}

fn run_tier(
    tier: &'static Tier,
    selection: &Selection,
    test_tools: &TestTools,
    output: &mut dyn Write,
) -> Result<TierResult> {
    writeln!(output, "\n── {}: {} ──", tier.name, tier.description)?;
    let start = Instant::now();
    let mut tally = Tally::default();
    for part in tier.parts {
        run_part(part, selection, test_tools, &mut tally, output)?;
    }
    Ok((tier.name, tally, start.elapsed()))
}

/// Builds everything that the tests depend on, in order: the page is part of the relay, and the tests
/// start relay and probe as programs.
fn prepare(selection: &Selection) -> Result<TestTools> {
    let openssl = system::for_building()?;
    let mut test_tools = Vec::new();
    if selection.tier.as_deref() != Some("unit") {
        system::for_testing()?;
        test_tools = test_tools::variables()?;
        page::build(&tools::page_tools()?)?;
    }
    step("building the binaries and the tests", || {
        // The example is what `tests/it/instructions.rs` counts.
        let what = ["build", "--workspace", "--lib", "--bins", "--tests", "--example", "count"];
        shell::run(cargo().args(what).args(openssl.flags()))
    })?;
    Ok(test_tools)
}

/// Environment variables that locate the test tools.
type TestTools = Vec<(&'static str, PathBuf)>;

fn run_part(
    part: &Part,
    selection: &Selection,
    test_tools: &TestTools,
    tally: &mut Tally,
    output: &mut dyn Write,
) -> Result<()> {
    let filter = selection.filter.as_deref();
    let openssl = system::for_building()?;
    let mut command = cargo();
    // The remaining tests run even if one fails: the summary covers all of them.
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(openssl.flags())
        .args(part.targets)
        .arg("--");
    match (part.module, filter) {
        // Rust's test runner combines filters with "or", so both at once require the names.
        (Some(module), Some(filter)) => {
            let names = matching(part, module, filter, openssl)?;
            if names.is_empty() {
                return Ok(());
            }
            command.args(names).arg("--exact");
        }
        (module, filter) => drop(command.args(module.or(filter))),
    }
    let test_tools = test_tools.iter().map(|(name, path)| (*name, path));
    command.args(part.flags).envs(selection.variables.iter().copied()).envs(test_tools);
    stream(&mut command, tally, output)
}

/// The names of a module's tests that contain the filter.
fn matching(part: &Part, module: &str, filter: &str, openssl: OpenSsl) -> Result<Vec<String>> {
    let output = cargo()
        .args(["test", "--quiet", "--workspace"])
        .args(openssl.flags())
        .args(part.targets)
        .args(["--", "--list", "--format=terse", module])
        .output()
        .context("list the tests")?;
    let list = String::from_utf8_lossy(&output.stdout);
    let names = list.lines().filter_map(|line| line.strip_suffix(": test"));
    Ok(names.filter(|name| name.contains(filter)).map(str::to_owned).collect())
}

/// Runs a test command, forwarding its output and counting results.
fn stream(command: &mut Command, tally: &mut Tally, output: &mut dyn Write) -> Result<()> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("start cargo test")?;
    // The command still holds the write ends of the pipe; drop them, or the end is never reached.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        writeln!(output, "{line}")?;
        tally.note(&line);
    }
    tally.end(child.wait()?.success());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selection(args: &[&str]) -> Result<Selection> {
        Selection::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_filter_and_a_tier_are_accepted_in_any_order() {
        let both =
            Selection { filter: Some("stale".into()), tier: Some("lab".into()), ..Selection::default() };
        assert_eq!(selection(&["stale", "--tier", "lab"]).unwrap(), both);
        assert_eq!(selection(&["--tier", "lab", "stale"]).unwrap(), both);
    }

    #[test]
    fn the_runners_output_is_counted_to_the_last_line() {
        let mut tally = Tally::default();
        let script = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; echo 'SKIPPED b: no root' >&2";
        let mut output = Vec::new();
        stream(Command::new("sh").args(["-c", script]), &mut tally, &mut output).unwrap();
        assert_eq!(output.iter().filter(|byte| **byte == b'\n').count(), 2);
        let mut report = Report::default();
        report.add("unit", tally, std::time::Duration::ZERO);
        assert!(report.to_string().ends_with("2 passed, 0 failed, 1 skipped\n"), "{report}");
    }

    #[test]
    fn an_unknown_tier_is_reported_with_the_known_ones() {
        let error = selection(&["--tier", "moon"]).unwrap_err().to_string();
        assert!(error.contains("\"moon\"") && error.contains("unit, edge, lab"), "{error}");
    }
}
