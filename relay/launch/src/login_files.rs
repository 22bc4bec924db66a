//! The local state that logins depend on: keys, the agent, known hosts, configuration, login scripts.
//! When it changes, a refused login may succeed.

use super::identity::agent_keys;
use super::ssh_config::HostSettings;
use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::timeout;

/// A home directory on a hanging file server yields nothing.
const FILES_LIMIT: Duration = Duration::from_secs(5);
/// Maximum number of files and agents that are checked: hosts usually share a few.
const MAX_FILES: usize = 256;
/// Login scripts in the home directory, which also decide whether a login works.
const SCRIPTS: [&str; 9] = [
    ".bashrc",
    ".bash_profile",
    ".bash_login",
    ".profile",
    ".cshrc",
    ".tcshrc",
    ".login",
    ".zshenv",
    ".kshrc",
];

/// The local state that logins depend on: a hash of each file, folder or agent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoginState(BTreeMap<PathBuf, u64>);

impl LoginState {
    /// Returns whether a place that both cover has changed. A login that names further files does not count as a
    /// change.
    pub fn differs_from(&self, other: &Self) -> bool {
        self.0.iter().any(|(place, hash)| other.0.get(place).is_some_and(|other| other != hash))
    }

    /// Both states; `first` wins where both cover a place.
    pub fn join(first: Option<Self>, second: Option<Self>) -> Option<Self> {
        match (first, second) {
            (Some(first), Some(mut second)) => {
                second.0.extend(first.0);
                Some(second)
            }
            (first, second) => first.or(second),
        }
    }
}

impl FromIterator<(PathBuf, u64)> for LoginState {
    fn from_iter<T: IntoIterator<Item = (PathBuf, u64)>>(places: T) -> Self {
        Self(places.into_iter().collect())
    }
}

/// The files to check.
pub(super) struct LoginFiles {
    /// Folders whose files count, and single files.
    places: Vec<PathBuf>,
    /// Files that the settings of hosts reference.
    named: Mutex<Named>,
    /// Only one check runs at a time, as it may hang.
    one: Arc<Semaphore>,
}

#[derive(Clone, Default)]
struct Named {
    files: BTreeSet<PathBuf>,
    agents: BTreeSet<PathBuf>,
}

impl LoginFiles {
    /// For the user with this home directory, and an alternative configuration file.
    pub(super) fn new(home: &Path, config: Option<&Path>) -> Self {
        let ssh = home.join(".ssh");
        let mut places = vec![ssh.clone(), ssh.join("config.d"), ssh.join("conf.d")];
        places.extend(["/etc/ssh/ssh_config", "/etc/ssh/ssh_config.d"].map(PathBuf::from));
        places.extend(SCRIPTS.map(|name| home.join(name)));
        places.extend(config.map(Path::to_owned));
        Self { places, named: Mutex::default(), one: Arc::new(Semaphore::new(1)) }
    }

    /// Adds the files and the agent that a login uses.
    pub(super) fn note(&self, settings: &HostSettings) {
        let mut named = self.named.lock().unwrap_or_else(PoisonError::into_inner);
        let files = settings.known_hosts.iter().chain(&settings.identity_files);
        for file in files {
            if named.files.len() < MAX_FILES {
                named.files.insert(file.clone());
            }
        }
        if let Some(agent) = settings.agent.clone().filter(|_| named.agents.len() < MAX_FILES) {
            named.agents.insert(agent);
        }
    }

    /// The current state; `None` if the files cannot be read in time.
    pub(super) async fn state(&self) -> Option<LoginState> {
        let permit = timeout(FILES_LIMIT, self.one.clone().acquire_owned()).await.ok()?.ok()?;
        let named = self.named.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let files: Vec<PathBuf> = self.places.iter().cloned().chain(named.files).collect();
        let result = tokio::task::spawn_blocking(move || {
            let _permit = permit;
            let with_hash = |place: PathBuf| {
                let hash = hash_of(|hasher| hash_place(&place, hasher));
                (place, hash)
            };
            files.into_iter().map(with_hash).collect::<LoginState>()
        });
        let mut state = timeout(FILES_LIMIT, result).await.ok()?.ok()?;
        for agent in named.agents {
            // An agent that has ended, or does not respond, holds no keys.
            let keys = agent_keys(&agent).await.unwrap_or_default();
            state.0.insert(agent, hash_of(|hasher| keys.hash(hasher)));
        }
        Some(state)
    }
}

fn hash_of(value: impl FnOnce(&mut DefaultHasher)) -> u64 {
    let mut hasher = DefaultHasher::new();
    value(&mut hasher);
    hasher.finish()
}

/// Hashes a file, or each file of a folder. Sockets are ignored: `ssh` itself creates some there.
fn hash_place(place: &Path, hasher: &mut DefaultHasher) {
    let Ok(meta) = place.metadata() else { return };
    if meta.is_dir() {
        let entries = place.read_dir().into_iter().flatten().flatten();
        let mut files: Vec<PathBuf> = entries.take(MAX_FILES).map(|entry| entry.path()).collect();
        files.sort_unstable();
        files.iter().filter(|file| file.is_file()).for_each(|file| hash_place(file, hasher));
    } else if meta.is_file() {
        place.hash(hasher);
        // The change time reveals that another user can no longer read it.
        (meta.dev(), meta.ino(), meta.len(), meta.ctime(), meta.ctime_nsec()).hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;
    use std::os::unix::net::UnixListener;

    #[tokio::test]
    async fn a_change_of_any_login_file_changes_the_state() {
        let home = tempfile::tempdir().unwrap();
        let ssh = home.path().join(".ssh");
        fs::create_dir(&ssh).unwrap();
        let key = ssh.join("id_ed25519");
        fs::write(&key, "key").unwrap();
        fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
        let other = home.path().join("elsewhere");
        let login_files = LoginFiles::new(home.path(), None);
        login_files.named.lock().unwrap().files.insert(other.clone());
        let mut before = login_files.state().await.unwrap();
        let mends: [&dyn Fn(); 5] = [
            &|| fs::write(ssh.join("known_hosts"), "n1 ssh-ed25519 AAAA\n").unwrap(),
            &|| fs::write(ssh.join("config"), "Host *\n").unwrap(),
            &|| fs::set_permissions(&key, fs::Permissions::from_mode(0o600)).unwrap(),
            &|| fs::write(&other, "a key file of another place").unwrap(),
            &|| fs::write(home.path().join(".bashrc"), "true\n").unwrap(),
        ];
        for (number, mend) in mends.iter().enumerate() {
            mend();
            let now = login_files.state().await.unwrap();
            assert!(now.differs_from(&before), "change {number} is not seen");
            before = now;
        }
        let _socket = UnixListener::bind(ssh.join("master-1")).unwrap();
        fs::write(home.path().join("results.csv"), "1\n").unwrap();
        assert_eq!(
            login_files.state().await,
            Some(before.clone()),
            "neither a socket nor a file of the user's"
        );
        // A login names a further file, which was there before.
        login_files.named.lock().unwrap().files.insert(home.path().join("results.csv"));
        let now = login_files.state().await.unwrap();
        assert!(now != before && !now.differs_from(&before));
    }
}
