//! Ranges beyond a week, which the page shows of a long-term storage.

use crate::remote_write::{get, import};
use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::promql::{self, PromServer};
use nodeglass_tests::relay::TestRelay;
use nodeglass_tests::{TIMEOUT, skip};
use std::time::{Duration, Instant};

const LEFT: char = '\u{e012}';
const HOME: char = '\u{e011}';
const END: char = '\u{e010}';
/// The text of the tooltip.
const TIP: &str = "(document.querySelector('.tip')?.innerText ?? '')";
/// Whether the axis of each graph names a date, and no time of day.
const DATES: &str = "(texts => texts.some(text => /^\\d+ [A-Z][a-z]{2}/.test(text)) && \
    texts.every(text => /^\\d+ [A-Z][a-z]{2}( \\d{4})?$|^now$/.test(text)))\
    ([...document.querySelectorAll('.axis span')].map(label => label.innerText))";

/// A job that runs for longer than the relay keeps readings.
const LONG_RUN: &str = r#"
cluster = "long"
user = "alice"
seed = 1
still = true

[[node]]
name = "r1"
model = "h100"
gpus = 2
cpus = 64
mem_gib = 512

[[job]]
id = 7
name = "pretrain"
account = "lab"
partition = "gpu"
submitted = "-31d"
start = "-30d"
limit = "60d"
nodes = "r1"
gpus = [0, 1]
behaviour = "steady"
memory_pct = 50
args = "python3 train.py"
"#;

/// An age of some hours.
const HOURS: &str = "\\d+ h";

