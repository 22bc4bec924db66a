//! Checks the way to a node step by step: SSH configuration, name, port, keys, login, shell, home, clock.

use super::{CheckResult, Context, Level, limited};
use nodeglass_config::LauncherChoice;
use nodeglass_launch::openssh::{self, Ran};
use nodeglass_launch::ssh_config::{self, HostSettings, Local};
use nodeglass_launch::target::{SshTarget, Target};
use nodeglass_launch::{LaunchError, keys};
use nodeglass_protocol::{NodeName, Text};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::AsyncReadExt as _;
use tokio::net::{TcpStream, lookup_host};

const SECTION: &str = "Login to the node";
/// Time limit of name resolution and of a connection.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of the keys: the agent has 3 s.
const KEYS: Duration = Duration::from_secs(8);
/// Time limit of a login with our script.
const LOGIN: Duration = Duration::from_secs(25);
/// Seconds of clock skew from which times of the node look wrong, and from which munge rejects credentials.
const SKEW_WARN: i64 = 5;
const SKEW_FAIL: i64 = 300;

/// Delimits our output from the output of login scripts.
const MARK: &str = "\u{1e}NODEGLASS-DOCTOR";
/// Script that the node runs. It has neither single quotes nor `!`, as the user's shell may be csh or fish.
const SCRIPT: &str = "exec sh -c 'printf \"\\036NODEGLASS-DOCTOR\\n\"; echo \"now $(date +%s)\"; \
    t=\"$HOME/.nodeglass-doctor.$$\"; trap \"rm -f \\\"$t\\\"\" EXIT; \
    e=$( { umask 077; { printf \"#\\041/bin/sh\\n\"; head -c 65536 /dev/zero | tr \"\\0\" \"\\n\"; } > \"$t\"; } 2>&1 ) \
    || { echo \"home ${e##*: }\"; exit 0; }; \
    [ $(wc -c < \"$t\") -ge 65536 ] || { echo \"home no space left\"; exit 0; }; \
    chmod 700 \"$t\"; \"$t\" 2>/dev/null || echo noexec; echo \"files $(ulimit -n)\"; echo end'";

/// Returns the target of a node's probe: SSH unless the settings say otherwise.
pub(super) fn target(context: &Context, node: &NodeName) -> Target {
    match context.config.launcher {
        LauncherChoice::Local | LauncherChoice::Srun => Target::ThisMachine,
        _ => Target::Ssh(SshTarget::host(node.as_str())),
    }
}

/// All steps of a login; independent ones go on after a failure.
pub(super) async fn check(context: &Context, node: &NodeName, target: &SshTarget) -> Vec<CheckResult> {
    let local = Local::from_env();
    let settings = match ssh_config::settings(target, None, &local).await {
        Ok(settings) => settings,
        Err(error) => {
            let advice = format!("see that `ssh -G {node}` works");
            return vec![CheckResult::fail(SECTION, "ssh settings", error, advice)];
        }
    };
    let HostSettings { user, hostname, port, .. } = &settings;
    let through = settings.proxy.as_ref().map(|proxy| format!(", through {proxy}")).unwrap_or_default();
    let mut found =
        vec![CheckResult::ok(SECTION, "ssh settings", format!("{user}@{hostname} port {port}{through}"))];
    if settings.proxy.is_none() {
        found.extend(limited((SECTION, "port"), CONNECT * 3, reach(&settings)).await);
    }
    let (keys, login) = tokio::join!(
        limited((SECTION, "keys"), KEYS, list_keys(&settings)),
        limited((SECTION, "login"), LOGIN + CONNECT, login(context, node, settings.clone(), local))
    );
    found.extend(keys);
    found.extend(login);
    found
}

