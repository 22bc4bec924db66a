//! The app for Open OnDemand, run by a real Passenger, behind a proxy with the rules of Open OnDemand's portal.

use crate::nginx::{Nginx, Prefix};
use crate::process::Process;
use crate::skip;
use anyhow::{Context, Result};
use rustix::process::Signal;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The folder of the app.
const APP: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../packaging/ondemand");
/// Where a portal serves an app that its administrators installed.
const PATH: &str = "/pun/sys/nodeglass";

/// A portal that serves the app to the user of this test; it ends on drop, and so does the relay that the app started.
#[derive(Debug)]
pub struct OnDemand {
    nginx: Nginx,
    passenger: Process,
    folder: TempDir,
}

impl OnDemand {
    /// Starts the app with these lines in its settings; skips the test if a program is missing.
    ///
    /// The proxy does what the template `ood-portal.conf.erb` configures for `/pun`: it keeps path and host, and states the
    /// forwarded host and scheme, and the user.
    ///
    /// # Errors
    /// If a program does not start.
    pub fn start(settings: &str) -> Result<Option<Self>> {
        let Some([passenger, _node]) = skip::programs(["passenger", "node"]) else { return Ok(None) };
        let folder = tempfile::tempdir()?;
        // Of another user than the app, as in Open OnDemand, is the proxy that connects to the socket.
        fs::set_permissions(folder.path(), Permissions::from_mode(0o755))?;
        let (env, socket) = (folder.path().join("env"), folder.path().join("passenger.sock"));
        fs::write(&env, settings)?;
        let mut process = Process::start(
            Command::new(passenger)
                .args(["start", "--engine", "builtin", "--app-type", "node", "--environment", "production"])
                .args(["--disable-security-update-check", "--disable-anonymous-telemetry"])
                .arg("--startup-file")
                .arg(start_script(folder.path())?)
                .arg("--socket")
                .arg(&socket)
                .arg("--pid-file")
                .arg(folder.path().join("pid"))
                .current_dir(folder.path())
                .env("OOD_NODEGLASS_ENV", env)
                .env("HOME", folder.path())
                .env("TMPDIR", folder.path()),
        )?;
        process.wait_for("its address", |line| line.contains("Accessible via").then_some(()))?;
        let upstream = format!("unix:{}", socket.display());
        let nginx = Nginx::start_naming(&upstream, PATH, Prefix::Kept, Some("alice"))?;
        Ok(nginx.map(|nginx| Self { nginx, passenger: process, folder }))
    }

    /// The `host:port` of the portal.
    pub fn authority(&self) -> String {
        self.nginx.authority()
    }

    /// The address of the app.
    pub fn url(&self) -> String {
        format!("http://{}{PATH}/", self.authority())
    }

    /// The directory for temporary files of the app.
    pub fn tmp(&self) -> &Path {
        self.folder.path()
    }

    /// Ends Passenger, and with it what it started, some of which are no descendants of it.
    pub fn stop(&mut self) {
        let _ = self.passenger.signal(Signal::TERM);
        let _ = self.passenger.wait();
    }

    /// What Passenger and the app printed.
    pub fn log(&self) -> String {
        self.passenger.output().text()
    }
}

impl Drop for OnDemand {
    fn drop(&mut self) {
        self.stop();
    }
}

/// Starts the app with the path that Passenger states as part of nginx, but not when it runs a single app.
fn start_script(folder: &Path) -> Result<std::path::PathBuf> {
    let script = folder.join("start.js");
    fs::write(&script, format!("process.env.PASSENGER_BASE_URI = '{PATH}';\nrequire('{APP}/app.js');\n"))
        .context("write the script")?;
    Ok(script)
}
