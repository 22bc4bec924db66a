//! A job whose nodes have accelerators of four vendors: each is shown with what its driver reports, and sums state what
//! they cover.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::browser::Browser;
use nodeglass_tests::relay::TestRelay;
use std::time::Instant;

const SCENARIO: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../sim/scenarios/vendors.toml");
const MAIN: &str = "document.querySelector('main')?.innerText";
/// The models of the job's accelerators, with their number.
const MODELS: [&str; 4] =
    ["2 × H100 80GB HBM3", "2 × AMD Instinct MI300X", "1 × Intel Data Center GPU Max 1550", "4 × TPU v5e"];
/// A node, its first device, and a reading that its driver does not have.
const MISSING: [(&str, &str, &str); 3] =
    [("tpu1", "TPU 0", "Power"), ("xe1", "Intel 0", "SM active"), ("amd1", "AMD 0", "SM active")];

/// The text of a tile, by the beginning of its title.
fn tile(title: &str) -> String {
    format!(
        "[...document.querySelectorAll('.tile')].map(tile => tile.innerText).find(text => text.startsWith({title:?}))"
    )
}

#[tokio::test]
async fn a_job_across_vendors_states_what_each_driver_reports_and_what_sums_cover() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::start(&["--scenario", SCENARIO])?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/201")).await?;
    browser.until("all models", &format!("{MODELS:?}.every(model => {MAIN}?.includes(model))")).await?;
    // TPUs report no power: the sum covers the others, and has their limits.
    let power = format!("/^Power, 5 of 9 GPUs\\s+1,750\\s+\\/ 3,500 W/.test({})", tile("Power"));
    browser.until("power", &power).await?;
    let memory = format!("/^GPU memory\\s+366.6\\s+\\/ 735 GiB/.test({})", tile("GPU memory"));
    browser.until("memory", &memory).await?;
    browser.photograph("vendors-job").await?;

    for (node, first, missing) in MISSING {
        browser.open(&relay.link().path(&format!("/job/201/node/{node}"))).await?;
        browser.until(first, &format!("{MAIN}?.includes({first:?})")).await?;
        browser.eval("(document.querySelector('.grid tbody tr[aria-rowindex]').click(), true)").await?;
        browser.until("its sheet", "document.querySelector('dialog[open]')?.innerText.length > 200").await?;
        let zero = format!("/{missing}\\s+0/.test(document.querySelector('dialog[open]').innerText)");
        ensure!(browser.eval(&zero).await? == false, "{missing} of {first} is a zero");
        browser.photograph(&format!("vendors-{node}-sheet")).await?;
    }
    check_terminal(&relay)
}

/// The terminal view distinguishes readings that a driver does not have from zero.
fn check_terminal(relay: &TestRelay) -> Result<()> {
    let start = Instant::now();
    let shown = loop {
        let shown = relay.run(&["top", "--once"])?;
        if shown.contains("366.6 / 735 GiB") && shown.contains("1,750 / 3,500 W") {
            break shown;
        }
        // Samples may be late at any moment.
        ensure!(start.elapsed() < TIMEOUT, "{shown}");
    };
    for device in ["TPU 3", "AMD 1", "Intel 0"] {
        let row = shown
            .lines()
            .find(|line| line.contains(device))
            .with_context(|| format!("no {device}: {shown}"))?;
        ensure!(row.contains("n/a"), "{row}");
    }
    Ok(())
}
