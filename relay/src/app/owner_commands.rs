//! `relay share` and `relay retry`: clients of the running relay over the owner's private socket.

use super::share_output;
use crate::access::key_file::{self, Running};
use crate::access::runtime_dir::RuntimeDir;
use crate::clock::Clock;
use crate::config::{ShareCommand, ShareOrder};
use anyhow::{Context, bail};
use hyper::body::{Body, Incoming};
use hyper::client::conn::http1;
use hyper::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use hyper::{Method, Request};
use hyper_util::rt::TokioIo;
use nodeglass_protocol::NodeName;
use nodeglass_protocol::request::RetryTarget;
use nodeglass_protocol::share::{ShareId, ShareLink, ShareRequest, Sharing};
use serde::de::DeserializeOwned;
use std::pin::Pin;
use std::time::Duration;
use tokio::net::UnixStream;
use tokio::time::timeout;

/// Time limit for a response of the relay.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// Maximum length of a response, in bytes.
const MAX_RESPONSE: usize = 1024 * 1024;

/// Executes a `relay share` command and returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn share(dir: &RuntimeDir, order: ShareOrder) -> anyhow::Result<String> {
    let relay = Remote::find(dir, order.relay)?;
    Ok(match order.command {
        ShareCommand::Create(args) => {
            let body = serde_json::to_string(&ShareRequest::from(args))?;
            let made: ShareLink = relay.request_json(Method::POST, "", body).await?;
            share_output::created(&made, Clock::wall_ms())
        }
        ShareCommand::Link { id } => {
            let made: ShareLink = relay.request_json(Method::GET, &format!("/{id}"), String::new()).await?;
            share_output::created(&made, Clock::wall_ms())
        }
        ShareCommand::List => share_output::list(&relay.sharing().await?, Clock::wall_ms()),
        ShareCommand::Revoke { ids, all } => {
            let ids = if all { relay.all().await? } else { ids };
            for id in &ids {
                relay.request_shares(Method::DELETE, &format!("/{id}"), String::new()).await?;
            }
            share_output::revoked(&ids)
        }
    })
}

/// Requests a link for one tab from the running relay. Returns what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn tab_link(dir: &RuntimeDir) -> anyhow::Result<String> {
    let relay = Remote::find(dir, None)?;
    let ticket = relay.request(Method::POST, "/api/v1/tab", String::new()).await?;
    let link = relay.running.links.first().and_then(|link| link.rsplit_once('#'));
    let (address, _) = link.context("the running relay stored no link")?;
    Ok(format!("{address}#t={}\n", String::from_utf8_lossy(&ticket).trim()))
}

/// Makes the running relay retry a node, or without one all waiting nodes and the job list; returns
/// what to print.
///
/// # Errors
/// A complete sentence for the user.
pub async fn retry(dir: &RuntimeDir, node: Option<NodeName>) -> anyhow::Result<String> {
    let relay = Remote::find(dir, None)?;
    let target = node.map_or(RetryTarget::Everything, RetryTarget::Node);
    let body = relay.request(Method::POST, RETRY, serde_json::to_string(&target)?).await?;
    Ok(String::from_utf8_lossy(&body).into_owned())
}

const RETRY: &str = "/api/v1/retry";

/// A running relay of this user.
struct Remote<'a> {
    dir: &'a RuntimeDir,
    running: Running,
}

impl<'a> Remote<'a> {
    fn find(dir: &'a RuntimeDir, pid: Option<u32>) -> anyhow::Result<Self> {
        let mut running = key_file::running(dir)?.into_iter();
        let found = match pid {
            Some(pid) => running.find(|relay| relay.pid == pid),
            None => running.next(),
        };
        let Some(running) = found else {
            bail!("no relay of yours runs on this machine; start one with `relay`");
        };
        Ok(Self { dir, running })
    }

    async fn sharing(&self) -> anyhow::Result<Sharing> {
        self.request_json(Method::GET, "", String::new()).await
    }

    async fn all(&self) -> anyhow::Result<Vec<ShareId>> {
        Ok(self.sharing().await?.shares.into_iter().map(|share| share.id).collect())
    }

    async fn request_json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<T> {
        let body = self.request_shares(method, path, body).await?;
        serde_json::from_slice(&body)
            .context("the relay's response has a format that this build does not know")
    }

    async fn request_shares(&self, method: Method, path: &str, body: String) -> anyhow::Result<Vec<u8>> {
        self.request(method, &format!("/api/v1/shares{path}"), body).await
    }

    async fn request(&self, method: Method, path: &str, body: String) -> anyhow::Result<Vec<u8>> {
        let socket = self.dir.socket(&key_file::socket_name(self.running.pid));
        let exchange = async {
            let stream = UnixStream::connect(&socket).await?;
            self.exchange(stream, method, path, body).await
        };
        let (ok, body) = timeout(RESPONSE_TIMEOUT, exchange)
            .await
            .with_context(|| format!("relay {} did not respond in time", self.running.pid))?
            .with_context(|| format!("could not send the request to relay {}", self.running.pid))?;
        if !ok {
            bail!("{}", String::from_utf8_lossy(&body).trim_end());
        }
        Ok(body)
    }

    async fn exchange(
        &self,
        stream: UnixStream,
        method: Method,
        path: &str,
        body: String,
    ) -> anyhow::Result<(bool, Vec<u8>)> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
        tokio::spawn(connection);
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, "localhost")
            .header(AUTHORIZATION, format!("Bearer {}", self.key()?))
            .header(CONTENT_TYPE, "application/json")
            .body(body)?;
        let response = sender.send_request(request).await?;
        Ok((response.status().is_success(), read(response.into_body()).await?))
    }

    /// The owner's key, from the file that only the owner can read.
    fn key(&self) -> anyhow::Result<&str> {
        let key = self.running.links.first().and_then(|link| link.rsplit_once("#k="));
        Ok(key.context("the running relay stored no link")?.1)
    }
}

async fn read(mut body: Incoming) -> anyhow::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        if let Ok(data) = frame?.into_data() {
            bytes.extend_from_slice(&data);
        }
        if bytes.len() > MAX_RESPONSE {
            bail!("the response is too long");
        }
    }
    Ok(bytes)
}
