//! The probe that belongs to this relay is found here, and recognised, put or replaced there.
//!
//! It is put there through an ordinary command (`cat`), not by SFTP: a host that cannot run a command
//! cannot run a probe either, so that SFTP would only be a second way to fail. Every command line is made of constants
//! and of parts checked here; it is wrapped in `sh -c '…'` because the user's shell may be csh or fish.

use super::StreamEnd;
use nodeglass_protocol::Text;
use sha2::{Digest, Sha256};
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// Where uploaded probes live, under the remote home.
const CACHE: &str = ".cache/nodeglass";
/// The probe's exit status when it is another build than expected.
const OTHER_BUILD: i32 = 4;
/// The shell's exit statuses for "cannot execute" and "not found".
const NOT_EXECUTABLE: [i32; 2] = [126, 127];
/// What our own commands exit with when no probe is there that may be run, as the shell does for "not found".
const MISSING: i32 = 127;
/// Our upload command's exit statuses: the file did not arrive whole; others can write where it is to lie.
const INCOMPLETE: i32 = 5;
const UNSAFE: i32 = 7;
/// A function for the node's shell: whether `$1` is of the type `$2` (as `ls -l` has it), belongs to the user or to root, and
/// nobody else can write it; a group of the owner's own number is the owner's. The owner is the point: in a folder for
/// all, as `/tmp` is, anybody can have put a program under the name that it has here. It knows no `!`, for which csh
/// has another use.
const SAFE: &str = "u=$(id -u); safe() { set -- $2 $(ls -ldn $1 2>/dev/null); \
    case $2 in $1*) ;; *) return 1;; esac; case $4 in 0|$u) ;; *) return 1;; esac; \
    case $2 in ????????w*) return 1;; ?????w*) [ $5 -eq $4 ];; esac; }";
/// The sentence for a probe that is not what it was when the relay started.
const REPLACED: &str =
    "the probe on disk is no longer the one this relay was started with; restart the relay";

/// The probe on this machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProbeBinary {
    path: PathBuf,
    hash16: String,
    len: u64,
    /// Whether its own path may appear in a command line.
    same_path: bool,
}

/// Why a file cannot be the probe.
#[derive(Debug, thiserror::Error)]
pub enum ProbeBinaryError {
    /// It cannot be read.
    #[error("cannot read the probe {0}: {1}; pass its place with --probe PATH")]
    Unreadable(PathBuf, io::Error),
    /// Others may change it, or exchange it.
    #[error(
        "the probe {probe} is not run, because {by} can be written by others: chmod go-w {by}, or copy the probe to a folder of your own"
    )]
    Writable {
        /// The probe.
        probe: PathBuf,
        /// The probe, or a folder above it.
        by: PathBuf,
    },
    /// It is no file, or an empty one.
    #[error("{0} is not a program; pass the place of node-probe with --probe PATH")]
    NotAProgram(PathBuf),
}

/// What became of an upload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    Done,
    Failed(String),
}

impl ProbeBinary {
    /// Reads and checks the probe at `path`, or `node-probe` beside the running program.
    ///
    /// # Errors
    /// [`ProbeBinaryError`], a sentence for the user.
    pub fn find(path: Option<&Path>) -> Result<Self, ProbeBinaryError> {
        let path = match path {
            Some(path) => path.to_owned(),
            None => beside_us().map_err(|error| ProbeBinaryError::Unreadable("node-probe".into(), error))?,
        };
        Self::open(&path)
    }

    fn open(path: &Path) -> Result<Self, ProbeBinaryError> {
        let unreadable = |error| ProbeBinaryError::Unreadable(path.to_owned(), error);
        // Where it really is: links on the way there may lead through folders of others.
        let path = std::fs::canonicalize(path).map_err(unreadable)?;
        let mut file = File::open(&path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() || meta.len() == 0 {
            return Err(ProbeBinaryError::NotAProgram(path));
        }
        if let Some(by) = open_to_others(&path, &meta).map_err(unreadable)? {
            return Err(ProbeBinaryError::Writable { probe: path, by });
        }
        let hash16 = hash(&mut file).map_err(unreadable)?;
        let same_path = path.to_str().is_some_and(is_plain);
        Ok(Self { path, hash16, len: meta.len(), same_path })
    }

    /// Its bytes, if they are still those whose hash is in its name.
    ///
    /// # Errors
    /// When it cannot be read, or was replaced since this relay started.
    pub(super) fn bytes(&self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.len as usize);
        File::open(&self.path)?.take(self.len + 1).read_to_end(&mut bytes)?;
        match hash(&mut bytes.as_slice())? == self.hash16 {
            true => Ok(bytes),
            false => Err(io::Error::other(REPLACED)),
        }
    }

    /// Where it is on this machine.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The first 16 hex digits of the SHA-256 of the file: its build id.
    pub fn hash16(&self) -> &str {
        &self.hash16
    }

