//! The client side of a test: an ssh configuration, a probe, a launcher.

use super::sshd::Sshd;
use nodeglass_launch::openssh::OpensshLauncher;
use nodeglass_launch::ssh_config::Local;
use nodeglass_launch::ssh2::Ssh2Launcher;
use nodeglass_launch::upload::ProbeBinary;
use nodeglass_launch::{LaunchError, Launcher, NodeStream, SshOptions};
use nodeglass_protocol::NodeName;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Prints a hello, then echoes each line of stdin until that closes.
pub const ECHO: &str = r#"printf '\036NODEGLASS1 {"hello":1}\n'
while read -r line; do echo "got $line"; done
echo bye >&2
exit 0"#;

/// A user's configuration; fields are changed before `launcher`.
pub struct User<'a> {
    pub sshd: &'a Sshd,
    pub known_hosts: String,
    pub identity: String,
    /// More settings for all hosts.
    pub extra: String,
    /// `Host` blocks, which take precedence.
    pub hosts: String,
    pub agent: Option<PathBuf>,
}

impl<'a> User<'a> {
    pub fn of(sshd: &'a Sshd) -> Self {
        let identity = sshd.path("user_key").display().to_string();
        Self {
            sshd,
            known_hosts: sshd.known_line(),
            identity,
            extra: String::new(),
            hosts: String::new(),
            agent: None,
        }
    }

    /// The user's ssh_config.
    pub fn config(&self) -> PathBuf {
        let known = self.sshd.write("known_hosts", &self.known_hosts);
        let config = format!(
            "{}\nHost *\n HostName 127.0.0.1\n Port {}\n UserKnownHostsFile {}\n GlobalKnownHostsFile none\n IdentityFile {}\n\
             {}\n",
            self.hosts,
            self.sshd.port,
            known.display(),
            self.identity,
            self.extra
        );
        self.sshd.write("ssh_config", &config)
    }

    fn local(&self) -> Local {
        Local { agent: self.agent.clone(), ..Local::from_env() }
    }

    pub fn launcher(&self, probe: &Path) -> Ssh2Launcher {
        Ssh2Launcher::new(SshOptions {
            probe: ProbeBinary::find(Some(probe)).unwrap(),
            relay_id: 0xabcd,
            config: Some(self.config()),
            local: self.local(),
        })
    }

    pub fn openssh(&self, probe: &Path) -> OpensshLauncher {
        OpensshLauncher::new(SshOptions {
            probe: ProbeBinary::find(Some(probe)).unwrap(),
            relay_id: 0xabcd,
            config: Some(self.config()),
            local: self.local(),
        })
    }

    pub async fn launch(&self, probe: &Path) -> Result<NodeStream, LaunchError> {
        self.launcher(probe).launch(&node()).await
    }

    /// Launches with the built-in client or with the system's ssh.
    pub async fn launch_with(&self, name: &str, probe: &Path) -> Result<NodeStream, LaunchError> {
        match name {
            "ssh2" => self.launch(probe).await,
            _ => self.openssh(probe).launch(&node()).await,
        }
    }
}

/// The launchers over SSH.
pub const LAUNCHERS: [&str; 2] = ["ssh2", "openssh"];

pub fn node() -> NodeName {
    NodeName::new("node-1").unwrap()
}

/// Reads stdout until it holds `wanted`; panics after 20 s or at the end.
pub async fn expect(stream: &mut NodeStream, wanted: &str) -> String {
    let mut output: Vec<u8> = Vec::new();
    let reading = async {
        let mut searched = 0;
        while !output[searched..].windows(wanted.len()).any(|window| window == wanted.as_bytes()) {
            searched = output.len().saturating_sub(wanted.len());
            let Some(chunk) = stream.stdout.recv().await else {
                panic!(
                    "the output ended after {:?}: {:?}",
                    String::from_utf8_lossy(&output),
                    stream.end.try_recv()
                );
            };
            output.extend_from_slice(&chunk);
        }
    };
    tokio::time::timeout(Duration::from_secs(20), reading).await.expect("it comes within 20 s");
    String::from_utf8_lossy(&output).into_owned()
}

pub async fn send_line(stream: &NodeStream, line: &str) {
    stream.stdin.send(format!("{line}\n").into()).await.unwrap();
}

/// Waits until `holds`, at most 10 s.
pub async fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..500 {
        if holds() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    panic!("not within 10 s: {what}");
}
