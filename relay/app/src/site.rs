//! The parts of a relay of a site: who its people are, and the nodes on which no job runs.

use super::terminal::Terminal;
use nodeglass_access::people::People;
use nodeglass_access::proxies::Proxy;
use nodeglass_access::trust::Trust;
use nodeglass_access::user;
use nodeglass_config::Config;
use nodeglass_fleet::{Event, Host};
use nodeglass_protocol::{NodeName, Text};
use nodeglass_slurm::command::{Client, Commands, Program};
use nodeglass_slurm::{members, nodes};
use nodeglass_web::about::About;
use nodeglass_web::site::Site;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{mpsc, watch};
use tokio::time::sleep;

/// Time between two lists of the nodes, which change rarely.
const NODES_INTERVAL: Duration = Duration::from_secs(600);
/// Time to the next one after a failure.
const NODES_RETRY: Duration = Duration::from_secs(60);

/// Returns the people of the site, and begins to follow the members of accounts if these see the jobs.
pub(super) fn people(
    config: &Config,
    about: &About,
    terminal: Terminal,
    commands: Option<&Commands>,
) -> Arc<Site> {
    let trust = Trust::new(config.trust_uid.clone());
    let admins = config.admin_users.iter().map(Text::new).collect();
    if let Some(warning) = config.proxy_user_header.as_ref().and_then(|_| warning(&config.trusted_proxy)) {
        terminal.warn(&warning.into());
    }
    for warning in unknown(&config.admin_users, |name| user::uid_of(name).is_some()) {
        terminal.warn(&warning);
    }
    let site = Site::new(People::default(), Arc::new(config.proxies()), trust).with_admins(admins);
    if !config.account_visibility {
        return Arc::new(site);
    }
    let (Some(commands), Some(cluster)) = (commands, &about.cluster) else {
        terminal.warn(
            &"SLURM does not state the name of its cluster, so --account-visibility has no effect".into(),
        );
        return Arc::new(site);
    };
    let (sender, followed) = watch::channel(Arc::default());
    let commands = commands.clone().with_limits(members::TIME_LIMIT, members::MAX_BYTES);
    tokio::spawn(members::follow(commands, cluster.clone(), sender));
    Arc::new(site.with_members(followed))
}

/// Returns the warning about proxies that name visitors, if one is trusted by its address: every user of that machine can act
/// as the proxy.
fn warning(proxies: &[Proxy]) -> Option<&'static str> {
    let is_another_machine = proxies.iter().any(|proxy| matches!(proxy, Proxy::Address(_)));
    is_another_machine.then_some(
        "--trusted-proxy has an address: every user of that machine can be anyone to this relay, so let only the proxy run there",
    )
}

/// Returns a warning for each administrator whom the user database does not know, as one who is misspelt.
fn unknown(admins: &[String], is_known: impl Fn(&str) -> bool) -> Vec<Text> {
    let unknown = admins.iter().filter(|name| !is_known(name));
    let warning = |name: &String| {
        Text::new(format!(
            "--admin-users: there is no user {name:?} on this machine, so nobody gets these rights"
        ))
    };
    unknown.map(warning).collect()
}

/// Watches the nodes with GPUs, also while no job runs there, until the fleet ends.
pub(super) async fn follow_nodes(mut commands: Commands, events: mpsc::Sender<Event>) {
    let mut known = BTreeMap::new();
    loop {
        let wait = match commands.run(Program::Scontrol, &nodes::args()).await {
            Ok(output) => {
                let names = nodes::with_gpus(&output.out);
                let listed: BTreeMap<NodeName, Host> =
                    names.into_iter().map(|name| (name, Host::default())).collect();
                if listed != known {
                    known.clone_from(&listed);
                    if events.send(Event::Hosts { hosts: listed, notices: Vec::new() }).await.is_err() {
                        return;
                    }
                }
                NODES_INTERVAL
            }
            Err(error) => {
                tracing::warn!("{error}; nodes without jobs may be missing");
                NODES_RETRY
            }
        };
        tokio::select! {
            () = sleep(wait) => {}
            () = events.closed() => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_administrator_whom_nobody_knows_is_warned_of() {
        let warnings = unknown(&["alice".into(), "alcie".into()], |name| name == "alice");
        assert_eq!(warnings.len(), 1);
        assert!(warnings[0].as_str().contains("no user \"alcie\" on this machine"), "{}", warnings[0]);
    }

    #[test]
    fn t27_a_proxy_that_every_user_of_its_machine_can_imitate_is_warned_of() {
        let address = Proxy::Address([10, 0, 0, 5].into());
        assert!(warning(&[Proxy::User(33), address]).is_some_and(|why| why.contains("every user")));
        assert_eq!(warning(&[Proxy::User(33)]), None);
    }
}
