//! Settings for several relays: how NATS is reached, and what is viewed.

use super::{Config, ConfigError};
use nodeglass_nats::{ClusterName, ClusterNameError, Settings};

impl Config {
    /// Returns how NATS is reached, if it is used; `cluster` names the cluster unless `--cluster` does.
    ///
    /// # Errors
    /// If the name cannot be part of a subject.
    pub fn nats(&self, cluster: &str) -> Result<Option<Settings>, ClusterNameError> {
        if self.nats.is_empty() {
            return Ok(None);
        }
        let cluster: ClusterName = self.cluster.as_deref().unwrap_or(cluster).parse()?;
        Ok(Some(Settings {
            servers: self.nats.clone(),
            credentials: self.nats_credentials.clone(),
            ca: self.nats_ca.clone(),
            cluster,
        }))
    }
}

/// Checks the settings that depend on each other.
///
/// # Errors
/// [`ConfigError`].
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    let is_used = !config.nats.is_empty();
    if !is_used && (config.nats_credentials.is_some() || config.nats_ca.is_some() || config.view_only) {
        return Err(ConfigError::WithoutNats);
    }
    if is_used && config.replay.is_some() {
        return Err(ConfigError::ReplayAndNats);
    }
    let watches = config.demo || config.scenario.is_some() || config.local || config.has_hosts();
    if config.view_only && watches {
        return Err(ConfigError::ViewOnlyAndWatch);
    }
    if config.view_only && config.cluster.is_none() {
        return Err(ConfigError::ViewOnlyWithoutCluster);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::{ReadError, Request, Watch, read};

    fn requested(line: &str) -> Result<super::Config, String> {
        let args = ["relay", "--config", "/dev/null"].into_iter().chain(line.split_whitespace());
        match read(args.map(Into::into)).map_err(|error: ReadError| error.to_string())? {
            Request::Run { config, .. } => Ok(*config),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn a_relay_that_only_views_needs_a_server_and_a_cluster_and_nothing_to_watch() {
        let config = requested("--view-only --cluster hpc --nats nats://a:1,tls://b").unwrap();
        assert_eq!(config.watch(), Watch::Others("hpc".to_owned()));
        assert_eq!(config.nats("other").unwrap().unwrap().cluster.to_string(), "hpc");
        for (line, why) in [
            ("--view-only --cluster hpc", "need --nats"),
            ("--nats-credentials /x", "need --nats"),
            ("--view-only --nats nats://a", "needs --cluster"),
            ("--view-only --cluster hpc --nats nats://a --demo", "--view-only shows only"),
            ("--replay /x --nats nats://a", "exclude each other"),
            ("--nats http://a", "not the URL of a NATS server"),
            ("--nats nats://bob:secret@a", "--nats-credentials for a password"),
        ] {
            let error = requested(line).unwrap_err();
            assert!(error.contains(why), "{line}: {error}");
        }
    }

    #[test]
    fn without_a_server_nothing_is_shared() {
        assert!(requested("--cluster hpc").unwrap().nats("hpc").unwrap().is_none());
        assert!(requested("--nats nats://a").unwrap().nats("a.b").is_err(), "not a part of a subject");
    }
}
