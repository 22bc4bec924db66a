//! The workers of the TPU pod to which this machine belongs, as Google's metadata service lists them.

use axum::body::{Body, to_bytes};
use hyper::client::conn::http1;
use hyper::header::HOST;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use nodeglass_launch::hosts::entry::{self, Entry, EntryError};
use std::io;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Host of the service; `$GCE_METADATA_HOST` replaces it, as in Google's own clients.
const SERVICE: &str = "metadata.google.internal";
/// The attribute: `NAME:NAME:ADDRESS` for each worker, separated by commas.
const ATTRIBUTE: &str = "/computeMetadata/v1/instance/attributes/worker-network-endpoints";
/// Required in requests, and set in responses of the real service.
const FLAVOR: (&str, &str) = ("Metadata-Flavor", "Google");
/// Time limit for the response, which comes from the same host.
const LIMIT: Duration = Duration::from_secs(5);
/// Maximum length of the attribute: the addresses of the largest pods.
const MAX_BYTES: usize = 256 * 1024;

/// Reason for not knowing the workers.
#[derive(Debug, thiserror::Error)]
pub enum PodError {
    /// The service does not exist.
    #[error(
        "the metadata service at {host} cannot be reached: {why}; --tpu-pod works on TPU VMs of Google Cloud, \
         elsewhere list the machines with --hosts"
    )]
    Unreachable {
        /// Its address.
        host: String,
        /// The problem.
        why: String,
    },
    /// The machine has no such attribute.
    #[error("this machine is not part of a TPU pod: it has no attribute worker-network-endpoints")]
    NoPod,
    /// The service failed.
    #[error("the metadata service responded with {0}")]
    Status(StatusCode),
    /// Something else than the service.
    #[error("{0} is not the metadata service of Google Cloud")]
    Impostor(String),
    /// The attribute is malformed.
    #[error("the metadata service lists a worker that is not a machine: {0}")]
    Worker(#[from] EntryError),
    /// The attribute is empty.
    #[error("the metadata service lists no workers")]
    Empty,
}

/// Queries the workers of the pod.
///
/// # Errors
/// [`PodError`].
pub async fn workers() -> Result<Vec<Entry>, PodError> {
    let host = std::env::var("GCE_METADATA_HOST").ok().filter(|host| !host.is_empty());
    workers_of(&host.unwrap_or_else(|| SERVICE.to_owned())).await
}

async fn workers_of(host: &str) -> Result<Vec<Entry>, PodError> {
    let unreachable = |why: String| PodError::Unreachable { host: host.to_owned(), why };
    let response = timeout(LIMIT, request(host)).await;
    let response = response.unwrap_or_else(|_| Err(io::Error::from(io::ErrorKind::TimedOut)));
    let (status, is_genuine, body) = response.map_err(|error| unreachable(error.to_string()))?;
    match status {
        _ if !is_genuine => Err(PodError::Impostor(host.to_owned())),
        StatusCode::OK => parse(&body),
        StatusCode::NOT_FOUND => Err(PodError::NoPod),
        other => Err(PodError::Status(other)),
    }
}

/// Requests the attribute; returns the status, whether the response names the service, and the body.
async fn request(host: &str) -> io::Result<(StatusCode, bool, String)> {
    let authority = if host.contains(':') { host.to_owned() } else { format!("{host}:80") };
    let stream = TcpStream::connect(&authority).await?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(io::Error::other)?;
    // Ends with the sender.
    tokio::spawn(connection);
    let request = Request::get(ATTRIBUTE).header(HOST, host).header(FLAVOR.0, FLAVOR.1);
    let request = request.body(Body::empty()).map_err(io::Error::other)?;
    let response = sender.send_request(request).await.map_err(io::Error::other)?;
    let is_genuine = response.headers().get(FLAVOR.0).is_some_and(|value| value == FLAVOR.1);
    let status = response.status();
    let body = to_bytes(Body::new(response.into_body()), MAX_BYTES).await.map_err(io::Error::other)?;
    Ok((status, is_genuine, String::from_utf8_lossy(&body).into_owned()))
}

fn parse(text: &str) -> Result<Vec<Entry>, PodError> {
    let address = |worker: &str| worker.trim().rsplit(':').next().unwrap_or_default().to_owned();
    let addresses = text.split(',').map(address).filter(|address| !address.is_empty());
    let workers: Vec<Entry> =
        addresses.map(|address| entry::parse(&address)).collect::<Result<Vec<_>, _>>()?.concat();
    if workers.is_empty() { Err(PodError::Empty) } else { Ok(workers) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::http::HeaderMap;
    use axum::routing::get;
    use tokio::net::TcpListener;

    async fn of(service: Router) -> Result<Vec<String>, String> {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        let server = tokio::spawn(async { axum::serve(listener, service).await });
        let workers = workers_of(&host).await;
        server.abort();
        let names = |workers: Vec<Entry>| workers.iter().map(|worker| worker.host.to_string()).collect();
        workers.map(names).map_err(|error| error.to_string().replace(&host, "HOST"))
    }

    fn service(attribute: &'static str) -> Router {
        let handler = move |headers: HeaderMap| async move {
            let is_asked = headers.get("metadata-flavor").is_some_and(|flavor| flavor == "Google");
            let text = if is_asked { attribute } else { "" };
            ([("Metadata-Flavor", "Google")], text)
        };
        Router::new().route(ATTRIBUTE, get(handler))
    }

    #[tokio::test]
    async fn workers_are_those_that_the_service_lists() {
        let text = "unknown:unknown:10.164.0.5,unknown:unknown:10.164.0.6\n";
        assert_eq!(of(service(text)).await, Ok(vec!["10.164.0.5".to_owned(), "10.164.0.6".to_owned()]));
    }

    #[tokio::test]
    async fn a_machine_without_a_pod_is_distinguished_from_a_service_that_is_none() {
        let error = |router| async { of(router).await.unwrap_err() };
        assert!(error(service("")).await.contains("lists no workers"));
        assert!(error(service("a:b:-oProxyCommand=x")).await.contains("not a machine"));
        assert!(error(Router::new()).await.contains("HOST is not the metadata service"));
        let none = || async { (StatusCode::NOT_FOUND, [("Metadata-Flavor", "Google")]) };
        assert!(error(Router::new().route(ATTRIBUTE, get(none))).await.contains("not part of a TPU pod"));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let host = listener.local_addr().unwrap().to_string();
        drop(listener);
        let error = workers_of(&host).await.unwrap_err().to_string();
        assert!(error.contains("cannot be reached") && error.contains("--hosts"), "{error}");
    }
}
