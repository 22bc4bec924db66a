//! Reaches a port of the cluster's login host from this machine through ssh, as a laptop would.

use super::script;
use crate::process::Process;
use anyhow::Result;
use std::net::TcpListener;
use std::path::Path;
use std::process::Command;

/// An ssh tunnel to the cluster's login host, closed on drop.
#[derive(Debug)]
pub struct Tunnel {
    port: u16,
    _ssh: Process,
}

impl Tunnel {
    /// Opens a tunnel to the cluster at `place`, and waits until it is ready.
    pub(super) fn open(place: &Path, user: &str, remote: &str) -> Result<Self> {
        // Free a moment ago; if another process takes it, ssh exits with an error.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let forward = format!("127.0.0.1:{port}:{remote}");
        let mut ssh = Process::start(&mut ssh(place, user, &forward))?;
        let open = |line: &str| line.contains("Entering interactive session").then_some(());
        ssh.wait_for("an open tunnel", open)?;
        Ok(Self { port, _ssh: ssh })
    }

    /// The port of 127.0.0.1 on this machine.
    pub fn port(&self) -> u16 {
        self.port
    }
}

/// The machine shares no network with the cluster: ssh speaks to an sshd on its own stdin.
fn ssh(place: &Path, user: &str, forward: &str) -> Command {
    let proxy = format!(
        "ProxyCommand=env LAB={} bash {} exec login -- /usr/sbin/sshd -i",
        quoted(place),
        quoted(&script())
    );
    let known_hosts = format!("UserKnownHostsFile={}", place.join("shared/etc/ssh_known_hosts").display());
    let mut command = Command::new("ssh");
    command.args(["-v", "-N", "-F", "none", "-o", &proxy, "-o", &known_hosts]);
    for option in
        ["BatchMode=yes", "IdentitiesOnly=yes", "ExitOnForwardFailure=yes", "StrictHostKeyChecking=yes"]
    {
        command.args(["-o", option]);
    }
    command.arg("-i").arg(place.join("home").join(user).join(".ssh/id_ed25519"));
    command.args(["-L", forward, &format!("{user}@login")]);
    command
}

/// Quotes for the shell that runs ssh's `ProxyCommand`; ssh itself expands `%`.
fn quoted(path: &Path) -> String {
    let text = path.display().to_string().replace('%', "%%");
    format!("'{}'", text.replace('\'', r"'\''"))
}
