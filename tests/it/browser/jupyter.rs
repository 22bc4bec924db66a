//! The launcher tile of JupyterLab: a relay behind Jupyter's authentication, without a port or a key.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::Browser;
use nodeglass_tests::http;
use nodeglass_tests::jupyter::JupyterLab;
use std::time::Duration;

/// The tile.
const TILE: &str = "document.querySelector('.jp-LauncherCard[title^=nodeglass]')";

#[tokio::test]
async fn a_tile_of_jupyterlab_opens_the_page_without_a_key() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(jupyter) = JupyterLab::start(&[("NODEGLASS_DEMO", "true")])? else { return Ok(()) };
    browser.resize(1440, 900).await?;
    browser.open(jupyter.url()).await?;
    browser.until("the tile", TILE).await?;
    browser.until("its icon", &format!("{TILE}.querySelector('img')?.naturalWidth > 0")).await?;
    browser.photograph("jupyter-launcher").await?;
    let before = browser.client().windows().await?;
    browser.eval(&format!("{TILE}.click()")).await?;
    let opened = loop {
        let opened = browser.client().windows().await?.into_iter().find(|one| !before.contains(one));
        match opened {
            Some(opened) => break opened,
            None => tokio::time::sleep(Duration::from_millis(100)).await,
        }
    };
    browser.client().switch_to_window(opened).await?;
    browser
        .until("the jobs of the demo", "document.querySelectorAll('main table tr').length > 5")
        .await
        .with_context(|| jupyter.log())?;
    // Values arrive over the WebSocket, and the owner may act.
    let number = "document.querySelector('main').innerText";
    let first = browser.eval(number).await?;
    browser.until("moving numbers", &format!("{number} !== {first}")).await?;
    browser.photograph("jupyter-page").await?;
    let address = browser.client().current_url().await?;
    ensure!(address.path() == "/nodeglass/" && address.fragment().is_none_or(str::is_empty), "{address}");

    // Jupyter's authentication guards it: another browser has no cookie.
    let authority = format!("127.0.0.1:{}", address.port().context("a port")?);
    let reply = http::get(&authority, "/nodeglass/api/v1/jobs", &[])?;
    ensure!(reply.status != 200, "{reply:?}");
    Ok(())
}
