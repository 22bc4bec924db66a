//! `relay version`: what this program is, and how it was installed.

use crate::installation::Installation;
use nodeglass_app::terminal;
use nodeglass_protocol::version::{LIVE_WIRE, PROBE_WIRE};
use serde::Serialize;

/// The output of `relay version --json`. New fields may be added.
#[derive(Debug, Serialize)]
struct Build {
    version: &'static str,
    /// The commit of the sources; `null` unless `cargo xtask dist` built it.
    commit: Option<&'static str>,
    /// `release` or `debug`.
    profile: &'static str,
    /// The platform that it was compiled for, as Rust names it.
    target: &'static str,
    /// The newest version of the wire between probe and relay.
    probe_wire: u16,
    /// The newest version of the wire between relay and page.
    live_wire: u16,
    /// `null` if the path of the program is unknown.
    installation: Option<Installation>,
}

/// Returns what to print.
///
/// # Errors
/// It cannot be written as JSON.
pub fn text(json: bool) -> serde_json::Result<String> {
    let build = Build {
        version: env!("CARGO_PKG_VERSION"),
        commit: option_env!("NODEGLASS_COMMIT"),
        profile: env!("NODEGLASS_PROFILE"),
        target: env!("NODEGLASS_TARGET"),
        probe_wire: PROBE_WIRE,
        live_wire: LIVE_WIRE,
        installation: Installation::of_this_program().ok(),
    };
    if json {
        return terminal::json(&build);
    }
    let commit = build.commit.map(|commit| format!(", commit {commit:.12}")).unwrap_or_default();
    let mut text = format!("nodeglass {} ({}, {}{commit})\n", build.version, build.target, build.profile);
    if let Some(Installation { folder, update, .. }) = build.installation {
        text += &format!("Installed  {}\nUpdate     {update}\n", folder.display());
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn the_json_form_states_build_wires_and_installation() {
        let build: Value = serde_json::from_str(&text(true).unwrap()).unwrap();
        assert_eq!(build["version"], env!("CARGO_PKG_VERSION"));
        assert!(build["target"].as_str().unwrap().contains(std::env::consts::ARCH), "{build}");
        assert!(build["live_wire"].as_u64() >= Some(2) && build["probe_wire"].as_u64() >= Some(2), "{build}");
        // A test is built in a checkout, unless its target folder is elsewhere.
        assert!(build["installation"]["update"].is_string(), "{build}");
        assert!(text(false).unwrap().contains("\nUpdate "));
    }
}
