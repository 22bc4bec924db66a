//! Both launchers over SSH at hosts with every kind of configuration: they start a probe, or say the same.

use super::config::{ECHO, LAUNCHERS, User, expect, node, send_line, until};
use super::login::agent;
use super::sshd::{Sshd, keygen};
use nodeglass_launch::auto::AutoLauncher;
use nodeglass_launch::{LaunchError, Launcher, NodeStream};
use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;

/// What must come of a launch: a running probe, or an error of this kind with these words.
enum Outcome {
    Runs,
    Fails(&'static str, &'static str),
}
use Outcome::{Fails, Runs};

/// Launches with both; the first outcome is that of the built-in client.
async fn check(case: &str, user: &User<'_>, probe: &Path, outcomes: [Outcome; 2]) {
    for (name, outcome) in LAUNCHERS.into_iter().zip(outcomes) {
        match (outcome, user.launch_with(name, probe).await) {
            (Runs, Ok(mut stream)) => serves(&mut stream).await,
            (Fails(kind, words), Err(error)) => {
                let (found, text) = described(&error);
                assert!(found == kind && text.contains(words), "{case} with {name}: {error:?}");
            }
            (Runs, Err(error)) => panic!("{case} with {name}: {error:?}"),
            (Fails(kind, _), Ok(_)) => panic!("{case} with {name}: it runs; expected {kind}"),
        }
    }
}

/// Both the same.
async fn check_same(case: &str, user: &User<'_>, outcome: fn() -> Outcome) {
    check(case, user, &user.sshd.script(ECHO), [outcome(), outcome()]).await;
}

async fn serves(stream: &mut NodeStream) {
    expect(stream, "\n").await;
    send_line(stream, "a line").await;
    expect(stream, "got a line\n").await;
}

/// The kind of an error, and its message with the advice.
fn described(error: &LaunchError) -> (&'static str, String) {
    let (kind, why, advice) = match error {
        LaunchError::Auth { why, advice } => ("auth", why, Some(advice)),
        LaunchError::HostKey { why, advice } => ("host key", why, Some(advice)),
        LaunchError::Denied { why } => ("denied", why, None),
        LaunchError::Capability { why, advice } => ("capability", why, Some(advice)),
        LaunchError::Incompatible { why, advice } => ("incompatible", why, Some(advice)),
        LaunchError::Unreachable { why } => ("unreachable", why, None),
        LaunchError::Throttled { why } => ("throttled", why, None),
        LaunchError::Hangs { why, advice } => ("hangs", why, Some(advice)),
        LaunchError::Probe { why } => ("probe", why, None),
    };
    (kind, format!("{why}; {}", advice.map(ToString::to_string).unwrap_or_default()))
}

/// A `Host` block for a jump host `gate`, which is the sshd itself.
fn through_gate(sshd: &Sshd, how: &str) -> String {
    format!("Host gate\n ProxyJump none\n ProxyCommand none\n Port {}\nHost node-1\n {how}\n", sshd.port)
}

#[tokio::test]
async fn jump_hosts_and_proxy_commands_are_left_to_the_users_ssh() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ECHO);
    let command =
        format!("ProxyCommand ssh -F {}/ssh_config -W 127.0.0.1:{} gate", sshd.path("").display(), sshd.port);
    for how in ["ProxyJump gate", &command] {
        let user = User { hosts: through_gate(&sshd, how), ..User::of(&sshd) };
        check(how, &user, &probe, [Fails("capability", "is reached through"), Runs]).await;
    }
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let hosts = format!("Host gate\n Port {closed}\nHost node-1\n ProxyJump gate\n");
    let user = User { hosts, ..User::of(&sshd) };
    let down =
        Fails("unreachable", "node-1 could not be reached through gate: ssh: connect to host 127.0.0.1");
    check("a jump host that is down", &user, &probe, [Fails("capability", "gate"), down]).await;
    let hosts = "Host gate\n UserKnownHostsFile /dev/null\nHost node-1\n ProxyJump gate\n".to_owned();
    let user = User { hosts, ..User::of(&sshd) };
    let unknown = Fails("host key", "node-1 is reached through gate, whose host key was not accepted");
    check("an unknown jump host", &user, &probe, [Fails("capability", "gate"), unknown]).await;
    let other = sshd.path("other_key").display().to_string();
    let hosts =
        format!("Host gate\n IdentityFile {other}\n IdentitiesOnly yes\nHost node-1\n ProxyJump gate\n");
    let user = User { hosts, identity: other, ..User::of(&sshd) };
    let refused = Fails("auth", "node-1 is reached through gate, which refused the login");
    check("a jump host that refuses the key", &user, &probe, [Fails("capability", "gate"), refused]).await;
}

