//! What the page costs a laptop: to fetch, to start, each second while it is seen, and while it is not.

use crate::flame::Frame;
use crate::report::Report;
use crate::series::Series;
use crate::site::{JOB, Manners, Site};
use anyhow::{Context, Result};
use nodeglass_tests::{Browser, TestRelay};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// GPUs of the job that is looked at, eight a node.
const NODES: usize = 125;
/// Wide enough for every column, and high enough for two hundred rows of 26 pixels.
const SCREEN: (u32, u32) = (1_920, 5_400);
/// A screen as people have.
const LAPTOP: (u32, u32) = (1_440, 900);
/// How often the page is opened anew.
const STARTS: usize = 5;
/// Seconds that are looked at one by one.
const TICKS: usize = 60;
/// How much slower the processor is made to seem.
const SLOWER: u32 = 4;
/// Time in which nobody sees the page.
const HIDDEN: Duration = Duration::from_secs(30);
/// Twenty samples a second for half a minute are as many as in ten minutes.
const HASTE_MS: u32 = 50;
const HASTE: Duration = Duration::from_secs(30);
/// Seconds of which a picture is drawn.
const PROFILED: Duration = Duration::from_secs(20);
/// Until what only happens at the start is over.
const SETTLE: Duration = Duration::from_secs(8);

/// Notes when the first row of a table is there, and every task that held the page up.
const WATCH: &str = "window.longTasks = 0; \
    new PerformanceObserver(list => { longTasks += list.getEntries().length }).observe({ type: 'longtask', buffered: true }); \
    new MutationObserver((_, observer) => { if (document.querySelector('.grid tbody tr[aria-rowindex]')) { \
        window.interactive = performance.now(); observer.disconnect(); } }) \
        .observe(document, { childList: true, subtree: true });";
/// Rows of the table that are drawn.
const ROWS: &str = "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length";

/// Those of them within the window.
const ROWS_SEEN: &str = "[...document.querySelectorAll('.grid tbody tr[aria-rowindex]')] \
    .filter(row => { const { top, bottom } = row.getBoundingClientRect(); return bottom > 0 && top < innerHeight }).length";

/// Measures everything of this subject that is asked for.
pub async fn measure(report: &Report) -> Result<()> {
    sizes(report)?;
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    browser.resize(SCREEN.0, SCREEN.1).await?;
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": WATCH })).await?;
    // The page's own share of the processor, whatever else the machine does.
    browser.devtools("Performance.enable", json!({ "timeDomain": "threadTicks" })).await?;
    if report.wants(&["page.first_paint_ms", "page.interactive_ms"]) {
        starts(&browser, report).await?;
    }
    if report.wants(&["page.heap_mb_start", "page.heap_mb_end"]) {
        heap(&browser, report).await?;
    }
    // Last, for it puts the window away, and what nobody sees is not drawn.
    let of_a_second = [
        "page.tick_ms_p50",
        "page.tick_ms_p99",
        "page.tick_script_ms_p50",
        "page.tick_layout_ms_p50",
        "page.tick_ms_p99_slow",
        "page.tick_ms_p50_laptop",
        "page.long_tasks",
        "page.hidden_cpu_ms_per_min",
    ];
    if report.wants(&of_a_second) {
        seconds(&browser, report).await?;
    }
    Ok(())
}

/// Sizes of the page as it travels.
fn sizes(report: &Report) -> Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?.join("dist");
    let (mut wasm, mut js) = (0, 0);
    for entry in fs::read_dir(&dist).context("look into dist, where the page is built")? {
        let entry = entry?;
        let (name, bytes) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len());
        wasm += if name.ends_with(".wasm.br") { bytes } else { 0 };
        js += if name.ends_with(".js.br") { bytes } else { 0 };
    }
    report.value("page.wasm_br_kb", wasm as f64 / 1e3, "");
    report.value("page.js_br_kb", js as f64 / 1e3, "");
    Ok(())
}

