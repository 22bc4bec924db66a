//! The metrics for Prometheus, at /metrics.

use super::Problem;
use super::caller::Caller;
use super::everything::{everything, picture};
use crate::WebState;
use axum::body::Body;
use axum::extract::{RawQuery, State};
use axum::http::HeaderMap;
use axum::http::header::{ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_TYPE, VARY};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures_util::stream;
use nodeglass_api::metrics::{self, Collector, RelayMetrics};
use nodeglass_api::{Snapshot, Timestamp};
use nodeglass_nats::Health;
use nodeglass_platform::memory;
use nodeglass_protocol::Picture;
use nodeglass_protocol::live::CLOCK_STARTS_AT_MS;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_remote_write::Counts as RemoteWriteCounts;
use nodeglass_share::Viewer;
use std::convert::Infallible;
use std::io::{self, Write};
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Chunks of the text that wait for the connection.
const CHUNKS: usize = 4;
/// Maximum time for which a caller may not read.
const READ_TIMEOUT: Duration = Duration::from_secs(30);

/// The metrics of the relay itself.
async fn relay_metrics(web: &WebState, picture: &Picture, wall_ahead_ms: i64) -> RelayMetrics {
    let moment = |at_ms: u64| Timestamp::from_millis(at_ms.saturating_add_signed(wall_ahead_ms));
    RelayMetrics {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        build: web.about.build.to_string(),
        cluster: web.cluster_label().unwrap_or_default(),
        viewers: picture.relay.viewers,
        cpu_s: picture.relay.cpu_ms as f64 / 1e3,
        rss_bytes: memory::resident_bytes(),
        coalesced: picture.relay.coalesced,
        slurm_at: match picture.relay.jobs {
            JobsHealth::Fresh { at_ms } => Some(moment(at_ms)),
            JobsHealth::Stale { last_ms, .. } => last_ms.map(moment),
            JobsHealth::NotYet | JobsHealth::NoSlurm => None,
        },
        started_at: Some(moment(CLOCK_STARTS_AT_MS)),
        probes: web.hub.probe_usages().await.unwrap_or_default(),
        losses: web.hub.losses().await.unwrap_or_default(),
        notifications: web.notifications.list(),
        remote_write: web.remote_write.as_ref().map(RemoteWriteCounts::status),
        nats_connected: web.nats.as_ref().map(Health::is_connected),
        nats_leases: web.nats.as_ref().and_then(Health::has_leases),
    }
}

/// The state from which the owner's metrics are made; `None` while the relay ends or is overloaded, or the name of its cluster is not
/// known: what is stored without it would not be found again.
pub async fn series(web: &WebState) -> Option<(Snapshot, RelayMetrics)> {
    web.cluster_label()?;
    let (picture, _) = picture(web, Viewer::Owner).await.ok()?;
    let wall_ahead_ms = web.about.clock.displayed_wall_ahead_ms();
    let relay = relay_metrics(web, &picture, wall_ahead_ms).await;
    // A picture of a thousand nodes takes a while to convert.
    let converted = tokio::task::spawn_blocking(move || Snapshot::new(&picture, wall_ahead_ms));
    Some((converted.await.ok()?, relay))
}

/// Metrics in Prometheus' text format. A share's key shows the metrics of what the share shows.
#[utoipa::path(get, path = "/metrics", tag = "relay", operation_id = "metrics",
    params(("collect[]" = Option<Vec<String>>, Query, description = "Parts: `gpu`, `node`, `job`, `finding`, `process`, `relay`; all by default")),
    responses((status = 200, body = String, content_type = "text/plain")))]
