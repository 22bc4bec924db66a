//! Remembers the name of the cluster: what relays store belongs to a cluster, whose controller may not respond when the next one
//! starts.

use nodeglass_platform::regular_file;
use nodeglass_platform::state_dir::StateDir;
use nodeglass_protocol::Text;
use serde::{Deserialize, Serialize};
use std::io;

/// Maximum size of the file in bytes.
const MAX_BYTES: u64 = 4_096;

/// The cluster that SLURM named last on a machine, in the state directory.
#[derive(Debug)]
pub(super) struct LastCluster {
    dir: StateDir,
    /// Name of the file: login nodes of several clusters may share a home directory.
    file: String,
    settings: Settings,
}

/// Settings that select a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Settings {
    /// `SLURM_CONF`.
    slurm_conf: Option<String>,
    /// `--cluster`.
    cluster: Option<String>,
}

/// Content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct Stored {
    name: Text,
    settings: Settings,
}

impl LastCluster {
    /// The cluster of this machine, with the setting `--cluster`; `None` if there is no state directory.
    pub(super) fn of_this_machine(cluster: Option<String>) -> Option<Self> {
        let host = rustix::system::uname().nodename().to_string_lossy().replace('/', "_");
        let settings = Settings { slurm_conf: std::env::var("SLURM_CONF").ok(), cluster };
        Some(Self { dir: StateDir::open().ok()?, file: format!("cluster-{host}.json"), settings })
    }

    /// Returns its name as it was stored last, if the same settings selected it.
    pub(super) fn name(&self) -> Option<Text> {
        let content = regular_file::read(&self.dir.private_file(&self.file).ok()?, MAX_BYTES).ok()?;
        let stored: Stored = serde_json::from_slice(&content).ok()?;
        (stored.settings == self.settings).then_some(stored.name)
    }

    /// Stores its name, unless it is stored already. A failure is that of other files, too, which the relay reports.
    pub(super) fn store(&self, name: &Text) {
        if self.name().as_ref() == Some(name) {
            return;
        }
        let stored = Stored { name: name.clone(), settings: self.settings.clone() };
        let content = serde_json::to_vec(&stored).map_err(io::Error::from);
        if let Err(error) = content.and_then(|content| self.dir.replace(&self.file, &content)) {
            tracing::debug!(%error, "failed to store the name of the cluster");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn the_name_is_that_of_the_same_settings() {
        let home = tempfile::tempdir().unwrap();
        let with = |cluster: Option<&str>| LastCluster {
            dir: StateDir::at(home.path().join("state")).unwrap(),
            file: "cluster-login1.json".to_owned(),
            settings: Settings { slurm_conf: None, cluster: cluster.map(str::to_owned) },
        };
        assert_eq!(with(None).name(), None);
        with(None).store(&"hpc".into());
        assert_eq!(with(None).name(), Some("hpc".into()));
        assert_eq!(with(Some("other")).name(), None);
        fs::write(home.path().join("state/cluster-login1.json"), "{").unwrap();
        assert_eq!(with(None).name(), None);
        with(None).store(&"hpc2".into());
        assert_eq!(with(None).name(), Some("hpc2".into()));
    }
}
