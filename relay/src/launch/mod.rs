//! A launcher starts a probe on a node and hands over its pipes; what flows through them is not its business.

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
    /// The host was reached but the probe could not be put there or started.
    #[error("{why}")]
    Probe {
        /// What went wrong.
        why: Text,
    },
}