pub async fn metrics(
    State(web): State<WebState>,
    caller: Caller,
    headers: HeaderMap,
    RawQuery(query): RawQuery,
) -> Result<Response, Response> {
    let collectors = collectors(query.as_deref().unwrap_or_default())?;
    let (viewer, mut charge) = caller.begin(&web).await?;
    let collectors = match viewer.is_restricted() {
        true => collectors.into_iter().filter(|collector| *collector != Collector::Relay).collect(),
        false => collectors,
    };
    let picture = everything(&web, viewer, &mut charge).await?;
    let wall_ahead_ms = web.about.clock.displayed_wall_ahead_ms();
    let relay = relay_metrics(&web, &picture, wall_ahead_ms).await;
    let is_gzip = accepts_gzip(&headers);
    let (sender, chunks) = mpsc::channel(CHUNKS);
    let mut out = ChunkWriter { sender, runtime: Handle::current(), waited: Duration::ZERO, bytes: 0 };
    charge.restart();
    // Ends with the text, or once the caller has gone or reads nothing any more.
    drop(tokio::task::spawn_blocking(move || {
        let snapshot = Snapshot::new(&picture, wall_ahead_ms);
        drop(picture);
        let _ = match is_gzip {
            true => {
                let mut gzip = GzEncoder::new(&mut out, Compression::fast());
                metrics::write(&snapshot, &relay, &collectors, &mut gzip)
                    .and_then(|()| gzip.finish().map(drop))
            }
            false => metrics::write(&snapshot, &relay, &collectors, &mut out),
        };
        charge.waited(out.waited);
        charge.sends(out.bytes);
    }));
    let chunks = stream::unfold(chunks, async |mut chunks: mpsc::Receiver<Bytes>| {
        Some((Ok::<_, Infallible>(chunks.recv().await?), chunks))
    });
    let headers = [(CONTENT_TYPE, metrics::CONTENT_TYPE), (VARY, "accept-encoding")];
    let mut response = (headers, Body::from_stream(chunks)).into_response();
    if is_gzip {
        response.headers_mut().insert(CONTENT_ENCODING, axum::http::HeaderValue::from_static("gzip"));
    }
    Ok(response)
}

/// Passes chunks to the connection. A thread writes, because compressing them takes long.
struct ChunkWriter {
    sender: mpsc::Sender<Bytes>,
    runtime: Handle,
    /// Time in which the caller had not read what was there.
    waited: Duration,
    bytes: usize,
}

impl Write for ChunkWriter {
    fn write(&mut self, chunk: &[u8]) -> io::Result<usize> {
        let began = Instant::now();
        let sent = self.sender.send_timeout(Bytes::copy_from_slice(chunk), READ_TIMEOUT);
        let sent = self.runtime.block_on(sent);
        self.waited += began.elapsed();
        sent.map_err(|_| io::Error::from(io::ErrorKind::BrokenPipe))?;
        self.bytes += chunk.len();
        Ok(chunk.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The collectors that a query selects, as `collect[]=gpu&collect[]=node`.
fn collectors(query: &str) -> Result<Vec<Collector>, Problem> {
    let mut selected = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let name = name.replace("%5B", "[").replace("%5b", "[").replace("%5D", "]").replace("%5d", "]");
        let collector = (name == "collect[]").then(|| Collector::from_name(value)).flatten();
        selected.push(collector.ok_or_else(|| {
            let known = Collector::ALL.map(Collector::name).join(", ");
            Problem::bad_request(format!("the only parameter is collect[], with one of: {known}"))
        })?);
    }
    Ok(if selected.is_empty() { Collector::ALL.to_vec() } else { selected })
}

fn accepts_gzip(headers: &HeaderMap) -> bool {
    let values = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut encodings = values.flat_map(|list| list.split(','));
    encodings.any(|encoding| {
        let (name, weight) = encoding.split_once(';').unwrap_or((encoding, ""));
        name.trim().eq_ignore_ascii_case("gzip") && weight.replace(' ', "") != "q=0"
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::http::HeaderValue;

    #[test]
    fn collectors_are_those_of_the_query() {
        assert_eq!(collectors("").unwrap(), Collector::ALL);
        assert_eq!(collectors("collect[]=gpu&collect%5B%5D=job").unwrap(), [Collector::Gpu, Collector::Job]);
        for wrong in ["collect[]=x", "collect=gpu", "gpu", "collect[]"] {
            assert!(collectors(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn the_text_is_compressed_for_clients_that_accept_it() {
        let accepts =
            |value| accepts_gzip(&HeaderMap::from_iter([(ACCEPT_ENCODING, HeaderValue::from_static(value))]));
        assert!(accepts("gzip") && accepts("br, gzip;q=0.5"));
        assert!(!accepts("br") && !accepts("gzip;q=0"));
    }
}
