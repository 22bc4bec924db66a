//! A connection to a NATS server that a test interrupts, or that loses messages.

use anyhow::{Context, Result, ensure};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Maximum size of a message.
const MAX_MESSAGE: usize = 8 << 20;

/// A loopback port that leads to a server; closed on drop.
#[derive(Debug)]
pub struct NatsProxy {
    port: u16,
    is_interrupted: watch::Sender<bool>,
    faults: Arc<Faults>,
    task: JoinHandle<()>,
}

#[derive(Debug)]
struct Faults {
    is_interrupted: watch::Receiver<bool>,
    /// Number of messages to lose on their way to the client.
    to_lose: AtomicUsize,
}

impl NatsProxy {
    /// Opens it on a free port, in front of `host:port`.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn open(to: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a port")?;
        let port = listener.local_addr()?.port();
        let (is_interrupted, interrupted) = watch::channel(false);
        let faults = Arc::new(Faults { is_interrupted: interrupted, to_lose: AtomicUsize::new(0) });
        let task = tokio::spawn(serve(listener, to.to_owned(), Arc::clone(&faults)));
        Ok(Self { port, is_interrupted, faults, task })
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    /// Holds everything back in both directions, without closing a connection, as an unplugged cable does.
    pub fn interrupt(&self) {
        self.is_interrupted.send_replace(true);
    }

    /// Delivers what was held back, and what follows.
    pub fn resume(&self) {
        self.is_interrupted.send_replace(false);
    }

    /// Loses the next `count` messages with lines of probes on their way to the client.
    pub fn lose_lines(&self, count: usize) {
        self.faults.to_lose.fetch_add(count, Ordering::Relaxed);
    }

    /// Returns whether all of them were lost.
    pub fn has_lost_all(&self) -> bool {
        self.faults.to_lose.load(Ordering::Relaxed) == 0
    }
}

impl Drop for NatsProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Faults {
    /// Waits while the connection is interrupted.
    async fn pass(&self) {
        // The sender goes with the proxy, which ends this task.
        let _ = self.is_interrupted.clone().wait_for(|is_interrupted| !is_interrupted).await;
    }

    /// Returns whether a message to this subject is lost.
    fn loses(&self, subject: &str) -> bool {
        let take = |left: usize| left.checked_sub(1);
        subject.ends_with(".lines")
            && self.to_lose.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_ok()
    }
}

/// Forwards connections until it is cancelled, which closes them.
async fn serve(listener: TcpListener, to: String, faults: Arc<Faults>) {
    let mut connections = JoinSet::new();
    while let Ok((near, _)) = listener.accept().await {
        let (to, faults) = (to.clone(), Arc::clone(&faults));
        connections.spawn(async move {
            faults.pass().await;
            let Ok(far) = TcpStream::connect(&to).await else { return };
            let ((near_read, near_write), (far_read, far_write)) = (near.into_split(), far.into_split());
            // The end of one direction ends the other.
            tokio::select! {
                _ = to_server(near_read, far_write, &faults) => {}
                _ = to_client(BufReader::new(far_read), near_write, &faults) => {}
            }
        });
    }
}

async fn to_server(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults) -> io::Result<()> {
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let bytes = from.read(&mut buffer).await?;
        if bytes == 0 {
            return Ok(());
        }
        faults.pass().await;
        to.write_all(&buffer[..bytes]).await?;
    }
}

/// Forwards whole messages: a line, and the payload whose size the line of a message ends with.
async fn to_client(
    mut from: BufReader<OwnedReadHalf>,
    mut to: OwnedWriteHalf,
    faults: &Faults,
) -> Result<()> {
    loop {
        let mut message = Vec::new();
        if from.read_until(b'\n', &mut message).await? == 0 {
            return Ok(());
        }
        let line = String::from_utf8_lossy(&message).into_owned();
        let mut words = line.split_whitespace();
        let mut is_lost = false;
        if matches!(words.next(), Some("MSG" | "HMSG")) {
            is_lost = words.next().is_some_and(|subject| faults.loses(subject));
            let bytes: usize = words.last().context("no size")?.parse()?;
            ensure!(bytes <= MAX_MESSAGE, "a message of {bytes} bytes");
            let start = message.len();
            message.resize(start + bytes + 2, 0);
            from.read_exact(&mut message[start..]).await?;
        }
        faults.pass().await;
        if !is_lost {
            to.write_all(&message).await?;
        }
    }
}
