//! In a real browser, other sites, other ports and an impostor on the relay's port get no access.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::handshake::Key;
use nodeglass_protocol::live::ClientMessage;
use nodeglass_tests::{Browser, Impostor, TIMEOUT, TestRelay};
use serde_json::Value;
use std::time::{Duration, Instant};

/// A name that resolves to this machine, as after DNS rebinding.
const EVIL: &str = "--host-resolver-rules=MAP evil.example 127.0.0.1";
/// A foreign page.
const BLANK: &str = "<!doctype html><title>evil</title><p>evil</p>";

/// Opens the link and waits for the jobs.
async fn open_page(browser: &Browser, relay: &TestRelay) -> Result<()> {
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await
}

/// Runs a script that calls `done` with its result.
async fn run_script(browser: &Browser, script: &str) -> Result<Value> {
    let script = format!("const done = arguments[arguments.length - 1]; {script}");
    browser.client().execute_async(&script, Vec::new()).await.context("run a script")
}

/// Result of opening the relay's WebSocket from the current page.
async fn open_socket(browser: &Browser, authority: &str) -> Result<Value> {
    let script = format!(
        "const socket = new WebSocket('ws://{authority}/live', 'nodeglass.v1.json'); \
         socket.onopen = () => done('open'); socket.onerror = () => done('refused');"
    );
    run_script(browser, &script).await
}

/// Result of fetching an address of the relay from the current page.
async fn fetch_status(browser: &Browser, url: &str) -> Result<Value> {
    let script = format!(
        "fetch('{url}').then(async reply => done(`${{reply.status}} ${{(await reply.text()).length > 2000}}`), () => done('refused'));"
    );
    run_script(browser, &script).await
}

/// Makes timers that are set from now on fire after a twentieth of their time.
const ACCELERATE: &str = "(() => { const original = window.setTimeout; \
     window.setTimeout = (callback, ms, ...rest) => original(callback, ms / 20, ...rest); })()";

#[tokio::test]
async fn t03_an_impostor_on_a_dead_relays_port_receives_only_a_hello() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    // Wide enough for the column of states.
    browser.resize(1440, 900).await?;
    open_page(&browser, &relay).await?;
    let link = relay.link().clone();
    let port = link.authority.rsplit(':').next().context("a port")?.parse()?;
    browser.eval(ACCELERATE).await?;
    let (status, _) = relay.terminate()?;
    ensure!(status.success(), "the relay ends: {status}");
    let impostor = Impostor::squatter(port, Key::new([5; 32])).await?;
    browser
        .until("the notice", "/link is out of date/.test(document.querySelector('.notice--link')?.innerText)")
        .await?;
    // It does not reconnect by itself: a timer of four times its maximum back-off fires first.
    let calls = impostor.received().heads.len();
    browser.eval("void setTimeout(() => window.later = true, 20000)").await?;
    browser.until("a later timer", "window.later").await?;
    let received = impostor.received();
    ensure!(received.heads.len() == calls, "it reconnected: {:#?}", received.heads);
    ensure!(!received.messages.is_empty() && received.odd == 0, "{received:#?}");
    let hello = |message: &ClientMessage| matches!(message, ClientMessage::Hello { .. });
    ensure!(received.messages.iter().all(hello), "more than a hello: {:#?}", received.messages);
    let heads = format!("{:?}", received.heads);
    ensure!(!heads.contains(&link.key.reveal()), "the key itself was sent");
    // The last picture stays in this tab, for its user only, and does not look current.
    let is_greyed = "!!document.querySelector('.shell--lost .jobs a.job')";
    ensure!(browser.eval(is_greyed).await? == true, "the last picture stays, greyed");
    let states = "getComputedStyle(document.querySelector('th.c-state .grid__sort span'), '::after').content";
    ensure!(browser.eval(states).await? == "\" when last updated\"", "states look current");
    let kept = browser.eval("Object.values(sessionStorage).join()").await?;
    ensure!(!kept.to_string().contains(&link.key.reveal()), "a page of the stranger's could read the key");
    Ok(())
}

