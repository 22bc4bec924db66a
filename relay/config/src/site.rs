//! The configuration of the relay of a site: what it watches is fixed, and what it needs is checked.

use super::{Config, ConfigError};

/// Returns the configuration of the relay of a site.
///
/// # Errors
/// [`ConfigError::SiteWatches`] for settings about what to watch; [`ConfigError::SiteAsRoot`].
pub(super) fn of_site(config: Config) -> Result<Config, ConfigError> {
    let refused = [
        ("--demo", config.demo),
        ("--scenario", config.scenario.is_some()),
        ("--local", config.local),
        ("--users", !config.users.is_empty()),
        ("--user", config.user.is_some()),
        ("--hosts", config.hosts.is_some()),
        ("--host", !config.host.is_empty()),
        ("--tpu-pod", config.tpu_pod),
        ("--replay", config.replay.is_some()),
        ("--view-only", config.view_only),
    ];
    if let Some((name, _)) = refused.into_iter().find(|(_, is_set)| *is_set) {
        return Err(ConfigError::SiteWatches(name));
    }
    if rustix::process::geteuid().is_root() {
        return Err(ConfigError::SiteAsRoot);
    }
    Ok(Config { site: true, ..config })
}

/// Checks that a user's relay has no settings of a site's.
///
/// # Errors
/// [`ConfigError::OnlyOfSite`].
pub(super) fn check_own(config: &Config) -> Result<(), ConfigError> {
    match (config.account_visibility, config.admin_users.is_empty()) {
        (true, _) => Err(ConfigError::OnlyOfSite("--account-visibility")),
        (_, false) => Err(ConfigError::OnlyOfSite("--admin-users")),
        (false, true) => Ok(()),
    }
}
