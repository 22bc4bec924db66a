//! `relay service` and scopes of systemd, with stand-ins for its programs on the `PATH`.

use super::{Home, started, stderr};
use std::fs;
use std::io::BufRead;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

/// Notes its arguments, and answers as systemd does for a service that runs.
const SYSTEMCTL: &str = r#"#!/bin/sh
echo "$*" >> "$HOME/calls"
unit="$HOME/.config/systemd/user/nodeglass.service"
[ -e "$unit" ] || unit=
case "$2" in show)
    printf 'ActiveState=active\nSubState=running\nResult=success\nMainPID=4711\nExecMainStatus=0\nFragmentPath=%s\n' "$unit" ;;
esac
"#;
/// Has no bus, as in a shell of su.
const NO_BUS: &str = "#!/bin/sh\necho 'Failed to connect to bus: No medium found' >&2\nexit 1\n";
const LOGINCTL: &str = "#!/bin/sh\necho Linger=no\n";

/// A home with a `PATH` of stand-ins alone; without one of systemctl if that is empty.
struct Machine(Home);

impl Machine {
    fn new(systemctl: &str) -> Self {
        let machine = Self(Home::new());
        let bin = machine.0.path().join("bin");
        fs::create_dir(&bin).unwrap();
        for (name, text) in [("systemctl", systemctl), ("loginctl", LOGINCTL)] {
            if !text.is_empty() {
                fs::write(bin.join(name), text).unwrap();
                fs::set_permissions(bin.join(name), PermissionsExt::from_mode(0o755)).unwrap();
            }
        }
        machine
    }

    fn service(&self, args: &[&str]) -> Output {
        let mut relay = self.0.relay(&[&["service"], args].concat());
        relay.env("PATH", self.0.path().join("bin")).env("NODEGLASS_READ_ONLY", "true").output().unwrap()
    }

    fn unit(&self) -> std::path::PathBuf {
        self.0.path().join(".config/systemd/user/nodeglass.service")
    }

    fn calls(&self) -> Vec<String> {
        let calls = fs::read_to_string(self.0.path().join("calls")).unwrap_or_default();
        let changes = calls.lines().filter(|call| !call.contains(" show "));
        changes.map(|call| call.trim_start_matches("--user ").to_owned()).collect()
    }
}

fn stdout(output: &Output) -> String {
    assert!(output.status.success(), "{}", stderr(output));
    String::from_utf8(output.stdout.clone()).unwrap()
}