#[tokio::test]
async fn t22_both_launchers_judge_host_keys_alike() {
    let Some(sshd) = Sshd::with_key(|dir| {
        let mut sign = Command::new("ssh-keygen");
        sign.arg("-qs").arg(dir.join("ca_key")).args(["-I", "test", "-h", "-n", "127.0.0.1"]);
        assert!(sign.arg(dir.join("host_key.pub")).status().unwrap().success());
        format!("HostCertificate {}/host_key-cert.pub\n", dir.display())
    }) else {
        return;
    };
    let with = |known_hosts: String| User { known_hosts, ..User::of(&sshd) };
    let hashed = sshd.write("hashed", &sshd.known_line());
    assert!(Command::new("ssh-keygen").arg("-qHf").arg(&hashed).output().unwrap().status.success());
    let key = sshd.public("host_key");
    for (case, known_hosts) in [
        ("a hashed name", fs::read_to_string(&hashed).unwrap()),
        ("a pattern", format!("[127.0.0.*]:{} {key}\n", sshd.port)),
        ("a certificate", format!("@cert-authority [127.0.0.*]:* {}\n", sshd.public("ca_key"))),
    ] {
        check_same(case, &with(known_hosts), || Runs).await;
    }
    let unknown = || Fails("host key", "is not known (SHA256:");
    check_same("an unknown host", &with(String::new()), unknown).await;
    let changed = format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.public("other_key"));
    let not_the_one = || Fails("host key", "known_hosts line 1; this can be an attack");
    check_same("a changed key", &with(changed), not_the_one).await;
    let revoked = format!("{}@revoked * {key}\n", sshd.known_line());
    check_same("a revoked key", &with(revoked), || Fails("host key", "is revoked")).await;
    let extra = format!("RevokedHostKeys {}", sshd.path("host_key.pub").display());
    let listed = User { extra, ..User::of(&sshd) };
    let outcomes = [Fails("capability", "RevokedHostKeys"), Fails("host key", "is revoked")];
    check("a list of revoked keys", &listed, &sshd.script(ECHO), outcomes).await;
}

#[tokio::test]
async fn both_launchers_explain_refused_logins_alike() {
    let Some(sshd) = Sshd::start() else { return };
    let with = |key: &str| User { identity: sshd.path(key).display().to_string(), ..User::of(&sshd) };
    let refused = || Fails("auth", "node-1 did not accept your key for user");
    check_same("another key", &with("other_key"), refused).await;
    keygen(&sshd.path("locked"), &["-N", "secret"]);
    fs::copy(sshd.path("locked.pub"), sshd.path("authorized_keys")).unwrap();
    check_same("a locked key", &with("locked"), || Fails("auth", "has a passphrase and no SSH agent")).await;
    check_same("no key", &with("missing"), || Fails("auth", "there is no key to log in to node-1 with"))
        .await;
    let Some(no_keys) = Sshd::with("PubkeyAuthentication no\nKbdInteractiveAuthentication yes\n") else {
        return;
    };
    let by_hand =
        [Fails("capability", "only keyboard-interactive"), Fails("capability", "ControlMaster=yes")];
    check("no keys", &User::of(&no_keys), &no_keys.script(ECHO), by_hand).await;
}

#[tokio::test]
async fn an_agent_with_many_keys_does_not_use_up_the_attempts() {
    let Some(sshd) = Sshd::start() else { return };
    let names: Vec<String> = (0..8).map(|n| format!("agent_{n}")).collect();
    names.iter().for_each(|name| keygen(&sshd.path(name), &[]));
    let others: Vec<&str> = names.iter().map(String::as_str).collect();
    let full = agent(&sshd, &[&others[..], &["user_key"]].concat());
    let user = User { agent: Some(full.1.clone()), ..User::of(&sshd) };
    check_same("the configured key is in the agent", &user, || Runs).await;
    let user = User { identity: "none".into(), ..user };
    let too_many = [
        Fails("auth", "did not accept any of your 5 keys"),
        Fails("auth", "ended the login after 6 keys (MaxAuthTries); specify the right key"),
    ];
    check("no key is configured", &user, &sshd.script(ECHO), too_many).await;
}

