//! Resolves how to reach a host by asking `ssh -G`, so that it matches the user's own `ssh`.

use super::child::{self, ChildCommand};
use super::target::SshTarget;
use super::{LaunchError, StreamEnd, Tail};
use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::process::Command;

/// `ssh -G` only reads files, but may hang on an unreachable home directory.
const TIME_LIMIT: Duration = Duration::from_secs(5);
/// Far more than `ssh -G` ever prints.
const MAX_OUTPUT: usize = 256 * 1024;

/// The user's SSH settings for a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostSettings {
    /// The requested name, in the form in which the user's own `ssh` accepts it as its destination.
    pub host: String,
    /// `HostName`: what to connect to.
    pub hostname: String,
    /// `User`.
    pub user: String,
    /// `Port`.
    pub port: u16,
    /// `IdentityFile`s in their order.
    pub identity_files: Vec<PathBuf>,
    /// `IdentitiesOnly`: agent keys count only if they are also an `IdentityFile`.
    pub identities_only: bool,
    /// Socket of the agent (`IdentityAgent`, `SSH_AUTH_SOCK`), if there is one.
    pub agent: Option<PathBuf>,
    /// `UserKnownHostsFile`s and `GlobalKnownHostsFile`s.
    pub known_hosts: Vec<PathBuf>,
    /// `HostKeyAlias`.
    pub host_key_alias: Option<String>,
    /// Whether `StrictHostKeyChecking` accepts unknown hosts (`accept-new`, `no`).
    pub accept_unknown: bool,
    /// `ProxyJump` or `ProxyCommand`, if either is set.
    pub proxy: Option<String>,
    /// `RevokedHostKeys`, if set.
    pub revoked_keys: Option<String>,
    /// Whether a certificate, a security key or a smart card may be needed to log in, which the built-in
    /// client cannot use.
    pub needs_openssh: bool,
    /// Options that undo settings with which ssh would not run a command with our pipes (`RemoteCommand`,
    /// `StdinNull`, …), as `-o` takes them. Only those in effect: older versions do not know them all.
    pub resets: Vec<&'static str>,
}

/// Settings with which ssh would not run a command with our pipes, and their defaults.
const RESETS: [(&str, &str); 4] = [
    ("remotecommand", "RemoteCommand=none"),
    ("stdinnull", "StdinNull=no"),
    ("forkafterauthentication", "ForkAfterAuthentication=no"),
    ("sessiontype", "SessionType=default"),
];

/// Home directory, login name and agent; defaults for what a configuration leaves open.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Local {
    /// Home directory.
    pub home: PathBuf,
    /// Login name.
    pub user: String,
    /// `SSH_AUTH_SOCK`.
    pub agent: Option<PathBuf>,
}

impl Local {
    /// Reads it from the environment, the login name also from the system.
    pub fn from_env() -> Self {
        let var = |name| std::env::var(name).ok().filter(|value| !value.is_empty());
        Self {
            home: var("HOME").map_or_else(|| PathBuf::from("/"), PathBuf::from),
            user: var("USER").or_else(|| var("LOGNAME")).unwrap_or_else(login_name),
            agent: var("SSH_AUTH_SOCK").map(PathBuf::from),
        }
    }
}

/// The user's name, which the system may read from a directory such as LDAP; else the uid.
fn login_name() -> String {
    let uid = rustix::process::getuid().as_raw();
    nodeglass_access::user::exact_name_of(uid).unwrap_or_else(|| uid.to_string())
}

/// Error of `ssh -G`.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It timed out.
    #[error("`ssh -G` did not respond within 5 s; is the home directory reachable?")]
    Slow,
    /// It reported an error.
    #[error("`ssh -G` failed: {0}")]
    Refused(String),
}

impl From<ConfigError> for LaunchError {
    fn from(error: ConfigError) -> Self {
        match error {
            ConfigError::Slow => Self::Unreachable { why: error.to_string().into() },
            ConfigError::Refused(_) => Self::Auth {
                why: error.to_string().into(),
                advice: "fix the SSH configuration, then retry".into(),
            },
        }
    }
}

