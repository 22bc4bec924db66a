//! Behind a real nginx the page lives below a path, and nobody gains anything by pretending to be that nginx.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::{Role, Topic};
use nodeglass_tests::browser::Browser;
use nodeglass_tests::nginx::{Nginx, Prefix};
use nodeglass_tests::relay::{Link, TestRelay};
use nodeglass_tests::viewer::Viewer;
use nodeglass_tests::{http, skip};
use url::Url;

const BASE: &str = "/rnode/login1/8080";

/// A relay, the nginx that shows it, and the link as it opens there.
struct Shown {
    relay: TestRelay,
    _nginx: Nginx,
    link: Link,
}

fn shown(prefix: Prefix, args: &[&str]) -> Result<Option<Shown>> {
    let relay = TestRelay::start(&[&["--demo", "--base-path", BASE], args].concat())?;
    let Some(nginx) = Nginx::start(&relay.link().authority, BASE, prefix)? else { return Ok(None) };
    let link = relay.link().at(&nginx.authority());
    Ok(Some(Shown { relay, _nginx: nginx, link }))
}

fn shown_by_a_trusted_one(prefix: Prefix) -> Result<Option<Shown>> {
    shown(prefix, &["--trusted-proxy", &Nginx::user()])
}

/// The addresses of the files that a page names.
fn files_of(page: &str, at: &str) -> Result<Vec<Url>> {
    let at = Url::parse(at)?;
    let named = page.split(['"', '\'']).filter(|word| word.starts_with("./") || word.starts_with("../"));
    named.map(|path| at.join(path).context("a file's address")).collect()
}

#[tokio::test]
async fn t27_a_proxy_may_strip_the_path_or_keep_it() -> Result<()> {
    for prefix in [Prefix::Stripped, Prefix::Kept] {
        let Some(shown) = shown_by_a_trusted_one(prefix)? else { return Ok(()) };
        ensure!(
            shown.link.url.contains(&format!("{BASE}/#k=")),
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
        let mut viewer = Viewer::connect(&shown.link, Form::Binary).await?;
        assert_eq!(viewer.welcome().role, Role::Owner);
        viewer.look(&[Topic::Overview]).await?;
        viewer.until(&Topic::Overview, "changes", |known| known.deltas >= 2).await?;
        // The same relay through a tunnel, at its root.
        let root = Link { base: String::new(), ..shown.relay.link().clone() };
        Viewer::connect(&root, Form::Binary).await?;
    }
    Ok(())
}

#[tokio::test]
async fn t27_a_browser_sees_it_live_below_the_path() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(shown) = shown_by_a_trusted_one(Prefix::Stripped)? else { return Ok(()) };
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

/// What nginx would say for its visitor, said by somebody else.
const SPOOFED: &[(&str, &str)] = &[
    ("X-Forwarded-Host", "127.0.0.1:8080"),
    ("X-Forwarded-Proto", "http"),
    ("X-Forwarded-For", "127.0.0.1"),
];

#[test]
fn t27_who_poses_as_the_proxy_is_not_believed() -> Result<()> {
    let relay = TestRelay::start(&["--demo", "--base-path", BASE, "--trusted-proxy", "1999999"])?;
    let at = &relay.link().authority;
    let evil = [SPOOFED, &[("Host", "evil.example")]].concat();
    for path in ["/", "/healthz", "/rnode/login1/8080/", "/live"] {
        assert_eq!(http::get(at, path, &evil)?.status, 421, "{path}");
    }
    // With the right host, a page of the host that is only said to be asked for has no WebSocket.
    let upgrade = |host: &str, origin: &str| {
        let spoofed: String = SPOOFED.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let request = format!(
            "GET /live HTTP/1.1\r\nHost: {host}\r\nOrigin: {origin}\r\n{spoofed}Upgrade: websocket\r\n\
             Connection: upgrade\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
        );
        http::say(at, request.as_bytes())
    };
    assert_eq!(upgrade(at, "http://127.0.0.1:8080")?.status, 403);
    Ok(())
}

#[tokio::test]
async fn t27_a_visitor_cannot_tell_the_relay_something_through_the_proxy() -> Result<()> {
    let Some(shown) = shown_by_a_trusted_one(Prefix::Stripped)? else { return Ok(()) };
    let path = format!("{BASE}/healthz");
    // nginx overwrites these; the visitor's own word does not come through.
    for (name, value) in [("X-Forwarded-Host", "evil.example"), ("X-Forwarded-Proto", "gopher")] {
        assert_eq!(http::get(&shown.link.authority, &path, &[(name, value)])?.status, 200, "{name}");
    }
    // And what nginx hands on as asked for is checked.
    assert_eq!(http::get(&shown.link.authority, &path, &[("Host", "evil.example")])?.status, 421);
    Ok(())
}

#[tokio::test]
async fn t02_another_users_proxy_that_was_not_named_brings_nobodys_key() -> Result<()> {
    if !skip::root() {
        return Ok(());
    }
    let Some(shown) = shown(Prefix::Stripped, &[])? else { return Ok(()) };
    let refused = Viewer::connect(&shown.link, Form::Binary).await;
    ensure!(refused.is_err(), "the owner's key was taken from another user's process");
    let named = shown_by_a_trusted_one(Prefix::Stripped)?.context("nginx was there a moment ago")?;
    Viewer::connect(&named.link, Form::Binary).await?;
    Ok(())
}
