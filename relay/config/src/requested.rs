//! Settings that a start requests, in a form that can be compared with the record of a running relay.

use super::{BindAddr, Config, Effective, Script, Source, Watch, Who, value};
use nodeglass_access::user;
use std::collections::BTreeMap;
use std::path::Path;

/// Settings that [`Requested::watch`] summarises, and so does not list.
const WATCH_SETTINGS: [&str; 6] = ["demo", "scenario", "local", "users", "user", "view-only"];

/// The requested settings of a start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Requested {
    /// The watched jobs or machines, as shown to the user.
    pub watch: String,
    /// The other settings in canonical form, by name.
    pub settings: BTreeMap<String, String>,
    /// Names of the settings that flag, environment or file set; the others are defaults.
    explicit: Vec<String>,
}

/// A difference between a running relay and a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The flag, or "watching".
    pub name: String,
    /// The running relay's value; `None` for what to watch, which its record describes.
    pub running: Option<String>,
    /// The requested value.
    pub requested: String,
}

impl Requested {
    /// Summarises a configuration and the effective settings that it was parsed from.
    pub fn new(config: &Config, effective: &[Effective]) -> Self {
        let listed = || {
            effective.iter().filter(|setting| !WATCH_SETTINGS.contains(&setting.name())).map(|setting| {
                let values: Vec<_> =
                    setting.values.iter().map(|raw| canonical(setting.name(), raw)).collect();
                (setting, values.join(", "))
            })
        };
        Self {
            watch: watched(config),
            settings: listed().map(|(setting, value)| (setting.name().to_owned(), value)).collect(),
            explicit: listed()
                .filter(|(setting, _)| setting.source != Source::Default)
                .map(|(setting, _)| setting.name().to_owned())
                .collect(),
        }
    }

    /// Compares with a running relay, given what its record says of its own request: what it watches
    /// always counts, a setting only if this request sets it.
    pub fn differences(&self, watch: &str, settings: &BTreeMap<String, String>) -> Vec<Difference> {
        let watch = (watch != self.watch).then(|| Difference {
            name: "watching".to_owned(),
            running: None,
            requested: self.watch.clone(),
        });
        // An older build did not record its settings.
        let recorded = self.explicit.iter().filter(|_| !settings.is_empty());
        let others = recorded.filter_map(|name| {
            let (requested, running) = (&self.settings[name], settings.get(name));
            (running != Some(requested)).then(|| Difference {
                name: format!("--{name}"),
                running: Some(running.cloned().unwrap_or_default()),
                requested: requested.clone(),
            })
        });
        watch.into_iter().chain(others).collect()
    }
}

/// Returns the watched jobs or machines. The name of the user who starts the relay means the same as no name.
fn watched(config: &Config) -> String {
    match config.watch() {
        Watch::Demo(script) => demo(&script),
        Watch::Replay(path) => format!("a recording ({})", absolute(&path)),
        Watch::Others(clusters) if clusters.is_empty() => {
            "what the relays of all clusters publish".to_owned()
        }
        Watch::Others(clusters) => format!("what the relays of {} publish", clusters.join(", ")),
        Watch::Local => "this machine".to_owned(),
        Watch::Auto if config.site => "all SLURM jobs for all users of the site".to_owned(),
        Watch::Auto => format!("{} SLURM jobs", whose(&config.watched_users())),
    }
}

/// The users whose jobs are watched, in words: `your`, `bob's`, `alice's, account ml's`.
pub fn whose(users: &[Who]) -> String {
    let own = rustix::process::getuid().as_raw();
    let one = |who: &Who| match who {
        Who::User(name) if user::uid_of(name) == Some(own) => "your".to_owned(),
        who => who.possessive(),
    };
    if users.is_empty() {
        return "your".to_owned();
    }
    if users.contains(&Who::All) {
        return Who::All.possessive();
    }
    let mut names: Vec<_> = users.iter().map(one).collect();
    names.sort();
    names.dedup();
    names.join(", ")
}

/// A simulated cluster.
pub(crate) fn demo(script: &Script) -> String {
    match script {
        Script::Demo => "a simulated cluster (demo)".to_owned(),
        Script::Large => "a simulated cluster (large)".to_owned(),
        Script::File(path) => format!("a simulated cluster ({})", absolute(path)),
    }
}

