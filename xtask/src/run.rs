//! `cargo xtask run`: replaces itself by the relay, so that signals and the terminal belong to it.

use crate::shell::{cargo, long_step, run as run_to_end, target};
use crate::{page, system};
use anyhow::{Context, Result, bail};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

/// The build profile of the binaries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Profile {
    /// Fast to compile.
    Dev,
    /// Compiled in reasonable time, and almost as fast as a release.
    Quick,
}

impl Profile {
    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Dev => &[],
            Self::Quick => &["--profile", "quick"],
        }
    }

    fn folder(self) -> &'static str {
        match self {
            Self::Dev => "debug",
            Self::Quick => "quick",
        }
    }
}

/// Installs, builds, and replaces this process by the relay.
pub(crate) fn run(args: &[String]) -> Result<ExitCode> {
    let split = args.iter().position(|arg| arg == "--").unwrap_or(args.len());
    let (ours, relays) = (&args[..split], args.get(split + 1..).unwrap_or_default());
    let mut profile = Profile::Quick;
    for arg in ours {
        match arg.as_str() {
            "--dev" => profile = Profile::Dev,
            other => bail!("{other:?} is not understood; arguments for the relay come after `--`"),
        }
    }
    let build = if profile == Profile::Dev { page::Build::Quick } else { page::Build::Optimised };
    page::build_beside(build, || binaries(profile))?;
    binaries(profile)?;
    let relay = target().join(profile.folder()).join("relay");
    let error = Command::new(&relay).args(relays).exec();
    Err(error).with_context(|| format!("start {}", relay.display()))
}

/// Builds probe and relay, which embeds the page in `dist/`.
pub(crate) fn binaries(profile: Profile) -> Result<()> {
    let openssl = system::for_building()?;
    long_step("building node-probe and relay", "3 min the first time", || {
        run_to_end(
            cargo()
                .args(["build", "-p", "node-probe", "-p", "nodeglass-relay"])
                .args(profile.flags())
                .args(openssl.flags()),
        )
    })
}