/// The answer to a key request of another page of this origin; `null` if there is none.
async fn request_key(browser: &Browser, base: &str) -> Result<Value> {
    let script = format!(
        "const channel = new BroadcastChannel('nodeglass-key{base}'); \
         channel.onmessage = event => done(event.data); channel.postMessage('key?'); \
         setTimeout(() => done(null), 1500);"
    );
    run_script(browser, &script).await
}

#[tokio::test]
async fn t03_a_tab_shares_its_key_only_while_connected_to_the_relay() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_page(&browser, &relay).await?;
    let received = request_key(&browser, "").await?;
    ensure!(
        received == format!("key=k={}", relay.link().key.reveal()),
        "a new tab finds the key: {received}"
    );
    relay.terminate()?;
    browser.until("a lost link", "document.querySelector('.notice--link')").await?;
    let received = request_key(&browser, "").await?;
    ensure!(received == Value::Null, "the program on the port received the key: {received}");
    Ok(())
}

/// Number of service workers of the current origin.
const WORKERS: &str = "navigator.serviceWorker.getRegistrations().then(all => done(all.length));";

async fn until_no_worker(browser: &Browser) -> Result<()> {
    let start = Instant::now();
    while run_script(browser, WORKERS).await? != 0 {
        ensure!(start.elapsed() < TIMEOUT, "the browser keeps a stranger's service worker");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}

/// Registers a foreign service worker for `scope` on a free port, and frees the port again.
async fn register_foreign_worker(browser: &Browser, scope: &'static str) -> Result<u16> {
    let usurper = Impostor::usurper(0, scope).await?;
    let port = usurper.port();
    browser.open(&format!("http://127.0.0.1:{port}/")).await?;
    let active = "navigator.serviceWorker.getRegistrations().then(all => done(all.some(one => one.active)));";
    while run_script(browser, active).await? != true {
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    // A link to the current page would only change its fragment.
    browser.open("about:blank").await?;
    usurper.end().await;
    Ok(port)
}

#[tokio::test]
async fn t03_a_foreign_service_worker_is_removed_on_the_first_visit() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let port = register_foreign_worker(&browser, "/").await?;
    let relay = TestRelay::start(&["--demo", "--bind", &format!("127.0.0.1:{port}")])?;
    // The browser first requests the page from the worker, and only then the worker's script from the relay.
    browser.open(&relay.link().url).await?;
    ensure!(browser.eval("document.title").await? == "evil", "the stranger's page is shown instead");
    until_no_worker(&browser).await?;
    browser.open("about:blank").await?;
    open_page(&browser, &relay).await?;
    ensure!(run_script(&browser, WORKERS).await? == 0, "a worker is back");
    // The page itself finds and reports a worker that the browser does not check.
    let port = register_foreign_worker(&browser, "/job/").await?;
    let relay = TestRelay::start(&["--demo", "--bind", &format!("127.0.0.1:{port}")])?;
    open_page(&browser, &relay).await?;
    browser
        .until("a warning", "/left a service worker in this browser/.test(document.body.innerText)")
        .await?;
    until_no_worker(&browser).await
}

/// Every path is in the browser's cache for a year, so that an address without a relay's query
/// never reaches the relay.
#[tokio::test]
async fn t03_a_page_cached_by_another_users_program_is_not_shown_and_cleared() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let impostor = Impostor::site(BLANK, "Cache-Control: public, max-age=31536000, immutable\r\n").await?;
    let origin = format!("http://127.0.0.1:{}", impostor.port());
    browser.open(&format!("{origin}/")).await?;
    let read = |options: &str| {
        format!(
            "fetch('/job/17', {options}).then(reply => reply.text()).then(text => done(text.includes('evil')));"
        )
    };
    ensure!(run_script(&browser, &read("{}")).await? == true, "a second path is kept, too");
    run_script(&browser, "fetch('/clear-cache').then(reply => reply.text()).then(done);").await?;
    browser.open("about:blank").await?;
    impostor.end().await;

    let relay = TestRelay::start(&["--demo", "--bind", origin.trim_start_matches("http://")])?;
    browser.open(&format!("{origin}/")).await?;
    ensure!(browser.eval("document.title").await? == "evil", "the browser asks the relay");
    browser.open("about:blank").await?;
    open_page(&browser, &relay).await?;
    ensure!(browser.eval("location.search").await? == "", "the query stays in the address");
    // A script at a predictable URL may be another user's as well.
    let loaded = "performance.getEntriesByType('resource').map(one => new URL(one.name).pathname)\
        .filter(path => !/^[/]([a-z2-9]{8}[/]|clear-cache$)/.test(path)).join()";
    ensure!(browser.eval(loaded).await? == "", "{}", browser.eval(loaded).await?);
    let start = Instant::now();
    while run_script(&browser, &read("{cache: 'force-cache'}")).await? == true {
        ensure!(start.elapsed() < TIMEOUT, "the stranger's page stays in the cache");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    browser.open(&format!("{origin}/")).await?;
    ensure!(browser.eval("document.title").await? != "evil", "the stranger's page is shown again");
    Ok(())
}

/// Control: an impostor that holds the key does receive the proof.
#[tokio::test]
async fn t03_a_holder_of_the_key_receives_the_proof() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_page(&browser, &relay).await?;
    let link = relay.link().clone();
    let port = link.authority.rsplit(':').next().context("a port")?.parse()?;
    relay.terminate()?;
    let twin = Impostor::squatter(port, link.key.clone()).await?;
    let proof = |message: &ClientMessage| matches!(message, ClientMessage::Proof { .. });
    for _ in 0..600 {
        if twin.received().messages.iter().any(proof) {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("no proof was received: {:#?}", twin.received())
}

#[tokio::test]
async fn t04_another_sites_page_can_neither_open_the_socket_nor_read_anything() -> Result<()> {
    let Some(browser) = Browser::start_with(&[EVIL]).await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_page(&browser, &relay).await?;
    let authority = &relay.link().authority;
    ensure!(open_socket(&browser, authority).await? == "open", "its own page can");
    let site = Impostor::site(BLANK, "").await?;
    // Another host name, and another port of the same one.
    for origin in
        [format!("http://evil.example:{}", site.port()), format!("http://127.0.0.1:{}", site.port())]
    {
        browser.open(&origin).await?;
        browser.until("the other page", "document.title === 'evil'").await?;
        let socket = open_socket(&browser, authority).await?;
        ensure!(socket == "refused", "{origin} opened the socket: {socket}");
        for path in ["/", "/healthz", "/api/v1/picture"] {
            let read = fetch_status(&browser, &relay.link().path(path)).await?;
            ensure!(read == "refused", "{origin} read {path}: {read}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn t05_a_rebound_name_is_misdirected_in_a_real_browser() -> Result<()> {
    let Some(browser) = Browser::start_with(&[EVIL]).await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let port = relay.link().authority.rsplit(':').next().context("a port")?.to_owned();
    let rebound = format!("evil.example:{port}");
    browser.open(&format!("http://{rebound}/")).await?;
    ensure!(browser.eval("document.querySelector('main, script')").await? == Value::Null, "no page of ours");
    for path in ["/", "/healthz", "/api/v1/picture"] {
        let read = fetch_status(&browser, path).await?;
        ensure!(read == "421 false", "{path}: {read}");
    }
    let socket = open_socket(&browser, &rebound).await?;
    ensure!(socket == "refused", "the socket: {socket}");
    Ok(())
}

#[tokio::test]
async fn t07_no_cookie_is_set() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_page(&browser, &relay).await?;
    browser.open(&relay.link().path("/job/48213")).await?;
    browser.until("a job", "document.querySelector('.tabs')").await?;
    ensure!(browser.eval("document.cookie").await? == "", "a script sees no cookie");
    let jar = browser.devtools("Network.getAllCookies", serde_json::json!({})).await?;
    ensure!(jar["cookies"].as_array().is_some_and(Vec::is_empty), "the browser keeps none: {jar}");
    Ok(())
}

#[tokio::test]
async fn t31_a_policy_violation_is_detected_in_every_window_and_frame() -> Result<()> {
    let Some(mut browser) = Browser::start().await? else { return Ok(()) };
    browser.tolerate_broken_policies();
    let policy = "Content-Security-Policy: script-src 'none'; frame-src *\r\n";
    let inner = Impostor::site("<script>document.title = 'ran'</script>", policy).await?;
    let frame = format!("<iframe src='http://127.0.0.1:{}/'></iframe>", inner.port());
    let outer = Impostor::site(&frame, "").await?;
    ensure!(browser.broken_policies().is_empty(), "nothing was opened yet");
    browser.open(&format!("http://127.0.0.1:{}/", outer.port())).await?;
    for _ in 0..600 {
        if !browser.broken_policies().is_empty() {
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    anyhow::bail!("a frame's broken policy was not received")
}

#[tokio::test]
async fn t32_a_page_of_another_port_finds_no_key() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let (one, other) = (TestRelay::demo()?, TestRelay::demo()?);
    ensure!(one.link().authority != other.link().authority, "two relays have two ports");
    open_page(&browser, &one).await?;
    let kept = "Object.values(sessionStorage).concat(Object.values(localStorage)).join(' ')";
    let key = one.link().key.reveal();
    let holds = format!("({kept}).includes({key:?})");
    ensure!(browser.eval(&holds).await? == true, "the tab itself keeps its key, or this shows nothing");
    ensure!(
        browser.eval(&format!("Object.values(localStorage).join().includes({key:?})")).await? == false,
        "and only for as long as it is open"
    );
    // In the same tab, and in a new one beside it.
    browser.open(&other.link().path("/")).await?;
    browser.until("a gate", "/no key/.test(document.querySelector('h1')?.innerText)").await?;
    ensure!(browser.eval(&holds).await? == false, "another port finds the key");
    browser.open(&one.link().path("/")).await?;
    browser.until("the jobs again", "document.querySelector('.jobs a.job')").await?;
    let fresh = browser.client().new_window(true).await?;
    browser.client().switch_to_window(fresh.handle).await?;
    browser.open(&other.link().path("/")).await?;
    browser.until("the gate", "/no key/.test(document.querySelector('h1')?.innerText)").await?;
    ensure!(browser.eval(&holds).await? == false, "another port's tab was handed the key");
    Ok(())
}

#[tokio::test]
async fn t33_no_site_can_put_the_page_into_a_frame() -> Result<()> {
    let Some(mut browser) = Browser::start_with(&[EVIL]).await? else { return Ok(()) };
    // The relay's policy forbids it, and the browser reports the violation.
    browser.tolerate_broken_policies();
    let relay = TestRelay::demo()?;
    open_page(&browser, &relay).await?;
    for place in [relay.link().url.clone(), relay.link().path("/job/48213")] {
        let framing = format!("<!doctype html><title>evil</title><iframe src='{place}'></iframe>");
        let site = Impostor::site(&framing, "").await?;
        for name in ["evil.example", "127.0.0.1"] {
            browser.open(&format!("http://{name}:{}/", site.port())).await?;
            browser.until("the other page", "document.title === 'evil'").await?;
            // The frame has finished loading when its document changes.
            tokio::time::sleep(Duration::from_secs(1)).await;
            browser.client().enter_frame(0).await?;
            let found = browser.eval("document.querySelector('main, noscript, .gate') !== null").await?;
            ensure!(found == false, "{name} frames the page");
            browser.client().enter_parent_frame().await?;
        }
    }
    Ok(())
}

/// The files that the page has loaded: script, wasm and styles, all named by the document itself.
const LOADED: &str = "performance.getEntriesByType('resource').map(one => new URL(one.name)) \
                      .filter(url => url.origin == location.origin).map(url => url.pathname).sort()";

#[tokio::test]
async fn t03_the_page_loads_nothing_after_it_has_started() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    browser.until("a heat map", "document.querySelector('.heat-map canvas')").await?;
    // It asks once, when it is connected, to drop what other programs left in the cache.
    browser.until("an empty cache", &format!("{LOADED}.includes('/clear-cache')")).await?;
    let before = browser.eval(LOADED).await?;
    browser.press('?').await?;
    browser.until("the help", "document.querySelector('dialog[open]')").await?;
    let after = browser.eval(LOADED).await?;
    ensure!(after == before, "the page loaded more files: {before}, then {after}");
    Ok(())
}
