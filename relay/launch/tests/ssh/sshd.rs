//! A real sshd on a loopback port with a temporary home directory; killed on drop.

use std::fs;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A running sshd.
pub struct Sshd {
    dir: TempDir,
    child: Child,
    pub port: u16,
}

impl Drop for Sshd {
    fn drop(&mut self) {
        // The listener and its sessions, including stopped ones, share a process group.
        for signal in [libc::SIGCONT, libc::SIGKILL] {
            self.signal(signal);
        }
        let _ = self.child.wait();
    }
}

impl Sshd {
    /// Starts one that admits the current user with `user_key`; `None` if sshd is not installed.
    pub fn start() -> Option<Self> {
        Self::with("")
    }

    /// The same, with more lines of configuration.
    pub fn with(more: &str) -> Option<Self> {
        Self::with_key(|_| more.to_owned())
    }

    /// The same, with these PAM rules instead of the system's; `None` also without the permission to mount.
    pub fn with_pam(rules: &str) -> Option<Self> {
        if !Command::new("unshare").args(["-m", "true"]).status().is_ok_and(|status| status.success()) {
            eprintln!("skipped: PAM rules can only be replaced in a mount namespace");
            return None;
        }
        let rules = format!("auth required pam_permit.so\n{rules}session required pam_permit.so\n");
        Self::prepared(|dir| {
            fs::create_dir(dir.join("pam.d")).unwrap();
            fs::write(dir.join("pam.d/sshd"), rules).unwrap();
            "UsePAM yes\n".to_owned()
        })
    }

    /// The same, with configuration that refers to the keys in the given folder.
    pub fn with_key(more: impl FnOnce(&Path) -> String) -> Option<Self> {
        Self::prepared(more)
    }

    fn prepared(more: impl FnOnce(&Path) -> String) -> Option<Self> {
        if !Path::new(SSHD).exists() {
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "there is no {SSHD}, and CI=true allows no skips"
            );
            eprintln!("skipped: there is no {SSHD}");
            return None;
        }
        // root's sshd uses this folder for privilege separation.
        let _ = fs::create_dir("/run/sshd");
        let dir = tempfile::Builder::new().prefix("nodeglass-sshd").tempdir().unwrap();
        // Shared folders are the test's own, too: a probe that falls back to them must not remain on this
        // machine.
        for folder in ["home", "tmp"] {
            fs::create_dir(dir.path().join(folder)).unwrap();
        }
        for key in ["host_key", "user_key", "other_key", "ca_key"] {
            keygen(&dir.path().join(key), &[]);
        }
        fs::copy(dir.path().join("user_key.pub"), dir.path().join("authorized_keys")).unwrap();
        let more = more(dir.path());
        let (child, port) = (0..5).find_map(|_| spawn(dir.path(), &more)).expect("sshd starts");
        Some(Self { dir, child, port })
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub fn home(&self) -> PathBuf {
        self.path("home")
    }

    pub fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, text).unwrap();
        path
    }

    /// A program that acts as the probe: a shell script in its own folder.
    pub fn script(&self, body: &str) -> PathBuf {
        let folder = self.path("bin");
        let _ = fs::create_dir(&folder);
        fs::set_permissions(&folder, fs::Permissions::from_mode(0o755)).unwrap();
        let path = folder.join("node-probe");
        fs::write(&path, format!("#!/bin/sh\n{body}\n")).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        path
    }

    /// The public key of a file in the format of known_hosts: type and base64.
    pub fn public(&self, key: &str) -> String {
        let text = fs::read_to_string(self.path(&format!("{key}.pub"))).unwrap();
        text.split(' ').take(2).collect::<Vec<_>>().join(" ")
    }

    /// The known_hosts line of this sshd.
    pub fn known_line(&self) -> String {
        format!("[127.0.0.1]:{} {}\n", self.port, self.public("host_key"))
    }

    /// Sends a signal to the listener and to every process of its sessions.
    pub fn signal(&self, signal: i32) {
        for pid in family(self.child.id()) {
            // SAFETY: kill has no memory effects; the pids are descendants of our own child.
            #[expect(unsafe_code, reason = "the standard library sends no signals")]
            unsafe {
                libc::kill(pid as i32, signal);
            }
        }
    }

    /// The processes of sessions, by command line.
    pub fn session_processes(&self, containing: &str) -> Vec<u32> {
        let of = |pid: &u32| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let line = String::from_utf8_lossy(&line).replace('\0', " ");
            // A probe is started in its folder, by its name.
            let folder = fs::read_link(format!("/proc/{pid}/cwd")).unwrap_or_default();
            let is_there = |name: &str| folder.join(name) == Path::new(containing);
            line.contains(containing)
                || line.split(' ').filter_map(|word| word.strip_prefix("./")).any(is_there)
        };
        all_pids().into_iter().filter(of).collect()
    }
}

const SSHD: &str = "/usr/sbin/sshd";

pub fn keygen(path: &Path, more: &[&str]) {
    let mut command = Command::new("ssh-keygen");
    command.args(["-q", "-t", "ed25519", "-N", "", "-C", "test", "-f"]).arg(path).args(more);
    assert!(command.status().unwrap().success());
}

fn spawn(dir: &Path, more: &str) -> Option<(Child, u16)> {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let d = dir.display();
    // Unlike for other settings, the last one counts.
    let startups = if more.contains("MaxStartups") { "" } else { "MaxStartups 200\n" };
    let config = format!(
        "{more}\nListenAddress 127.0.0.1:{port}\nHostKey {d}/host_key\nPidFile none\nAuthorizedKeysFile {d}/authorized_keys\n\
         StrictModes no\nUsePAM no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n\
         {startups}SetEnv HOME={d}/home TMPDIR={d}/tmp XDG_RUNTIME_DIR={d}/run\nPrintMotd no\nLogLevel ERROR\nSubsystem sftp internal-sftp\n"
    );
    fs::write(dir.join("sshd_config"), config).unwrap();
    let mut command = Command::new(SSHD);
    if dir.join("pam.d").exists() {
        command = Command::new("unshare");
        let mount = "mount --bind \"$0\"/pam.d /etc/pam.d && exec \"$@\"";
        command.args(["-m", "sh", "-c", mount]).arg(dir).arg(SSHD);
    }
    command.arg("-D").arg("-e").arg("-f").arg(dir.join("sshd_config")).process_group(0);
    let mut child =
        command.stdin(Stdio::null()).stderr(fs::File::create(dir.join("sshd.log")).unwrap()).spawn().ok()?;
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(10) {
        if std::net::TcpStream::connect(("127.0.0.1", port)).is_ok() {
            return Some((child, port));
        }
        if let Ok(Some(status)) = child.try_wait() {
            eprintln!(
                "sshd ended: {status}: {}",
                fs::read_to_string(dir.join("sshd.log")).unwrap_or_default()
            );
            return None;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    let _ = child.kill();
    let _ = child.wait();
    None
}

fn all_pids() -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect()
}

/// A process and all that descend from it.
fn family(root: u32) -> Vec<u32> {
    let parent = |pid: u32| -> Option<u32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit_once(')')?.1.split_whitespace().nth(1)?.parse().ok()
    };
    let parents: Vec<(u32, u32)> =
        all_pids().into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut family = vec![root];
    let mut next = 0;
    while next < family.len() {
        let of = family[next];
        family.extend(parents.iter().filter(|(_, parent)| *parent == of).map(|(pid, _)| *pid));
        next += 1;
    }
    family
}
