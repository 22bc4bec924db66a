//! The whole page by keyboard: from the link to a job, a node, a process and a GPU, and back again.

use anyhow::{Result, bail, ensure};
use nodeglass_tests::{Browser, Forward, TestRelay};

const ENTER: char = '\u{E007}';
const TAB: char = '\u{E004}';
const ESCAPE: char = '\u{E00C}';
const CONTROL: char = '\u{E009}';
const LEFT: char = '\u{E012}';
const RIGHT: char = '\u{E014}';
const DOWN: char = '\u{E015}';

/// Rows of the first process table.
const ROWS: &str = "document.querySelectorAll('.grid tbody tr[aria-rowindex]')";

/// Whether no sheet or dialog is open.
const BARE: &str = "!document.querySelector('dialog[open]')";

/// Whether the path equals this.
fn at(path: &str) -> String {
    format!("location.pathname === {path:?}")
}

/// Whether the topmost sheet or dialog has this title.
fn on_top(label: &str) -> String {
    format!(
        "[...document.querySelectorAll('dialog[open]')].pop()?.getAttribute('aria-label').startsWith({label:?})"
    )
}

/// Opens the link, and navigates to the job from which the tests start.
async fn walk_to_job(browser: &Browser, relay: &TestRelay) -> Result<()> {
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelectorAll('.jobs a.job').length > 3").await?;
    // Jobs that need attention come first, and which of them is worst depends on the moment.
    for _ in 0..12 {
        let before = browser.eval("location.pathname").await?;
        browser.press('j').await?;
        browser.until("the next job", &format!("location.pathname !== {before}")).await?;
        if browser.eval(&at("/job/48213")).await? == true {
            return Ok(());
        }
    }
    bail!("j does not lead to a job with a hot GPU")
}

/// Presses Tab until the focused element's text matches.
async fn tab_to(browser: &Browser, pattern: &str) -> Result<()> {
    for _ in 0..60 {
        browser.press(TAB).await?;
        let here = browser.eval(&format!("/{pattern}/.test(document.activeElement.textContent)")).await?;
        if here == true {
            return Ok(());
        }
    }
    bail!("Tab does not lead to {pattern:?}")
}

#[tokio::test]
async fn keyboard_navigation_reaches_a_sorted_and_filtered_table_that_a_reload_restores() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    walk_to_job(&browser, &relay).await?;
    browser.press(RIGHT).await?;
    browser.until("its first node", &at("/job/48213/node/gpu-h01")).await?;
    browser.press('l').await?;
    browser.until("its second node", &at("/job/48213/node/gpu-h02")).await?;
    browser.press(LEFT).await?;
    browser.until("the first again", &at("/job/48213/node/gpu-h01")).await?;
    browser.press('o').await?;
    browser.until("all nodes", &at("/job/48213")).await?;
    browser.press('p').await?;
    // Not the rows of the page before.
    let processes =
        format!("{} && document.querySelector('.grid--processes-of-job')", at("/job/48213/processes"));
    browser.until("its processes", &format!("{processes} && {ROWS}.length > 10")).await?;

    browser.press('>').await?;
    browser.press('>').await?;
    browser.until("a sorted column", "document.querySelector('th[aria-sort=ascending]')").await?;
    browser.press('r').await?;
    browser.until("the other order", "document.querySelector('th[aria-sort=descending]')").await?;
    browser.press('/').await?;
    browser.until("the cursor in the filter", "document.activeElement.matches('.grid__filter')").await?;
    browser.write("node:gpu-h03 gpu:2").await?;
    // Where filtering is slow, what was typed is applied after a pause.
    browser
        .until(
            "the filter in the address",
            "/[?&]f=node:gpu-h03\\+gpu:2(&|$)/.test(decodeURIComponent(location.search))",
        )
        .await?;
    let narrow = format!("{ROWS}.length > 0 && [...{ROWS}].every(row => /gpu-h03/.test(row.innerText))");
    browser.until("only what passes", &narrow).await?;
    let place = browser.eval("location.href").await?;
    browser.client().refresh().await?;
    browser.until("the same rows after a reload", &narrow).await?;
    browser.until("the same order", "document.querySelector('th[aria-sort=descending]')").await?;
    browser
        .until("the same filter", "document.querySelector('.grid__filter').value === 'node:gpu-h03 gpu:2'")
        .await?;
    browser.until("the same address", &format!("location.href === {place}")).await?;

    browser.press('/').await?;
    browser.until("the cursor in the filter", "document.activeElement.matches('.grid__filter')").await?;
    browser.press(ESCAPE).await?;
    browser.until("all rows", &format!("{ROWS}.length > 10 && !location.search.includes('h03')")).await
}

