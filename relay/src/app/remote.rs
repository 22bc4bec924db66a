//! The owner's running relay, found by its key file, as its clients see it: requests over its private socket.

use super::local_time::LocalTime;
use super::terminal;
use crate::access::key_file::{self, Running};
use crate::access::runtime_dir::{Places, RuntimeDir};
use crate::api::Job;
use crate::clock::Clock;
use crate::report::Report;
use crate::web::api::problem::Problem;
use anyhow::{Context, bail};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use nodeglass_protocol::JobId;
use nodeglass_protocol::handshake::Key;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Time limit for a response of the relay.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a response, in bytes.
const MAX_ANSWER: usize = 256 << 20;

const UNKNOWN_FORMAT: &str = "the relay sent a response in an unknown format; it may be of another version";

/// The error where a command needs a relay and none runs.
pub const NONE_RUNS: &str = "no relay of yours is running on this machine; start one with `relay`";

/// A response is longer than its reader wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the response is too long")]
pub struct TooLong;

/// A list of jobs.
#[derive(Deserialize)]
struct Jobs {
    jobs: Vec<Job>,
}

/// A running relay of this user.
pub struct Remote {
    dir: RuntimeDir,
    running: Running,
    /// Whether it was selected by its process id, as where several run.
    is_selected: bool,
}

impl Remote {
    /// The relay with this process id, or the only one.
    ///
    /// # Errors
    /// A complete sentence for the user, if there is none or the choice is ambiguous.
    pub fn find(pid: Option<u32>) -> anyhow::Result<Self> {
        let mut found = Self::list()?;
        found.retain(|relay| pid.is_none_or(|pid| pid == relay.running.pid));
        found.iter_mut().for_each(|relay| relay.is_selected = pid.is_some());
        match (found.pop(), pid) {
            (Some(only), _) if found.is_empty() => Ok(only),
            (Some(last), _) => {
                let running: Vec<_> = found.into_iter().chain([last]).map(|one| one.running).collect();
                bail!(ambiguous(&running, Clock::wall_ms() / 1_000))
            }
            (None, Some(pid)) => {
                bail!("no relay of yours has pid {pid}; `relay link` lists those that are running")
            }
            (None, None) => bail!(NONE_RUNS),
        }
    }

    /// All relays of this user on this machine.
    ///
    /// # Errors
    /// A directory of relays cannot be read.
    pub fn list() -> anyhow::Result<Vec<Self>> {
        let mut found = Vec::new();
        for dir in RuntimeDir::existing(&Places::from_env()) {
            for running in key_file::running(&dir)? {
                found.push(Self { dir: dir.try_clone()?, running, is_selected: true });
            }
        }
        Ok(found)
    }

    /// Its process id.
    pub fn pid(&self) -> u32 {
        self.running.pid
    }

    /// What it stores about itself.
    pub fn running(&self) -> &Running {
        &self.running
    }

    /// Connects to its private socket.
    ///
    /// # Errors
    /// If nothing listens there.
    pub async fn connect(&self) -> std::io::Result<UnixStream> {
        UnixStream::connect(self.dir.socket(&key_file::socket_name(self.running.pid))).await
    }

    /// The key of its owner, to prove in a handshake.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub fn owner_key(&self) -> anyhow::Result<Key> {
        Ok(self.key()?.parse()?)
    }

    /// What a job that the relay knows has used.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn report(&self, job: JobId) -> anyhow::Result<Report> {
        self.json(Method::GET, &format!("/api/v1/jobs/{job}/report"), String::new()).await
    }

    /// The jobs that it lists.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub(super) async fn jobs(&self) -> anyhow::Result<Vec<Job>> {
        Ok(self.json::<Jobs>(Method::GET, "/api/v1/jobs", String::new()).await?.jobs)
    }

    /// The option that selects it again, with a space before it; empty if none is needed.
    pub(super) fn option(&self) -> String {
        if self.is_selected { format!(" --relay {}", self.running.pid) } else { String::new() }
    }

    /// Sends a request and parses the response.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub(super) async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<T> {
        serde_json::from_slice(&self.request(method, path, body).await?).context(UNKNOWN_FORMAT)
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub(super) async fn request(&self, method: Method, path: &str, body: String) -> anyhow::Result<Vec<u8>> {
        self.request_limited(method, path, body, MAX_ANSWER).await
    }

    /// The same for a response of at most `max_bytes`, so that a longer one is not even read.
    ///
    /// # Errors
    /// A complete sentence for the user, or [`TooLong`].
    pub(super) async fn request_limited(
        &self,
        method: Method,
        path: &str,
        body: String,
        max_bytes: usize,
    ) -> anyhow::Result<Vec<u8>> {
        let exchange = async { self.exchange(self.connect().await?, method, path, body, max_bytes).await };
        let (ok, answer) = timeout(ANSWER_TIMEOUT, exchange)
            .await
            .with_context(|| format!("the relay (pid {}) did not answer within 10 s", self.running.pid))?
            .with_context(|| format!("cannot reach the relay (pid {})", self.running.pid))?;
        if !ok {
            bail!("{}", reason(&answer));
        }
        Ok(answer)
    }

    async fn exchange(
        &self,
        stream: UnixStream,
        method: Method,
        path: &str,
        body: String,
        max_bytes: usize,
    ) -> anyhow::Result<(bool, Vec<u8>)> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(AUTHORIZATION, format!("Bearer {}", self.key()?))
            .header(CONTENT_TYPE, "application/json")
            .body(body)?;
        let response = sender.send_request(request).await?;
        Ok((response.status().is_success(), read(response.into_body(), max_bytes).await?))
    }

    /// The owner's key, from the file that only the owner can read.
    fn key(&self) -> anyhow::Result<&str> {
        let key = self.running.links.first().and_then(|link| link.rsplit_once("#k="));
        Ok(key.context("the running relay has no link")?.1)
    }
}

/// Why a request failed: the detail of a problem, or what a relay of another version wrote instead.
fn reason(answer: &[u8]) -> String {
    let problem = serde_json::from_slice::<Problem>(answer).map(|problem| problem.detail);
    problem.unwrap_or_else(|_| String::from_utf8_lossy(answer).trim_end().to_owned())
}

/// The error where several relays run and none is named.
fn ambiguous(running: &[Running], now_s: u64) -> String {
    let lines = terminal::overview(running, now_s, LocalTime::of);
    format!(
        "{} relays of yours are running; choose one with --relay PID:\n  {}",
        running.len(),
        lines.join("\n  ")
    )
}

/// Reads a body of at most `max_bytes`.
async fn read(mut body: Incoming, max_bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            if bytes.len() + data.len() > max_bytes {
                return Err(TooLong.into());
            }
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}