/// Opened again and again from loopback, nothing kept from the time before.
async fn starts(browser: &Browser, report: &Report) -> Result<()> {
    let relay = TestRelay::demo()?;
    let (mut painted, mut interactive) = (Series::default(), Series::default());
    browser.devtools("Network.enable", json!({})).await?;
    for _ in 0..STARTS {
        browser.devtools("Network.clearBrowserCache", json!({})).await?;
        browser.open("about:blank").await?;
        browser.open(&relay.link().url).await?;
        browser.until("a first row", "window.interactive").await?;
        let paint = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
        browser.until("a first paint", paint).await?;
        painted.push(number(&browser.eval(paint).await?)?);
        interactive.push(number(&browser.eval("window.interactive").await?)?);
    }
    report.noted("page.first_paint_ms", &painted, "first contentful paint, nothing cached");
    report.noted("page.interactive_ms", &interactive, "the first row of a table");
    Ok(())
}

/// A job of a thousand GPUs, seen and then not seen.
async fn seconds(browser: &Browser, report: &Report) -> Result<()> {
    let site = Site::start(NODES, Manners::default())?;
    let rows = open(browser, &site).await?;
    let note = format!("CPU of scripts, style and layout in a second; 1,000 GPUs, {rows} rows drawn");
    let ticks = ticks(browser).await?;
    report.noted("page.tick_ms_p50", &Series::from_iter([ticks.all.quantile(0.5)]), &note);
    report.noted("page.tick_ms_p99", &Series::from_iter([ticks.all.quantile(0.99)]), &note);
    report.value("page.tick_script_ms_p50", ticks.scripts.quantile(0.5), "the page's own part of it");
    report.value(
        "page.tick_layout_ms_p50",
        ticks.layout.quantile(0.5),
        "the browser's, for each text that is another",
    );
    let long = number(&browser.eval("window.longTasks").await?)?;
    report.value(
        "page.long_tasks",
        long,
        "tasks of more than 50 ms since the page was opened, the start included",
    );
    browser.devtools("Emulation.setCPUThrottlingRate", json!({ "rate": SLOWER })).await?;
    let slow = self::ticks(browser).await?;
    browser.devtools("Emulation.setCPUThrottlingRate", json!({ "rate": 1 })).await?;
    report.value(
        "page.tick_ms_p99_slow",
        slow.all.quantile(0.99),
        &format!("the processor made {SLOWER} times slower"),
    );
    browser.resize(LAPTOP.0, LAPTOP.1).await?;
    browser.eval("[...document.querySelectorAll('.grid')].at(-1).scrollIntoView()").await?;
    sleep(SETTLE).await;
    let rows = browser.eval(ROWS_SEEN).await?;
    let laptop = self::ticks(browser).await?;
    let (width, height) = LAPTOP;
    report.value(
        "page.tick_ms_p50_laptop",
        laptop.all.quantile(0.5),
        &format!("the same job in a window of {width} × {height}, {rows} rows of it seen"),
    );
    if report.wants(&["page.hidden_cpu_ms_per_min"]) {
        hidden(browser, report).await?;
    }
    Ok(())
}

/// Draws what a second costs, by function: the picture goes where the one word says.
pub async fn flame(report: &Report) -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let path = report.only().context("where to?")?;
    browser.resize(SCREEN.0, SCREEN.1).await?;
    let site = Site::start(NODES, Manners::default())?;
    let rows = open(&browser, &site).await?;
    browser.devtools("Profiler.enable", json!({})).await?;
    browser.devtools("Profiler.setSamplingInterval", json!({ "interval": 200 })).await?;
    browser.devtools("Profiler.start", json!({})).await?;
    sleep(PROFILED).await;
    let told = browser.devtools("Profiler.stop", json!({})).await?;
    let frames = Frame::of_profile(&told["profile"])?;
    let seconds = PROFILED.as_secs_f64();
    let title = format!(
        "A second of the page of a job with 1,000 GPUs, {rows} rows drawn: {:.1} ms in scripts, {seconds} s together",
        frames.all_ms() / seconds
    );
    frames.show(path, &title, seconds)
}

