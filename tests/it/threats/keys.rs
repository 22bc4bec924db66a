//! A key gives access to its holder only, for its lifetime only, and is stored only where it must be.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::{CloseReason, Role, Topic};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::client::{Client, Pipe};
use nodeglass_tests::other_user::{self, NOBODY};
use nodeglass_tests::process::Process;
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::skip::skip;
use rustix::process::Signal;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Skips a test if this process cannot switch to another user.
fn alone() -> bool {
    let why = other_user::why_not();
    why.iter().for_each(|why| skip(why));
    why.is_some()
}

fn nobody(link: &Link) -> Result<Box<dyn Pipe>> {
    Ok(Box::new(other_user::connect(NOBODY, &link.authority)?))
}

/// The answer to one request over a connection.
async fn get(mut pipe: Box<dyn Pipe>, link: &Link, path: &str, key: Option<&str>) -> Result<String> {
    let bearer = key.map_or(String::new(), |key| format!("Authorization: Bearer {key}\r\n"));
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: {}\r\n{bearer}Connection: close\r\n\r\n", link.authority);
    pipe.write_all(head.as_bytes()).await?;
    let mut response = Vec::new();
    tokio::time::timeout(TIMEOUT, pipe.read_to_end(&mut response)).await??;
    Ok(String::from_utf8_lossy(&response).into_owned())
}

fn share(relay: &TestRelay, args: &[&str]) -> Result<Link> {
    let output = relay.run(&[&["share", "create"], args].concat())?;
    output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))
}