/// Name and port.
async fn reach(settings: &HostSettings) -> Vec<CheckResult> {
    let HostSettings { hostname, port, .. } = settings;
    let names = tokio::time::timeout(CONNECT, lookup_host((hostname.as_str(), *port))).await;
    let addresses: Vec<_> = match names {
        Ok(Ok(addresses)) => addresses.collect(),
        Ok(Err(error)) => {
            let advice = format!(
                "check the name; `getent hosts {hostname}` must print it, or set HostName in ~/.ssh/config"
            );
            return vec![CheckResult::fail(SECTION, "name", format!("{hostname}: {error}"), advice)];
        }
        Err(_) => {
            let text = format!("{hostname}: no answer from the name service within 5 s");
            return vec![CheckResult::fail(SECTION, "name", text, "ask the administrators")];
        }
    };
    let Some(address) = addresses.first() else {
        return vec![CheckResult::fail(
            SECTION,
            "name",
            format!("{hostname} has no address"),
            "check the name",
        )];
    };
    let mut found = vec![CheckResult::ok(SECTION, "name", format!("{hostname} is {}", address.ip()))];
    let advice = "the node is down, or a firewall or jump host is in between; ask the administrators";
    found.push(match tokio::time::timeout(CONNECT, greeting(&addresses)).await {
        Ok(Ok(software)) => CheckResult::ok(SECTION, "port", format!("{port} responds: {software}")),
        Ok(Err(error)) => {
            CheckResult::fail(SECTION, "port", format!("{hostname} port {port}: {error}"), advice)
        }
        Err(_) => CheckResult::fail(
            SECTION,
            "port",
            format!("{hostname} port {port}: no SSH server answered within 5 s"),
            advice,
        ),
    });
    found
}

/// Returns the greeting of the server.
async fn greeting(addresses: &[std::net::SocketAddr]) -> std::io::Result<Text> {
    let mut bytes = [0; 255];
    let count = TcpStream::connect(addresses).await?.read(&mut bytes).await?;
    let line = bytes[..count].split(|byte| *byte == b'\n').next().unwrap_or_default();
    match line.starts_with(b"SSH-") {
        true => Ok(Text::from_bytes(line)),
        // sshd says so, or closes the connection, beyond MaxStartups.
        false => Err(std::io::Error::other(format!(
            "no SSH server, or one with too many logins at once (MaxStartups): {:?}",
            Text::from_bytes(line).as_str()
        ))),
    }
}

async fn list_keys(settings: &HostSettings) -> Vec<CheckResult> {
    let keys = keys::list(settings).await;
    let names = keys.files.iter().map(|(path, state)| format!("{} ({state})", path.display()));
    let mut parts: Vec<_> = names.collect();
    parts.push(match &keys.agent {
        None => "no agent".to_owned(),
        Some(Ok(1)) => "an agent with 1 key".to_owned(),
        Some(Ok(count)) => format!("an agent with {count} keys"),
        Some(Err(error)) => format!("an agent that does not respond ({error})"),
    });
    let text = parts.join(", ");
    vec![match keys.is_any_usable() {
        true => CheckResult::ok(SECTION, "keys", text),
        false => CheckResult::warn(
            SECTION,
            "keys",
            text,
            "no key can be used; if the site has no other way to log in, load one with `ssh-add`, or create one with \
             `ssh-keygen -t ed25519` and append its .pub to ~/.ssh/authorized_keys",
        ),
    }]
}

/// Logs in as the relay would, and asks the node.
async fn login(context: &Context, node: &NodeName, settings: HostSettings, local: Local) -> Vec<CheckResult> {
    let advice = format!("install OpenSSH's client, to test `ssh {node}`");
    let before = now();
    let ran = match openssh::run(settings, local, SCRIPT, LOGIN).await {
        Ok(ran) => ran,
        Err(error) if !openssh::is_installed() => {
            return vec![CheckResult::warn(SECTION, "login", error, advice)];
        }
        Err(error) => return vec![refusal(node, &error)],
    };
    let mut found = vec![match &ran.key {
        Some(key) => CheckResult::ok(SECTION, "login", format!("accepted the key {key}")),
        None => CheckResult::ok(SECTION, "login", "accepted"),
    }];
    found.extend(answers(&ran, &context.machine, node, before, now()));
    found
}

