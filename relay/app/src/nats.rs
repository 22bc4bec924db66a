//! The connection to other relays over NATS, and what the terminal shows of it.

use super::here;
use super::terminal::Terminal;
use super::watched::Watched;
use anyhow::Context;
use nodeglass_config::Config;
use nodeglass_nats::{Connection, Publishing};
use tokio::sync::watch;

/// Starts to share nodes and jobs, if that is configured.
///
/// # Errors
/// If the credentials cannot be read, or the cluster has no name that a subject can have.
pub(super) async fn publish(config: &Config, watched: &Watched) -> anyhow::Result<Option<Publishing>> {
    if matches!(watched, Watched::Others(..) | Watched::Replay(..)) {
        return Ok(None);
    }
    let cluster =
        watched.cluster().map_or_else(|| here().to_string().replace('.', "_"), |name| name.to_string());
    let Some(settings) = config.nats() else { return Ok(None) };
    let cluster = config.cluster.as_ref().unwrap_or(&cluster).parse();
    let cluster = cluster.context("--nats: name the cluster by --cluster")?;
    Ok(Some(Publishing::start(&settings, &cluster, watched.user()).await?))
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

/// Shows in the terminal when the connection is lost, and when it is back.
pub(super) async fn report(mut state: watch::Receiver<Connection>, terminal: Terminal) {
    let mut was_down = false;
    loop {
        match state.borrow_and_update().clone() {
            Connection::Down(why) => {
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
