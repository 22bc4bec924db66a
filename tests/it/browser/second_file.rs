//! What the page loads after its first picture is asked for until it comes, and is then there whatever becomes of the tunnel.

use anyhow::{Result, ensure};
use nodeglass_tests::{Browser, TestRelay};
use serde_json::json;

/// The rest of the page's program.
const REST: &str = "performance.getEntriesByType('resource').filter(one => one.name.includes('/rest-'))";
const HELP: &str = "document.querySelector('dialog[open]')?.ariaLabel === 'Keys'";
const TABLE: &str = "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length > 0";

fn alerts(words: &str) -> String {
    format!("[...document.querySelectorAll('[role=alert]')].some(one => one.innerText.includes({words:?}))")
}

#[tokio::test]
async fn a_part_that_does_not_come_is_said_and_asked_for_until_it_does() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.devtools("Network.enable", json!({})).await?;
    browser.devtools("Network.setBlockedURLs", json!({ "urls": ["*/rest-*"] })).await?;
    browser.open(&relay.link().url).await?;
    // What is needed at first sight is there without it.
    browser.until("the list of jobs", "document.querySelectorAll('nav.jobs a.job').length > 0").await?;
    browser.until("a live link", "document.querySelector('.foot__link.is-live')").await?;
    browser.until("the table's absence, said", &alerts("did not come")).await?;
    ensure!(browser.eval("document.querySelector('.grid')").await?.is_null(), "there is a table");
    browser.eval("document.querySelector('.top [aria-label=Keys]').click()").await?;
    let toast = "document.querySelector('.toasts [role=alert]')?.innerText.includes('asked for again')";
    browser.until("the help's absence, said", toast).await?;
    browser.devtools("Network.setBlockedURLs", json!({ "urls": [] })).await?;
    browser.until("the help, by itself", HELP).await?;
    browser.until("the table, by itself", TABLE).await?;
    browser.until("the heat map, by itself", "document.querySelector('.heat-map canvas')").await?;
    ensure!(browser.eval("document.querySelectorAll('[role=alert]').length").await? == 0, "an alert stays");
    Ok(())
}

#[tokio::test]
async fn sheets_open_though_the_relay_is_gone() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    browser.until("a table of jobs", TABLE).await?;
    browser.until("the rest, unasked", &format!("{REST}.some(one => one.responseEnd > 0)")).await?;
    drop(relay);
    browser.until("a lost link", "document.body.innerText.includes('The link to the relay is lost')").await?;
    browser.press('?').await?;
    browser.until("the help", HELP).await?;
    ensure!(browser.eval(&format!("{REST}.length")).await? == 1, "it was asked for once");
    Ok(())
}
