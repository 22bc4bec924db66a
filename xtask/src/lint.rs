//! Checks formatting and lints, natively and for the browser.

use crate::shell::{cargo, run as run_to_end, step};
use crate::{deny, system, tools};
use anyhow::Result;

/// Runs rustfmt, dependency rules, and clippy for both targets. The house rules are tests of the unit tier, which builds
/// what they need once.
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
    })
}
