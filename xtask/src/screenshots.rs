//! Takes the pictures of the documentation: the tests of the gallery open every state of the page.

use crate::shell::{root, step, target};
use crate::tiers::{self, Selection};
use anyhow::{Context, Result, bail};
use std::fs;
use std::process::ExitCode;

/// Makes the tests wait until graphs are painted, and save what they see.
const PICTURES: (&str, &str) = ("NODEGLASS_PICTURES", "1");

/// Runs the gallery, and replaces the pictures in `docs/images/`.
pub(crate) fn take() -> Result<()> {
    let taken = target().join("screenshots/documents");
    let _ = fs::remove_dir_all(&taken);
    let selection = Selection::tier_with("browser", PICTURES).only("browser::gallery");
    if tiers::run(&selection)? != ExitCode::SUCCESS {
        bail!("a state of the page could not be photographed, so the pictures stay as they are");
    }
    step("replacing the pictures in docs/images", || {
        let images = root().join("docs/images");
        fs::create_dir_all(&images)?;
        for entry in fs::read_dir(&images)? {
            let path = entry?.path();
            // A state that is no longer taken keeps no picture.
            if path.extension().is_some_and(|extension| extension == "webp" || extension == "png") {
                fs::remove_file(path)?;
            }
        }
        for entry in fs::read_dir(&taken).context("the gallery took no picture")? {
            let entry = entry?;
            fs::copy(entry.path(), images.join(entry.file_name()))?;
        }
        Ok(())
    })
}
