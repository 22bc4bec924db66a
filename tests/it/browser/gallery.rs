//! Every state of the page on every screen: it fits, the browser does not complain, and the documents have its picture.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::lab::Site;
use nodeglass_tests::mixed::MixedNode;
use nodeglass_tests::process::Process;
use nodeglass_tests::{TestRelay, relay::Link};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;
use std::time::Duration;

/// The screens of the documents: suffix of the picture, width, height, scheme.
const SCREENS: &[(&str, u32, u32, Scheme)] = &[
    ("dark", 1440, 900, Scheme::Dark),
    ("light", 1440, 900, Scheme::Light),
    ("phone", 390, 844, Scheme::Dark),
];

/// Rows of any table.
const ROWS: &str = "document.querySelectorAll('.grid tbody tr[aria-rowindex]')";

/// Problems that the demo does not show at its start.
const TROUBLES: &str = r#"
cluster = "juniper"
user = "alice"
seed = 7
cycle = "1h"
[[node]]
name = "gpu-h[01-06]"
model = "h100"
gpus = 8
cpus = 112
mem_gib = 2015
driver = "570.133.20"
cuda = "12.8"
[[fault]]
nodes = "gpu-h01"
kind = "unknown_host_key"
at = "0s"
for = "1h"
[[fault]]
nodes = "gpu-h02"
kind = "unreachable"
at = "0s"
for = "1h"
[[fault]]
nodes = "gpu-h03"
kind = "silent"
at = "20s"
for = "1h"
[[fault]]
nodes = "gpu-h04"
kind = "no_driver"
at = "0s"
for = "1h"
[[fault]]
nodes = "gpu-h05"
kind = "lost_gpu"
gpu = 3
at = "0s"
for = "1h"
[[job]]
id = 48213
name = "llama3-8b-pretrain"
account = "nlp-large"
partition = "h100"
submitted = "-9h"
start = "-8h"
limit = "2d"
nodes = "gpu-h[01-05]"
behaviour = "training"
memory_pct = 91
[[job]]
id = 48535
name = "sam2-finetune"
account = "vision"
partition = "h100"
submitted = "-2h"
start = "-50m"
end = "10s"
ends_as = "OUT_OF_MEMORY"
limit = "2h"
nodes = "gpu-h06"
gpus = [6, 7]
behaviour = "input_bound"
memory_pct = 97
"#;

/// Returns whether the pictures are for the documents (`cargo xtask screenshots`).
fn is_for_documents() -> bool {
    std::env::var_os("NODEGLASS_PICTURES").is_some()
}

async fn screen(browser: &Browser, (_, width, height, scheme): &(&str, u32, u32, Scheme)) -> Result<()> {
    let is_phone = *width < 760;
    let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": is_phone });
    browser.devtools("Emulation.setTouchEmulationEnabled", json!({ "enabled": is_phone })).await?;
    browser.devtools("Emulation.setDeviceMetricsOverride", metrics).await?;
    browser.prefer(*scheme).await
}

/// Checks what the browser shows now on each screen, and photographs it.
async fn take(browser: &Browser, name: &str) -> Result<()> {
    for at in SCREENS {
        screen(browser, at).await?;
        // Dialogs lie above the page; tables scroll by themselves.
        let wide = "document.documentElement.scrollWidth > innerWidth";
        browser
            .until("a page that fits", &format!("!({wide})"))
            .await
            .with_context(|| format!("{name}, {}", at.0))?;
        if is_for_documents() {
            // Graphs are painted in the new scheme and size with their next step.
            tokio::time::sleep(Duration::from_millis(1_300)).await;
            browser.photograph_for_documents(&format!("{name}-{}", at.0)).await?;
        }
    }
    screen(browser, &SCREENS[0]).await?;
    let complaints = browser.complaints().await?;
    // A relay that is gone, and a path that leads nowhere.
    let is_expected = |message: &str| message.contains("ERR_") || message.contains("404 (Not Found)");
    let serious: Vec<_> = complaints.iter().filter(|line| !is_expected(&line.message)).collect();
    ensure!(serious.is_empty(), "{name}: the browser complains: {serious:#?}");
    Ok(())
}

