//! The built-in SSH client: starts a probe on a node with one session, one channel and no thread.

mod auth;
mod budget;
mod connect;
mod failure;
mod identity;
mod link;
mod login_files;
mod pump;

use super::ssh_config::{self, ConfigError, HostSettings, Local};
use super::upload::{Place, ProbeBinary, Turns, UploadScript, Uploaded};
use super::{LaunchError, Launcher, NodeStream, StreamEnd};
use async_trait::async_trait;
use auth::{AGENT_THREADS, AgentPermits};
use bytes::Bytes;
use connect::TrustedOnce;
use failure::{capability, unreachable};
use link::Link;
use login_files::LoginFiles;
use nodeglass_protocol::{NodeName, probe};
use pump::Remote;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::{Instant, error::Elapsed, timeout, timeout_at};

/// Maximum number of connections being established; login nodes and sshds limit them.
const CONNECTS_AT_ONCE: usize = 32;
/// Time limit from the start to a running probe, if it is installed.
const LAUNCH_LIMIT: Duration = Duration::from_secs(20);
/// Time limit for uploading a probe, some MB over any network.
const UPLOAD_LIMIT: Duration = Duration::from_secs(60);

/// Options of the built-in SSH client.
#[derive(Clone, Debug)]
pub struct Ssh2Options {
    /// The probe to run.
    pub probe: ProbeBinary,
    /// Identifies this relay to probes, so that a new link to a node takes over from a dead one.
    pub relay_id: u64,
    /// Another file than `~/.ssh/config` (`ssh -F`).
    pub config: Option<PathBuf>,
    /// Home directory, user and agent.
    pub local: Local,
}

/// Starts probes over SSH with libssh2.
pub struct Ssh2Launcher {
    options: Ssh2Options,
    connects: Semaphore,
    agents: AgentPermits,
    trusted: TrustedOnce,
    uploads: Turns,
    login_files: LoginFiles,
}

/// The result of starting a command.
enum Start {
    /// It responded; its output so far.
    Runs(Box<Remote>, Vec<Bytes>),
    /// It exited without a recognised response.
    Ended(StreamEnd, Link),
}

#[async_trait]
impl Launcher for Ssh2Launcher {
    fn name(&self) -> &'static str {
        "ssh2"
    }

    async fn login_fingerprint(&self) -> Option<u64> {
        self.login_files.fingerprint().await
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let _permit = self.connects.acquire().await.expect("never closed");
        let deadline = Instant::now() + LAUNCH_LIMIT;
        let link = timeout_at(deadline, self.log_in(node)).await.map_err(slow)??;
        let link = match self.find(node, link, deadline).await? {
            Found::Runs(stream) => return Ok(stream),
            Found::Missing(link) => link,
        };
        let turn = self.uploads.take().await;
        let link = match turn.look_again {
            false => link,
            true => match self.find(node, link, Instant::now() + LAUNCH_LIMIT).await? {
                Found::Runs(stream) => return Ok(stream),
                Found::Missing(link) => {
                    turn.found_nothing();
                    link
                }
            },
        };
        let link = self.upload(link).await?;
        turn.succeeded();
        drop(turn);
        match timeout(LAUNCH_LIMIT, self.start(link)).await.map_err(|_| hangs(node))?? {
            Start::Runs(remote, received) => Ok(remote.into_stream(received)),
            Start::Ended(end, _) => Err(LaunchError::Probe { why: self.options.probe.complaint(&end) }),
        }
    }
}

/// The error for a host that takes too long.
fn slow(_: Elapsed) -> LaunchError {
    unreachable("the host did not answer within 20 s")
}

/// The error for a host that accepted the login and whose login script then hangs.
fn hangs(node: &NodeName) -> LaunchError {
    LaunchError::Hangs {
        why: format!("{node} accepted the login, but its login script did not end within 20 s").into(),
        advice: format!("check that `ssh {node} true` ends at once; ~/.bashrc or a script like it waits")
            .into(),
    }
}

/// Whether a node has the probe.
enum Found {
    Runs(NodeStream),
    Missing(Link),
}

impl Ssh2Launcher {
    /// A launcher without connections.
    pub fn new(options: Ssh2Options) -> Self {
        let login_files = LoginFiles::new(&options.local.home, options.config.as_deref());
        Self {
            options,
            connects: Semaphore::new(CONNECTS_AT_ONCE),
            agents: Arc::new(Semaphore::new(AGENT_THREADS)),
            trusted: TrustedOnce::default(),
            uploads: Turns::default(),
            login_files,
        }
    }

    /// Connects, verifies the host and authenticates.
    async fn log_in(&self, node: &NodeName) -> Result<Link, LaunchError> {
        let Ssh2Options { config, local, .. } = &self.options;
        let settings = ssh_config::settings(node.as_str(), config.as_deref(), local).await;
        let settings = settings.map_err(|error| match error {
            ConfigError::Slow => unreachable(error.to_string()),
            ConfigError::Refused(_) => LaunchError::Auth {
                why: error.to_string().into(),
                advice: "fix the SSH configuration, then retry".into(),
            },
        })?;
        self.login_files.note(&settings);
        speakable(&settings)?;
        let link = connect::connect(&settings, &self.trusted).await?;
        auth::log_in(&link, &settings, &self.agents).await?;
        link.trust();
        Ok(link)
    }

