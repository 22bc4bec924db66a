//! TLS with the owner's certificate; without one, addresses that other machines can reach are refused.

use nodeglass_config::TlsFiles;
use nodeglass_platform::private_file::{self, PrivateFileError};
use nodeglass_platform::regular_file;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

/// A certificate chain is far smaller.
const MAX_BYTES: u64 = 1024 * 1024;

/// Error of using TLS. Messages are complete sentences for the user.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// The certificate cannot be read.
    #[error("--tls-cert: {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: std::io::Error,
    },
    /// The key cannot be read, or others can read it.
    #[error("--tls-key: {0}")]
    Key(#[from] PrivateFileError),
    /// A file does not contain PEM data of the expected kind.
    #[error("{flag}: {} holds no {what} in PEM form ({why})", path.display())]
    NotPem {
        /// The setting that names the file.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// The expected content of the file.
        what: &'static str,
        /// The parser's message.
        why: String,
    },
    /// Certificate and key do not match, or rustls rejects them.
    #[error("--tls-cert and --tls-key cannot be used: {0}")]
    Unfit(String),
}

/// Accepts TLS connections with a certificate.
#[derive(Clone)]
pub struct Tls(TlsAcceptor);

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Tls")
    }
}

impl Tls {
    /// Reads certificate and key.
    ///
    /// # Errors
    /// [`TlsError`], also if other users can read the key.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let pem = regular_file::read(&files.cert, MAX_BYTES)
            .map_err(|source| TlsError::Unreadable { path: files.cert.clone(), source })?;
        let not_pem =
            |flag, path: &Path, what, why: String| TlsError::NotPem { flag, path: path.into(), what, why };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.map_err(|error| error.to_string()).and_then(|chain| match chain.is_empty() {
            true => Err("there is none".to_owned()),
            false => Ok(chain),
        });
        let chain = chain.map_err(|why| not_pem("--tls-cert", &files.cert, "certificate", why))?;
        let pem = private_file::read(&files.key, MAX_BYTES)?;
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| not_pem("--tls-key", &files.key, "private key", error.to_string()))?;
        Self::from_chain(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                TlsError::Unfit("the key does not belong to the certificate".to_owned())
            }
            other => TlsError::Unfit(other.to_string()),
        })
    }

    fn from_chain(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Performs the handshake; `None` if the client speaks no supported TLS.
    pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Option<TlsStream<S>> {
        self.0.accept(stream).await.ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{Permissions, set_permissions, write};
    use std::os::unix::fs::PermissionsExt;

    struct Files {
        _dir: tempfile::TempDir,
        files: TlsFiles,
    }

    fn files(cert: &str, key: &str, mode: u32) -> Files {
        let dir = tempfile::tempdir().unwrap();
        let files = TlsFiles { cert: dir.path().join("cert.pem"), key: dir.path().join("key.pem") };
        write(&files.cert, cert).unwrap();
        write(&files.key, key).unwrap();
        set_permissions(&files.key, Permissions::from_mode(mode)).unwrap();
        Files { _dir: dir, files }
    }

    fn pair() -> (String, String) {
        let made = rcgen::generate_simple_self_signed(["login1.example.org".to_owned()]).unwrap();
        (made.cert.pem(), made.signing_key.serialize_pem())
    }

    fn refusal(cert: &str, key: &str, mode: u32) -> String {
        Tls::load(&files(cert, key, mode).files).map(|_| ()).unwrap_err().to_string()
    }

    #[test]
    fn a_certificate_and_its_key_are_accepted() {
        let (cert, key) = pair();
        assert!(Tls::load(&files(&cert, &key, 0o600).files).is_ok());
        assert!(Tls::load(&files(&cert, &key, 0o400).files).is_ok());
    }

    #[test]
    fn a_key_that_others_can_read_is_refused() {
        let (cert, key) = pair();
        for mode in [0o640, 0o604, 0o644, 0o660] {
            let why = refusal(&cert, &key, mode);
            assert!(why.contains(&format!("(mode {mode:04o}); run `chmod 600`")), "{why}");
        }
    }

    #[test]
    fn missing_swapped_or_malformed_files_are_reported() {
        let ((cert, key), (_, other)) = (pair(), pair());
        for (cert, key, says) in [
            (cert.as_str(), other.as_str(), "the key does not belong to the certificate"),
            (&key, &key, "cert.pem holds no certificate in PEM form"),
            (&cert, &cert, "key.pem holds no private key in PEM form"),
            ("", &key, "cert.pem holds no certificate"),
            ("rubbish", &key, "cert.pem holds no certificate"),
            ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &key, "cannot be used"),
        ] {
            let why = refusal(cert, key, 0o600);
            assert!(why.contains(says), "{why}");
        }
        let nowhere = TlsFiles { cert: "/nowhere/cert.pem".into(), key: "/".into() };
        let why = Tls::load(&nowhere).unwrap_err().to_string();
        assert!(why.starts_with("--tls-cert: /nowhere/cert.pem cannot be read: "), "{why}");
    }
}
