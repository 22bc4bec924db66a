//! The tab's title and icon, wall mode, read-only mode, and copying and exporting what is shown.

use anyhow::{Context as _, Result, ensure};
use nodeglass_tests::{Browser, Machine, TIMEOUT, TestRelay};
use serde_json::json;

/// The URL of the tab's icon.
const ICON: &str = "document.querySelector('link[rel~=icon]').getAttribute('href')";
/// The rows of every table.
const ROWS: &str = "document.querySelectorAll('.grid tbody tr[aria-rowindex]')";

/// Whether an element exists and has a size.
fn is_seen(css: &str) -> String {
    format!("!!document.querySelector({css:?})?.getClientRects().length")
}

/// Records what the page copies and saves: headless browsers have no clipboard and no download dialog.
const NOTE_WHAT_IS_TAKEN: &str = "window.taken = []; \
    Object.defineProperty(navigator, 'clipboard', { value: { writeText: text => { taken.push(['copy', text]); return Promise.resolve(); } }, configurable: true }); \
    const make = URL.createObjectURL; \
    URL.createObjectURL = blob => { blob.text().then(text => taken.push([blob.type, text])); return make(blob); }; \
    HTMLAnchorElement.prototype.click = function () { taken.push(['name', this.download], ['address', this.href]); };";

#[tokio::test]
async fn the_tab_title_shows_utilisation_and_warns_of_throttling() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    // The page stores the key of its link once it is connected.
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    // A GPU of this job is too hot from the start of the demo.
    browser.open(&relay.link().path("/job/48213")).await?;
    browser.until("the warning", "/^⚠ \\d+ % llama3-8b-pretrain · nodeglass$/.test(document.title)").await?;
    let warns = browser.eval(ICON).await?;
    // Its rank is named with any metric; a click shows the metric in which it deviates.
    let outlier = "document.querySelector('.outlier')";
    let sentence = "Rank 35 \\(gpu-h05 GPU 3\\) runs \\d+ % slower than its peers";
    browser.until("the slow rank", &format!("/{sentence}/.test({outlier}?.textContent)")).await?;
    browser.eval(&format!("{outlier}.click()")).await?;
    browser.until("its cause", "location.search.includes('m=sm_clock_mhz')").await?;
    browser.open(&relay.link().path("/job/48310")).await?;
    browser.until("a healthy job", "/^\\d+ % vllm serve.* · nodeglass$/.test(document.title)").await?;
    browser.until("another icon", &format!("{ICON}.startsWith('data:image/svg') && {ICON} !== {warns}")).await
}

/// Sends pointer events to the comparison of a job's GPUs: each a type and a share of its width.
fn point(events: &str) -> String {
    format!(
        "(() => {{ const stage = document.querySelector('.overlay .stage'); \
            stage.scrollIntoView({{ block: 'center' }}); \
            const area = stage.getBoundingClientRect(); \
            for (const [type, share] of {events}) stage.dispatchEvent(new PointerEvent(type, {{ bubbles: true, \
                pointerId: 1, pointerType: 'mouse', clientX: area.left + area.width * share, clientY: area.top + 20 }})); }})()"
    )
}

#[tokio::test]
async fn pointing_at_a_graph_shows_a_tooltip_and_dragging_zooms() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    // The page stores the key of its link once it is connected, not when it has loaded.
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48213")).await?;
    let bar = |text: &str| format!("/{text}/.test(document.querySelector('.time-bar')?.innerText)");
    browser.until("a live graph", &format!("{} && {}", bar("^Live"), is_seen(".overlay canvas"))).await?;
    let tip = "document.querySelector('.overlay .tip')";
    // Repeated, because ranks are known later than the first values.
    let pointed =
        format!("({}, /GPU \\d, rank \\d/.test({tip}?.innerText))", point("[['pointermove', 0.9]]"));
    browser.until("the GPU and its rank", &pointed).await?;
    let inside = format!(
        "(area => area.left >= 0 && area.top >= 0 && area.right <= innerWidth && area.bottom <= innerHeight)\
         ({tip}.getBoundingClientRect())"
    );
    browser.until("a tooltip within the window", &inside).await?;
    let drag = "[['pointerdown', 0.5], ['pointermove', 0.6], ['pointermove', 0.75], ['pointerup', 0.75]]";
    browser.eval(&point(drag)).await?;
    browser.until("the selected time", &bar("^Paused")).await?;
    browser
        .eval("document.querySelector('.overlay .stage').dispatchEvent(new MouseEvent('dblclick'))")
        .await?;
    browser.until("the last ten minutes", &bar("^Live . last 10 min")).await?;
    // An hour is loaded from the long-term history: the probes had kept ten minutes of it.
    let press = |label: &str| {
        format!(
            "[...document.querySelectorAll('.time-bar button')].find(it => it.innerText === '{label}').click()"
        )
    };
    browser.eval(&press("1 h")).await?;
    let title = "document.querySelector('.overlay .graph__title').innerText";
    let values = format!(r"/median \d+ %, \d+ % to \d+ %/.test({title})");
    browser.until("values of an hour", &format!("{} && {values}", bar("^Live . last 1 h"))).await?;
    browser.photograph("an-hour").await?;
    browser.eval(&press("10 min")).await?;
    browser.until("ten minutes again", &format!("{} && {values}", bar("^Live . last 10 min"))).await
}

