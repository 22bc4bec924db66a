//! Maps a failed login of the system's ssh to a launch error, with the words of the built-in client.

use super::log::{Progress, SshLog};
use crate::LaunchError;
use crate::identity::KeyFile;
use crate::known_hosts::{HostId, LineLocation, Verdict};
use crate::login_error;
use crate::ssh_config::HostSettings;
use std::io;

/// Methods that the user's ssh can use without a person at the keyboard.
const METHODS: [&str; 4] = ["publickey", "gssapi-with-mic", "gssapi-keyex", "hostbased"];
/// Messages of ssh about a closed connection; the message of a server or a proxy says more.
const ONLY_CLOSED: [&str; 5] = [
    "kex_exchange_identification: ",
    "ssh_exchange_identification: ",
    "Connection closed by ",
    "Connection reset by ",
    "stdio forwarding failed",
];

/// Returns why ssh ended before the login succeeded.
pub(super) fn login(log: &SshLog, settings: &HostSettings, files: &[KeyFile]) -> LaunchError {
    let text = log.text();
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    if let Some(proxy) = settings.proxy.as_deref().filter(|_| log.progress == Progress::Connecting) {
        return through_proxy(proxy, &lines, settings);
    }
    let line_with = |part: &str| lines.iter().rev().find(|line| line.contains(part)).copied();
    if line_with("Host key verification failed").is_some() {
        return host_key(log, &lines, settings);
    }
    if line_with("Too many authentication failures").is_some() {
        return login_error::too_many_keys(&settings.host, log.offered_keys);
    }
    if let Some(why) = line_with("no matching ") {
        return capability(
            format!("`ssh` and this host know no common algorithm ({})", after_host(why)),
            "the administrators can allow a current algorithm, or you an older one for this host in ~/.ssh/config",
        );
    }
    if let Some(methods) = lines.iter().rev().find_map(|line| refused_methods(line)) {
        return permission_denied(methods, &lines, log, settings, files);
    }
    if log.progress == Progress::Connecting && lines.iter().any(|line| has_closed(line)) {
        let said: String = lines.iter().filter(|line| !is_only_closed(line)).copied().collect();
        if let Some(limited) = login_error::limited(&settings.host, &said) {
            return limited;
        }
    }
    match log.progress {
        // The server decides about the account after it has verified the signature.
        Progress::Accepted => login_error::denied(&settings.host, &account_message(&lines)),
        Progress::Connecting | Progress::Greeted | Progress::Authenticating | Progress::LoggedIn => {
            unreachable(unreached(&lines, log, settings))
        }
    }
}

/// The error for an `ssh` that cannot be started.
pub(super) fn not_started(error: &io::Error) -> LaunchError {
    match error.kind() {
        io::ErrorKind::NotFound => capability(
            "there is no `ssh` program on the relay's machine".to_owned(),
            "install the OpenSSH client there, or use --launcher ssh2, which needs none",
        ),
        _ => unreachable(format!("`ssh` could not be started: {error}")),
    }
}

/// The error for a login that takes too long.
pub(super) fn slow(log: &SshLog) -> LaunchError {
    if log.text().contains("Confirm user presence") {
        return LaunchError::Auth {
            why: "the security key was not touched within 20 s".into(),
            advice: "retry, and touch the key when it blinks; once per node".into(),
        };
    }
    crate::deploy::slow()
}

pub(super) fn unreachable(why: String) -> LaunchError {
    LaunchError::Unreachable { why: why.into() }
}

fn capability(why: String, advice: &str) -> LaunchError {
    LaunchError::Capability { why: why.into(), advice: advice.into() }
}

/// The jump host or the proxy command failed: its stderr comes first.
fn through_proxy(proxy: &str, lines: &[&str], settings: &HostSettings) -> LaunchError {
    let host = &settings.host;
    let message = lines.iter().rev().find(|line| !is_only_closed(line)).or_else(|| lines.last());
    let message = message.map_or("it ended", |line| line);
    let by_hand = format!("make sure that `ssh {host}` logs in without a prompt, then retry");
    if message.contains("Host key verification failed") {
        return LaunchError::HostKey {
            why: format!("{host} is reached through {proxy}, whose host key was not accepted").into(),
            advice: format!("check it and record it by logging in once: ssh {host}").into(),
        };
    }
    if refused_methods(message).is_some() {
        let why = format!("{host} is reached through {proxy}, which refused the login: {message}");
        return LaunchError::Auth { why: why.into(), advice: by_hand.into() };
    }
    unreachable(format!("{host} could not be reached through {proxy}: {message}"))
}

fn is_only_closed(line: &str) -> bool {
    ONLY_CLOSED.iter().any(|prefix| line.starts_with(prefix))
}

/// Returns whether a line of ssh says that the host closed the connection.
fn has_closed(line: &str) -> bool {
    is_only_closed(line)
        && ["Connection closed by ", "Connection reset by "].iter().any(|part| line.contains(part))
}

