//! Authenticates with the user's keys: the agent's first, then key files, within a limit of attempts.

use super::budget::{self, Beyond};
use super::failure::{self, OPENSSH, capability};
use super::link::Link;
use crate::LaunchError;
use crate::identity::{KeyFile, KeyState, agent_keys, key_files};
use crate::login_error;
use crate::ssh_config::HostSettings;
use ssh2::{ErrorCode, Session};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// sshd's default `MaxAuthTries` is 6; exceeding it would close the connection and count as a failure.
const MAX_TRIES: usize = 6;
const MAX_AGENT_TRIES: usize = 5;
/// Signing may need a touch or a confirmation, but must not block forever.
const AGENT_LIMIT: Duration = Duration::from_secs(12);
const FILES_LIMIT: Duration = Duration::from_secs(5);

/// Limits threads that wait for an agent. libssh2 calls it without a time limit; a thread that hangs
/// keeps its permit, so there are never more.
pub(super) type AgentPermits = Arc<Semaphore>;

/// Number of permits.
pub(super) const AGENT_THREADS: usize = 8;

/// Methods and keys that were tried, for the error message.
#[derive(Default)]
struct Tried {
    agent_keys: usize,
    files: usize,
    agent_silent: bool,
    hung_up: Option<HungUp>,
}

/// The host closed the connection during authentication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HungUp {
    /// Instead of answering for a key, as sshd does after `MaxAuthTries`.
    OverKeys,
    /// After it had accepted a key: its account rules (PAM) deny this user now.
    OverUser,
}

/// Authenticates; tries each key once.
pub(super) async fn log_in(
    link: &Link,
    settings: &HostSettings,
    permits: &AgentPermits,
) -> Result<(), LaunchError> {
    let user = settings.user.as_str();
    let methods = link.drive(|s| s.auth_methods(user).map(str::to_owned)).await;
    if link.session().authenticated() {
        return Ok(());
    }
    let methods = methods.map_err(|error| failure::broken("asking how to log in", &error))?;
    if !methods.split(',').any(|method| method == "publickey") {
        return Err(capability(format!("{} does not take keys, only {methods}", settings.host), OPENSSH));
    }
    let Ok(files) = timeout(FILES_LIMIT, key_files(settings)).await else {
        return Err(failure::unreachable(
            "the key files could not be read within 5 s; is the home directory reachable?",
        ));
    };
    let mut tried = Tried::default();
    if try_agent(link, settings, &files, permits, &mut tried).await?
        || try_files(link, user, &files, &mut tried).await?
    {
        return Ok(());
    }
    Err(refusal(settings, &methods, &files, &tried))
}

/// Tries the agent's keys, the configured ones first.
async fn try_agent(
    link: &Link,
    settings: &HostSettings,
    files: &[KeyFile],
    permits: &AgentPermits,
    tried: &mut Tried,
) -> Result<bool, LaunchError> {
    let Some(agent) = &settings.agent else { return Ok(false) };
    let mut keys = match agent_keys(agent).await {
        Ok(keys) => keys,
        Err(error) => {
            tried.agent_silent = error.kind() == std::io::ErrorKind::TimedOut;
            return Ok(false);
        }
    };
    let rank = |key: &Vec<u8>| files.iter().position(|file| file.public.as_ref() == Some(key));
    if settings.identities_only {
        keys.retain(|key| rank(key).is_some());
    }
    keys.sort_by_key(|key| rank(key).unwrap_or(usize::MAX));
    keys.truncate(MAX_AGENT_TRIES);
    if keys.is_empty() {
        return Ok(false);
    }
    match on_a_thread(link, settings, agent, keys, permits).await {
        Some((tries, outcome)) => {
            tried.agent_keys = tries;
            outcome.or_else(|error| after(error, tried).map(|()| false))
        }
        // The thread still owns the session: nothing more can be tried on this link.
        None => Err(LaunchError::Auth {
            why: "the SSH agent did not sign within 12 s".into(),
            advice: "confirm or touch the key when asked, or check the agent with `ssh-add -l`; then retry"
                .into(),
        }),
    }
}

/// Runs libssh2's agent calls on a blocking thread; returns how many keys were tried, and whether one was
/// accepted. `None` on timeout.
async fn on_a_thread(
    link: &Link,
    settings: &HostSettings,
    agent: &Path,
    keys: Vec<Vec<u8>>,
    permits: &AgentPermits,
) -> Option<(usize, Result<bool, ssh2::Error>)> {
    let (session, user, agent) = (link.session().clone(), settings.user.clone(), agent.to_owned());
    let (permits, allowance) = (Arc::clone(permits), link.allowance());
    let work = async move {
        let permit = permits.acquire_owned().await.ok()?;
        let work = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            session.set_blocking(true);
            session.set_timeout(AGENT_LIMIT.as_millis() as u32);
            // The agent code waits for the socket itself, so that "again" would only make it read again.
            let mut tries = 0;
            let sign_in = || sign_in(&session, &user, &agent, &keys, &mut tries);
            let (outcome, _) = budget::within(allowance, Beyond::Gone, sign_in);
            session.set_blocking(false);
            (tries, outcome)
        });
        work.await.ok()
    };
    timeout(AGENT_LIMIT, work).await.ok().flatten()
}

