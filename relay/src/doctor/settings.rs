//! Checks the configuration: whether it can be read, and which settings are not the default.

use super::CheckResult;
use nodeglass_config::{Config, ConfigError, Effective, Source};

const SECTION: &str = "Settings";
/// Settings whose values may contain secrets.
const SECRET: [&str; 5] = ["report-webhook", "notify-webhook", "on-finding", "remote-write", "history-url"];

/// The configuration file, environment and command line.
pub(super) fn check(settings: &Result<(Config, Vec<Effective>), ConfigError>) -> Vec<CheckResult> {
    let effective = match settings {
        Ok((_, effective)) => effective,
        Err(error) => {
            let advice = "correct it; the other checks use the defaults";
            return vec![CheckResult::fail(SECTION, "configuration", error, advice)];
        }
    };
    let mut lines = Vec::new();
    for setting in effective.iter().filter(|setting| setting.source != Source::Default) {
        let value = match SECRET.contains(&setting.name()) {
            true => "…".to_owned(),
            false => setting.value(),
        };
        lines.push(format!("{} = {value} ({})", setting.name(), setting.source));
    }
    if lines.is_empty() {
        lines.push("every setting has its default".to_owned());
    }
    vec![CheckResult::ok(SECTION, "configuration", lines.join("; "))]
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_config::Request;

    #[test]
    fn urls_that_may_contain_keys_are_masked() {
        let urls = SECRET.iter().filter(|name| **name != "on-finding");
        let flags = urls.flat_map(|name| [format!("--{name}"), "http://127.0.0.1:1/s3cret".to_owned()]);
        let line = ["relay", "doctor"].into_iter().map(str::to_owned).chain(flags);
        let Ok(Request::Doctor { settings: Ok((config, effective)), .. }) =
            nodeglass_config::read(line.map(Into::into))
        else {
            panic!("not understood")
        };
        let found = check(&Ok((*config, effective))).remove(0);
        assert!(found.text.contains("remote-write = …") && !found.text.contains("s3cret"), "{found:?}");
    }
}