#[tokio::test]
async fn the_tab_icon_of_a_node_follows_its_gpus() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let state = |throttle: u32| json!({ "gpus": [{ "card": "h100", "uuid": "GPU-a", "util": 90, "throttle": throttle }] });
    let machine = Machine::start(&state(4))?;
    super::readings::open_node(&browser, &machine).await?;
    // Rows appear with the first inventory; a tab without samples has a different icon.
    let is_healthy = format!("{ICON}.startsWith('data:') && !/^[⚠○]/.test(document.title)");
    browser.until("a healthy tab", &format!("{is_healthy} && {ROWS}.length > 0")).await?;
    let well = browser.eval(ICON).await?;
    machine.set(&state(0x40))?;
    browser.until("the warning", &format!("document.title.startsWith('⚠') && {ICON} !== {well}")).await?;
    machine.set(&state(4))?;
    browser.until("the end of it", &format!("{is_healthy} && {ICON} === {well}")).await
}

#[tokio::test]
async fn wall_mode_hides_bars_and_rotates_by_itself() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.resize(1920, 1080).await?;
    browser.open(&relay.link().url).await?;
    browser.until("the bars", &format!("{} && {}", is_seen(".top"), is_seen(".jobs"))).await?;
    browser.open(&relay.link().path("/?kiosk=2")).await?;
    let bare = format!("!{} && !{} && {}", is_seen(".top"), is_seen(".jobs"), is_seen(".main"));
    browser.until("no bars", &bare).await?;
    browser.until("a job by itself", &format!("location.pathname.startsWith('/job/') && {bare}")).await?;
    browser.until("its number", "/\\d\\s?%/.test(document.querySelector('.main').innerText)").await?;
    browser.until("the mode stays", "location.search.includes('kiosk=2')").await
}

#[tokio::test]
async fn a_read_only_relay_offers_no_action() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    for (args, offers) in [(&["--demo"][..], true), (&["--demo", "--read-only"][..], false)] {
        let relay = TestRelay::start(args)?;
        browser.open(&relay.link().url).await?;
        browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
        browser.open(&relay.link().path("/job/48213/about")).await?;
        browser
            .until(
                "its facts and commands",
                "document.querySelectorAll('.fact').length > 5 && document.querySelector('.cmdline')",
            )
            .await?;
        are_offered(&browser, ".offers button", offers).await.with_context(|| format!("{args:?}"))?;
        browser.open(&relay.link().path("/job/48213/processes")).await?;
        browser.until("its processes", &format!("{ROWS}.length > 4")).await?;
        // A row may be replaced before its click arrives.
        let opened = format!(
            "document.querySelector('dialog[open]') ? /Show environment/.test(document.querySelector('dialog[open]').innerText) \
                : ({ROWS}[0]?.click(), false)"
        );
        browser.until("the process's sheet", &opened).await?;
        are_offered(&browser, "dialog .offers button", offers).await.with_context(|| format!("{args:?}"))?;
    }
    Ok(())
}

/// Waits for buttons if there shall be some, which come later than what they are about; else they must be missing.
async fn are_offered(browser: &Browser, css: &str, offers: bool) -> Result<()> {
    if offers {
        return browser.until(css, &is_seen(css)).await;
    }
    ensure!(browser.eval(&is_seen(css)).await? == false, "{css} are offered");
    Ok(())
}

