//! One command says whether the code is formatted and free of warnings, natively and for the browser.

use crate::shell::{cargo, run as run_to_end, step, which};
use crate::{system, tools};
use anyhow::Result;

/// Formatting, clippy for both targets, the house rules, and the dependency rules where `cargo deny` is there.
pub(crate) fn run() -> Result<()> {
    let openssl = system::for_building()?;
    tools::wasm_target()?;
    step("checking the formatting", || run_to_end(cargo().args(["fmt", "--all", "--check"])))?;
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
    if which("cargo-deny").is_some() {
        step("checking the dependencies", || run_to_end(cargo().args(["deny", "--offline", "check"])))?;
    }
    step("checking the house rules", || {
        run_to_end(cargo().args(["test", "--quiet", "-p", "nodeglass-tests", "--test", "it", "house::"]))
    })
}
