//! The tests run in rings, from what needs nothing to what needs a cluster and a browser; each says what it skipped.

use crate::report::{Report, Tally};
use crate::shell::{self, cargo, step};
use crate::system::{self, OpenSsl};
use crate::{instruments, page, tools};
use anyhow::{Context, Result, bail};
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// A ring of tests: what it shows and where its tests are.
struct Ring {
    name: &'static str,
    shows: &'static str,
    parts: &'static [Part],
}

/// Some of a ring's tests, run by one command.
struct Part {
    /// Which targets of the workspace. Always of the whole of it: another selection means other
    /// features of the dependencies, and those would be compiled once more.
    targets: &'static [&'static str],
    /// First part of the names of its tests in the integration binary, if it is only those.
    module: Option<&'static str>,
    /// Further arguments of the runner.
    flags: &'static [&'static str],
}

const UNITS: &[&str] = &["--lib", "--bins"];
const SYSTEM: &[&str] = &["--test", "it"];
const EVERY_INTEGRATION: &[&str] = &["--test", "*"];
const OTHER_RINGS: &[&str] = &["--skip", "house::", "--skip", "lab::", "--skip", "browser::"];
/// Tests that share one cluster, or one machine's CPU with a browser, run one after the other.
const SERIAL: &[&str] = &["--test-threads=1"];

const RINGS: &[Ring] = &[
    Ring {
        name: "unit",
        shows: "pure cores, and the rules of the house",
        parts: &[
            Part { targets: UNITS, module: None, flags: &[] },
            Part { targets: SYSTEM, module: Some("house::"), flags: &[] },
        ],
    },
    Ring {
        name: "edge",
        shows: "each edge against its real counterpart, and the relay as a program",
        parts: &[Part { targets: EVERY_INTEGRATION, module: None, flags: OTHER_RINGS }],
    },
    Ring {
        name: "lab",
        shows: "whole journeys on a real SLURM cluster",
        parts: &[Part { targets: SYSTEM, module: Some("lab::"), flags: SERIAL }],
    },
    Ring {
        name: "browser",
        shows: "a real browser doing what a user does",
        parts: &[Part { targets: SYSTEM, module: Some("browser::"), flags: SERIAL }],
    },
];

/// What of the tests is wished for.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Wish {
    filter: Option<String>,
    ring: Option<String>,
    /// Variables for the tests.
    variables: Vec<(&'static str, &'static str)>,
}

impl Wish {
    /// One whole ring, its tests told something by a variable.
    pub(crate) fn ring_with(name: &str, variable: (&'static str, &'static str)) -> Self {
        Self { filter: None, ring: Some(name.to_owned()), variables: vec![variable] }
    }

    /// Reads the arguments of `cargo xtask test`.
    ///
    /// # Errors
    /// One sentence about what is not understood.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut wish = Self::default();
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--ring" => {
                    let name = args.next().context("--ring needs a name")?;
                    if !RINGS.iter().any(|ring| ring.name == name) {
                        bail!("there is no ring {name:?}; the rings are {}", names());
                    }
                    wish.ring = Some(name.clone());
                }
                flag if flag.starts_with('-') => bail!("{flag:?} is not understood"),
                filter => wish.filter = Some(filter.to_owned()),
            }
        }
        Ok(wish)
    }

    fn wants(&self, ring: &Ring) -> bool {
        self.wants_named(ring.name)
    }

    fn wants_named(&self, ring: &str) -> bool {
        self.ring.as_ref().is_none_or(|name| name == ring)
    }
}

fn names() -> String {
    RINGS.iter().map(|ring| ring.name).collect::<Vec<_>>().join(", ")
}

