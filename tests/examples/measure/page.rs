//! Cost of the page for a browser: download, start, work per second, responsiveness, memory.

use crate::flame::Frame;
use crate::report::Report;
use crate::series::Series;
use crate::site::{JOB, NodeOptions, SimulatedCluster};
use anyhow::{Context, Result};
use nodeglass_tests::relay::Link;
use nodeglass_tests::{Browser, TestRelay};
use serde_json::{Value, json};
use std::fs;
use std::path::Path;
use std::time::Duration;
use tokio::time::sleep;

/// Nodes of the large job, eight GPUs each.
const NODES: usize = 125;
/// Nodes of the job that is opened with a throttled CPU: 64 GPUs.
const FEW_NODES: usize = 8;
/// The window, in CSS pixels.
const WINDOW: (u32, u32) = (1_440, 900);
/// Number of page loads.
const LOADS: usize = 5;
/// Number of seconds that are measured one by one.
const SECONDS: u64 = 60;
/// Factor of CPU throttling that stands for a phone or an old laptop.
const THROTTLING: u32 = 4;
/// Bandwidth in bytes per second and round-trip time in ms of a slow link: 5 Mbit/s.
const SLOW_LINK: (u32, u32) = (625_000, 60);
/// Time for which the window is minimised.
const HIDDEN: Duration = Duration::from_secs(30);
/// Twenty samples per second for half a minute are as many as ten minutes have.
const FAST_MS: u32 = 50;
const FAST: Duration = Duration::from_secs(30);
/// Length of a CPU profile.
const PROFILED: Duration = Duration::from_secs(20);
/// Waiting time until start-up work is over.
const SETTLE: Duration = Duration::from_secs(8);
/// Text that is typed into the filter, and the time between two keys.
const FILTER: &str = "util>20 temp<90";
const KEY_INTERVAL: Duration = Duration::from_millis(150);

/// Records when the first table row appears, and every long task with its start and duration.
const OBSERVE: &str = "window.longTasks = []; \
    new PerformanceObserver(list => { for (const { startTime, duration } of list.getEntries()) longTasks.push([startTime, duration]) }) \
        .observe({ type: 'longtask', buffered: true }); \
    new MutationObserver((_, observer) => { if (document.querySelector('.grid tbody tr[aria-rowindex]')) { \
        window.firstRow = performance.now(); observer.disconnect(); } }) \
        .observe(document, { childList: true, subtree: true });";
/// Records the longest time in each second during which a timer could not run. Browsers run nested timers
/// every 4 ms at most, which is subtracted.
const MEASURE_BLOCKS: &str = "(() => { window.blocks = {}; window.measureBlocks = true; let last = performance.now(); \
    const tick = () => { const now = performance.now(), second = Math.floor(now / 1000); \
        blocks[second] = Math.max(blocks[second] ?? 0, now - last - 4); last = now; \
        if (measureBlocks) setTimeout(tick, 0); }; tick(); })()";
/// Clicks the link of the job, and records when its first screen is painted (tiles and heat map), and when the
/// rows of its tables are. The overview has a heat map, too; only the head of the job shows that the page changed.
const OPEN_JOB: &str = "(() => { window.opened = window.complete = null; const start = performance.now(); \
    document.querySelector('a[href*=\"/job/\"]').click(); \
    const painted = record => requestAnimationFrame(() => setTimeout(() => record(performance.now() - start))); \
    const wait = () => { const is = css => document.querySelectorAll(css).length, here = location.pathname.includes('/job/'); \
        if (here && opened === null && is('.head__title') && is('.heat-map canvas')) { opened = 0; painted(ms => opened = ms); } \
        if (here && is('.grid tbody tr[aria-rowindex]') >= 16) painted(ms => complete = ms); \
        else requestAnimationFrame(wait) }; wait(); })()";
/// Number of drawn rows.
const ROWS: &str = "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length";

