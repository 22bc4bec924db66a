//! Pages that return: from another tab, from a frozen one, through a tunnel that was down, and of an older build.

use anyhow::{Result, ensure};
use nodeglass_tests::{Browser, Forward, TestRelay};
use serde_json::json;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The page's notice about its connection.
const NOTICE: &str = "document.querySelector('.notice--link')?.innerText";
/// The line of the first total.
const LINE: &str = "(document.querySelector('.area__line')?.getAttribute('d') ?? '')";

/// Makes the page hidden or visible to its own code.
async fn hide(browser: &Browser, is_hidden: bool) -> Result<()> {
    let state = if is_hidden { "hidden" } else { "visible" };
    let script = format!(
        "(() => {{ for (const [name, value] of [['hidden', {is_hidden}], ['visibilityState', '{state}']]) \
         Object.defineProperty(document, name, {{ configurable: true, get: () => value }}); \
         document.dispatchEvent(new Event('visibilitychange')); }})()"
    );
    browser.eval(&script).await.map(drop)
}

/// Waits until the line of a job's graph is current and has no gap.
async fn without_gap(browser: &Browser) -> Result<()> {
    browser.until("no notice", &format!("!{NOTICE}")).await?;
    // A part of the line for each run of samples; it reaches the right edge, 300 wide.
    let is_whole = format!(
        "{LINE}.split('M').length === 2 && {LINE}.split('L').length > 2 && +{LINE}.match(/([\\d.]+) [\\d.]+$/)[1] > 292"
    );
    browser.until("a line without a gap", &is_whole).await
}

/// Opens a job of the demo through a tunnel, and waits until its graphs are current.
async fn open_job_through_tunnel(browser: &Browser) -> Result<(TestRelay, Forward)> {
    let relay = TestRelay::demo()?;
    let tunnel = Forward::open(&relay.link().authority).await?;
    let link = relay.link().at(&tunnel.authority());
    browser.open(&link.url).await?;
    browser.until("jobs", "document.querySelectorAll('.jobs a.job').length > 3").await?;
    browser.open(&link.path("/job/48213")).await?;
    without_gap(browser).await?;
    Ok((relay, tunnel))
}

#[tokio::test]
async fn f15_a_hidden_or_frozen_page_is_quiet_and_current_once_it_is_visible() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let (_relay, mut tunnel) = open_job_through_tunnel(&browser).await?;

    hide(&browser, true).await?;
    let attempts = tunnel.refuse().await?;
    let lost = format!("/lost – retrying[^]*Tunnel down\\? On your machine:[^]*ssh /.test({NOTICE})");
    browser.until("the lost connection and the way back", &lost).await?;
    // No condition states that nothing happens: the longest wait between two attempts, and more.
    sleep(Duration::from_secs(8)).await;
    ensure!(attempts.load(Ordering::Relaxed) == 0, "a hidden page tried to reconnect");
    hide(&browser, false).await?;
    let shown = Instant::now();
    while attempts.load(Ordering::Relaxed) < 2 {
        ensure!(shown.elapsed() < nodeglass_tests::TIMEOUT, "a visible page does not try to reconnect");
        sleep(Duration::from_millis(20)).await;
    }
    tunnel.mend().await?;
    browser.eval("dispatchEvent(new Event('online'))").await?;
    let mended = Instant::now();
    without_gap(&browser).await?;
    println!("a page is current {:?} after its network returned", mended.elapsed());

    // As a browser does with a tab in the background, and a laptop with all of them.
    browser.devtools("Page.setWebLifecycleState", json!({ "state": "frozen" })).await?;
    tunnel.cut().await;
    sleep(Duration::from_secs(12)).await;
    tunnel.mend().await?;
    browser.devtools("Page.setWebLifecycleState", json!({ "state": "active" })).await?;
    let resumed = Instant::now();
    without_gap(&browser).await?;
    println!("a page that was frozen is current after {:?}", resumed.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_range_that_is_chosen_without_a_connection_is_loaded_once_there_is_one() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let (_relay, mut tunnel) = open_job_through_tunnel(&browser).await?;
    tunnel.refuse().await?;
    browser.until("the lost connection", &format!("/lost – retrying/.test({NOTICE})")).await?;
    let hour = "[...document.querySelectorAll('.time-bar button')].find(it => it.innerText === '1 h')";
    browser.eval(&format!("{hour}.click()")).await?;
    // A page that sends its query again and again would not respond to any other.
    browser.until("the chosen range", &format!("{hour}.getAttribute('aria-pressed') === 'true'")).await?;
    tunnel.mend().await?;
    browser.eval("dispatchEvent(new Event('online'))").await?;
    browser.until("no notice", &format!("!{NOTICE}")).await?;
    let title = "document.querySelector('.overlay .graph__title').innerText";
    browser.until("values of an hour", &format!(r"/median \d+ %, \d+ % to \d+ %/.test({title})")).await
}

/// Lets each document claim to be of another build, as one would that a newer relay replaced, and counts them.
const OTHER_BUILD: &str = "
    sessionStorage.loads = 1 + Number(sessionStorage.loads ?? 0);
    new MutationObserver((_, observer) => {
        const build = document.querySelector('meta[name=\"nodeglass-build\"]');
        if (build) { observer.disconnect(); build.content = 'other'; }
    }).observe(document, { childList: true, subtree: true });";

#[tokio::test]
async fn f23_a_page_of_another_build_reloads_itself_once_and_then_offers_it() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let mut tunnel = Forward::open(&relay.link().authority).await?;
    let script = json!({ "source": OTHER_BUILD });
    let script = browser.devtools("Page.addScriptToEvaluateOnNewDocument", script).await?;
    browser.open(&relay.link().at(&tunnel.authority()).url).await?;
    let offer = format!("/The relay was updated; this page is from another build/.test({NOTICE})");
    browser.until("a second load", "sessionStorage.loads === '2'").await?;
    browser.until("the offer to reload", &offer).await?;
    // A connection that is lost and opened again is no reason for another reload.
    tunnel.cut().await;
    browser.until("the lost connection", &format!("/lost – retrying/.test({NOTICE})")).await?;
    tunnel.mend().await?;
    browser.until("the same offer", &offer).await?;
    browser.until("data meanwhile", "document.querySelectorAll('.jobs a.job').length > 3").await?;
    ensure!(browser.eval("sessionStorage.loads").await? == "2", "it was reloaded again");

    browser.devtools("Page.removeScriptToEvaluateOnNewDocument", script).await?;
    browser.click(".notice--link button").await?;
    browser.until("no notice", &format!("document.readyState === 'complete' && !{NOTICE}")).await?;
    browser.until("jobs", "document.querySelectorAll('.jobs a.job').length > 3").await
}