#[tokio::test]
async fn t01_another_user_without_a_key_gets_no_data() -> Result<()> {
    if alone() {
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    let link = relay.link();
    for path in ["/api/v1/picture", "/api/v1/shares", "/api/v1/shares/abc"] {
        let response = get(nobody(link)?, link, path, None).await?;
        ensure!(response.starts_with("HTTP/1.1 401"), "{path}: {response}");
        ensure!(!response.contains("alice") && !response.contains("gpu-"), "{path}: {response}");
    }
    let wrong = Key::new([9; 32]);
    let refused = Client::connect_over(nobody(link)?, link, &wrong, Form::Json).await;
    ensure!(refused.is_err(), "a wrong key opened");
    Ok(())
}

#[tokio::test]
async fn t02_another_user_with_the_owners_link_is_refused_with_a_reason() -> Result<()> {
    if alone() {
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    let link = relay.link();
    match Client::authenticate(nobody(link)?, link).await? {
        Err(CloseReason::NotTheOwner { user }) => ensure!(user == Some("nobody".into()), "{user:?}"),
        other => bail!("user nobody was admitted: {other:?}"),
    }
    let response = get(nobody(link)?, link, "/api/v1/picture", Some(&link.key.reveal())).await?;
    ensure!(
        response.starts_with("HTTP/1.1 403") && response.contains("owner's own connections"),
        "{response}"
    );
    // The owner with the same link, at the same time.
    let own = TcpStream::connect(&link.authority).await?;
    ensure!(Client::authenticate(Box::new(own), link).await?.is_ok());
    Ok(())
}

#[tokio::test]
async fn t02_a_trusted_peer_may_present_the_owners_key() -> Result<()> {
    if alone() {
        return Ok(());
    }
    let relay = TestRelay::start(&["--demo", "--trust-uid", "nobody"])?;
    let Ok(client) = Client::authenticate(nobody(relay.link())?, relay.link()).await? else {
        bail!("refused")
    };
    ensure!(client.welcome().role == Role::Owner);
    Ok(())
}

#[tokio::test]
async fn a_share_for_one_user_admits_only_that_user() -> Result<()> {
    if alone() {
        return Ok(());
    }
    let relay = TestRelay::demo()?;
    let (theirs, anybodys) =
        (share(&relay, &["--everything", "--to", "nobody"])?, share(&relay, &["--everything"])?);
    for link in [&theirs, &anybodys] {
        let Ok(guest) = Client::authenticate(nobody(link)?, link).await? else { bail!("refused") };
        ensure!(guest.welcome().role == Role::Guest && !guest.welcome().may_act);
    }
    let daemon = other_user::connect(1, &theirs.authority)?;
    match Client::authenticate(Box::new(daemon), &theirs).await? {
        Err(CloseReason::NotForYou { to }) => ensure!(to.as_str() == "nobody"),
        other => bail!("another came in: {other:?}"),
    }
    Ok(())
}

#[tokio::test]
async fn t09_a_bearer_share_reads_its_scope_and_creates_no_share() -> Result<()> {
    let relay = TestRelay::demo()?;
    let link = share(&relay, &["--everything"])?;
    let shown = link.url.rsplit_once("#s=").context("a share's link")?.1.to_owned();
    let pipe = async || anyhow::Ok(Box::new(TcpStream::connect(&link.authority).await?) as Box<dyn Pipe>);
    let picture = get(pipe().await?, &link, "/api/v1/picture", Some(&shown)).await?;
    ensure!(picture.starts_with("HTTP/1.1 200") && picture.contains("\"jobs\""), "{picture}");
    ensure!(
        picture.contains("\"sharing\":{\"shares\":[],\"visitors\":[],\"closed\":[]}"),
        "a guest sees who looks"
    );
    let shares = get(pipe().await?, &link, "/api/v1/shares", Some(&shown)).await?;
    ensure!(shares.starts_with("HTTP/1.1 403"), "{shares}");
    Ok(())
}

#[tokio::test]
async fn t10_revoking_a_share_disconnects_a_guest_that_does_not_read() -> Result<()> {
    let relay = TestRelay::demo()?;
    let link = share(&relay, &["--everything"])?;
    let id = link.share.as_ref().context("its id")?.to_string();
    let mut listens =
        Client::authenticate(Box::new(TcpStream::connect(&link.authority).await?), &link).await?;
    let mut sleeps =
        Client::authenticate(Box::new(TcpStream::connect(&link.authority).await?), &link).await?;
    for guest in [&mut listens, &mut sleeps] {
        let Ok(guest) = guest else { bail!("refused") };
        guest.subscribe(&[Topic::Overview]).await?;
    }
    relay.run(&["share", "revoke", &id])?;
    let began = Instant::now();
    let Ok(listens) = listens else { bail!("refused") };
    ensure!(listens.close_reason().await? == CloseReason::Revoked);
    // A guest that does not read is not waited for: the viewer count drops all the same.
    loop {
        let listed = relay.run(&["share", "list"])?;
        let sharing = get_sharing(&relay).await?;
        ensure!(listed == "no open shares\n", "{listed}");
        if sharing.visitors.is_empty() {
            break;
        }
        ensure!(began.elapsed() < TIMEOUT, "{sharing:?}");
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    drop(sleeps);
    Ok(())
}

async fn get_sharing(relay: &TestRelay) -> Result<nodeglass_protocol::share::Sharing> {
    let link = relay.link();
    let pipe = Box::new(TcpStream::connect(&link.authority).await?);
    let response = get(pipe, link, "/api/v1/shares", Some(&link.key.reveal())).await?;
    let (_, body) = response.split_once("\r\n\r\n").context("an answer with a body")?;
    Ok(serde_json::from_str(body)?)
}

#[tokio::test]
async fn t11_guessing_share_ids_is_rate_limited() -> Result<()> {
    let relay = TestRelay::demo()?;
    let key = "A".repeat(43);
    for guess in 0..20 {
        let pipe = Box::new(TcpStream::connect(&relay.link().authority).await?);
        let shown = format!("guess{guess}.{key}");
        let response = get(pipe, relay.link(), "/api/v1/picture", Some(&shown)).await?;
        if response.starts_with("HTTP/1.1 429") {
            ensure!(response.to_lowercase().contains("retry-after: "), "{response}");
            ensure!(guess >= 3, "only {guess} guesses");
            return Ok(());
        }
        ensure!(response.starts_with("HTTP/1.1 401"), "{response}");
    }
    bail!("twenty guesses were processed")
}

#[tokio::test]
async fn shares_outlive_the_relay_only_if_configured() -> Result<()> {
    let home = tempfile::tempdir()?;
    let state = home.path().join("state");
    let environment = || [("XDG_STATE_HOME", state.as_os_str())];
    let port = std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let bind = port.to_string();
    for (args, opens) in
        [(["--local", "--persist-shares"], true), (["--local", "--persist-shares=false"], false)]
    {
        let first = TestRelay::start_in(&[args[0], args[1], "--bind", &bind], environment())?;
        let link = share(&first, &["--everything"])?;
        first.terminate()?;
        let second = TestRelay::start_in(&[args[0], args[1], "--bind", &bind], environment())?;
        let knocked = Client::authenticate(Box::new(TcpStream::connect(&bind).await?), &link).await?;
        match (knocked, opens) {
            (Ok(guest), true) => ensure!(guest.welcome().role == Role::Guest),
            (Err(CloseReason::Refused), false) => {}
            (other, _) => bail!("{args:?}: {other:?}"),
        }
        second.terminate()?;
    }
    Ok(())
}

#[tokio::test]
async fn t08_the_key_appears_only_in_its_file_and_on_the_terminal() -> Result<()> {
    let relay = TestRelay::start(&["--demo", "--log", "trace"])?;
    let link = share(&relay, &["--everything"])?;
    let own = relay.link().key.reveal();
    let shown = link.url.rsplit_once('.').context("a share's secret")?.1.to_owned();
    // Everything that uses a key, correct and wrong.
    let mut client = Client::connect(relay.link(), Form::Binary).await?;
    client.subscribe(&[Topic::Overview]).await?;
    client.until(&Topic::Overview, "a picture", |_| true).await?;
    for key in [&own, &format!("{}x", &own[..42]), &"z".repeat(43)] {
        let pipe = Box::new(TcpStream::connect(&link.authority).await?);
        get(pipe, &link, "/api/v1/picture", Some(key)).await?;
    }
    let proc = Path::new("/proc").join(relay.pid().to_string());
    let mut places = vec![
        ("its arguments", std::fs::read(proc.join("cmdline"))?),
        ("its environment", std::fs::read(proc.join("environ"))?),
    ];
    // The terminal shows the link once, on its own line.
    let said = relay.output().lines().into_iter().filter(|line| !line.trim_start().starts_with("link "));
    places.push(("what it said", said.collect::<Vec<_>>().join("\n").into_bytes()));
    let mut files = vec![relay.home().to_owned()];
    while let Some(path) = files.pop() {
        if path.is_dir() {
            files.extend(std::fs::read_dir(&path)?.filter_map(|entry| Some(entry.ok()?.path())));
        } else if path.is_file() && path.extension().is_none_or(|extension| extension != "key") {
            places.push(("a file", std::fs::read(&path)?));
        }
    }
    for (place, bytes) in &places {
        for secret in [&own, &shown] {
            let found = bytes.windows(secret.len()).any(|window| window == secret.as_bytes());
            ensure!(!found, "a key is in {place}: {}", String::from_utf8_lossy(bytes));
        }
    }
    // Control: the search finds the key in the one file that must contain it.
    let kept = std::fs::read_dir(relay.home().join("nodeglass"))?.filter_map(Result::ok);
    let kept: Vec<_> =
        kept.filter(|entry| entry.path().extension().is_some_and(|kind| kind == "key")).collect();
    ensure!(kept.len() == 1 && std::fs::read_to_string(kept[0].path())?.contains(&own), "{kept:?}");
    Ok(())
}

/// Returns the end of a program that aborts without a limit on core dumps.
fn aborted(mut command: Command) -> Result<ExitStatus> {
    let mut process = Process::start(&mut command)?;
    if command.get_program() != "sh" {
        bail!("start it through a shell that lifts the limit");
    }
    process.wait_for("a link", Link::find)?;
    process.signal(Signal::ABORT)?;
    process.wait()
}

#[test]
fn t08_a_crashed_relay_leaves_no_core_dump() -> Result<()> {
    let home = tempfile::tempdir()?;
    let relay = TestRelay::command(home.path())?;
    let lifted = |argv: &[&std::ffi::OsStr]| {
        let mut command = Command::new("sh");
        command.env_clear().envs(relay.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.current_dir(home.path()).args(["-c", "ulimit -c unlimited; exec \"$0\" \"$@\""]).args(argv);
        command
    };
    let status = aborted(lifted(&[
        relay.get_program(),
        "--demo".as_ref(),
        "--bind".as_ref(),
        "127.0.0.1:0".as_ref(),
    ]))?;
    ensure!(status.signal() == Some(Signal::ABORT.as_raw()), "{status}");
    ensure!(!status.core_dumped(), "the core of a relay holds its key");
    // Control: another program that ends like this leaves a core dump, if this machine keeps any.
    let control = lifted(&["sh".as_ref(), "-c".as_ref(), "echo 'http://x/#k=AAAA'; kill -ABRT $$".as_ref()])
        .status()?;
    if !control.core_dumped() {
        println!("this machine keeps no cores at all, so that there being none says little here");
    }
    Ok(())
}
