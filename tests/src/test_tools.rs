//! Locates test tools that `cargo xtask test` installed, through environment variables; without one, its
//! tests are skipped.

use crate::skip;
use std::path::PathBuf;

/// The folder of peer monitors (nvitop, gpustat and their Python), or skips the test.
pub fn peers() -> Option<PathBuf> {
    tool("NODEGLASS_PEERS", "nvitop and gpustat")
}

/// The `schemathesis` program, or skips the test.
pub fn schemathesis() -> Option<PathBuf> {
    tool("NODEGLASS_SCHEMATHESIS", "schemathesis")
}

/// A Python with pytest, pandas, mypy and a build backend, or skips the test.
pub fn python() -> Option<PathBuf> {
    tool("NODEGLASS_PYTHON", "a Python with pytest")
}

/// The Python of JupyterLab and JupyterHub with jupyter-server-proxy, or skips the test.
pub fn jupyter() -> Option<PathBuf> {
    tool("NODEGLASS_JUPYTER", "JupyterLab")
}

/// The proxy that JupyterHub starts, or skips the test.
pub fn hub_proxy() -> Option<PathBuf> {
    tool("NODEGLASS_HUB_PROXY", "configurable-http-proxy")
}

/// The axe-core script, or skips the test.
pub fn axe() -> Option<PathBuf> {
    tool("NODEGLASS_AXE", "axe-core")
}

/// The `cargo deny` program, or skips the test.
pub fn deny() -> Option<PathBuf> {
    tool("NODEGLASS_DENY", "cargo deny")
}

/// nFPM, with which `.deb` and `.rpm` are packed, or skips the test.
pub fn nfpm() -> Option<PathBuf> {
    tool("NODEGLASS_NFPM", "nFPM")
}

/// The folder of the release's probes (`node-probe-MACHINE`), or skips the test.
pub fn portable_probes() -> Option<PathBuf> {
    tool("NODEGLASS_PORTABLE_PROBES", "the probe for old systems")
}

fn tool(variable: &str, what: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from).filter(|path| path.exists());
    if found.is_none() {
        skip::skip(&format!("{what} is not here: `cargo xtask test` fetches it and sets {variable}"));
    }
    found
}
