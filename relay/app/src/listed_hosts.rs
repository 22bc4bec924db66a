//! Passes listed machines to launchers and to the fleet, and reports changes on the terminal.

use super::terminal::Terminal;
use super::{here, tpu_pod};
use nodeglass_config::{Config, Watch};
use nodeglass_fleet::{Event, Host};
use nodeglass_launch::hosts::{HostSource, Listed, ListedHost, ThisMachine};
use nodeglass_launch::target::{SshTarget, Target, Targets};
use nodeglass_protocol::{NodeName, Text};
use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::{IpAddr, UdpSocket};
use tokio::sync::mpsc;

/// The machines that the user lists.
pub struct ListedHosts {
    source: HostSource,
    listed: Listed,
}

impl ListedHosts {
    /// Reads the list, if one is configured.
    ///
    /// # Errors
    /// If its file cannot be read, or the workers of a TPU pod are not known.
    pub async fn load(config: &Config) -> anyhow::Result<Option<Self>> {
        if !config.has_hosts() || matches!(config.watch(), Watch::Demo(_)) {
            return Ok(None);
        }
        let mut flags: Vec<_> = config.host.iter().flat_map(|entries| entries.0.clone()).collect();
        if config.tpu_pod {
            flags.extend(tpu_pod::workers().await?);
        }
        let this_machine = ThisMachine { name: here(), has_address };
        let mut source = HostSource::new(flags, config.hosts.clone(), this_machine);
        let listed = source.load().await?;
        Ok(Some(Self { source, listed }))
    }

    /// Returns their number, for the terminal: `12 machines in 3 groups`.
    pub fn description(&self) -> String {
        count(&self.listed.list.hosts)
    }

    /// Shows on the terminal what is wrong with the list.
    pub fn warn(&self, terminal: &Terminal) {
        self.listed.notices.iter().for_each(|notice| terminal.warn(notice));
    }

    /// Publishes the list, and follows its file until the fleet ends.
    pub async fn run(mut self, targets: Targets, events: mpsc::Sender<Event>, terminal: Terminal) {
        loop {
            targets
                .replace(self.listed.list.hosts.iter().map(|host| (host.node.clone(), host.target.clone())));
            if events.send(event(&self.listed)).await.is_err() {
                return;
            }
            let before = std::mem::replace(&mut self.listed, self.source.changed().await);
            report(&before, &self.listed, &terminal);
        }
    }
}

/// Shows what a new list changes.
fn report(before: &Listed, now: &Listed, terminal: &Terminal) {
    if let Some(change) = difference(&before.list.hosts, &now.list.hosts) {
        terminal.notice(&Text::new(change));
    }
    let news = now.notices.iter().filter(|notice| !before.notices.contains(notice));
    news.for_each(|notice| terminal.warn(notice));
    if now.notices.is_empty() && !before.notices.is_empty() {
        terminal.notice(&"the list of machines has no problems any more".into());
    }
}

/// Returns the difference between two lists, in numbers; `None` if there is none.
fn difference(before: &[ListedHost], now: &[ListedHost]) -> Option<String> {
    let known: BTreeMap<_, _> = before.iter().map(|host| (&host.node, host)).collect();
    let added = now.iter().filter(|host| !known.contains_key(&host.node)).count();
    let changed = now.iter().filter(|host| known.get(&host.node).is_some_and(|known| known != host)).count();
    let removed = known.len() + added - now.len();
    let parts = [(added, "added"), (removed, "removed"), (changed, "changed")];
    let parts: Vec<_> =
        parts.iter().filter(|(count, _)| *count > 0).map(|(count, what)| format!("{count} {what}")).collect();
    (!parts.is_empty())
        .then(|| format!("the list of machines changed: {}; now {}", parts.join(", "), count(now)))
}

fn count(hosts: &[ListedHost]) -> String {
    let mut groups: Vec<_> = hosts.iter().filter_map(|host| host.group.as_ref()).collect();
    groups.sort_unstable();
    groups.dedup();
    let machines = if hosts.len() == 1 { "machine" } else { "machines" };
    match groups.len() {
        0 => format!("{} {machines}", hosts.len()),
        1 => format!("{} {machines} in 1 group", hosts.len()),
        groups => format!("{} {machines} in {groups} groups", hosts.len()),
    }
}

fn event(listed: &Listed) -> Event {
    let host =
        |host: &ListedHost| (host.node.clone(), Host { group: host.group.clone(), target: identity(host) });
    Event::Hosts {
        hosts: listed.list.hosts.iter().map(host).collect(),
        notices: listed.short_notices.clone(),
    }
}

/// Identifies how a machine is reached. Zero stands for its name alone, which is how a job's nodes are reached.
fn identity(host: &ListedHost) -> u64 {
    if host.target == Target::Ssh(SshTarget::host(host.node.as_str())) {
        return 0;
    }
    let mut hasher = DefaultHasher::new();
    host.target.hash(&mut hasher);
    hasher.finish()
}

/// Returns whether an address is one of this machine's: only to those can a socket be bound.
fn has_address(address: IpAddr) -> bool {
    UdpSocket::bind((address, 0)).is_ok()
}

/// The name of this machine as the only node that is watched.
pub fn this_machine_only() -> Event {
    let hosts: BTreeMap<NodeName, Host> = [(here(), Host::default())].into();
    Event::Hosts { hosts, notices: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_launch::hosts::entry;
    use nodeglass_launch::hosts::list::Builder;

    fn hosts(text: &str) -> Vec<ListedHost> {
        let this_machine = ThisMachine { name: NodeName::new("login1").unwrap(), has_address: |_| false };
        let mut builder = Builder::new(&this_machine);
        builder.flags(&entry::parse(text).unwrap());
        builder.finish().hosts
    }

    #[test]
    fn a_change_of_the_list_is_told_in_numbers() {
        let change = difference(&hosts("gpu1,gpu2,gpu3"), &hosts("gpu1,bob@gpu2,gpu4,gpu5"));
        assert_eq!(
            change.as_deref(),
            Some("the list of machines changed: 2 added, 1 removed, 1 changed; now 4 machines")
        );
        assert_eq!(difference(&hosts("gpu1,gpu2"), &hosts("gpu2,gpu1")), None, "only their order");
    }

    #[test]
    fn a_machine_is_reached_as_a_node_of_a_job_unless_it_has_a_user_or_a_port() {
        let [plain, other] = hosts("gpu1,gpu2:2222").try_into().unwrap();
        assert_eq!(identity(&plain), 0);
        assert_ne!(identity(&other), 0);
    }

    #[test]
    fn an_address_is_this_machines_if_a_socket_can_be_bound_to_it() {
        assert!(has_address([127, 0, 0, 1].into()));
        assert!(!has_address([192, 0, 2, 1].into()), "reserved for documentation");
    }
}
