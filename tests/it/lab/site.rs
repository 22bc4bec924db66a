//! One relay for a whole cluster, run by an account of its own: everyone sees their own jobs, a member of an account its
//! jobs, an administrator everything, and nobody else anything.

mod nginx;

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::JobId;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{CloseReason, Role, Topic};
use nodeglass_protocol::request::{JobAction, Request, Response};
use nodeglass_tests::browser::Browser;
use nodeglass_tests::client::Client;
use nodeglass_tests::lab::{LoginRelay, Site, Tunnel};
use nodeglass_tests::{TIMEOUT, http};
use std::time::Instant;
use tokio::net::TcpStream;

/// A client, or why a connection without a key was refused.
type Knocked = Result<Result<Client, CloseReason>>;

/// Connects without a key through the tunnel of a user.
async fn knock(tunnel: &Tunnel, relay: &LoginRelay) -> Knocked {
    let authority = format!("127.0.0.1:{}", tunnel.port());
    let pipe = TcpStream::connect(&authority).await?;
    Client::identify(Box::new(pipe), &relay.link.at(&authority), Form::Binary, &[]).await
}

/// Requests the list of jobs as a user of the login host, without a tunnel; returns the status and the body.
fn local(site: &Site, user: &str) -> Result<(u16, String)> {
    let script = "import urllib.request as r, urllib.error as e\n\
        try: reply = r.urlopen('http://127.0.0.1:8080/api/v1/jobs')\n\
        except e.HTTPError as error: reply = error\n\
        print(reply.status, reply.read().decode())";
    let text = site.lab.text("login", user, &["python3", "-c", script])?;
    let (status, body) = text.split_once(' ').context("a status")?;
    Ok((status.parse()?, body.to_owned()))
}

/// Waits until a person is shown exactly these jobs with their GPUs, and returns everything that was received of them. The
/// relay disconnects a person when it learns of their accounts.
async fn sees(knock: impl AsyncFn() -> Knocked, user: &str, expected: &[JobId]) -> Result<String> {
    let began = Instant::now();
    let mut last = String::new();
    while began.elapsed() < 2 * TIMEOUT {
        let Ok(mut client) = knock().await? else { bail!("{user} was refused") };
        let welcome = client.welcome();
        ensure!(welcome.role == Role::Guest && !welcome.may_act, "{welcome:?}");
        ensure!(welcome.person == Some(user.into()), "{welcome:?}");
        let topics: Vec<_> =
            [Topic::Overview].into_iter().chain(expected.iter().map(|id| Topic::Job(*id))).collect();
        client.subscribe(&topics).await?;
        if client.until(&Topic::Overview, "the overview", |_| true).await.is_err() {
            continue;
        }
        let overview = client.picture(&Topic::Overview).context("the overview")?;
        let mut listed: Vec<_> = overview.jobs.iter().map(|job| job.id).collect();
        listed.sort_unstable();
        if listed == expected {
            let mut all = format!("{overview:?}");
            for id in expected {
                let has_gpu = |picture: &nodeglass_protocol::Picture| {
                    picture.nodes.iter().any(|node| !node.gpus.is_empty())
                };
                client.until(&Topic::Job(*id), "a GPU", |known| has_gpu(&known.picture)).await?;
                all += &format!("{:?}", client.picture(&Topic::Job(*id)));
            }
            let cancel = Request::Job { job: expected[0], action: JobAction::Cancel };
            let answer = client.request(cancel).await?;
            ensure!(matches!(answer, Response::Refused(_)), "{user} acted: {answer:?}");
            return Ok(all);
        }
        last = format!("{listed:?}");
        tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    }
    bail!("{user} sees {last}, not {expected:?}")
}

/// Makes alice the only member of the account `ml`.
fn add_member(site: &Site) -> Result<()> {
    for args in [&["account", "ml"][..], &["user", "alice", "account=ml"]] {
        site.lab.text("slurm-ctl", "root", &[&["sacctmgr", "--immediate", "add"], args].concat())?;
    }
    Ok(())
}

