//! A certificate of a server, and clients that accept no other.

use crate::client::Pipe;
use crate::http::{Reply, request};
use anyhow::{Context, Result};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName};
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A certificate and its key, in files that are removed on drop.
#[derive(Debug)]
pub struct Identity {
    _folder: TempDir,
    cert: PathBuf,
    key: PathBuf,
    der: CertificateDer<'static>,
}

impl Identity {
    /// Makes one for these names and addresses.
    ///
    /// # Errors
    /// If it cannot be made or written.
    pub fn new(names: &[&str]) -> Result<Self> {
        let names: Vec<_> = names.iter().map(ToString::to_string).collect();
        let made = rcgen::generate_simple_self_signed(names)?;
        let folder = tempfile::tempdir()?;
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        std::fs::write(&cert, made.cert.pem())?;
        std::fs::write(&key, made.signing_key.serialize_pem())?;
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600))?;
        Ok(Self { _folder: folder, cert, key, der: made.cert.der().clone() })
    }

    /// The file of the certificate, and that of its key.
    pub fn files(&self) -> (&Path, &Path) {
        (&self.cert, &self.key)
    }

    /// Connects to a local server that has this certificate for the name in `authority` (`localhost:8443`).
    ///
    /// # Errors
    /// If it has another certificate, or does not respond.
    pub async fn connect(&self, authority: &str) -> Result<Box<dyn Pipe>> {
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

    /// Requests a path with these headers, and `Host` unless given.
    ///
    /// # Errors
    /// As [`Identity::connect`].
    pub async fn get(&self, authority: &str, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        let mut stream = self.connect(authority).await?;
        stream.write_all(request(authority, path, headers).as_bytes()).await?;
        let mut response = Vec::new();
        stream.read_to_end(&mut response).await?;
        Ok(Reply::of(&response))
    }
}
