//! Checks whether the configured servers accept connections: NATS, and those that store and serve metrics.

use super::{CheckResult, Context, limited};
use nodeglass_http_client::HttpUrl;
use std::net::SocketAddr;
use std::time::Duration;
use tokio::net::{TcpStream, lookup_host};

const SECTION: &str = "Services";
/// For the lookup of a name and a connection to each of its addresses.
const LIMIT: Duration = Duration::from_secs(10);
const ADVICE: &str = "check the address, that the server runs, and that a firewall admits this machine";

/// The servers; nothing if none is configured.
pub(super) async fn check(context: &Context) -> Vec<CheckResult> {
    let mut results = Vec::new();
    for server in context.config.nats().map(|settings| settings.servers).unwrap_or_default() {
        let check = async {
            let addresses = lookup_host(server.address()).await.map_err(|error| error.to_string());
            vec![reached("nats", &server.to_string(), addresses.map(Iterator::collect)).await]
        };
        results.extend(limited((SECTION, "nats"), LIMIT, check).await);
    }
    let urls = [("remote-write", &context.config.remote_write), ("history-url", &context.config.history_url)];
    for (name, url) in urls {
        if let Some(url) = url {
            results.extend(limited((SECTION, name), LIMIT, async { vec![check_url(name, url).await] }).await);
        }
    }
    results
}

async fn check_url(name: &'static str, url: &HttpUrl) -> CheckResult {
    reached(
        name,
        &url.to_string(),
        nodeglass_http_client::resolve(url).await.map_err(|error| error.to_string()),
    )
    .await
}

/// Connects to the first of the addresses that accepts it, and sends nothing.
async fn reached(
    name: &'static str,
    server: &str,
    addresses: Result<Vec<SocketAddr>, String>,
) -> CheckResult {
    let connected = match addresses {
        Ok(addresses) => TcpStream::connect(&addresses[..]).await.map_err(|error| error.to_string()),
        Err(error) => Err(error),
    };
    match connected {
        Ok(_) => CheckResult::ok(SECTION, name, format!("{server} accepts connections; no data was sent")),
        Err(error) => {
            CheckResult::fail(SECTION, name, format!("{server} cannot be reached: {error}"), ADVICE)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Level;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn a_server_that_does_not_listen_fails_without_the_path_of_its_url() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url: HttpUrl = format!("http://{}/s3cret", listener.local_addr().unwrap()).parse().unwrap();
        let found = check_url("remote-write", &url).await;
        assert_eq!(found.level, Level::Ok, "{found:?}");
        drop(listener);
        let found = check_url("remote-write", &url).await;
        assert_eq!(found.level, Level::Fail, "{found:?}");
        assert!(!found.text.contains("s3cret"), "{found:?}");
    }
}
