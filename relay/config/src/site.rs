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

#[cfg(test)]
mod tests {
    use crate::{Request, read};
    use std::ffi::OsString;

    fn why(args: &[&str]) -> Option<String> {
        read(["relay"].iter().chain(args).map(OsString::from)).err().map(|error| error.to_string())
    }

    #[test]
    fn what_the_relay_of_a_site_watches_is_fixed() {
        for args in [
            &["site", "--demo"][..],
            &["site", "--scenario", "large"],
            &["site", "--local"],
            &["site", "--users", "alice"],
            &["--user", "alice", "site"],
            &["site", "--host", "gpu1"],
            &["site", "--tpu-pod"],
        ] {
            let name = args.iter().find(|arg| arg.starts_with("--")).unwrap();
            let why = why(args).unwrap();
            assert!(why.ends_with(&format!("of the whole cluster: omit {name}")), "{args:?}: {why}");
        }
    }

    #[test]
    fn t02_a_users_relay_is_not_opened_to_others_by_a_setting() {
        for args in [&["--admin-users", "alice"][..], &["--account-visibility"]] {
            let why = why(args).unwrap();
            assert!(why.starts_with(args[0]) && why.contains("start it by `relay site`"), "{args:?}: {why}");
        }
        let Ok(Request::Run { config, .. }) = read(["relay"].map(OsString::from)) else { panic!("it runs") };
        assert!(!config.site);
    }

    #[test]
    fn the_relay_of_a_site_is_not_roots() {
        let args = ["relay", "site", "--admin-users", "alice,bob", "--account-visibility"];
        let result = read(args.map(OsString::from));
        if rustix::process::geteuid().is_root() {
            assert!(result.err().is_some_and(|error| error.to_string().contains("does not run as root")));
            return;
        }
        let Ok(Request::Run { config, .. }) = result else { panic!("it runs") };
        assert!(config.site && config.account_visibility && config.admin_users == ["alice", "bob"]);
        assert_eq!(config.watched_users(), [crate::Who::All]);
    }
}