#[tokio::test]
async fn keyboard_navigation_opens_a_process_and_confirms_a_signal() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    walk_to_job(&browser, &relay).await?;
    browser.press('p').await?;
    browser.until("its processes", &format!("{ROWS}.length > 10")).await?;
    browser.press('/').await?;
    browser.until("the cursor in the filter", "document.activeElement.matches('.grid__filter')").await?;
    browser.write("gpu:3 user:alice").await?;
    browser
        .until("the filter in the address", "decodeURIComponent(location.search).includes('user:alice')")
        .await?;
    browser.press(ENTER).await?;
    browser
        .until(
            "the focus on the rows",
            "document.activeElement.matches('table') && document.querySelector('tr[aria-selected=true]')",
        )
        .await?;
    let first = browser
        .eval("document.querySelector('tr[aria-selected=true]').getAttribute('aria-rowindex')")
        .await?;
    browser.press(DOWN).await?;
    let moved =
        format!("document.querySelector('tr[aria-selected=true]').getAttribute('aria-rowindex') !== {first}");
    browser.until("the next row", &moved).await?;
    browser.press(ENTER).await?;
    browser
        .until(
            "its sheet",
            &format!("{} && /[?&]pid=gpu-h0\\d\\/\\d+\\/\\d+/.test(location.search)", on_top("Process ")),
        )
        .await?;
    browser
        .until("its details", "/Show environment/.test(document.querySelector('dialog').innerText)")
        .await?;
    browser
        .until("its live graphs", "document.querySelectorAll('dialog .mini .mini__plot svg').length >= 3")
        .await?;
    tab_to(&browser, "^Show environment").await?;
    browser.press(ENTER).await?;
    browser.until("its environment", "[...document.querySelectorAll('.env li')].some(line => /CUDA_VISIBLE_DEVICES=3/.test(line.innerText))").await?;

    for (key, question) in [('I', "Interrupt "), ('T', "Terminate "), ('K', "Kill ")] {
        browser.press(key).await?;
        browser.until(question, &on_top(question)).await?;
        browser.until("the way back first", "document.activeElement.textContent === 'Go back'").await?;
        browser.press(ESCAPE).await?;
        browser.until("the sheet again", &on_top("Process ")).await?;
    }
    browser.press(ESCAPE).await?;
    browser
        .until(
            "the table again",
            &format!("{BARE} && !location.search.includes('pid=') && location.search.includes('gpu:3')"),
        )
        .await?;
    browser.until("the focus on the rows", "document.activeElement.matches('table')").await?;
    let deeds =
        browser.eval("/SIGINT|SIGTERM|SIGKILL/.test(document.querySelector('.toasts').innerText)").await?;
    ensure!(deeds == false, "nothing was said yes to, and something was done");
    Ok(())
}

#[tokio::test]
async fn keyboard_navigation_opens_a_gpu_another_job_settings_and_help_and_returns() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    walk_to_job(&browser, &relay).await?;
    browser.press(RIGHT).await?;
    browser
        .until(
            "its first node",
            // The GPUs of the node, not the nodes of the page before or the processes below.
            &format!("{} && /H100/.test({ROWS}[0]?.innerText)", at("/job/48213/node/gpu-h01")),
        )
        .await?;
    browser.press('/').await?;
    browser.until("the cursor in the filter", "document.activeElement.matches('.grid__filter')").await?;
    browser.press(ENTER).await?;
    browser
        .until(
            "the first row",
            "document.activeElement.matches('table') && document.querySelector('tr[aria-selected=true]')",
        )
        .await?;
    browser.press(ENTER).await?;
    browser
        .until("the card's sheet", &format!("{} && location.search.includes('gpu=GPU-')", on_top("GPU")))
        .await?;
    browser.until("its readings", "/SM active/.test(document.querySelector('dialog').innerText)").await?;
    browser.press(ESCAPE).await?;
    browser.until("the node again", &format!("{BARE} && !location.search.includes('gpu=')")).await?;

    browser.press_with(CONTROL, 'k').await?;
    browser
        .until(
            "the palette",
            &format!("{} && document.activeElement.matches('[role=combobox]')", on_top("Find")),
        )
        .await?;
    browser.write("dpo").await?;
    browser
        .until(
            "what is found",
            "/dpo-llama3/.test(document.querySelector('#palette-list [aria-selected=true]')?.innerText)",
        )
        .await?;
    browser.press(ENTER).await?;
    browser
        .until(
            "another job",
            &format!(
                "{} && {BARE} && /dpo-llama3/.test(document.querySelector('h1').innerText)",
                at("/job/48402")
            ),
        )
        .await?;

    browser.press('S').await?;
    browser.until("the settings", &on_top("Settings")).await?;
    for _ in 0..5 {
        if browser.eval("document.activeElement.matches('input[name=theme]')").await? == true {
            break;
        }
        browser.press(TAB).await?;
    }
    browser.press(DOWN).await?;
    browser.until("the dark theme", "document.documentElement.getAttribute('data-theme') === 'dark'").await?;
    browser.press(DOWN).await?;
    browser
        .until("the light theme", "document.documentElement.getAttribute('data-theme') === 'light'")
        .await?;
    browser.press(ESCAPE).await?;
    browser.until("no settings", BARE).await?;
    browser.press('?').await?;
    browser.until("the help", &on_top("Help")).await?;
    browser.press(ESCAPE).await?;
    browser.until("no help", BARE).await?;
    browser.client().back().await?;
    browser.until("the node again", &at("/job/48213/node/gpu-h01")).await?;
    browser.press('a').await?;
    browser.until("all jobs", &at("/")).await?;
    browser.until("the theme still", "document.documentElement.getAttribute('data-theme') === 'light'").await
}

