//! Viewers that read and do not think: what they are sent costs the sender, not the reader.

use crate::site::Site;
use anyhow::{Context, Result};
use nodeglass_protocol::live::Topic;
use nodeglass_tests::Client;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::task::JoinHandle;

/// Readers, and how many frames they have read.
#[derive(Debug, Default)]
pub struct Crowd {
    readers: Vec<JoinHandle<()>>,
    frames: Arc<AtomicU64>,
}

impl Crowd {
    /// The viewers of a relay, of which there is one already.
    pub fn of(first: Client) -> Self {
        let mut crowd = Self::default();
        crowd.join(first);
        crowd
    }

    /// More viewers of a site, until there are so many.
    pub async fn grow(&mut self, site: &Site, to: usize) -> Result<()> {
        self.grow_with(site, to, &Site::topics()).await
    }

    /// The same, and they look at these topics.
    pub async fn grow_with(&mut self, site: &Site, to: usize, topics: &[Topic]) -> Result<()> {
        while self.readers.len() < to {
            let mut client = site.client().await.context("one more viewer")?;
            client.subscribe(topics).await?;
            // One after the other: the whole of a large job is told to each who comes, and a hundred of
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

    /// Another kind of reader, which counts for itself.
    pub fn read(&mut self, reading: impl Future<Output = ()> + Send + 'static) {
        self.readers.push(tokio::spawn(reading));
    }

    /// Where readers count.
    pub fn counter(&self) -> Arc<AtomicU64> {
        self.frames.clone()
    }

    /// Frames read so far.
    pub fn frames(&self) -> u64 {
        self.frames.load(Ordering::Relaxed)
    }
}

impl Drop for Crowd {
    fn drop(&mut self) {
        self.readers.iter().for_each(JoinHandle::abort);
    }
}
