//! The messages for logins that a host refuses, shared by all clients.

use super::LaunchError;
use super::identity::{KeyFile, KeyState};
use super::known_hosts::{LineLocation, Verdict};
use super::ssh_config::HostSettings;
use rustix::fs::{Access, access};
use std::path::Path;

/// The host accepted a key, and its account rules then denied the user; `message` is what they said.
pub(super) fn denied(host: &str, message: &str) -> LaunchError {
    let message = if message.is_empty() { String::new() } else { format!(": {message}") };
    let why = format!(
        "{host} accepted your key and then denied the login, as nodes do while no job of yours runs there (PAM){message}"
    );
    LaunchError::Denied { why: why.into() }
}

/// Messages of sshd instead of an SSH greeting while it limits logins: of all users (`MaxStartups`), or of this machine
/// (`PerSourcePenalties`, `PerSourceMaxStartups`).
const LIMITS: [&str; 2] = ["Exceeded MaxStartups", "Not allowed at this time"];

/// The error for a host that closed the connection before it spoke SSH; `message` is what it said. Releases before 8.5
/// say nothing when they limit logins.
pub(super) fn limited(host: &str, message: &str) -> Option<LaunchError> {
    let message = message.trim();
    let limit = match LIMITS.iter().find(|limit| message.contains(*limit)) {
        Some(limit) => format!("it said: {limit}"),
        None if message.is_empty() => "it closed the connection before it spoke SSH".to_owned(),
        None => return None,
    };
    Some(LaunchError::Throttled { why: format!("{host} is limiting logins at the moment; {limit}").into() })
}

/// The host disconnected after `tries` keys.
pub(super) fn too_many_keys(host: &str, tries: usize) -> LaunchError {
    let keys = if tries == 1 { "one key".to_owned() } else { format!("{tries} keys") };
    LaunchError::Auth {
        why: format!("{host} ended the login after {keys} (MaxAuthTries)").into(),
        advice: format!(
            "specify the right key for {host} in ~/.ssh/config (`IdentityFile` and `IdentitiesOnly yes`), so it is \
             offered first"
        )
        .into(),
    }
}

/// The host accepted none of `tries` keys, or there was none to try.
pub(super) fn refused(
    settings: &HostSettings,
    methods: &str,
    files: &[KeyFile],
    tries: usize,
) -> LaunchError {
    let host = &settings.host;
    let by_hand = format!("make sure that `ssh {host}` logs in without a prompt, then retry");
    let (why, advice) = if tries > 0 {
        let keys = if tries == 1 { "your key".to_owned() } else { format!("any of your {tries} keys") };
        (format!("{host} did not accept {keys} for user {} (it accepts {methods})", settings.user), by_hand)
    } else if let Some(unusable) = files.iter().find_map(unusable) {
        unusable
    } else {
        (format!("there is no key to log in to {host} with"), by_hand)
    };
    LaunchError::Auth { why: why.into(), advice: advice.into() }
}

/// Returns why an existing key file could not be tried, and a remedy.
fn unusable(file: &KeyFile) -> Option<(String, String)> {
    let path = file.path.display();
    match file.state {
        KeyState::Encrypted => Some((
            format!("the key {path} has a passphrase and no SSH agent holds it"),
            format!("load it with `ssh-add {path}` in the shell that starts the relay, then retry"),
        )),
        KeyState::Exposed => Some((
            format!("the key {path} can be read by others, so it is not used"),
            format!("chmod 600 {path}, then retry"),
        )),
        KeyState::Ready(_) | KeyState::PublicOnly => None,
    }
}

/// Returns the error for a rejected host key. `name` is the host in known_hosts, `fingerprint` identifies its key.
pub(super) fn host_key(
    verdict: &Verdict,
    name: &str,
    fingerprint: &str,
    settings: &HostSettings,
) -> LaunchError {
    let host = &settings.host;
    let confirm = "this can be an attack or a reinstalled node; if the administrators confirm it:";
    let (why, advice) = match verdict {
        Verdict::Known | Verdict::Unknown if settings.accept_unknown => (
            format!("the host key of {name} changed since this relay first saw it (it is now {fingerprint})"),
            format!("{confirm} ssh {host}, then restart the relay"),
        ),
        Verdict::Known | Verdict::Unknown => (
            format!("the host key of {name} is not known ({fingerprint})"),
            format!("check it and record it by logging in once: ssh {host}"),
        ),
        Verdict::Changed(LineLocation { file, line }) => (
            format!("the host key of {name} is not the one in {} line {line}", file.display()),
            format!("{} (it is now {fingerprint})", remedy(file, confirm, name, host)),
        ),
        Verdict::Revoked(place) => return revoked(name, Some(place)),
        Verdict::BadCertificate(why) => {
            (format!("the host certificate of {name} is invalid: {why}"), "ask the administrators".to_owned())
        }
    };
    LaunchError::HostKey { why: why.into(), advice: advice.into() }
}

/// The error for a revoked host key; `place` is the line that revokes it, if known.
pub(super) fn revoked(name: &str, place: Option<&LineLocation>) -> LaunchError {
    let line = place.map(|LineLocation { file, line }| format!(" in {} line {line}", file.display()));
    LaunchError::HostKey {
        why: format!("the host key of {name} is revoked{}", line.unwrap_or_default()).into(),
        advice: "do not log in there; ask the administrators".into(),
    }
}

/// Returns how to fix a changed key in the file that contains the old one, if the user may write it.
fn remedy(file: &Path, confirm: &str, name: &str, host: &str) -> String {
    let file = file.display();
    match access(file.to_string(), Access::WRITE_OK) {
        Ok(()) => format!("{confirm} ssh-keygen -f '{file}' -R '{name}', then ssh {host}"),
        Err(_) => format!(
            "this can be an attack or a reinstalled node; only the administrators can fix {file}: ask them"
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f31_a_changed_key_names_the_file_and_who_may_write_it() {
        let dir = tempfile::tempdir().unwrap();
        let own = dir.path().join("known_hosts");
        std::fs::write(&own, "").unwrap();
        let advice = remedy(&own, "if it is right:", "[n1]:22", "n1");
        assert_eq!(
            advice,
            format!("if it is right: ssh-keygen -f '{}' -R '[n1]:22', then ssh n1", own.display())
        );
        let site = remedy(&dir.path().join("ssh_known_hosts"), "if it is right:", "n1", "n1");
        assert!(site.contains("only the administrators can fix") && !site.contains("ssh-keygen"), "{site}");
    }
}
