//! The relay's command reports an invalid setting in one sentence and does not print its key.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]

use nodeglass_protocol::audit::AuditRecord;
use std::fs;
use std::io::{BufRead, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longer than anything takes that is waited for.
const LONG: Duration = Duration::from_secs(60);

/// A home of its own, so that no setting of the machine's user is seen.
struct Home(TempDir);

impl Home {
    fn new() -> Self {
        let home = tempfile::tempdir().unwrap();
        let private = fs::Permissions::from_mode(0o700);
        fs::set_permissions(home.path(), private).unwrap();
        Self(home)
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn relay(&self, args: &[&str]) -> Command {
        let mut relay = Command::new(env!("CARGO_BIN_EXE_relay"));
        relay.args(args).env_clear().env("HOME", self.path()).env("XDG_RUNTIME_DIR", self.path());
        // Nor a relay of the machine's user, which may be recorded there.
        relay.env("TMPDIR", self.path());
        relay.env("PATH", "/usr/bin:/bin").current_dir(self.path()).stdin(Stdio::null());
        relay
    }

    fn run(&self, args: &[&str]) -> Output {
        self.relay(args).output().unwrap()
    }

    fn configure(&self, text: &str) {
        fs::create_dir_all(self.path().join(".config/nodeglass")).unwrap();
        fs::write(self.path().join(".config/nodeglass/config.toml"), text).unwrap();
    }

    /// The line of `relay config` for a setting.
    fn setting(&self, relay: &mut Command, name: &str) -> String {
        let output = relay.output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let text = String::from_utf8(output.stdout).unwrap();
        let line = text
            .lines()
            .find(|line| line.starts_with(&format!("{name} = ")))
            .unwrap_or_else(|| panic!("{text}"));
        line.replace(self.path().to_str().unwrap(), "HOME")
    }
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

/// A running relay that is ended by its own pid.
struct Running(Child);

impl Running {
    fn end(mut self) {
        let pid = rustix::process::Pid::from_child(&self.0);
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).unwrap();
        assert!(self.0.wait().unwrap().success());
    }
}

impl Running {
    /// Kills it without a chance to store anything.
    fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts the scripted cluster on any free port and reads its link from what it prints.
fn demo(home: &Home) -> (Running, String, BufReader<std::process::ChildStdout>) {
    started(&mut home.relay(&["--demo", "--bind", "127.0.0.1:0"]))
}

fn started(relay: &mut Command) -> (Running, String, BufReader<std::process::ChildStdout>) {
    let mut child = relay.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap());
    let running = Running(child);
    let mut line = String::new();
    while !line.contains("http://") {
        line.clear();
        assert_ne!(lines.read_line(&mut line).unwrap(), 0, "the relay ended without a link");
    }
    let link = line[line.find("http://").unwrap()..].trim().to_owned();
    (running, link, lines)
}

#[test]
fn a_bad_value_is_one_sentence_and_exit_code_two() {
    let home = Home::new();
    for (args, says) in [
        (&["--bind", "0.0.0.0:8080"][..], "--bind: 0.0.0.0:8080 can be reached from other machines"),
        (&["--bind", "nonsense"], "--bind: \"nonsense\" is not an address to listen on"),
        (&["--slurm-interval", "1s"], "--slurm-interval: 1s is too short"),
        (&["--launcher", "telnet"], "--launcher: unknown launcher \"telnet\""),
        (&["--probe", "/nowhere/probe"], "--probe: cannot use the probe \"/nowhere/probe\""),
        (&["--demo", "--local"], "--demo and --local exclude each other"),
        (&["--scenario", "/nowhere.toml"], "--scenario: \"/nowhere.toml\" is neither demo nor large"),
        (&["--user=-x"], "--user: \"-x\" is not a login name"),
        (&["--proxy-user-header", "X-User"], "--proxy-user-header needs --trusted-proxy"),
        (
            &["--trusted-proxy", "root", "--proxy-user-header", "Cookie"],
            "is not a header that can name a user",
        ),
        (&["--config", "/nowhere.toml"], "the configuration file /nowhere.toml cannot be read"),
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        assert!(text.starts_with("relay: ") && text.contains(says), "{args:?}: {text}");
        assert_eq!(text.trim_end().lines().count(), 1, "{text}");
    }
}

#[test]
fn an_unknown_flag_is_met_with_the_one_that_was_meant() {
    let output = Home::new().run(&["--bindd", "127.0.0.1:1"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("did you mean --bind?"), "{}", stderr(&output));
}

#[test]
fn an_unknown_key_in_the_file_is_named_with_its_line() {
    let home = Home::new();
    home.configure("demo = true\nbnid = \"127.0.0.1:1\"\n");
    let output = home.run(&[]);
    assert_eq!(output.status.code(), Some(2));
    let text = stderr(&output);
    assert!(text.contains("config.toml:2: unknown setting \"bnid\"; did you mean \"bind\"?"), "{text}");
}

#[test]
fn output_that_cannot_be_written_is_a_failure_unless_its_reader_closed_it() {
    let home = Home::new();
    let print =
        |stdout: Stdio| home.relay(&["config"]).stdout(stdout).stderr(Stdio::piped()).output().unwrap();
    let full = print(fs::OpenOptions::new().write(true).open("/dev/full").unwrap().into());
    assert_eq!(full.status.code(), Some(1));
    assert!(
        stderr(&full).starts_with("relay: cannot write the output: No space left on device"),
        "{}",
        stderr(&full)
    );
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let closed = print(writer.into());
    assert!(closed.status.success() && closed.stderr.is_empty(), "{}", stderr(&closed));
}

#[test]
fn a_frame_is_printed_where_columns_is_no_number_of_columns() {
    // Where there is no terminal either, crossterm would ask `tput`, which prints `COLUMNS`.
    let home = Home::new();
    let mut top = home.relay(&["top", "--once", "--demo"]);
    let output = top.env("COLUMNS", "65536").env("TERM", "xterm").output().unwrap();
    assert!(output.status.success() && output.stdout.len() > 1_000, "{}", stderr(&output));
}

#[test]
fn the_nearest_layer_wins_and_its_source_is_shown() {
    let home = Home::new();
    // The comments are aligned with those of all settings.
    let interval = |relay: &mut Command| {
        let line = home.setting(relay, "slurm-interval");
        line.split_whitespace().collect::<Vec<_>>().join(" ")
    };
    assert_eq!(interval(&mut home.relay(&["config"])), "slurm-interval = \"15s\" # default");
    home.configure("slurm-interval = \"20s\"\n");
    assert!(interval(&mut home.relay(&["config"])).ends_with("# HOME/.config/nodeglass/config.toml:1"));
    let mut relay = home.relay(&["config"]);
    assert_eq!(
        interval(relay.env("NODEGLASS_SLURM_INTERVAL", "30s")),
        "slurm-interval = \"30s\" # environment"
    );
    let mut relay = home.relay(&["config", "--slurm-interval", "40s"]);
    let line = interval(relay.env("NODEGLASS_SLURM_INTERVAL", "30s"));
    assert_eq!(line, "slurm-interval = \"40s\" # command line");
}

#[test]
fn a_flag_overrides_a_switch_of_the_file() {
    let home = Home::new();
    home.configure("demo = true\n");
    assert!(home.setting(&mut home.relay(&["config"]), "demo").starts_with("demo = true "));
    assert!(home.setting(&mut home.relay(&["config", "--demo=false"]), "demo").starts_with("demo = false "));
}

#[test]
fn several_addresses_may_be_given() {
    let home = Home::new();
    let mut relay = home.relay(&["config", "--bind", "127.0.0.1:1,[::1]:1", "--bind", "localhost:2"]);
    let line = home.setting(&mut relay, "bind");
    assert!(line.starts_with("bind = [\"127.0.0.1:1\", \"[::1]:1\", \"localhost:2\"]"), "{line}");
}

#[test]
fn config_prints_a_valid_configuration_file() {
    let home = Home::new();
    let first = home.run(&["config", "--bind", "127.0.0.1:1,[::1]:1", "--demo"]);
    home.configure(std::str::from_utf8(&first.stdout).unwrap());
    let values = |output: &Output| -> Vec<String> {
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        text.lines().map(|line| line.split("  #").next().unwrap().trim().to_owned()).collect()
    };
    let second = home.run(&["config"]);
    assert!(second.status.success(), "{}", stderr(&second));
    assert_eq!(values(&first), values(&second));
}

#[test]
fn every_variable_is_named_after_its_setting() {
    let settings = nodeglass_config::settings();
    assert_eq!(settings.len(), 48);
    for setting in settings {
        let name = setting.get_long().unwrap().to_ascii_uppercase().replace('-', "_");
        assert_eq!(setting.get_env().unwrap().to_str().unwrap(), format!("NODEGLASS_{name}"));
    }
}

#[test]
fn a_running_relay_prints_its_link_again_for_its_owner_only() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    assert!(link.starts_with("http://127.0.0.1:") && link.contains("/?v=") && link.contains("#k="), "{link}");
    let output = home.run(&["link"]);
    assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), link);

    let dir = home.path().join("nodeglass");
    assert_eq!(dir.metadata().unwrap().mode() & 0o7777, 0o700);
    let files: Vec<_> = fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    // The key file and the socket.
    assert_eq!(files.len(), 2);
    assert!(files.iter().all(|file| file.metadata().unwrap().mode() & 0o777 == 0o600), "{files:?}");

    // The key is in no place where other users, or this one's logs, would find it.
    let key = link.split_once("#k=").unwrap().1;
    let pid = relay.0.id();
    for file in ["cmdline", "environ"] {
        let text = fs::read(format!("/proc/{pid}/{file}")).unwrap();
        assert!(!String::from_utf8_lossy(&text).contains(key), "{file}");
    }
    relay.end();
    assert_eq!(fs::read_dir(&dir).unwrap().count(), 0);
    let output = home.run(&["link"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("no relay of yours is running on this machine"), "{}", stderr(&output));
}

#[test]
fn each_relay_has_its_own_socket_that_no_other_user_can_impersonate() {
    use std::io::{Read, Write};
    let home = Home::new();
    let (relay, _link, mut lines) = demo(&home);
    let path = home.path().join(format!("nodeglass/{}.sock", relay.0.id()));
    let output_text: String = (0..3).fold(String::new(), |mut output_text, _| {
        lines.read_line(&mut output_text).unwrap();
        output_text
    });
    assert!(
        output_text.contains(&format!(":{} ", path.display())),
        "the tunnel command is printed: {output_text}"
    );
    let mut stream = std::os::unix::net::UnixStream::connect(&path).unwrap();
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:8080\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 ") && reply.ends_with("ok\n"), "{reply}");
    relay.end();
    assert!(!path.exists());
}

#[test]
fn a_second_relay_finds_the_first_and_doubles_nothing() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    for same in [&["--demo", "--bind", "127.0.0.1:0"][..], &["--demo"], &["--scenario", "demo"]] {
        let second = home.run(same);
        let output_text = String::from_utf8_lossy(&second.stdout);
        assert!(second.status.success(), "{same:?}: {}", stderr(&second));
        assert!(output_text.contains(&link) && output_text.contains("ssh -L "), "{output_text}");
        let already = format!("already running (pid {}, up ", relay.0.id());
        assert!(output_text.contains(&already) && output_text.contains(" --new"), "{output_text}");
    }
    // A second relay starts on request, and both are listed afterwards, each with what it shows.
    let mut new = home.relay(&["--demo", "--new", "--bind", "127.0.0.1:0"]);
    let (another, other, _more) = started(&mut new);
    assert_ne!(link, other);
    let output = home.run(&["link"]);
    let output_text = String::from_utf8_lossy(&output.stdout);
    for (relay, link) in [(&relay, &link), (&another, &other)] {
        let (pid, address) = (format!(" pid {} ", relay.0.id()), link.split('/').nth(2).unwrap());
        let line =
            output_text.lines().find(|line| line.contains(&pid)).unwrap_or_else(|| panic!("{output_text}"));
        assert!(line.contains(address) && line.contains(" since "), "{line}");
        assert!(output_text.lines().any(|line| line.trim() == link), "{output_text}");
        let one = home.run(&["link", "--relay", &relay.0.id().to_string()]);
        assert_eq!(String::from_utf8_lossy(&one.stdout).trim(), link);
    }
    // Which of them a command is for must be said.
    for command in [&["share", "list"][..], &["link", "--tab"], &["retry"]] {
        let output = home.run(command);
        assert_eq!(output.status.code(), Some(1), "{command:?}");
        assert!(stderr(&output).contains("choose one with --relay PID"), "{}", stderr(&output));
        let pid = another.0.id().to_string();
        let named = home.run(&[command, &["--relay", &pid]].concat());
        assert!(named.status.success(), "{command:?}: {}", stderr(&named));
    }
    for relay in [relay, another] {
        relay.end();
    }
}

