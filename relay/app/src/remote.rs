//! The owner's running relay, found by its key file, as its clients see it: requests over its private socket.

use super::terminal;
use anyhow::{Context, anyhow, bail};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::TokioIo;
use nodeglass_access::key_file::{self, Running};
use nodeglass_access::runtime_dir::{Places, RuntimeDir};
use nodeglass_api::{Job, JobSelector};
use nodeglass_config::Requested;
use nodeglass_platform::clock::Clock;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::{JobId, LongText, Text};
use nodeglass_report::Report;
use nodeglass_web::api::problem::Problem;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Time limit for a response of the relay.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum number of requests for a newer list of jobs, each of which takes the relay at most 8 s.
const RENEWALS: u32 = 3;
/// Maximum length of a response, in bytes.
const MAX_ANSWER: usize = 256 << 20;
/// Maximum length of the message of a response, in bytes; what follows is not read.
const MAX_MESSAGE: usize = 16 << 10;
/// Maximum number of lines of a message.
const MAX_LINES: usize = 64;

/// The error where a command needs a relay and none runs.
pub const NONE_RUNS: &str = "no relay of yours is running on this machine; start one with `relay`";

/// An error response. The message is a complete sentence for the user.
#[derive(Debug, thiserror::Error)]
#[error("{reason}")]
pub struct Refused {
    /// The status code.
    pub status: StatusCode,
    reason: String,
}

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

    /// Returns the relay to attach to: that with this process id, or the one that watches what the command line requests,
    /// or the only one. `None` if none runs, or none watches that.
    ///
    /// # Errors
    /// A complete sentence for the user, if the relay with this process id does not run or the choice is ambiguous.
    pub fn matching(pid: Option<u32>, requested: Option<&Requested>) -> anyhow::Result<Option<Self>> {
        match (pid, requested) {
            (Some(_), _) => Self::find(pid).map(Some),
            (None, None) if Self::list()?.is_empty() => Ok(None),
            (None, None) => Self::find(None).map(Some),
            (None, Some(requested)) => Ok(Self::list()?.into_iter().find(|relay| {
                let Running { requested_watch, settings, .. } = &relay.running;
                requested.differences(requested_watch, settings).is_empty()
            })),
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

    /// Returns the description that it stores about itself.
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

    /// Returns the report of a job that the relay knows.
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
    pub async fn jobs(&self) -> anyhow::Result<Vec<Job>> {
        Ok(self.json::<Jobs>(Method::GET, "/api/v1/jobs", String::new()).await?.jobs)
    }

    /// The jobs that it lists, from a newer list if the last one lacks a job that is named.
    ///
    /// # Errors
    /// A complete sentence for the user, also if SLURM does not respond.
    pub async fn jobs_with(&self, named: &[JobSelector]) -> anyhow::Result<Vec<Job>> {
        let jobs = self.jobs().await?;
        let Some(missing) = named.iter().find(|job| job.select(&jobs).is_empty()) else { return Ok(jobs) };
        self.renew_jobs(missing).await?;
        self.jobs().await
    }

    /// Returns once its list of jobs is newer than this call, or has this job.
    ///
    /// # Errors
    /// A complete sentence for the user if SLURM does not respond, so that it is unknown whether there is such a job.
    pub async fn renew_jobs(&self, job: &JobSelector) -> anyhow::Result<()> {
        let path = format!("/api/v1/jobs/{}?fields=id", job.without_list());
        let mut attempts = RENEWALS;
        loop {
            attempts -= 1;
            let Err(error) = self.request(Method::GET, &path, String::new()).await else { return Ok(()) };
            match error.downcast_ref::<Refused>().map(|refused| refused.status) {
                // It responds from a newer list; in the second case, several jobs match.
                Some(StatusCode::NOT_FOUND | StatusCode::BAD_REQUEST) => return Ok(()),
                Some(StatusCode::GATEWAY_TIMEOUT) if attempts > 0 => {}
                _ => return Err(error),
            }
        }
    }

    /// Returns the option that selects it again, with a space before it; empty if not needed.
    pub fn option(&self) -> String {
        if self.is_selected { format!(" --relay {}", self.running.pid) } else { String::new() }
    }

    /// Sends a request and parses the response.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<T> {
        parse(&self.request(method, path, body).await?)
    }

    /// Sends a request and returns the response.
    ///
    /// # Errors
    /// A complete sentence for the user.
    pub async fn request(&self, method: Method, path: &str, body: String) -> anyhow::Result<Vec<u8>> {
        self.request_limited(method, path, body, MAX_ANSWER).await
    }

    /// Sends a request whose response has at most `max_bytes`; a longer one is not read.
    ///
    /// # Errors
    /// A complete sentence for the user; [`Refused`] if the relay responded with another status, or [`TooLong`].
    pub async fn request_limited(
        &self,
        method: Method,
        path: &str,
        body: String,
        max_bytes: usize,
    ) -> anyhow::Result<Vec<u8>> {
        let exchange = async { self.exchange(self.connect().await?, method, path, body, max_bytes).await };
        let (status, answer) = timeout(ANSWER_TIMEOUT, exchange)
            .await
            .map_err(|_| anyhow!("the relay (pid {}) did not respond within 10 s", self.running.pid))?
            .with_context(|| format!("cannot reach the relay (pid {})", self.running.pid))?;
        if !status.is_success() {
            return Err(Refused { status, reason: reason(status, &answer) }.into());
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
    ) -> anyhow::Result<(StatusCode, Vec<u8>)> {
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
        let status = response.status();
        let body = match status.is_success() {
            true => read(response.into_body(), max_bytes).await?,
            false => beginning(response.into_body(), MAX_MESSAGE).await?,
        };
        Ok((status, body))
    }

    /// The owner's key, from the file that only the owner can read.
    fn key(&self) -> anyhow::Result<&str> {
        let key = self.running.links.first().and_then(|link| link.rsplit_once("#k="));
        Ok(key.context("the running relay has no link")?.1)
    }
}

/// Returns why a request failed: the detail of a problem, or the text of a relay of another version.
fn reason(status: StatusCode, answer: &[u8]) -> String {
    let problem = serde_json::from_slice::<Problem>(answer);
    let detail = problem.map_or_else(|_| lines(answer), |problem| lines(problem.detail.as_bytes()));
    match detail.trim() {
        "" => format!("the relay responded with status {status}; it may be of another version"),
        detail => detail.to_owned(),
    }
}

/// Parses a response.
fn parse<T: DeserializeOwned>(answer: &[u8]) -> anyhow::Result<T> {
    serde_json::from_slice(answer).map_err(|error| {
        // The error quotes what it found.
        let error = Text::new(error.to_string());
        anyhow!("the relay sent a response in an unknown format; it may be of another version: {error}")
    })
}

/// A message as lines that are safe to print on a terminal, of which the last one ends too. Something else than a relay
/// may have sent it.
pub fn lines(message: &[u8]) -> String {
    let text = String::from_utf8_lossy(&message[..message.len().min(MAX_MESSAGE)]);
    text.trim_end().lines().take(MAX_LINES).map(|line| format!("{}\n", LongText::line(line))).collect()
}

/// Returns the error if several relays run and none is named.
fn ambiguous(running: &[Running], now_s: u64) -> String {
    let lines = terminal::overview(running, now_s, LocalTime::of);
    format!(
        "{} relays of yours are running; choose one with --relay PID:\n  {}",
        running.len(),
        lines.join("\n  ")
    )
}

/// A whole body.
async fn read(body: Incoming, max_bytes: usize) -> anyhow::Result<Vec<u8>> {
    let bytes = beginning(body, max_bytes).await?;
    if bytes.len() > max_bytes {
        return Err(TooLong.into());
    }
    Ok(bytes)
}

/// A body, or its beginning, which is longer than `max_bytes`.
async fn beginning(mut body: Incoming, max_bytes: usize) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while bytes.len() <= max_bytes
        && let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await
    {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
    }
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_relay_answers_reaches_the_terminal_without_escapes_and_within_bounds() {
        let problem = |detail: &str| {
            serde_json::to_vec(&Problem::new(StatusCode::CONFLICT, detail)).unwrap_or_default()
        };
        let escapes = "\u{1b}]0;x\u{7} there is \u{202e}no job";
        for answer in [problem(escapes), escapes.as_bytes().to_vec()] {
            assert_eq!(reason(StatusCode::CONFLICT, &answer), "]0;x  there is no job");
        }
        assert_eq!(reason(StatusCode::CONFLICT, b"one\n  two\r\n"), "one\n  two");
        assert!(reason(StatusCode::CONFLICT, &vec![b'x'; 1 << 20]).len() <= MAX_MESSAGE);
        assert!(reason(StatusCode::CONFLICT, &b"x\n".repeat(1_000)).lines().count() <= MAX_LINES);
        let error = parse::<Choice>(b"\"\\u001b[2J\"").unwrap_err().to_string();
        assert!(error.contains("unknown format") && !error.contains('\u{1b}'), "{error:?}");
    }

    #[test]
    fn a_response_without_a_message_is_reported_with_its_status() {
        for answer in ["", " \n", "{\"type\":\"about:blank\",\"title\":\"\",\"status\":404,\"detail\":\"\"}"]
        {
            assert_eq!(
                reason(StatusCode::NOT_FOUND, answer.as_bytes()),
                "the relay responded with status 404 Not Found; it may be of another version"
            );
        }
    }

    /// A type whose errors quote what was found.
    #[derive(Debug, serde::Deserialize)]
    enum Choice {
        #[serde(rename = "known")]
        _Known,
    }
}
