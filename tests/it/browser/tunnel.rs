//! Chromium on a laptop, a tunnel, a relay on the login host and real jobs: the page shows what happens.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::lab::Site;
use std::time::Duration;

/// Whether the page contains this text, as an expression for [`Browser::until`].
fn text_contains(text: &str) -> String {
    format!("document.body.innerText.includes({text:?})")
}

/// Every number of the page's GPUs.
const NUMBERS: &str = "[...document.querySelectorAll('table td')].map(cell => cell.innerText).join('|')";
/// Number of sparklines that have a line.
const SPARKLINES: &str =
    "[...document.querySelectorAll('table svg path')].filter(p => p.getAttribute('d')).length";

#[tokio::test]
async fn alice_watches_her_jobs_through_a_tunnel() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(site) = Site::up_or_skip(3)? else { return Ok(()) };
    let job = site.train("alice", &["-N2", "--ntasks-per-node=1", "--gres=gpu:2", "--job-name=train-llm"])?;
    let bobs = site.train("bob", &["--gres=gpu:4", "-w", "gpu-node-03", "--job-name=secret-of-bob"])?;
    for id in [job, bobs] {
        site.lab.wait_until(id, "RUNNING")?;
    }
    let relay = site.relay("alice")?;
    browser.resize(1440, 900).await?;
    browser.prefer(Scheme::Dark).await?;
    browser.open(&relay.link.url).await?;
    browser.until("her job", &text_contains("train-llm")).await?;
    ensure!(browser.eval(&text_contains("secret-of-bob")).await? == false, "bob's job is not hers to see");

    browser.open(&relay.link.path(&format!("/job/{job}/node/gpu-node-01"))).await?;
    browser.until("the GPUs by name", &text_contains("A100-SXM4-80GB")).await?;
    browser
        .until(
            "the process and its user",
            &format!("{} && {}", text_contains("python3"), text_contains("alice")),
        )
        .await?;
    browser.until("sparklines", &format!("{SPARKLINES} >= 2")).await?;
    let before = browser.eval(NUMBERS).await?;
    browser.until("moving numbers", &format!("{NUMBERS} !== {before}")).await?;
    browser.photograph("cluster-node").await?;

    let new = site.train("alice", &["--gres=gpu:1", "--job-name=came-later"])?;
    browser.until("the new job", &text_contains("came-later")).await?;
    browser.open(&relay.link.path(&format!("/job/{new}"))).await?;
    browser.until("its GPU's sparkline", &format!("{SPARKLINES} >= 1")).await?;
    // The job must run for longer than the last moments before an end, which graphs leave out.
    tokio::time::sleep(Duration::from_secs(10)).await;
    site.lab.scancel("alice", new)?;
    browser.until("its end", &format!("/ended|cancelled/i.test({MAIN}.innerText)")).await?;
    ensure!(browser.eval(&format!("{SPARKLINES} >= 1")).await? == true, "its last picture stays");
    let at_end = |part: &str| format!("/at the end/.test(document.querySelector('{part}').innerText)");
    let titles = [".tile__title", ".heat-map .only-read", ".overlay .graph__title"].map(at_end).join(" && ");
    browser.until("the end of the job in titles and summaries", &titles).await?;
    browser.photograph("cluster-ended").await?;

    browser.open(&relay.link.path(&format!("/job/{job}"))).await?;
    browser
        .until("both nodes", &format!("{} && {}", text_contains("gpu-node-01"), text_contains("gpu-node-02")))
        .await?;
    browser.until("values", &format!("{SPARKLINES} >= 2")).await?;
    site.lab.cut("gpu-node-02")?;
    // Its heartbeat is missed long before TCP gives up.
    browser.until("a stale node", &text_contains("stale")).await?;
    browser.photograph("cluster-stale").await?;
    site.lab.mend("gpu-node-02")?;
    browser.until("a live node", &format!("!({})", text_contains("stale"))).await?;

    relay.stop().context("stop the relay")?;
    browser.until("the way to a new link", &text_contains("relay link")).await?;
    browser.photograph("cluster-link-lost").await?;
    let complaints = browser.complaints().await?;
    let serious: Vec<_> = complaints.iter().filter(|line| !line.message.contains("ERR_")).collect();
    ensure!(serious.is_empty(), "the browser complains: {serious:#?}");
    Ok(())
}

const MAIN: &str = "document.querySelector('main')";
