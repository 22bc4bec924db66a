//! Launchers start a probe on a node and hand over its pipes; they do not interpret what flows through
//! them.
//!
//! [`ssh2`] and [`openssh`] log in to a node, [`srun`] starts a step of a job, [`local`] a child process, and [`scripted`]
//! simulates nodes; [`auto`] chooses between the first two. [`upload`] brings the probe there. [`target`] says where a node is
//! reached, [`ssh_config`], [`known_hosts`] and [`keys`] how, and [`hosts`] reads the machines that the user lists.

pub mod auto;
mod child;
mod deploy;
pub mod hosts;
mod identity;
pub mod keys;
pub mod known_hosts;
pub mod local;
mod login_error;
mod login_files;
pub mod openssh;
pub mod scripted;
pub mod srun;
pub mod ssh2;
pub mod ssh_config;
pub mod target;
pub mod upload;

use async_trait::async_trait;
use bytes::Bytes;
pub use login_files::LoginState;
use nodeglass_protocol::picture::LauncherStatus;
use nodeglass_protocol::probe::delta::ParsedLine;
use nodeglass_protocol::{JobId, NodeName, Text};
use ssh_config::Local;
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::sync::{mpsc, oneshot, watch};
use upload::ProbeBinary;

/// Capacity of the channels to and from a probe, in chunks.
pub const PIPE_DEPTH: usize = 64;

/// Options of the launchers that log in over SSH.
#[derive(Clone, Debug)]
pub struct SshOptions {
    /// The probe to run.
    pub probe: ProbeBinary,
    /// Identifies this relay to probes, so that a new link to a node takes over from a dead one.
    pub relay_id: u64,
    /// Another file than `~/.ssh/config` (`ssh -F`).
    pub config: Option<PathBuf>,
    /// Home directory, user and agent.
    pub local: Local,
}

/// Starts probes.
#[async_trait]
pub trait Launcher: Send + Sync + 'static {
    /// The name in logs and on the page: `ssh2`, `openssh`, `srun`, `local`, `scripted`.
    fn name(&self) -> &'static str;

    /// Returns whether the program that it needs is on this machine.
    fn is_installed(&self) -> bool {
        true
    }

    /// The launcher in use, and why; a new one is sent when that changes.
    fn status(&self) -> watch::Receiver<LauncherStatus> {
        watch::channel(LauncherStatus { name: self.name().into(), reason: None }).1
    }

    /// Starts a probe on `node`. Applies its own time limits (20 s in total).
    ///
    /// # Errors
    /// [`LaunchError`], which also states whether a retry may help.
    async fn launch(&self, node: &NodeName) -> Result<NodeStream, LaunchError>;

    /// Replaces the ids of jobs in a line of a node by those of the job list, where they differ.
    fn rename_jobs(&self, _node: &NodeName, _line: &mut ParsedLine) {}

    /// Returns the launcher of probes in jobs, if available: where a probe is confined to the GPUs of one job, other
    /// probes report the GPUs of the user's other jobs.
    fn job_launcher(&self) -> Option<Arc<dyn JobLauncher>> {
        None
    }

    /// The local state that logins depend on: keys, the agent, known hosts, configuration. `None` if
    /// unknown.
    async fn login_state(&self) -> Option<LoginState> {
        None
    }
}

/// Starts probes in jobs of the user.
#[async_trait]
pub trait JobLauncher: Send + Sync + 'static {
    /// Starts a probe on `node` as a step of `job`. Applies its own time limits (20 s in total).
    ///
    /// # Errors
    /// [`LaunchError`], which also states whether a retry may help.
    async fn launch_in(&self, job: JobId, node: &NodeName) -> Result<NodeStream, LaunchError>;
}

/// The pipes of a running probe. Dropping it stops the probe.
#[derive(Debug)]
pub struct NodeStream {
    /// The probe's stdout in chunks of any size; `None` once it is closed.
    pub stdout: mpsc::Receiver<Bytes>,
    /// The probe's stdin.
    pub stdin: mpsc::Sender<Bytes>,
    /// The end; sent after the last chunk of `stdout`.
    pub end: oneshot::Receiver<StreamEnd>,
}

/// The end of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StreamEnd {
    /// Exit status, if known.
    pub exit: Option<i32>,
    /// The signal that ended it, if its name is known.
    pub signal: Option<Text>,
    /// The end of its stderr, sanitised.
    pub stderr: Text,
    /// The connection error, if that ended it.
    pub broken: Option<Text>,
}

impl StreamEnd {
    /// Returns what ended the program, unless it exited: a signal, or the connection.
    pub fn interruption(&self) -> Option<Text> {
        let killed = self.signal.as_ref().map(|signal| Text::from(format!("ended by {signal}")));
        killed.or_else(|| self.broken.clone())
    }
}

