//! Runs a relay on a virtual clock through random histories of faults, and checks its guarantees.
//!
//! `fault-simulation --seeds N` runs N histories, each in a process of its own, and makes failing ones smaller.
//! `fault-simulation --seed N` runs one of them; `--only 0,3` keeps some of its faults, and `--break NAME` violates a
//! guarantee deliberately.

mod broken;
mod history;
mod oracle;
mod random;
mod relay;
mod run;
mod slurm;
mod sweep;
mod viewer;
mod wire;

use anyhow::{Context, Result, bail};
use broken::Broken;
use history::Fault;
use std::process::ExitCode;

/// The arguments.
#[derive(Clone, Debug, Default)]
struct Options {
    /// One seed; otherwise several are run.
    seed: Option<u64>,
    first: u64,
    seeds: u64,
    /// The faults to keep.
    only: Option<Vec<usize>>,
    broken: Option<(&'static str, Broken)>,
}

impl Options {
    fn parse(mut args: impl Iterator<Item = String>) -> Result<Self> {
        let mut options = Self { first: 1, seeds: 100, ..Self::default() };
        while let Some(arg) = args.next() {
            let value = args.next().with_context(|| format!("{arg} needs a value"))?;
            match arg.as_str() {
                "--seed" => options.seed = Some(value.parse().context("--seed")?),
                "--first" => options.first = value.parse().context("--first")?,
                "--seeds" => options.seeds = value.parse().context("--seeds")?,
                "--only" => {
                    let indices = value.split(',').filter(|index| !index.is_empty()).map(str::parse);
                    options.only = Some(indices.collect::<Result<_, _>>().context("--only")?);
                }
                "--break" => {
                    let known = broken::ALL.iter().find(|(name, _)| *name == value);
                    let names: Vec<_> = broken::ALL.iter().map(|(name, _)| *name).collect();
                    let known = known.with_context(|| format!("--break knows {}", names.join(", ")))?;
                    options.broken = Some(*known);
                }
                other => bail!("{other:?} is not understood"),
            }
        }
        Ok(options)
    }

    /// The history of a seed, with its numbering.
    fn history(&self, seed: u64) -> Vec<(usize, Fault)> {
        let needed = self.broken.and_then(|(_, broken)| broken.needs());
        let of_seed = history::of_seed(seed).into_iter();
        // Without faults that hide the violation.
        let visible =
            of_seed.filter(|fault| self.broken.is_none_or(|(_, broken)| !broken.is_hidden_by(fault)));
        let faults = needed.into_iter().chain(visible).enumerate();
        faults.filter(|(index, _)| self.only.as_ref().is_none_or(|only| only.contains(index))).collect()
    }
}

fn main() -> Result<ExitCode> {
    let options = Options::parse(std::env::args().skip(1))?;
    let Some(seed) = options.seed else { return sweep::run(&options) };
    random::seed_system(seed);
    let history = options.history(seed);
    println!("seed {seed}:");
    history.iter().for_each(|(index, fault)| println!("  [{index}] {fault}"));
    let faults = history.into_iter().map(|(_, fault)| fault).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build()?;
    let violations = runtime.block_on(run::run(seed, faults, options.broken.map(|(_, broken)| broken)))?;
    violations.iter().for_each(|violation| println!("  ✗ {violation}"));
    println!("  digest {:016x}", viewer::frames_digest());
    Ok(if violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