/// Measures the requested figures.
pub async fn measure(report: &Report) -> Result<()> {
    sizes(report)?;
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    browser.resize(WINDOW.0, WINDOW.1).await?;
    browser.devtools("Page.addScriptToEvaluateOnNewDocument", json!({ "source": OBSERVE })).await?;
    // CPU time of the page's thread rather than wall-clock time, which depends on other processes.
    browser.devtools("Performance.enable", json!({ "timeDomain": "threadTicks" })).await?;
    if report.wants(&["page.first_paint_ms", "page.first_row_ms", "page.first_row_slow_link_ms"]) {
        loads(&browser, report).await?;
    }
    if report.wants(&["page.open_job_throttled_ms"]) {
        open_job(&browser, report).await?;
    }
    if report.wants(&["page.heap_mb_start", "page.heap_mb_end"]) {
        heap(&browser, report).await?;
    }
    // Last, because it minimises the window, and minimised windows are not drawn.
    let running = [
        "page.work_ms_per_s",
        "page.long_tasks_per_min",
        "page.block_ms_p99",
        "page.filter_long_tasks_throttled",
        "page.hidden_cpu_ms_per_min",
    ];
    if report.wants(&running) {
        run(&browser, report).await?;
    }
    Ok(())
}

/// Sizes of the page's files as they are transferred.
fn sizes(report: &Report) -> Result<()> {
    let dist = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the workspace")?.join("dist");
    let (mut wasm, mut js) = (0, 0);
    for entry in fs::read_dir(&dist).context("read dist, which contains the built page")? {
        let entry = entry?;
        let (name, bytes) = (entry.file_name().to_string_lossy().into_owned(), entry.metadata()?.len());
        wasm += if name.ends_with(".wasm.br") { bytes } else { 0 };
        js += if name.ends_with(".js.br") { bytes } else { 0 };
    }
    report.value("page.wasm_all_br_kb", wasm as f64 / 1e3, "");
    report.value("page.js_br_kb", js as f64 / 1e3, "");
    Ok(())
}

/// Loads the demo's overview with an empty cache.
async fn loads(browser: &Browser, report: &Report) -> Result<()> {
    let relay = TestRelay::demo()?;
    browser.devtools("Network.enable", json!({})).await?;
    let (mut paints, mut rows, mut slow_rows) = (Series::default(), Series::default(), Series::default());
    for _ in 0..LOADS {
        let (paint, row) = load(browser, relay.link()).await?;
        paints.push(paint);
        rows.push(row);
    }
    let (bytes_per_s, latency_ms) = SLOW_LINK;
    let conditions = |latency: u32, throughput: i64| json!({ "offline": false, "latency": latency, "downloadThroughput": throughput, "uploadThroughput": throughput });
    browser
        .devtools("Network.emulateNetworkConditions", conditions(latency_ms, i64::from(bytes_per_s)))
        .await?;
    for _ in 0..LOADS {
        slow_rows.push(load(browser, relay.link()).await?.1);
    }
    browser.devtools("Network.emulateNetworkConditions", conditions(0, -1)).await?;
    report.noted("page.first_paint_ms", &paints, "first contentful paint, nothing cached");
    report.noted("page.first_row_ms", &rows, "the first row of a table, loopback, nothing cached");
    report.noted("page.first_row_slow_link_ms", &slow_rows, "the same over 5 Mbit/s with 60 ms of latency");
    Ok(())
}

/// Loads the page once; first contentful paint and first row, in ms since navigation.
async fn load(browser: &Browser, link: &Link) -> Result<(f64, f64)> {
    const PAINT: &str = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime";
    browser.devtools("Network.clearBrowserCache", json!({})).await?;
    browser.open("about:blank").await?;
    browser.open(&link.url).await?;
    browser.until("a first row", "window.firstRow").await?;
    browser.until("a first paint", PAINT).await?;
    Ok((number(&browser.eval(PAINT).await?)?, number(&browser.eval("window.firstRow").await?)?))
}

