//! Limits the bytes per second that a connection may send; excess data waits with the sender.
//!
//! This also bounds frames without content, which complete no message and so escape message limits.

use nodeglass_platform::token_bucket::TokenBucket;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep, sleep_until};

/// Burst in bytes: far more than a browser's request and a page's first messages.
const BURST: f64 = 256.0 * 1024.0;
/// Refill in bytes per second; a page sends a few hundred.
const BYTES_PER_S: f64 = 64.0 * 1024.0;
/// Budget to wait for before a read, so that reads stay large: the budget of a tenth of a second.
const MIN_READ: f64 = BYTES_PER_S / 10.0;

/// A stream with limited reads. Writes are bounded where their data is produced.
#[derive(Debug)]
pub(super) struct Throttled<S> {
    stream: S,
    budget: TokenBucket,
    pause: Option<Pin<Box<Sleep>>>,
}

impl<S> Throttled<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream, budget: TokenBucket::full(BURST, BYTES_PER_S, Instant::now()), pause: None }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Throttled<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let available = loop {
            if let Some(pause) = &mut this.pause {
                ready!(pause.as_mut().poll(cx));
                this.pause = None;
            }
            let now = Instant::now();
            let ready_at = this.budget.available_at(MIN_READ, now);
            if ready_at <= now {
                break this.budget.left(now);
            }
            this.pause = Some(Box::pin(sleep_until(ready_at)));
        };
        let len = buf.remaining().min(available as usize);
        let mut part = ReadBuf::new(buf.initialize_unfilled_to(len));
        ready!(Pin::new(&mut this.stream).poll_read(cx, &mut part))?;
        let read = part.filled().len();
        buf.advance(read);
        this.budget.take(read as f64, Instant::now());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Throttled<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test(start_paused = true)]
    async fn t19_reads_are_limited_to_the_byte_budget() {
        let (mut far, near) = duplex(64 * 1024);
        tokio::spawn(async move { while far.write_all(&[0; 4096]).await.is_ok() {} });
        let mut near = Throttled::new(near);
        let (started, mut taken) = (Instant::now(), 0);
        let mut buf = vec![0; 16 * 1024];
        while started.elapsed() < Duration::from_secs(10) {
            taken += near.read(&mut buf).await.unwrap();
        }
        let (least, most) = (BURST + 9.0 * BYTES_PER_S, BURST + 11.0 * BYTES_PER_S);
        assert!((least..=most).contains(&(taken as f64)), "{taken} bytes, at most {most}");
    }

    #[tokio::test]
    async fn data_within_the_budget_and_the_end_of_stream_pass_unchanged() {
        let (mut far, near) = duplex(1024);
        let sent: Vec<u8> = (0..BURST as usize).map(|i| i as u8).collect();
        let expected = sent.clone();
        tokio::spawn(async move { far.write_all(&sent).await });
        let mut got = Vec::new();
        Throttled::new(near).read_to_end(&mut got).await.unwrap();
        assert!(got == expected);
    }
}
