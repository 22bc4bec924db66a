//! The link opens the page in a real browser, which shows what a user should see; screenshots are for people.

pub(crate) mod accessible;
mod cards;
mod clusters;
mod findings;
mod gallery;
mod jupyter;
mod keyboard;
mod long_range;
mod long_table;
mod many_tabs;
mod notes;
mod ondemand;
mod readings;
mod reports;
mod returning;
mod screens;
mod search;
mod tunnel;
mod vendors;
mod watching;

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::relay::TestRelay;

/// The window sizes that the page supports, and the suffixes of their screenshots.
const SCREENS: &[(&str, u32, u32)] = &[("", 1440, 900), ("-wide", 1920, 1080), ("-phone", 390, 844)];

#[tokio::test]
async fn a_user_opens_the_link_and_sees_jobs_nodes_and_gpus() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelectorAll('[href*=\"/job/\"]').length >= 3").await?;
    browser.until("a percentage", "/\\d\\s?%/.test(document.body.innerText)").await?;
    let address = browser.client().current_url().await?;
    ensure!(address.fragment().unwrap_or_default().is_empty(), "the key is taken out of the address bar");
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

#[tokio::test]
async fn a_reload_restores_the_same_view() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    let place = open_first_job(&browser).await?;
    browser.client().refresh().await?;
    browser
        .until("the job again", "document.querySelectorAll('[role=meter], meter, .meter').length > 0")
        .await?;
    let after = browser.eval("location.pathname").await?;
    ensure!(after.as_str() == Some(place.as_str()), "from {place} to {after}");
    Ok(())
}

#[tokio::test]
async fn jobs_and_help_are_reachable_by_keyboard() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    let first = open_first_job(&browser).await?;
    browser.press('j').await?;
    browser.until("another job", &format!("location.pathname !== {first:?}")).await?;
    browser.press('k').await?;
    browser.until("the first job", &format!("location.pathname === {first:?}")).await?;
    browser.press('?').await?;
    browser.until("the help", "document.querySelector('dialog[open], [role=dialog]')").await?;
    Ok(())
}

#[tokio::test]
async fn screenshots_are_taken_at_every_size_in_both_themes() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelectorAll('[href*=\"/job/\"]').length >= 3").await?;
    let overview = "/".to_owned();
    let job = open_first_job(&browser).await?;
    browser.until("a link to a node", "document.querySelector('a[href*=\"/node/\"]')").await?;
    let node = browser
        .eval("document.querySelector('a[href*=\"/node/\"]')?.getAttribute('href')")
        .await?
        .as_str()
        .context("a job has a link to a node")?
        .to_owned();
    for (place, path) in [("overview", overview), ("job", job), ("node", node)] {
        for (suffix, width, height) in SCREENS {
            for scheme in [Scheme::Dark, Scheme::Light] {
                browser.resize(*width, *height).await?;
                browser.prefer(scheme).await?;
                browser.open(&relay.link().path(&path)).await?;
                browser.until("numbers", "/\\d\\s?%/.test(document.body.innerText)").await?;
                browser.photograph(&format!("{place}-{}{suffix}", scheme.name())).await?;
                let wide = browser.eval("document.documentElement.scrollWidth > innerWidth").await?;
                ensure!(wide == false, "the {place} is wider than {width} pixels");
            }
        }
    }
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

/// Opens the first job of the list and returns its path.
async fn open_first_job(browser: &Browser) -> Result<String> {
    browser.until("a list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
    browser.click("a[href*=\"/job/\"]").await?;
    browser.until("a job's page", "location.pathname.includes('/job/')").await?;
    let path = browser.eval("location.pathname").await?;
    Ok(path.as_str().context("a path")?.to_owned())
}
