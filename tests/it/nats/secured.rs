//! TLS, accounts and credentials.

use super::{NODE, is_live, subscribed};
use anyhow::{Context, Result, ensure};
use nodeglass_protocol::NodeName;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::picture::JobsHealth;
use nodeglass_tests::client::Known;
use nodeglass_tests::documents::example;
use nodeglass_tests::nats::NatsServer;
use nodeglass_tests::nats_accounts::NatsAccounts;
use nodeglass_tests::relay::TestRelay;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes a certificate of 127.0.0.1 and its key; returns their paths.
fn certificate(folder: &Path, name: &str) -> Result<[String; 2]> {
    let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    let paths = ["pem", "key"].map(|ending| folder.join(name).with_extension(ending));
    fs::write(&paths[0], made.cert.pem())?;
    fs::write(&paths[1], made.signing_key.serialize_pem())?;
    Ok(paths.map(|path| path.display().to_string()))
}

#[tokio::test]
async fn relays_share_nodes_over_tls_and_refuse_a_server_of_another_authority() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let [cert, key] = certificate(folder.path(), "server")?;
    let [other, _] = certificate(folder.path(), "other")?;
    let Some(server) = NatsServer::start(&["--tls", "--tlscert", &cert, "--tlskey", &key])? else {
        return Ok(());
    };
    let url = server.url().replace("nats://", "tls://");
    let relay = |ca: &str, more: &[&str]| {
        TestRelay::start(&[&["--nats", &url, "--nats-ca", ca, "--cluster", "demo"], more].concat())
    };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = relay(&cert, &["--demo"])?;
    subscribed(&publisher, &topic).await?.until(&topic, "a live node", is_live).await?;
    let viewer = relay(&cert, &["--view-only"])?;
    subscribed(&viewer, &topic).await?.until(&topic, "a live node over TLS", is_live).await?;

    let refusing = relay(&other, &["--demo"])?;
    subscribed(&refusing, &topic).await?.until(&topic, "a live node without NATS", is_live).await?;
    refusing.wait_for_text(&format!("no connection to NATS at {url}"))?;
    Ok(())
}

#[tokio::test]
async fn accounts_separate_relays_whose_credentials_are_files_of_nsc() -> Result<()> {
    let accounts = NatsAccounts::create(&["ours", "theirs"])?;
    let Some(server) = NatsServer::start(&["-c", accounts.config()?])? else { return Ok(()) };
    let relay = |account: &str, more: &[&str]| {
        let credentials = accounts.credentials(account);
        let nats = ["--nats", &server.url(), "--nats-credentials", &credentials, "--cluster", "demo"];
        TestRelay::start(&[&nats, more].concat())
    };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = relay("ours", &["--demo"])?;
    subscribed(&publisher, &topic).await?.until(&topic, "a live node", is_live).await?;
    let viewer = relay("ours", &["--view-only"])?;
    subscribed(&viewer, &topic).await?.until(&topic, "a live node over NATS", is_live).await?;
    ensure!(!publisher.output().text().contains("gives no leases"), "{}", publisher.output().text());

    let foreign = relay("theirs", &["--view-only"])?;
    let sees_nobody = |known: &Known| {
        let JobsHealth::Stale { reason, .. } = &known.picture.relay.jobs else { return false };
        reason.as_str().contains("no relay publishes the cluster demo over NATS")
    };
    let mut on_foreign = subscribed(&foreign, &topic).await?;
    let overview = on_foreign.until(&Topic::Overview, "no publisher", sees_nobody).await?;
    ensure!(overview.nodes.is_empty() && overview.jobs.is_empty(), "the other account's: {overview:?}");
    Ok(())
}

/// A server as docs/ADMIN.md configures it, on free ports and with a folder of its own.
fn documented(folder: &Path, change: impl Fn(String) -> String) -> Result<Option<NatsServer>> {
    let text = example(include_str!("../../../docs/ADMIN.md"), "## NATS", "text")?;
    let is_own = |line: &&str| !line.contains("store_dir:");
    let text =
        text.lines().filter(is_own).collect::<Vec<_>>().join("\n").replace("127.0.0.1:8222", "127.0.0.1:-1");
    let config = folder.join("nats.conf");
    fs::write(&config, change(text))?;
    NatsServer::start(&["-c", config.to_str().context("a path in UTF-8")?])
}

/// A relay of the cluster `hpc` with one of the documented users.
fn relay_as(user: &str, folder: &Path, server: &NatsServer, more: &[&str]) -> Result<TestRelay> {
    let file = folder.join("credentials");
    fs::write(&file, user)?;
    fs::set_permissions(&file, PermissionsExt::from_mode(0o600))?;
    let credentials = file.display().to_string();
    let nats = ["--nats", &server.url(), "--nats-credentials", &credentials, "--cluster", "hpc"];
    TestRelay::start(&[&nats, more].concat())
}