/// Runs `ssh -G` for a target. Without an installed `ssh`, OpenSSH's defaults apply.
///
/// # Errors
/// [`ConfigError`] if ssh is installed but fails.
pub async fn settings(
    target: &SshTarget,
    file: Option<&Path>,
    local: &Local,
) -> Result<HostSettings, ConfigError> {
    let host = target.destination.as_str();
    let default = || {
        let settings = read("", host, local);
        let user = target.user.clone().unwrap_or(settings.user);
        let port = target.port.unwrap_or(settings.port);
        HostSettings { host: target.to_string(), user, port, ..settings }
    };
    let mut command = Command::new("ssh");
    command.arg("-G");
    if let Some(file) = file {
        command.arg("-F").arg(file);
    }
    command.args(target.arguments());
    set_environment(&mut command, local);
    child::isolate(&mut command);
    let Ok(mut child) = ChildCommand::spawn(&mut command, Tail::default()) else { return Ok(default()) };
    child.end_input();
    let output = async {
        let mut text = Vec::new();
        while let Some(bytes) = child.next().await? {
            text.extend_from_slice(&bytes);
            if text.len() > MAX_OUTPUT {
                return Err(io::Error::other("it prints more than a configuration"));
            }
        }
        io::Result::Ok((text, child.finish().await.0))
    };
    // Dropping the child kills it, with what it started.
    let (text, end) = match tokio::time::timeout(TIME_LIMIT, output).await {
        Err(_) => return Err(ConfigError::Slow),
        Ok(Err(error)) => return Err(ConfigError::Refused(error.to_string())),
        Ok(Ok(output)) => output,
    };
    if end.exit != Some(0) {
        return Err(ConfigError::Refused(reason(&end)));
    }
    let text = String::from_utf8_lossy(&text);
    Ok(HostSettings { host: target.to_string(), ..read(&text, host, local) })
}

/// Returns why `ssh -G` failed.
fn reason(end: &StreamEnd) -> String {
    let why = end.stderr.as_str().trim();
    if !why.is_empty() {
        return why.chars().take(200).collect();
    }
    let code = || end.exit.map_or_else(|| "it was stopped".to_owned(), |code| format!("exit status {code}"));
    end.interruption().map_or_else(code, |why| why.to_string())
}

/// Variables that are the relay's own, or let ssh open a window to ask for a password.
const REMOVED: [&str; 4] = ["DISPLAY", "WAYLAND_DISPLAY", "SSH_ASKPASS", "SSH_ASKPASS_REQUIRE"];

/// Sets the environment of an ssh: the user's, as proxy commands and `Match exec` may need any of it.
/// Messages are in English, and nobody is asked for passwords.
pub(super) fn set_environment(command: &mut Command, local: &Local) {
    let own = std::env::vars_os().map(|(name, _)| name);
    for name in own.filter(|name| name.to_string_lossy().starts_with("NODEGLASS_")) {
        command.env_remove(name);
    }
    for name in REMOVED {
        command.env_remove(name);
    }
    command.env("HOME", &local.home).env("USER", &local.user).env("LC_ALL", "C");
    match &local.agent {
        Some(agent) => command.env("SSH_AUTH_SOCK", agent),
        None => command.env_remove("SSH_AUTH_SOCK"),
    };
}

