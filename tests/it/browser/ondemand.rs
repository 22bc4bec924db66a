//! The app for Open OnDemand: a relay behind its authentication, without a port or a key.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::browser::Browser;
use nodeglass_tests::http;
use nodeglass_tests::ondemand::OnDemand;
use nodeglass_tests::relay::binary;
use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

#[tokio::test]
async fn the_app_of_open_ondemand_opens_the_page_without_a_key() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let program = folder.path().join("relay");
    let script = format!("#!/bin/sh\necho $$ > \"$0.pid\"\nexec '{}' \"$@\"\n", binary("relay")?.display());
    fs::write(&program, script)?;
    fs::set_permissions(&program, Permissions::from_mode(0o755))?;
    let settings = format!("RELAY_PROGRAM=\"{}\"\nNODEGLASS_DEMO=true\n", program.display());
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

    // The relay ends with the app.
    let pid = fs::read_to_string(program.with_extension("pid"))?;
    let process = Path::new("/proc").join(pid.trim()).join("exe");
    ensure!(process.exists(), "the relay has ended");
    drop(portal);
    let start = Instant::now();
    while process.exists() {
        ensure!(start.elapsed() < TIMEOUT, "the relay runs without the app");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    Ok(())
}

#[tokio::test]
async fn t23_the_app_of_open_ondemand_removes_only_what_it_created() -> Result<()> {
    let settings = format!("RELAY_PROGRAM={}\nNODEGLASS_DEMO=true\n", binary("relay")?.display());
    let Some(mut portal) = OnDemand::start(&settings)? else { return Ok(()) };
    let reply = http::get(&portal.authority(), "/pun/sys/nodeglass/api/v1/jobs", &[])?;
    ensure!(reply.status == 200, "{reply:?}");
    // Its folder is removed, and another user creates one of that name.
    let entries = fs::read_dir(portal.tmp())?.collect::<std::io::Result<Vec<_>>>()?;
    let own = entries.iter().find(|entry| entry.file_name().to_string_lossy().starts_with("nodeglass-"));
    let (own, removed) = (own.context("the app has no folder")?.path(), portal.tmp().join("removed"));
    fs::rename(&own, &removed)?;
    fs::create_dir(&own)?;
    fs::write(own.join("thesis.tex"), "")?;
    portal.stop();
    let start = Instant::now();
    while removed.join("relay.sock").exists() {
        ensure!(start.elapsed() < TIMEOUT, "the app left its socket");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    ensure!(own.join("thesis.tex").exists(), "the app removed a file of another folder");
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
