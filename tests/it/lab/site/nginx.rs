//! People reach the relay of a site through nginx, configured exactly as docs/ADMIN.md shows: it states who they are.

use super::{Knocked, sees};
use anyhow::{Context, Result, bail, ensure};
use base64ct::{Base64, Encoding};
use nodeglass_protocol::JobId;
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::CloseReason;
use nodeglass_tests::browser::Browser;
use nodeglass_tests::client::Client;
use nodeglass_tests::documents::example;
use nodeglass_tests::http::Reply;
use nodeglass_tests::lab::{LoginRelay, Site, Tunnel};
use nodeglass_tests::relay::Link;
use nodeglass_tests::skip;
use nodeglass_tests::tls::Identity;
use std::io::Write as _;
use tempfile::NamedTempFile;

/// The document with the configurations of nginx and of the relay.
const ADMIN: &str = include_str!("../../../../docs/ADMIN.md");
/// The host name in them.
const HOST: &str = "gpus.example.org";
/// The user names with a job, and the administrator.
const USERS: [&str; 4] = ["alice", "bob", "carol", "dave"];
/// Users whom nginx admits and the relay does not: the last one does not exist on its machine.
const NOBODIES: [&str; 3] = ["root", "svc", "mallory"];
/// Headers by which somebody claims to be the administrator.
const FORGED: [&[(&str, &str)]; 5] = [
    &[("X-Forwarded-User", "dave")],
    &[("x-forwarded-user", "dave"), ("X-Forwarded-User", "dave")],
    &[("X_Forwarded_User", "dave")],
    &[("X-Forwarded-User", ""), ("X-Forwarded-For", "127.0.0.1")],
    &[("Connection", "close, X-Forwarded-User, X-Forwarded-Host"), ("X-Forwarded-User", "dave")],
];
/// A list that differs between people, and does not change while nothing is submitted.
const NAMES: &str = "/api/v1/jobs?fields=id,name";

/// A site whose relay people reach through nginx.
struct Portal {
    identity: Identity,
    /// From a laptop to nginx.
    tunnel: Tunnel,
    relay: LoginRelay,
    site: Site,
}

fn password(user: &str) -> String {
    format!("secret-of-{user}")
}

/// What a browser sends once its user has entered this password.
fn basic(user: &str, password: &str) -> String {
    format!("Basic {}", Base64::encode_string(format!("{user}:{password}").as_bytes()))
}

/// Writes a text file on the login host.
fn write(site: &Site, text: &str, to: &str) -> Result<()> {
    let mut file = NamedTempFile::new()?;
    file.write_all(text.as_bytes())?;
    site.lab.put("login", file.path(), to, 0o644)
}

impl Portal {
    fn up_or_skip() -> Result<Option<Self>> {
        if skip::programs(["nginx"]).is_none() {
            return Ok(None);
        }
        let Some(site) = Site::up_or_skip(1)? else { return Ok(None) };
        let identity = Identity::new(&[HOST])?;
        let (cert, key) = identity.files();
        site.lab.put("login", cert, &format!("/etc/ssl/certs/{HOST}.pem"), 0o644)?;
        site.lab.put("login", key, &format!("/etc/ssl/private/{HOST}.key"), 0o600)?;
        let people = USERS.iter().chain(&NOBODIES);
        let passwords: String = people.map(|user| format!("{user}:{{PLAIN}}{}\n", password(user))).collect();
        write(&site, &passwords, "/etc/nginx/nodeglass.htpasswd")?;
        write(&site, example(ADMIN, "## Behind nginx", "nginx")?, "/etc/nginx/conf.d/nodeglass.conf")?;
        let settings = example(ADMIN, "## Installation", "toml")?;
        let save = "mkdir -p .config/nodeglass; printf %s \"$1\" >.config/nodeglass/config.toml";
        site.lab.text("login", "svc", &["sh", "-c", save, "sh", settings])?;
        let relay = site.relay_with("svc", &["--admin-users", "dave", "--slurm-interval", "5s", "site"])?;
        // It returns once nginx listens.
        site.lab.text("login", "root", &["nginx"])?;
        let tunnel = site.lab.tunnel("alice", "127.0.0.1:443")?;
        Ok(Some(Self { identity, tunnel, relay, site }))
    }

    /// Where it is reached: the name is that of the certificate, the port that of the tunnel.
    fn authority(&self) -> String {
        format!("{HOST}:{}", self.tunnel.port())
    }

    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Result<Reply> {
        self.identity.get(&self.authority(), path, &[headers, &[("Host", HOST)]].concat()).await
    }

    /// Requests something as a user, with additional headers.
    async fn get_as(&self, user: &str, path: &str, more: &[(&str, &str)]) -> Result<Reply> {
        let password = basic(user, &password(user));
        self.get(path, &[&[("Authorization", &*password)], more].concat()).await
    }

    /// Opens the live wire as a user.
    async fn knock(&self, user: &str, more: &[(&str, &str)]) -> Knocked {
        let link = Link { scheme: "https", authority: HOST.to_owned(), ..self.relay.link.clone() };
        let pipe = self.identity.connect(&self.authority()).await?;
        let password = basic(user, &password(user));
        Client::identify(pipe, &link, Form::Binary, &[&[("Authorization", &*password)], more].concat()).await
    }