/// Parses the output of `ssh -G` for `host`; missing settings get OpenSSH's defaults.
pub fn read(output: &str, host: &str, local: &Local) -> HostSettings {
    let mut fields: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for line in output.lines() {
        if let Some((key, value)) = line.split_once(' ') {
            fields.entry(key).or_default().push(value.trim());
        }
    }
    let first = |key: &str| fields.get(key).map(|values| values[0]);
    let set = |key: &str| first(key).filter(|value| !value.is_empty() && *value != "none");
    let hostname = first("hostname").unwrap_or(host).to_owned();
    let user = first("user").unwrap_or(&local.user).to_owned();
    let tokens = Tokens { local, hostname: &hostname, user: &user, host };
    let identity_files: Vec<PathBuf> = match fields.get("identityfile") {
        Some(files) => files.iter().map(|file| tokens.path(file)).collect(),
        None => DEFAULT_IDENTITIES.iter().map(|file| tokens.path(file)).collect(),
    };
    let user_files = first("userknownhostsfile").unwrap_or("~/.ssh/known_hosts ~/.ssh/known_hosts2");
    let global =
        first("globalknownhostsfile").unwrap_or("/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2");
    let known_hosts = split_words(user_files).into_iter().chain(split_words(global));
    HostSettings {
        host: host.to_owned(),
        port: first("port").and_then(|port| port.parse().ok()).unwrap_or(22),
        identities_only: first("identitiesonly") == Some("yes"),
        agent: agent(first("identityagent"), &tokens),
        known_hosts: known_hosts.filter(|file| file != "none").map(|file| tokens.path(&file)).collect(),
        host_key_alias: set("hostkeyalias").map(str::to_owned),
        accept_unknown: matches!(first("stricthostkeychecking"), Some("accept-new" | "no" | "off" | "false")),
        proxy: set("proxyjump").or(set("proxycommand")).map(str::to_owned),
        revoked_keys: set("revokedhostkeys").map(str::to_owned),
        needs_openssh: ["certificatefile", "pkcs11provider"].iter().any(|key| set(key).is_some())
            || identity_files.iter().any(|file| is_openssh_only(file)),
        resets: RESETS
            .iter()
            .filter(|(key, _)| set(key).is_some_and(|value| !is_default(value)))
            .map(|(_, reset)| *reset)
            .collect(),
        identity_files,
        hostname,
        user,
    }
}

fn is_default(value: &str) -> bool {
    matches!(value, "no" | "false" | "default")
}

/// Returns whether a key file is one of a security key, or has a certificate beside it.
fn is_openssh_only(file: &Path) -> bool {
    let name = file.as_os_str().to_string_lossy();
    Path::new(&format!("{name}-cert.pub")).exists() || name.ends_with("_sk") && file.exists()
}

/// OpenSSH's list without kinds that libssh2 cannot load from a file.
const DEFAULT_IDENTITIES: [&str; 3] = ["~/.ssh/id_ed25519", "~/.ssh/id_ecdsa", "~/.ssh/id_rsa"];

fn agent(setting: Option<&str>, tokens: &Tokens<'_>) -> Option<PathBuf> {
    match setting {
        None | Some("SSH_AUTH_SOCK" | "$SSH_AUTH_SOCK" | "${SSH_AUTH_SOCK}") => tokens.local.agent.clone(),
        Some("none") => None,
        Some(variable) if variable.starts_with('$') => {
            std::env::var_os(variable.trim_start_matches(['$', '{']).trim_end_matches('}')).map(PathBuf::from)
        }
        Some(path) => Some(tokens.path(path)),
    }
}

/// Splits at spaces outside of double quotes.
fn split_words(list: &str) -> Vec<String> {
    let mut out = vec![String::new()];
    let mut quoted = false;
    for c in list.chars() {
        match c {
            '"' => quoted = !quoted,
            ' ' if !quoted => out.push(String::new()),
            c => out.last_mut().expect("starts with one").push(c),
        }
    }
    out.retain(|word| !word.is_empty());
    out
}

/// Values for `~` and the `%` tokens of paths.
struct Tokens<'a> {
    local: &'a Local,
    hostname: &'a str,
    user: &'a str,
    host: &'a str,
}

