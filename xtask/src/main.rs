//! `cargo xtask`: the single command between a fresh clone and a running, tested nodeglass.

mod bench;
mod deny;
mod dist;
mod flaky;
mod fuzz;
mod generate;
mod gpu_check;
mod junit;
mod lint;
mod nextest;
mod page;
mod pins;
mod report;
mod run;
mod scratch;
mod screenshots;
mod shell;
mod system;
mod test_tools;
mod tiers;
mod tools;
mod wheel;

use anyhow::{Result, bail};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <command>

  run [--optimised] [-- RELAY-ARGS]
                                 install requirements, build, and start the relay (try: -- --demo)
  test [FILTER] [--tier NAME]    install requirements and run the tests: unit, edge, lab, browser
                                 --lint checks lints meanwhile; --record lists the slowest in CONTRIBUTING
  flaky [FILTER] [--tier NAME]   repeat tests on a busy machine: --runs N (20), --load LOOPS (4)
  lint                           check formatting, dependencies, and clippy (native and wasm32)
  fuzz [TARGET…] [--seconds N]   fuzz every decoder of external input; --keep adds new coverage to the corpus
  generate                       write frozen messages, tables of documents, docs/openapi.json and the Python models
  setup                          only install what the build and the tests need
  page                           only build the page into dist/
  dist [KIND…]                   build for glibc 2.17 and pack in target/dist/, or --out FOLDER: archive, wheel, deb, rpm,
                                 recipes (for archives from --url ADDRESS), sbom;
                                 --programs FOLDER packs relay and node-probe from there
  bench [NAME…] [--list]         run the benchmarks, next to other monitors
  sim [--seeds N] [--seed N]     run a relay through random histories of faults on a virtual clock, or replay one;
                                 --break NAME violates a guarantee, and must fail
  soak [--minutes N]             run a relay with 1,000 nodes and 50 viewers for N (120) minutes: what it uses stays flat
  findings [FILTER] [--seeds N]  play labelled scenarios and judge what is found in them
  gpu-check [--probe PATH] [ARGS…]
                                 compare the probe's readings with nvidia-smi and nvidia-ml-py on this machine's GPUs
  screenshots                    retake the screenshots of docs/images/
";

fn main() -> ExitCode {
    match dispatch(std::env::args().skip(1).collect()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn dispatch(args: Vec<String>) -> Result<ExitCode> {
    let (command, rest) = match args.split_first() {
        Some((command, rest)) => (command.as_str(), rest),
        None => ("help", &[][..]),
    };
    match command {
        "run" => run::run(rest),
        "test" => tiers::run(&tiers::Selection::parse(rest)?),
        "flaky" => flaky::run(&flaky::Options::parse(rest)?),
        "fuzz" => fuzz::run(&fuzz::Selection::parse(rest)?),
        "bench" => bench::run(rest),
        "sim" => simulate(rest),
        "soak" => bench::soak(rest),
        "findings" => findings(rest),
        "gpu-check" => gpu_check::run(rest),
        "generate" => done(none(rest).and_then(|()| generate::run())),
        "lint" => done(none(rest).and_then(|()| lint::run())),
        "setup" => done(none(rest).and_then(|()| setup())),
        "page" => done(none(rest).and_then(|()| page::build(page::Build::Optimised))),
        "dist" => done(dist::Options::parse(rest).and_then(|options| dist::pack(&options))),
        "screenshots" => done(none(rest).and_then(|()| screenshots::take())),
        "help" | "-h" | "--help" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("unknown command {other:?}\n\n{USAGE}"),
    }
}

/// Plays the labelled scenarios of findings.
fn findings(args: &[String]) -> Result<ExitCode> {
    let openssl = system::for_building()?;
    shell::run(
        shell::cargo()
            .args(["run", "--release", "--package", "nodeglass-tests", "--example", "findings"])
            .args(openssl.flags())
            .arg("--")
            .args(args)
            .env("NODEGLASS_FINDINGS", shell::target().join("findings.json")),
    )?;
    Ok(ExitCode::SUCCESS)
}

/// Runs histories of faults, by default two thousand.
fn simulate(args: &[String]) -> Result<ExitCode> {
    let openssl = system::for_building()?;
    let seeds = ["--seeds".to_owned(), "2000".to_owned()];
    let args = if args.is_empty() { &seeds } else { args };
    let mut command = shell::cargo();
    command.args(["run", "--quiet", "--release", "--package", "nodeglass-fault-simulation"]);
    shell::run(command.args(openssl.flags()).arg("--").args(args))?;
    Ok(ExitCode::SUCCESS)
}

/// Installs missing requirements of building, running and testing.
fn setup() -> Result<()> {
    system::for_building()?;
    system::for_testing()?;
    tools::wasm_target()?;
    tools::wasm_opt()?;
    test_tools::variables()?;
    nextest::install()?;
    println!("all requirements of the build and the tests are installed");
    Ok(())
}

fn none(rest: &[String]) -> Result<()> {
    match rest.first() {
        Some(extra) => bail!("unexpected argument {extra:?}\n\n{USAGE}"),
        None => Ok(()),
    }
}

fn done(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
