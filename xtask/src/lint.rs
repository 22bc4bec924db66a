//! Checks formatting and lints, natively and for the browser.

use crate::shell::{self, cargo, step};
use crate::{deny, system, tools};
use anyhow::Result;
use std::process::Command;

/// Runs rustfmt, dependency rules, and clippy for both targets. The house rules are tests of the unit tier, which builds
/// what they need once.
pub(crate) fn run() -> Result<()> {
    run_with(shell::run)
}

/// Checks lints at a low priority: tests run at the same time.
pub(crate) fn run_in_background() -> Result<()> {
    run_with(|command| shell::run(&mut niced(command)))
}

fn run_with(run: impl Fn(&mut Command) -> Result<()>) -> Result<()> {
    let openssl = system::for_building()?;
    tools::wasm_target()?;
    step("checking the formatting", || run(cargo().args(["fmt", "--all", "--check"])))?;
    // Takes seconds, so it runs before the compiler.
    deny::check()?;
    step("clippy", || {
        run(cargo()
            .args(["clippy", "--quiet", "--workspace", "--all-targets"])
            .args(openssl.flags())
            .args(["--", "-D", "warnings"]))
    })?;
    step("clippy for wasm32", || {
        let page = ["-p", "nodeglass-frontend", "--target", tools::WASM];
        run(cargo().args(["clippy", "--quiet"]).args(page).args(["--", "-D", "warnings"]))
    })
}

/// The command with the lowest priority.
fn niced(command: &Command) -> Command {
    let mut nice = Command::new("nice");
    nice.args(["-n", "19"]).arg(command.get_program()).args(command.get_args());
    if let Some(folder) = command.get_current_dir() {
        nice.current_dir(folder);
    }
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => nice.env(name, value),
            None => nice.env_remove(name),
        };
    }
    nice
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_command_with_low_priority_is_otherwise_the_same() {
        let mut command = Command::new("sh");
        command.args(["-c", "nice; pwd; echo $WORD"]).current_dir("/").env("WORD", "word");
        let output = niced(&command).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&output.stdout), "19\n/\nword\n");
    }
}