/// Checks that what the browser shows now fits a window of 1440 × 900 at a zoom of 200 %.
async fn take_zoomed(browser: &Browser) -> Result<()> {
    let metrics = json!({ "width": 720, "height": 450, "deviceScaleFactor": 2, "mobile": false });
    browser.devtools("Emulation.setDeviceMetricsOverride", metrics).await?;
    browser.until("a page that fits", "document.documentElement.scrollWidth <= innerWidth").await?;
    if is_for_documents() {
        // Graphs are painted for the new size with their next step.
        tokio::time::sleep(Duration::from_millis(1_300)).await;
        browser.photograph_for_documents("zoomed").await?;
    }
    screen(browser, &SCREENS[0]).await
}

/// Opens a path, waits for an expression, and takes it.
async fn take_at(
    browser: &Browser,
    relay: &TestRelay,
    (name, path, ready): (&str, &str, &str),
) -> Result<()> {
    screen(browser, &SCREENS[0]).await?;
    browser.open(&relay.link().path(path)).await?;
    browser.until(name, ready).await?;
    take(browser, name).await
}

/// Opens the owner's link, and waits for the jobs.
async fn open(browser: &Browser, relay: &TestRelay) -> Result<()> {
    screen(browser, &SCREENS[0]).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await
}

#[tokio::test]
async fn every_page_fits_every_screen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open(&browser, &relay).await?;
    let hot = "/too hot/i.test(document.querySelector('.attention')?.innerText)";
    browser.until("the hot GPU", hot).await?;
    take(&browser, "overview").await?;
    take_zoomed(&browser).await?;
    let (rows, text) = (format!("{ROWS}.length > 2"), "(document.querySelector('main')?.innerText ?? '')");
    let list = "document.querySelector('.attention--job') && document.querySelector('.heat-map canvas')";
    let facts = "document.querySelectorAll('.fact').length > 5".to_owned();
    let lines = "document.querySelectorAll('.log').length > 20".to_owned();
    for place in [
        ("job", "/job/48213", list),
        ("node", "/node/gpu-h05", &rows),
        ("mig", "/node/gpu-m01", &rows),
        ("processes", "/job/48213/processes", &rows),
        ("logs", "/job/48213/logs", &lines),
        ("about", "/job/48213/about", &facts),
        ("report", "/job/48213/report", &facts),
        ("compare", "/compare/48213-48377", "document.querySelector('.compare td')"),
        ("waiting", "/job/48490", &format!("/Waiting:/.test({text})")),
        ("not-found", "/no/such/page", &format!("/not found/i.test({text})")),
    ] {
        take_at(&browser, &relay, place).await?;
    }
    take_dialogs(&browser, &relay).await
}

/// The sheets and dialogs of the demo.
async fn take_dialogs(browser: &Browser, relay: &TestRelay) -> Result<()> {
    let dialog = "document.querySelector('dialog[open]')";
    for (name, path, ready) in [
        ("gpu", "/job/48213/node/gpu-h05", "Throttling"),
        ("process", "/job/48213/processes", "Process tree"),
    ] {
        browser.open(&relay.link().path(path)).await?;
        browser.until("rows", &format!("{ROWS}.length > 3")).await?;
        browser.eval(&format!("{ROWS}[3].click()")).await?;
        browser.until(name, &format!("/{ready}/i.test({dialog}?.innerText)")).await?;
        take(browser, name).await?;
    }
    open(browser, relay).await?;
    for (name, key) in [("help", '?'), ("settings", 'S'), ("share", 's')] {
        browser.press(key).await?;
        browser.until(name, dialog).await?;
        take(browser, name).await?;
        browser.press('\u{E00C}').await?;
        browser.until("the page", &format!("!{dialog}")).await?;
    }
    browser.press_with('\u{E009}', 'k').await?;
    browser
        .until("the field", "document.activeElement.matches('.palette input, input[role=combobox]')")
        .await?;
    browser.write("llama dpo").await?;
    take(browser, "find").await
}

