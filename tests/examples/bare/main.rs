//! A bare tokio-tungstenite server that sends the same frames to all clients, as a baseline: `bare
//! PERIOD_MS EACH SIZE…`.

use anyhow::{Context, Result};
use futures_util::{SinkExt, StreamExt};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::broadcast;
use tokio_tungstenite::tungstenite::{Bytes, Message};

/// The relay's connection limit.
const THREADS: usize = 2;
/// Frames that may wait for a slow client; it misses further ones.
const DEPTH: usize = 16;

fn main() -> Result<()> {
    let mut numbers = std::env::args().skip(1).map(|word| word.parse::<usize>());
    let period = numbers.next().context("say the time between two rounds in ms")??;
    let each = numbers.next().context("say how many frames a round has")??;
    let frames: Vec<Bytes> = numbers.map(|size| Ok(vec![0x5a; size?].into())).collect::<Result<_>>()?;
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(THREADS).enable_all().build()?;
    runtime.block_on(serve(Duration::from_millis(period as u64), each, frames))
}

async fn serve(period: Duration, each: usize, frames: Vec<Bytes>) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    println!("port {}", listener.local_addr()?.port());
    let (everybody, _) = broadcast::channel(DEPTH);
    let mut rounds = tokio::time::interval(period);
    let mut frames = frames.iter().cycle();
    loop {
        tokio::select! {
            // A client connects.
            Ok((socket, _)) = listener.accept() => drop(tokio::spawn(serve_viewer(socket, everybody.subscribe()))),
            // The next frames for all.
            _ = rounds.tick() => for frame in frames.by_ref().take(each) {
                // Without clients, no data is sent.
                let _ = everybody.send(frame.clone());
            },
        }
    }
}

async fn serve_viewer(socket: TcpStream, mut frames: broadcast::Receiver<Bytes>) -> Result<()> {
    socket.set_nodelay(true)?;
    let (mut sink, mut stream) = tokio_tungstenite::accept_async(socket).await?.split();
    loop {
        tokio::select! {
            // A disconnected client is removed.
            incoming = stream.next() => if incoming.is_none_or(|incoming| incoming.is_err()) { return Ok(()) },
            frame = frames.recv() => match frame {
                Ok(frame) => sink.send(Message::Binary(frame)).await?,
                Err(broadcast::error::RecvError::Lagged(_)) => {}
                Err(broadcast::error::RecvError::Closed) => return Ok(()),
            },
        }
    }
}
