//! The built-in SSH client: starts a probe on a node with one session, one channel and no thread.

mod auth;
mod budget;
mod connect;
mod failure;
mod link;
mod pump;

use super::deploy::{self, Deployer, LAUNCH_LIMIT};
use super::login_files::LoginFiles;
use super::ssh_config::{self, HostSettings};
use super::target::Targets;
use super::{LaunchError, Launcher, LoginState, NodeStream, SshOptions};
use async_trait::async_trait;
use auth::{AGENT_THREADS, AgentPermits};
use connect::TrustedOnce;
use failure::{OPENSSH, capability};
use link::Link;
use nodeglass_protocol::NodeName;
use std::sync::Arc;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout_at};

/// Starts probes over SSH with libssh2.
pub struct Ssh2Launcher {
    options: SshOptions,
    targets: Targets,
    agents: AgentPermits,
    trusted: TrustedOnce,
    deployer: Deployer,
    login_files: LoginFiles,
}

#[async_trait]
impl Launcher for Ssh2Launcher {
    fn name(&self) -> &'static str {
        "ssh2"
    }

    async fn login_state(&self) -> Option<LoginState> {
        self.login_files.state().await
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let deadline = Instant::now() + LAUNCH_LIMIT;
        let link = timeout_at(deadline, self.log_in(node)).await.map_err(|_| deploy::slow())??;
        self.deployer.run((node, None), link, deadline).await
    }
}

impl Ssh2Launcher {
    /// A launcher without connections.
    pub fn new(options: SshOptions) -> Self {
        let login_files = LoginFiles::new(&options.local.home, options.config.as_deref());
        let deployer = Deployer::new(options.probe.clone(), options.relay_id);
        Self {
            options,
            targets: Targets::default(),
            agents: Arc::new(Semaphore::new(AGENT_THREADS)),
            trusted: TrustedOnce::default(),
            deployer,
            login_files,
        }
    }

    /// Reaches nodes by these targets.
    #[must_use]
    pub fn with_targets(self, targets: Targets) -> Self {
        Self { targets, ..self }
    }

    /// Connects, verifies the host and authenticates.
    async fn log_in(&self, node: &NodeName) -> Result<Link, LaunchError> {
        let SshOptions { config, local, .. } = &self.options;
        let settings = ssh_config::settings(&self.targets.ssh(node), config.as_deref(), local).await?;
        self.login_files.note(&settings);
        speakable(&settings)?;
        let link = connect::connect(&settings, &self.trusted).await?;
        auth::log_in(&link, &settings, &self.agents).await?;
        link.trust();
        Ok(link)
    }
}

/// Rejects settings that only the user's own ssh supports, before anything is sent.
fn speakable(settings: &HostSettings) -> Result<(), LaunchError> {
    if let Some(proxy) = &settings.proxy {
        return Err(capability(
            format!("{} is reached through {proxy}, which the built-in SSH cannot do", settings.host),
            OPENSSH,
        ));
    }
    if settings.revoked_keys.is_some() {
        return Err(capability(
            format!("RevokedHostKeys is set for {}, which the built-in SSH cannot check", settings.host),
            OPENSSH,
        ));
    }
    Ok(())
}
