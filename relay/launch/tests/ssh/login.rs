//! Logging in with the user's credentials, and trying refused ones only once.

use super::config::{ECHO, User, expect, send_line};
use super::sshd::{Sshd, keygen};
use nodeglass_launch::LaunchError;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

#[tokio::test]
async fn a_key_file_logs_in_and_lines_flow_both_ways() {
    let Some(sshd) = Sshd::start() else { return };
    let mut stream = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "{\"hello\":1}\n").await;
    send_line(&stream, "first").await;
    expect(&mut stream, "got first\n").await;
    send_line(&stream, "second").await;
    expect(&mut stream, "got second\n").await;
}

#[tokio::test]
async fn keys_of_every_kind_log_in() {
    let Some(sshd) = Sshd::start() else { return };
    for (name, options) in [("rsa", ["-t", "rsa"]), ("ecdsa", ["-t", "ecdsa"]), ("pem", ["-m", "PEM"])] {
        let key = sshd.path(name);
        // The last `-t` applies; PEM is the old format, here of an RSA key.
        let options: Vec<&str> =
            if name == "pem" { options.into_iter().chain(["-t", "rsa"]).collect() } else { options.to_vec() };
        keygen(&key, &options);
        std::fs::copy(sshd.path(&format!("{name}.pub")), sshd.path("authorized_keys")).unwrap();
        let user = User { identity: key.display().to_string(), ..User::of(&sshd) };
        let mut stream = user.launch(&sshd.script(ECHO)).await.unwrap_or_else(|e| panic!("{name}: {e}"));
        expect(&mut stream, "hello").await;
    }
}

/// An agent with some keys, the accepted one last; killed on drop.
pub struct Agent(Child, pub PathBuf);