/// Opens a job of 64 GPUs from the overview, with a throttled CPU.
async fn open_job(browser: &Browser, report: &Report) -> Result<()> {
    let site = SimulatedCluster::start(FEW_NODES, NodeOptions::default())?;
    browser.open(&site.link().url).await?;
    browser.until("the list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
    sleep(SETTLE).await;
    throttle(browser, THROTTLING).await?;
    let (mut times, mut complete) = (Series::default(), Series::default());
    for _ in 0..LOADS {
        browser.eval(OPEN_JOB).await?;
        browser.until("the job's rows", "window.complete").await?;
        times.push(number(&browser.eval("window.opened").await?)?);
        complete.push(number(&browser.eval("window.complete").await?)?);
        browser.eval("history.back()").await?;
        browser.until("the overview again", "!location.pathname.includes('/job/')").await?;
        sleep(Duration::from_secs(2)).await;
    }
    throttle(browser, 1).await?;
    let note = format!(
        "from the click to the painted first screen; with all tables {:.0}; 64 GPUs, the CPU throttled to a quarter",
        complete.median()
    );
    report.noted("page.open_job_throttled_ms", &times, &note);
    Ok(())
}

/// A job of a thousand GPUs: visible, filtered, hidden.
async fn run(browser: &Browser, report: &Report) -> Result<()> {
    let site = SimulatedCluster::start(NODES, NodeOptions::default())?;
    let rows = open(browser, &site).await?;
    let start = number(&browser.eval("performance.now()").await?)?;
    let mut work = WorkPerSecond::default();
    let mut before = Spent::query(browser).await?;
    for _ in 0..SECONDS {
        sleep(Duration::from_secs(1)).await;
        let now = Spent::query(browser).await?;
        work.push(&before, &now);
        before = now;
    }
    let (width, height) = WINDOW;
    let note = format!(
        "CPU time of scripts ({:.1}), style and layout ({:.1}) per second; 1,000 GPUs, {rows} rows drawn, {width} × {height}",
        work.scripts.median(),
        work.layout.median()
    );
    report.noted("page.work_ms_per_s", &work.all, &note);
    let long_tasks = long_tasks_since(browser, start).await?;
    report.value(
        "page.long_tasks_per_min",
        long_tasks.len() as f64 * 60.0 / SECONDS as f64,
        &format!("tasks of 50 ms and more once the page is complete: {long_tasks:?}"),
    );
    if report.wants(&["page.block_ms_p99"]) {
        blocks(browser, report).await?;
    }
    if report.wants(&["page.filter_long_tasks_throttled"]) {
        filter(browser, report).await?;
    }
    if report.wants(&["page.hidden_cpu_ms_per_min"]) {
        hidden(browser, report).await?;
    }
    Ok(())
}

/// The longest block of the main thread in each second.
async fn blocks(browser: &Browser, report: &Report) -> Result<()> {
    browser.eval(MEASURE_BLOCKS).await?;
    sleep(Duration::from_secs(SECONDS)).await;
    let blocks = browser.eval("(measureBlocks = false, Object.values(blocks).slice(1))").await?;
    let blocks: Series = blocks.as_array().into_iter().flatten().filter_map(Value::as_f64).collect();
    report.value(
        "page.block_ms_p99",
        blocks.quantile(0.99),
        &format!("longest block in each of {SECONDS} seconds; median {:.1}", blocks.median()),
    );
    Ok(())
}

/// Types a filter with a throttled CPU.
async fn filter(browser: &Browser, report: &Report) -> Result<()> {
    throttle(browser, THROTTLING).await?;
    sleep(SETTLE).await;
    browser.press('/').await?;
    let start = number(&browser.eval("performance.now()").await?)?;
    for letter in FILTER.chars() {
        browser.press(letter).await?;
        sleep(KEY_INTERVAL).await;
    }
    sleep(Duration::from_secs(1)).await;
    let long_tasks = long_tasks_since(browser, start).await?;
    let typed = browser.eval("document.activeElement.value").await?;
    throttle(browser, 1).await?;
    report.value(
        "page.filter_long_tasks_throttled",
        long_tasks.len() as f64,
        &format!("while typing {typed} above 1,000 GPUs, the CPU throttled to a quarter: {long_tasks:?}"),
    );
    Ok(())
}

/// Durations in ms of the long tasks since a moment of the page's clock.
async fn long_tasks_since(browser: &Browser, start: f64) -> Result<Vec<u64>> {
    let found = browser
        .eval(&format!("longTasks.filter(([at]) => at > {start}).map(([_, ms]) => Math.round(ms))"))
        .await?;
    Ok(found.as_array().into_iter().flatten().filter_map(Value::as_u64).collect())
}

async fn throttle(browser: &Browser, rate: u32) -> Result<()> {
    browser.devtools("Emulation.setCPUThrottlingRate", json!({ "rate": rate })).await.map(drop)
}

/// Draws a flame graph of the page's scripts into the file that the only argument names.
pub async fn flame(report: &Report) -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let path = report.only().context("name the file to write")?;
    browser.resize(WINDOW.0, WINDOW.1).await?;
    let site = SimulatedCluster::start(NODES, NodeOptions::default())?;
    let rows = open(&browser, &site).await?;
    browser.devtools("Profiler.enable", json!({})).await?;
    browser.devtools("Profiler.setSamplingInterval", json!({ "interval": 200 })).await?;
    browser.devtools("Profiler.start", json!({})).await?;
    sleep(PROFILED).await;
    let result = browser.devtools("Profiler.stop", json!({})).await?;
    let frames = Frame::of_profile(&result["profile"])?;
    let seconds = PROFILED.as_secs_f64();
    let title = format!(
        "A second of the page of a job with 1,000 GPUs, {rows} rows drawn: {:.1} ms in scripts, {seconds} s together",
        frames.all_ms() / seconds
    );
    frames.show(path, &title, seconds)
}

