//! A host that does not prove its identity receives nothing.

use super::config::{ECHO, User, expect, node};
use super::sshd::{Sshd, keygen};
use nodeglass_launch::{LaunchError, Launcher};
use std::process::Command;

/// The error of a launch that must fail because of the host key.
async fn refused(user: &User<'_>) -> (String, String) {
    match user.launch(&user.sshd.script(ECHO)).await {
        Err(LaunchError::HostKey { why, advice }) => (why.to_string(), advice.to_string()),
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn t22_an_unknown_host_is_refused_with_advice_to_log_in_once() {
    let Some(sshd) = Sshd::start() else { return };
    let (why, advice) = refused(&User { known_hosts: String::new(), ..User::of(&sshd) }).await;
    assert!(why.contains("is not known (SHA256:") && advice.contains("ssh node-1"), "{why}; {advice}");
}

#[tokio::test]
async fn f31_t22_a_changed_key_is_refused_even_if_new_hosts_are_accepted() {
    let Some(sshd) = Sshd::start() else { return };
    let known_hosts = format!("[127.0.0.1]:{} {}\n", sshd.port, sshd.public("other_key"));
    for extra in ["", "StrictHostKeyChecking accept-new", "StrictHostKeyChecking no"] {
        let user = User { known_hosts: known_hosts.clone(), extra: extra.into(), ..User::of(&sshd) };
        let (why, advice) = refused(&user).await;
        assert!(why.contains("known_hosts line 1") && advice.contains("ssh-keygen -f '"), "{why}; {advice}");
        assert!(advice.contains(&format!("known_hosts' -R '[127.0.0.1]:{}'", sshd.port)), "{advice}");
    }
}

#[tokio::test]
async fn t22_a_revoked_key_is_refused_though_it_is_listed_too() {
    let Some(sshd) = Sshd::start() else { return };
    let known_hosts = format!("{}@revoked * {}\n", sshd.known_line(), sshd.public("host_key"));
    let (why, _) = refused(&User { known_hosts, ..User::of(&sshd) }).await;
    assert!(why.contains("revoked"), "{why}");
}

#[tokio::test]
async fn hashed_names_patterns_and_an_alias_are_understood() {
    let Some(sshd) = Sshd::start() else { return };
    let probe = sshd.script(ECHO);
    let hashed = sshd.write("hashed", &sshd.known_line());
    assert!(Command::new("ssh-keygen").arg("-qHf").arg(&hashed).output().unwrap().status.success());
    let hashed = std::fs::read_to_string(hashed).unwrap();
    assert!(hashed.starts_with("|1|"));
    let key = sshd.public("host_key");
    let pattern = format!("[127.0.0.*]:{} {key}\n", sshd.port);
    let alias = format!("the-cluster {key}\n");
    for (known_hosts, extra) in [(hashed, ""), (pattern, ""), (alias, "HostKeyAlias the-cluster")] {
        let user = User { known_hosts: known_hosts.clone(), extra: extra.into(), ..User::of(&sshd) };
        let mut stream = user.launch(&probe).await.unwrap_or_else(|e| panic!("{known_hosts}: {e:?}"));
        expect(&mut stream, "hello").await;
    }
}

#[tokio::test]
async fn a_new_host_is_accepted_if_configured_and_nothing_is_written() {
    let Some(sshd) = Sshd::start() else { return };
    for extra in ["StrictHostKeyChecking accept-new", "StrictHostKeyChecking no"] {
        let user = User { known_hosts: String::new(), extra: extra.into(), ..User::of(&sshd) };
        let launcher = user.launcher(&sshd.script(ECHO));
        let mut stream = launcher.launch(&node()).await.unwrap();
        expect(&mut stream, "hello").await;
        assert_eq!(std::fs::read_to_string(sshd.path("known_hosts")).unwrap(), "");
    }
}

/// An sshd with a certificate of `ca_key` for 127.0.0.1, made with `options`.
fn certified(options: &[&str]) -> Option<Sshd> {
    let sshd = Sshd::with_key(|dir| {
        let mut sign = Command::new("ssh-keygen");
        sign.arg("-qs").arg(dir.join("ca_key")).args(["-I", "test", "-h"]).args(options);
        assert!(sign.arg(dir.join("host_key.pub")).status().unwrap().success());
        format!("HostCertificate {}/host_key-cert.pub\n", dir.display())
    })?;
    Some(sshd)
}

#[tokio::test]
async fn a_host_with_a_certificate_of_a_known_authority_needs_no_known_hosts_line() {
    let Some(sshd) = certified(&["-n", "127.0.0.1"]) else { return };
    let authority = format!("@cert-authority [127.0.0.*]:* {}\n", sshd.public("ca_key"));
    let user = User { known_hosts: authority, ..User::of(&sshd) };
    let mut stream = user.launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
    // A client that knows only the plain host key negotiates that one.
    let mut stream = User::of(&sshd).launch(&sshd.script(ECHO)).await.unwrap();
    expect(&mut stream, "hello").await;
}

#[tokio::test]
async fn t22_a_certificate_for_another_host_or_of_another_authority_is_refused() {
    let Some(sshd) = certified(&["-n", "other-host"]) else { return };
    let authority = format!("@cert-authority * {}\n", sshd.public("ca_key"));
    let (why, _) = refused(&User { known_hosts: authority, ..User::of(&sshd) }).await;
    assert!(why.contains("it is for another host"), "{why}");
    keygen(&sshd.path("wrong_ca"), &[]);
    let wrong = format!("@cert-authority * {}\n", sshd.public("wrong_ca"));
    let (why, _) = refused(&User { known_hosts: wrong, ..User::of(&sshd) }).await;
    assert!(why.contains("is not known"), "{why}");
    let Some(old) = certified(&["-n", "127.0.0.1", "-V", "20200101:20200102"]) else { return };
    let authority = format!("@cert-authority * {}\n", old.public("ca_key"));
    let (why, _) = refused(&User { known_hosts: authority, ..User::of(&old) }).await;
    assert!(why.contains("it has expired"), "{why}");
}

#[tokio::test]
async fn t22_a_certificate_for_a_pattern_of_hosts_vouches_for_none_of_them() {
    // OpenSSH treats `*` in a certificate as a pattern; a certificate signed for `*` would match every host.
    let Some(sshd) = certified(&["-n", "*,127.*"]) else { return };
    let authority = format!("@cert-authority * {}\n", sshd.public("ca_key"));
    let (why, _) = refused(&User { known_hosts: authority, ..User::of(&sshd) }).await;
    assert!(why.contains("it is for another host"), "{why}");
}

#[tokio::test]
async fn t22_t34_an_unverified_host_receives_no_user_and_no_key() {
    let Some(sshd) = Sshd::with("LogLevel DEBUG1\n") else { return };
    let _ = refused(&User { known_hosts: String::new(), ..User::of(&sshd) }).await;
    let log = std::fs::read_to_string(sshd.path("sshd.log")).unwrap();
    assert!(log.contains("Connection from"), "the log was not written: {log}");
    assert!(!log.contains("userauth-request"), "something was said before the host was known: {log}");
}
