//! The app for Open OnDemand: a relay behind its authentication, without a port or a key.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::Browser;
use nodeglass_tests::http;
use nodeglass_tests::ondemand::OnDemand;
use nodeglass_tests::relay::binary;

#[tokio::test]
async fn the_app_of_open_ondemand_opens_the_page_without_a_key() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let settings = format!("RELAY_PROGRAM={}\nNODEGLASS_DEMO=true\n", binary("relay")?.display());
    let Some(portal) = OnDemand::start(&settings)? else { return Ok(()) };
    browser.resize(1440, 900).await?;
    browser.open(&portal.url()).await?;
    browser
        .until("the jobs of the demo", "document.querySelectorAll('main table tr').length > 5")
        .await
        .with_context(|| portal.log())?;
    // Values arrive over the WebSocket.
    let number = "document.querySelector('main').innerText";
    let first = browser.eval(number).await?;
    browser.until("moving numbers", &format!("{number} !== {first}")).await?;

    // Pages of other sites act for nobody, although the browser identifies its user to the portal.
    let path = "/pun/sys/nodeglass/api/v1/jobs";
    let reply = |origin: String| http::get(&portal.authority(), path, &[("Origin", &origin)]);
    ensure!(reply(format!("http://{}", portal.authority()))?.status == 200);
    ensure!(reply("http://evil.example.org".to_owned())?.status == 403);
    Ok(())
}

#[tokio::test]
async fn the_app_of_open_ondemand_shows_why_the_relay_does_not_start() -> Result<()> {
    let settings = format!("RELAY_PROGRAM={}\nNODEGLASS_SLURM_INTERVAL=fast\n", binary("relay")?.display());
    let Some(portal) = OnDemand::start(&settings)? else { return Ok(()) };
    let reply = http::get(&portal.authority(), "/pun/sys/nodeglass/", &[])?;
    ensure!(reply.status == 502 && reply.body.contains("fast"), "{reply:?}");
    Ok(())
}
