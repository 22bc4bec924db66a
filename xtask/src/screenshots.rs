//! Takes the screenshots of the documentation with the browser tests.

use crate::shell::{root, step, target};
use crate::tiers::{self, Selection};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::ExitCode;

/// How long sparklines grow before a screenshot: half of their width.
const GROWTH: (&str, &str) = ("NODEGLASS_GROWTH_S", "300");

/// Runs the browser tier and copies its screenshots to `docs/images/`.
pub(crate) fn take() -> Result<()> {
    let taken = target().join("screenshots");
    let _ = fs::remove_dir_all(&taken);
    if tiers::run(&Selection::tier_with("browser", GROWTH))? != ExitCode::SUCCESS {
        bail!("the browser tests failed, so the pictures stay as they are");
    }
    step("copying the pictures to docs/images", || {
        let images = root().join("docs/images");
        fs::create_dir_all(&images)?;
        for entry in fs::read_dir(&taken).context("the browser tests took no picture")? {
            let entry = entry?;
            fs::copy(entry.path(), images.join(entry.file_name()))?;
        }
        Ok(())
    })
}
