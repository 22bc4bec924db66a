//! A real sshd on a loopback port, and the keys and configuration with which a relay logs in there.

use crate::{TIMEOUT, skip};
use anyhow::{Context, Result, bail, ensure};
use rustix::process::{Pid, Signal, kill_process_group};
use std::fs;
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running sshd with a home directory of its own; it ends with its sessions when dropped.
#[derive(Debug)]
pub struct Sshd {
    dir: TempDir,
    child: Child,
    port: u16,
    ssh: PathBuf,
}

impl Sshd {
    /// Starts one that admits the current user; `None` if OpenSSH is not installed.
    ///
    /// # Errors
    /// If it does not start.
    pub fn start() -> Result<Option<Self>> {
        let Some([sshd, ssh, keygen]) = skip::programs(["sshd", "ssh", "ssh-keygen"]) else {
            return Ok(None);
        };
        // root's sshd uses this folder for privilege separation.
        let _ = fs::create_dir("/run/sshd");
        let dir = tempfile::Builder::new().prefix("nodeglass-sshd").tempdir()?;
        for folder in ["home", "tmp", "bin"] {
            fs::create_dir(dir.path().join(folder))?;
        }
        for key in ["host_key", "user_key"] {
            let mut command = Command::new(&keygen);
            command.args(["-q", "-t", "ed25519", "-N", "", "-f"]).arg(dir.path().join(key));
            ensure!(command.status()?.success(), "ssh-keygen failed");
        }
        fs::copy(dir.path().join("user_key.pub"), dir.path().join("authorized_keys"))?;
        let port = TcpListener::bind("127.0.0.1:0")?.local_addr()?.port();
        let child = spawn(&sshd, dir.path(), port)?;
        let running = Self { dir, child, port, ssh };
        running.wait()?;
        running.write_client()?;
        Ok(Some(running))
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns a folder with an `ssh` that knows this sshd as `Host` of any name, at any requested port.
    pub fn path(&self) -> PathBuf {
        self.dir.path().join("bin")
    }

    /// The home directory of its logins.
    pub fn home(&self) -> String {
        self.dir.path().join("home").display().to_string()
    }

    /// Lets clients know this sshd at another port, too, which leads to it.
    ///
    /// # Errors
    /// If the file of known hosts cannot be written.
    pub fn trust(&self, port: u16) -> Result<()> {
        let path = self.dir.path().join("known_hosts");
        let known = fs::read_to_string(&path)?;
        let key =
            known.split_once(' ').context("the line of its own port")?.1.lines().next().unwrap_or_default();
        Ok(fs::write(&path, format!("{known}[127.0.0.1]:{port} {key}\n"))?)
    }

    fn wait(&self) -> Result<()> {
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() {
            ensure!(started.elapsed() < TIMEOUT, "sshd does not listen");
            std::thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    /// Writes the client's side: `ssh` reads the configuration of the password file's home, so a test's configuration
    /// must be named.
    fn write_client(&self) -> Result<()> {
        let dir = self.dir.path();
        let key = fs::read_to_string(dir.join("host_key.pub"))?;
        let key: Vec<_> = key.split(' ').take(2).collect();
        fs::write(dir.join("known_hosts"), format!("[127.0.0.1]:{} {}\n", self.port, key.join(" ")))?;
        let d = dir.display();
        let config = format!(
            "Host *\n HostName 127.0.0.1\n UserKnownHostsFile {d}/known_hosts\n GlobalKnownHostsFile none\n \
             IdentityFile {d}/user_key\n IdentityAgent none\n"
        );
        fs::write(dir.join("ssh_config"), config)?;
        let script = self.path().join("ssh");
        fs::write(&script, format!("#!/bin/sh\nexec {} -F {d}/ssh_config \"$@\"\n", self.ssh.display()))?;
        fs::set_permissions(&script, fs::Permissions::from_mode(0o755))?;
        Ok(())
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            let _ = kill_process_group(pid, Signal::KILL);
        }
        let _ = self.child.wait();
    }
}

fn spawn(sshd: &Path, dir: &Path, port: u16) -> Result<Child> {
    let d = dir.display();
    let config = format!(
        "ListenAddress 127.0.0.1:{port}\nHostKey {d}/host_key\nPidFile none\nAuthorizedKeysFile {d}/authorized_keys\n\
         StrictModes no\nUsePAM no\nMaxStartups 200\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
         SetEnv HOME={d}/home TMPDIR={d}/tmp XDG_RUNTIME_DIR={d}/run\nPrintMotd no\nLogLevel ERROR\n"
    );
    fs::write(dir.join("sshd_config"), config)?;
    let log = fs::File::create(dir.join("sshd.log"))?;
    let mut command = Command::new(sshd);
    command.args(["-D", "-e", "-f"]).arg(dir.join("sshd_config")).process_group(0);
    let mut child = command.stdin(Stdio::null()).stderr(log).spawn().context("start sshd")?;
    if let Some(status) = child.try_wait()? {
        bail!("sshd ended: {status}");
    }
    Ok(child)
}
