//! A real sshd on loopback represents every node: each session has its own process.

use crate::site::program;
use anyhow::{Context, Result, bail};
use nodeglass_tests::process::Process;
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

const SSHD: &str = "/usr/sbin/sshd";
const SSH: &str = "/usr/bin/ssh";
/// Time limit until it listens.
const TIMEOUT: Duration = Duration::from_secs(20);

/// A running sshd that admits this user.
pub struct Sshd {
    _process: Process,
}

impl Sshd {
    /// Starts one with all files in `folder`, and creates an `ssh` there that resolves every node to it; `None` if
    /// there is no sshd.
    pub fn start(folder: &Path) -> Result<Option<Self>> {
        if ![SSHD, SSH].iter().all(|program| Path::new(program).is_file()) {
            return Ok(None);
        }
        // root's sshd uses this folder for privilege separation.
        let _ = fs::create_dir("/run/sshd");
        fs::create_dir(folder.join("home"))?;
        let (host_key, user_key) = (keygen(folder, "host_key")?, keygen(folder, "user_key")?);
        fs::copy(user_key.with_extension("pub"), folder.join("authorized_keys"))?;
        // Free a moment ago; if another process takes it, sshd exits with an error.
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        fs::write(folder.join("sshd_config"), server(folder, port))?;
        let key = fs::read_to_string(host_key.with_extension("pub"))?;
        fs::write(folder.join("known_hosts"), format!("[127.0.0.1]:{port} {key}"))?;
        fs::write(folder.join("ssh_config"), client(folder, port))?;
        program(folder, "ssh", &format!("exec {SSH} -F {}/ssh_config \"$@\"", folder.display()))?;
        let process =
            Process::start(Command::new(SSHD).args(["-D", "-e", "-f"]).arg(folder.join("sshd_config")))?;
        let began = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            if began.elapsed() > TIMEOUT {
                bail!("sshd does not listen; it printed:\n{}", process.output().text());
            }
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(Some(Self { _process: process }))
    }
}

fn server(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {folder}/host_key\nPidFile none\n\
         AuthorizedKeysFile {folder}/authorized_keys\nStrictModes no\nUsePAM no\nPasswordAuthentication no\n\
         KbdInteractiveAuthentication no\nPermitRootLogin yes\nMaxStartups 400\nSetEnv HOME={folder}/home\n\
         PrintMotd no\nLogLevel ERROR\n"
    )
}

fn client(folder: &Path, port: u16) -> String {
    let folder = folder.display();
    format!(
        "Host *\nHostName 127.0.0.1\nPort {port}\nIdentityFile {folder}/user_key\nIdentitiesOnly yes\n\
         UserKnownHostsFile {folder}/known_hosts\n"
    )
}

fn keygen(folder: &Path, name: &str) -> Result<PathBuf> {
    let path = folder.join(name);
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "bench", "-f"]).arg(&path).stdin(Stdio::null());
    let status = command.status().context("start ssh-keygen")?;
    if !status.success() {
        bail!("ssh-keygen ended with {status}");
    }
    Ok(path)
}
