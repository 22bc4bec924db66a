//! Delivers rounds in order, on a task of its own, with a growing pause after failures.

use super::credentials::Credentials;
use super::request::{Request, Round};
use super::spool::Spool;
use hyper::header::{AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use nodeglass_api::RemoteWriteStatus;
use nodeglass_http_client::{Client, HttpError, HttpUrl};
use nodeglass_protocol::Text;
use nodeglass_rules::backoff::exponential;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until};

/// Rounds that wait for the task.
const WAITING: usize = 8;
/// Number of bytes of an answer that tell a page for people.
const BEGINNING: usize = 256;
/// The problem with such an answer.
const PAGE: &str =
    "it is a web page, as of a login portal, and none of remote write; check the URL and the credentials";
/// Pause after the first failure, the longest one, and the longest that a server may ask for.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(60);
const LONGEST_RETRY_AFTER: Duration = Duration::from_secs(3_600);

/// Counts since the start. Cheap to clone.
#[derive(Clone, Debug, Default)]
pub struct Counts(Arc<Mutex<RemoteWriteStatus>>);

/// Problem of the delivery as a complete sentence; `None` while the server accepts all.
pub type State = watch::Receiver<Option<Text>>;

/// Handle to the task. It ends, and stores what was not sent, once this is dropped.
#[derive(Debug)]
pub struct Sender {
    rounds: mpsc::Sender<Round>,
    counts: Counts,
    state: State,
}

impl Counts {
    /// The counts now.
    pub fn status(&self) -> RemoteWriteStatus {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn update(&self, change: impl FnOnce(&mut RemoteWriteStatus)) {
        change(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner));
    }
}

impl Sender {
    /// Starts the task; the second value resolves when it has ended.
    pub fn start(
        url: HttpUrl,
        credentials: Option<Credentials>,
        spool: Spool,
    ) -> (Self, tokio::task::JoinHandle<()>) {
        let (rounds, received) = mpsc::channel(WAITING);
        let (problem, state) = watch::channel(None);
        let counts = Counts::default();
        let delivery = Delivery {
            url,
            headers: headers(credentials),
            spool,
            counts: counts.clone(),
            problem,
            undelivered: None,
            unstored: None,
            failures: 0,
            retry_at: Instant::now(),
        };
        delivery.count_pending();
        let task = tokio::spawn(delivery.run(received));
        (Self { rounds, counts, state }, task)
    }

    /// Passes a round on, without waiting; if the task does not take them, it is dropped and counted.
    pub fn send(&self, round: Round) {
        if let Err(error) = self.rounds.try_send(round) {
            let (mpsc::error::TrySendError::Full(round) | mpsc::error::TrySendError::Closed(round)) = error;
            self.counts.update(|counts| counts.dropped += round.samples());
        }
    }

    /// Its counts.
    pub fn counts(&self) -> Counts {
        self.counts.clone()
    }

    /// Its state.
    pub fn state(&self) -> State {
        self.state.clone()
    }
}

fn headers(credentials: Option<Credentials>) -> HeaderMap {
    let mut headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("application/x-protobuf")),
        (CONTENT_ENCODING, HeaderValue::from_static("snappy")),
        (HeaderName::from_static("x-prometheus-remote-write-version"), HeaderValue::from_static("0.1.0")),
    ]);
    headers.extend(credentials.map(|credentials| (AUTHORIZATION, credentials.header())));
    headers
}

/// The task.
struct Delivery {
    url: HttpUrl,
    headers: HeaderMap,
    spool: Spool,
    counts: Counts,
    problem: watch::Sender<Option<Text>>,
    /// Problem with the server.
    undelivered: Option<String>,
    /// Problem with storing what waits.
    unstored: Option<String>,
    /// Failures in a row.
    failures: u32,
    retry_at: Instant,
}

/// The event that ended a wait.
enum Next {
    Sent(Request, Result<(), HttpError>),
    Round(Option<Round>),
}

