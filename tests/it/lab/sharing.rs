//! A shared job on a real cluster: bob sees that job only, and carol nothing.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{CloseReason, Role, Topic};
use nodeglass_protocol::request::{JobAction, LogRef, LogStream, Request, Response};
use nodeglass_protocol::{JobId, Row};
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::{Site, Tunnel};
use nodeglass_tests::relay::Link;
use tokio::net::TcpStream;

/// Tries a link through another user's tunnel.
async fn knock(tunnel: &Tunnel, link: &Link) -> Result<Result<Client, CloseReason>> {
    let authority = format!("127.0.0.1:{}", tunnel.port());
    let pipe = TcpStream::connect(&authority).await?;
    Client::authenticate(Box::new(pipe), &link.at(&authority)).await
}

/// The log of the shared job.
const PROJECT: &str = "/home/project";

/// Bob follows the log of alice's job, and replaces it by a link to a key of hers.
async fn exchange_the_log(site: &Site, bobs: &Tunnel, job: JobId) -> Result<()> {
    let shell = |user: &str, script: &str| site.lab.text("login", user, &["sh", "-c", script]);
    let name = format!("{PROJECT}/slurm-{job}.out");
    shell(
        "alice",
        &format!("echo epoch 1 >> {name}; umask 077; mkdir -p ~/.ssh; echo CANARY > ~/.ssh/canary"),
    )?;
    let output =
        site.run_relay("alice", &["share", "create", "--job", &job.to_string(), "--show", "logs"])?;
    let link = output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))?;
    let Ok(mut bob) = knock(bobs, &link).await? else { bail!("bob was refused") };
    let log = LogRef { job, stream: LogStream::Stdout };
    let has = |lines: &[String], what: &str| lines.iter().any(|line| line.contains(what));
    bob.follow(&[log]).await?;
    bob.log_until(log, "the log", |lines| has(lines, "epoch 1")).await?;
    shell("bob", &format!("mv {name} {name}.moved && ln -s ~alice/.ssh/canary {name}"))?;
    let lines =
        bob.log_until(log, "a refusal", |lines| has(lines, "trouble:") || has(lines, "CANARY")).await?;
    ensure!(!has(lines, "CANARY"), "alice's key reached bob: {lines:?}");
    shell("bob", &format!("mv {name}.moved {name}"))?;
    shell("alice", &format!("echo epoch 2 >> {name}"))?;
    bob.log_until(log, "the log again", |lines| has(lines, "epoch 2")).await?;
    let id = link.share.context("the id of the share")?;
    site.run_relay("alice", &["share", "revoke", id.as_str()])?;
    Ok(())
}

#[tokio::test]
async fn t02_t09_t10_a_guest_sees_only_the_shared_job_until_it_is_revoked() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    // A project folder, to which bob may write as well.
    site.lab.text("login", "root", &["install", "-d", "-m", "2777", PROJECT])?;
    // Both on one node, so that there is something besides the shared job to hide from bob.
    let output = format!("--output={PROJECT}/slurm-%j.out");
    let shared = site.train("alice", &["--gres=gpu:1", "-J", "shared-by-alice", &output])?;
    let other = site.train("alice", &["--gres=gpu:2", "-J", "canary-of-alice"])?;
    for job in [shared, other] {
        site.lab.wait_until(job, "RUNNING")?;
    }
    let relay = site.relay("alice")?;
    let mut alice = Client::connect(&relay.link, Form::Binary).await?;
    alice.subscribe(&[Topic::Overview]).await?;
    alice.until(&Topic::Overview, "both jobs", |known| known.picture.jobs.len() == 2).await?;

    let job = shared.to_string();
    let output = site.run_relay("alice", &["share", "create", "--job", &job, "--to", "bob"])?;
    let link = output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))?;
    ensure!(output.contains("ssh -L 8080:127.0.0.1:8080 login"), "{output}");
    let (bobs, carols) = (site.tunnel("bob")?, site.tunnel("carol")?);

    // Bob sees that job and its one GPU of four, and not even the name of anything else.
    let Ok(mut bob) = knock(&bobs, &link).await? else { bail!("bob was refused") };
    ensure!(bob.welcome().role == Role::Guest && !bob.welcome().may_act, "{:?}", bob.welcome());
    bob.subscribe(&[Topic::Overview, Topic::Job(shared), Topic::Job(other)]).await?;
    let gpu_shown =
        |picture: &nodeglass_protocol::Picture| picture.nodes.iter().any(|node| !node.gpus.is_empty());
    bob.until(&Topic::Job(shared), "a GPU", |known| gpu_shown(&known.picture)).await?;
    bob.until(&Topic::Job(shared), "a process", |known| {
        known.picture.nodes.iter().any(|node| !node.processes.is_empty())
    })
    .await?;
    let overview = bob.picture(&Topic::Overview).context("the overview")?;
    ensure!(overview.jobs.iter().map(|job| job.id).eq([shared]), "{:?}", overview.jobs);
    ensure!(overview.audit_log.is_empty() && overview.sharing == Default::default());
    let picture = bob.picture(&Topic::Job(shared)).context("the job")?;
    ensure!(picture.nodes[0].gpus.len() == 1, "{:?}", picture.nodes[0].gpus);
    ensure!(picture.nodes[0].processes.iter().all(|process| process.facts.job == Some(shared)));
    ensure!(picture.nodes[0].processes.iter().all(|process| process.facts.args.value().is_none()));
    ensure!(picture.nodes[0].host == Row::default(), "what other jobs do: {:?}", picture.nodes[0].host);
    for topic in [Topic::Overview, Topic::Job(shared)] {
        let all = format!("{:?}", bob.picture(&topic));
        ensure!(!all.contains("canary"), "{all}");
    }
    ensure!(bob.picture(&Topic::Job(other)).is_none());

    exchange_the_log(&site, &bobs, shared).await?;

    // He cannot act, and alice sees that he is connected.
    match bob.request(Request::Job { job: shared, action: JobAction::Cancel }).await? {
        Response::Refused(why) if why.as_str().contains("only the owner") => {}
        response => bail!("bob acted: {response:?}"),
    }
    let seen = |picture: &nodeglass_protocol::Picture| {
        picture.sharing.visitors.iter().any(|visitor| visitor.user == Some("bob".into()))
    };
    alice.until(&Topic::Overview, "bob among the visitors", |known| seen(&known.picture)).await?;
    let listed = site.run_relay("alice", &["share", "list"])?;
    ensure!(listed.contains("bob for") && listed.contains(&format!("job {shared}")), "{listed}");

    // Carol obtained both links.
    match knock(&carols, &relay.link).await? {
        Err(CloseReason::NotTheOwner { user }) => ensure!(user == Some("carol".into()), "{user:?}"),
        other => bail!("carol with alice's own link: {other:?}"),
    }
    match knock(&carols, &link).await? {
        Err(CloseReason::NotForYou { to }) => ensure!(to.as_str() == "bob"),
        other => bail!("carol with bob's link: {other:?}"),
    }

    // Once revoked, it ends at once, and stays closed.
    let id = link.share.clone().context("the id of the share")?;
    let Response::Done(_) = alice.request(Request::Revoke(id)).await? else { bail!("it was not revoked") };
    ensure!(bob.close_reason().await? == CloseReason::Revoked);
    match knock(&bobs, &link).await? {
        Err(CloseReason::Revoked) => {}
        other => bail!("bob came in again: {other:?}"),
    }
    ensure!(site.run_relay("alice", &["share", "list"])? == "no open shares\n");
    Ok(())
}
