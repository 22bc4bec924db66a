//! The Python client: its own tests against the relay that was built, its types, and its wheel.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::relay::binary;
use nodeglass_tests::test_tools;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

/// The client, and the folder with its sources.
const CLIENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../clients/python");
/// Libraries that are too large to be installed for their tests: without them, stand-ins are used.
const NOT_INSTALLED: &[&str] = &["keras", "lightning", "torch"];

/// Runs pytest with these arguments; returns its report, and fails if a test fails or is skipped for another reason.
fn pytest(python: &Path, args: &[&str]) -> Result<String> {
    let home = tempfile::tempdir()?;
    // The client ignores a directory that others can access.
    std::fs::set_permissions(home.path(), PermissionsExt::from_mode(0o700))?;
    let output = Command::new(python)
        .args(["-m", "pytest", "-rs", "-p", "no:cacheprovider"])
        .args(args)
        .current_dir(CLIENT)
        .env("PYTHONPATH", Path::new(CLIENT).join("src"))
        // The checkout stays unchanged.
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .env("HOME", home.path())
        .env("TMPDIR", home.path())
        .env("NODEGLASS_TEST_RELAY", binary("relay")?)
        .stdin(Stdio::null())
        .output()?;
    let report = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr);
    ensure!(output.status.success(), "{report}{errors}");
    for skipped in report.lines().filter(|line| line.starts_with("SKIPPED")) {
        ensure!(NOT_INSTALLED.iter().any(|library| skipped.contains(library)), "{skipped}");
    }
    Ok(report)
}

/// The number of passed tests in a report of pytest.
fn passed(report: &str) -> Result<u32> {
    let (before, _) = report.rsplit_once(" passed").with_context(|| format!("no summary: {report}"))?;
    let digits = before.rsplit(|c: char| !c.is_ascii_digit()).next();
    digits.and_then(|digits| digits.parse().ok()).with_context(|| format!("no number: {report}"))
}

#[test]
fn the_python_client_reads_and_watches_a_running_relay() -> Result<()> {
    let Some(python) = test_tools::python() else { return Ok(()) };
    let report = pytest(&python, &["--ignore=tests/test_package.py"])?;
    // Each public function, nvgpu's and nvitop's examples, a share's key, a wrong key, a relay that is killed, callbacks.
    ensure!(passed(&report)? > 80, "tests are missing: {report}");
    Ok(())
}

#[test]
fn the_python_client_is_typed_and_its_wheels_install_and_run() -> Result<()> {
    let Some(python) = test_tools::python() else { return Ok(()) };
    let report = pytest(&python, &["tests/test_package.py"])?;
    ensure!(passed(&report)? == 5, "tests are missing: {report}");
    Ok(())
}