#[tokio::test]
async fn every_trouble_fits_every_screen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("troubles.toml");
    std::fs::write(&file, TROUBLES)?;
    let relay = TestRelay::start(&["--scenario", file.to_str().context("a path")?])?;
    open(&browser, &relay).await?;
    let text = "(document.querySelector('main')?.innerText ?? '')";
    let failed = "document.querySelector('.attention__dismiss')";
    // It follows what can still be helped.
    let unfold = "(() => { const more = document.querySelector('.attention__more:not(.attention__restore)'); \
        const is_folded = /more/.test(more?.innerText); if (is_folded) more.click(); return is_folded; })()";
    browser.until("a list that is folded", unfold).await?;
    browser.until("the failed job", failed).await?;
    // Of its five nodes, three do not send samples, one has no driver, and a GPU of the last one is lost.
    let partial = "/^\\* of \\d+ of its 40 GPUs/.test(document.querySelector('tr.is-partial')?.title)";
    browser.until("sums of a part of a job's GPUs", partial).await?;
    take(&browser, "troubles").await?;
    for place in [
        ("ended", "/job/48535", format!("/out of host memory/.test({text})")),
        ("unreachable", "/node/gpu-h02", format!("/reach|connect|down/i.test({text})")),
        ("refused", "/node/gpu-h01", format!("/log in/.test({text})")),
        ("stale", "/node/gpu-h03", format!("/silent|stale|onnecting/.test({text})")),
        ("no-driver", "/node/gpu-h04", format!("/driver/.test({text})")),
        ("lost-gpu", "/node/gpu-h05", format!("{ROWS}.length > 3")),
    ] {
        take_at(&browser, &relay, (place.0, place.1, &place.2)).await?;
    }
    open(&browser, &relay).await?;
    browser.until("a list that is folded", unfold).await?;
    browser.until("the failed job", failed).await?;
    browser.eval(&format!("{failed}.click()")).await?;
    let restore = "document.querySelector('.attention__restore')";
    browser
        .until("the way back", &format!("!{failed} && {restore}?.innerText === 'Show 1 dismissed'"))
        .await?;
    browser.client().refresh().await?;
    browser.until("a list that is folded", unfold).await?;
    browser.until("the dismissal, remembered", &format!("{restore} && !{failed}")).await?;
    browser.eval(&format!("{restore}.click()")).await?;
    browser.until("the failed job again", &format!("{failed} && !{restore}")).await
}

#[tokio::test]
async fn guests_and_lost_connections_fit_every_screen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let output = relay.run(&["share", "create", "--job", "48213"])?;
    let link = output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))?;
    screen(&browser, &SCREENS[0]).await?;
    browser.open(&link.url).await?;
    browser
        .until(
            "the shared job",
            "document.querySelector('.guest') && document.querySelector('.heat-map canvas')",
        )
        .await?;
    take(&browser, "guest").await?;
    let id = link.share.context("a share")?.to_string();
    relay.run(&["share", "revoke", &id])?;
    browser.until("its end", "/revoked/.test(document.querySelector('.gate')?.innerText)").await?;
    take(&browser, "revoked").await?;
    browser.eval("sessionStorage.clear()").await?;
    browser.open(&relay.link().path("/")).await?;
    browser.until("the way in", "/relay link/.test(document.querySelector('.gate')?.innerText)").await?;
    take(&browser, "no-key").await?;
    open(&browser, &relay).await?;
    browser.open(&relay.link().path("/job/48213")).await?;
    browser.until("its graphs", "document.querySelector('.heat-map canvas')").await?;
    let authority = relay.link().authority.clone();
    let pid = i32::try_from(relay.pid()).ok().and_then(Pid::from_raw).context("a pid")?;
    kill_process(pid, Signal::KILL)?;
    browser.until("the banner", "document.querySelector('.notice--link')").await?;
    take(&browser, "link-lost").await?;
    // Another relay of the same user, on the same port.
    let mut command = TestRelay::command(relay.home())?;
    let mut second = Process::start(command.args(["--demo", "--new", "--bind", &authority]))?;
    second.wait_for("a link", Link::find)?;
    browser
        .until("the restart", "/restarted/.test(document.querySelector('.notice--link')?.innerText)")
        .await?;
    take(&browser, "restarted").await
}

#[tokio::test]
async fn accelerators_of_three_vendors_fit_every_screen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let node = MixedNode::new()?;
    let environment = node.environment();
    let environment = environment.iter().map(|(name, value)| (*name, value.as_os_str()));
    let relay = TestRelay::start_in(&["--host", "self"], environment)?;
    screen(&browser, &SCREENS[0]).await?;
    browser.open(&relay.link().url).await?;
    browser.until("the machine", "document.querySelector('.machine')").await?;
    browser.eval("document.querySelector('a.machine, .machine a').click()").await?;
    let models = "document.querySelector('main')?.innerText ?? ''";
    browser.until("its accelerators", &format!("/A40[^]*MI210[^]*TPU v5e/.test({models})")).await?;
    take(&browser, "mixed").await
}