#[tokio::test]
async fn what_the_built_in_client_does_not_know_is_left_to_the_users_ssh() {
    for only in [
        "KexAlgorithms sntrup761x25519-sha512@openssh.com",
        "Ciphers aes128-ctr\nMACs umac-128-etm@openssh.com",
    ] {
        let Some(sshd) = Sshd::with(&format!("{only}\n")) else { return };
        let outcomes = [Fails("capability", "no common algorithm"), Runs];
        check(only, &User::of(&sshd), &sshd.script(ECHO), outcomes).await;
        let user =
            User { extra: "KexAlgorithms ecdh-sha2-nistp256\n Ciphers aes256-ctr".into(), ..User::of(&sshd) };
        let neither = [
            Fails("capability", "no common algorithm"),
            Fails("capability", "`ssh` and this host know no common algorithm (no matching"),
        ];
        check(only, &user, &sshd.script(ECHO), neither).await;
    }
    let Some(sshd) = Sshd::with_key(|dir| format!("TrustedUserCAKeys {}/ca_key.pub\n", dir.display())) else {
        return;
    };
    let mut sign = Command::new("ssh-keygen");
    sign.arg("-qs").arg(sshd.path("ca_key")).args(["-I", "test", "-n", &user_name()]);
    assert!(sign.arg(sshd.path("other_key.pub")).status().unwrap().success());
    let user = User { identity: sshd.path("other_key").display().to_string(), ..User::of(&sshd) };
    let outcomes = [Fails("capability", "the built-in SSH has no other credentials"), Runs];
    check("a user certificate", &user, &sshd.script(ECHO), outcomes).await;
}

fn user_name() -> String {
    let id = Command::new("id").arg("-un").output().unwrap().stdout;
    String::from_utf8(id).unwrap().trim().to_owned()
}

#[tokio::test]
async fn f36_hosts_that_limit_logins_are_told_from_hosts_that_are_down_by_either_launcher() {
    let Some(mut sshd) = Sshd::with("MaxStartups 1\n") else { return };
    // Holds the only place, once that of the test sshd's readiness check is free.
    let mut pending = None;
    let is_greeted = || {
        let mut socket = TcpStream::connect(("127.0.0.1", sshd.port)).unwrap();
        let mut greeting = [0; 4];
        let read = socket.read_exact(&mut greeting);
        pending = Some(socket);
        read.is_ok() && greeting == *b"SSH-"
    };
    until("a greeting", is_greeted).await;
    let limited = || Fails("throttled", "is limiting logins at the moment; it said: Exceeded MaxStartups");
    check_same("MaxStartups", &User::of(&sshd), limited).await;
    let penalty =
        || Fails("throttled", "is limiting logins at the moment; it said: Not allowed at this time");
    sshd.port = greets(b"Not allowed at this time\r\n");
    check_same("PerSourcePenalties", &User::of(&sshd), penalty).await;
    sshd.port = greets(b"");
    check_same("MaxStartups before 8.5", &User::of(&sshd), || Fails("throttled", "before it spoke SSH"))
        .await;
    sshd.port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    check_same("a closed port", &User::of(&sshd), || {
        Fails("unreachable", "could not connect to 127.0.0.1 port")
    })
    .await;
    let user = User { hosts: "Host *\n HostName no-such-host.invalid\n".into(), ..User::of(&sshd) };
    check_same("an unknown name", &user, || Fails("unreachable", "no-such-host.invalid was not found")).await;
}

/// A port whose connections are closed after these words.
fn greets(words: &'static [u8]) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    std::thread::spawn(move || {
        for socket in listener.incoming() {
            let _ = socket.and_then(|mut socket| socket.write_all(words));
        }
    });
    port
}