#[test]
fn a_service_is_installed_with_its_settings_described_and_removed() {
    let machine = Machine::new(SYSTEMCTL);
    assert!(stdout(&machine.service(&["status"])).contains("No service is installed"));
    let webhook = "https://example.org/secret";
    let args = ["install", "--bind", "127.0.0.1:8090", "--cpu-max", "50%", "--notify-webhook", webhook];
    let text = stdout(&machine.service(&args));
    assert!(text.contains("It runs (pid 4711)") && text.contains("loginctl enable-linger"), "{text}");
    let unit = fs::read_to_string(machine.unit()).unwrap();
    let start = unit.lines().find(|line| line.starts_with("ExecStart=")).unwrap();
    for word in [env!("CARGO_BIN_EXE_relay"), "--bind=127.0.0.1:8090", "--read-only=true", "--cpu-max=50%%"] {
        assert!(start.contains(&format!("\"{word}\"")), "{word}: {start}");
    }
    // Other users see command lines, and no file of another user's that is private.
    assert!(!start.contains(webhook) && unit.contains(webhook), "{unit}");
    assert_eq!(fs::metadata(machine.unit()).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(machine.calls(), ["daemon-reload", "enable nodeglass.service", "restart nodeglass.service"]);
    let status = stdout(&machine.service(&["status", "--json"]));
    let status: serde_json::Value = serde_json::from_str(&status).unwrap();
    assert_eq!(
        (&status["active"], &status["pid"], &status["lingers"]),
        (&"active".into(), &4711.into(), &false.into())
    );
    assert!(stdout(&machine.service(&["remove"])).contains("removed"));
    assert!(!machine.unit().exists());
    assert_eq!(machine.calls()[3..], ["disable --now nodeglass.service", "daemon-reload"]);
}

#[test]
fn without_a_systemd_of_the_user_nothing_is_installed_and_it_is_said_what_to_do() {
    for (systemctl, why) in
        [(NO_BUS, "log in over SSH rather than by su or sudo"), ("", "this machine has no systemctl")]
    {
        let machine = Machine::new(systemctl);
        let output = machine.service(&["install"]);
        assert_eq!(output.status.code(), Some(1));
        let text = stderr(&output);
        assert!(
            text.contains(why) && text.contains("tmux") && text.trim_end().lines().count() == 1,
            "{text}"
        );
        assert!(!machine.unit().exists());
    }
}

#[test]
fn settings_that_no_service_can_have_are_refused() {
    let machine = Machine::new(SYSTEMCTL);
    let output = machine.service(&["install", "--record", "run.rec"]);
    assert_eq!((output.status.code(), machine.calls().len()), (Some(2), 0));
    assert!(stderr(&output).contains("--record does not go with a service"), "{}", stderr(&output));
}

/// systemd's own check, where it is installed.
#[test]
fn systemd_accepts_the_unit() {
    let machine = Machine::new(SYSTEMCTL);
    let args =
        ["install", "--print", "--cpu-max", "50%", "--memory-max", "500M", "--log-pattern", "a=5% \"$x\"\\d"];
    let unit = machine.0.path().join("nodeglass.service");
    fs::write(&unit, stdout(&machine.service(&args))).unwrap();
    let mut check = Command::new("systemd-analyze");
    let Ok(output) = check.args(["--user", "verify"]).arg(&unit).output() else {
        eprintln!("SKIPPED systemd_accepts_the_unit: systemd-analyze is not installed here");
        return assert!(std::env::var_os("CI").is_none(), "with CI=true that is a failure");
    };
    let said = stderr(&output);
    let complaints: Vec<_> = said.lines().filter(|line| line.contains("nodeglass.service")).collect();
    assert!(complaints.is_empty(), "{said}");
}

/// Notes its arguments; no systemd moves the relay to a scope then.
const BUSCTL: &str = "#!/bin/sh\necho \"$*\" >> \"$HOME/calls\"\n";

#[test]
fn a_scope_is_requested_from_systemd_and_not_claimed_before_it_has_the_relay() {
    let machine = Machine::new(SYSTEMCTL);
    let busctl = machine.0.path().join("bin/busctl");
    fs::write(&busctl, BUSCTL).unwrap();
    fs::set_permissions(&busctl, PermissionsExt::from_mode(0o755)).unwrap();
    fs::create_dir(machine.0.path().join("systemd")).unwrap();
    let mut relay =
        machine.0.relay(&["--demo", "--bind", "127.0.0.1:0", "--cpu-max", "50%", "--memory-max", "500M"]);
    let path = format!("{}:/usr/bin:/bin", machine.0.path().join("bin").display());
    let (running, _, mut lines) = started(relay.env("PATH", path));
    let mut said = String::new();
    while !said.contains("memory is limited") {
        assert_ne!(lines.read_line(&mut said).unwrap(), 0, "{said}");
    }
    let calls = fs::read_to_string(machine.0.path().join("calls")).unwrap();
    let pid = running.0.id();
    let expected = format!(
        "--user --timeout=3 call org.freedesktop.systemd1 /org/freedesktop/systemd1 org.freedesktop.systemd1.Manager \
         StartTransientUnit ssa(sv)a(sa(sv)) nodeglass-{pid}.scope fail 3 PIDs au 1 {pid} CPUQuotaPerSecUSec t 500000 \
         MemoryMax t 524288000 0\n"
    );
    assert_eq!(calls, expected);
    assert!(
        said.contains("50 % of a core by slower sampling") && said.contains("500 MiB by dropping history"),
        "{said}"
    );
    running.end();
}
