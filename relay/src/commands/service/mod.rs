//! `relay service`: the relay as a service of the user's systemd.

mod unit;

use crate::installation::Installation;
use anyhow::{Context as _, bail, ensure};
use nodeglass_access::key_file::Running;
use nodeglass_access::peer::Peer;
use nodeglass_access::user;
use nodeglass_app::addresses::here;
use nodeglass_app::terminal;
use nodeglass_config::{ServiceCommand, ServiceSettings};
use serde::Serialize;
use std::collections::BTreeMap;
use std::fs;
use std::io::{ErrorKind, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

const UNIT: &str = "nodeglass.service";

/// Executes a `relay service` command and returns what to print; `running` are the user's relays on this machine.
///
/// # Errors
/// A complete sentence for the user.
pub fn service(
    command: &ServiceCommand,
    settings: &ServiceSettings,
    running: &[Running],
) -> anyhow::Result<String> {
    match command {
        ServiceCommand::Install { print: true } => unit_text(settings),
        ServiceCommand::Install { print: false } => install(settings, running),
        ServiceCommand::Remove => remove(),
        ServiceCommand::Status { json } => {
            let state = State::read()?;
            Ok(if *json { terminal::json(&state)? } else { state.text() })
        }
    }
}

fn unit_text(settings: &ServiceSettings) -> anyhow::Result<String> {
    let program = std::env::current_exe().context("cannot find the path of this program")?;
    // As the kernel names a program whose file was replaced since it started.
    ensure!(program.is_file(), "{} does not exist any more: run the new one", program.display());
    stays(&Installation::of_this_program()?)?;
    Ok(unit::text(&program, here().as_str(), settings, |name| std::env::var(name).ok()))
}

/// Refuses a program in a cache: the service would fail once its tool has cleared that.
fn stays(installation: &Installation) -> anyhow::Result<()> {
    if let Some(install) = installation.install {
        bail!(
            "this relay is in a cache, {}, which will be cleared: install it by `{install}`, and run `nodeglass service \
             install` then",
            installation.folder.display()
        );
    }
    Ok(())
}

fn install(settings: &ServiceSettings, running: &[Running]) -> anyhow::Result<String> {
    let (path, text) = (unit_path()?, unit_text(settings)?);
    let before = State::read()?;
    if let Some(other) = running.iter().find(|relay| Some(relay.pid) != before.pid) {
        let pid = other.pid;
        bail!(
            "you run a relay already (pid {pid}); stop it first, by `kill {pid}`, so that the service replaces it"
        );
    }
    write(&path, &text).with_context(|| format!("cannot write {}", path.display()))?;
    systemctl(&["daemon-reload"])?;
    systemctl(&["enable", UNIT])?;
    // Not `start`: a service that runs gets the new settings.
    systemctl(&["restart", UNIT])?;
    let state = State::read()?;
    Ok(format!("Installed {}.\n{}", path.display(), state.text()))
}

fn remove() -> anyhow::Result<String> {
    let path = unit_path()?;
    if !path.exists() {
        return Ok("No service is installed.\n".to_owned());
    }
    systemctl(&["disable", "--now", UNIT])?;
    fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
    systemctl(&["daemon-reload"])?;
    Ok(format!("Stopped the service and removed {}.\n", path.display()))
}

/// Path of the unit, where systemd looks for those of a user; its manager does not know the `XDG_CONFIG_HOME` of a login shell.
fn unit_path() -> anyhow::Result<PathBuf> {
    let home = std::env::var_os("HOME").map(PathBuf::from).filter(|home| home.is_absolute());
    Ok(home
        .context("HOME is not set, so there is nowhere to put the unit")?
        .join(".config/systemd/user")
        .join(UNIT))
}

/// Replaces a file that only its owner may read, since webhooks may be in it.
fn write(path: &Path, text: &str) -> std::io::Result<()> {
    let folder = path.parent().unwrap_or(Path::new("."));
    fs::create_dir_all(folder)?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    file.write_all(text.as_bytes())?;
    file.as_file().sync_all()?;
    file.persist(path).map_err(|error| error.error)?;
    Ok(())
}

/// The state of the service.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
struct State {
    /// The unit's file, if one is installed: by `relay service install`, or by a package for everyone.
    unit: Option<PathBuf>,
    /// As systemd names it: `active`, `inactive`, `failed`, …
    active: String,
    /// Details, such as `running`, `auto-restart` or `dead`.
    sub: String,
    /// Result of the last run: `success`, `exit-code`, …
    result: String,
    /// Exit status of the last run.
    exit_status: Option<i32>,
    /// Process id of the relay, while it runs.
    pid: Option<u32>,
    /// Whether the service starts at boot and outlives the user's sessions; `null` if logind does not say.
    lingers: Option<bool>,
}

impl State {
    /// Asks systemd.
    ///
    /// # Errors
    /// There is no systemd of the user.
    fn read() -> anyhow::Result<Self> {
        let shown = systemctl(&[
            "show",
            UNIT,
            "--property=ActiveState,SubState,Result,MainPID,ExecMainStatus,FragmentPath",
        ])?;
        Ok(Self { lingers: lingers(), ..Self::parse(&shown) })
    }

    fn parse(shown: &str) -> Self {
        let properties: BTreeMap<_, _> = shown.lines().filter_map(|line| line.split_once('=')).collect();
        let text = |name| properties.get(name).map(|value| (*value).to_owned()).unwrap_or_default();
        Self {
            unit: Some(text("FragmentPath")).filter(|path| !path.is_empty()).map(PathBuf::from),
            active: text("ActiveState"),
            sub: text("SubState"),
            result: text("Result"),
            exit_status: text("ExecMainStatus").parse().ok(),
            pid: text("MainPID").parse().ok().filter(|pid| *pid > 0),
            ..Self::default()
        }
    }

    fn text(&self) -> String {
        let Some(path) = &self.unit else {
            return "No service is installed; `relay service install` installs one.\n".to_owned();
        };
        let now = match (self.active.as_str(), self.pid) {
            ("active", Some(pid)) => format!("It runs (pid {pid}); `relay link` prints its link."),
            ("failed", _) | ("activating", None) => format!(
                "It does not run: {} (exit status {}); `journalctl --user -u {UNIT}` has its messages.",
                self.result,
                self.exit_status.unwrap_or_default()
            ),
            _ => format!(
                "It does not run ({}, {}); `systemctl --user start {UNIT}` starts it on the host that its \
                 ConditionHost= names.",
                self.active, self.sub
            ),
        };
        let lingering = match self.lingers {
            Some(true) => "It starts with this machine and outlives your sessions, because you linger.",
            Some(false) => {
                "systemd starts it with your first session here and stops it when your last one ends. `loginctl \
                 enable-linger` lets it run without a session, if your site allows that."
            }
            None => "Whether it outlives your sessions is unknown: `loginctl` does not respond.",
        };
        format!("Unit      {}\nState     {now}\nSessions  {lingering}\n", path.display())
    }
}

/// Returns whether logind keeps the user's systemd without a session.
fn lingers() -> Option<bool> {
    let name = Peer::owner().uid().and_then(user::name_of)?;
    let mut command = Command::new("loginctl");
    let output =
        command.args(["show-user", name.as_str(), "--property=Linger"]).stdin(Stdio::null()).output().ok()?;
    match String::from_utf8_lossy(&output.stdout).trim() {
        "Linger=yes" => Some(true),
        "Linger=no" => Some(false),
        _ => None,
    }
}

/// Runs `systemctl --user` and returns its output.
///
/// # Errors
/// A sentence that says what to do.
fn systemctl(args: &[&str]) -> anyhow::Result<String> {
    const INSTEAD: &str = "start the relay in tmux or with nohup instead";
    let output = match Command::new("systemctl").arg("--user").args(args).stdin(Stdio::null()).output() {
        Ok(output) => output,
        Err(error) if error.kind() == ErrorKind::NotFound => {
            bail!("this machine has no systemctl; {INSTEAD}")
        }
        Err(error) => bail!("systemctl cannot be run: {error}; {INSTEAD}"),
    };
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    let why = stderr.lines().next().unwrap_or("it states no reason").trim();
    if why.contains("connect to bus")
        || why.contains("connect to user scope bus")
        || why.contains("not been booted")
    {
        bail!(
            "systemd does not run for you here ({why}): log in over SSH rather than by su or sudo, or {INSTEAD}; some \
             sites turn it off"
        );
    }
    bail!("systemctl {}: {why}", args.first().unwrap_or(&""))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::installation::Method;

    fn state(active: &str, pid: Option<u32>, lingers: Option<bool>) -> State {
        let (unit, active) =
            (Some("/home/alice/.config/systemd/user/nodeglass.service".into()), active.into());
        State {
            unit,
            active,
            pid,
            lingers,
            result: "exit-code".into(),
            exit_status: Some(2),
            ..State::default()
        }
    }

    #[test]
    fn no_unit_starts_a_relay_that_is_only_in_a_cache() {
        let cached = Installation {
            method: Method::Uv,
            folder: "/home/alice/.cache/uv/archive-v0/EQ9Z".into(),
            update: String::new(),
            install: Some("uv tool install ./FILE"),
        };
        let refused = stays(&cached).unwrap_err().to_string();
        assert!(refused.contains("archive-v0") && refused.contains("`uv tool install ./FILE`"), "{refused}");
        assert!(stays(&Installation { install: None, ..cached }).is_ok());
    }

    #[test]
    fn the_state_says_whether_it_runs_and_outlives_sessions() {
        let shown = "ActiveState=active\nSubState=running\nResult=success\nMainPID=4711\nExecMainStatus=0\n\
                     FragmentPath=/usr/lib/systemd/user/nodeglass.service\n";
        let parsed = State::parse(shown);
        assert_eq!(
            (parsed.active.as_str(), parsed.pid, parsed.exit_status),
            ("active", Some(4_711), Some(0))
        );
        assert_eq!(parsed.unit, Some("/usr/lib/systemd/user/nodeglass.service".into()));
        let none = State::parse("MainPID=0\nFragmentPath=\n");
        assert_eq!((none.pid, none.unit), (None, None));
        assert!(state("active", Some(4_711), Some(false)).text().contains("loginctl enable-linger"));
        assert!(state("failed", None, Some(true)).text().contains("exit status 2"));
        assert!(state("inactive", None, None).text().contains("systemctl --user start"));
        assert!(State::default().text().contains("relay service install"));
    }
}
