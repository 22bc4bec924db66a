//! `cargo xtask` is the one command between a fresh clone and a running, tested nodeglass.

mod bench;
mod deny;
mod fuzz;
mod instruments;
mod lint;
mod page;
mod pins;
mod report;
mod rings;
mod run;
mod screenshots;
mod shell;
mod system;
mod tarball;
mod tools;

use anyhow::{Result, bail};
use std::process::ExitCode;

const USAGE: &str = "\
cargo xtask <command>

  run [--dev] [-- RELAY-ARGS]    install what is missing, build, start the relay (try: -- --demo)
  test [FILTER] [--ring NAME]    set up and run every ring of tests: unit, edge, lab, browser
  lint                           formatting, clippy natively and for wasm32, house rules
  fuzz [TARGET…] [--seconds N]   feed every decoder of what comes from elsewhere; --keep what leads somewhere new
  setup                          only install what the build and the tests need
  page                           only build the page into dist/
  dist                           a release archive that runs on other machines, in target/
  bench [NAME…] [--list]         measure what the design promises, beside other monitors
  screenshots                    take the pictures of docs/images/ anew
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
        "test" => rings::run(&rings::Wish::parse(rest)?),
        "fuzz" => fuzz::run(&fuzz::Wish::parse(rest)?),
        "bench" => bench::run(rest),
        "lint" => done(none(rest).and_then(|()| lint::run())),
        "setup" => done(none(rest).and_then(|()| setup())),
        "page" => done(none(rest).and_then(|()| page::build(&tools::page_tools()?))),
        "dist" => done(none(rest).and_then(|()| tarball::pack())),
        "screenshots" => done(none(rest).and_then(|()| screenshots::take())),
        "help" | "-h" | "--help" => {
            print!("{USAGE}");
            Ok(ExitCode::SUCCESS)
        }
        other => bail!("there is no command {other:?}\n\n{USAGE}"),
    }
}

/// Installs what building, running and testing need, and nothing that is there already.
fn setup() -> Result<()> {
    system::for_building()?;
    system::for_testing()?;
    tools::page_tools()?;
    instruments::variables()?;
    println!("everything that the build and the tests need is there");
    Ok(())
}

fn none(rest: &[String]) -> Result<()> {
    match rest.first() {
        Some(extra) => bail!("{extra:?} is not understood here\n\n{USAGE}"),
        None => Ok(()),
    }
}

fn done(result: Result<()>) -> Result<ExitCode> {
    result.map(|()| ExitCode::SUCCESS)
}
