//! Runs the relay program with a home of its own, reached by the link that it prints.

use crate::TIMEOUT;
use crate::process::{Output, Process};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::ticket::Ticket;
use nodeglass_protocol::share::ShareId;
use rustix::process::Signal;
use std::ffi::OsStr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// A link printed by a relay: the owner's, or a share's.
#[derive(Clone, Debug)]
pub struct Link {
    /// The complete URL.
    pub url: String,
    /// `http` or `https`.
    pub scheme: &'static str,
    /// `host:port`.
    pub authority: String,
    /// The base path of the relay, empty at the root.
    pub base: String,
    /// The key to prove: the owner's, or the one derived from a share's secret.
    pub key: Key,
    /// The share's id, if it is one.
    pub share: Option<ShareId>,
    /// The id of a link for one tab.
    pub tab: Option<ShareId>,
}

impl Link {
    /// Finds the link in a line of output.
    pub fn find(line: &str) -> Option<Self> {
        let is_link = |word: &&str| word.starts_with("http") && word.contains("://") && word.contains('#');
        let url = line.split_whitespace().find(is_link)?;
        let (address, fragment) = url.split_once('#')?;
        let (scheme, rest) = match address.strip_prefix("https://") {
            Some(rest) => ("https", rest),
            None => ("http", address.strip_prefix("http://")?),
        };
        // The query only makes the URL unique for the browser's cache.
        let rest = rest.split_once('?').map_or(rest, |(path, _)| path);
        let (authority, base) = rest.trim_end_matches('/').split_at(rest.find('/').unwrap_or(rest.len()));
        let ticket = |text: &str| text.parse::<Ticket>().ok();
        let (share, tab, key) = match fragment.split_at_checked(2)? {
            ("s=", text) => (Some(ticket(text)?.id), None, ticket(text)?.proof()),
            ("t=", text) => (None, Some(ticket(text)?.id), ticket(text)?.proof()),
            ("k=", key) => (None, None, key.parse().ok()?),
            _ => return None,
        };
        Some(Self {
            url: url.to_owned(),
            scheme,
            authority: authority.to_owned(),
            base: base.to_owned(),
            key,
            share,
            tab,
        })
    }

    /// The URL of a path on this relay, without the key.
    pub fn path(&self, path: &str) -> String {
        format!("{}://{}{}{path}", self.scheme, self.authority, self.base)
    }

    /// The link at another address: through a proxy or a tunnel.
    pub fn at(&self, authority: &str) -> Self {
        let from = self.url.find(['?', '#']).unwrap_or(self.url.len());
        let url = format!("{}://{authority}{}/{}", self.scheme, self.base, &self.url[from..]);
        Self { url, authority: authority.to_owned(), ..self.clone() }
    }
}

/// A running relay.
#[derive(Debug)]
pub struct TestRelay {
    process: Process,
    link: Link,
    home: TempDir,
}

impl TestRelay {
    /// Starts a relay with these arguments, on a free loopback port by default, and waits for its link.
    ///
    /// # Errors
    /// If it does not print a link; includes its output.
    pub fn start(args: &[&str]) -> Result<Self> {
        Self::start_in(args, [])
    }

