//! Servers with Prometheus' HTTP API: Prometheus itself and VictoriaMetrics, started on a free port and asked in PromQL.

use crate::process::Process;
use crate::{TIMEOUT, http};
use anyhow::{Context, Result, bail, ensure};
use serde_json::Value;
use std::fmt::Write as _;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A server; ended with this.
pub struct PromServer {
    process: Process,
    authority: String,
}

/// Returns an address of this machine that is free.
///
/// # Errors
/// If no port is free.
pub fn free_address() -> Result<String> {
    Ok(format!("127.0.0.1:{}", TcpListener::bind("127.0.0.1:0")?.local_addr()?.port()))
}

impl PromServer {
    /// Starts Prometheus with the file `prometheus.yml` in a folder, for its data as well.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn prometheus(folder: &Path, authority: String) -> Result<Self> {
        let mut command = Command::new("prometheus");
        command.current_dir(folder).args(["--config.file=prometheus.yml", "--storage.tsdb.path=data"]);
        command.args(["--web.enable-remote-write-receiver", &format!("--web.listen-address={authority}")]);
        Ok(Self { process: Process::start(&mut command)?, authority })
    }

    /// Starts VictoriaMetrics with its data in a folder.
    ///
    /// # Errors
    /// If it cannot be started.
    pub fn victoria_metrics(folder: &Path, authority: String) -> Result<Self> {
        let mut command = Command::new("victoria-metrics");
        command.current_dir(folder).args(["-storageDataPath=data", "-retentionPeriod=1y"]);
        // What was written is found at once, and stale markers end series, as in Prometheus.
        command.args(["-search.latencyOffset=0s", "-search.disableCache"]);
        command.arg(format!("-httpListenAddr={authority}"));
        Ok(Self { process: Process::start(&mut command)?, authority })
    }

    /// Host and port.
    pub fn authority(&self) -> &str {
        &self.authority
    }

    /// The result of an instant query.
    ///
    /// # Errors
    /// If the server does not respond, or refuses the query.
    pub fn query(&self, query: &str) -> Result<Vec<Value>> {
        let encoded = query.bytes().fold(String::new(), |mut encoded, byte| {
            let _ = write!(encoded, "%{byte:02X}");
            encoded
        });
        let reply = http::get(&self.authority, &format!("/api/v1/query?query={encoded}"), &[])?;
        let answer: Value =
            serde_json::from_str(&reply.body).with_context(|| format!("{query}: {reply:?}"))?;
        ensure!(answer["status"] == "success", "{query}: {answer}");
        Ok(answer["data"]["result"].as_array().cloned().unwrap_or_default())
    }

    /// Waits until a query has a result.
    ///
    /// # Errors
    /// If it has none for long; includes the output of the server if it does not respond.
    pub fn wait_for(&self, query: &str) -> Result<Vec<Value>> {
        let start = Instant::now();
        loop {
            match self.query(query) {
                Ok(result) if !result.is_empty() => return Ok(result),
                Err(error) if start.elapsed() > TIMEOUT => {
                    return Err(error.context(self.process.output().text()));
                }
                _ if start.elapsed() > TIMEOUT => bail!("no result: {query}"),
                _ => std::thread::sleep(Duration::from_millis(200)),
            }
        }
    }
}
