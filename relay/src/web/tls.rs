//! What leaves this machine is encrypted by rustls with the owner's certificate, or the relay does not start.

use crate::config::TlsFiles;
use rustix::fs::FileType;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::{Error, ServerConfig};
use tokio_rustls::server::TlsStream;

/// A chain of certificates is far smaller.
const MAX_BYTES: u64 = 1024 * 1024;

/// Why the relay cannot encrypt. Each is a sentence for the user.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read.
    #[error("{flag}: {} cannot be read: {source}", path.display())]
    Unreadable {
        /// The setting that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// Others could read the key.
    #[error(
        "--tls-key: {} can be read by others (mode {mode:04o}); run `chmod 600` on it, \
         and get a new key if others may have read it",
        path.display()
    )]
    Open {
        /// The file.
        path: PathBuf,
        /// Its permissions.
        mode: u32,
    },
    /// A file holds something else.
    #[error("{flag}: {} holds no {what} in PEM form ({why})", path.display())]
    NotPem {
        /// The setting that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// What the parser says.
        why: String,
    },
    /// The two files do not go together, or rustls cannot use them.
    #[error("--tls-cert and --tls-key cannot be used: {0}")]
    Unfit(String),
}

/// Encrypts connections as the owner of a certificate.
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
    /// [`TlsError`], also when somebody else could read the key.
    pub fn load(files: &TlsFiles) -> Result<Self, TlsError> {
        let (_, pem) = read("--tls-cert", &files.cert)?;
        let not_pem =
            |flag, path: &Path, what, why: String| TlsError::NotPem { flag, path: path.into(), what, why };
        let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
        let chain = chain.map_err(|error| error.to_string()).and_then(|chain| match chain.is_empty() {
            true => Err("there is none".to_owned()),
            false => Ok(chain),
        });
        let chain = chain.map_err(|why| not_pem("--tls-cert", &files.cert, "certificate", why))?;
        let (mode, pem) = read("--tls-key", &files.key)?;
        if mode & 0o077 != 0 {
            return Err(TlsError::Open { path: files.key.clone(), mode: mode & 0o7777 });
        }
        let key = PrivateKeyDer::from_pem_slice(&pem)
            .map_err(|error| not_pem("--tls-key", &files.key, "private key", error.to_string()))?;
        Self::of(chain, key).map_err(|error| match error {
            Error::InconsistentKeys(_) => {
                TlsError::Unfit("the key is not that of the certificate".to_owned())
            }
            other => TlsError::Unfit(other.to_string()),
        })
    }

    fn of(chain: Vec<CertificateDer<'static>>, key: PrivateKeyDer<'static>) -> Result<Self, Error> {
        let provider = Arc::new(ring::default_provider());
        let mut config = ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(Arc::new(config).into()))
    }

    /// Greets a client; `None` if what it says is no TLS that we speak.
    pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
        &self,
        stream: S,
    ) -> Option<TlsStream<S>> {
        self.0.accept(stream).await.ok()
    }
}

/// A file's permissions and content, from one and the same open file.
fn read(flag: &'static str, path: &Path) -> Result<(u32, Vec<u8>), TlsError> {
    let unreadable = |source| TlsError::Unreadable { flag, path: path.to_owned(), source };
    let file = File::open(path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.mode();
    if FileType::from_raw_mode(mode) != FileType::RegularFile {
        return Err(unreadable(std::io::Error::other("it is not a file")));
    }
    let mut content = Vec::new();
    file.take(MAX_BYTES).read_to_end(&mut content).map_err(unreadable)?;
    Ok((mode, content))
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
    fn a_certificate_and_its_key_are_taken() {
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
    fn what_is_missing_mixed_up_or_rubbish_is_said_in_a_sentence() {
        let ((cert, key), (_, other)) = (pair(), pair());
        for (cert, key, says) in [
            (cert.as_str(), other.as_str(), "the key is not that of the certificate"),
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
