//! Runs the tests in tiers, from those without requirements to those with a cluster and a browser; skips
//! are reported.

use crate::junit::TestCase;
use crate::nextest::{Nextest, TARGETS};
use crate::report::Report;
use crate::shell::{self, cargo, root, step};
use crate::{lint, page, system, test_tools};
use anyhow::{Context, Result, anyhow, bail, ensure};
use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Instant;

/// A tier of tests.
struct Tier {
    name: &'static str,
    /// Its tests, for nextest.
    filterset: &'static str,
    /// Whether a test that no earlier tier contains is one of its tests.
    contains: fn(&TestCase) -> bool,
}

/// The tiers: pure cores and the rules of the house; whole journeys on a real SLURM cluster; a real browser doing what
/// a user does; each edge against its real counterpart, and the relay as a program.
const TIERS: &[Tier] = &[
    Tier {
        name: "unit",
        filterset: "kind(lib) | kind(bin) | (binary_id(nodeglass-tests::it) & test(/^house::/))",
        contains: |case| {
            !case.binary.contains("::") || case.binary.contains("::bin/") || case.name.starts_with("house::")
        },
    },
    Tier {
        name: "lab",
        filterset: "binary_id(nodeglass-tests::it) & test(/^lab::/)",
        contains: |case| case.name.starts_with("lab::"),
    },
    Tier {
        name: "browser",
        filterset: "binary_id(nodeglass-tests::it) & test(/^browser::/)",
        contains: |case| case.name.starts_with("browser::"),
    },
    Tier {
        name: "edge",
        filterset: "kind(test) - (binary_id(nodeglass-tests::it) & test(/^(house|lab|browser)::/))",
        contains: |_| true,
    },
];

/// The seed of the inputs that property tests generate: of one commit, each run tests the same.
const SEED: (&str, &str) = ("PROPTEST_RNG_SEED", "1");

/// The selected tests.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Selection {
    filter: Option<String>,
    tier: Option<&'static str>,
    /// Environment variables for the tests.
    variables: Vec<(&'static str, &'static str)>,
    /// Whether lints are checked while the tests run.
    lint: bool,
    /// Whether the slowest tests are listed in CONTRIBUTING.md.
    record: bool,
    /// Whether all tests run, however many fail.
    keeps_going: bool,
}

impl Selection {
    /// One complete tier, with an environment variable.
    pub(crate) fn tier_with(name: &'static str, variable: (&'static str, &'static str)) -> Self {
        Self { tier: Some(name), variables: vec![variable], ..Self::default() }
    }

    /// Only the tests whose names contain `filter`.
    pub(crate) fn only(self, filter: &str) -> Self {
        Self { filter: Some(filter.to_owned()), ..self }
    }

    /// Converts it for a repetition, in which a test that fails once has failed, all tests run, and each run generates other
    /// inputs for property tests.
    ///
    /// # Errors
    /// If lints or a record of the slowest tests were requested, which a repetition cannot use.
    pub(crate) fn for_repetition(mut self) -> Result<Self> {
        ensure!(!self.lint && !self.record, "--lint and --record are for cargo xtask test");
        self.variables = vec![("NEXTEST_RETRIES", "0")];
        self.keeps_going = true;
        Ok(self)
    }

    /// Parses the arguments of `cargo xtask test`.
    ///
    /// # Errors
    /// A sentence about the invalid argument.
    pub(crate) fn parse(args: &[String]) -> Result<Self> {
        let mut selection = Self { variables: vec![SEED], ..Self::default() };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            match arg.as_str() {
                "--tier" => {
                    let name = args.next().context("--tier needs a name")?;
                    let tier = TIERS.iter().find(|tier| tier.name == name);
                    let tier = tier
                        .with_context(|| format!("there is no tier {name:?}; the tiers are {}", names()))?;
                    selection.tier = Some(tier.name);
                }
                "--lint" => selection.lint = true,
                "--record" => selection.record = true,
                flag if flag.starts_with('-') => bail!("{flag:?} is not understood"),
                filter => selection.filter = Some(filter.to_owned()),
            }
        }
        Ok(selection)
    }

    /// Runs the selected tests, which are built.
    ///
    /// # Errors
    /// If the test runner itself fails.
    pub(crate) fn run(&self, nextest: &Nextest) -> Result<Report> {
        let selected = TIERS.iter().filter(|tier| self.tier.is_none_or(|name| name == tier.name));
        let filtersets: Vec<_> = selected.map(|tier| format!("({})", tier.filterset)).collect();
        let start = Instant::now();
        let cases = nextest.run(
            &filtersets.join(" | "),
            self.filter.as_deref(),
            &self.variables,
            self.keeps_going,
        )?;
        let tiers: Vec<_> = TIERS.iter().map(|tier| (tier.name, tier.contains)).collect();
        Ok(Report::new(cases, &tiers, start.elapsed()))
    }
}

fn names() -> String {
    TIERS.iter().map(|tier| tier.name).collect::<Vec<_>>().join(", ")
}