fn sign_in(
    session: &Session,
    user: &str,
    agent: &Path,
    keys: &[Vec<u8>],
    tries: &mut usize,
) -> Result<bool, ssh2::Error> {
    let mut connection = session.agent()?;
    connection.set_identity_path(agent)?;
    connection.connect()?;
    connection.list_identities()?;
    let identities = connection.identities()?;
    for key in keys {
        let Some(identity) = identities.iter().find(|identity| identity.blob() == key.as_slice()) else {
            continue;
        };
        *tries += 1;
        match connection.userauth(user, identity) {
            Ok(()) => return Ok(true),
            Err(error) if is_refusal(&error) => {}
            Err(error) => return Err(error),
        }
    }
    Ok(false)
}

/// Tries the key files that the agent has not tried already.
async fn try_files(
    link: &Link,
    user: &str,
    files: &[KeyFile],
    tried: &mut Tried,
) -> Result<bool, LaunchError> {
    for file in files {
        let KeyState::Ready(text) = &file.state else { continue };
        if tried.hung_up.is_some() || tried.agent_keys + tried.files >= MAX_TRIES {
            break;
        }
        tried.files += 1;
        match link.drive(|s| s.userauth_pubkey_memory(user, None, text, None)).await {
            Ok(()) => return Ok(true),
            Err(error) => after(error, tried)?,
        }
    }
    Ok(false)
}

/// After a failed attempt: continues if the host only refused the key, stops if it disconnected.
fn after(error: ssh2::Error, tried: &mut Tried) -> Result<(), LaunchError> {
    tried.hung_up = hung_up(&error);
    if tried.hung_up.is_some() || is_refusal(&error) {
        return Ok(());
    }
    Err(failure::broken("logging in", &error))
}

/// Returns the reason if the host disconnected. libssh2 has one code for that and for a refused
/// signature; only its message shows which response it waited for: to the offer of a key, or to the
/// signature, which is requested only after the key was accepted.
fn hung_up(error: &ssh2::Error) -> Option<HungUp> {
    use libssh2_sys as raw;
    match (error.code(), error.message()) {
        (ErrorCode::Session(raw::LIBSSH2_ERROR_SOCKET_DISCONNECT | raw::LIBSSH2_ERROR_SOCKET_RECV), _)
        | (_, "Waiting for USERAUTH response") => Some(HungUp::OverKeys),
        (_, "Waiting for publickey USERAUTH response") => Some(HungUp::OverUser),
        _ => None,
    }
}

/// Returns whether only this key is unusable, so that another may work.
fn is_refusal(error: &ssh2::Error) -> bool {
    use libssh2_sys as raw;
    let refused = matches!(
        error.code(),
        ErrorCode::Session(
            raw::LIBSSH2_ERROR_AUTHENTICATION_FAILED
                | raw::LIBSSH2_ERROR_PUBLICKEY_UNVERIFIED
                | raw::LIBSSH2_ERROR_FILE
                | raw::LIBSSH2_ERROR_KEYFILE_AUTH_FAILED
                | raw::LIBSSH2_ERROR_AGENT_PROTOCOL
                | raw::LIBSSH2_ERROR_METHOD_NONE
                | raw::LIBSSH2_ERROR_ALGO_UNSUPPORTED
                | raw::LIBSSH2_ERROR_METHOD_NOT_SUPPORTED
        )
    );
    refused && hung_up(error).is_none()
}

/// The error for a user none of whose keys was accepted.
fn refusal(settings: &HostSettings, methods: &str, files: &[KeyFile], tried: &Tried) -> LaunchError {
    let host = &settings.host;
    let tries = tried.agent_keys + tried.files;
    match tried.hung_up {
        Some(HungUp::OverUser) => login_error::denied(host, ""),
        Some(HungUp::OverKeys) => login_error::too_many_keys(host, tries),
        None if tried.agent_silent => LaunchError::Auth {
            why: "the SSH agent does not respond".into(),
            advice: "check it with `ssh-add -l`, then retry".into(),
        },
        None if others_may_help(methods) || settings.needs_openssh => capability(
            format!(
                "{host} accepted none of {tries} keys, and the built-in SSH has no other credentials (it takes {methods})"
            ),
            OPENSSH,
        ),
        None => login_error::refused(settings, methods, files, tries),
    }
}

/// Returns whether the host accepts a method that the user's own ssh probably has and we do not: host-based
/// authentication, which is never enabled by accident, or Kerberos, which often is, so that a ticket is
/// required.
fn others_may_help(methods: &str) -> bool {
    let kerberos = || {
        let uid = rustix::process::getuid().as_raw();
        std::env::var_os("KRB5CCNAME").is_some() || Path::new(&format!("/tmp/krb5cc_{uid}")).exists()
    };
    methods.split(',').any(|method| method == "hostbased" || method.starts_with("gssapi") && kerberos())
}
