//! The built-in SSH client starts a probe on a node with one session, one channel and no thread.

mod auth;
mod budget;
mod connect;
mod failure;
mod identity;
mod link;
mod pump;

use super::ssh_config::{self, ConfigError, HostSettings, Local};
use super::upload::{ProbeBinary, Verdict};
use super::{LaunchError, Launcher, NodeStream, StreamEnd};
use async_trait::async_trait;
use auth::{AGENT_THREADS, AgentPermits};
use bytes::Bytes;
use connect::TrustedOnce;
use failure::{capability, unreachable};
use link::Link;
use nodeglass_protocol::{NodeName, probe};
use pump::Remote;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// Connections that may be in the making at once; login nodes and sshds count them.
const CONNECTS_AT_ONCE: usize = 32;
/// From the start to a running probe, if it is there already.
const LAUNCH_LIMIT: Duration = Duration::from_secs(20);
/// For putting a probe on a node, some MB over whatever network there is.
const UPLOAD_LIMIT: Duration = Duration::from_secs(60);

/// What the built-in SSH client needs to know.
#[derive(Clone, Debug)]
pub struct Ssh2Options {
    /// The probe to run.
    pub probe: ProbeBinary,
    /// Names this relay to the probes, so that a new link to a node takes over from a dead one.
    pub relay_id: u64,
    /// Another file than `~/.ssh/config` (`ssh -F`).
    pub config: Option<PathBuf>,
    /// Home, user and agent.
    pub local: Local,
}

/// Starts probes over SSH with libssh2.
pub struct Ssh2Launcher {
    options: Ssh2Options,
    connects: Semaphore,
    agents: AgentPermits,
    trusted: TrustedOnce,
}

/// What became of a command within the first moments.
enum Start {
    /// It speaks; what it said so far.
    Runs(Box<Remote>, Vec<Bytes>),
    /// It ended without a word that we know.
    Ended(StreamEnd, Link),
}

#[async_trait]
impl Launcher for Ssh2Launcher {
    fn name(&self) -> &'static str {
        "ssh2"
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let _permit = self.connects.acquire().await.expect("never closed");
        let slow = |_| unreachable("the host did not answer within 20 s");
        let first = async {
            let link = self.log_in(node).await?;
            self.start(link).await
        };
        let (end, link) = match timeout(LAUNCH_LIMIT, first).await.map_err(slow)?? {
            Start::Runs(remote, heard) => return Ok(remote.into_stream(heard)),
            Start::Ended(end, link) => (end, link),
        };
        if !self.options.probe.is_missing(&end) {
            return Err(LaunchError::Probe { why: self.options.probe.complaint(&end) });
        }
        let link = self.upload(link).await?;
        match timeout(LAUNCH_LIMIT, self.start(link)).await.map_err(slow)?? {
            Start::Runs(remote, heard) => Ok(remote.into_stream(heard)),
            Start::Ended(end, _) => Err(LaunchError::Probe { why: self.options.probe.complaint(&end) }),
        }
    }
}

impl Ssh2Launcher {
    /// A launcher; nothing is connected yet.
    pub fn new(options: Ssh2Options) -> Self {
        Self {
            options,
            connects: Semaphore::new(CONNECTS_AT_ONCE),
            agents: Arc::new(Semaphore::new(AGENT_THREADS)),
            trusted: TrustedOnce::default(),
        }
    }

    /// A session on the node, its host checked and its user accepted.
    async fn log_in(&self, node: &NodeName) -> Result<Link, LaunchError> {
        let Ssh2Options { config, local, .. } = &self.options;
        let settings = ssh_config::settings(node.as_str(), config.as_deref(), local).await;
        let settings = settings.map_err(|error| match error {
            ConfigError::Slow => unreachable(error.to_string()),
            ConfigError::Refused(_) => LaunchError::Auth {
                why: error.to_string().into(),
                advice: "mend the SSH configuration, then retry".into(),
            },
        })?;
        speakable(&settings)?;
        let link = connect::connect(&settings, &self.trusted).await?;
        auth::log_in(&link, &settings, &self.agents).await?;
        link.trust();
        Ok(link)
    }

    /// Runs the probe if it is there.
    async fn start(&self, link: Link) -> Result<Start, LaunchError> {
        let command = self.options.probe.run_command(self.options.relay_id);
        let broken = |error: ssh2::Error| failure::broken("starting the probe", &error);
        let mut remote = Remote::start(link, &command).await.map_err(broken)?;
        let mut heard = Vec::new();
        let mut window = Vec::new();
        while let Some(chunk) =
            remote.next().await.map_err(|e| unreachable(format!("the connection broke: {e}")))?
        {
            window.extend_from_slice(&chunk);
            heard.push(chunk);
            // Too much of anything else is for whoever reads the stream to complain about.
            if speaks(&window) || window.len() > probe::MAX_NOISE {
                return Ok(Start::Runs(Box::new(remote), heard));
            }
        }
        let (end, link) = remote.finish().await;
        Ok(Start::Ended(end, link))
    }

    /// Puts the probe into the remote user's cache.
    async fn upload(&self, link: Link) -> Result<Link, LaunchError> {
        let probe = &self.options.probe;
        let work = async {
            // Read whole before anything is sent: what is put there must be what was checked.
            let local = probe.clone();
            let bytes =
                tokio::task::spawn_blocking(move || local.bytes()).await.map_err(io::Error::other)??;
            let mut remote = Remote::start(link, &probe.upload_command()).await?;
            remote.write(&bytes).await?;
            remote.end_input().await?;
            while remote.next().await?.is_some() {}
            Ok::<_, io::Error>(remote.finish().await)
        };
        let cannot = |why: String| LaunchError::Probe {
            why: format!("the probe could not be put there: {why}").into(),
        };
        match timeout(UPLOAD_LIMIT, work).await {
            Err(_) => Err(cannot("it took longer than 60 s".to_owned())),
            Ok(Err(error)) => Err(cannot(error.to_string())),
            Ok(Ok((end, link))) => match probe.uploaded(&end) {
                Verdict::Done => Ok(link),
                Verdict::Failed(why) => Err(cannot(why)),
            },
        }
    }
}

/// Refuses what only the user's own ssh can do, before anything is sent.
fn speakable(settings: &HostSettings) -> Result<(), LaunchError> {
    if let Some(proxy) = &settings.proxy {
        return Err(capability(
            format!("{} is reached through {proxy}, which the built-in SSH cannot do", settings.hostname),
            "run the relay on a machine that reaches the node directly; the OpenSSH launcher is needed otherwise",
        ));
    }
    if settings.revoked_keys.is_some() {
        return Err(capability(
            format!("RevokedHostKeys is set for {}, which the built-in SSH cannot check", settings.hostname),
            "the OpenSSH launcher is needed for this host",
        ));
    }
    Ok(())
}

fn speaks(heard: &[u8]) -> bool {
    heard.windows(probe::MAGIC.len()).any(|window| window == probe::MAGIC.as_bytes())
}