/// Returns why a login failed, with the advice of the launchers.
pub(super) fn refusal(node: &NodeName, error: &LaunchError) -> CheckResult {
    let (check, advice) = match error {
        LaunchError::HostKey { advice, .. } => ("host key", advice.to_string()),
        LaunchError::Auth { advice, .. } | LaunchError::Hangs { advice, .. } => ("login", advice.to_string()),
        LaunchError::Capability { advice, .. } | LaunchError::Incompatible { advice, .. } => {
            ("login", advice.to_string())
        }
        LaunchError::Denied { .. } => (
            "login",
            format!(
                "with pam_slurm_adopt, {node} admits you while a job of yours runs there: check `squeue --me -w {node}`"
            ),
        ),
        LaunchError::Unreachable { .. } => ("login", format!("see that `ssh {node}` works from here")),
        LaunchError::Throttled { .. } => (
            "login",
            format!(
                "wait a minute; if it persists, ask the administrators for MaxStartups and PerSourcePenalties of {node}"
            ),
        ),
        LaunchError::Probe { .. } => {
            ("login", format!("see that `ssh {node} true` prints nothing and succeeds"))
        }
    };
    match is_session_refused(&error.to_string()) {
        true => CheckResult::fail(SECTION, "sessions", error, MAX_SESSIONS),
        false => CheckResult::fail(SECTION, check, error, advice),
    }
}

const MAX_SESSIONS: &str = "the login succeeded, but the server admits no session in it: MaxSessions in its sshd_config is too \
    small, or forbids commands; close your other sessions on that connection (`ssh -O exit NODE`), or ask the administrators";

/// Returns whether the server refused a session on a connection that it had admitted, in the words of OpenSSH and libssh2.
fn is_session_refused(error: &str) -> bool {
    const REFUSED: [&str; 6] = [
        // OpenSSH: its own connection, and a shared one.
        "open failed: connect failed: open failed",
        "administratively prohibited",
        "session open refused",
        "session request failed",
        // libssh2: LIBSSH2_ERROR_CHANNEL_FAILURE.
        "channel open failure",
        "session(-21)",
    ];
    let error = error.to_ascii_lowercase();
    // A jump host uses the same words where it does not forward.
    !error.contains("stdio forwarding failed") && REFUSED.iter().any(|words| error.contains(words))
}

/// Results about a login that the relay does without, where it starts the probe with srun: no failures then.
pub(super) fn without_login(mut results: Vec<CheckResult>, is_started_by_srun: bool) -> Vec<CheckResult> {
    for result in results.iter_mut().filter(|result| is_started_by_srun && result.level == Level::Fail) {
        result.level = Level::Warn;
        let instead =
            "nothing for nodes of your jobs: the relay starts its probes there with srun; otherwise";
        result.advice = Some(match &result.advice {
            Some(advice) => format!("{instead}: {advice}"),
            None => instead.trim_end_matches("; otherwise").to_owned(),
        });
    }
    results
}

fn now() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

/// Checks whether the relay can upload its probe to the home directory, by the node's response.
fn home(answers: &str, node: &NodeName) -> CheckResult {
    let has = |word: &str| answers.lines().any(|line| line == word);
    let other = "the relay uploads its probe to another folder there (/run/user, /tmp or /dev/shm)";
    match answers.lines().find_map(|line| line.strip_prefix("home ")) {
        Some(why) => CheckResult::warn(
            SECTION,
            "home",
            format!("cannot be written: {}", Text::new(why)),
            format!("{}; meanwhile {other}", home_remedy(why)),
        ),
        None if has("noexec") => CheckResult::warn(
            SECTION,
            "home",
            "programs cannot be run from there (mounted noexec)",
            format!("nothing: {other}"),
        ),
        None if has("end") => CheckResult::ok(SECTION, "home", "writable, and programs run from there"),
        None => CheckResult::fail(
            SECTION,
            "home",
            "the node's response is incomplete",
            format!(
                "a quota, a limit of the session or a hanging file system may have ended our command; try `ssh {node}`"
            ),
        ),
    }
}