/// Error of starting a probe. `why` and `advice` are complete sentences for the user.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The user must act (no key accepted, agent gone). Never retried automatically: a login node can be
    /// locked out.
    #[error("{why}")]
    Auth {
        /// The problem.
        why: Text,
        /// The remedy.
        advice: Text,
    },
    /// The host key is unknown, changed or revoked. Never retried automatically.
    #[error("{why}")]
    HostKey {
        /// The problem.
        why: Text,
        /// The remedy.
        advice: Text,
    },
    /// The host accepted the key but denied the user, as `pam_slurm_adopt` does without a job there. May
    /// change at any moment, with the job.
    #[error("{why}")]
    Denied {
        /// The problem.
        why: Text,
    },
    /// This launcher cannot log in to the host (no common algorithm, GSSAPI only, a jump host); another
    /// one may.
    #[error("{why}")]
    Capability {
        /// The problem.
        why: Text,
        /// The remedy.
        advice: Text,
    },
    /// The node cannot run this probe (another processor, an older C library) with any launcher.
    #[error("{why}")]
    Incompatible {
        /// The problem.
        why: Text,
        /// The remedy.
        advice: Text,
    },
    /// Refused, unreachable, timed out, name not found: retried with back-off.
    #[error("{why}")]
    Unreachable {
        /// The problem.
        why: Text,
    },
    /// The host limits logins for now (`MaxStartups`, `PerSourcePenalties`), or SLURM creates no step: each further
    /// attempt takes a place from others, or prolongs the limit.
    #[error("{why}")]
    Throttled {
        /// The problem.
        why: Text,
    },
    /// The host accepted the login and then sent nothing: its login script hangs. Each retry leaves such
    /// a script behind on the host, so that there are few.
    #[error("{why}")]
    Hangs {
        /// The problem.
        why: Text,
        /// The remedy.
        advice: Text,
    },
    /// The host was reached but the probe could not be uploaded or started.
    #[error("{why}")]
    Probe {
        /// The problem.
        why: Text,
    },
}

/// The end of a probe's stderr, at most 4 KiB, and the beginning of its first panic, which a backtrace follows.
#[derive(Clone, Debug, Default)]
pub struct Tail {
    end: Vec<u8>,
    panic: Vec<u8>,
}

impl Tail {
    const MAX: usize = 4 * 1024;
    /// Maximum length of the message of a panic, in bytes.
    const MAX_PANIC: usize = 512;

    /// Appends bytes, dropping the oldest.
    pub fn push(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(Self::MAX) {
            self.push_part(part);
        }
    }

    fn push_part(&mut self, bytes: &[u8]) {
        self.end.extend_from_slice(bytes);
        let begun = match self.panic.is_empty() {
            true => panic_begin(&self.end).map_or(&[][..], |begin| &self.end[begin..]),
            false => bytes,
        };
        let room = Self::MAX_PANIC.saturating_sub(self.panic.len());
        self.panic.extend_from_slice(&begun[..begun.len().min(room)]);
        let over = self.end.len().saturating_sub(Self::MAX);
        self.end.drain(..over);
    }

    /// Returns the whole text.
    pub fn as_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.end)
    }

    /// The message of its panic, else the last lines that fit into a [`Text`].
    pub fn text(&self) -> Text {
        if !self.panic.is_empty() {
            let text = String::from_utf8_lossy(&self.panic);
            let is_backtrace =
                |line: &&str| line.starts_with("stack backtrace:") || line.starts_with("note: ");
            let message: Vec<&str> = text.lines().take_while(|line| !is_backtrace(line)).collect();
            return Text::new(message.join("\n").trim_end());
        }
        let text = self.as_str();
        let text = text.trim_end();
        let mut from = text.len().saturating_sub(Text::MAX_BYTES - 8);
        while !text.is_char_boundary(from) {
            from += 1;
        }
        // Prefer complete lines, if one begins within.
        let whole = if from == 0 { 0 } else { text[from..].find('\n').map_or(from, |end| from + end + 1) };
        Text::new(&text[whole..])
    }
}

/// Returns the position at which the first panic begins: `thread 'driver' panicked at src/lib.rs:5:9:`.
fn panic_begin(text: &[u8]) -> Option<usize> {
    let at = text.windows(PANICKED.len()).position(|part| part == PANICKED)?;
    Some(text[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1))
}

const PANICKED: &[u8] = b" panicked at ";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_stated_by_its_message_and_not_by_its_backtrace() {
        let mut tail = Tail::default();
        tail.push(b"warming up\nthread 'driver' pani");
        tail.push(b"cked at src/source.rs:7:5:\nno such symbol\nstack backtrace:\n");
        for frame in 0..100 {
            tail.push(format!("  {frame}: 0x7f74 - clone3 at ./misc/../sysdeps/clone3.S:81\n").as_bytes());
        }
        tail.push(b"thread 'driver' panicked at core/src/panicking.rs:225:5:\nthread caused non-unwinding panic. aborting.\n");
        assert_eq!(tail.text(), Text::new("thread 'driver' panicked at src/source.rs:7:5:\nno such symbol"));
    }

    #[test]
    fn the_last_lines_of_stderr_are_kept() {
        let mut tail = Tail::default();
        for n in 0..10_000 {
            tail.push(format!("line {n} ü\n").as_bytes());
        }
        assert!(tail.end.len() <= Tail::MAX);
        assert!(tail.text().as_str().starts_with("line 99") && tail.text().as_str().ends_with("line 9999 ü"));
        tail.push(&[b'x'; 3 * Tail::MAX]);
        assert_eq!(tail.end.len(), Tail::MAX);
    }

    #[test]
    fn a_short_stderr_is_kept_completely() {
        let mut tail = Tail::default();
        tail.push(b"no such file\n");
        assert_eq!(tail.text().as_str(), "no such file");
    }
}
