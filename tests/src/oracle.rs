//! Checks the guarantees of docs/RELIABILITY.md from outside: a viewer and `/status` of a relay, before, during and after a
//! fault.

use crate::client::Client;
use crate::http;
use crate::relay::Link;
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::{self, NodePicture, Picture};
use nodeglass_rules::health::{Freshness, freshness};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

/// Time after a fault within which all nodes are live (P4).
pub const HEAL_LIMIT: Duration = Duration::from_secs(10);
/// Time without a sample after which a link cannot be shown as live: the first line after a connection has no readings yet, a
/// heartbeat keeps the link live while the driver is slow, and the relay excuses its own stalls.
const LIVE_LIMIT_MS: u64 = 20_000;
/// Time over which delays are measured before the fault.
const BASELINE: Duration = Duration::from_secs(5);
/// Number of processes between the driver and the viewer that a busy machine may stall one after another: probe, SSH, relay
/// and viewer.
const STALLED: u64 = 4;
/// Interval at which stalls are measured.
const STALL_TICK: Duration = Duration::from_millis(50);
/// Growth of the relay's memory that a fault may cause (P3).
const MAX_GROWTH_BYTES: u64 = 48 << 20;
/// Attempts per second to connect to one node, and at first (P6).
const MAX_ATTEMPTS_PER_S: f64 = 0.5;
const EARLY_ATTEMPTS: f64 = 6.0;

/// A viewer of a relay that judges what it is shown.
#[derive(Debug)]
pub struct Oracle {
    client: Client,
    link: Link,
    topic: Topic,
    nodes: BTreeMap<NodeName, Seen>,
    /// Nodes that the fault affects.
    affected: BTreeSet<NodeName>,
    fault_at: Instant,
    rss_bytes: u64,
    /// Longest time between two samples of a node before the fault: what this machine delays by itself.
    baseline_ms: u64,
    /// Longest delay of a thread that only sleeps, in ms, since the fault: what this machine delays meanwhile.
    stall_ms: Arc<AtomicU64>,
    /// When the newest frame arrived, and the relay's time in it.
    newest: (Instant, u64),
    missed: u32,
}

/// What was shown of a node.
#[derive(Debug, Default)]
struct Seen {
    sampled_at_ms: u64,
    /// Since when the link is live.
    live_since_ms: Option<u64>,
    longest_gap_ms: u64,
    attempts: u32,
    is_connecting: bool,
}

impl Oracle {
    /// Watches a topic of a relay until `count` nodes are live, and then for some seconds, to know the delays of this
    /// machine.
    ///
    /// # Errors
    /// If they do not become live, or the relay already breaks a guarantee.
    pub async fn watch(link: &Link, topic: Topic, count: usize) -> Result<Self> {
        let mut client = Client::connect(link, Form::Json).await?;
        client.subscribe(std::slice::from_ref(&topic)).await?;
        let all_live = |picture: &Picture| {
            picture.nodes.len() >= count && picture.nodes.iter().all(|node| is_fresh(node, picture.at_ms))
        };
        let at_ms = client.until(&topic, "live nodes", |known| all_live(&known.picture)).await?.at_ms;
        let now = Instant::now();
        let mut oracle = Self {
            client,
            link: link.clone(),
            topic,
            nodes: BTreeMap::new(),
            affected: BTreeSet::new(),
            fault_at: now,
            rss_bytes: 0,
            baseline_ms: 0,
            stall_ms: measure_stalls(),
            newest: (now, at_ms),
            missed: 0,
        };
        oracle.pass(BASELINE).await?;
        oracle.baseline_ms = oracle.longest_gap_ms(|_| true);
        oracle.fault(&[]).await?;
        Ok(oracle)
    }

    /// Declares the nodes that the next fault affects; all others must not notice it.
    ///
    /// # Errors
    /// If `/status` cannot be read.
    pub async fn fault(&mut self, affected: &[NodeName]) -> Result<()> {
        self.affected = affected.iter().cloned().collect();
        self.fault_at = Instant::now();
        self.rss_bytes = self.status().await?["process"]["rss_bytes"].as_u64().unwrap_or(0);
        for seen in self.nodes.values_mut() {
            (seen.longest_gap_ms, seen.attempts) = (0, 0);
        }
        self.stall_ms.store(0, Ordering::Relaxed);
        Ok(())
    }

    /// Returns the answer of `/status`.
    ///
    /// # Errors
    /// If there is none.
    pub async fn status(&self) -> Result<Value> {
        let key = format!("Bearer {}", self.link.key.reveal());
        let (authority, path) = (self.link.authority.clone(), format!("{}/status", self.link.base));
        // This test may forward the connection itself.
        let request = move || http::get(&authority, &path, &[("Authorization", &key)]);
        let reply = tokio::task::spawn_blocking(request).await??;
        ensure!(reply.status == 200, "/status: {} {}", reply.status, reply.body);
        Ok(serde_json::from_str(&reply.body)?)
    }