#[test]
fn a_start_that_requests_something_else_than_the_running_relay_is_refused() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    for (args, difference) in [
        (&[][..], "your SLURM jobs"),
        (&["--local"], "this machine"),
        (&["--demo", "--read-only"], "--read-only  false"),
        (&["--demo", "--bind", "127.0.0.1:1"], "--bind  127.0.0.1:0"),
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}: {}", stderr(&output));
        let text = stderr(&output);
        assert!(output.stdout.is_empty() && !text.contains(&link), "the link is withheld: {text}");
        assert!(text.contains(difference), "{args:?}: {text}");
        assert!(text.contains(&format!("`kill {}`", relay.0.id())) && text.contains("--new"), "{text}");
    }
    // A setting in the file requests it, too.
    home.configure("user = \"nobody\"\n");
    assert!(stderr(&home.run(&[])).contains("nobody's SLURM jobs"));
    assert!(home.run(&["--demo"]).status.success());
    relay.end();
}

#[test]
fn bash_completes_commands_and_their_options() {
    let home = Home::new();
    let script = home.run(&["completions", "bash"]).stdout;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), script).unwrap();
    let complete = |words: &str, at: usize| {
        let text = "source \"$0\"; COMP_WORDS=($1); COMP_CWORD=$2; _relay relay \"${COMP_WORDS[$2]}\" \"${COMP_WORDS[$2-1]}\"; echo \"${COMPREPLY[*]}\"";
        let mut bash = std::process::Command::new("bash");
        let output =
            bash.args(["-euc", text]).arg(file.path()).args([words, &at.to_string()]).output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    };
    assert_eq!(complete("relay sh", 1), "share");
    assert_eq!(complete("relay share cr", 2), "create");
    assert_eq!(complete("relay share create --exp", 3), "--expires");
    assert_eq!(complete("relay doctor --launch", 2), "--launcher");
}

