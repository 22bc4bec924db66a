//! The relay's command reports an invalid setting in one sentence and does not print its key.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

mod refused;
mod running;
mod service;
mod settings;
mod words;

use std::fs;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;
use tempfile::TempDir;

/// Longer than anything takes that is waited for.
const LONG: Duration = Duration::from_secs(60);

/// A home of its own, so that no setting of the machine's user is seen.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(home.path(), private).unwrap();
        Self(home)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn relay(&self, args: &[&str]) -> Command {
        let mut relay = Command::new(env!("CARGO_BIN_EXE_relay"));
        relay.args(args).env_clear().env("HOME", self.path()).env("XDG_RUNTIME_DIR", self.path());
        // Nor a relay of the machine's user, which may be recorded there.
        relay.env("TMPDIR", self.path());
        relay.env("PATH", "/usr/bin:/bin").current_dir(self.path()).stdin(Stdio::null());
        relay
    }

    fn run(&self, args: &[&str]) -> Output {
        self.relay(args).output().unwrap()
    }

    fn configure(&self, text: &str) {
        fs::create_dir_all(self.path().join(".config/nodeglass")).unwrap();
        fs::write(self.path().join(".config/nodeglass/config.toml"), text).unwrap();
    }

    /// The line of `relay config` for a setting.
    fn setting(&self, relay: &mut Command, name: &str) -> String {
        let output = relay.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")))
            .unwrap_or_else(|| panic!("{text}"));
        line.replace(self.path().to_str().unwrap(), "HOME")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running relay that is ended by its own pid.
struct Running(Child);

impl Running {
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Running {
    /// Kills it without a chance to store anything.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the scripted cluster on any free port and reads its link from what it prints.
fn demo(home: &Home) -> (Running, String, BufReader<std::process::ChildStdout>) {
    started(&mut home.relay(&["--demo", "--bind", "127.0.0.1:0"]))
}

fn started(relay: &mut Command) -> (Running, String, BufReader<std::process::ChildStdout>) {
    let mut child = relay.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let running = Running(child);
    let mut line = String::new();
    while !line.contains("http://") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the relay ended without a link");
    }
    let link = line[line.find("http://").unwrap()..].trim().to_owned();
    (running, link, lines)
}