impl Delivery {
    async fn run(mut self, mut rounds: mpsc::Receiver<Round>) {
        let mut attempt = None;
        loop {
            if attempt.is_none()
                && let Some(request) = self.in_background(Spool::front).await
            {
                attempt =
                    Some(Box::pin(post(self.url.clone(), self.headers.clone(), request, self.retry_at)));
            }
            self.count_pending();
            self.report_problem();
            let next = match &mut attempt {
                Some(attempt) => tokio::select! {
                    // What was sent counts as such, also while the relay ends.
                    biased;
                    (request, result) = attempt => Next::Sent(request, result),
                    round = rounds.recv() => Next::Round(round),
                },
                None => Next::Round(rounds.recv().await),
            };
            match next {
                Next::Sent(request, result) => {
                    attempt = None;
                    self.judge(&request, result).await;
                }
                Next::Round(Some(round)) => self.take(round).await,
                Next::Round(None) => break,
            }
        }
        if let Err(error) = self.in_background(Spool::persist).await {
            tracing::warn!(%error, "samples for remote write are lost, because they cannot be stored");
        }
    }

    async fn take(&mut self, round: Round) {
        let is_failing = self.failures > 0;
        let stored = self.in_background(move |spool| {
            spool.push(round);
            (is_failing || spool.exceeds_memory()).then(|| spool.persist())
        });
        if let Some(stored) = stored.await {
            self.note_storage(stored);
        }
    }

    /// Handles the outcome of a request.
    async fn judge(&mut self, request: &Request, result: Result<(), HttpError>) {
        let samples = u64::from(request.samples);
        let error = match result {
            Ok(()) => {
                self.failures = 0;
                self.counts.update(|counts| {
                    counts.sent += samples;
                    counts.sent_bytes += request.body.len() as u64;
                });
                self.undelivered = None;
                return self.in_background(Spool::pop).await;
            }
            Err(error) => error,
        };
        if is_refusal(&error) {
            self.failures = 0;
            self.counts.update(|counts| counts.refused += samples);
            self.undelivered =
                Some(format!("{samples} samples were not written to the remote storage: failed to {error}"));
            return self.in_background(Spool::pop).await;
        }
        self.failures = self.failures.saturating_add(1);
        let pause = exponential(FIRST_PAUSE, self.failures, LONGEST_PAUSE);
        let asked = error.retry_after().unwrap_or_default().min(LONGEST_RETRY_AFTER);
        self.retry_at = Instant::now() + pause.max(asked);
        self.counts.update(|counts| counts.retries += 1);
        self.undelivered =
            Some(format!("metrics for the remote storage wait and are sent again: failed to {error}"));
        let stored = self.in_background(Spool::persist).await;
        self.note_storage(stored);
    }

    fn note_storage(&mut self, stored: std::io::Result<()>) {
        self.unstored = stored.err().map(|error| {
            format!("metrics for the remote storage wait in memory only: failed to store them: {error}")
        });
    }

    /// Publishes all problems there are as one text.
    fn report_problem(&mut self) {
        if self.spool.pending().0 == 0 {
            self.unstored = None;
        }
        let problems = [self.undelivered.clone(), self.unstored.clone(), self.spool.unreadable()];
        let problems: Vec<String> = problems.into_iter().flatten().collect();
        let problem = (!problems.is_empty()).then(|| Text::new(problems.join("; ")));
        self.problem.send_if_modified(|known| {
            let is_new = *known != problem;
            if let Some(why) = problem.as_ref().filter(|_| is_new) {
                tracing::warn!("{why}");
            }
            *known = problem;
            is_new
        });
    }

