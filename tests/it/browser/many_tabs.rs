//! Many tabs of one browser on one relay: each has a connection of its own, and all return after an interruption.

use anyhow::{Context as _, Result, ensure};
use nodeglass_tests::relay::Link;
use nodeglass_tests::{Browser, Forward, TIMEOUT, TestRelay, http};
use serde_json::Value;
use std::time::{Duration, Instant};
use tokio::time::sleep;

const TABS: usize = 30;
/// Memory of the relay for each tab, in bytes, including what a snapshot takes while it is sent.
const TAB_BYTES: u64 = 2 << 20;

/// `GET /status` of a relay.
async fn status(link: &Link) -> Result<Value> {
    let (authority, bearer) = (link.authority.clone(), format!("Bearer {}", link.key.reveal()));
    let request = move || http::get(&authority, "/status", &[("Authorization", &bearer)]);
    let reply = tokio::task::spawn_blocking(request).await??;
    serde_json::from_str(&reply.body).with_context(|| reply.head)
}

/// Waits until the relay has a number of viewers; returns its status then.
async fn until_viewers(link: &Link, count: usize) -> Result<Value> {
    let began = Instant::now();
    loop {
        let status = status(link).await?;
        if status["frames"]["viewers"] == count {
            return Ok(status);
        }
        ensure!(began.elapsed() < TIMEOUT, "{count} viewers, not {}", status["frames"]);
        sleep(Duration::from_millis(50)).await;
    }
}

/// Shows one tab after the other until a condition holds in each.
async fn each(browser: &Browser, what: &str, expression: &str) -> Result<()> {
    for tab in browser.client().windows().await? {
        browser.client().switch_to_window(tab).await?;
        browser.until(what, expression).await?;
    }
    Ok(())
}

#[tokio::test]
async fn f34_thirty_tabs_of_one_browser_are_live_and_return_when_they_are_shown() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let mut tunnel = Forward::open(&relay.link().authority).await?;
    let link = relay.link().at(&tunnel.authority());
    let number = |status: &Value, pointer: &str| status.pointer(pointer).and_then(Value::as_u64).unwrap_or(0);
    let jobs = "document.querySelectorAll('.jobs a.job').length > 3";
    browser.open(&link.url).await?;
    browser.until("jobs", jobs).await?;
    let (one, began) = (until_viewers(relay.link(), 1).await?, Instant::now());
    for _ in 1..TABS {
        let tab = browser.client().new_window(true).await?.handle;
        browser.client().switch_to_window(tab).await?;
        browser.open(&link.url).await?;
    }
    let all = until_viewers(relay.link(), TABS).await?;
    println!("{TABS} tabs are connected after {:?}", began.elapsed());
    each(&browser, "jobs", jobs).await?;
    let rss = "/process/rss_bytes";
    let grown = number(&all, rss).saturating_sub(number(&one, rss));
    ensure!(grown < TABS as u64 * TAB_BYTES, "{} KiB for {TABS} tabs", grown >> 10);
    let from = (status(relay.link()).await?, Instant::now());
    sleep(Duration::from_secs(5)).await;
    let cpu_ms = number(&status(relay.link()).await?, "/process/cpu_ms") - number(&from.0, "/process/cpu_ms");
    let pct = cpu_ms as f64 / from.1.elapsed().as_secs_f64() / 10.0;
    println!("{TABS} tabs take {} KiB and {pct:.1} % of a core", grown >> 10);

    tunnel.cut().await;
    until_viewers(relay.link(), 0).await?;
    tunnel.mend().await?;
    let mended = Instant::now();
    each(&browser, "no notice", "!document.querySelector('.notice--link')").await?;
    let back = until_viewers(relay.link(), TABS).await?;
    println!(
        "{TABS} tabs are back after {:?}; missed frames: {}",
        mended.elapsed(),
        back["frames"]["coalesced"]
    );
    each(&browser, "jobs", jobs).await
}
