//! `cargo xtask run`: replaces itself by the relay, so that signals and the terminal belong to it.

use crate::shell::{cargo, long_step, run as run_to_end, target};
use crate::{page, system};
use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// Installs, builds, and replaces this process by the relay.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (ours, relays) = (&args[..split], args.get(split + 1..).unwrap_or_default());
    let mut build = page::Build::Quick;
    for arg in ours {
        match arg.as_str() {
            "--optimised" => build = page::Build::Optimised,
            other => bail!("{other:?} is not understood; arguments for the relay come after `--`"),
        }
    }
    page::build_beside(build, binaries)?;
    binaries()?;
    let relay = target().join("debug/relay");
    let error = Command::new(&relay).args(relays).exec();
    Err(error).with_context(|| format!("start {}", relay.display()))
}

/// Builds probe and relay, which embeds the page in `dist/`. Page and programs have the tests' profiles, so that tests
/// need not compile the same crates again; `cargo xtask dist` makes releases.
fn binaries() -> Result<()> {
    let openssl = system::for_building()?;
    long_step("building node-probe and relay", "3 min the first time", || {
        run_to_end(cargo().args(["build", "-p", "node-probe", "-p", "nodeglass-relay"]).args(openssl.flags()))
    })
}