    /// Runs an operation of the spool on a thread that may wait for the disk.
    async fn in_background<T: Send + 'static>(
        &mut self,
        operation: impl FnOnce(&mut Spool) -> T + Send + 'static,
    ) -> T {
        let mut spool = std::mem::take(&mut self.spool);
        let run = tokio::task::spawn_blocking(move || (operation(&mut spool), spool));
        match run.await {
            Ok((result, spool)) => {
                self.spool = spool;
                let dropped = self.spool.take_dropped();
                self.counts.update(|counts| counts.dropped += dropped);
                result
            }
            Err(error) => std::panic::resume_unwind(error.into_panic()),
        }
    }

    fn count_pending(&self) {
        let (pending, pending_bytes) = self.spool.pending();
        self.counts.update(|counts| (counts.pending, counts.pending_bytes) = (pending, pending_bytes));
    }
}

/// Sends a request, not before a time.
async fn post(
    url: HttpUrl,
    headers: HeaderMap,
    request: Request,
    not_before: Instant,
) -> (Request, Result<(), HttpError>) {
    sleep_until(not_before).await;
    let answer = Client::default().post(&url, headers, request.body.clone(), BEGINNING, Duration::MAX).await;
    let result = answer.and_then(|answer| match is_page(&answer) {
        true => Err(HttpError::Answer(url.host().to_string(), PAGE.to_owned())),
        false => Ok(()),
    });
    (request, result)
}

/// Returns whether an answer is for people: servers of remote write send nothing, or a short text.
fn is_page(answer: &[u8]) -> bool {
    answer.trim_ascii_start().starts_with(b"<")
}