/// Opens the job's page and waits until it is complete. Returns the number of drawn rows.
async fn open(browser: &Browser, site: &SimulatedCluster) -> Result<u64> {
    browser.open(&site.link().url).await?;
    browser.until("the list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
    browser.open(&site.link().path(&format!("/job/{JOB}?shown=all"))).await?;
    browser.until("a table of many rows", &format!("{ROWS} >= 20")).await?;
    browser.eval("[...document.querySelectorAll('.grid')].at(-1).scrollIntoView()").await?;
    sleep(SETTLE).await;
    browser.eval(ROWS).await?.as_u64().context("a number of rows")
}

/// CPU time of the page's thread in each second, in ms.
#[derive(Default)]
struct WorkPerSecond {
    scripts: Series,
    layout: Series,
    /// Scripts, style and layout.
    all: Series,
}

impl WorkPerSecond {
    fn push(&mut self, before: &Spent, now: &Spent) {
        self.scripts.push(now.scripts_ms - before.scripts_ms);
        self.layout.push(now.layout_ms + now.style_ms - before.layout_ms - before.style_ms);
        self.all.push(now.work_ms() - before.work_ms());
    }
}

/// CPU time of the page's thread since it was opened, from `Performance.getMetrics`.
struct Spent {
    scripts_ms: f64,
    layout_ms: f64,
    style_ms: f64,
    /// Total, painting included.
    all_ms: f64,
}

impl Spent {
    async fn query(browser: &Browser) -> Result<Self> {
        let metrics = browser.devtools("Performance.getMetrics", json!({})).await?;
        let ms = |name: &str| {
            let metric =
                metrics["metrics"].as_array().into_iter().flatten().find(|metric| metric["name"] == name);
            let seconds = metric.and_then(|metric| metric["value"].as_f64());
            seconds.map(|seconds| seconds * 1e3).with_context(|| format!("{name} is missing in {metrics}"))
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

/// The page while its window is minimised.
async fn hidden(browser: &Browser, report: &Report) -> Result<()> {
    browser.devtools("Emulation.setFocusEmulationEnabled", json!({ "enabled": false })).await?;
    // Headless browsers show all tabs, but a minimised window is hidden in any browser.
    browser.client().minimize_window().await.context("minimise the window")?;
    let visibility = browser.eval("document.visibilityState").await?;
    if visibility != "hidden" {
        println!("this browser does not hide the page of a minimised window: {visibility}");
        return Ok(());
    }
    sleep(SETTLE).await;
    let before = Spent::query(browser).await?;
    sleep(HIDDEN).await;
    let spent = Spent::query(browser).await?.all_ms - before.all_ms;
    report.value(
        "page.hidden_cpu_ms_per_min",
        spent * 60.0 / HIDDEN.as_secs_f64(),
        "1,000 GPUs, the window minimised",
    );
    Ok(())
}

/// Memory before and after as many samples as ten minutes have.
async fn heap(browser: &Browser, report: &Report) -> Result<()> {
    let site =
        SimulatedCluster::start(NODES, NodeOptions { fixed_ms: Some(FAST_MS), ..NodeOptions::default() })?;
    open(browser, &site).await?;
    let note = "1,000 GPUs sampled twenty times a second; objects of scripts and WebAssembly's memory";
    report.value("page.heap_mb_start", heap_mb(browser).await?, note);
    sleep(FAST).await;
    report.value("page.heap_mb_end", heap_mb(browser).await?, note);
    Ok(())
}

/// Used memory after garbage collection.
async fn heap_mb(browser: &Browser) -> Result<f64> {
    browser.devtools("HeapProfiler.collectGarbage", json!({})).await?;
    let usage = browser.devtools("Runtime.getHeapUsage", json!({})).await?;
    let part = |name: &str| usage[name].as_f64();
    let used = part("usedSize").with_context(|| format!("the heap: {usage}"))?;
    Ok((used + part("embedderHeapUsedSize").unwrap_or(0.0) + part("backingStorageSize").unwrap_or(0.0)) / 1e6)
}

fn number(value: &Value) -> Result<f64> {
    value.as_f64().with_context(|| format!("{value} is no number"))
}
