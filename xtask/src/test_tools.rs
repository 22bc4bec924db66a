//! What the tests measure with is fetched once: other monitors to compare readings with, judges of accessibility and of what comes along.

use crate::pins::Pinned;
use crate::shell::which;
use crate::{deny, tools};
use anyhow::Result;
use std::path::PathBuf;

/// The monitors whose readings and costs ours are compared with: nvitop, gpustat, nvnodetop, and what gpustat-web renders with.
const PEERS: Pinned = Pinned { name: "peers", shown_by: "bin/nvnodetop" };
/// Deque's rules for accessible pages.
const AXE: Pinned = Pinned { name: "axe-core", shown_by: "node_modules/axe-core/axe.min.js" };

/// The variables by which tests find the instruments; one that cannot be had is left out, and its
/// tests say that they are skipped.
///
/// # Errors
/// When one that could be had cannot be installed.
pub(crate) fn variables() -> Result<Vec<(&'static str, PathBuf)>> {
    let home = tools::home()?;
    let mut found = Vec::new();
    if which("python3").is_some() {
        found.push(("NODEGLASS_DENY", deny::program(&home)?));
        found.push(("NODEGLASS_PEERS", PEERS.by_pip(&home)?.join("bin")));
    }
    if which("npm").is_some() {
        found.push(("NODEGLASS_AXE", AXE.by_npm(&home)?.join(AXE.shown_by)));
    }
    Ok(found)
}

/// The variable by which the benchmarks find the peers; none where there is no Python.
///
/// # Errors
/// When they could be had and cannot be installed.
pub(crate) fn for_benchmarks() -> Result<Vec<(&'static str, PathBuf)>> {
    if which("python3").is_none() {
        return Ok(Vec::new());
    }
    Ok(vec![("NODEGLASS_PEERS", PEERS.by_pip(&tools::home()?)?.join("bin"))])
}
