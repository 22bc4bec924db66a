//! Behind a real nginx the page works below a path, and no other program can impersonate that nginx.

use anyhow::{Context, Result, bail, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{CloseReason, Role, Topic};
use nodeglass_tests::browser::Browser;
use nodeglass_tests::client::Client;
use nodeglass_tests::nginx::{Nginx, Prefix};
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::{http, other_user, skip};
use tokio::net::TcpStream;
use url::Url;

const BASE: &str = "/rnode/login1/8080";

/// A relay, the nginx in front of it, and the link through it.
struct Shown {
    relay: TestRelay,
    _nginx: Nginx,
    link: Link,
}

fn shown(prefix: Prefix, user: Option<&str>, args: &[&str]) -> Result<Option<Shown>> {
    let relay = TestRelay::start(&[&["--demo", "--base-path", BASE], args].concat())?;
    let nginx = Nginx::start_naming(&relay.link().authority, BASE, prefix, user)?;
    let Some(nginx) = nginx else { return Ok(None) };
    let link = relay.link().at(&nginx.authority());
    Ok(Some(Shown { relay, _nginx: nginx, link }))
}

/// Behind a trusted proxy that names the owner as its visitor.
fn behind_naming_proxy(prefix: Prefix) -> Result<Option<Shown>> {
    shown_to(prefix, Some(&other_user::own_name()?))
}

/// Behind a trusted proxy that names `user` as its visitor, or nobody.
fn shown_to(prefix: Prefix, user: Option<&str>) -> Result<Option<Shown>> {
    let args = ["--trusted-proxy", &Nginx::user(), "--proxy-user-header", Nginx::USER_HEADER];
    shown(prefix, user, &args)
}

async fn knock(link: &Link) -> Result<Result<Client, CloseReason>> {
    Client::authenticate(Box::new(TcpStream::connect(&link.authority).await?), link).await
}

/// The URLs of the files that a page loads.
fn files_of(page: &str, at: &str) -> Result<Vec<Url>> {
    let at = Url::parse(at)?;
    let named = page.split(['"', '\'']).filter(|word| word.starts_with("./") || word.starts_with("../"));
    named.map(|path| at.join(path).context("a file's address")).collect()
}

#[tokio::test]
async fn t27_a_proxy_may_strip_the_path_or_keep_it() -> Result<()> {
    for prefix in [Prefix::Stripped, Prefix::Kept] {
        let Some(shown) = behind_naming_proxy(prefix)? else { return Ok(()) };
        ensure!(
            shown.link.url.contains(&format!("{BASE}/?v=")),
            "the link names the path: {}",
            shown.link.url
        );
        for place in ["/", "/job/17", "/job/17/node/gpu-01"] {
            let url = shown.link.path(place);
            let page = http::get(&shown.link.authority, Url::parse(&url)?.path(), &[])?;
            ensure!(page.status == 200, "{prefix:?} {url}: {page:?}");
            let files = files_of(&page.body, &url)?;
            ensure!(files.len() >= 3, "the page names its script, program and styles: {files:?}");
            for file in files {
                let reply = http::get(&shown.link.authority, file.path(), &[])?;
                let is_page = reply.header("content-type").is_some_and(|kind| kind.starts_with("text/html"));
                ensure!(reply.status == 200 && !is_page, "{file} of {url}: {}", reply.head);
            }
        }
        let mut client = Client::connect(&shown.link, Form::Binary).await?;
        assert_eq!(client.welcome().role, Role::Owner);
        client.subscribe(&[Topic::Overview]).await?;
        client.until(&Topic::Overview, "changes", |known| known.deltas >= 2).await?;
        // The same relay through a tunnel, at its root.
        let root = Link { base: String::new(), ..shown.relay.link().clone() };
        Client::connect(&root, Form::Binary).await?;
    }
    Ok(())
}

#[tokio::test]
async fn t27_the_page_works_below_a_base_path() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(shown) = behind_naming_proxy(Prefix::Stripped)? else { return Ok(()) };
    browser.open(&shown.link.url).await?;
    browser.until("a list of jobs", "document.querySelectorAll('[href*=\"/job/\"]').length >= 3").await?;
    browser.click("a[href*=\"/job/\"]").await?;
    browser.until("a job's page", &format!("location.pathname.startsWith('{BASE}/job/')")).await?;
    let meters = "document.querySelectorAll('[role=meter], meter, .meter').length > 0";
    browser.until("the job", meters).await?;
    browser.client().refresh().await?;
    browser.until("the job again, from deep down", meters).await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

#[tokio::test]
async fn t27_programs_below_another_path_of_the_site_do_not_get_the_key() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(shown) = behind_naming_proxy(Prefix::Stripped)? else { return Ok(()) };
    browser.open(&shown.link.url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    let request = format!(
        "const done = arguments[arguments.length - 1]; const channel = new BroadcastChannel('nodeglass-key{BASE}'); \
         channel.onmessage = event => done(event.data); channel.postMessage('key?'); \
         setTimeout(() => done('nothing'), 1500);"
    );
    let response = browser.client().execute_async(&request, Vec::new()).await?;
    ensure!(response == "nothing", "another page of the same origin received {response}");
    Ok(())
}

#[tokio::test]
async fn t27_without_a_visitor_name_a_tab_link_opens_one_tab() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(shown) = shown_to(Prefix::Stripped, None)? else { return Ok(()) };
    browser.open(&shown.link.url).await?;
    browser.until("the way in", "/relay link --tab/.test(document.body.innerText)").await?;
    let printed = shown.relay.run(&["link", "--tab"])?;
    let link = Link::find(&printed).context("a link")?.at(&shown.link.authority);
    browser.open("about:blank").await?;
    browser.open(&link.url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    let kept = browser.eval("location.hash + Object.values(sessionStorage).join()").await?;
    ensure!(!kept.to_string().contains("t="), "the link is kept: {kept}");
    // After a reload the tab has lost it, and the link opens no other tab.
    browser.open("about:blank").await?;
    browser.open(&link.url).await?;
    browser
        .until("that it is used", "/single-use link is no longer valid/.test(document.body.innerText)")
        .await
}

#[tokio::test]
async fn t27_through_a_proxy_the_owners_key_needs_the_proxy_to_name_the_owner() -> Result<()> {
    for (user, other_user) in [(None, false), (Some("somebody-else"), true)] {
        let Some(shown) = shown_to(Prefix::Stripped, user)? else { return Ok(()) };
        match knock(&shown.link).await? {
            Err(close_reason) => {
                ensure!(close_reason == CloseReason::NotByProxy { other_user }, "{close_reason:?}")
            }
            Ok(_) => bail!("{user:?} came in with the owner's key"),
        }
        let key = format!("Bearer {}", shown.link.key.reveal());
        // The header that a visitor sends is not forwarded.
        let own = other_user::own_name()?;
        let headers = [("Authorization", key.as_str()), (Nginx::USER_HEADER, own.as_str())];
        for path in ["/api/v1/picture", "/api/v1/shares"] {
            let reply = http::get(&shown.link.authority, &format!("{BASE}{path}"), &headers)?;
            assert_eq!(reply.status, 403, "{path}: {reply:?}");
        }
        // Shares open as before.
        let printed = shown.relay.run(&["share", "create", "--everything"])?;
        let share = printed.lines().find_map(Link::find).context("a share's link")?;
        let Ok(guest) = knock(&share.at(&shown.link.authority)).await? else { bail!("a guest is refused") };
        ensure!(guest.welcome().role == Role::Guest);
    }
    Ok(())
}

#[tokio::test]
async fn t27_a_tab_link_opens_once_and_its_tab_can_reload() -> Result<()> {
    let Some(shown) = shown_to(Prefix::Stripped, None)? else { return Ok(()) };
    let printed = shown.relay.run(&["link", "--tab"])?;
    let link = Link::find(&printed).context("a link")?.at(&shown.link.authority);
    let Ok(tab) = knock(&link).await? else { bail!("the link does not open") };
    ensure!(tab.welcome().role == Role::Owner && tab.welcome().may_act);
    ensure!(knock(&link).await?.is_err(), "it opens a second tab");
    let session = Link { key: tab.session_key().clone(), ..link.clone() };
    drop(tab);
    ensure!(knock(&session).await?.is_ok(), "the tab does not come back");
    // It does not bypass the kernel's identification of other users of the machine.
    let direct = Link { base: String::new(), ..session.at(&shown.relay.link().authority) };
    let direct = Link { authority: shown.relay.link().authority.clone(), ..direct };
    if other_user::why_not().is_none() {
        let pipe = Box::new(other_user::connect(1, &direct.authority)?);
        ensure!(Client::authenticate(pipe, &direct).await?.is_err(), "another user came in with a tab's key");
    }
    Ok(())
}

/// nginx's headers, sent by another program.
const SPOOFED: &[(&str, &str)] = &[
    ("X-Forwarded-Host", "127.0.0.1:8080"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-For", "127.0.0.1"),
];

#[test]
fn t27_forwarded_headers_of_an_untrusted_peer_are_ignored() -> Result<()> {
    let relay = TestRelay::start(&["--demo", "--base-path", BASE, "--trusted-proxy", "1999999"])?;
    let at = &relay.link().authority;
    let evil = [SPOOFED, &[("Host", "evil.example")]].concat();
    for path in ["/", "/healthz", "/rnode/login1/8080/", "/live"] {
        assert_eq!(http::get(at, path, &evil)?.status, 421, "{path}");
    }
    // With an allowed host, a page whose host is only in the forwarded header gets no WebSocket.
    let upgrade = |host: &str, origin: &str| {
        let spoofed: String = SPOOFED.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "GET /live HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n{spoofed}Upgrade: websocket\r\n\
             Connection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        http::send_raw(at, request.as_bytes())
    };
    assert_eq!(upgrade(at, "http://127.0.0.1:8080")?.status, 403);
    Ok(())
}

#[tokio::test]
async fn t27_a_client_cannot_forge_headers_through_the_proxy() -> Result<()> {
    let Some(shown) = behind_naming_proxy(Prefix::Stripped)? else { return Ok(()) };
    let path = format!("{BASE}/healthz");
    // nginx overwrites these; the visitor's own values do not pass.
    for (name, value) in [("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Proto", "gopher")] {
        assert_eq!(http::get(&shown.link.authority, &path, &[(name, value)])?.status, 200, "{name}");
    }
    // The host that nginx forwards is checked.
    assert_eq!(http::get(&shown.link.authority, &path, &[("Host", "evil.example")])?.status, 421);
    Ok(())
}

#[tokio::test]
async fn t02_another_users_untrusted_proxy_cannot_present_a_key() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let Some(shown) = shown(Prefix::Stripped, None, &[])? else { return Ok(()) };
    let refused = Client::connect(&shown.link, Form::Binary).await;
    ensure!(refused.is_err(), "the owner's key was taken from another user's process");
    let named = behind_naming_proxy(Prefix::Stripped)?.context("nginx was there a moment ago")?;
    Client::connect(&named.link, Form::Binary).await?;
    Ok(())
}
