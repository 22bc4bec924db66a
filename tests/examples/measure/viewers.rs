//! Viewers that read frames without decoding them, so that the cost is the sender's.

use crate::site::SimulatedCluster;
use anyhow::{Context, Result};
use nodeglass_protocol::live::Topic;
use nodeglass_tests::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;

/// Reading clients, and the number of frames that they have read.
#[derive(Debug, Default)]
pub struct Viewers {
    readers: Vec<JoinHandle<()>>,
    frames: Arc<AtomicU64>,
}

impl Viewers {
    /// The viewers of a relay, with a first one.
    pub fn of(first: Client) -> Self {
        let mut viewers = Self::default();
        viewers.join(first);
        viewers
    }

    /// Adds viewers up to a number.
    pub async fn grow(&mut self, site: &SimulatedCluster, to: usize) -> Result<()> {
        self.grow_with(site, to, &SimulatedCluster::topics()).await
    }

    /// Adds viewers that subscribe to these topics.
    pub async fn grow_with(&mut self, site: &SimulatedCluster, to: usize, topics: &[Topic]) -> Result<()> {
        while self.readers.len() < to {
            let mut client = site.client().await.context("one more viewer")?;
            client.subscribe(topics).await?;
            // One after the other: each gets a snapshot of a large job, and a hundred of
            // them at once would be another measurement.
            for topic in topics {
                client.until(topic, "a first picture", |known| known.snapshots > 0).await?;
            }
            self.join(client);
        }
        Ok(())
    }

    fn join(&mut self, mut client: Client) {
        let frames = self.frames.clone();
        self.read(async move {
            while client.frame().await.is_ok() {
                frames.fetch_add(1, Ordering::Relaxed);
            }
        });
    }

    /// Adds another kind of reader, which counts its frames itself.
    pub fn read(&mut self, reading: impl Future<Output = ()> + Send + 'static) {
        self.readers.push(tokio::spawn(reading));
    }

    /// The counter of frames.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.frames.clone()
    }

    /// Frames read so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

impl Drop for Viewers {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}
