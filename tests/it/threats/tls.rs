//! Traffic that leaves the machine is encrypted: a relay without a certificate binds loopback only.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{Role, Topic};
use nodeglass_tests::client::{Client, Pipe};
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::{TIMEOUT, http};
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// IPv4 loopback mapped to IPv6: not loopback for the relay, but local for the machine.
const ADDRESS: &str = "[::ffff:127.0.0.1]:0";

/// A certificate for `localhost` and 127.0.0.1, and its key.
struct Identity {
    _folder: TempDir,
    cert: PathBuf,
    key: PathBuf,
    der: CertificateDer<'static>,
}

impl Identity {
    fn new() -> Result<Self> {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        let folder = tempfile::tempdir()?;
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600))?;
        Ok(Self { _folder: folder, cert, key, der: made.cert.der().clone() })
    }

    fn flags(&self) -> Result<[&str; 4]> {
        let cert = self.cert.to_str().context("a path of our own")?;
        let key = self.key.to_str().context("a path of our own")?;
        Ok(["--tls-cert", cert, "--tls-key", key])
    }

    /// A TLS connection that accepts this certificate only.
    async fn connect(&self, authority: &str) -> Result<Box<dyn Pipe>> {
        let mut roots = RootCertStore::empty();
        roots.add(self.der.clone())?;
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let (host, port) = authority.rsplit_once(':').context("host:port")?;
        let stream = TcpStream::connect(format!("127.0.0.1:{port}")).await?;
        let name = ServerName::try_from(host.to_owned())?;
        let stream = TlsConnector::from(Arc::new(config)).connect(name, stream).await.context("speak TLS")?;
        Ok(Box::new(stream))
    }

    async fn get(&self, authority: &str, host: &str) -> Result<http::Reply> {
        let mut stream = self.connect(authority).await?;
        let request = format!("GET /healthz HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok(http::Reply::of(&response))
    }
}

fn relay(identity: &Identity) -> Result<TestRelay> {
    let args = ["--demo", "--bind", ADDRESS, "--allowed-host", "localhost"];
    TestRelay::start(&[&args[..], &identity.flags()?].concat())
}

/// The relay's port under another name.
fn by(link: &Link, host: &str) -> String {
    format!("{host}:{}", link.authority.rsplit(':').next().unwrap_or_default())
}

#[tokio::test]
async fn t29_a_non_loopback_address_is_served_by_tls() -> Result<()> {
    let identity = Identity::new()?;
    let relay = relay(&identity)?;
    let link = relay.link();
    ensure!(link.scheme == "https" && link.authority.starts_with("localhost:"), "{link:?}");
    // By the allowed name, by the address itself, and by no other.
    assert_eq!(identity.get(&link.authority, &link.authority).await?.status, 200);
    let address = by(link, "127.0.0.1");
    assert_eq!(identity.get(&address, &address).await?.status, 200);
    assert_eq!(identity.get(&link.authority, "evil.example").await?.status, 421);

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
    let identity = Identity::new()?;
    let relay = relay(&identity)?;
    let at = by(relay.link(), "127.0.0.1");
    let reply = http::get(&at, "/healthz", &[("Host", "localhost")])?;
    ensure!(reply.status == 0 && !reply.head.contains("ok"), "{reply:?}");
    Ok(())
}

#[test]
fn t29_without_a_certificate_only_loopback_is_bound() -> Result<()> {
    let identity = Identity::new()?;
    let open = ["0.0.0.0:0", "[::]:0", "192.0.2.1:8443", ADDRESS];
    for address in open {
        let home = tempfile::tempdir()?;
        let output = TestRelay::command(home.path())?.args(["--demo", "--bind", address]).output()?;
        let said = String::from_utf8_lossy(&output.stderr);
        ensure!(output.status.code() == Some(2), "{address}: {said}");
        ensure!(said.contains("--tls-cert and --tls-key") && said.contains("ssh -L"), "{address}: {said}");
    }
    // One of the two files, or a key that others can read, is an error.
    let [cert_flag, cert, key_flag, key] = identity.flags()?;
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
    let identity = Identity::new()?;
    let relay = relay(&identity)?;
    let mut silent = std::net::TcpStream::connect(by(relay.link(), "127.0.0.1"))?;
    silent.set_read_timeout(Some(TIMEOUT))?;
    let mut nothing = Vec::new();
    // The relay's own time limit ends it; an error here is the test's.
    let ended = silent.read_to_end(&mut nothing);
    ensure!(ended.is_ok() && nothing.is_empty(), "the relay still waits: {ended:?}");
    Ok(())
}
