//! The pictures of the documentation are taken from the real page by the browser tests, never drawn.

use crate::shell::{root, step, target};
use crate::tiers::{self, Selection};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::ExitCode;

/// How many seconds the sparklines may grow first: half of what they show.
const GROWTH: (&str, &str) = ("NODEGLASS_GROWTH_S", "300");

/// Runs the browser tier and copies what it photographed into `docs/images/`.
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
