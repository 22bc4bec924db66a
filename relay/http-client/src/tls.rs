//! TLS to a host, with the certificate authorities of this machine.

use crate::error::HttpError;
use crate::url::Host;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{ClientConfig, RootCertStore};

/// A certificate.
#[cfg(test)]
pub(crate) type Certificate = tokio_rustls::rustls::pki_types::CertificateDer<'static>;

/// Trusted certificate authorities.
#[derive(Clone, Debug)]
pub(crate) enum Trust {
    /// Those that this machine trusts, or those in the file of `SSL_CERT_FILE`.
    Machine,
    /// Only this one.
    #[cfg(test)]
    Only(Certificate),
}

/// Performs the handshake; the certificate must belong to the host.
///
/// # Errors
/// [`HttpError::Tls`].
pub(crate) async fn connect(
    host: &Host,
    trust: &Trust,
    stream: TcpStream,
) -> Result<TlsStream<TcpStream>, HttpError> {
    let fail = |why: String| HttpError::Tls(host.to_string(), why);
    let trust = trust.clone();
    let config = tokio::task::spawn_blocking(move || config(trust)).await;
    let config = config.map_err(|error| fail(error.to_string()))?;
    let name = match host {
        Host::Address(address) => ServerName::IpAddress((*address).into()),
        Host::Name(name) => ServerName::try_from(name.clone()).map_err(|error| fail(error.to_string()))?,
    };
    let connector = TlsConnector::from(Arc::new(config.map_err(fail)?));
    connector.connect(name, stream).await.map_err(|error| fail(error.to_string()))
}

/// Reads the certificates of this machine from its files.
fn config(trust: Trust) -> Result<ClientConfig, String> {
    let mut roots = RootCertStore::empty();
    match trust {
        Trust::Machine => {
            let found = rustls_native_certs::load_native_certs();
            let (added, _) = roots.add_parsable_certificates(found.certs);
            if added == 0 {
                let why = found.errors.first().map_or_else(String::new, |error| format!(" ({error})"));
                let advice = "install ca-certificates";
                return Err(format!("this machine has no certificate authorities{why}; {advice}"));
            }
        }
        #[cfg(test)]
        Trust::Only(certificate) => roots.add(certificate).map_err(|error| error.to_string())?,
    }
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()));
    let config = config.with_safe_default_protocol_versions().map_err(|error| error.to_string())?;
    Ok(config.with_root_certificates(roots).with_no_client_auth())
}
