//! Packs a release: one archive that needs nothing but glibc, as the page is part of the relay.

use crate::shell::{cargo, output_of, root, run, step, target};
use crate::{page, tools};
use anyhow::{Context, Result};
use std::fs;
use std::process::Command;

/// Builds both binaries with static OpenSSL and packs them with licences and the short manual.
pub(crate) fn pack() -> Result<()> {
    page::build(&tools::page_tools()?)?;
    step("building the release", || {
        run(cargo().args([
            "build",
            "--release",
            "-p",
            "node-probe",
            "-p",
            "nodeglass-relay",
            "--features",
            "nodeglass-relay/vendored-openssl",
        ]))
    })?;
    let host = output_of("rustc", &["--print", "host-tuple"]).context("rustc does not name its host")?;
    let name = format!("nodeglass-{}-{host}", env!("CARGO_PKG_VERSION"));
    let folder = target().join("dist").join(&name);
    step(&format!("packing {name}.tar.gz"), || {
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder)?;
        for binary in ["relay", "node-probe"] {
            fs::copy(target().join("release").join(binary), folder.join(binary))?;
        }
        for text in ["README.md", "LICENSE-MIT", "LICENSE-APACHE", "CHANGELOG.md"] {
            fs::copy(root().join(text), folder.join(text)).with_context(|| format!("copy {text}"))?;
        }
        let parent = target().join("dist");
        run(Command::new("tar").current_dir(parent).args(["-czf", &format!("{name}.tar.gz"), &name]))
    })
}