/// Sets up, builds, and runs the rings that are wished for.
pub(crate) fn run(wish: &Wish) -> Result<ExitCode> {
    let instruments = prepare(wish)?;
    let mut report = Report::default();
    for ring in RINGS.iter().filter(|ring| wish.wants(ring)) {
        println!("\n── {}: {} ──", ring.name, ring.shows);
        let start = Instant::now();
        let mut tally = Tally::default();
        for part in ring.parts {
            run_part(part, wish, &instruments, &mut tally)?;
        }
        report.add(ring.name, tally, start.elapsed());
    }
    print!("{report}");
    let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    Ok(if report.is_good(strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Does everything that the tests lean on, in the order in which it leans on each other: the page is
/// inside the relay, and the tests start relay and probe as programs.
fn prepare(wish: &Wish) -> Result<Instruments> {
    let openssl = system::for_building()?;
    let mut instruments = Vec::new();
    if wish.ring.as_deref() != Some("unit") {
        system::for_testing()?;
        instruments = instruments::variables()?;
        page::build(&tools::page_tools()?)?;
    }
    step("building the binaries and the tests", || {
        let what = ["build", "--workspace", "--lib", "--bins", "--tests"];
        shell::run(cargo().args(what).args(openssl.flags()))
    })?;
    if wish.wants_named("edge") {
        step("building what is counted", || shell::run(&mut counted(openssl)))?;
    }
    Ok(instruments)
}

/// Builds what `tests/it/instructions.rs` counts: our own crates as a release has them, the others as they are. So
/// is the stand-in driver, whose library has one name for all builds.
fn counted(openssl: OpenSsl) -> Command {
    let mut command = cargo();
    command.args(["build", "--workspace", "--example", "count"]).args(openssl.flags());
    for package in ["nodeglass-protocol", "node-probe", "nodeglass-relay", "nodeglass-tests"] {
        command.arg("--config").arg(format!("profile.dev.package.{package}.opt-level=2"));
    }
    command
}

/// Variables by which the tests find what they measure with.
type Instruments = Vec<(&'static str, PathBuf)>;

fn run_part(part: &Part, wish: &Wish, instruments: &Instruments, tally: &mut Tally) -> Result<()> {
    let filter = wish.filter.as_deref();
    let openssl = system::for_building()?;
    let mut command = cargo();
    // The tests that are left run even when one fails: the summary is of all of them.
    command
        .args(["test", "--workspace", "--no-fail-fast"])
        .args(openssl.flags())
        .args(part.targets)
        .arg("--");
    match (part.module, filter) {
        // Rust's test runner takes several filters as "or", so that both at once need the names.
        (Some(module), Some(filter)) => {
            let names = matching(part, module, filter, openssl)?;
            if names.is_empty() {
                return Ok(());
            }
            command.args(names).arg("--exact");
        }
        (module, filter) => drop(command.args(module.or(filter))),
    }
    let instruments = instruments.iter().map(|(name, path)| (*name, path));
    stream(command.args(part.flags).envs(wish.variables.iter().copied()).envs(instruments), tally)
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

/// Runs a test command, shows what it prints as it comes, and counts.
fn stream(command: &mut Command, tally: &mut Tally) -> Result<()> {
    let (reader, writer) = std::io::pipe().context("make a pipe")?;
    command.stdin(Stdio::null()).stdout(writer.try_clone()?).stderr(writer);
    let mut child = command.spawn().context("start cargo test")?;
    // The command still holds the pipe's writing ends; let go, or the end never comes.
    command.stdout(Stdio::null()).stderr(Stdio::null());
    for line in BufReader::new(reader).split(b'\n') {
        let line = line?;
        let line = String::from_utf8_lossy(&line);
        println!("{line}");
        tally.note(&line);
    }
    tally.end(child.wait()?.success());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wish(args: &[&str]) -> Result<Wish> {
        Wish::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_filter_and_a_ring_are_understood_in_any_order() {
        let both = Wish { filter: Some("stale".into()), ring: Some("lab".into()), ..Wish::default() };
        assert_eq!(wish(&["stale", "--ring", "lab"]).unwrap(), both);
        assert_eq!(wish(&["--ring", "lab", "stale"]).unwrap(), both);
    }

    #[test]
    fn what_the_runner_prints_is_counted_to_the_last_line() {
        let mut tally = Tally::default();
        let script = "echo 'test result: ok. 3 passed; 0 failed; 0 ignored'; echo 'SKIPPED b: no root' >&2";
        stream(Command::new("sh").args(["-c", script]), &mut tally).unwrap();
        let mut report = Report::default();
        report.add("unit", tally, std::time::Duration::ZERO);
        assert!(report.to_string().ends_with("2 passed, 0 failed, 1 skipped\n"), "{report}");
    }

    #[test]
    fn an_unknown_ring_is_answered_with_the_known_ones() {
        let error = wish(&["--ring", "moon"]).unwrap_err().to_string();
        assert!(error.contains("\"moon\"") && error.contains("unit, edge, lab"), "{error}");
    }
}
