//! The connection to other relays over NATS, and what the terminal shows of it.

use super::here;
use super::terminal::Terminal;
use super::watched::Watched;
use anyhow::Context;
use nodeglass_config::Config;
use nodeglass_fleet::{Event, Limit};
use nodeglass_nats::{Connection, Health, Publishing};
use nodeglass_protocol::Text;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, timeout};

/// Time after the return of the connection within which another loss means that it comes and goes.
const FLAPS_WITHIN: Duration = Duration::from_secs(60);
/// Time for which such a connection lasts once it has returned.
const STEADY_AFTER: Duration = Duration::from_secs(15);

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

/// The state of the connection to other relays, and its problems, for terminal, page and metrics.
pub(super) struct Reports {
    state: watch::Receiver<Connection>,
    /// Problems, complete sentences, with what to say when they are over.
    problems: Vec<(watch::Receiver<Option<Text>>, Limit, &'static str)>,
    pub(super) health: Health,
}

impl Reports {
    /// Those of this relay, if it has such a connection.
    pub(super) fn of(publishing: Option<&Publishing>, watched: &Watched) -> Option<Self> {
        let permitted = "NATS permits everything to these credentials again";
        if let Watched::Others(viewing, _) = watched {
            let problems = vec![(viewing.denied(), Limit::NatsPermissions, permitted)];
            return Some(Self { state: viewing.state(), problems, health: viewing.health() });
        }
        let sharing = publishing?;
        let problems = vec![
            (sharing.denied(), Limit::NatsPermissions, permitted),
            (sharing.problem(), Limit::Leases, "NATS gives leases again"),
            (
                sharing.conflict(),
                Limit::ClusterName,
                "no other cluster has the name of this one on NATS any more",
            ),
        ];
        Some(Self { state: sharing.state(), problems, health: sharing.health() })
    }

    /// Shows all of it in the terminal and to the owner, until the event loop ends.
    pub(super) fn start(self, terminal: Terminal, events: &mpsc::Sender<Event>) {
        for (problem, of, over) in self.problems {
            tokio::spawn(report(problem, (of, over), terminal, events.clone()));
        }
        let (steady, lost) = watch::channel(None);
        tokio::spawn(follow(self.state, steady));
        tokio::spawn(report(lost, (Limit::Nats, "connected to NATS again"), terminal, events.clone()));
    }
}

/// Shows a problem when it begins, and that it is over.
async fn report(
    mut state: watch::Receiver<Option<Text>>,
    (of, over): (Limit, &'static str),
    terminal: Terminal,
    events: mpsc::Sender<Event>,
) {
    let mut last = None;
    loop {
        // It may have been found before this receiver was created.
        let now = state.borrow_and_update().clone();
        match (&now, &last) {
            (Some(why), last) if Some(why) != last.as_ref() => terminal.warn(why),
            (None, Some(_)) => terminal.notice(&over.into()),
            _ => {}
        }
        if now != last && events.send(Event::Limited(of, now.clone())).await.is_err() {
            return;
        }
        last = now;
        if state.changed().await.is_err() {
            return;
        }
    }
}

/// Passes on why there is no connection. One that returns and is lost again, as that to a server whose disk is full, is stated once: it has
/// returned when it lasts.
async fn follow(mut state: watch::Receiver<Connection>, lost: watch::Sender<Option<Text>>) {
    let mut returned: Option<Instant> = None;
    loop {
        let now = state.borrow_and_update().clone();
        let is_lost = lost.borrow().is_some();
        match now {
            Connection::Down(why) | Connection::Refused(why) => {
                lost.send_if_modified(|known| {
                    let is_new = known.as_ref() != Some(&why);
                    *known = Some(why);
                    is_new
                });
            }
            Connection::Up if is_lost => {
                let flaps = returned.is_some_and(|at| at.elapsed() < FLAPS_WITHIN);
                returned = Some(Instant::now());
                if flaps && let Ok(changed) = timeout(STEADY_AFTER, state.changed()).await {
                    match changed {
                        Ok(()) => continue,
                        Err(_) => return,
                    }
                }
                lost.send_replace(None);
            }
            _ => {}
        }
        if state.changed().await.is_err() {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::time::sleep;

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_is_lost_again_and_again_is_stated_once() {
        let (state, states) = watch::channel(Connection::Up);
        let (sender, mut lost) = watch::channel(None);
        tokio::spawn(follow(states, sender));
        let down = || drop(state.send_replace(Connection::Down("lost".into())));
        let up = || drop(state.send_replace(Connection::Up));
        down();
        lost.wait_for(Option::is_some).await.unwrap();
        let began = Instant::now();
        up();
        lost.wait_for(Option::is_none).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO, "the first return is stated at once");
        down();
        lost.wait_for(Option::is_some).await.unwrap();
        for _ in 0..5 {
            up();
            sleep(STEADY_AFTER / 2).await;
            down();
            sleep(Duration::from_secs(1)).await;
            assert!(!lost.has_changed().unwrap());
        }
        let began = Instant::now();
        up();
        lost.wait_for(Option::is_none).await.unwrap();
        assert_eq!(began.elapsed(), STEADY_AFTER);
        sleep(FLAPS_WITHIN).await;
        down();
        lost.wait_for(Option::is_some).await.unwrap();
        let began = Instant::now();
        up();
        lost.wait_for(Option::is_none).await.unwrap();
        assert_eq!(began.elapsed(), Duration::ZERO, "it was steady for long");
    }
}
