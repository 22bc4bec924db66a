//! One command says whether the code is formatted and free of warnings, natively and for the browser.

use crate::shell::{cargo, run as run_to_end, step};
use crate::{deny, system, tools};
use anyhow::Result;

/// Formatting, the rules for what comes along, clippy for both targets, and the house rules.
pub(crate) fn run() -> Result<()> {
    let openssl = system::for_building()?;
    tools::wasm_target()?;
    step("checking the formatting", || run_to_end(cargo().args(["fmt", "--all", "--check"])))?;
    // Seconds long, so before the minutes of the compiler.
    deny::check()?;
    step("clippy", || {
        run_to_end(
            cargo()
                .args(["clippy", "--workspace", "--all-targets"])
                .args(openssl.flags())
                .args(["--", "-D", "warnings"]),
        )
    })?;
    step("clippy for wasm32", || {
        run_to_end(cargo().args([
            "clippy",
            "-p",
            "nodeglass-frontend",
            "--target",
            tools::WASM,
            "--",
            "-D",
            "warnings",
        ]))
    })?;
    step("checking the house rules", || {
        run_to_end(cargo().args(["test", "--quiet", "-p", "nodeglass-tests", "--test", "it", "house::"]))
    })
}
