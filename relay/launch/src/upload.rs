//! The probe binary of this relay: located and verified here, and recognised, uploaded or replaced on
//! nodes.
//!
//! It is uploaded through an ordinary command (`cat`) rather than SFTP: a host that cannot run a command
//! cannot run a probe either, so that SFTP would only add a second way to fail.

pub mod platform;
mod script;
mod turns;

pub(super) use script::{UploadDir, UploadScript, Uploaded};
pub(super) use turns::Turns;

use super::StreamEnd;
use nodeglass_access::safe_path::{self, How};
use nodeglass_protocol::Text;
use platform::{Needs, Platform};
use rustix::fs::{Mode, OFlags};
use sha2::{Digest, Sha256};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The probe's exit status if its build differs from the expected one.
const OTHER_BUILD: i32 = 4;
/// The shell's exit statuses for "cannot execute" and "not found"; our own command exits with the latter
/// if no probe may be run.
const NOT_EXECUTABLE: [i32; 2] = [126, MISSING];
const MISSING: i32 = 127;
/// Processors, as in `uname -m`, for which there may be a probe of its own.
const MACHINES: [&str; 2] = ["x86_64", "aarch64"];
/// The message for a probe that changed since the relay started.
const REPLACED: &str =
    "the probe on disk is no longer the one this relay was started with; restart the relay";

/// The probe binary on this machine.
#[derive(Clone, Debug)]
pub struct ProbeBinary {
    path: PathBuf,
    hash16: String,
    len: u64,
    needs: Needs,
    /// Probes for other processors, from the same folder.
    others: Arc<[ProbeBinary]>,
    /// Its content while uploads need it, shared by all of them.
    bytes: Arc<Mutex<Weak<Vec<u8>>>>,
}

/// Error of using a file as the probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeBinaryError {
    /// It cannot be read.
    #[error("cannot read the probe {0}: {1}; set its path with --probe PATH")]
    Unreadable(PathBuf, io::Error),
    /// Other users could change or exchange it.
    #[error(
        "the probe {probe} is not used because {by} is writable by others; run `chmod go-w {by}`, or copy the probe to a folder of your own"
    )]
    Writable {
        /// The probe.
        probe: PathBuf,
        /// The probe, or a folder above it.
        by: PathBuf,
    },
    /// Another user owns it, or a folder above it, and could exchange it at any time.
    #[error(
        "the probe {probe} is not used because {by} belongs to another user (uid {uid}), who could replace it; copy the probe to a folder of your own"
    )]
    Foreign {
        /// The probe.
        probe: PathBuf,
        /// The probe, or a folder above it.
        by: PathBuf,
        /// Its owner.
        uid: u32,
    },
    /// It is not a regular file, or empty.
    #[error("{0} is not a program; set the path of node-probe with --probe PATH")]
    NotAProgram(PathBuf),
    /// It changed since this relay started.
    #[error("{REPLACED}")]
    Replaced,
}