    /// Runs the uploaded probe of this build, or else the one at the same path as here (a shared home or an install).
    /// Neither is run if others could have put it there; then it counts as missing.
    pub(super) fn run_command(&self, relay: u64) -> String {
        let hash = &self.hash16;
        let arguments = format!("--expect {hash} --relay {relay:016x}");
        // From within the folder: what was looked at cannot be exchanged for another any more.
        let uploaded = format!(
            "cd ./{CACHE} 2>/dev/null && p=./node-probe-{hash} && safe . d && safe $p - && [ -x $p ] && exec $p {arguments}"
        );
        let same = self.path.to_str().filter(|_| self.same_path).map_or_else(String::new, |path| {
            let folder = Path::new(path).parent().and_then(Path::to_str).unwrap_or("/");
            format!("p={path}; safe {folder} d && safe $p - && [ -x $p ] && exec $p {arguments}; ")
        });
        format!("exec sh -c 'cd; {SAFE}; {uploaded}; cd; {same}exit {MISSING}'")
    }

    /// Takes the probe from stdin: into a file of its own first, then under its name; old ones go.
    pub(super) fn upload_command(&self) -> String {
        let (hash, len) = (&self.hash16, self.len);
        // `set -C`: a new file, never through a link that waits under its name.
        format!(
            "exec sh -c 'cd; umask 077; {SAFE}; mkdir -p ./{CACHE} && cd ./{CACHE} && chmod 700 . || exit 6; \
             safe . d || exit {UNSAFE}; t=./.new-$$; rm -f $t; set -C; \
             find . -name \"node-probe-*\" -mtime +7 -exec rm -f {{}} +; \
             cat > $t && [ $(wc -c < $t) -eq {len} ] && chmod 700 $t && mv -f $t ./node-probe-{hash} && exit 0; \
             rm -f $t; exit {INCOMPLETE}'"
        )
    }

    /// Whether a command that ended like this found no probe of this build.
    pub(super) fn is_missing(&self, end: &StreamEnd) -> bool {
        end.exit.is_some_and(|exit| exit == OTHER_BUILD || NOT_EXECUTABLE.contains(&exit))
    }

    /// The sentence for a probe that ended before its first line.
    pub(super) fn complaint(&self, end: &StreamEnd) -> Text {
        let said = if end.stderr.is_empty() { String::new() } else { format!(": {}", end.stderr) };
        match (end.exit, &end.broken) {
            (Some(OTHER_BUILD), _) => Text::from(REPLACED),
            (Some(126 | MISSING), _) => Text::from(format!(
                "the node does not let the probe run from ~/{CACHE} (another CPU, a file system mounted noexec, or a folder that others can write?){said}"
            )),
            (Some(exit), _) => Text::from(format!("the probe ended at once with status {exit}{said}")),
            (None, Some(broken)) => Text::from(format!("the probe ended at once: {broken}{said}")),
            (None, None) => Text::from(format!("the probe ended at once{said}")),
        }
    }

    pub(super) fn uploaded(&self, end: &StreamEnd) -> Verdict {
        match end.exit {
            Some(0) => Verdict::Done,
            Some(INCOMPLETE) => {
                Verdict::Failed(format!("it did not arrive whole in ~/{CACHE} (disk full?): {}", end.stderr))
            }
            Some(UNSAFE) => Verdict::Failed(format!(
                "~/{CACHE} belongs to somebody else or can be written by others; remove it, or make it your own"
            )),
            _ => Verdict::Failed(format!("~/{CACHE} cannot be written: {}", end.stderr)),
        }
    }
}

fn beside_us() -> io::Result<PathBuf> {
    Ok(std::env::current_exe()?.with_file_name("node-probe"))
}

/// Whether a path needs no quoting in any shell.
fn is_plain(path: &str) -> bool {
    path.starts_with('/')
        && path.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'.' | b'_' | b'/' | b'+' | b'-'))
}

/// The file, or the folder above it, that others could use to exchange the probe: sshd's StrictModes rule.
fn open_to_others(path: &Path, meta: &Metadata) -> io::Result<Option<PathBuf>> {
    if is_open_to_others(meta) {
        return Ok(Some(path.to_owned()));
    }
    for folder in path.ancestors().skip(1) {
        let meta = std::fs::metadata(folder)?;
        // In a container the system's folders belong to whoever has no number in it.
        let of_system = meta.uid() == OVERFLOW_UID && meta.mode() & 0o022 == 0;
        if is_open_to_others(&meta) && !of_system {
            return Ok(Some(folder.to_owned()));
        }
    }
    Ok(None)
}

/// The kernel's number for owners that a user namespace does not know.
const OVERFLOW_UID: u32 = 65_534;

/// A group whose number is the owner's own is taken for the owner's private group, which several distributions give
/// everyone together with umask 002. Within a sticky folder only the owner of an entry can exchange it.
fn is_open_to_others(meta: &Metadata) -> bool {
    let sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
    let others = meta.mode() & 0o002 != 0 && !sticky;
    let group = meta.mode() & 0o020 != 0 && meta.gid() != meta.uid() && !sticky;
    let foreign = meta.uid() != 0 && meta.uid() != rustix::process::getuid().as_raw();
    others || group || foreign && meta.mode() & 0o200 != 0
}

fn hash(file: &mut impl Read) -> io::Result<String> {
    let mut sha = Sha256::new();
    let mut buffer = [0; 64 * 1024];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            n => sha.update(&buffer[..n]),
        }
    }
    Ok(sha.finalize()[..8].iter().map(|byte| format!("{byte:02x}")).collect())
}
