//! The system's `ssh`: starts a probe on a node through one child process, as on the command line.
//!
//! Everything that the user's `ssh` supports works: jump hosts and proxy commands, Kerberos, host-based login,
//! certificates, security keys, `Match`, and existing ControlMaster connections. Each node costs a process (1.5 MiB);
//! each command during a launch is a login of its own.

mod failure;
mod log;

use super::child::{self, ChildCommand};
use super::deploy::{self, Deployer, Host, LAUNCH_LIMIT, RemoteCommand};
use super::identity::key_files;
use super::login_files::LoginFiles;
use super::ssh_config::{self, HostSettings, Local};
use super::target::Targets;
use super::{LaunchError, Launcher, LoginState, NodeStream, SshOptions, StreamEnd};
use async_trait::async_trait;
use bytes::Bytes;
use failure::unreachable;
use log::SshLog;
use nodeglass_platform::program;
use nodeglass_protocol::NodeName;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;
use tokio::process::Command;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout, timeout_at};

/// The program.
const SSH: &str = "ssh";
/// Settings that override the user's. Forwardings are for the user's own sessions, nobody can be asked, and
/// no connection is left behind for others to use. Those of the user are used (`ControlPath`).
const SETTINGS: [&str; 14] = [
    "BatchMode=yes",
    "ConnectTimeout=10",
    "ConnectionAttempts=1",
    "ServerAliveInterval=15",
    "ServerAliveCountMax=2",
    "ClearAllForwardings=yes",
    "ForwardAgent=no",
    "ForwardX11=no",
    "Tunnel=no",
    "PermitLocalCommand=no",
    "EscapeChar=none",
    "ControlMaster=no",
    "UpdateHostKeys=no",
    "LogLevel=DEBUG1",
];
/// The limit for connections through jump hosts: sshd drops some beyond ten (`MaxStartups`) that have not logged in
/// yet, and a site has few jump hosts.
const PROXIED_AT_ONCE: usize = 8;
/// A login ends this long before the launch's deadline, so that a slow login is distinguished from a login script
/// that hangs.
const BEFORE_DEADLINE: Duration = Duration::from_millis(100);
/// Time limit for reading key files, which explain a refusal.
const FILES_LIMIT: Duration = Duration::from_secs(5);

/// Starts probes with the system's `ssh`.
pub struct OpensshLauncher {
    client: Arc<Client>,
    targets: Targets,
    proxied: Semaphore,
    deployer: Deployer,
    login_files: LoginFiles,
}

/// The command line of `ssh`.
struct Client {
    config: Option<PathBuf>,
    local: Local,
}

impl OpensshLauncher {
    /// A launcher without connections.
    pub fn new(options: SshOptions) -> Self {
        let SshOptions { probe, relay_id, config, local } = options;
        Self {
            login_files: LoginFiles::new(&local.home, config.as_deref()),
            client: Arc::new(Client { config, local }),
            targets: Targets::default(),
            proxied: Semaphore::new(PROXIED_AT_ONCE),
            deployer: Deployer::new(probe, relay_id),
        }
    }

    /// Reaches nodes by these targets.
    #[must_use]
    pub fn with_targets(self, targets: Targets) -> Self {
        Self { targets, ..self }
    }
}

#[async_trait]
impl Launcher for OpensshLauncher {
    fn name(&self) -> &'static str {
        "openssh"
    }

    fn is_installed(&self) -> bool {
        program::find(SSH).is_some()
    }

    async fn login_state(&self) -> Option<LoginState> {
        self.login_files.state().await
    }

    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError> {
        let Client { config, local } = &*self.client;
        let settings = ssh_config::settings(&self.targets.ssh(node), config.as_deref(), local).await?;
        self.login_files.note(&settings);
        let _proxied = match settings.proxy {
            Some(_) => Some(self.proxied.acquire().await.expect("never closed")),
            None => None,
        };
        let deadline = Instant::now() + LAUNCH_LIMIT;
        let target = Target { client: Arc::clone(&self.client), settings };
        self.deployer.run((node, None), target, deadline).await
    }
}

/// Output of a command on a host.
#[derive(Debug)]
pub struct Ran {
    /// Its standard output, at most [`MAX_OUTPUT`] bytes.
    pub output: Vec<u8>,
    /// The end of the command.
    pub end: StreamEnd,
    /// The key that the host accepted, as ssh names it.
    pub key: Option<String>,
}

/// Maximum size of the output of [`run`].
const MAX_OUTPUT: usize = 256 * 1024;

/// Returns whether there is an `ssh` on this machine.
pub fn is_installed() -> bool {
    program::find(SSH).is_some()
}