/// Checks the node's response to [`SCRIPT`] between two times of this machine.
fn answers(ran: &Ran, machine: &Text, node: &NodeName, before: i64, after: i64) -> Vec<CheckResult> {
    let output = String::from_utf8_lossy(&ran.output);
    let Some((noise, answers)) = output.split_once(MARK) else {
        let printed = [Text::new(output.trim()), ran.end.stderr.clone()].map(|text| text.to_string());
        let printed = printed.into_iter().filter(|text| !text.is_empty()).collect::<Vec<_>>().join("; ");
        let text = format!("its shell did not run our command: {printed}");
        return vec![CheckResult::fail(
            SECTION,
            "shell",
            text,
            format!("see that `ssh {node} true` succeeds"),
        )];
    };
    let mut found = vec![match noise.trim() {
        "" => CheckResult::ok(SECTION, "shell", "prints nothing of its own"),
        noise => CheckResult::warn(
            SECTION,
            "shell",
            format!("prints before a command's output: {:?}", Text::new(noise).as_str()),
            "the relay skips it, other tools may not; print in ~/.bashrc or ~/.cshrc in interactive shells only: \
             `case $- in *i*) ;; *) return;; esac`",
        ),
    }];
    let of = |key: &str| answers.lines().find_map(|line| line.strip_prefix(key));
    found.push(home(answers, node));
    if let Some(files) = of("files ") {
        found.push(CheckResult::ok(SECTION, "limits", format!("{} open files", Text::new(files))));
    }
    if let Some(there) = of("now ").and_then(|raw| raw.trim().parse().ok()) {
        found.push(clock(there, before, after, machine, node));
    }
    found
}

/// Returns the remedy for a home directory that cannot be written, by the message of the node's C library.
fn home_remedy(why: &str) -> &'static str {
    let why = why.to_ascii_lowercase();
    if why.contains("quota") {
        "your quota is used up: `quota -s` (`lfs quota` on Lustre, `mmlsquota` on GPFS) says of what; delete files"
    } else if why.contains("no space") {
        "the file system is full: free space, or tell the administrators"
    } else if why.contains("read-only") {
        "the file system is mounted read-only: ask the administrators"
    } else {
        "check its owner, its mode and your quota (`quota -s`)"
    }
}