#[tokio::test]
async fn an_admins_cluster_fits_every_screen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(site) = Site::up_or_skip(3)? else { return Ok(()) };
    let jobs = [
        site.train("alice", &["--gres=gpu:1", "-w", "gpu-node-01", "--job-name=sam2-finetune"])?,
        site.train("carol", &["--gres=gpu:2", "-w", "gpu-node-01", "--job-name=rlhf"])?,
        site.train("bob", &["-N2", "--gres=gpu:2", "-w", "gpu-node-[02-03]", "--job-name=llama3-8b"])?,
        // A name that makes scontrol's output ambiguous, and no GPUs per node in squeue's: they are unknown.
        site.train("bob", &["--gpus=1", "-w", "gpu-node-02", "--job-name=sweep\nJobId=999 JobName=x"])?,
    ];
    for job in jobs {
        site.lab.wait_until(job, "RUNNING")?;
    }
    site.train("carol", &["-N2", "--gres=gpu:4", "--exclusive", "--job-name=eval"])?;
    let reason = "reason=Xid 79 on GPU 3\nticket 4711";
    let drain = ["scontrol", "update", "nodename=gpu-node-02", "state=drain", reason];
    site.lab.text("login", "root", &drain)?;
    let relay = site.relay_with("alice", &["--users", "all"])?;
    screen(&browser, &SCREENS[0]).await?;
    browser.open(&relay.link.url).await?;
    let has = |part: &str, pattern: &str| {
        format!("/{pattern}/.test((document.querySelector('{part}')?.innerText ?? '').replace(/\\s+/g, ' '))")
    };
    browser.until("free GPUs", &has(".cluster", "gpu a100 3 of 12 free 2 mixed · 1 drained")).await?;
    browser.click(".cluster__unavailable summary").await?;
    let users = "bob gpu-node-02, gpu-node-03 ≥ 4 GPUs 2 jobs carol gpu-node-01 2 GPUs 1 job 1 waiting \
                 alice gpu-node-01 1 GPU 1 job";
    let drained = "gpu-node-02 mixed.drain · Xid 79 on GPU 3 ticket 4711 · \\d+ s";
    for (part, pattern) in
        [(".users", users), (".cluster__unavailable", drained), (".jobs", "sweep.*GPUs unknown")]
    {
        browser.until(pattern, &has(part, pattern)).await?;
    }
    take(&browser, "cluster").await?;
    let bob = "[...document.querySelectorAll('.user')].find(user => /bob/.test(user.innerText))";
    browser.eval(&format!("{bob}.click()")).await?;
    browser.until("bob's jobs only", &format!("{ROWS}.length === 2")).await
}

#[tokio::test]
async fn a_job_of_512_gpus_fits_every_screen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::start(&["--scenario", "large"])?;
    screen(&browser, &SCREENS[0]).await?;
    browser.open(&relay.link().url).await?;
    browser
        .until("the job", "document.querySelector('.jobs a.job') && document.querySelector('.attention')")
        .await?;
    // Its 64 probes start one after another. Between their last start and the first findings, the list is empty.
    let attention = "document.querySelector('.attention')?.innerText ?? ''";
    browser.until("all nodes", &format!("!/cannot be reached|^$/.test({attention})")).await?;
    take(&browser, "large").await?;
    let ready = "document.querySelector('.heat-map canvas') && document.querySelector('.attention--job')";
    take_at(&browser, &relay, ("large-job", "/job/90210", ready)).await
}

#[tokio::test]
async fn states_keep_their_shapes_in_forced_colours() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open(&browser, &relay).await?;
    browser.until("a warning", "document.querySelector('.attention .dot--attention')").await?;
    let features = json!({ "features": [{ "name": "forced-colors", "value": "active" }, { "name": "prefers-color-scheme", "value": "dark" }] });
    browser.devtools("Emulation.setEmulatedMedia", features).await?;
    for shape in [".dot--well", ".attention .dot--attention", ".cells i", ".table .meter i"] {
        let style = format!("getComputedStyle(document.querySelector({shape:?}))");
        browser.until(shape, &format!("{style}.forcedColorAdjust === 'none'")).await?;
    }
    if is_for_documents() {
        browser.photograph_for_documents("forced-colours").await?;
    }
    Ok(())
}
