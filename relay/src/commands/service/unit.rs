//! The text of the systemd unit of a relay; pure.

use nodeglass_config::ServiceSettings;
use std::fmt::Write as _;
use std::path::Path;

/// Variables that find SLURM, SSH and the home's folders, which systemd does not take over from a login shell.
const VARIABLES: [&str; 5] = ["PATH", "SLURM_CONF", "SSH_AUTH_SOCK", "XDG_CONFIG_HOME", "XDG_STATE_HOME"];

/// Returns the unit that runs `program` on the host named `host`, and only there: login nodes may share a home, and each
/// starts the units that it finds. `variable` reads the environment.
pub(super) fn text(
    program: &Path,
    host: &str,
    settings: &ServiceSettings,
    variable: impl Fn(&str) -> Option<String>,
) -> String {
    let mut out = format!(
        "# `relay service install` writes this file, and `relay service remove` removes it.\n\
         [Unit]\n\
         Description=nodeglass, every GPU of your SLURM jobs in a browser tab\n\
         ConditionHost={host}\n\
         StartLimitIntervalSec=10min\n\
         StartLimitBurst=5\n\
         \n\
         [Service]\n\
         ExecStart={}",
        argument(&program.to_string_lossy())
    );
    // One that was started by hand must not end the service with its link.
    for argument in std::iter::once("--new").chain(settings.arguments.iter().map(String::as_str)) {
        let _ = write!(out, " {}", self::argument(argument));
    }
    out.push('\n');
    let taken = VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?)));
    for (name, value) in taken.chain(settings.environment.iter().cloned()) {
        let _ = writeln!(out, "Environment={}", quoted(&format!("{name}={value}")));
    }
    out.push_str(
        "# Invalid settings do not become valid by another start.\n\
         Restart=on-failure\n\
         RestartSec=10\n\
         RestartPreventExitStatus=2\n\
         KillMode=mixed\n\
         TimeoutStopSec=20\n\
         # Others on this machine come first.\n\
         Nice=5\n\
         IOSchedulingClass=best-effort\n\
         IOSchedulingPriority=7\n\
         OOMScoreAdjust=500\n\
         TasksMax=1024\n\
         LimitCORE=0\n\
         UMask=0077\n\
         # NoNewPrivileges, and what implies it for a user, is left out: ssh-keysign and sendmail would not work.\n",
    );
    if let Some(pct) = settings.cpu_max {
        let _ = writeln!(out, "CPUQuota={pct}%");
    }
    if let Some(bytes) = settings.memory_max {
        let _ = writeln!(out, "MemoryMax={}M", bytes >> 20);
    }
    out.push_str("\n[Install]\nWantedBy=default.target\n");
    out
}

/// A word of a command line, of which systemd replaces no variable.
fn argument(word: &str) -> String {
    quoted(&word.replace('$', "$$"))
}

/// A quoted word, of which systemd replaces nothing.
fn quoted(word: &str) -> String {
    let mut out = String::from('"');
    for letter in word.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '%' => out.push_str("%%"),
            letter if letter.is_control() => {
                let _ = write!(out, "\\u{:04x}", u32::from(letter));
            }
            letter => out.push(letter),
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings() -> ServiceSettings {
        ServiceSettings {
            arguments: vec!["--bind=127.0.0.1:8090".into(), r#"--log-pattern=a=50% of "$x"\d"#.into()],
            environment: vec![("NODEGLASS_NOTIFY_WEBHOOK".into(), "https://example.org/100%".into())],
            cpu_max: Some(50),
            memory_max: Some(500 << 20),
        }
    }

    fn unit(settings: &ServiceSettings) -> String {
        let variable = |name: &str| (name == "PATH").then(|| "/opt/slurm/bin:/usr/bin".to_owned());
        text(Path::new("/home/alice/my tools/relay"), "login1", settings, variable)
    }

    #[test]
    fn the_unit_starts_this_program_with_its_settings_and_restarts_it_on_failure() {
        let unit = unit(&settings());
        for line in [
            r#"ExecStart="/home/alice/my tools/relay" "--new" "--bind=127.0.0.1:8090" "--log-pattern=a=50%% of \"$$x\"\\d""#,
            r#"Environment="PATH=/opt/slurm/bin:/usr/bin""#,
            r#"Environment="NODEGLASS_NOTIFY_WEBHOOK=https://example.org/100%%""#,
            "ConditionHost=login1",
            "Restart=on-failure",
            "CPUQuota=50%",
            "MemoryMax=500M",
            "WantedBy=default.target",
        ] {
            assert!(unit.lines().any(|found| found == line), "{line}: {unit}");
        }
        assert!(!unit.contains("SSH_AUTH_SOCK"), "{unit}");
    }

    #[test]
    fn no_value_adds_a_line_to_the_unit() {
        let hostile = ServiceSettings {
            arguments: vec!["--users=a\nExecStartPre=/bin/false".into()],
            ..ServiceSettings::default()
        };
        assert!(!unit(&hostile).lines().any(|line| line.starts_with("ExecStartPre")));
        assert!(!unit(&ServiceSettings::default()).contains("CPUQuota"));
    }
}
