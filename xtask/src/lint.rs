//! Checks formatting and lints, natively and for the browser.

use crate::shell::{cargo, run as run_to_end, step};
use crate::{deny, system, tools};
use anyhow::Result;

/// Runs rustfmt, dependency rules, clippy for both targets, and the house tests.
pub(crate) fn run() -> Result<()> {
    let openssl = system::for_building()?;
    tools::wasm_target()?;
    step("checking the formatting", || run_to_end(cargo().args(["fmt", "--all", "--check"])))?;
    // Takes seconds, so it runs before the compiler.
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