/// Logs in and runs one command, which must end within `limit`.
///
/// # Errors
/// [`LaunchError`], as when a probe is started.
pub async fn run(
    settings: HostSettings,
    local: Local,
    command: &str,
    limit: Duration,
) -> Result<Ran, LaunchError> {
    let deadline = Instant::now() + limit;
    let target = Target { client: Arc::new(Client { config: None, local }), settings };
    let mut session = target.start(command, deadline).await?;
    let reading = async {
        session.end_input().await?;
        let mut output = Vec::new();
        while let Some(chunk) = session.next().await? {
            output.extend_from_slice(&chunk);
            if output.len() > MAX_OUTPUT {
                return Err(io::Error::other("it prints endless output"));
            }
        }
        Ok(output)
    };
    let output = match timeout_at(deadline, reading).await {
        Ok(Ok(output)) => output,
        Ok(Err(error)) => return Err(LaunchError::Probe { why: error.to_string().into() }),
        Err(_) => {
            return Err(LaunchError::Hangs {
                why: format!("the login succeeded, but a command did not exit within {} s", limit.as_secs())
                    .into(),
                advice: "look for a login script (~/.bashrc, ~/.profile) that waits for something".into(),
            });
        }
    };
    // The output may arrive before what ssh logs of the login, so that the key is known at the end only.
    let (end, log, _) = session.end().await?;
    Ok(Ran { output, end, key: log.accepted_key().map(str::to_owned) })
}

/// A host that `ssh` reaches; each command is a login of its own.
struct Target {
    client: Arc<Client>,
    settings: HostSettings,
}

impl Target {
    /// `ssh … -- HOST COMMAND`.
    fn command(&self, remote: &str) -> Command {
        let mut command = Command::new(SSH);
        if let Some(file) = &self.client.config {
            command.arg("-F").arg(file);
        }
        command.arg("-T");
        for setting in SETTINGS.iter().chain(&self.settings.resets) {
            command.arg("-o").arg(setting);
        }
        command.arg("--").arg(&self.settings.host).arg(remote);
        ssh_config::set_environment(&mut command, &self.client.local);
        child::isolate(&mut command);
        command
    }
}

impl Host for Target {
    type Command = Session;

    fn silent(&self, node: &NodeName) -> LaunchError {
        deploy::login_script_hangs(node)
    }

    async fn start(self, command: &str, deadline: Instant) -> Result<Session, LaunchError> {
        let mut command = self.command(command);
        let mut child = ChildCommand::spawn(&mut command, SshLog::default())
            .map_err(|error| failure::not_started(&error))?;
        let logged_in = timeout_at(deadline - BEFORE_DEADLINE, child.until(SshLog::is_logged_in)).await;
        match logged_in {
            Err(_) => Err(failure::slow(&child.errors)),
            Ok(Err(error)) => Err(unreachable(format!("`ssh` could not be read: {error}"))),
            Ok(Ok(true)) => Ok(Session { child, target: self }),
            Ok(Ok(false)) => {
                let log = child.finish().await.1;
                if log.is_logged_in() {
                    // Unlikely: both ended at once.
                    return Err(unreachable("the connection broke after the login".to_owned()));
                }
                let files = timeout(FILES_LIMIT, key_files(&self.settings)).await.unwrap_or_default();
                Err(failure::login(&log, &self.settings, &files))
            }
        }
    }
}

/// A command on a host, and the `ssh` that carries its pipes.
struct Session {
    child: ChildCommand<SshLog>,
    target: Target,
}

impl Session {
    /// Waits for the exit; returns how it ended, and all that ssh reported.
    async fn end(self) -> Result<(StreamEnd, SshLog, Target), LaunchError> {
        let (end, log) = self.child.finish().await;
        match &end.broken {
            Some(why) if log.is_connection_lost() => Err(unreachable(why.to_string())),
            _ => Ok((end, log, self.target)),
        }
    }
}

impl RemoteCommand for Session {
    type Host = Target;

    async fn next(&mut self) -> io::Result<Option<Bytes>> {
        self.child.next().await
    }

    async fn write_until_end(&mut self, bytes: &[u8]) -> io::Result<bool> {
        self.child.write_until_end(bytes).await
    }

    async fn end_input(&mut self) -> io::Result<()> {
        self.child.end_input();
        Ok(())
    }

    async fn finish(self) -> Result<(StreamEnd, Target), LaunchError> {
        self.end().await.map(|(end, _, target)| (end, target))
    }

    fn into_stream(self, received: Vec<Bytes>) -> NodeStream {
        self.child.into_stream(received)
    }
}