/// Returns why the host key was rejected.
fn host_key(log: &SshLog, lines: &[&str], settings: &HostSettings) -> LaunchError {
    let id = match &settings.host_key_alias {
        Some(alias) => HostId::alias(alias),
        None => HostId::new(&settings.hostname, settings.port),
    };
    let after = |part: &str| lines.iter().find_map(|line| Some(line.split_once(part)?.1.to_owned()));
    let is_revoked = lines.iter().any(|line| line.contains(" revoked") || line.contains("REVOKED"));
    if is_revoked {
        return login_error::revoked(id.display(), None);
    }
    let verdict = if let Some(place) = lines.iter().find_map(|line| offending(line)) {
        Verdict::Changed(place)
    } else if let Some(why) = after("Certificate invalid: ") {
        Verdict::BadCertificate(match why.as_str() {
            "Certificate has expired" | "expired" => "it has expired",
            why if why.contains("not yet valid") => "it is not valid yet",
            why if why.contains("principal") => "it is for another host",
            _ => "ssh does not accept it",
        })
    } else {
        Verdict::Unknown
    };
    let fingerprint = log.fingerprint.as_deref().unwrap_or("fingerprint not shown");
    // ssh itself accepts new hosts if configured so.
    let settings = HostSettings { accept_unknown: false, ..settings.clone() };
    login_error::host_key(&verdict, id.display(), fingerprint, &settings)
}

/// `Offending ED25519 key in FILE:LINE`.
fn offending(line: &str) -> Option<LineLocation> {
    let (file, line) = line.strip_prefix("Offending ")?.split_once(" in ")?.1.rsplit_once(':')?;
    Some(LineLocation { file: file.into(), line: line.parse().ok()? })
}

/// The methods in `user@host: Permission denied (publickey,password).`
fn refused_methods(line: &str) -> Option<&str> {
    Some(line.split_once("Permission denied (")?.1.split_once(')')?.0)
}

fn permission_denied(
    methods: &str,
    lines: &[&str],
    log: &SshLog,
    settings: &HostSettings,
    files: &[KeyFile],
) -> LaunchError {
    let host = &settings.host;
    if !methods.split(',').any(|method| METHODS.contains(&method)) {
        return capability(
            format!("{host} takes neither keys nor tickets, only {methods}"),
            &format!(
                "open a connection for the relay to use: `ssh -o ControlMaster=yes -o ControlPersist=12h {host}`, with a \
                 ControlPath in ~/.ssh/config; or ask the administrators whether keys can be allowed there"
            ),
        );
    }
    if let Some((_, why)) = lines.iter().find_map(|line| line.split_once("signing failed for ")) {
        return LaunchError::Auth {
            why: format!("the SSH agent did not sign: {why}").into(),
            advice: "confirm or touch the key when asked, or check the agent with `ssh-add -l`; then retry"
                .into(),
        };
    }
    // A key that the host accepted and that ssh could not sign with has not been tried.
    let tries = if log.progress == Progress::Accepted { 0 } else { log.offered_keys };
    login_error::refused(settings, methods, files, tries)
}

/// Returns the message of the host's account rules, such as `Access denied by pam_slurm_adopt: …`.
fn account_message(lines: &[&str]) -> String {
    let is_said = |line: &&&str| {
        !line.starts_with("Connection closed by ") && !line.starts_with("Connection reset by ")
    };
    lines.iter().filter(is_said).copied().collect::<Vec<_>>().join(" ")
}

/// Returns why the host could not be reached, or the connection ended.
fn unreached(lines: &[&str], log: &SshLog, settings: &HostSettings) -> String {
    let last = lines.last().copied().unwrap_or("ssh ended without a message");
    let HostSettings { hostname, port, .. } = settings;
    if let Some(why) = last.strip_prefix("ssh: connect to host ") {
        let why = why.split_once(": ").map_or(why, |(_, why)| why);
        return format!("could not connect to {hostname} port {port}: {why}");
    }
    if let Some((_, why)) =
        last.strip_prefix("ssh: Could not resolve hostname ").and_then(|s| s.split_once(": "))
    {
        return format!("the name {hostname} was not found: {why}");
    }
    let is_silent = |line: &&str| line.contains("during banner exchange") || line.ends_with(" timed out");
    if log.progress == Progress::Connecting && lines.iter().any(is_silent) {
        return "the host accepted the connection but did not speak SSH within 10 s".to_owned();
    }
    let message = lines.iter().rev().find(|line| !is_only_closed(line)).copied().unwrap_or(last);
    match log.progress {
        Progress::Connecting | Progress::Greeted => format!("the SSH handshake failed: {message}"),
        _ => format!("the connection broke while logging in: {message}"),
    }
}

/// `Unable to negotiate with 10.0.0.1 port 22: no matching cipher found. Their offer: …` without the host.
fn after_host(line: &str) -> &str {
    line.find("no matching ").map_or(line, |at| &line[at..])
}