/// Compares the clocks; the node's was read between `before` and `after`.
fn clock(there: i64, before: i64, after: i64, machine: &Text, node: &NodeName) -> CheckResult {
    let skew = there.saturating_sub(there.clamp(before, after));
    let (level, remedy) = match skew.saturating_abs() {
        SKEW_FAIL.. => {
            (Level::Fail, "munge rejects credentials of a clock this far off, so SLURM fails too; ")
        }
        SKEW_WARN.. => (Level::Warn, "times of the node's logs and processes are off by this; "),
        _ => return CheckResult::ok(SECTION, "clock", format!("agrees with {machine}'s")),
    };
    let side = if skew > 0 { "ahead of" } else { "behind" };
    let text = format!("{} s {side} {machine}'s", skew.saturating_abs());
    let advice =
        format!("{remedy}ask the administrators to synchronise {node} and {machine} (chronyd, ntpd)");
    CheckResult { advice: Some(advice), ..CheckResult::new(SECTION, "clock", level, text) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_launch::StreamEnd;

    fn found(output: &str) -> Vec<(&'static str, Level, String)> {
        let ran = Ran { output: output.as_bytes().to_vec(), end: StreamEnd::default(), key: None };
        let node = NodeName::new("gpu-01").unwrap();
        let found = answers(&ran, &"login1".into(), &node, 1_000, 1_002);
        found.into_iter().map(|result| (result.check, result.level, result.text)).collect()
    }

    #[test]
    fn f07_a_shell_that_refuses_our_command_is_quoted() {
        let refused = (
            "shell",
            Level::Fail,
            "its shell did not run our command: This account is not available.".to_owned(),
        );
        assert_eq!(found("This account is not available.\n"), [refused]);
    }

    #[test]
    fn too_few_sessions_are_distinguished_from_a_refused_login() {
        let refused = |reason: &str| {
            let node = NodeName::new("n1").unwrap();
            refusal(&node, &LaunchError::Unreachable { why: reason.into() })
        };
        let opened =
            refused("mux_client_request_session: session request failed: Session open refused by peer");
        assert_eq!(opened.check, "sessions");
        assert!(opened.advice.unwrap().contains("MaxSessions"));
        for reason in [
            "channel 0: open failed: connect failed: open failed",
            "channel 0: open failed: administratively prohibited: open failed",
            "mux_client_request_session: session request failed: Session open refused by peer",
            "[Session(-21)] Channel open failure (connect failed)",
        ] {
            assert_eq!(refused(reason).check, "sessions", "{reason}");
        }
        for reason in [
            "Connection refused",
            "channel 0: open failed: connect failed: Connection refused",
            "channel 0: open failed: administratively prohibited: open failed; stdio forwarding failed",
        ] {
            assert_eq!(refused(reason).check, "login", "{reason}");
        }
    }

    #[test]
    fn a_healthy_node_is_all_ok() {
        let found = found("\u{1e}NODEGLASS-DOCTOR\nnow 1001\nfiles 1024\nend\n");
        assert!(found.iter().all(|(_, level, _)| *level == Level::Ok) && found.len() == 4, "{found:?}");
    }

    #[test]
    fn noise_a_full_home_and_a_skewed_clock_are_named() {
        let found = found("Welcome!\n\u{1e}NODEGLASS-DOCTOR\nnow 942\nhome No space left on device\n");
        assert_eq!(
            found,
            [
                ("shell", Level::Warn, "prints before a command's output: \"Welcome!\"".into()),
                ("home", Level::Warn, "cannot be written: No space left on device".into()),
                ("clock", Level::Warn, "58 s behind login1's".into()),
            ]
        );
    }

    #[test]
    fn a_used_up_quota_and_a_full_file_system_have_remedies_of_their_own() {
        assert!(home_remedy("Disk quota exceeded").contains("lfs quota"));
        assert!(home_remedy("No space left on device").contains("free space"));
        assert!(home_remedy("Permission denied").contains("quota"));
    }

    #[test]
    fn a_refused_login_is_no_failure_where_srun_starts_the_probe() {
        let login = || {
            vec![
                CheckResult::fail(SECTION, "login", "refused", "ask"),
                CheckResult::ok(SECTION, "port", "22"),
            ]
        };
        assert_eq!(without_login(login(), false), login());
        let found = without_login(login(), true);
        assert_eq!((found[0].level, found[1].level), (Level::Warn, Level::Ok));
        assert!(
            found[0]
                .advice
                .as_ref()
                .is_some_and(|advice| advice.contains("with srun") && advice.ends_with("ask"))
        );
    }

    #[test]
    fn a_clock_that_munge_rejects_fails_and_a_node_may_answer_anything() {
        assert_eq!(found("\u{1e}NODEGLASS-DOCTOR\nnow 1302\n")[2].1, Level::Fail);
        assert_eq!(found("\u{1e}NODEGLASS-DOCTOR\nnow -9223372036854775808\n")[2].1, Level::Fail);
        let cut = &found("\u{1e}NODEGLASS-DOCTOR\nnow x\u{1b}[2J")[1];
        assert!(cut.1 == Level::Fail && cut.2.contains("incomplete"), "{cut:?}");
        assert_eq!(found("command not found")[0].1, Level::Fail);
    }
}