#[tokio::test]
async fn copying_commands_and_tables_is_acknowledged() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48213/about")).await?;
    browser.until("its commands", "document.querySelector('.cmdline button')").await?;
    browser.client().execute(NOTE_WHAT_IS_TAKEN, Vec::new()).await?;
    browser.client().execute("document.querySelector('.cmdline button').click()", Vec::new()).await?;
    browser
        .until("the word", "document.querySelector('.cmdline button').innerText.includes('Copied')")
        .await?;
    browser.until("the command", "taken.some(([how, text]) => how === 'copy' && text === document.querySelector('.cmdline code').textContent)").await?;
    browser
        .until(
            "the button as before",
            "document.querySelector('.cmdline button').innerText.trim() === 'Copy'",
        )
        .await?;
    // Without permission, as in a frame, and on a page that is not secure.
    let refusals = ["{ writeText: () => Promise.reject(new Error('NotAllowedError')) }", "undefined"];
    for (number, refusal) in refusals.iter().enumerate() {
        let refuse = format!(
            "Object.defineProperty(navigator, 'clipboard', {{ value: {refusal}, configurable: true }}); \
             document.querySelector('.cmdline button').click()"
        );
        browser.client().execute(&refuse, Vec::new()).await?;
        let toasts = "[...document.querySelectorAll('.toast')].filter(toast => /Nothing was copied/.test(toast.innerText))";
        browser.until("a toast", &format!("{toasts}.length === {}", number + 1)).await?;
    }
    let label = browser.eval("document.querySelector('.cmdline button').innerText.trim()").await?;
    ensure!(label == "Copy", "{label}");
    browser.client().execute(NOTE_WHAT_IS_TAKEN, Vec::new()).await?;

    browser.press('p').await?;
    let all = format!("{ROWS}.length > 10 && [...{ROWS}].some(row => row.innerText.includes('gpu-h01'))");
    browser.until("its processes", &all).await?;
    for (item, how, start) in [
        ("Copy as Markdown", "copy", "| Node"),
        ("Download CSV", "text/csv", "node,"),
        ("Download JSON", "application/json", "["),
    ] {
        browser.client().execute("taken.length = 0; [...document.querySelectorAll('.grid .menu > button')].find(b => b.textContent === 'Copy').click()", Vec::new()).await?;
        let found = format!(
            "[...document.querySelectorAll('.menu__item')].find(item => item.textContent === {item:?})"
        );
        browser.until(item, &found).await?;
        browser.client().execute(&format!("{found}.click()"), Vec::new()).await?;
        let got = format!("taken.find(([kind]) => kind === {how:?})");
        browser.until("what was taken", &got).await?;
        let text = browser.eval(&format!("{got}[1]")).await?;
        let text = text.as_str().unwrap_or_default();
        ensure!(
            text.trim_start().starts_with(start),
            "{item}: {}",
            text.chars().take(300).collect::<String>()
        );
        let has_rows = text.contains("gpu-h01") && text.lines().count() > 10;
        ensure!(has_rows, "{item}: {}", text.chars().take(900).collect::<String>());
        let named = browser.eval("taken.find(([kind]) => kind === 'name')?.[1]").await?;
        ensure!(
            how == "copy" || named.as_str().is_some_and(|name| name.starts_with("nodeglass-")),
            "{item}: {named}"
        );
    }

    graphs_are_saved_and_copied(&browser, &relay).await
}