/// Opens the job's page and waits until it is complete; how many rows are drawn.
async fn open(browser: &Browser, site: &Site) -> Result<u64> {
    browser.open(&site.link().url).await?;
    browser.until("the list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
    browser.open(&site.link().path(&format!("/job/{JOB}"))).await?;
    browser.until("a table of many rows", &format!("{ROWS} > 150")).await?;
    sleep(SETTLE).await;
    browser.eval(ROWS).await?.as_u64().context("a number of rows")
}

/// What each second costs the page's thread, in ms.
#[derive(Default)]
struct Ticks {
    scripts: Series,
    layout: Series,
    /// Both, and style.
    all: Series,
}

async fn ticks(browser: &Browser) -> Result<Ticks> {
    let mut ticks = Ticks::default();
    let mut before = Spent::of(browser).await?;
    for _ in 0..TICKS {
        sleep(Duration::from_secs(1)).await;
        let now = Spent::of(browser).await?;
        ticks.scripts.push(now.scripts_ms - before.scripts_ms);
        ticks.layout.push(now.layout_ms - before.layout_ms);
        ticks.all.push(now.work_ms() - before.work_ms());
        before = now;
    }
    Ok(ticks)
}

/// What the page's thread has done since it was opened.
struct Spent {
    scripts_ms: f64,
    layout_ms: f64,
    style_ms: f64,
    /// These, painting, and whatever else there is.
    all_ms: f64,
}

impl Spent {
    async fn of(browser: &Browser) -> Result<Self> {
        let told = browser.devtools("Performance.getMetrics", json!({})).await?;
        let ms = |name: &str| {
            let metrics = told["metrics"].as_array().into_iter().flatten();
            let value =
                metrics.filter(|metric| metric["name"] == name).find_map(|metric| metric["value"].as_f64());
            value.map(|seconds| seconds * 1e3).with_context(|| format!("{name} among {told}"))
        };
        Ok(Self {
            scripts_ms: ms("ScriptDuration")?,
            layout_ms: ms("LayoutDuration")?,
            style_ms: ms("RecalcStyleDuration")?,
            all_ms: ms("TaskDuration")?,
        })
    }

    fn work_ms(&self) -> f64 {
        self.scripts_ms + self.layout_ms + self.style_ms
    }
}

/// The page while another tab is in front of it.
async fn hidden(browser: &Browser, report: &Report) -> Result<()> {
    browser.devtools("Emulation.setFocusEmulationEnabled", json!({ "enabled": false })).await?;
    // A browser without a screen shows all its tabs; a window that is put away is hidden in any.
    browser.client().minimize_window().await.context("put the window away")?;
    let seen = browser.eval("document.visibilityState").await?;
    if seen != "hidden" {
        println!("this browser does not hide the page of a window that is put away: {seen}");
        return Ok(());
    }
    sleep(SETTLE).await;
    let before = Spent::of(browser).await?;
    sleep(HIDDEN).await;
    let spent = Spent::of(browser).await?.all_ms - before.all_ms;
    report.value(
        "page.hidden_cpu_ms_per_min",
        spent * 60.0 / HIDDEN.as_secs_f64(),
        "1,000 GPUs, the window put away",
    );
    Ok(())
}

/// Twenty times the haste of a real cluster.
async fn heap(browser: &Browser, report: &Report) -> Result<()> {
    let site = Site::start(NODES, Manners { fixed_ms: Some(HASTE_MS), ..Manners::default() })?;
    open(browser, &site).await?;
    let note = "1,000 GPUs sampled twenty times a second; scripts' objects and WebAssembly's memory";
    report.value("page.heap_mb_start", heap_mb(browser).await?, note);
    sleep(HASTE).await;
    report.value("page.heap_mb_end", heap_mb(browser).await?, note);
    Ok(())
}

/// What is still used once the garbage is gone.
async fn heap_mb(browser: &Browser) -> Result<f64> {
    browser.devtools("HeapProfiler.collectGarbage", json!({})).await?;
    let told = browser.devtools("Runtime.getHeapUsage", json!({})).await?;
    let part = |name: &str| told[name].as_f64();
    let used = part("usedSize").with_context(|| format!("the heap: {told}"))?;
    Ok((used + part("embedderHeapUsedSize").unwrap_or(0.0) + part("backingStorageSize").unwrap_or(0.0)) / 1e6)
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}