/// Shells, by name; a stand-in accepts what csh and fish have in common with sh, and nothing else.
const STAND_IN: &str = r#"case "$1" in -c) ;; *) exit 2;; esac
case "$2" in *"!"*|*'
'*) echo "stand-in: this is not portable" >&2; exit 2;; esac
rest=${2#exec sh -c \'}; inner=${rest%\'}
case "$inner" in "$2"|*\'*) echo "stand-in: this is not one quoted word" >&2; exit 2;; esac
echo "Welcome to the cluster"; echo "quota: 97%" >&2
exec sh -c "$inner""#;

#[tokio::test]
async fn other_login_shells_and_their_noise_are_no_obstacle() {
    let installed =
        ["/usr/bin/fish", "/usr/bin/tcsh", "/bin/csh"].into_iter().filter(|path| Path::new(path).exists());
    for shell in installed.chain(["stand-in"]) {
        let Some(sshd) = Sshd::with_key(|dir| {
            let path = if shell == "stand-in" { dir.join(shell) } else { shell.into() };
            if shell == "stand-in" {
                fs::write(&path, format!("#!/bin/sh\n{STAND_IN}\n")).unwrap();
                let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
                fs::set_permissions(&path, mode).unwrap();
            }
            format!("ForceCommand exec {} -c \"$SSH_ORIGINAL_COMMAND\"\n", path.display())
        }) else {
            return;
        };
        // Also the upload script.
        let probe = sshd.script(&format!("case $PWD in */bin) exit 4;; esac\n{ECHO}"));
        check(shell, &User::of(&sshd), &probe, [Runs, Runs]).await;
    }
}

#[tokio::test]
async fn both_launchers_fall_back_to_another_folder_or_name_all_reasons() {
    let Some(sshd) = Sshd::start() else { return };
    let uploaded = sshd.script(&format!("case $PWD in */bin) exit 4;; esac\n{ECHO}"));
    for name in LAUNCHERS {
        fs::write(sshd.home().join(".cache"), "a file in the way").unwrap();
        let mut stream = User::of(&sshd).launch_with(name, &uploaded).await.unwrap();
        serves(&mut stream).await;
        drop(stream);
        let put: Vec<_> = fs::read_dir(sshd.path("tmp")).unwrap().flatten().collect();
        assert_eq!(put.len(), 1, "{name}: {put:?}");
        fs::remove_dir_all(put[0].path()).unwrap();
    }
    // As on a full disk: no file may be larger than this (KiB).
    fs::remove_file(sshd.home().join(".cache")).unwrap();
    fs::write(sshd.home().join(".bashrc"), "ulimit -f 100\n").unwrap();
    let large =
        sshd.script(&format!("case $PWD in */bin) exit 4;; esac\n{ECHO}\n{}", "# padding\n".repeat(400_000)));
    let full = || Fails("probe", "the probe could not be copied to the node: ~/.cache/nodeglass: ");
    check("a full disk", &User::of(&sshd), &large, [full(), full()]).await;
    let uid = std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap());
    let _ = fs::remove_dir(format!("/dev/shm/nodeglass-{uid}"));
}

#[tokio::test]
async fn a_probe_that_cannot_run_is_no_reason_to_change_the_launcher() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(
        "echo \"$0: /lib64/libc.so.6: version \\`GLIBC_2.34' not found (required by $0)\" >&2; exit 1",
    );
    let old = || Fails("incompatible", "node-1 has a glibc older than 2.34");
    check("an old C library", &User::of(&sshd), &probe, [old(), old()]).await;
    let ended = || Fails("probe", "the probe exited immediately with status 3: no GPU");
    let probe = sshd.script("echo no GPU >&2; exit 3");
    check("a probe that fails", &User::of(&sshd), &probe, [ended(), ended()]).await;
    // As /usr/sbin/nologin does instead of the probe.
    let refused =
        || Fails("probe", "the login shell ended with status 1 and printed: This account is not available.");
    let probe = sshd.script("echo This account is not available.; exit 1");
    check("a shell that refuses", &User::of(&sshd), &probe, [refused(), refused()]).await;
}

#[tokio::test]
async fn account_rules_that_deny_a_user_are_told_from_a_refused_key() {
    // sshd's PAM rules, in a mount namespace of its own.
    let rules = "account optional pam_echo.so Access denied by pam_slurm_adopt: you have no active jobs on this node\n\
        account required pam_deny.so\n";
    let Some(sshd) = Sshd::with_pam(rules) else { return };
    let outcomes = [
        Fails("denied", "node-1 accepted your key and then denied the login"),
        Fails("denied", "(PAM): Access denied by pam_slurm_adopt: you have no active jobs on this node"),
    ];
    check("pam_slurm_adopt", &User::of(&sshd), &sshd.script(ECHO), outcomes).await;
}

#[tokio::test]
async fn a_site_behind_a_jump_host_is_left_to_the_users_ssh_as_a_whole() {
    let Some(sshd) = Sshd::start() else { return };
    let user = User { hosts: through_gate(&sshd, "ProxyJump gate"), ..User::of(&sshd) };
    let probe = sshd.script(ECHO);
    let auto = AutoLauncher::new(vec![Box::new(user.launcher(&probe)), Box::new(user.openssh(&probe))]);
    let mut status = auto.status();
    assert_eq!((status.borrow_and_update().name.as_str(), auto.name()), ("ssh2", "ssh2"));
    let mut stream = auto.launch(&node()).await.unwrap();
    serves(&mut stream).await;
    assert!(status.has_changed().unwrap());
    let now = status.borrow().clone();
    let reason = "node-1 is reached through gate, which the built-in SSH cannot do";
    assert_eq!((now.name.as_str(), now.reason.as_ref().map(|text| text.as_str())), ("openssh", Some(reason)));
}
