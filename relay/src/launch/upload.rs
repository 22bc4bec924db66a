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
/// Our upload command's exit status when the file did not arrive whole.
const INCOMPLETE: i32 = 5;

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
    /// Others may change it.
    #[error(
        "the probe {0} or its folder can be written by others, so it is not run; chmod go-w {0} and its folder"
    )]
    Writable(PathBuf),
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
        let path = std::path::absolute(path).map_err(unreadable)?;
        let mut file = File::open(&path).map_err(unreadable)?;
        let meta = file.metadata().map_err(unreadable)?;
        if !meta.is_file() || meta.len() == 0 {
            return Err(ProbeBinaryError::NotAProgram(path));
        }
        let folder = path.parent().map(std::fs::metadata).transpose().map_err(unreadable)?;
        if is_open_to_others(&meta) || folder.is_some_and(|folder| is_open_to_others(&folder)) {
            return Err(ProbeBinaryError::Writable(path));
        }
        let hash16 = hash(&mut file).map_err(unreadable)?;
        let same_path = path.to_str().is_some_and(is_plain);
        Ok(Self { path, hash16, len: meta.len(), same_path })
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
    pub(super) fn run_command(&self, relay: u64) -> String {
        let hash = &self.hash16;
        let uploaded = format!("{CACHE}/node-probe-{hash}");
        let choose = match self.path.to_str().filter(|_| self.same_path) {
            Some(path) => format!("p={uploaded}; [ -x \"$p\" ] || p={path}"),
            None => format!("p={uploaded}"),
        };
        format!("exec sh -c 'cd; {choose}; exec \"$p\" --expect {hash} --relay {relay:016x}'")
    }

    /// Takes the probe from stdin: into a file of its own first, then under its name; old ones go.
    pub(super) fn upload_command(&self) -> String {
        let (hash, len) = (&self.hash16, self.len);
        format!(
            "exec sh -c 'cd; umask 077; d={CACHE}; t=$d/.new-$$; mkdir -p $d && chmod 700 $d || exit 6; \
             find $d -name \"node-probe-*\" -mtime +7 -exec rm -f {{}} +; \
             cat > $t && [ $(wc -c < $t) -eq {len} ] && chmod 700 $t && mv -f $t $d/node-probe-{hash} && exit 0; \
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
            (Some(OTHER_BUILD), _) => Text::from(
                "the probe on disk is no longer the one this relay was started with; restart the relay",
            ),
            (Some(126), _) => Text::from(format!(
                "the node does not let the probe run from ~/{CACHE} (another CPU, or a file system mounted noexec?){said}"
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

/// sshd's StrictModes rule. A group whose number is the owner's own is taken for the owner's private
/// group, which several distributions give everyone together with umask 002.
fn is_open_to_others(meta: &Metadata) -> bool {
    let sticky = meta.is_dir() && meta.mode() & 0o1000 != 0;
    let others = meta.mode() & 0o002 != 0 && !sticky;
    let group = meta.mode() & 0o020 != 0 && meta.gid() != meta.uid() && !sticky;
    let foreign = meta.uid() != 0 && meta.uid() != rustix::process::getuid().as_raw();
    others || group || foreign && meta.mode() & 0o200 != 0
}

fn hash(file: &mut File) -> io::Result<String> {
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