/// Returns whether the server will never accept the request, as remote write 1.0 defines it.
fn is_refusal(error: &HttpError) -> bool {
    matches!(error, HttpError::Status { status: 400..=499, .. }) && !error.is_transient()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::VecDeque;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    /// What a server does with a request.
    #[derive(Clone, Copy)]
    enum Way {
        Answer(&'static str),
        Reset,
        Hang,
    }

    const OK: Way = Way::Answer("HTTP/1.1 204 No Content\r\n\r\n");

    /// A server that treats requests in these ways, in order and then well. Returns its URL, and the bodies that it accepted.
    async fn server(ways: &[Way]) -> (HttpUrl, mpsc::UnboundedReceiver<String>) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/api/v1/write", listener.local_addr().unwrap()).parse().unwrap();
        let (accepted, bodies) = mpsc::unbounded_channel();
        let mut ways: VecDeque<Way> = ways.iter().copied().collect();
        tokio::spawn(async move {
            let mut hanging = Vec::new();
            loop {
                let (mut stream, _) = listener.accept().await.unwrap();
                let mut request = Vec::new();
                // The bodies of these tests end with a semicolon, which no header has.
                while !request.ends_with(b";") && stream.read_buf(&mut request).await.unwrap() > 0 {}
                let body = String::from_utf8(request).unwrap();
                let body = body.rsplit("\r\n").next().unwrap().to_owned();
                match ways.pop_front().unwrap_or(OK) {
                    Way::Answer(answer) => {
                        if answer.starts_with("HTTP/1.1 2") {
                            let _ = accepted.send(body);
                        }
                        stream.write_all(answer.as_bytes()).await.unwrap();
                    }
                    Way::Reset => drop(stream),
                    Way::Hang => hanging.push(stream),
                }
            }
        });
        (url, bodies)
    }

    fn round(text: &'static str) -> Round {
        Round { requests: vec![Request { samples: 2, body: text.into() }] }
    }

    /// Sends three rounds; returns what the server accepted, and the counts.
    async fn deliver(ways: &[Way], expected: usize) -> (Vec<String>, RemoteWriteStatus) {
        let (url, mut bodies) = server(ways).await;
        let (sender, sending) = Sender::start(url, None, Spool::in_memory(1 << 20));
        ["first;", "second;", "third;"].into_iter().for_each(|text| sender.send(round(text)));
        let mut accepted = Vec::new();
        while accepted.len() < expected {
            accepted.push(bodies.recv().await.unwrap());
        }
        let (counts, mut state) = (sender.counts(), sender.state());
        state.wait_for(Option::is_none).await.unwrap();
        while counts.status().pending > 0 {
            tokio::task::yield_now().await;
        }
        drop(sender);
        sending.await.unwrap();
        (accepted, counts.status())
    }

    #[tokio::test]
    async fn a_refused_request_is_dropped_and_counted_and_the_next_is_sent() {
        let refused = Way::Answer("HTTP/1.1 400 Bad Request\r\nContent-Length: 12\r\n\r\nout of order");
        let (accepted, counts) = deliver(&[refused], 2).await;
        assert_eq!(accepted, ["second;", "third;"]);
        assert_eq!((counts.sent, counts.refused, counts.retries, counts.dropped), (4, 2, 0, 0));
        assert_eq!(counts.sent_bytes, 13);
    }

    #[tokio::test]
    async fn failures_resets_and_throttling_are_repeated_in_order() {
        let failed = Way::Answer("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n");
        let (accepted, counts) = deliver(&[Way::Reset, OK, failed], 3).await;
        assert_eq!(accepted, ["first;", "second;", "third;"]);
        assert_eq!((counts.sent, counts.refused, counts.retries, counts.pending), (6, 0, 2, 0));
    }

    #[tokio::test]
    async fn a_web_page_is_no_success() {
        let page = "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n\n<!doctype html><title>";
        let text = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (accepted, counts) = deliver(&[Way::Answer(page), Way::Answer(text)], 4).await;
        assert_eq!(accepted, ["first;", "first;", "second;", "third;"]);
        assert_eq!((counts.sent, counts.retries), (6, 1));
    }

    #[tokio::test]
    async fn retry_after_is_obeyed() {
        let throttled = Way::Answer("HTTP/1.1 429 Slow\r\nRetry-After: 3\r\nContent-Length: 0\r\n\r\n");
        let began = Instant::now();
        let (accepted, counts) = deliver(&[throttled], 3).await;
        assert_eq!((accepted.len(), counts.retries), (3, 1));
        assert!(began.elapsed() >= Duration::from_secs(3), "not before the server allows it");
    }

    #[tokio::test]
    async fn a_server_that_fails_while_the_disk_is_full_is_one_problem_until_both_work() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("spool");
        let dir = nodeglass_platform::state_dir::StateDir::at(&path).unwrap();
        let spool = Spool::open(dir, 1 << 20).unwrap();
        std::fs::remove_dir_all(&path).unwrap();
        std::fs::write(&path, "in its place").unwrap();
        let failed = Way::Answer("HTTP/1.1 503 Unavailable\r\nContent-Length: 0\r\n\r\n");
        let (url, _bodies) = server(&[failed]).await;
        let (sender, _sending) = Sender::start(url, None, spool);
        let mut state = sender.state();
        sender.send(round("first;"));
        let mut problems = Vec::new();
        loop {
            state.changed().await.unwrap();
            match state.borrow_and_update().clone() {
                Some(problem) => problems.push(problem.to_string()),
                None => break,
            }
        }
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].contains("are sent again") && problems[0].contains("in memory only"));
        assert_eq!(sender.counts().status().retries, 1);
    }

    #[tokio::test]
    async fn rounds_are_taken_while_a_server_hangs_and_kept_for_the_next_relay() {
        let folder = tempfile::tempdir().unwrap();
        let dir = || nodeglass_platform::state_dir::StateDir::at(folder.path().join("spool")).unwrap();
        let (url, _bodies) = server(&[Way::Hang]).await;
        let (sender, sending) = Sender::start(url, None, Spool::open(dir(), 1 << 20).unwrap());
        for _ in 0..3 * WAITING as u64 {
            sender.send(round("x;"));
            let sent = sender.counts().status().pending;
            while sender.counts().status().pending == sent {
                tokio::task::yield_now().await;
            }
        }
        assert_eq!(sender.counts().status().dropped, 0);
        drop(sender);
        sending.await.unwrap();
        assert_eq!(Spool::open(dir(), 1 << 20).unwrap().pending().0, 6 * WAITING as u64);
    }
}