    /// Starts it with environment variables.
    ///
    /// # Errors
    /// As [`TestRelay::start`].
    pub fn start_in<'a>(
        args: &[&str],
        environment: impl IntoIterator<Item = (&'a str, &'a OsStr)>,
    ) -> Result<Self> {
        let home = tempfile::tempdir().context("make a home for the relay")?;
        let mut command = Self::command(home.path())?;
        if !args.contains(&"--bind") {
            command.args(["--bind", "127.0.0.1:0"]);
        }
        command.args(args).envs(environment);
        let mut process = Process::start(&mut command)?;
        let link = process.wait_for("a link", Link::find)?;
        Ok(Self { process, link, home })
    }

    /// A relay with the scripted cluster.
    ///
    /// # Errors
    /// As [`TestRelay::start`].
    pub fn demo() -> Result<Self> {
        Self::start(&["--demo"])
    }

    /// A command that starts a relay with the home `home`, isolated from the caller's configuration, keys
    /// and SLURM settings.
    ///
    /// # Errors
    /// If the relay is not built.
    pub fn command(home: &Path) -> Result<Command> {
        // A runtime folder accessible to others would be skipped, and then all relays would share one.
        std::fs::set_permissions(home, PermissionsExt::from_mode(0o700))
            .context("close the home to others")?;
        let mut command = Command::new(binary("relay")?);
        command
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("HOME", home)
            .env("XDG_CONFIG_HOME", home.join(".config"))
            .env("XDG_CACHE_HOME", home.join(".cache"))
            .env("XDG_STATE_HOME", home.join(".state"))
            .env("XDG_RUNTIME_DIR", home)
            // Other relays of the caller may be recorded in the temporary directory.
            .env("TMPDIR", home)
            .env("USER", std::env::var_os("USER").unwrap_or_else(|| "root".into()))
            .current_dir(home);
        Ok(command)
    }

    /// Its link.
    pub fn link(&self) -> &Link {
        &self.link
    }

    /// The output of `relay ARGS…`, run by its owner next to this relay.
    ///
    /// # Errors
    /// If it fails, with its output.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = Self::command(self.home())?.args(args).output()?;
        ensure!(output.status.success(), "relay {args:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Runs a command line in a shell that finds `relay`; returns its output.
    ///
    /// # Errors
    /// If the last command of a pipe fails; includes its messages.
    pub fn shell(&self, line: &str) -> Result<String> {
        let relay = Self::command(self.home())?;
        let programs = Path::new(relay.get_program()).parent().context("a program is in a folder")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let path = std::env::join_paths([programs.into()].into_iter().chain(std::env::split_paths(&path)))?;
        let variables = relay.get_envs().filter_map(|(name, value)| Some((name, value?)));
        let mut shell = Command::new("sh");
        shell.args(["-c", line]).env_clear().envs(variables).env("PATH", path).current_dir(self.home());
        let output = shell.output()?;
        ensure!(output.status.success(), "{line:?}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Its home folder.
    pub fn home(&self) -> &Path {
        self.home.path()
    }

    /// Its pid.
    pub fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// Returns its output so far.
    pub fn output(&self) -> &Output {
        self.process.output()
    }

    /// Waits until it has printed a text: its log may be read later than its link.
    ///
    /// # Errors
    /// If it does not print it within [`TIMEOUT`]; includes its output.
    pub fn wait_for_text(&self, text: &str) -> Result<()> {
        let start = Instant::now();
        while !self.output().text().contains(text) {
            ensure!(start.elapsed() < TIMEOUT, "no {text:?} in:\n{}", self.output().text());
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }

    /// Sends SIGTERM and waits for it to exit.
    ///
    /// # Errors
    /// If it does not exit.
    pub fn terminate(mut self) -> Result<(ExitStatus, String)> {
        self.process.signal(Signal::TERM)?;
        let status = self.process.wait()?;
        Ok((status, self.process.output().text()))
    }
}

/// A binary of this workspace, built with the same profile as the tests.
///
/// # Errors
/// If it is not built; `cargo xtask test` builds it.
pub fn binary(name: &str) -> Result<PathBuf> {
    // …/target/debug/deps/it-0123456789abcdef
    let test = std::env::current_exe().context("find the test's own path")?;
    let profile = test.parent().and_then(Path::parent).context("find the target folder")?;
    let path = profile.join(name);
    anyhow::ensure!(
        path.is_file(),
        "{name} is not built: run the tests by `cargo xtask test`, which builds it"
    );
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_link_is_found_in_other_output() {
        let key = Key::new([7; 32]);
        let line = format!("  open http://127.0.0.1:41234/#k={} in a browser", key.reveal());
        let link = Link::find(&line).unwrap();
        assert_eq!(link.authority, "127.0.0.1:41234");
        assert_eq!(link.key, key);
        assert_eq!(link.path("/job/1"), "http://127.0.0.1:41234/job/1");
        let line = format!("https://login1:8443/p/q/?v=k3jq9xab#k={}", key.reveal());
        let link = Link::find(&line).unwrap();
        assert_eq!(
            (link.scheme, link.authority.as_str(), link.base.as_str()),
            ("https", "login1:8443", "/p/q")
        );
        assert_eq!(link.at("localhost:1").path("/job/1"), "https://localhost:1/p/q/job/1");
    }

    #[test]
    fn a_line_without_a_key_is_no_link() {
        assert!(Link::find("listening on http://127.0.0.1:8080/").is_none());
        assert!(Link::find("open http://127.0.0.1:8080/#k=short").is_none());
    }
}
