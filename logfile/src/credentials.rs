//! Locations of keys and passwords, which no path of a log may lead into, by device and inode
//! rather than by name.

use super::{FileId, id};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Relative to the home directory. This list is a second line of defence, after the checks of the
/// file itself.
const IN_HOME: [&str; 18] = [
    ".aws",
    ".azure",
    ".bash_history",
    ".config/gcloud",
    ".config/gh",
    ".docker",
    ".git-credentials",
    ".gnupg",
    ".huggingface",
    ".kube",
    ".local/share/keyrings",
    ".local/state/nodeglass",
    ".netrc",
    ".password-store",
    ".pgpass",
    ".ssh",
    ".vault-token",
    ".zsh_history",
];

/// The locations that exist now; few enough to be looked up for each read.
pub(crate) fn places() -> Vec<FileId> {
    let folder = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let in_home = folder("HOME").into_iter().flat_map(|home| IN_HOME.map(|name| home.join(name)));
    let temporary = folder("TMPDIR").unwrap_or_else(|| "/tmp".into());
    // The relay's own key is in the folder `nodeglass` of the session, or in the folder for temporary files.
    let others = [
        folder("XDG_RUNTIME_DIR").map(|session| session.join("nodeglass")),
        folder("XDG_RUNTIME_DIR").map(|session| session.join("containers")),
        Some(temporary.join(format!("nodeglass-{}", rustix::process::geteuid().as_raw()))),
        folder("XDG_STATE_HOME").map(|state| state.join("nodeglass")),
        folder("GNUPGHOME"),
    ];
    let paths = in_home.chain(others.into_iter().flatten());
    paths.filter_map(|path| rustix::fs::stat(&path).ok()).map(|stat| id(&stat)).collect()
}

/// Returns whether a folder has a name that relay and probe give to this user's private folder for temporary files.
/// If another user has taken the plain name, it gets a random suffix, so no fixed list can contain it.
pub(crate) fn is_runtime_folder(name: &OsStr) -> bool {
    let plain = format!("nodeglass-{}", rustix::process::geteuid().as_raw());
    let ending = name.as_bytes().strip_prefix(plain.as_bytes());
    ending.is_some_and(|ending| ending.is_empty() || ending.starts_with(b"-"))
}