impl ProbeBinary {
    /// Loads and verifies the probe at `path`, or `node-probe` next to the running program, and those for other
    /// processors beside it (`node-probe-aarch64`).
    ///
    /// # Errors
    /// [`ProbeBinaryError`], a complete sentence for the user.
    pub fn find(path: Option<&Path>) -> Result<Self, ProbeBinaryError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => {
                next_to_relay().map_err(|error| ProbeBinaryError::Unreadable("node-probe".into(), error))?
            }
        };
        let unreadable = |error| ProbeBinaryError::Unreadable(path.clone(), error);
        // The real path: links could lead through folders of other users.
        let found = Self::load(std::fs::canonicalize(&path).map_err(unreadable)?)?;
        let others = MACHINES.iter().map(|machine| {
            let mut name = found.path.file_name().unwrap_or_default().to_owned();
            name.push(format!("-{machine}"));
            found.path.with_file_name(name)
        });
        let others = others
            .filter_map(|path| std::fs::canonicalize(path).ok())
            .map(Self::load)
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self { others: others.into(), ..found })
    }

    /// Loads and verifies one program; its path contains no links.
    fn load(path: PathBuf) -> Result<Self, ProbeBinaryError> {
        let bytes = read(&path)?;
        let (hash16, len) = (hash16(&Sha256::digest(&bytes)), bytes.len() as u64);
        Ok(Self {
            path,
            hash16,
            len,
            needs: Needs::of(&bytes),
            others: Arc::default(),
            bytes: Arc::default(),
        })
    }

    /// The probe for the node's processor, if the stderr of a start on the node shows that it is another one and
    /// there is such a probe.
    pub(super) fn for_other_processor(&self, end: &StreamEnd) -> Option<&Self> {
        let platform = Platform::parse(end.stderr.as_str());
        let machine = platform.machine.as_deref().filter(|machine| self.needs.machine != Some(machine))?;
        self.others.iter().find(|other| other.needs.machine == Some(machine))
    }

    /// Opens and verifies it again before it is started. The caller must start this very file (by its
    /// descriptor, which child processes inherit), so that nothing can be exchanged in between.
    ///
    /// # Errors
    /// [`ProbeBinaryError`], also if it changed since the relay started.
    pub(super) fn verified(&self) -> Result<File, ProbeBinaryError> {
        let unreadable = |error| ProbeBinaryError::Unreadable(self.path.clone(), error);
        let mut file = open(&self.path)?;
        // In pieces: hundreds of nodes are started at once, and none of their copies would be given back.
        let mut sha = Sha256::new();
        io::copy(&mut file.by_ref().take(MAX_LEN), &mut sha).map_err(unreadable)?;
        file.rewind().map_err(unreadable)?;
        if hash16(&sha.finalize()) == self.hash16 { Ok(file) } else { Err(ProbeBinaryError::Replaced) }
    }

    /// Its content, if the hash still matches. Concurrent uploads share it.
    ///
    /// # Errors
    /// If it cannot be read, or changed since this relay started.
    pub(super) fn bytes(&self) -> Result<Arc<Vec<u8>>, ProbeBinaryError> {
        let mut shared = self.bytes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bytes) = shared.upgrade() {
            return Ok(bytes);
        }
        let bytes = read(&self.path)?;
        if hash16(&Sha256::digest(&bytes)) != self.hash16 {
            return Err(ProbeBinaryError::Replaced);
        }
        let bytes = Arc::new(bytes);
        *shared = Arc::downgrade(&bytes);
        Ok(bytes)
    }

    /// Its path on this machine.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first 16 hex digits of the SHA-256 of the file: its build id.
    pub fn hash16(&self) -> &str {
        &self.hash16
    }

    /// Returns whether this exit means that no probe of this build was found.
    pub(super) fn is_missing(&self, end: &StreamEnd) -> bool {
        end.exit.is_some_and(|exit| exit == OTHER_BUILD || NOT_EXECUTABLE.contains(&exit))
    }

    /// Returns why `node` cannot run this probe, if its stderr shows that.
    pub(super) fn unfit(&self, node: &str, end: &StreamEnd) -> Option<String> {
        let stderr = end.stderr.as_str();
        if let Some(why) = self.needs.unmet_by(node, &Platform::parse(stderr)) {
            return Some(why);
        }
        // An existing probe, in a home that a newer node shares, is rejected by the dynamic linker.
        let version = stderr.split_once("version `GLIBC_")?.1.split_once("' not found")?.0;
        Some(format!("{node} has a glibc older than {version}, which node-probe needs"))
    }

    /// The message for a probe that exited before its first line. A shell that refuses to run it may say why in its `output`.
    pub(super) fn complaint(&self, end: &StreamEnd, output: &[u8]) -> Text {
        let (message, _) =
            end.stderr.as_str().split_once(Platform::PREFIX).unwrap_or((end.stderr.as_str(), ""));
        let message = if message.is_empty() { String::new() } else { format!(": {}", message.trim_end()) };
        match (end.exit, end.interruption()) {
            (Some(OTHER_BUILD), _) => Text::from(REPLACED),
            (Some(126 | MISSING), _) => Text::from(format!(
                "the node does not let the probe run from where it was put (another CPU, a file system mounted noexec, or a folder that others can write?){message}"
            )),
            (Some(exit), _) if message.is_empty() && !output.is_empty() => {
                let output = Text::from_bytes(output);
                format!("no probe answered: the login shell ended with status {exit} and printed: {output}")
                    .into()
            }
            (Some(exit), _) => {
                Text::from(format!("the probe exited immediately with status {exit}{message}"))
            }
            (None, Some(why)) => Text::from(format!("the probe exited immediately: {why}{message}")),
            (None, None) => Text::from(format!("the probe exited immediately{message}")),
        }
    }
}

fn next_to_relay() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("node-probe"))
}

/// Opens a probe that nobody else can exchange.
fn open(path: &Path) -> Result<File, ProbeBinaryError> {
    let unreadable = |error| ProbeBinaryError::Unreadable(path.to_owned(), error);
    // Not close-on-exec: a script that stands in for the probe is read by its interpreter from this
    // descriptor.
    let file = rustix::fs::open(path, OFlags::RDONLY | OFlags::NOCTTY, Mode::empty());
    let file = File::from(file.map_err(|error| unreadable(error.into()))?);
    let meta = file.metadata().map_err(unreadable)?;
    if !meta.is_file() || meta.len() == 0 {
        return Err(ProbeBinaryError::NotAProgram(path.to_owned()));
    }
    let probe = path.to_owned();
    safe_path::check_file(path, &meta, None).map_err(|exposed| match exposed.how {
        How::Writable { .. } => ProbeBinaryError::Writable { probe, by: exposed.path },
        How::Foreign { uid } => ProbeBinaryError::Foreign { probe, by: exposed.path, uid },
        How::Unknown(error) => unreadable(error),
    })?;
    Ok(file)
}

/// Reads a probe that nobody else can exchange.
fn read(path: &Path) -> Result<Vec<u8>, ProbeBinaryError> {
    let mut bytes = Vec::new();
    let read = open(path)?.take(MAX_LEN).read_to_end(&mut bytes);
    read.map_err(|error| ProbeBinaryError::Unreadable(path.to_owned(), error))?;
    Ok(bytes)
}

/// Maximum size of a probe in bytes; a build with debug information has about 100 MB.
const MAX_LEN: u64 = 512 << 20;

fn hash16(digest: &[u8]) -> String {
    digest[..8].iter().map(|byte| format!("{byte:02x}")).collect()
}