#[test]
fn doctor_explains_an_invalid_file_and_checks_the_rest() {
    let home = Home::new();
    home.configure("bindd = \"x\"\n");
    let output = home.run(&["doctor", "--json"]);
    let report: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{report:#}");
    let results = report["results"].as_array().unwrap();
    assert!(results[0]["text"].as_str().unwrap().contains("did you mean \"bind\"?"), "{report:#}");
    assert!(results.iter().any(|result| result["check"] == "running relay"), "{report:#}");
    assert_eq!(home.run(&["doctor", "not a node"]).status.code(), Some(2));
}

#[test]
fn the_help_is_grouped_and_names_no_placeholder_of_switches() {
    let home = Home::new();
    let help = |args: &[&str]| String::from_utf8(home.run(args).stdout).unwrap();
    for short in ["-h", "--help"] {
        let text = help(&["--demo=false", short]);
        for heading in [
            "See GPUs and jobs:",
            "After a job:",
            "Listen:",
            "What to watch:",
            "Nodes:",
            "Access:",
            "Behind a proxy:",
        ] {
            assert!(text.lines().any(|line| line == heading), "{heading} {text}");
        }
        assert!(!text.contains("BOOL") && text.contains("--persist-shares"), "{text}");
        for setting in nodeglass_config::settings() {
            assert!(text.contains(&format!("--{}", setting.get_long().unwrap())), "{text}");
        }
    }
    let link = help(&["link", "--help"]);
    assert!(link.starts_with("Print the link") && link.contains("Usage: relay link"), "{link}");
    assert!(!link.contains("--bind"), "only its own options: {link}");
    assert!(help(&["share", "--help"]).contains("Usage: relay share"));
    assert!(help(&["share", "create", "--help"]).contains("Usage: relay share create"));
    assert_eq!(help(&["help", "share", "create"]), help(&["share", "create", "--help"]));
    assert!(help(&["history", "export", "--help"]).contains("Usage: relay history export"));
    // The banner and the version agree.
    assert!(help(&["-V"]).starts_with("nodeglass "), "{}", help(&["-V"]));
}

#[test]
fn a_command_that_does_not_exist_is_answered_with_what_to_do() {
    let home = Home::new();
    let (relay, _link, _lines) = demo(&home);
    let pid = relay.0.id();
    for (args, says) in [
        (&["stop"][..], format!("press Ctrl-C in the relay's terminal, or run `kill {pid}`")),
        (&["--port", "9"], "use --bind 127.0.0.1:9".to_owned()),
        (&["frobnicate"], "there is no command frobnicate".to_owned()),
    ] {
        let output = home.run(args);
        assert_eq!(output.status.code(), Some(2), "{args:?}");
        let text = stderr(&output);
        assert!(text.starts_with("relay: ") && text.contains(&says) && text.lines().count() == 1, "{text}");
    }
    relay.end();
}

#[test]
fn t14_no_command_repeats_control_characters_of_its_arguments() {
    let home = Home::new();
    let evil = "x\x1b]0;owned\x07\u{9b}31m\u{202e}y";
    let path = home.path().join(evil).to_str().unwrap().to_owned();
    let folder = format!("{path}/");
    fs::create_dir(&folder).unwrap();
    for args in [
        &[evil][..],
        &["help", evil],
        &["report", evil],
        &["jobs", "--of", evil],
        &["findings", evil],
        &["wait", evil],
        &["note", "--job", evil, evil],
        &["notify", evil],
        &["share", evil],
        &["record", "cut", &path, "--job", evil, "--out", &path],
        &["doctor", evil],
        &["config", "--log", evil],
        &["config", "--config", &folder],
        &["--config", &path],
        &["--replay", &path],
        &["--demo", &path],
        &["--bind", evil],
        &["--tls-cert", evil, "--tls-key", evil],
    ] {
        let output = home.run(args);
        let shown = format!("{}{}", String::from_utf8_lossy(&output.stdout), stderr(&output));
        let is_harmful = |letter: char| letter == '\u{202e}' || letter.is_control() && letter != '\n';
        assert!(!shown.is_empty() && !shown.contains(is_harmful), "{args:?}: {shown:?}");
    }
}

#[test]
fn a_port_in_use_is_reported_with_two_remedies() {
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap().to_string();
    let output = Home::new().run(&["--demo", "--bind", &addr]);
    assert_eq!(output.status.code(), Some(1));
    let text = stderr(&output);
    assert!(text.contains(&format!("{addr} is already in use")), "{text}");
    assert!(text.contains("`relay link`") && text.contains("--bind 127.0.0.1:"), "{text}");
}

#[test]
fn a_configuration_that_others_could_have_written_is_refused() {
    let home = Home::new();
    home.configure("demo = true\n");
    let (file, folder) =
        (home.path().join(".config/nodeglass/config.toml"), home.path().join(".config/nodeglass"));
    let mode = |path: &Path, mode| fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    for (path, wrong, right) in [(&file, 0o666, 0o644), (&folder, 0o777, 0o755)] {
        mode(path, wrong);
        let output = home.run(&["config"]);
        assert_eq!(output.status.code(), Some(2));
        let text = stderr(&output);
        assert!(text.contains(&format!("{} can be written to by others", path.display())), "{text}");
        mode(path, right);
        assert!(home.run(&["config"]).status.success());
    }
    if std::os::unix::fs::chown(&file, Some(65_534), None).is_ok() {
        assert!(stderr(&home.run(&["config"])).contains("another user (uid 65534)"));
        let named = home.run(&["config", "--config", file.to_str().unwrap()]);
        assert!(stderr(&named).contains("another user"), "by name, too: {}", stderr(&named));
    }
}

#[test]
fn an_unused_certificate_is_an_error() {
    let home = Home::new();
    let output = home.run(&["--demo", "--tls-cert", "a.pem", "--tls-key", "b.pem", "--bind", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("--tls-cert and --tls-key would not be used"), "{}", stderr(&output));
}

#[test]
fn a_socket_in_a_folder_of_others_is_refused() {
    let home = Home::new();
    let folder = home.path().join("project");
    fs::create_dir(&folder).unwrap();
    for (mode, way) in [(0o777, "can be written to by others (mode 0777)"), (0o1777, "(mode 1777)")] {
        fs::set_permissions(&folder, fs::Permissions::from_mode(mode)).unwrap();
        let bind = format!("unix:{}/relay.sock", folder.display());
        let output = home.run(&["--demo", "--bind", &bind]);
        assert_eq!(output.status.code(), Some(1), "{mode:o}");
        let text = stderr(&output);
        assert!(text.contains(way) && text.contains("choose a folder that only you can write to"), "{text}");
        assert!(!folder.join("relay.sock").exists());
    }
}

#[test]
fn localhost_reaches_the_relay_over_ipv6_or_the_owner_is_warned() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    let port: u16 = link.split([':', '/', '#']).find_map(|part| part.parse().ok()).unwrap();
    let Ok(mut stream) = std::net::TcpStream::connect(("::1", port)) else {
        assert!(std::net::TcpListener::bind("[::1]:0").is_err(), "[::1]:{port} is left to others");
        return;
    };
    use std::io::{Read, Write};
    stream.write_all(b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    assert!(reply.ends_with("ok\n"), "{reply}");
    relay.end();
    // Somebody else is there first.
    let taken = std::net::TcpListener::bind("[::1]:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    let mut command = home.relay(&["--demo", "--bind", &format!("127.0.0.1:{port}")]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut output_text = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut output_text).unwrap();
    Running(child).end();
    assert!(output_text.contains(&format!("another program listens on [::1]:{port}")), "{output_text}");
}

#[test]
fn a_link_for_one_tab_is_made_by_the_running_relay_and_differs_each_time() {
    let home = Home::new();
    let (relay, link, _lines) = demo(&home);
    let tab = || String::from_utf8(home.run(&["link", "--tab"]).stdout).unwrap();
    let (one, other) = (tab(), tab());
    let address = link.split('#').next().unwrap();
    assert!(one.starts_with(&format!("{address}#t=")) && one.lines().count() == 1, "{one}");
    assert!(one != other && !one.contains(link.split_once("#k=").unwrap().1));
    relay.end();
    assert!(stderr(&home.run(&["link", "--tab"])).contains("no relay of yours is running"));
}

#[test]
fn a_runtime_directory_that_is_a_link_stops_the_relay() {
    let (home, elsewhere) = (Home::new(), Home::new());
    std::os::unix::fs::symlink(elsewhere.path(), home.path().join("nodeglass")).unwrap();
    let output = home.run(&["--demo", "--bind", "127.0.0.1:0"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("is not a directory"), "{}", stderr(&output));
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0);
}

#[test]
fn the_command_says_what_is_wrong_with_a_webhook() {
    let home = Home::new();
    let stderr = |args: &[&str]| String::from_utf8(home.run(args).stderr).unwrap();
    let why = stderr(&["report", "17", "--webhook", "ftp://example.org/s3cret"]);
    assert!(why.contains("it must begin with https://") && !why.contains("s3cret"), "{why}");
    let why = stderr(&["report", "17", "--webhook", "https://example.org/"]);
    assert!(why.contains("there is no report of job 17"), "{why}");
    let why = stderr(&["--report-webhook", "https://a:b@example.org/s3cret"]);
    assert!(why.contains("must not contain a user name") && !why.contains("s3cret"), "{why}");
}

/// Sends a request to the relay behind a link, with a bearer.
fn request(link: &str, bearer: &str) -> String {
    let (address, _) = link.strip_prefix("http://").unwrap().split_once('/').unwrap();
    let mut stream = std::net::TcpStream::connect(address).unwrap();
    let head = format!(
        "GET /api/v1/picture HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {bearer}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

#[test]
fn a_view_that_a_killed_relay_left_open_has_an_unknown_end() {
    let home = Home::new();
    let start = || started(&mut home.relay(&["--local", "--probe", "/bin/true", "--bind", "127.0.0.1:0"]));
    let audit = |format: &str| {
        let output = home.run(&["audit", "--days", "1", "--format", format]);
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    assert_eq!(audit("text"), "no view and no action was recorded in this time\n");
    let (relay, link, _lines) = start();
    let created = String::from_utf8(home.run(&["share", "create", "--everything"]).stdout).unwrap();
    let ticket =
        created.split_once("#s=").and_then(|(_, rest)| rest.split_whitespace().next()).expect(&created);
    assert!(request(&link, ticket).starts_with("HTTP/1.1 200"));
    // It is written at once, while the view goes on.
    let began = Instant::now();
    while !audit("csv").contains(",open,,") {
        assert!(began.elapsed() < LONG, "{}", audit("csv"));
    }
    relay.kill();
    assert!(audit("csv").contains(",unknown,"), "{}", audit("csv"));
    let (relay, ..) = start();
    let began = Instant::now();
    while !audit("csv").contains(",unknown,") {
        assert!(began.elapsed() < LONG, "{}", audit("csv"));
    }
    assert!(audit("text").contains("at least"), "{}", audit("text"));
    let records: Vec<AuditRecord> = serde_json::from_str(&audit("json")).unwrap();
    assert!(matches!(&records[..], [AuditRecord::View(_), AuditRecord::Action(_)]), "{records:?}");
    relay.end();
}