/// The page's notice about its connection.
const NOTICE: &str = "document.querySelector('.notice--link')?.innerText";
/// The line of the first total, without its fill.
const LINE: &str = "(document.querySelector('.area__line')?.getAttribute('d') ?? '')";
/// States that need attention in the list of jobs.
const ATTENTION: &str = "document.querySelectorAll('.jobs .dot--attention').length";

#[tokio::test]
async fn f15_a_cut_tunnel_keeps_the_last_values_and_a_mended_one_leaves_no_gap() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let mut tunnel = Forward::open(&relay.link().authority).await?;
    let link = relay.link().at(&tunnel.authority());
    browser.open(&link.url).await?;
    let rows = "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length > 0";
    browser.until("a table of jobs", rows).await?;
    browser.open(&link.path("/job/48213")).await?;
    // A part of the line for each run of samples: `M` begins one.
    let has_no_gap = format!("{LINE}.split('M').length === 2 && {LINE}.split('L').length > 2");
    browser.until("a line", &has_no_gap).await?;

    tunnel.cut().await;
    browser.until("the lost connection", &format!("/lost – retrying/.test({NOTICE})")).await?;
    let (line, attention) = (browser.eval(LINE).await?, browser.eval(ATTENTION).await?);
    // Longer than two steps of the line, and than it takes a node to be late.
    browser.until("old data", &format!("/Data is ([89]|\\d\\d) s old/.test({NOTICE})")).await?;
    ensure!(browser.eval(LINE).await? == line, "the graph moves on without data");
    ensure!(browser.eval(ATTENTION).await? == attention, "jobs need attention because the link is lost");
    let tile = browser.eval("document.querySelector('.tile__value').innerText").await?;
    ensure!(!tile.to_string().contains('–'), "the last values are gone: {tile}");
    let live = browser.eval("/live|fresh/i.test(document.querySelector('.foot').innerText)").await?;
    ensure!(live == false, "the status bar claims to be current");

    tunnel.mend().await?;
    browser.until("no notice", &format!("!{NOTICE}")).await?;
    // The line reaches the right edge, 300 wide, again.
    let ends_now = format!("+{LINE}.match(/([\\d.]+) [\\d.]+$/)[1] > 292");
    browser
        .until(
            "the time of the cut in the graph",
            &format!("{LINE} !== {line} && {ends_now} && {has_no_gap}"),
        )
        .await
}

#[tokio::test]
async fn sheets_open_without_a_connection() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    let rows = "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length > 0";
    browser.until("a table of jobs", rows).await?;
    relay.terminate()?;
    let stopped = "document.querySelector('.notice--link')?.innerText.includes('The relay was stopped.')";
    browser.until("the relay's farewell", stopped).await?;
    // Longer than the first retries take, which fail and do not replace it.
    browser.until("old data", &format!("/Data is [3-9] s old/.test({NOTICE})")).await?;
    ensure!(browser.eval(stopped).await? == true, "a failed retry replaced the relay's farewell");
    browser.press('?').await?;
    browser.until("the help", "document.querySelector('dialog[open]')?.ariaLabel === 'Help'").await?;
    Ok(())
}
