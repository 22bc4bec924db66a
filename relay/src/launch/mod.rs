//! A launcher starts a probe on a node and hands over its pipes; what flows through them is not its business.

pub mod known_hosts;
pub mod local;
pub mod scripted;
pub mod ssh2;
pub mod ssh_config;
pub mod upload;

use async_trait::async_trait;
use bytes::Bytes;
use nodeglass_protocol::{NodeName, Text};
use tokio::sync::{mpsc, oneshot};

/// How many chunks may wait on their way out of or into a probe.
pub const PIPE_DEPTH: usize = 64;

/// Starts probes.
#[async_trait]
pub trait Launcher: Send + Sync + 'static {
    /// Word for logs and the page: `ssh2`, `local`, `scripted`.
    fn name(&self) -> &'static str;

    /// Starts a probe on `node`, or says why not. Owns its own time limits (20 s in all).
    ///
    /// # Errors
    /// [`LaunchError`], which also says whether another try may help.
    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError>;

    /// A number that changes when what it logs in with or trusts does: keys, the agent, known hosts, configuration.
    /// `None`: it cannot tell.
    async fn login_fingerprint(&self) -> Option<u64> {
        None
    }
}

/// The pipes of a running probe. Dropping it ends the probe and frees everything.
#[derive(Debug)]
pub struct NodeStream {
    /// The probe's stdout in chunks of any size; `None` once it is closed.
    pub stdout: mpsc::Receiver<Bytes>,
    /// The probe's stdin.
    pub stdin: mpsc::Sender<Bytes>,
    /// How it ended; comes after the last chunk of `stdout`.
    pub end: oneshot::Receiver<StreamEnd>,
}

/// How a probe ended.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// Exit status, if it became known.
    pub exit: Option<i32>,
    /// What it last said on stderr, cleaned.
    pub stderr: Text,
    /// What happened to the connection, if that is what ended it.
    pub broken: Option<Text>,
}

/// Why no probe could be started. `why` and `advice` are sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The user must act (no key accepted, agent gone). Never tried again by itself: a login node can be locked out.
    #[error("{why}")]
    Auth {
        /// What went wrong.
        why: Text,
        /// What to do.
        advice: Text,
    },
    /// The host key is unknown, changed or revoked. Never tried again by itself.
    #[error("{why}")]
    HostKey {
        /// What went wrong.
        why: Text,
        /// What to do.
        advice: Text,
    },
    /// The host took the key but not the user, as `pam_slurm_adopt` does with one who has no job there. May change at
    /// any moment, with the job.
    #[error("{why}")]
    Denied {
        /// What went wrong.
        why: Text,
    },
    /// This launcher cannot speak with that host (no common algorithm, GSSAPI only, a jump host).
    #[error("{why}")]
    Capability {
        /// What went wrong.
        why: Text,
        /// What to do.
        advice: Text,
    },
    /// Refused, unreachable, timed out, name not found: tried again with back-off.
    #[error("{why}")]
    Unreachable {
        /// What went wrong.
        why: Text,
    },
    /// The host let us in, and then nothing more came: its login script does not end. Each try leaves such a script
    /// behind on the host, so that there are few.
    #[error("{why}")]
    Hangs {
        /// What went wrong.
        why: Text,
        /// What to do.
        advice: Text,
    },
    /// The host was reached but the probe could not be put there or started.
    #[error("{why}")]
    Probe {
        /// What went wrong.
        why: Text,
    },
}

/// The end of what a probe wrote on stderr, at most 4 KiB of it.
#[derive(Clone, Debug, Default)]
pub struct Tail(Vec<u8>);

impl Tail {
    const MAX: usize = 4 * 1024;

    /// Adds bytes and forgets the oldest.
    pub fn push(&mut self, bytes: &[u8]) {
        self.0.extend_from_slice(&bytes[bytes.len().saturating_sub(Self::MAX)..]);
        let over = self.0.len().saturating_sub(Self::MAX);
        self.0.drain(..over);
    }

    /// The last lines that fit into a [`Text`].
    pub fn text(&self) -> Text {
        let text = String::from_utf8_lossy(&self.0);
        let text = text.trim_end();
        let mut from = text.len().saturating_sub(Text::MAX_BYTES - 8);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        // Rather whole lines, if there is a beginning of one among them.
        let whole = if from == 0 { 0 } else { text[from..].find('\n').map_or(from, |end| from + end + 1) };
        Text::new(&text[whole..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_of_stderr_are_kept_and_the_first_are_forgotten() {
        let mut tail = Tail::default();
        for n in 0..10_000 {
            tail.push(format!("line {n} ü\n").as_bytes());
        }
        assert!(tail.0.len() <= Tail::MAX);
        assert!(tail.text().as_str().starts_with("line 99") && tail.text().as_str().ends_with("line 9999 ü"));
        tail.push(&[b'x'; 3 * Tail::MAX]);
        assert_eq!(tail.0.len(), Tail::MAX);
    }

    #[test]
    fn a_short_complaint_is_kept_whole() {
        let mut tail = Tail::default();
        tail.push(b"no such file\n");
        assert_eq!(tail.text().as_str(), "no such file");
    }
}
