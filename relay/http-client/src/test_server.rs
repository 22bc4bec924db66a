//! A real listener on loopback that accepts, refuses, redirects, hangs, and never ends its response.
#![allow(clippy::unwrap_used, clippy::missing_panics_doc, reason = "for tests")]

use crate::HttpUrl;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio::task::JoinHandle;
use tokio_rustls::TlsAcceptor;

/// How a server answers its connections, one after the other; the last way is used for all further ones.
#[derive(Clone, Copy, Debug)]
pub enum Way {
    /// With this text.
    Answer(&'static str),
    /// With this text, and then without an end.
    Endless(&'static str),
    /// Not at all.
    Hang,
    /// By closing.
    Close,
}

/// A server on loopback with faults; it ends when it is dropped.
#[derive(Debug)]
pub struct Server {
    /// The port.
    pub port: u16,
    /// Received requests.
    pub requests: mpsc::UnboundedReceiver<String>,
    accepted: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    /// Starts one.
    pub async fn start(ways: &'static [Way]) -> Self {
        Self::start_with(ways, None).await
    }

    /// Starts one, with TLS or without.
    pub async fn start_with(ways: &'static [Way], tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (sender, requests) = mpsc::unbounded_channel();
        let accepted = Arc::<AtomicUsize>::default();
        let count = accepted.clone();
        let task = tokio::spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.unwrap();
                let way = ways[count.fetch_add(1, Ordering::SeqCst).min(ways.len() - 1)];
                let (sender, tls) = (sender.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => serve(stream, way, &sender).await,
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                serve(stream, way, &sender).await;
                            }
                        }
                    }
                });
            }
        });
        Self { port, requests, accepted, task }
    }

    /// Its URL, with a secret.
    pub fn url(&self) -> HttpUrl {
        format!("http://127.0.0.1:{}/hooks/s3cret", self.port).parse().unwrap()
    }

    /// The number of accepted connections.
    pub fn connections(&self) -> usize {
        self.accepted.load(Ordering::SeqCst)
    }
}

async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    way: Way,
    requests: &mpsc::UnboundedSender<String>,
) {
    if matches!(way, Way::Close) {
        return;
    }
    let mut request = Vec::new();
    let mut buffer = [0; 4_096];
    while !is_whole(&request) {
        match stream.read(&mut buffer).await {
            Ok(read @ 1..) => request.extend_from_slice(&buffer[..read]),
            _ => return,
        }
    }
    let _ = requests.send(String::from_utf8_lossy(&request).into_owned());
    match way {
        Way::Answer(text) => drop(stream.write_all(text.as_bytes()).await),
        Way::Endless(text) => {
            let _ = stream.write_all(text.as_bytes()).await;
            while stream.write_all(&[b'x'; 1_024]).await.is_ok() {
                tokio::task::yield_now().await;
            }
        }
        Way::Hang => std::future::pending().await,
        Way::Close => {}
    }
}

/// Returns whether the request has arrived with its body.
fn is_whole(request: &[u8]) -> bool {
    let text = String::from_utf8_lossy(request);
    let Some((head, body)) = text.split_once("\r\n\r\n") else { return false };
    let length = head
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    length.is_none_or(|length: usize| body.len() >= length)
}
