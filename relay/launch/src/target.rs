//! Targets of probes, for nodes that are not simply reached by their name.

use super::{JobLauncher, LaunchError, Launcher, LoginState, NodeStream};
use async_trait::async_trait;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::picture::LauncherStatus;
use std::collections::HashMap;
use std::ffi::OsString;
use std::fmt;
use std::sync::{Arc, PoisonError, RwLock};
use tokio::sync::watch;

/// The target of a node's probe.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// On this machine, as a child process.
    ThisMachine,
    /// On another machine, over SSH.
    Ssh(SshTarget),
}

/// A destination as the user gave it; the SSH configuration supplies the rest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SshTarget {
    /// The host: a name, an address, or a `Host` of the SSH configuration.
    pub destination: String,
    /// The login name, if it differs from the SSH configuration.
    pub user: Option<String>,
    /// The port, if it differs from the SSH configuration.
    pub port: Option<u16>,
}

impl SshTarget {
    /// A host with user and port of the SSH configuration.
    pub fn host(destination: impl Into<String>) -> Self {
        Self { destination: destination.into(), user: None, port: None }
    }

    /// The arguments of `ssh` that select it; they come last among the options.
    pub fn arguments(&self) -> Vec<OsString> {
        let user = self.user.iter().flat_map(|user| ["-l".to_owned(), user.clone()]);
        let port = self.port.iter().flat_map(|port| ["-p".to_owned(), port.to_string()]);
        let host = ["--".to_owned(), self.destination.clone()];
        user.chain(port).chain(host).map(OsString::from).collect()
    }
}

/// One word that `ssh` accepts as its destination.
impl fmt::Display for SshTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let user = self.user.as_ref().map(|user| format!("{user}@")).unwrap_or_default();
        match self.port {
            Some(port) => write!(f, "ssh://{user}{}:{port}", self.destination),
            None => write!(f, "{user}{}", self.destination),
        }
    }
}

/// The targets of nodes, shared by launchers and by the list that updates them.
#[derive(Clone, Debug, Default)]
pub struct Targets(Arc<RwLock<HashMap<NodeName, Target>>>);

impl Targets {
    /// Replaces all targets. Running probes are not affected.
    pub fn replace(&self, targets: impl IntoIterator<Item = (NodeName, Target)>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = targets.into_iter().collect();
    }

    /// The target of a node; its name, if it has none of its own.
    pub fn of(&self, node: &NodeName) -> Target {
        let targets = self.0.read().unwrap_or_else(PoisonError::into_inner);
        targets.get(node).cloned().unwrap_or_else(|| Target::Ssh(SshTarget::host(node.as_str())))
    }

    /// Returns whether a node has a target of its own, because the user lists it.
    pub fn contains(&self, node: &NodeName) -> bool {
        self.0.read().unwrap_or_else(PoisonError::into_inner).contains_key(node)
    }

    /// Returns the target for a launcher that always uses SSH.
    pub fn ssh(&self, node: &NodeName) -> SshTarget {
        match self.of(node) {
            Target::Ssh(target) => target,
            Target::ThisMachine => SshTarget::host(node.as_str()),
        }
    }
}

/// Starts the probe of this machine as a child process, the probes of other listed machines with one launcher, and
/// the probes of a site's nodes with another: the requirements of a workstation say nothing about a site.
pub struct ByTarget {
    targets: Targets,
    local: Box<dyn Launcher>,
    listed: Arc<dyn Launcher>,
    site: Arc<dyn Launcher>,
}

impl ByTarget {
    /// A launcher that selects one of three by the node's target.
    pub fn new(
        targets: Targets,
        local: impl Launcher,
        listed: Arc<dyn Launcher>,
        site: Arc<dyn Launcher>,
    ) -> Self {
        Self { targets, local: Box::new(local), listed, site }
    }
}

#[async_trait]
impl Launcher for ByTarget {
    fn name(&self) -> &'static str {
        self.site.name()
    }

    fn status(&self) -> watch::Receiver<LauncherStatus> {
        self.site.status()
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        match self.targets.of(node) {
            Target::ThisMachine => self.local.launch(node).await,
            Target::Ssh(_) if self.targets.contains(node) => self.listed.launch(node).await,
            Target::Ssh(_) => self.site.launch(node).await,
        }
    }

    fn job_launcher(&self) -> Option<Arc<dyn JobLauncher>> {
        self.site.job_launcher()
    }

    async fn login_state(&self) -> Option<LoginState> {
        LoginState::join(self.site.login_state().await, self.listed.login_state().await)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn target(user: Option<&str>, port: Option<u16>) -> SshTarget {
        SshTarget { destination: "gpu1".into(), user: user.map(str::to_owned), port }
    }

    #[test]
    fn a_target_is_written_as_ssh_accepts_it() {
        let arguments = |target: SshTarget| {
            let words = target.arguments().into_iter().map(|word| word.into_string().unwrap());
            (words.collect::<Vec<_>>().join(" "), target.to_string())
        };
        assert_eq!(arguments(target(None, None)), ("-- gpu1".into(), "gpu1".into()));
        assert_eq!(arguments(target(Some("al"), None)), ("-l al -- gpu1".into(), "al@gpu1".into()));
        assert_eq!(
            arguments(target(Some("al"), Some(2222))),
            ("-l al -p 2222 -- gpu1".into(), "ssh://al@gpu1:2222".into())
        );
    }

    #[test]
    fn a_node_without_a_target_is_reached_by_its_name() {
        let (targets, node) = (Targets::default(), NodeName::new("gpu1").unwrap());
        assert_eq!(targets.of(&node), Target::Ssh(target(None, None)));
        targets.replace([(node.clone(), Target::Ssh(target(None, Some(2222))))]);
        assert_eq!(targets.ssh(&node), target(None, Some(2222)));
        targets.replace([]);
        assert_eq!(targets.ssh(&node), target(None, None));
    }
}
