//! Restores the stored history at the start, and reports whether it can be stored.

use crate::about::About;
use crate::archive::{self, Archive, ArchiveError};
use crate::clock::Clock;
use crate::config::Config;
use crate::fleet::{Event, Fleet};
use crate::state_dir::StateDir;
use nodeglass_protocol::Text;
use tokio::sync::mpsc;

/// Restores the history of this host into the fleet; returns where it is stored from now on. If it cannot be stored,
/// the relay runs without, and its pages say why.
pub(super) fn open(
    config: &Config,
    about: &About,
    fleet: &mut Fleet,
    events: &mpsc::Sender<Event>,
) -> Option<Archive> {
    if config.history_disk == 0 {
        return None;
    }
    let (now_ms, wall_ms) = (about.clock.now_ms(), Clock::wall_ms());
    let opened =
        try_open(config.history_disk, about, wall_ms.saturating_sub(now_ms)).map(|(dir, archive)| {
            archive::load(&dir, fleet.history_mut(), now_ms, wall_ms);
            archive
        });
    match opened {
        Ok(archive) => {
            tokio::spawn(report(archive.state(), events.clone()));
            Some(archive)
        }
        Err(error) => {
            tracing::warn!(%error, "the history will not be stored");
            fleet.handle(Event::HistoryStorage(Some(problem(&error.to_string()))), now_ms);
            None
        }
    }
}

fn try_open(cap: u64, about: &About, wall_ahead_ms: u64) -> Result<(StateDir, Archive), ArchiveError> {
    // Login nodes may share a home.
    let dir = StateDir::open()?.dir("history")?.dir(about.host.as_str())?;
    Ok((dir.clone(), Archive::open(dir, cap, wall_ahead_ms)?))
}

fn problem(why: &str) -> Text {
    Text::new(format!("the history is kept in memory only, because it cannot be stored: {why}"))
}

/// Passes on whether storing works.
async fn report(mut state: tokio::sync::watch::Receiver<archive::Storing>, events: mpsc::Sender<Event>) {
    while state.changed().await.is_ok() {
        let why = state.borrow_and_update().clone().err().map(|why| problem(why.as_str()));
        if events.send(Event::HistoryStorage(why)).await.is_err() {
            return;
        }
    }
}
