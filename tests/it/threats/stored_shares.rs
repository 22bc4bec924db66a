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

/// A relay that watches this machine, or `what`, and stores its shares in a folder, at the same port each time.
fn relay(what: &str, state: &Path, bind: &str) -> Result<TestRelay> {
    TestRelay::start_in(&[what, "--persist-shares", "--bind", bind], [("XDG_STATE_HOME", state.as_os_str())])
}

async fn knock(link: &Link) -> Result<Result<Client, CloseReason>> {
    Client::authenticate(Box::new(TcpStream::connect(&link.authority).await?), link).await
}

#[tokio::test]
async fn t09_stored_shares_grant_no_more_when_read_or_altered() -> Result<()> {
    let home = tempfile::tempdir()?;
    let state = home.path().join("state");
    let bind = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let first = relay("--local", &state, &bind)?;
    let output = first.run(&["share", "create", "--everything"])?;
    let link = output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))?;
    let id = link.share.clone().context("the id of the share")?;
    first.terminate()?;
    let file = state.join("nodeglass/shares.db");
    let mut bytes = std::fs::read(&file)?;

    // No 32 bytes in the file are a key: neither the link's nor the proof's.
    let second = relay("--local", &state, &bind)?;
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
    guest.until(&Topic::Overview, "this machine", |known| !known.picture.nodes.is_empty()).await?;
    second.terminate()?;

    // The terms hide less now: the same link must not show it.
    let terms = br#""arguments":true,"paths":true,"#;
    let at =
        bytes.windows(terms.len()).position(|window| window == terms).context("the terms in the file")?;
    bytes[at..at + terms.len()].copy_from_slice(br#""arguments":false,            "#);
    std::fs::write(&file, &bytes)?;
    let third = relay("--local", &state, &bind)?;
    ensure!(!third.run(&["share", "list"])?.contains("arguments"), "the terms were not altered");
    match knock(&link).await? {
        Err(CloseReason::Revoked) => {}
        other => bail!("altered terms were let through: {other:?}"),
    }
    ensure!(third.run(&["share", "list"])? == "no open shares\n", "it is closed for good");
    third.terminate()?;
    Ok(())
}

#[tokio::test]
async fn t09_a_link_to_a_simulated_cluster_or_to_this_machine_opens_nothing_else() -> Result<()> {
    let home = tempfile::tempdir()?;
    let state = home.path().join("state");
    let bind = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.to_string();
    let share = |relay: &TestRelay| -> Result<Link> {
        let output = relay.run(&["share", "create", "--everything"])?;
        output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))
    };
    let demo = relay("--demo", &state, &bind)?;
    let simulated = share(&demo)?;
    demo.terminate()?;
    let machine = relay("--local", &state, &bind)?;
    ensure!(matches!(knock(&simulated).await?, Err(CloseReason::Refused)), "a link to the demo is open");
    ensure!(machine.run(&["share", "list"])? == "no open shares\n", "it was stored");
    let link = share(&machine)?;
    let id = link.share.clone().context("the id of the share")?;
    machine.terminate()?;

    let more = relay("--host=self", &state, &bind)?;
    ensure!(matches!(knock(&link).await?, Err(CloseReason::Refused)), "it shows what was not watched");
    let listed = more.run(&["share", "list"])?;
    let expected = format!("closed here: {id} (everything), made while the relay watched this machine");
    ensure!(listed.contains(&expected), "{listed}");
    more.terminate()?;
    let machine = relay("--local", &state, &bind)?;
    ensure!(knock(&link).await?.is_ok(), "it was closed for good");
    machine.terminate()?;
    Ok(())
}