    /// The nodes of the newest picture.
    ///
    /// # Errors
    /// If there is no picture.
    pub fn nodes(&self) -> Result<&[NodePicture]> {
        Ok(&self.client.picture(&self.topic).context("a picture")?.nodes)
    }

    /// Watches for some time.
    ///
    /// # Errors
    /// If a guarantee is broken.
    pub async fn pass(&mut self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            match tokio::time::timeout(left, self.client.frame()).await {
                Ok(frame) => self.receive(&frame?)?,
                Err(_) => return Ok(()),
            }
        }
    }

    /// Watches until all affected nodes satisfy `is_expected`; returns the time since the fault.
    ///
    /// # Errors
    /// If they do not, or a guarantee is broken.
    pub async fn until(
        &mut self,
        what: &str,
        is_expected: impl Fn(&NodePicture) -> bool,
    ) -> Result<Duration> {
        let limit = Instant::now() + crate::TIMEOUT;
        loop {
            let affected = |node: &&NodePicture| self.affected.contains(&node.name);
            if self.nodes()?.iter().filter(affected).all(&is_expected) {
                return Ok(self.fault_at.elapsed());
            }
            ensure!(Instant::now() < limit, "not within a minute: {what}; {:#?}", self.nodes()?);
            self.step().await?;
        }
    }

    /// Watches until all nodes are live with samples from after this call, which follows the end of the fault. Then
    /// checks what holds for the fault as a whole. Returns how long that took.
    ///
    /// # Errors
    /// If it takes too long, or a guarantee is broken.
    pub async fn healed(&mut self) -> Result<Duration> {
        let (healed_at, since_ms) = (Instant::now(), self.now_ms());
        loop {
            let (now_ms, nodes) = (self.newest.1, self.nodes()?);
            let is_back = |node: &NodePicture| is_fresh(node, now_ms) && node.sampled_at_ms > Some(since_ms);
            if nodes.iter().all(is_back) {
                break;
            }
            // A busy machine delays what is sampled as much as what is not affected.
            let late_ms = self.baseline_ms + self.longest_gap_ms(|name| !self.affected.contains(name));
            let limit = HEAL_LIMIT + Duration::from_millis(late_ms);
            ensure!(
                healed_at.elapsed() < limit,
                "P4: not all nodes are live after {limit:?}: {:#?}",
                self.links()?
            );
            self.step().await?;
        }
        let took = healed_at.elapsed();
        self.check().await?;
        Ok(took)
    }

    /// Checks what holds for the fault as a whole.
    async fn check(&self) -> Result<()> {
        for (name, seen) in &self.nodes {
            let Seen { longest_gap_ms, attempts, .. } = seen;
            if self.affected.contains(name) {
                let most = EARLY_ATTEMPTS + self.fault_at.elapsed().as_secs_f64() * MAX_ATTEMPTS_PER_S;
                ensure!(f64::from(*attempts) <= most, "P6: {attempts} attempts to connect to {name}");
            } else {
                let stall_ms = STALLED * self.stall_ms.load(Ordering::Relaxed);
                let most_ms = 2 * self.baseline_ms.max(self.interval_ms(name)?) + 500 + stall_ms;
                ensure!(
                    *longest_gap_ms <= most_ms,
                    "P5: {name} had no sample for {longest_gap_ms} ms, not {most_ms}"
                );
                ensure!(*attempts == 0, "P5: {name} was connected again");
            }
        }
        let rss_bytes = self.status().await?["process"]["rss_bytes"].as_u64().unwrap_or(0);
        let grown = rss_bytes.saturating_sub(self.rss_bytes);
        ensure!(grown <= MAX_GROWTH_BYTES, "P3: the relay's memory has grown by {} MiB", grown >> 20);
        Ok(())
    }

    async fn step(&mut self) -> Result<()> {
        let frame = self.client.frame().await?;
        self.receive(&frame)
    }

    fn receive(&mut self, frame: &[u8]) -> Result<()> {
        self.client.apply(frame)?;
        let Some(picture) = self.client.picture(&self.topic) else { return Ok(()) };
        // Frames that this client was too slow for are no gap of a node.
        let is_complete = std::mem::replace(&mut self.missed, self.client.missed()) == self.client.missed();
        self.newest = (Instant::now(), picture.at_ms);
        for node in &picture.nodes {
            self.nodes.entry(node.name.clone()).or_default().see(node, picture.at_ms, is_complete)?;
        }
        Ok(())
    }

    /// The relay's time.
    fn now_ms(&self) -> u64 {
        let (at, at_ms) = self.newest;
        at_ms + u64::try_from(at.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn longest_gap_ms(&self, is_meant: impl Fn(&NodeName) -> bool) -> u64 {
        let meant = self.nodes.iter().filter(|(name, _)| is_meant(name));
        meant.map(|(_, seen)| seen.longest_gap_ms).max().unwrap_or(0)
    }

    fn interval_ms(&self, name: &NodeName) -> Result<u64> {
        let node = self.nodes()?.iter().find(|node| node.name == *name).context("the node is still there")?;
        Ok(u64::from(node.head.interval_ms))
    }

    fn links(&self) -> Result<Vec<(&NodeName, &picture::Link, Option<u64>)>> {
        Ok(self.nodes()?.iter().map(|node| (&node.name, &node.head.link, node.sampled_at_ms)).collect())
    }
}

/// Measures the longest delay of a thread that only sleeps, in ms, until the result is dropped.
fn measure_stalls() -> Arc<AtomicU64> {
    let longest = Arc::new(AtomicU64::new(0));
    let measured = Arc::downgrade(&longest);
    thread::spawn(move || {
        while let Some(longest) = measured.upgrade() {
            let begun = Instant::now();
            thread::sleep(STALL_TICK);
            let late = begun.elapsed().saturating_sub(STALL_TICK);
            longest.fetch_max(u64::try_from(late.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
        }
    });
    longest
}

impl Seen {
    /// Judges a node as it is shown at a time of the relay.
    fn see(&mut self, node: &NodePicture, now_ms: u64, is_complete: bool) -> Result<()> {
        let name = &node.name;
        let is_connecting = matches!(node.head.link, picture::Link::Connecting { .. });
        self.attempts += u32::from(is_connecting && !self.is_connecting);
        self.is_connecting = is_connecting;
        let Some(sampled_at_ms) = node.sampled_at_ms else { return Ok(()) };
        ensure!(
            sampled_at_ms <= now_ms,
            "P1: {name} has a sample of the future: {sampled_at_ms} at {now_ms}"
        );
        // The clock of a node is mapped anew with each connection.
        ensure!(
            sampled_at_ms + 1_000 >= self.sampled_at_ms,
            "P1: an older sample of {name} replaced a newer one"
        );
        let is_live = node.head.link == picture::Link::Live && node.head.driver_stuck_ms.is_none();
        self.live_since_ms = is_live.then(|| self.live_since_ms.unwrap_or(now_ms));
        if let Some(since_ms) = self.live_since_ms {
            let without_ms = now_ms - since_ms.max(sampled_at_ms);
            ensure!(
                without_ms < LIVE_LIMIT_MS,
                "P1: {name} has been live for {without_ms} ms without a sample"
            );
        }
        if self.sampled_at_ms > 0 && is_complete {
            self.longest_gap_ms = self.longest_gap_ms.max(sampled_at_ms.saturating_sub(self.sampled_at_ms));
        }
        self.sampled_at_ms = self.sampled_at_ms.max(sampled_at_ms);
        Ok(())
    }
}

/// Returns whether a node's values are current, by the rule of the page.
fn is_fresh(node: &NodePicture, now_ms: u64) -> bool {
    freshness(node, now_ms) == Freshness::Fresh
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(link: picture::Link, sampled_at_ms: u64) -> NodePicture {
        let mut node = NodePicture::new(NodeName::new("n1").unwrap());
        (node.head.link, node.sampled_at_ms) = (link, Some(sampled_at_ms));
        node
    }

    #[test]
    fn a_picture_that_lies_about_its_age_is_noticed() {
        let mut seen = Seen::default();
        seen.see(&node(picture::Link::Live, 9_000), 10_000, true).unwrap();
        for (lie, now_ms) in [
            (node(picture::Link::Live, 11_000), 10_000),
            (node(picture::Link::Live, 9_500), 40_000),
            (node(picture::Link::Live, 7_000), 10_000),
        ] {
            assert!(seen.see(&lie, now_ms, true).unwrap_err().to_string().starts_with("P1"));
        }
        seen.see(&node(picture::Link::Silent, 9_500), 40_000, true).unwrap();
    }

    #[test]
    fn gaps_and_attempts_are_counted() {
        let mut seen = Seen::default();
        for (link, sampled_at_ms) in [
            (picture::Link::Live, 1_000),
            (picture::Link::Connecting { failures: 0 }, 1_000),
            (picture::Link::Connecting { failures: 0 }, 1_000),
            (picture::Link::Live, 5_000),
            (picture::Link::Connecting { failures: 1 }, 5_000),
        ] {
            seen.see(&node(link, sampled_at_ms), 6_000, true).unwrap();
        }
        seen.see(&node(picture::Link::Live, 90_000), 90_000, false).unwrap();
        assert_eq!((seen.longest_gap_ms, seen.attempts), (4_000, 2));
    }
}