impl Tokens<'_> {
    fn path(&self, raw: &str) -> PathBuf {
        let home = self.local.home.to_string_lossy();
        let raw = raw.trim_matches('"');
        let raw = match raw.strip_prefix("~/") {
            Some(rest) => format!("{home}/{rest}"),
            None => raw.to_owned(),
        };
        let mut out = String::with_capacity(raw.len());
        let mut chars = raw.chars();
        while let Some(c) = chars.next() {
            match (c == '%').then(|| chars.next()).flatten() {
                None => out.push(c),
                Some('d') => out.push_str(&home),
                Some('h') => out.push_str(self.hostname),
                Some('n') => out.push_str(self.host),
                Some('r') => out.push_str(self.user),
                Some('u') => out.push_str(&self.local.user),
                Some(other) => out.push(other),
            }
        }
        PathBuf::from(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn local() -> Local {
        Local { home: "/home/ann".into(), user: "ann".into(), agent: Some("/run/agent".into()) }
    }

    #[test]
    fn the_login_name_is_the_systems_name_of_the_user() {
        let uid = rustix::process::getuid().as_raw();
        let name = nodeglass_access::user::exact_name_of(uid);
        assert_eq!(login_name(), name.unwrap_or_else(|| uid.to_string()));
    }

    #[test]
    fn the_output_of_ssh_is_parsed() {
        let output = "host gpu-01\nuser ann2\nhostname gpu-01.cluster\nport 2222\nidentitiesonly yes\n\
            identityfile ~/.ssh/cluster_%r\nidentityfile \"/keys/with space\"\nuserknownhostsfile ~/kh \"/a b/kh\"\n\
            globalknownhostsfile none\nhostkeyalias gpu\nstricthostkeychecking accept-new\nproxyjump none\n\
            identityagent none\nrevokedhostkeys none\n";
        let settings = read(output, "gpu-01", &local());
        assert_eq!((settings.user.as_str(), settings.port), ("ann2", 2222));
        assert_eq!(settings.hostname, "gpu-01.cluster");
        assert_eq!(
            settings.identity_files,
            [PathBuf::from("/home/ann/.ssh/cluster_ann2"), "/keys/with space".into()]
        );
        assert_eq!(settings.known_hosts, [PathBuf::from("/home/ann/kh"), "/a b/kh".into()]);
        assert_eq!(settings.host_key_alias.as_deref(), Some("gpu"));
        assert!(settings.identities_only && settings.accept_unknown);
        assert_eq!((settings.agent, settings.proxy, settings.revoked_keys), (None, None, None));
    }

    #[test]
    fn without_ssh_its_defaults_hold() {
        let settings = read("", "gpu-01", &local());
        assert_eq!(
            (settings.hostname.as_str(), settings.user.as_str(), settings.port),
            ("gpu-01", "ann", 22)
        );
        assert_eq!(settings.identity_files[0], PathBuf::from("/home/ann/.ssh/id_ed25519"));
        assert_eq!(settings.known_hosts[0], PathBuf::from("/home/ann/.ssh/known_hosts"));
        assert_eq!(settings.agent, Some("/run/agent".into()));
        assert!(!settings.accept_unknown, "an unknown host is not accepted unless configured by the user");
    }

    #[test]
    fn a_jump_host_or_a_proxy_command_is_seen() {
        assert_eq!(read("proxyjump gate\n", "n", &local()).proxy.as_deref(), Some("gate"));
        assert_eq!(read("proxycommand nc %h %p\n", "n", &local()).proxy.as_deref(), Some("nc %h %p"));
    }

    #[tokio::test]
    async fn ssh_is_called_with_an_argument_list_and_an_unusual_file_name() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("a config; touch x");
        std::fs::write(&file, "Host n1\n HostName 10.0.0.9\n Port 2201\n").unwrap();
        let Ok(configured) = settings(&SshTarget::host("n1"), Some(&file), &local()).await else {
            panic!("ssh -G failed")
        };
        if configured.port != 22 {
            assert_eq!((configured.hostname.as_str(), configured.port), ("10.0.0.9", 2201));
        }
        let target = SshTarget { destination: "n1".into(), user: Some("bob".into()), port: Some(2203) };
        let Ok(given) = settings(&target, Some(&file), &local()).await else { panic!("ssh -G failed") };
        assert_eq!((given.user.as_str(), given.port), ("bob", 2203), "what is given wins");
        assert_eq!(given.host, "ssh://bob@n1:2203");
    }
}
