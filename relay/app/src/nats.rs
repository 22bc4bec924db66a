//! The connection to other relays over NATS, and what the terminal shows of it.

use super::here;
use super::terminal::Terminal;
use super::watched::Watched;
use anyhow::Context;
use nodeglass_config::Config;
use nodeglass_fleet::{Event, Limit};
use nodeglass_nats::{Connection, Publishing};
use nodeglass_protocol::Text;
use tokio::sync::{mpsc, watch};

/// Starts to share nodes and jobs, if that is configured.
///
/// # Errors
/// If the credentials cannot be read, or the cluster has no name that a subject can have.
pub(super) async fn publish(config: &Config, watched: &Watched) -> anyhow::Result<Option<Publishing>> {
    if matches!(watched, Watched::Others(..) | Watched::Replay(..)) {
        return Ok(None);
    }
    let Some(settings) = config.nats() else { return Ok(None) };
    let cluster = match &config.nats_cluster {
        Some(cluster) => cluster.clone(),
        None => name(config, watched).parse().context("--nats: name the cluster by --nats-cluster")?,
    };
    let (controller, user) = (watched.controller(), watched.user());
    Ok(Some(Publishing::start(&settings, cluster, controller, user).await?))
}

/// The name of the cluster, or of this machine if it has none.
fn name(config: &Config, watched: &Watched) -> String {
    let named = config.cluster.clone().or_else(|| watched.cluster().map(|name| name.to_string()));
    named.unwrap_or_else(|| here().to_string().replace('.', "_"))
}

/// The state of the connection, if there is one.
pub(super) fn state(
    publishing: Option<&Publishing>,
    watched: &Watched,
) -> Option<watch::Receiver<Connection>> {
    match watched {
        Watched::Others(viewing, _) => Some(viewing.state()),
        _ => publishing.map(Publishing::state),
    }
}

/// Shows in the terminal and to the owner that another cluster has this one's name, until the event loop ends.
pub(super) async fn report_conflict(
    mut conflict: watch::Receiver<Option<Text>>,
    terminal: Terminal,
    events: mpsc::Sender<Event>,
) {
    let mut last = None;
    loop {
        // It may have been found before this receiver was created.
        let now = conflict.borrow_and_update().clone();
        match (&now, &last) {
            (Some(why), _) => terminal.warn(why),
            (None, Some(_)) => {
                terminal.notice(&"no other cluster has the name of this one on NATS any more".into());
            }
            (None, None) => {}
        }
        if now != last && events.send(Event::Limited(Limit::ClusterName, now.clone())).await.is_err() {
            return;
        }
        last = now;
        if conflict.changed().await.is_err() {
            return;
        }
    }
}

/// Shows in the terminal when the connection is lost, and when it is back.
pub(super) async fn report(mut state: watch::Receiver<Connection>, terminal: Terminal) {
    let mut was_down = false;
    loop {
        match state.borrow_and_update().clone() {
            Connection::Down(why) | Connection::Refused(why) => {
                was_down = true;
                terminal.warn(&why);
            }
            Connection::Up if std::mem::take(&mut was_down) => {
                terminal.notice(&"connected to NATS again".into());
            }
            Connection::Up | Connection::Starting => {}
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}
