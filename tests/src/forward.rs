//! A forwarded port that a test cuts and mends, as `ssh -L` does when a laptop changes its network.

use anyhow::{Context, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};

/// A loopback port whose connections lead to a relay; closed on drop.
#[derive(Debug)]
pub struct Forward {
    port: u16,
    to: String,
    task: JoinHandle<()>,
}

impl Forward {
    /// Opens it on a free port.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn open(to: &str) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await.context("bind a port")?;
        let port = listener.local_addr()?.port();
        Ok(Self { port, to: to.to_owned(), task: tokio::spawn(serve(listener, to.to_owned())) })
    }

    /// Its local end, as `host:port`.
    pub fn authority(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// Closes the port and every connection.
    pub async fn cut(&mut self) {
        self.task.abort();
        while !self.task.is_finished() {
            tokio::task::yield_now().await;
        }
    }

    /// Closes every connection, and each new one at once, as `ssh -L` does while nothing listens at its far end. Returns
    /// the number of new ones from now on.
    ///
    /// # Errors
    /// If another program has bound the port meanwhile.
    pub async fn refuse(&mut self) -> Result<Arc<AtomicUsize>> {
        self.cut().await;
        let listener = TcpListener::bind(self.authority()).await.context("bind the same port again")?;
        let attempts = Arc::new(AtomicUsize::new(0));
        let counted = attempts.clone();
        self.task = tokio::spawn(async move {
            while let Ok((attempt, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                drop(attempt);
            }
        });
        Ok(attempts)
    }

    /// Opens the same port again, closing what is open.
    ///
    /// # Errors
    /// If another program has bound it meanwhile.
    pub async fn mend(&mut self) -> Result<()> {
        self.cut().await;
        let listener = TcpListener::bind(self.authority()).await.context("bind the same port again")?;
        self.task = tokio::spawn(serve(listener, self.to.clone()));
        Ok(())
    }
}

impl Drop for Forward {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Forwards connections until it is cancelled, which closes them.
async fn serve(listener: TcpListener, to: String) {
    let mut connections = JoinSet::new();
    while let Ok((mut near, _)) = listener.accept().await {
        let Ok(mut far) = TcpStream::connect(&to).await else { continue };
        connections.spawn(async move { drop(tokio::io::copy_bidirectional(&mut near, &mut far).await) });
    }
}