/// Clicks each item of a time line's menu.
async fn graphs_are_saved_and_copied(browser: &Browser, relay: &TestRelay) -> Result<()> {
    browser.open(&relay.link().path("/job/48213/node/gpu-h05")).await?;
    let menu = "document.querySelector('.time-line button[title=\"Save or copy these graphs\"]')";
    browser
        .until("a graph", &format!("{menu} && document.querySelector('.time-line .lane--attention path')"))
        .await?;
    browser.client().execute(NOTE_WHAT_IS_TAKEN, Vec::new()).await?;
    let got = |kind: &str| format!("taken.find(([kind]) => kind === '{kind}')?.[1]");
    let choose = async |label: &str, kind: &str| {
        browser.client().execute(&format!("taken.length = 0; {menu}.click()"), Vec::new()).await?;
        let item = format!(
            "[...document.querySelectorAll('.menu__item')].find(item => item.textContent === '{label}')"
        );
        browser.until("its menu", &item).await?;
        browser.client().execute(&format!("{item}.click()"), Vec::new()).await?;
        browser.until(label, &got(kind)).await?;
        let taken = browser.eval(&format!("decodeURIComponent({})", got(kind))).await?;
        anyhow::Ok((taken.as_str().unwrap_or_default().to_owned(), browser.eval(&got("name")).await?))
    };
    let (picture, name) = choose("Save as PNG", "address").await?;
    ensure!(name == "nodeglass-48213-time-line.png", "{name}");
    ensure!(
        picture.starts_with("data:image/png;base64,") && picture.len() > 10_000,
        "{} bytes",
        picture.len()
    );
    let (saved, name) = choose("Save numbers as CSV", "address").await?;
    ensure!(name == "nodeglass-48213-time-line.csv", "{name}");
    let (copied, _) = choose("Copy numbers as CSV", "copy").await?;
    for numbers in [saved.strip_prefix("data:text/csv;charset=utf-8,").context("a CSV")?, &copied] {
        let columns = numbers.lines().next().unwrap_or_default();
        // Every graph that is shown, of every GPU.
        for metric in ["util_pct", "memory_gib", "power_w", "temp_c", "sm_clock_mhz", "sm_active_pct"] {
            ensure!(columns.matches(&format!(" {metric}")).count() == 8, "{metric}: {columns}");
        }
        let watts = columns.split(',').position(|column| column == "gpu-h05 GPU 0 rank 32 power_w");
        let watts = watts.context("its power")?;
        let count = columns.split(',').count();
        ensure!(numbers.lines().count() > 60 && numbers.lines().all(|line| line.split(',').count() == count));
        // Watts, in the newest lines.
        let is_known = |line: &str| {
            line.split(',').nth(watts).is_some_and(|watts| watts.parse().is_ok_and(|watts: f64| watts > 50.0))
        };
        ensure!(numbers.lines().rev().take(10).any(is_known), "{numbers}");
    }
    Ok(())
}

#[tokio::test]
async fn a_recording_is_paused_and_searched_as_in_a_player() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let path = folder.path().join("demo.rec");
    let file = path.to_str().unwrap_or_default();
    let recording = TestRelay::start(&["--demo", "--record", file])?;
    browser.open(&recording.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    // The recording must be long enough to be searched.
    tokio::time::sleep(std::time::Duration::from_secs(12)).await;
    // A page that stays open complains about each attempt to reach the relay that ends here.
    browser.open("about:blank").await?;
    recording.terminate()?;
    let relay = TestRelay::start(&["--replay", file])?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48213")).await?;
    let state = |word: &str| format!("document.querySelector('.foot__link')?.textContent.includes({word:?})");
    browser.until("the recording", &state("recording")).await?;
    browser
        .until("its nodes", "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length > 5")
        .await?;
    browser.click(".transport__play").await?;
    browser.until("a pause", &state("paused")).await?;
    let position = "document.querySelector('.transport .num-prose').textContent";
    let seek = |share: f64| {
        format!(
            "(() => {{ const slider = document.querySelector('.transport__slider'); \
                slider.value = Number(slider.min) + (slider.max - slider.min) * {share}; \
                for (const type of ['input', 'change']) slider.dispatchEvent(new Event(type, {{ bubbles: true }})); }})()"
        )
    };
    browser.eval(&seek(0.75)).await?;
    browser.until("a later time", &format!("/ 0:(0[89]|1\\d) of /.test({position})")).await?;
    // The position is shown at once, the picture follows.
    let fresh = "/\\b(1\\d|2\\d) of 21 nodes up to date/.test(document.querySelector('.foot').innerText)";
    browser.until("fresh nodes", fresh).await?;
    browser.photograph("recording-paused").await?;
    let later = browser.eval(position).await?;
    browser.eval(&seek(0.4)).await?;
    browser.until("an earlier time", &format!("{position} !== {later}")).await?;
    // The picture follows the position, which takes a while on a busy machine. Then the page's clock stands still, so that
    // nothing becomes stale.
    browser.until("fresh nodes of the earlier time", fresh).await?;
    let nodes = "document.querySelector('.foot').innerText.match(/\\d+ of 21 nodes up to date.*/)?.[0]";
    let (started, mut before) = (std::time::Instant::now(), browser.eval(nodes).await?);
    loop {
        tokio::time::sleep(std::time::Duration::from_secs(4)).await;
        let after = browser.eval(nodes).await?;
        if after == before {
            break;
        }
        ensure!(started.elapsed() < TIMEOUT, "{before} became {after} while it is paused");
        before = after;
    }
    browser.click(".transport__play").await?;
    browser.until("playing", &format!("!({})", state("paused"))).await?;
    browser.until("the end", &state("end of recording")).await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}