    fn stop_nginx(&self) -> Result<()> {
        self.site.lab.text("login", "root", &["nginx", "-s", "stop"])?;
        let is_gone = "until ! [ -e /run/nginx.pid ]; do sleep 0.1; done";
        self.site.lab.text("login", "root", &["timeout", "30", "sh", "-c", is_gone]).map(drop)
    }
}

/// The users whose jobs a response names.
fn owners(reply: &Reply) -> Vec<&'static str> {
    USERS.into_iter().filter(|user| reply.body.contains(&format!("name-of-{user}"))).collect()
}

/// The users whose jobs a user sees.
fn shown_to(user: &'static str) -> Vec<&'static str> {
    if user == "dave" { USERS[..3].to_vec() } else { vec![user] }
}

#[tokio::test]
async fn t27_behind_the_documented_nginx_each_person_sees_their_own_jobs() -> Result<()> {
    let Some(portal) = Portal::up_or_skip()? else { return Ok(()) };
    let train = |user: &str| {
        portal
            .site
            .train(user, &["--gres=gpu:1", "-J", &format!("name-of-{user}")])
            .map(|job| (user.to_owned(), job))
    };
    let jobs = USERS[..3].iter().map(|user| train(user)).collect::<Result<Vec<(String, JobId)>>>()?;
    for (_, job) in &jobs {
        portal.site.lab.wait_until(*job, "RUNNING")?;
    }
    for user in USERS {
        let theirs = jobs.iter().filter(|(owner, _)| shown_to(user).contains(&owner.as_str()));
        let expected: Vec<_> = theirs.map(|(_, job)| *job).collect();
        let received = sees(async || portal.knock(user, &[]).await, user, &expected).await?;
        for (owner, job) in &jobs {
            let is_shown = expected.contains(job);
            ensure!(received.contains(&format!("name-of-{owner}")) == is_shown, "{user}: {owner}");
        }
    }
    nobody_is_another(&portal).await?;
    nobody_gets_what_another_has_stored(&portal).await?;
    a_page_survives_a_restart(&portal).await
}

/// Neither headers nor wrong passwords make a visitor anybody else.
async fn nobody_is_another(portal: &Portal) -> Result<()> {
    for forged in FORGED {
        for user in ["alice", "bob"] {
            let reply = portal.get_as(user, NAMES, forged).await?;
            ensure!(reply.status == 200 && owners(&reply) == [user], "{user}, {forged:?}: {reply:?}");
        }
        ensure!(portal.get(NAMES, forged).await?.status == 401, "{forged:?} without a password");
    }
    let Ok(client) = portal.knock("bob", FORGED[0]).await? else { bail!("bob is refused") };
    ensure!(client.welcome().person == Some("bob".into()), "{:?}", client.welcome());
    let guessed = basic("dave", "guessed");
    ensure!(portal.get(NAMES, &[("Authorization", &guessed)]).await?.status == 401, "a wrong password");
    for user in NOBODIES {
        let reply = portal.get_as(user, NAMES, &[]).await?;
        ensure!(reply.status == 403 && owners(&reply).is_empty(), "{user}: {reply:?}");
        let refused = portal.knock(user, &[]).await?;
        ensure!(matches!(refused, Err(CloseReason::NotIdentified)), "{user}: {refused:?}");
    }
    Ok(())
}

/// An entity tag is that of the person who received it, and nothing between them may store a response.
async fn nobody_gets_what_another_has_stored(portal: &Portal) -> Result<()> {
    for holder in USERS {
        let stored = portal.get_as(holder, NAMES, &[]).await?;
        ensure!(owners(&stored) == shown_to(holder), "{holder}: {stored:?}");
        ensure!(stored.header("cache-control") == Some("no-store"), "{stored:?}");
        let tag = stored.header("etag").context("an entity tag")?;
        for user in USERS {
            let reply = portal.get_as(user, NAMES, &[("If-None-Match", tag)]).await?;
            match user == holder {
                true => ensure!(reply.status == 304, "{user}: {reply:?}"),
                false => {
                    ensure!(reply.status == 200 && owners(&reply) == shown_to(user), "{user}: {reply:?}")
                }
            }
        }
    }
    Ok(())
}

/// The page connects again after nginx was restarted, as the same person.
async fn a_page_survives_a_restart(portal: &Portal) -> Result<()> {
    let resolve = format!("--host-resolver-rules=MAP {HOST}:443 127.0.0.1:{}", portal.tunnel.port());
    let browser = Browser::start_with(&["--ignore-certificate-errors", &resolve]).await?;
    let Some(browser) = browser else { return Ok(()) };
    // As if bob had entered his password, which the browser sends with everything from now on.
    browser.open(&format!("https://bob:{}@{HOST}/usage", password("bob"))).await?;
    browser.open(&format!("https://{HOST}/")).await?;
    let shows_bob = "document.body.innerText.includes('name-of-bob')";
    browser.until("bob's job", shows_bob).await?;
    portal.stop_nginx()?;
    let notice = "document.querySelector('.notice--link')?.innerText";
    browser.until("the lost connection", &format!("/lost – retrying/.test({notice})")).await?;
    portal.site.lab.text("login", "root", &["nginx"])?;
    browser.until("the page again", &format!("!{notice} && {shows_bob}")).await?;
    let text = browser.text().await?;
    ensure!(text.contains("signed in as bob"), "{text}");
    ensure!(!text.contains("name-of-alice") && !text.contains("name-of-carol"), "{text}");
    browser.photograph("site-behind-nginx").await.map(drop)
}
