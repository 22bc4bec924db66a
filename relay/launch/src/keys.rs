//! Keys that a login to a host could use, without their secrets.

use super::identity::{KeyState, agent_keys, key_files};
use super::ssh_config::HostSettings;
use std::io;
use std::path::PathBuf;

/// Key files and agent.
#[derive(Debug)]
pub struct Keys {
    /// Existing key files, and in words whether each can be used.
    pub files: Vec<(PathBuf, &'static str)>,
    /// Number of keys in the agent, if there is one.
    pub agent: Option<io::Result<usize>>,
}

const READY: &str = "usable";

impl Keys {
    /// Returns whether there is a key to try.
    pub fn is_any_usable(&self) -> bool {
        let in_agent = matches!(self.agent, Some(Ok(1..)));
        in_agent || self.files.iter().any(|(_, state)| *state == READY)
    }
}

/// The keys for a host.
pub async fn list(settings: &HostSettings) -> Keys {
    let files = key_files(settings).await.into_iter().map(|file| {
        let state = match file.state {
            KeyState::Ready(_) => READY,
            KeyState::Encrypted => "has a passphrase",
            KeyState::PublicOnly => "public half only",
            KeyState::Exposed => "readable by others, not used: chmod 600",
        };
        (file.path, state)
    });
    let files = files.collect();
    let agent = match &settings.agent {
        Some(socket) => Some(agent_keys(socket).await.map(|keys| keys.len())),
        None => None,
    };
    Keys { files, agent }
}