fn metrics(relay: &TestRelay) -> Result<String> {
    crate::remote_write::get(relay, "/metrics?collect[]=relay")
}

#[tokio::test]
async fn the_permissions_of_the_documents_suffice() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let Some(server) = documented(folder.path(), |text| text)? else { return Ok(()) };
    let topic = Topic::Node(NodeName::new(NODE)?);
    let publisher = relay_as("relay:change-me-1", folder.path(), &server, &["--demo"])?;
    subscribed(&publisher, &topic).await?.until(&topic, "a live node", is_live).await?;
    let viewer = relay_as("viewer:change-me-2", folder.path(), &server, &["--view-only"])?;
    let mut on_viewer = subscribed(&viewer, &topic).await?;
    on_viewer.until(&topic, "a live node over NATS", is_live).await?;
    on_viewer.until(&Topic::Overview, "jobs over NATS", |known| !known.picture.jobs.is_empty()).await?;
    for relay in [&publisher, &viewer] {
        let output = relay.output().text();
        ensure!(!output.contains("permit") && !output.contains("lease"), "{output}");
        ensure!(metrics(relay)?.contains("nodeglass_relay_nats_up{cluster=\"hpc\",part=\"connection\"} 1"));
    }
    ensure!(metrics(&publisher)?.contains(",part=\"leases\"} 1"), "{}", metrics(&publisher)?);
    ensure!(!metrics(&viewer)?.contains(",part=\"leases\"}"), "it needs none");
    Ok(())
}

#[tokio::test]
async fn what_the_credentials_lack_is_stated() -> Result<()> {
    let folder = tempfile::tempdir()?;
    // Neither announcements nor the bucket.
    let restricted =
        |text: String| text.replace("\"nodeglass.v1.hpc.>\", \"$JS.API.>\"", "\"nodeglass.v1.hpc.node.>\"");
    let Some(server) = documented(folder.path(), restricted)? else { return Ok(()) };
    let relay = relay_as("relay:change-me-1", folder.path(), &server, &["--demo"])?;
    relay.wait_for_text("permit these credentials to publish to $JS.API.")?;
    relay.wait_for_text("publish to nodeglass.v1.hpc.relay.*.announce")?;
    let output = relay.output().text();
    ensure!(!output.contains("turn JetStream on"), "{output}");
    let topic = Topic::Node(NodeName::new(NODE)?);
    let mut client = subscribed(&relay, &topic).await?;
    let is_noticed = |known: &Known| {
        let notices = &known.picture.relay.notices;
        ["does not permit", "gives no leases"]
            .iter()
            .all(|text| notices.iter().any(|one| one.as_str().contains(text)))
    };
    client.until(&Topic::Overview, "both notices", is_noticed).await?;
    ensure!(metrics(&relay)?.contains(",part=\"leases\"} 0"), "{}", metrics(&relay)?);
    Ok(())
}

#[tokio::test]
async fn a_request_makes_no_relay_publish_where_the_requester_may_not() -> Result<()> {
    let Some(server) = NatsServer::start(&[])? else { return Ok(()) };
    let relay = TestRelay::start(&["--demo", "--nats", &server.url(), "--cluster", "demo"])?;
    let topic = Topic::Node(NodeName::new(NODE)?);
    subscribed(&relay, &topic).await?.until(&topic, "a live node", is_live).await?;
    let mut reader = server.client()?;
    let (forged, inbox) = ("nodeglass.v1.demo.jobs.forged", "_INBOX.reader");
    reader.subscribe(">")?;
    let request =
        br#"{"relay":"00000000000000aa","sampling":{"interval_ms":2000,"phase_ms":0},"backfill":null}"#;
    let subject = format!("nodeglass.v1.demo.node.{NODE}.request");
    reader.request(&subject, forged, request)?;
    reader.request(&subject, inbox, request)?;
    // Answers leave in the order of the requests.
    reader.wait_for(inbox, 1)?;
    ensure!(reader.count(forged) == 0, "the relay published where the request told it to");
    Ok(())
}

#[test]
fn credentials_that_others_can_read_are_refused_at_the_start() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("credentials");
    fs::write(&file, "nodeglass:hunter2\n")?;
    fs::set_permissions(&file, PermissionsExt::from_mode(0o644))?;
    let credentials = file.display().to_string();
    let nats = ["--nats", "nats://127.0.0.1:1", "--nats-credentials", &credentials, "--demo"];
    let error = TestRelay::start(&nats).err().context("it starts")?.to_string();
    ensure!(error.contains("--nats-credentials: ") && error.contains("run `chmod 600` on it"), "{error}");
    ensure!(!error.contains("hunter2"), "{error}");
    Ok(())
}