/// One spelling for equal values: `localhost:80` is `127.0.0.1:80`, `60` is `1m`, paths are absolute.
fn canonical(name: &str, raw: &str) -> String {
    match name {
        "bind" => raw.parse().map_or_else(|_| raw.to_owned(), |addr: BindAddr| addr.to_string()),
        "slurm-interval" => value::duration(raw)
            .map_or_else(|| raw.to_owned(), |time| humantime::format_duration(time).to_string()),
        "probe" | "hosts" | "tls-cert" | "tls-key" => absolute(Path::new(raw)),
        "read-only" | "persist-shares" => value::switch(raw).map_or(raw.to_owned(), |on| on.to_string()),
        _ => raw.to_owned(),
    }
}

fn absolute(path: &Path) -> String {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned()).display().to_string()
}

#[cfg(test)]
mod tests {
    use super::super::{ReadError, Request, read};
    use super::*;

    /// What `relay` with these arguments requests; no file is read.
    fn requested(line: &str) -> Requested {
        let args = ["relay", "--config", "/dev/null"].into_iter().chain(line.split_whitespace());
        let request = read(args.map(Into::into)).map_err(|error: ReadError| error.to_string());
        let Ok(Request::Run { requested, .. }) = request else { panic!("{line}: {request:?}") };
        requested
    }

    fn differences(running: &str, wanted: &str) -> Vec<(String, Option<String>, String)> {
        let running = requested(running);
        let found = requested(wanted).differences(&running.watch, &running.settings);
        found.into_iter().map(|one| (one.name, one.running, one.requested)).collect()
    }

    #[test]
    fn a_running_demo_is_not_what_a_real_start_requests() {
        let found = differences("--demo", "");
        assert_eq!(found, [("watching".to_owned(), None, "your SLURM jobs".to_owned())]);
        for (running, wanted) in [
            ("", "--demo"),
            ("--demo", "--local"),
            ("--demo", "--scenario large"),
            ("", "--user nobody"),
            ("--user nobody", ""),
            ("", "--users all"),
            ("--users nobody", "--users nobody,daemon"),
        ] {
            assert_eq!(differences(running, wanted).len(), 1, "{running} / {wanted}");
        }
    }

    #[test]
    fn a_query_names_what_it_requests_only_if_its_command_line_does() {
        let chosen = |line: &str| {
            let args = ["relay", "--config", "/dev/null"].into_iter().chain(line.split_whitespace());
            match read(args.map(Into::into)) {
                Ok(Request::Top { requested, .. } | Request::Query { requested, .. }) => {
                    requested.map(|requested| requested.watch)
                }
                other => panic!("{line}: {other:?}"),
            }
        };
        assert_eq!((chosen("top --once"), chosen("jobs --log debug")), (None, None));
        let recording = Some("a recording (/tmp/x.rec)".to_owned());
        for line in ["top --once --replay /tmp/x.rec", "jobs --replay /tmp/x.rec"] {
            assert_eq!(chosen(line), recording, "{line}");
        }
        assert_eq!(chosen("jobs --demo").as_deref(), Some("a simulated cluster (demo)"));
    }

    #[test]
    fn the_same_request_in_other_words_does_not_differ() {
        for (running, wanted) in [
            ("--demo", "--scenario demo"),
            ("--user nobody", "--users nobody"),
            ("--users nobody,daemon", "--users daemon,nobody"),
            ("--users all", "--users all,nobody"),
            ("--bind localhost:8081", "--bind 127.0.0.1:8081"),
            ("--slurm-interval 60", "--slurm-interval 1m"),
            ("--read-only", "--read-only=yes"),
            ("", "--bind 127.0.0.1:8080"),
            ("--probe /dev/../etc/hostname", "--probe /dev/../etc/hostname"),
        ] {
            assert_eq!(differences(running, wanted), [], "{running} / {wanted}");
        }
    }

    #[test]
    fn a_setting_differs_only_if_it_is_requested() {
        assert_eq!(differences("--bind 127.0.0.1:9000 --read-only --log debug", ""), []);
        let found =
            differences("--bind 127.0.0.1:9000 --read-only", "--bind 127.0.0.1:8080 --read-only=false");
        let one = |name: &str, running: &str, requested: &str| {
            (name.to_owned(), Some(running.to_owned()), requested.to_owned())
        };
        assert_eq!(
            found,
            [one("--bind", "127.0.0.1:9000", "127.0.0.1:8080"), one("--read-only", "true", "false")]
        );
        assert_eq!(differences("", "--allowed-host a.example"), [one("--allowed-host", "", "a.example")]);
    }

    #[test]
    fn a_relay_without_a_record_of_its_request_differs() {
        let found = requested("--log debug").differences("", &BTreeMap::new());
        assert_eq!(found.iter().map(|one| one.name.as_str()).collect::<Vec<_>>(), ["watching"]);
    }
}
