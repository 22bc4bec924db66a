//! Sends the metrics of the relay to a server of Prometheus remote write, in steps of time.

use super::storage;
use anyhow::Context;
use nodeglass_config::Config;
use nodeglass_fleet::{Event, StoredPart};
use nodeglass_platform::clock::Clock;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_remote_write::promql::PromQl;
use nodeglass_remote_write::{Counts, Credentials, Sender, Series, Spool};
use nodeglass_web::WebState;
use nodeglass_web::about::About;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, spawn_blocking};
use tokio::time::{MissedTickBehavior, interval, timeout};

/// Time limit for storing what was not sent, at the end.
const SPOOL_LEAVES: Duration = Duration::from_secs(2);

/// Remote write before the relay has metrics.
pub(super) struct RemoteWrite {
    sender: Sender,
    sending: JoinHandle<()>,
    step: Duration,
    instance: String,
}

impl RemoteWrite {
    /// Starts the delivery, if configured. What waits is kept across restarts if the relay stores its state.
    ///
    /// # Errors
    /// The credentials cannot be used.
    pub(super) fn start(
        config: &Config,
        about: &About,
        is_stored: bool,
        events: &mpsc::Sender<Event>,
    ) -> anyhow::Result<Option<Self>> {
        let Some(url) = config.remote_write.clone() else { return Ok(None) };
        let credentials = config.remote_write_auth.as_deref().map(Credentials::read);
        let credentials = credentials.transpose().context("--remote-write-auth")?;
        let spool = spool(about, is_stored, config.remote_write_spool);
        let (sender, sending) = Sender::start(url, credentials, spool);
        let report = storage::report(sender.state(), StoredPart::RemoteWrite, Option::clone, events.clone());
        tokio::spawn(report);
        let instance = format!("{}@{}", about.user, about.host);
        Ok(Some(Self { sender, sending, step: config.remote_write_interval, instance }))
    }

    /// Returns the counts of its samples.
    pub(super) fn counts(&self) -> Counts {
        self.sender.counts()
    }

    /// Sends the metrics in steps until the relay ends, then stores what waits.
    pub(super) async fn run(self, web: WebState, mut ending: watch::Receiver<bool>) {
        let mut step = interval(self.step);
        step.set_missed_tick_behavior(MissedTickBehavior::Skip);
        let mut series = Series::new(self.instance);
        loop {
            tokio::select! {
                _ = step.tick() => {}
                _ = ending.wait_for(|down| *down) => break,
            }
            let Some((snapshot, relay)) = nodeglass_web::series(&web).await else { continue };
            let collected = spawn_blocking(move || {
                let round = series.collect(&snapshot, &relay, Clock::wall_ms());
                (round, series)
            });
            let Ok((round, known)) = collected.await else { break };
            series = known;
            self.sender.send(round);
        }
        drop(self.sender);
        let _ = timeout(SPOOL_LEAVES, self.sending).await;
    }
}

/// Returns the storage that ranges are read back from, if configured.
///
/// # Errors
/// The credentials cannot be used.
pub(super) fn long_term(config: &Config) -> anyhow::Result<Option<PromQl>> {
    let credentials = config.history_auth.as_deref().map(Credentials::read).transpose();
    let credentials = credentials.context("--history-auth")?;
    Ok(config.history_url.as_ref().map(|url| PromQl::new(url, credentials)))
}

fn spool(about: &About, is_stored: bool, max_bytes: u64) -> Spool {
    // Login nodes may share a home.
    let open = || -> anyhow::Result<Spool> {
        let dir = StateDir::open()?.dir("remote-write")?.dir(about.host.as_str())?;
        Ok(Spool::open(dir, max_bytes)?)
    };
    if is_stored {
        match open() {
            Ok(spool) => return spool,
            Err(error) => {
                tracing::warn!("samples that wait for remote write are kept in memory only: {error:#}")
            }
        }
    }
    Spool::in_memory(max_bytes)
}