#[tokio::test]
async fn t09_each_person_of_a_site_sees_their_own_jobs_and_those_of_their_account() -> Result<()> {
    let Some(site) = Site::accounting_or_skip(2)? else { return Ok(()) };
    add_member(&site)?;
    let train = |user: &str, account: &str| {
        let (name, account) = (format!("name-of-{user}"), format!("--account={account}"));
        site.train(user, &["--gres=gpu:1", "-w", "gpu-node-01", "-J", &name, &account])
    };
    // Without AccountingStorageEnforce, anyone may name any account: that makes nobody a member.
    let (alices, bobs, carols) = (train("alice", "ml")?, train("bob", "ml")?, train("carol", "bio")?);
    for job in [alices, bobs, carols] {
        site.lab.wait_until(job, "RUNNING")?;
    }
    let settings = ["--account-visibility", "--admin-users", "dave", "--slurm-interval", "5s", "site"];
    let relay = site.relay_with("svc", &settings)?;
    let users = ["alice", "bob", "carol", "dave"];
    let tunnels = users.map(|user| site.tunnel(user));
    let mut expected = [vec![alices, bobs], vec![bobs], vec![carols], vec![alices, bobs, carols]];
    for ((user, tunnel), expected) in users.iter().zip(tunnels).zip(&mut expected) {
        expected.sort_unstable();
        let tunnel = tunnel?;
        let received = sees(async || knock(&tunnel, &relay).await, user, expected).await?;
        for (owner, job) in [("alice", alices), ("bob", bobs), ("carol", carols)] {
            let is_shown = expected.contains(&job);
            ensure!(received.contains(&format!("name-of-{owner}")) == is_shown, "{user}: {owner}");
            ensure!(!received.contains(&format!("/home/{owner}")), "{user}: paths of {owner}");
        }
        // A node on which no job runs is the administrator's to see.
        ensure!(received.contains("gpu-node-02") == (*user == "dave"), "{user}: an idle node");
        let authority = format!("127.0.0.1:{}", tunnel.port());
        let usage = http::get(&authority, "/api/v1/usage", &[])?;
        let jobs: serde_json::Value = serde_json::from_str(&usage.body)?;
        let ids: Vec<_> =
            jobs["jobs"].as_array().context("jobs")?.iter().map(|job| job["name"].clone()).collect();
        let own = format!("name-of-{user}");
        ensure!(ids.iter().all(|name| *name == own.as_str()), "{user}: {ids:?}");
        let (status, body) = local(&site, user)?;
        ensure!(
            status == 200 && body.contains("name-of-") && (*user == "dave" || body.contains(&own)),
            "{body}"
        );
    }
    page(&site).await?;
    nobody_else(&site, &relay).await
}

/// The page of bob, opened without a key: it says who he is, shows his job only, and has no controls of the owner.
async fn page(site: &Site) -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let tunnel = site.tunnel("bob")?;
    browser.resize(1440, 900).await?;
    browser.open(&format!("http://127.0.0.1:{}/", tunnel.port())).await?;
    browser.until("bob's job", "document.body.innerText.includes('name-of-bob')").await?;
    let text = browser.text().await?;
    ensure!(text.contains("signed in as bob"), "{text}");
    ensure!(!text.contains("name-of-alice") && !text.contains("name-of-carol"), "{text}");
    let share = browser.eval("document.querySelector('[aria-label=Share]') !== null").await?;
    ensure!(share == false, "a button to share");
    browser.photograph("site-person").await?;
    browser.click("a[href*='/usage']").await?;
    browser
        .until(
            "bob's usage",
            "document.body.innerText.includes('name-of-bob') && location.pathname === '/usage'",
        )
        .await?;
    browser.open(&format!("http://127.0.0.1:{}/audit", tunnel.port())).await?;
    browser.until("a refusal", "document.body.innerText.includes('Only svc can see this page')").await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

/// Neither root nor the relay's account is a person, and a person is not the owner.
async fn nobody_else(site: &Site, relay: &LoginRelay) -> Result<()> {
    for user in ["root", "svc"] {
        let (status, body) = local(site, user)?;
        ensure!(status == 403 && body.contains("cannot identify you"), "{user}: {status} {body}");
    }
    let svcs = site.tunnel("svc")?;
    ensure!(matches!(knock(&svcs, relay).await?, Err(CloseReason::NotIdentified)));
    // The link of the operators works for them alone.
    Client::connect(&relay.link, Form::Binary).await?;
    let bobs = site.tunnel("bob")?;
    let authority = format!("127.0.0.1:{}", bobs.port());
    let pipe = TcpStream::connect(&authority).await?;
    let refused = Client::authenticate(Box::new(pipe), &relay.link.at(&authority)).await?;
    ensure!(matches!(refused, Err(CloseReason::NotTheOwner { .. })), "bob with the operators' link");
    Ok(())
}

#[tokio::test]
async fn t02_a_site_is_not_watched_by_root_and_a_users_relay_has_no_settings_of_one() -> Result<()> {
    let Some(site) = Site::up_or_skip(1)? else { return Ok(()) };
    let refused = |user: &str, args: &[&str], why: &str| -> Result<()> {
        let error = site.run_relay(user, args).err().context("it started")?;
        ensure!(format!("{error:#}").contains(why), "{error:#}");
        Ok(())
    };
    refused("root", &["site"], "does not run as root")?;
    refused("svc", &["site", "--users", "alice"], "omit --users")?;
    refused("svc", &["site", "--demo"], "omit --demo")?;
    refused("alice", &["--admin-users", "alice"], "applies to the relay of a site only")?;
    refused("alice", &["--account-visibility"], "applies to the relay of a site only")?;
    refused("svc", &["site", "--launcher", "nothing"], "launcher")
}
