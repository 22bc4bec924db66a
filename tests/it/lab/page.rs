//! The page of a relay on the login host, in Chromium on a laptop.

use anyhow::{Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::lab::LoginRelay;

/// The page of one relay.
pub(super) struct LabPage<'a> {
    browser: Browser,
    relay: &'a LoginRelay,
}

impl<'a> LabPage<'a> {
    /// Opens the relay's link, or says that it cannot be looked at here.
    pub(super) async fn open_or_skip(relay: &'a LoginRelay) -> Result<Option<Self>> {
        let Some(browser) = Browser::start().await? else { return Ok(None) };
        browser.resize(1440, 900).await?;
        browser.prefer(Scheme::Dark).await?;
        browser.open(&relay.link.url).await?;
        browser.until("the list of jobs", "document.querySelector('.jobs .job') !== null").await?;
        Ok(Some(Self { browser, relay }))
    }

    /// Opens a path, waits until the page contains all texts, and takes a picture of it.
    pub(super) async fn shows(&self, path: &str, texts: &[&str], picture: &str) -> Result<()> {
        self.browser.open(&self.relay.link.path(path)).await?;
        for text in texts {
            let has_it = format!("document.body.innerText.includes({text:?})");
            self.browser.until(&format!("{text:?} on {path}"), &has_it).await?;
        }
        self.browser.photograph(picture).await?;
        Ok(())
    }

    /// Returns the value of an expression as text.
    pub(super) async fn text(&self, expression: &str) -> Result<String> {
        let value = self.browser.eval(expression).await?;
        Ok(value.as_str().map_or_else(|| value.to_string(), str::to_owned))
    }

    /// Ends the browser, unless it has complained about the page.
    pub(super) async fn close(self) -> Result<()> {
        let complaints = self.browser.complaints().await?;
        ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
        Ok(())
    }
}
