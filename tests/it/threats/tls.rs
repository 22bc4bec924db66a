//! Traffic that leaves the machine is encrypted: a relay without a certificate binds loopback only.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{Role, Topic};
use nodeglass_tests::client::Client;
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::tls::Identity;
use nodeglass_tests::{TIMEOUT, http};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;

/// IPv4 loopback mapped to IPv6: not loopback for the relay, but local for the machine.
const ADDRESS: &str = "[::ffff:127.0.0.1]:0";

/// A certificate for the relay's addresses.
fn identity() -> Result<Identity> {
    Identity::new(&["localhost", "127.0.0.1"])
}

fn flags(identity: &Identity) -> Result<[&str; 4]> {
    let (cert, key) = identity.files();
    let (cert, key) =
        (cert.to_str().context("a path of our own")?, key.to_str().context("a path of our own")?);
    Ok(["--tls-cert", cert, "--tls-key", key])
}

async fn status(identity: &Identity, authority: &str, host: &str) -> Result<u16> {
    Ok(identity.get(authority, "/healthz", &[("Host", host)]).await?.status)
}

fn relay(identity: &Identity) -> Result<TestRelay> {
    let args = ["--demo", "--bind", ADDRESS, "--allowed-host", "localhost"];
    TestRelay::start(&[&args[..], &flags(identity)?].concat())
}

/// The relay's port under another name.
fn by(link: &Link, host: &str) -> String {
    format!("{host}:{}", link.authority.rsplit(':').next().unwrap_or_default())
}

#[tokio::test]
async fn t29_a_non_loopback_address_is_served_by_tls() -> Result<()> {
    let identity = identity()?;
    let relay = relay(&identity)?;
    let link = relay.link();
    ensure!(link.scheme == "https" && link.authority.starts_with("localhost:"), "{link:?}");
    // By the allowed name, by the address itself, and by no other.
    assert_eq!(status(&identity, &link.authority, &link.authority).await?, 200);
    let address = by(link, "127.0.0.1");
    assert_eq!(status(&identity, &address, &address).await?, 200);
    assert_eq!(status(&identity, &link.authority, "evil.example").await?, 421);

    let pipe = identity.connect(&link.authority).await?;
    let mut client = Client::connect_over(pipe, link, &link.key, Form::Binary).await?;
    assert_eq!(client.welcome().role, Role::Owner);
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "changes", |known| known.deltas >= 2).await?;
    // A page of the same host without encryption has another origin.
    let pipe = identity.connect(&link.authority).await?;
    let plain = Link { scheme: "http", ..link.clone() };
    let refused = Client::connect_over(pipe, &plain, &link.key, Form::Binary).await;
    ensure!(format!("{:#}", refused.err().context("let in")?).contains("403"), "not for its origin");
    Ok(())
}

#[test]
fn t29_nothing_is_sent_without_encryption() -> Result<()> {
    let identity = identity()?;
    let relay = relay(&identity)?;
    let at = by(relay.link(), "127.0.0.1");
    let reply = http::get(&at, "/healthz", &[("Host", "localhost")])?;
    ensure!(reply.status == 0 && !reply.head.contains("ok"), "{reply:?}");
    Ok(())
}

#[test]
fn t29_without_a_certificate_only_loopback_is_bound() -> Result<()> {
    let identity = identity()?;
    let open = ["0.0.0.0:0", "[::]:0", "192.0.2.1:8443", ADDRESS];
    for address in open {
        let home = tempfile::tempdir()?;
        let output = TestRelay::command(home.path())?.args(["--demo", "--bind", address]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{address}: {said}");
        ensure!(said.contains("--tls-cert and --tls-key") && said.contains("ssh -L"), "{address}: {said}");
    }
    // One of the two files, or a key that others can read, is an error.
    let [cert_flag, cert, key_flag, key] = flags(&identity)?;
    std::fs::set_permissions(key, PermissionsExt::from_mode(0o644))?;
    for (args, says) in [
        (&[cert_flag, cert][..], "go together"),
        (&[key_flag, key], "go together"),
        (&[cert_flag, cert, key_flag, key], "can be read by others (mode 0644)"),
        (&[cert_flag, key, key_flag, key], "holds no certificate"),
        (&[cert_flag, "/nowhere.pem", key_flag, key], "/nowhere.pem cannot be read"),
    ] {
        let home = tempfile::tempdir()?;
        let mut command = TestRelay::command(home.path())?;
        let output = command.args(["--demo", "--bind", ADDRESS]).args(args).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(
            output.status.code().is_some_and(|code| code > 0) && said.contains(says),
            "{args:?}: {output:?}"
        );
        ensure!(said.lines().count() == 1, "one sentence: {said}");
    }
    Ok(())
}

#[test]
fn t19_an_unfinished_tls_handshake_times_out() -> Result<()> {
    let identity = identity()?;
    let relay = relay(&identity)?;
    let mut silent = std::net::TcpStream::connect(by(relay.link(), "127.0.0.1"))?;
    silent.set_read_timeout(Some(TIMEOUT))?;
    let mut nothing = Vec::new();
    // The relay's own time limit ends it; an error here is the test's.
    let ended = silent.read_to_end(&mut nothing);
    ensure!(ended.is_ok() && nothing.is_empty(), "the relay still waits: {ended:?}");
    Ok(())
}
