//! Reading or altering the file with stored shares gives no access.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::{CloseReason, Role, Topic};
use nodeglass_tests::TestRelay;
use nodeglass_tests::client::Client;
use nodeglass_tests::http;
use nodeglass_tests::relay::Link;
use std::path::Path;
use tokio::net::TcpStream;

/// The job of the demo that is shared here, and one with as many digits that is not.
const SHARED: &str = "48213";
const OTHER: &str = "48402";

/// A relay of the demo that stores its shares in a folder, at the same port each time.
fn relay(state: &Path, bind: &str) -> Result<TestRelay> {
    TestRelay::start_in(
        &["--demo", "--persist-shares", "--bind", bind],
        [("XDG_STATE_HOME", state.as_os_str())],
    )
}

async fn knock(link: &Link) -> Result<Result<Client, CloseReason>> {
    Client::authenticate(Box::new(TcpStream::connect(&link.authority).await?), link).await
}

#[tokio::test]
async fn t09_stored_shares_grant_no_more_when_read_or_altered() -> Result<()> {
    let home = tempfile::tempdir()?;
    let state = home.path().join("state");
    let bind = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let first = relay(&state, &bind)?;
    let output = first.run(&["share", "create", "--job", SHARED])?;
    let link = output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))?;
    let id = link.share.clone().context("the id of the share")?;
    first.terminate()?;
    let file = state.join("nodeglass/shares.db");
    let mut bytes = std::fs::read(&file)?;

    // No 32 bytes in the file are a key: neither the link's nor the proof's.
    let second = relay(&state, &bind)?;
    let verifier = link.key.verifier();
    let (stored, server) = verifier.expose();
    for kept in [stored, server] {
        ensure!(bytes.windows(kept.len()).any(|window| window == kept), "the file was not understood");
        let bearer = format!("Bearer {id}.{}", Key::new(*kept).reveal());
        let reply = http::get(&bind, "/api/v1/picture", &[("Authorization", &bearer)])?;
        ensure!(reply.status == 401, "{}: {}", reply.status, reply.body);
    }
    for key in [&link.key, &link.key.client_key()] {
        ensure!(!bytes.windows(32).any(|window| window == key.expose()), "a key is in the file");
    }
    let Ok(mut guest) = knock(&link).await? else { bail!("the link does not outlive the relay") };
    ensure!(guest.welcome().role == Role::Guest);
    guest.subscribe(&[Topic::Overview]).await?;
    let jobs = guest.until(&Topic::Overview, "the job", |known| !known.picture.jobs.is_empty()).await?;
    ensure!(jobs.jobs.len() == 1, "{:?}", jobs.jobs);
    second.terminate()?;

    // The terms name another job now: the same link must not show it.
    let terms = format!("{{\"jobs\":[{SHARED}]}}").into_bytes();
    let at =
        bytes.windows(terms.len()).position(|window| window == terms).context("the terms in the file")?;
    bytes[at..at + terms.len()].copy_from_slice(format!("{{\"jobs\":[{OTHER}]}}").as_bytes());
    std::fs::write(&file, &bytes)?;
    let third = relay(&state, &bind)?;
    ensure!(third.run(&["share", "list"])?.contains(OTHER), "the terms were not altered");
    match knock(&link).await? {
        Err(CloseReason::Revoked) => {}
        other => bail!("altered terms were let through: {other:?}"),
    }
    ensure!(third.run(&["share", "list"])? == "no open shares\n", "it is closed for good");
    third.terminate()?;
    Ok(())
}