/// Installs, builds, and runs the selected tests.
pub(crate) fn run(selection: &Selection) -> Result<ExitCode> {
    let nextest = prepare(selection)?;
    let (report, lints) = std::thread::scope(|scope| {
        // The tests mostly wait, and lints are checked at a low priority.
        let lints = selection.lint.then(|| scope.spawn(lint::run_in_background));
        let report = selection.run(&nextest);
        (report, lints.map(|lints| lints.join().map_err(|_| anyhow!("checking the lints panicked"))))
    });
    let report = report?;
    print!("{report}");
    ensure!(report.cases().next().is_some(), "no test is selected");
    if selection.record {
        ensure!(selection.filter.is_none() && selection.tier.is_none(), "--record needs all tests");
        record(&report)?;
    }
    lints.transpose()?.transpose()?;
    let strict = std::env::var("CI").is_ok_and(|ci| ci == "true");
    Ok(if report.is_good(strict) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds everything that the tests depend on: the relay embeds the page, and the tests start relay and probe as
/// programs.
pub(crate) fn prepare(selection: &Selection) -> Result<Nextest> {
    system::for_building()?;
    if selection.tier == Some("unit") {
        build()?;
        return Nextest::new(Vec::new());
    }
    // What is installed comes over the network, while the processors compile.
    let tools = std::thread::scope(|scope| {
        let tools = scope.spawn(|| system::for_testing().and_then(|()| test_tools::variables()));
        page::build_beside(page::Build::Quick, build)?;
        tools.join().map_err(|_| anyhow!("installing the test tools panicked"))?
    })?;
    build()?;
    Nextest::new(tools)
}

fn build() -> Result<()> {
    let openssl = system::for_building()?;
    step("building the binaries and the tests", || {
        // The example is what `tests/it/instructions.rs` counts.
        shell::run(cargo().arg("build").args(TARGETS).args(["--example", "count"]).args(openssl.flags()))
    })
}

/// Encloses the list of the slowest tests in CONTRIBUTING.md.
const LIST: [&str; 2] =
    ["<!-- `cargo xtask test --record` writes this list -->\n", "<!-- end of the list -->"];

/// Writes the list of the slowest tests.
fn record(report: &Report) -> Result<()> {
    let path: PathBuf = root().join("CONTRIBUTING.md");
    let text = fs::read_to_string(&path).context("read CONTRIBUTING.md")?;
    fs::write(path, with_list(&text, &report.slowest())?).context("write CONTRIBUTING.md")
}

fn with_list(text: &str, list: &str) -> Result<String> {
    let [start, end] = LIST;
    let parts = text.split_once(start).and_then(|(before, rest)| Some((before, rest.split_once(end)?.1)));
    let (before, after) = parts.context("CONTRIBUTING.md has no place for the slowest tests")?;
    Ok(format!("{before}{start}{list}{end}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::junit::Outcome;
    use std::time::Duration;

    fn selection(args: &[&str]) -> Result<Selection> {
        Selection::parse(&args.iter().map(|arg| (*arg).to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn a_filter_and_a_tier_are_accepted_in_any_order() {
        let all = selection(&[]).unwrap();
        let both = Selection { filter: Some("stale".into()), tier: Some("lab"), ..all };
        assert_eq!(selection(&["stale", "--tier", "lab"]).unwrap(), both);
        assert_eq!(selection(&["--tier", "lab", "stale"]).unwrap(), both);
    }

    #[test]
    fn only_repeated_runs_generate_other_inputs() {
        assert_eq!(selection(&["stale"]).unwrap().variables, [SEED]);
        let repeated = selection(&["stale"]).unwrap().for_repetition().unwrap();
        assert!(!repeated.variables.contains(&SEED) && repeated.keeps_going);
    }

    #[test]
    fn an_unknown_tier_is_reported_with_the_known_ones() {
        let error = selection(&["--tier", "moon"]).unwrap_err().to_string();
        assert!(error.contains("\"moon\"") && error.contains("unit, lab, browser, edge"), "{error}");
    }

    #[test]
    fn each_test_belongs_to_the_tier_that_runs_it() {
        let tier = |binary: &str, name: &str| {
            let (binary, name) = (binary.to_owned(), name.to_owned());
            let case = TestCase { binary, name, took: Duration::ZERO, outcome: Outcome::Passed };
            TIERS.iter().find(|tier| (tier.contains)(&case)).unwrap().name
        };
        assert_eq!(tier("nodeglass-relay", "fleet::tests::a"), "unit");
        assert_eq!(tier("xtask::bin/xtask", "tiers::tests::a"), "unit");
        assert_eq!(tier("nodeglass-tests::it", "house::a"), "unit");
        assert_eq!(tier("nodeglass-tests::it", "lab::page::a"), "lab");
        assert_eq!(tier("nodeglass-tests::it", "browser::a"), "browser");
        assert_eq!(tier("nodeglass-tests::it", "threats::browser::a"), "edge");
        assert_eq!(tier("node-probe::it", "readings::a"), "edge");
    }

    #[test]
    fn the_list_of_slow_tests_is_replaced_in_its_place() {
        let text = format!("before\n{}old\n{}\nafter", LIST[0], LIST[1]);
        let new = with_list(&text, "new\n").unwrap();
        assert_eq!(new, format!("before\n{}new\n{}\nafter", LIST[0], LIST[1]));
        assert!(with_list("nothing", "new").is_err());
        let contributing = fs::read_to_string(root().join("CONTRIBUTING.md")).unwrap();
        assert!(with_list(&contributing, "").is_ok());
    }
}