/// The labels of the GPUs of a node, once this many have samples.
fn gpus(relay: &TestRelay, node: &str, count: usize) -> Result<Vec<String>> {
    let node = format!("node=\"{node}\"");
    let start = Instant::now();
    loop {
        let metrics = get(relay, "/metrics?collect[]=gpu")?;
        let series = metrics.lines().filter_map(|line| line.strip_prefix("DCGM_FI_DEV_GPU_UTIL{"));
        let labels = series.filter_map(|line| line.split_once('}')).map(|(labels, _)| labels.to_owned());
        let gpus: Vec<_> = labels.filter(|labels| labels.contains(&node)).collect();
        if gpus.len() == count {
            return Ok(gpus);
        }
        ensure!(start.elapsed() < TIMEOUT, "{gpus:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Clicks the button of a length of time.
async fn choose(browser: &Browser, span: &str) -> Result<()> {
    let button =
        format!("[...document.querySelectorAll('.segments button')].find(one => one.innerText === '{span}')");
    browser.until(&format!("the button {span}"), &button).await?;
    browser.eval(&format!("({button}.click(), true)")).await.map(drop)
}

/// Puts the cursor on one of the last steps, and waits for its value and its distance from now.
async fn value_at_cursor(browser: &Browser, ago: &str) -> Result<()> {
    browser.eval("(document.querySelector('.time-line .stage').focus(), true)").await?;
    browser.press(END).await?;
    browser.press(LEFT).await?;
    let shown = format!("/40\\s?%/.test({TIP}) && /{ago}.* ago/.test({TIP})");
    browser.until("the value of the storage", &shown).await
}

#[tokio::test]
async fn a_year_is_read_from_the_storage_and_a_week_does_without_it() -> Result<()> {
    let Some(_) = skip::programs(["victoria-metrics"]) else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let server = PromServer::victoria_metrics(folder.path(), promql::free_address()?)?;
    server.wait_for("vector(1)")?;
    let url = format!("http://{}", server.authority());
    let relay = TestRelay::start(&["--demo", "--history-url", &url])?;
    let gpus = gpus(&relay, "gpu-h05", 8)?;
    import(&server, &gpus.iter().map(String::as_str).collect::<Vec<_>>(), 350, 3_600)?;

    browser.resize(1440, 1000).await?;
    browser.prefer(Scheme::Dark).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48213/node/gpu-h05")).await?;
    for (span, ago) in [("30 d", HOURS), ("90 d", HOURS), ("365 d", "[12] d")] {
        choose(&browser, span).await?;
        browser.until(&format!("dates of {span}"), DATES).await?;
        value_at_cursor(&browser, ago).await?;
    }
    for (width, height) in [(1440, 1000), (1024, 800), (390, 844)] {
        browser.resize(width, height).await?;
        for scheme in [Scheme::Dark, Scheme::Light] {
            browser.prefer(scheme).await?;
            browser.until("dates", DATES).await?;
            browser.eval("(document.querySelector('.time-bar').scrollIntoView(), true)").await?;
            browser.photograph(&format!("long-range-{width}-{}", scheme.name())).await?;
            ensure!(
                browser.eval("document.documentElement.scrollWidth <= innerWidth").await? == true,
                "wider than the screen at {width}"
            );
        }
    }

    // The address shows the same range to a colleague.
    browser.resize(1440, 1000).await?;
    browser.open(&relay.link().path("/job/48213/node/gpu-h05?r=7776000")).await?;
    browser.until("dates of the link", DATES).await?;
    value_at_cursor(&browser, HOURS).await?;

    // A storage that is gone is a sentence, and the relay's own week is shown all the same.
    drop(server);
    choose(&browser, "30 d").await?;
    let problem = "(document.querySelector('.time-bar__problem')?.innerText ?? '')";
    browser
        .until(
            "why there is nothing",
            &format!("/storage cannot be read: failed to connect/.test({problem})"),
        )
        .await?;
    browser.photograph("long-range-problem").await?;
    choose(&browser, "7 d").await?;
    browser.until("no problem", &format!("{problem} === ''")).await?;
    let loaded = "![...document.querySelectorAll('.graph__none')].some(one => one.innerText === 'Loading…')";
    browser.until("the relay's own week", loaded).await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

#[tokio::test]
async fn the_report_of_a_long_run_has_its_readings_from_the_storage() -> Result<()> {
    let Some(_) = skip::programs(["victoria-metrics"]) else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let server = PromServer::victoria_metrics(folder.path(), promql::free_address()?)?;
    server.wait_for("vector(1)")?;
    let scenario = folder.path().join("long.toml");
    std::fs::write(&scenario, LONG_RUN)?;
    let url = format!("http://{}", server.authority());
    let scenario = scenario.to_str().context("a path")?;
    let relay = TestRelay::start(&["--scenario", scenario, "--history-url", &url])?;
    let gpus = gpus(&relay, "r1", 2)?;
    import(&server, &gpus.iter().map(String::as_str).collect::<Vec<_>>(), 40, 3_600)?;

    browser.resize(1440, 1000).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/7/report")).await?;
    browser.until("the graph", "document.querySelector('.curves path')?.getBBox().width > 900").await?;
    browser.eval("(document.querySelector('.curves').focus(), true)").await?;
    let readout = "document.querySelector('.curves__readout').innerText";
    for key in [HOME, END] {
        browser.press(key).await?;
        browser.until("a value of the storage", &format!("/40 %/.test({readout})")).await?;
    }
    browser.until("the 29th day", &format!("/^\\+29 d/.test({readout})")).await?;
    for (width, scheme) in [(1440, Scheme::Dark), (1440, Scheme::Light), (390, Scheme::Dark)] {
        browser.resize(width, 1000).await?;
        browser.prefer(scheme).await?;
        let is_settled =
            "innerWidth > 500 || document.querySelector('nav.jobs').getBoundingClientRect().right <= 0";
        browser.until("the list of jobs in its place", is_settled).await?;
        browser.photograph(&format!("report-long-run-{width}-{}", scheme.name())).await?;
    }

    drop(server);
    browser.open(&relay.link().path("/job/7")).await?;
    browser.open(&relay.link().path("/job/7/report")).await?;
    let missing = "document.querySelector('.curves__none')?.innerText ?? ''";
    browser.until("why there is no graph", &format!("/storage cannot be read/.test({missing})")).await?;
    browser.photograph("report-long-run-problem").await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}