impl Drop for Agent {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

pub fn agent(sshd: &Sshd, keys: &[&str]) -> Agent {
    let socket = sshd.path("agent");
    let mut command = Command::new("ssh-agent");
    let child = command.arg("-D").arg("-a").arg(&socket).stdout(Stdio::null()).spawn().unwrap();
    let agent = Agent(child, socket.clone());
    while !socket.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    for key in keys {
        let mut add = Command::new("ssh-add");
        add.arg("-q").arg(sshd.path(key)).env("SSH_AUTH_SOCK", &socket).stderr(Stdio::null());
        // The socket exists a moment before the agent listens.
        let is_added = (0..100).any(|_| {
            let added = add.status().unwrap().success();
            if !added {
                std::thread::sleep(Duration::from_millis(50));
            }
            added
        });
        assert!(is_added, "ssh-add {key}");
    }
    agent
}

#[tokio::test]
async fn every_key_of_the_agent_is_tried_and_not_only_the_first() {
    let Some(sshd) = Sshd::start() else { return };
    let agent = agent(&sshd, &["ca_key", "other_key", "user_key"]);
    let user = User { identity: "none".into(), agent: Some(agent.1.clone()), ..User::of(&sshd) };
    let mut stream = user.launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
    send_line(&stream, "after the agent").await;
    expect(&mut stream, "got after the agent").await;
}

#[tokio::test]
async fn a_configured_key_of_the_agent_comes_first_and_identities_only_means_only() {
    let Some(sshd) = Sshd::with("MaxAuthTries 2\n") else { return };
    let agent = agent(&sshd, &["ca_key", "other_key", "host_key", "user_key"]);
    // Only the public half is on this disk.
    std::fs::rename(sshd.path("user_key"), sshd.path("elsewhere")).unwrap();
    for extra in ["", "IdentitiesOnly yes"] {
        let user = User { agent: Some(agent.1.clone()), extra: extra.into(), ..User::of(&sshd) };
        let mut stream = user.launch(&sshd.script(ECHO)).await.unwrap();
        expect(&mut stream, "hello").await;
    }
}

#[tokio::test]
async fn a_rejected_key_is_an_error_that_names_the_hosts_methods() {
    let Some(sshd) = Sshd::start() else { return };
    let user = User { identity: sshd.path("other_key").display().to_string(), ..User::of(&sshd) };
    match user.launch(&sshd.script(ECHO)).await {
        Err(LaunchError::Auth { why, advice }) => {
            assert!(why.as_str().contains("did not accept your key for user"), "{why}");
            assert!(
                why.as_str().contains("publickey") && advice.as_str().contains("ssh node-1"),
                "{why} {advice}"
            );
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_host_that_disconnects_after_two_keys_has_not_refused_all() {
    let Some(sshd) = Sshd::with("MaxAuthTries 2\n") else { return };
    let agent = agent(&sshd, &["ca_key", "other_key", "host_key", "user_key"]);
    let user = User { identity: "none".into(), agent: Some(agent.1.clone()), ..User::of(&sshd) };
    match user.launch(&sshd.script(ECHO)).await {
        Err(LaunchError::Auth { why, advice }) => {
            assert!(why.as_str().contains("ended the login after 2 keys (MaxAuthTries)"), "{why}");
            assert!(advice.as_str().contains("IdentitiesOnly"), "{advice}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_key_with_a_passphrase_and_without_agent_suggests_ssh_add() {
    let Some(sshd) = Sshd::start() else { return };
    let key = sshd.path("locked");
    keygen(&key, &["-N", "secret"]);
    let user = User { identity: key.display().to_string(), ..User::of(&sshd) };
    match user.launch(&sshd.script(ECHO)).await {
        Err(LaunchError::Auth { why, advice }) => {
            assert!(why.as_str().contains("has a passphrase"), "{why}");
            assert!(advice.as_str().contains("ssh-add"), "{advice}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn options_that_need_the_openssh_client_are_a_capability_error() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ECHO);
    for extra in ["ProxyJump gate", "ProxyCommand nc %h %p", "RevokedHostKeys /etc/hosts"] {
        let user = User { extra: extra.into(), ..User::of(&sshd) };
        let error = user.launch(&probe).await.unwrap_err();
        capability(&error);
    }
    let Some(exotic) = Sshd::with("KexAlgorithms sntrup761x25519-sha512@openssh.com\n") else { return };
    let error = User::of(&exotic).launch(&exotic.script(ECHO)).await.unwrap_err();
    capability(&error);
    let Some(by_host) = Sshd::with("HostbasedAuthentication yes\n") else { return };
    let user = User { identity: by_host.path("other_key").display().to_string(), ..User::of(&by_host) };
    let error = user.launch(&by_host.script(ECHO)).await.unwrap_err();
    capability(&error);
    let Some(no_keys) = Sshd::with("PubkeyAuthentication no\nHostbasedAuthentication yes\n") else { return };
    let error = User::of(&no_keys).launch(&no_keys.script(ECHO)).await.unwrap_err();
    capability(&error);
}

/// The advice is a launcher that exists.
fn capability(error: &LaunchError) {
    let LaunchError::Capability { why, advice } = error else { panic!("{error:?}") };
    assert!(advice.as_str().contains("--launcher openssh"), "{why}; {advice}");
}

#[tokio::test]
async fn ciphers_that_sites_insist_on_work() {
    for only in [
        "Ciphers aes256-gcm@openssh.com",
        "Ciphers chacha20-poly1305@openssh.com",
        "Ciphers aes256-ctr\nMACs hmac-sha2-512-etm@openssh.com",
        // Rekeys continuously.
        "RekeyLimit 16K 1",
    ] {
        let Some(sshd) = Sshd::with(&format!("{only}\n")) else { return };
        let flood = "printf '\\036NODEGLASS1 x\\n'; i=0; while [ $i -lt 200 ]; do printf '%1000s\\n' $i; i=$((i+1)); done; cat";
        let mut stream = User::of(&sshd).launch(&sshd.script(flood)).await.unwrap();
        expect(&mut stream, " 199\n").await;
        send_line(&stream, "still there").await;
        expect(&mut stream, "still there").await;
    }
}

#[tokio::test]
async fn t34_a_refused_login_is_one_connection_that_tries_each_key_once() {
    let Some(sshd) = Sshd::with("LogLevel DEBUG1\n") else { return };
    let user = User { identity: sshd.path("other_key").display().to_string(), ..User::of(&sshd) };
    // The readiness check of the test sshd is a connection, too.
    super::config::until("the log", || logins(&sshd).0 == 1).await;
    let before = logins(&sshd);
    assert!(matches!(user.launch(&sshd.script(ECHO)).await, Err(LaunchError::Auth { .. })));
    // Nothing retries once the launch has returned: the next connection in the log is this one.
    let _next = std::net::TcpStream::connect(("127.0.0.1", sshd.port)).unwrap();
    super::config::until("the next connection in the log", || logins(&sshd).0 >= before.0 + 2).await;
    let (connections, tries) = logins(&sshd);
    assert_eq!((connections - before.0, tries - before.1), (2, 1));
}

/// Number of connections to a host and of attempted keys, from its log.
fn logins(sshd: &Sshd) -> (usize, usize) {
    let log = std::fs::read_to_string(sshd.path("sshd.log")).unwrap();
    (
        log.matches("Connection from").count(),
        log.matches("userauth-request").count() - log.matches("method none").count(),
    )
}