    /// Runs the probe if it is installed.
    async fn start(&self, link: Link) -> Result<Start, LaunchError> {
        let command = self.options.probe.run_command(self.options.relay_id);
        let broken = |error: ssh2::Error| failure::broken("starting the probe", &error);
        let mut remote = Remote::start(link, &command).await.map_err(broken)?;
        let mut received = Vec::new();
        let mut window = Vec::new();
        while let Some(chunk) =
            remote.next().await.map_err(|e| unreachable(format!("the connection broke: {e}")))?
        {
            window.extend_from_slice(&chunk);
            received.push(chunk);
            // Excessive other output is handled by the reader of the stream.
            if speaks(&window) || window.len() > probe::MAX_NOISE {
                return Ok(Start::Runs(Box::new(remote), received));
            }
        }
        let (end, link) = remote.finish().await;
        Ok(Start::Ended(end, link))
    }

    /// Runs the probe, or determines that it is missing and that the node could run it.
    async fn find(&self, node: &NodeName, link: Link, deadline: Instant) -> Result<Found, LaunchError> {
        let probe = &self.options.probe;
        match timeout_at(deadline, self.start(link)).await.map_err(|_| hangs(node))?? {
            Start::Runs(remote, received) => Ok(Found::Runs(remote.into_stream(received))),
            Start::Ended(end, link) => match probe.unfit(node.as_str(), &end) {
                Some(why) => Err(capability(
                    why,
                    "build node-probe on a machine like this node, or an older one, and pass it with --probe PATH",
                )),
                None if probe.is_missing(&end) => Ok(Found::Missing(link)),
                None => Err(LaunchError::Probe { why: probe.complaint(&end) }),
            },
        }
    }

    /// Uploads the probe to the remote user's cache, or another folder from which the node may run it.
    async fn upload(&self, link: Link) -> Result<Link, LaunchError> {
        let cannot = |why: String| LaunchError::Probe {
            why: format!("the probe could not be put there: {why}").into(),
        };
        match timeout(UPLOAD_LIMIT, self.try_places(link)).await {
            Err(_) => Err(cannot("it took longer than 60 s".to_owned())),
            Ok(Err(error)) => Err(cannot(error.to_string())),
            Ok(Ok(Err(why))) => Err(cannot(why)),
            Ok(Ok(Ok(link))) => Ok(link),
        }
    }

    /// Uploads to the first usable folder; the inner error explains why there is none.
    async fn try_places(&self, mut link: Link) -> io::Result<Result<Link, String>> {
        // Read completely before anything is sent: the uploaded bytes must be the verified ones.
        let probe = self.options.probe.clone();
        let bytes = tokio::task::spawn_blocking(move || probe.bytes()).await.map_err(io::Error::other)?;
        let bytes = bytes.map_err(io::Error::other)?;
        let (mut first, mut reasons) = (Place::default(), Vec::new());
        loop {
            let random = getrandom::u64().map_err(io::Error::other)?;
            let script = UploadScript::new(&self.options.probe, first, random);
            let (place, end, back) = send(Remote::start(link, &script.command).await?, &bytes).await?;
            link = back;
            match UploadScript::outcome(&end, place, &reasons) {
                Uploaded::Done => return Ok(Ok(link)),
                Uploaded::Failed(why) => return Ok(Err(why)),
                Uploaded::TryNext(next, why) => {
                    first = next;
                    reasons.push(why);
                }
            }
        }
    }
}

/// Sends the probe to an upload script once it is ready, and waits for it to exit.
async fn send(mut remote: Remote, bytes: &[u8]) -> io::Result<(Option<Place>, StreamEnd, Link)> {
    let (mut output, mut place) = (Vec::new(), None);
    while let Some(chunk) = remote.next().await? {
        output.extend_from_slice(&chunk);
        place = UploadScript::place(&output);
        if place.is_some() {
            if remote.write_until_end(bytes).await? {
                remote.end_input().await?;
            }
            break;
        }
        if output.len() > probe::MAX_NOISE {
            return Err(io::Error::other("the login script prints without end"));
        }
    }
    while remote.next().await?.is_some() {}
    let (end, link) = remote.finish().await;
    Ok((place, end, link))
}

/// Rejects settings that only the user's own ssh supports, before anything is sent.
fn speakable(settings: &HostSettings) -> Result<(), LaunchError> {
    if let Some(proxy) = &settings.proxy {
        return Err(capability(
            format!("{} is reached through {proxy}, which the built-in SSH cannot do", settings.host),
            "run the relay on a machine from which `ssh` reaches the node without a jump host",
        ));
    }
    if settings.revoked_keys.is_some() {
        return Err(capability(
            format!("RevokedHostKeys is set for {}, which the built-in SSH cannot check", settings.host),
            "mark those keys `@revoked` in ~/.ssh/known_hosts, which is checked, and leave RevokedHostKeys out for this host",
        ));
    }
    Ok(())
}

fn speaks(received: &[u8]) -> bool {
    received.windows(probe::MAGIC.len()).any(|window| window == probe::MAGIC.as_bytes())
}
