//! Settings for several relays: how NATS is reached, and what is viewed.

use super::{Config, ConfigError};
use nodeglass_nats::Settings;

impl Config {
    /// Returns how NATS is reached, if it is used.
    pub fn nats(&self) -> Option<Settings> {
        (!self.nats.is_empty()).then(|| Settings {
            servers: self.nats.clone(),
            credentials: self.nats_credentials.clone(),
            ca: self.nats_ca.clone(),
        })
    }
}

/// Checks the settings that depend on each other.
///
/// # Errors
/// [`ConfigError`].
pub(crate) fn check(config: &Config) -> Result<(), ConfigError> {
    let is_used = !config.nats.is_empty();
    let needs_server = config.nats_credentials.is_some()
        || config.nats_ca.is_some()
        || config.nats_cluster.is_some()
        || config.view_only;
    if !is_used && needs_server {
        return Err(ConfigError::WithoutNats);
    }
    if is_used && config.replay.is_some() {
        return Err(ConfigError::ReplayAndNats);
    }
    let watches = config.demo || config.scenario.is_some() || config.local || config.has_hosts();
    let watches = watches || config.nats_cluster.is_some();
    if config.view_only && watches {
        return Err(ConfigError::ViewOnlyAndWatch);
    }
    let is_stored = config.remote_write.is_some() || config.history_url.is_some();
    if config.view_only && is_stored && config.cluster.as_ref().is_none_or(|name| name.contains(',')) {
        return Err(ConfigError::StorageOfSeveralClusters);
    }
    if !config.view_only && config.cluster.as_ref().is_some_and(|name| name.contains(',')) {
        return Err(ConfigError::SeveralClusters);
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
    fn a_relay_that_only_views_needs_a_server_and_nothing_to_watch() {
        let config = requested("--view-only --cluster hpc --nats nats://a:1,tls://b").unwrap();
        assert_eq!(config.watch(), Watch::Others(vec!["hpc".to_owned()]));
        assert_eq!(config.nats().unwrap().servers.len(), 2);
        let several = requested("--view-only --cluster hpc,ml --nats nats://a").unwrap();
        assert_eq!(several.watch(), Watch::Others(vec!["hpc".to_owned(), "ml".to_owned()]));
        assert!(requested("--view-only --cluster hpc --nats nats://a --history-url http://a").is_ok());
        let all = requested("--view-only --nats nats://a").unwrap();
        assert_eq!(all.watch(), Watch::Others(Vec::new()));
        for (line, why) in [
            ("--view-only --cluster hpc", "need --nats"),
            ("--nats-credentials /x", "need --nats"),
            ("--nats-cluster hpc", "need --nats"),
            ("--nats nats://a --nats-cluster a.b", "cannot be the name of a cluster on NATS"),
            ("--view-only --nats nats://a --nats-cluster hpc", "--view-only shows only"),
            ("--cluster hpc,ml --nats nats://a", "a relay watches one cluster"),
            ("--view-only --cluster hpc --nats nats://a --demo", "--view-only shows only"),
            ("--view-only --nats nats://a --history-url http://a", "name one cluster"),
            ("--view-only --cluster a,b --nats nats://a --remote-write http://a", "name one cluster"),
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
        assert!(requested("--cluster hpc").unwrap().nats().is_none());
    }
}
