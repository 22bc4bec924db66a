//! Instruments that `cargo xtask test` fetched are found by its variables; without one, its tests say that they are skipped.

use crate::skip;
use std::path::PathBuf;

/// The folder of the peers' programs (nvitop, gpustat and their Python), or says that the test is skipped.
pub fn peers() -> Option<PathBuf> {
    tool("NODEGLASS_PEERS", "nvitop and gpustat")
}

/// The script of axe-core, or says that the test is skipped.
pub fn axe() -> Option<PathBuf> {
    tool("NODEGLASS_AXE", "axe-core")
}

/// The program of `cargo deny`, or says that the test is skipped.
pub fn deny() -> Option<PathBuf> {
    tool("NODEGLASS_DENY", "cargo deny")
}

fn tool(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if found.is_none() {
        skip::skip(&format!(
            "{what} is not here: `cargo xtask test` fetches it and says where in {variable}"
        ));
    }
    found
}
