//! Loads the user's keys: usable key files, and keys of the agent.

use super::ssh_config::HostSettings;
use ssh_key::{PrivateKey, PublicKey};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Larger files are not private keys.
const MAX_KEY_FILE: u64 = 64 * 1024;
/// OpenSSH's own limit of an agent's response.
const MAX_AGENT_ANSWER: u32 = 256 * 1024;
const AGENT_LIMIT: Duration = Duration::from_secs(3);

/// An existing `IdentityFile`.
#[derive(Debug)]
pub(super) struct KeyFile {
    pub(super) path: PathBuf,
    /// The public half as a wire blob, if available.
    pub(super) public: Option<Vec<u8>>,
    pub(super) state: KeyState,
}

/// Whether a key file can be used.
pub(super) enum KeyState {
    /// Usable; its text.
    Ready(String),
    /// It has a passphrase, so that only the agent can use it.
    Encrypted,
    /// Only `.pub` exists: the private half is in the agent or on a token.
    PublicOnly,
    /// Others can read it; like OpenSSH, we do not use such a key.
    Exposed,
}

impl std::fmt::Debug for KeyState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Ready(_) => "Ready(…)",
            Self::Encrypted => "Encrypted",
            Self::PublicOnly => "PublicOnly",
            Self::Exposed => "Exposed",
        })
    }
}

/// Reads the existing key files, in order.
pub(super) async fn key_files(settings: &HostSettings) -> Vec<KeyFile> {
    let mut found = Vec::new();
    for path in &settings.identity_files {
        found.extend(key_file(path).await);
    }
    found
}

async fn key_file(path: &Path) -> Option<KeyFile> {
    let public = public_half(path).await;
    let path = path.to_owned();
    let Some(meta) = tokio::fs::metadata(&path).await.ok().filter(|meta| meta.is_file()) else {
        return public.map(|key| KeyFile { path, public: Some(key), state: KeyState::PublicOnly });
    };
    if meta.mode() & 0o077 != 0 && meta.uid() == rustix::process::getuid().as_raw() {
        return Some(KeyFile { path, public, state: KeyState::Exposed });
    }
    if meta.len() > MAX_KEY_FILE {
        return None;
    }
    let text = tokio::fs::read_to_string(&path).await.ok()?;
    let parsed = PrivateKey::from_openssh(&text).ok();
    let encrypted = match &parsed {
        Some(key) => key.is_encrypted(),
        // `Proc-Type: 4,ENCRYPTED` and `BEGIN ENCRYPTED PRIVATE KEY`.
        None => text.contains("ENCRYPTED"),
    };
    let inside = parsed.and_then(|key| key.public_key().to_bytes().ok());
    let state = if encrypted { KeyState::Encrypted } else { KeyState::Ready(text) };
    Some(KeyFile { path, public: inside.or(public), state })
}

async fn public_half(path: &Path) -> Option<Vec<u8>> {
    let mut name = path.as_os_str().to_owned();
    name.push(".pub");
    let text = tokio::fs::read_to_string(PathBuf::from(name)).await.ok()?;
    PublicKey::from_openssh(&text).ok()?.to_bytes().ok()
}

/// Requests the keys of an agent as wire blobs. Done here first, because libssh2 would wait forever for
/// an agent that never responds (a forwarded one whose laptop sleeps).
///
/// # Errors
/// If there is no agent, or it does not respond within 3 s.
pub(super) async fn agent_keys(socket: &Path) -> io::Result<Vec<Vec<u8>>> {
    timeout(AGENT_LIMIT, ask_agent(socket)).await.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))?
}

async fn ask_agent(socket: &Path) -> io::Result<Vec<Vec<u8>>> {
    const REQUEST_IDENTITIES: u8 = 11;
    const IDENTITIES_ANSWER: u8 = 12;
    let mut stream = UnixStream::connect(socket).await?;
    stream.write_all(&[0, 0, 0, 1, REQUEST_IDENTITIES]).await?;
    let length = stream.read_u32().await?;
    if !(5..=MAX_AGENT_ANSWER).contains(&length) || stream.read_u8().await? != IDENTITIES_ANSWER {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = vec![0; length as usize - 1];
    stream.read_exact(&mut body).await?;
    Ok(identities(&body))
}

/// The key blobs of an identities response: a count, then blob and comment each.
fn identities(body: &[u8]) -> Vec<Vec<u8>> {
    fn string(bytes: &[u8]) -> Option<(&[u8], &[u8])> {
        let (length, rest) = bytes.split_first_chunk::<4>()?;
        rest.split_at_checked(u32::from_be_bytes(*length) as usize)
    }
    let mut keys = Vec::new();
    let mut rest = body.get(4..).unwrap_or_default();
    while let Some((key, after)) = string(rest) {
        let Some((_comment, after)) = string(after) else { break };
        keys.push(key.to_vec());
        rest = after;
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_truncated_or_malformed_response_yields_only_its_complete_keys() {
        let good = [0, 0, 0, 2, 0, 0, 0, 1, 7, 0, 0, 0, 0, 0, 0, 0, 1, 8, 0, 0, 0, 1, b'c'];
        assert_eq!(identities(&good), [vec![7], vec![8]]);
        for cut in 0..good.len() {
            assert!(identities(&good[..cut]).len() <= 1, "{cut}");
        }
        assert!(identities(&[0, 0, 0, 9, 255, 255, 255, 255, 1]).is_empty());
    }

    #[tokio::test]
    async fn an_unresponsive_agent_times_out() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("agent");
        let _silent = tokio::net::UnixListener::bind(&path).unwrap();
        tokio::time::pause();
        assert_eq!(agent_keys(&path).await.unwrap_err().kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_key_that_others_can_read_is_not_used() {
        use std::os::unix::fs::PermissionsExt;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("id");
        std::fs::write(&path, "-----BEGIN OPENSSH PRIVATE KEY-----").unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
        assert!(matches!(key_file(&path).await.unwrap().state, KeyState::Exposed));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
        assert!(matches!(key_file(&path).await.unwrap().state, KeyState::Ready(_)));
    }
}
