//! A real nginx that serves a relay below a path of another origin.

use crate::documents::example;
use crate::process::Process;
use crate::skip;
use anyhow::{Context, Result, ensure};
use std::net::TcpListener;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// The document with the configuration.
const OPERATING: &str = include_str!("../../docs/OPERATING.md");

/// A running nginx with its own configuration, folder and pid; stopped on drop.
#[derive(Debug)]
pub struct Nginx {
    port: u16,
    _process: Process,
    _folder: TempDir,
}

/// Whether the relay sees the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Like Open OnDemand's `/rnode`.
    Stripped,
    /// Like Open OnDemand's `/node`.
    Kept,
}

/// Attempts to start it: its port may have been taken meanwhile.
const TRIES: usize = 5;
/// The user that nginx runs as if these tests are root: nobody.
const NOBODY: u32 = 65_534;

impl Nginx {
    /// Its user, as `--trusted-proxy` expects it.
    pub fn user() -> String {
        let us = rustix::process::geteuid();
        if us.is_root() { NOBODY } else { us.as_raw() }.to_string()
    }

    /// The header in which it states the authenticated user, if configured.
    pub const USER_HEADER: &str = "X-Forwarded-User";

    /// Starts one that serves `upstream` (`127.0.0.1:8080`) below `path` (`/rnode/login1/8080`), or skips
    /// the test if nginx is missing.
    ///
    /// # Errors
    /// If it does not start, with its message.
    pub fn start(upstream: &str, path: &str, prefix: Prefix) -> Result<Option<Self>> {
        Self::start_naming(upstream, path, prefix, None)
    }

    /// Starts one that states this user for every request.
    ///
    /// # Errors
    /// As [`Nginx::start`].
    pub fn start_naming(
        upstream: &str,
        path: &str,
        prefix: Prefix,
        user: Option<&str>,
    ) -> Result<Option<Self>> {
        let Some([program]) = skip::programs(["nginx"]) else { return Ok(None) };
        let start = || Self::try_start(&program, upstream, path, prefix, user);
        (1..TRIES).find_map(|_| start().ok()).map_or_else(start, Ok).map(Some)
    }

    fn try_start(
        program: &Path,
        upstream: &str,
        path: &str,
        prefix: Prefix,
        user: Option<&str>,
    ) -> Result<Self> {
        let folder = tempfile::tempdir().context("make a folder for nginx")?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let config = folder.path().join("nginx.conf");
        std::fs::write(&config, configuration(port, upstream, path, prefix, user)?)?;
        let mut command = Command::new(program);
        command.arg("-p").arg(folder.path()).arg("-c").arg(&config).args(["-e", "stderr"]);
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(folder.path(), Some(NOBODY), Some(NOBODY))?;
            command.uid(NOBODY).gid(NOBODY);
        }
        let mut process = Process::start(&mut command)?;
        process.wait_for("a worker", |line| line.contains("start worker process ").then_some(()))?;
        Ok(Self { port, _process: process, _folder: folder })
    }

    /// Its `host:port`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }
}

/// The configuration from docs/OPERATING.md at this place, plus what is needed to run next to another nginx.
fn configuration(
    port: u16,
    upstream: &str,
    path: &str,
    prefix: Prefix,
    user: Option<&str>,
) -> Result<String> {
    let slash = if prefix == Prefix::Stripped { "/" } else { "" };
    let mut location = example(OPERATING, "## Behind a proxy", "nginx")?.to_owned();
    // An empty value removes the header, including one sent by the client.
    let user = user.unwrap_or("''");
    let here = [
        ("auth_basic \"nodeglass\";", "auth_basic off;"),
        ("proxy_set_header Authorization \"\";", ""),
        ("location /rnode/login1/8080/", &format!("location {path}/")),
        ("http://127.0.0.1:8080/", &format!("http://{upstream}{slash}")),
        ("$remote_user", user),
    ];
    for (documented, ours) in here {
        ensure!(location.matches(documented).count() == 1, "{documented} is not in {location}");
        location = location.replace(documented, ours);
    }
    Ok(format!(
        "daemon off;
worker_processes 1;
pid nginx.pid;
error_log stderr notice;
events {{ worker_connections 256; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    uwsgi_temp_path uwsgi;
    scgi_temp_path scgi;
    map $http_upgrade $connection_upgrade {{ default upgrade; '' close; }}
    server {{
        listen 127.0.0.1:{port};
        {location}
    }}
}}
"
    ))
}
