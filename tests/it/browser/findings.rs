//! Findings in the graphs: marked where they hold, named at the cursor, and linked from the list of what needs attention.

use anyhow::{Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::relay::TestRelay;

const ENTER: char = '\u{e007}';
const END: char = '\u{e010}';
/// The link to the GPU of the demo that is too hot, and therefore slower than its peers.
const LINK: &str = "document.querySelector('.attention a[href*=\"pin=gpu-h05/\"]')";
/// The text of the tooltip.
const TIP: &str = "(document.querySelector('.tip')?.innerText ?? '')";

/// The row of a finding whose job has others.
const ROW: &str = "document.querySelector('.attention li:has(a[href*=\"pin=gpu-h05/\"])')";

/// Whether the graphs below an element have a mark of a warning, as an expression for [`Browser::until`].
fn is_marked(css: &str) -> String {
    format!("document.querySelector('{css} .stage__finding:not([hidden]) .dot--attention')")
}

#[tokio::test]
async fn a_finding_is_marked_in_the_graphs_and_its_link_shows_its_gpu() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.resize(1440, 1000).await?;
    browser.prefer(Scheme::Dark).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48213")).await?;
    browser.until("its link", LINK).await?;
    for panel in [".heat-map", ".overlay"] {
        browser.until(&format!("a mark in {panel}"), &is_marked(panel)).await?;
    }
    let above = "(() => { const box = css => document.querySelector(`.overlay ${css}`).getBoundingClientRect(); \
                 return box('.stage__findings').bottom <= box('canvas').top + 0.5 })()";
    ensure!(browser.eval(above).await? == true, "a mark covers data");

    // By keyboard, as with the pointer.
    browser.eval(&format!("({LINK}.focus(), true)")).await?;
    browser.press(ENTER).await?;
    let there = "location.pathname === '/job/48213/node/gpu-h05'";
    browser.until("the graphs of its node", there).await?;
    let pinned = "document.querySelector('.time-line .chip[aria-pressed=true]')?.innerText === 'GPU 3'";
    browser.until("its GPU", pinned).await?;
    let is_in_view = "(top => top >= 0 && top < innerHeight / 2)(document.querySelector('.time-line').getBoundingClientRect().top)";
    browser.until("its graphs in view", is_in_view).await?;
    browser.until("its mark", &is_marked(".time-line")).await?;
    browser.eval("(document.querySelector('.time-line .stage').focus(), true)").await?;
    browser.press(END).await?;
    let name = "◆ (gpu-h05 GPU 3 too hot|rank 35 slower than its peers), since \\d\\d:\\d\\d or earlier";
    browser.until("its name", &format!("/{name}/.test({TIP})")).await?;
    browser.photograph("finding-in-graph").await?;

    browser.eval("(history.back(), true)").await?;
    browser.until("the job again", "location.pathname === '/job/48213' && !location.search").await?;

    // A finding about one node is on its tab, also where no reading of it is conspicuous.
    browser.open(&relay.link().path("/job/48402")).await?;
    let dot = ".tabs a[href$=\"/node/gpu-h10\"] :is(.dot--attention, .dot--bad)";
    let is_named = format!("/Xid|hung/.test(document.querySelector('{dot}')?.title)");
    browser.until("a finding on the tab of its node", &is_named).await?;
    // Both nodes of a job that hangs are shown alike everywhere.
    for part in [".tabs--nodes", ".heat-map__names", ".grid--nodes"] {
        let both = format!("document.querySelectorAll('{part} .dot--bad').length === 2");
        browser.until(&format!("both nodes in {part}"), &both).await?;
    }

    // The page of a node lists what affects it, with any jobs, and nothing else.
    browser.open(&relay.link().path("/node/gpu-h05")).await?;
    let list = "(document.querySelector('.attention')?.innerText ?? '')";
    let own = format!("/gpu-h05 GPU 3/.test({list}) && !/gpu-h(?!05)/.test({list})");
    browser.until("its own findings", &own).await?;
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    Ok(())
}

#[tokio::test]
async fn a_finding_is_silenced_on_one_page_and_shown_again_on_another() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let Some(other) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    for page in [&browser, &other] {
        page.resize(1440, 1000).await?;
        page.open(&relay.link().url).await?;
        page.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
        page.open(&relay.link().path("/job/48213")).await?;
        page.until("its row", ROW).await?;
    }
    // By keyboard: the button, and the first time, which has the focus. The row stays while the focus is in the list.
    let top = format!("{ROW}.getBoundingClientRect().top");
    let before = browser.eval(&top).await?;
    browser.eval(&format!("({ROW}.querySelector('.silence__open').focus(), true)")).await?;
    browser.press(ENTER).await?;
    browser.until("the times", "document.activeElement?.innerText === '1 h'").await?;
    browser.photograph("silence-finding").await?;
    ensure!(browser.eval(&top).await? == before, "the list moved");
    browser.press(ENTER).await?;
    browser
        .until("the outcome", "/silenced for 1 h/.test(document.querySelector('.toasts').innerText)")
        .await?;
    let again = format!("{ROW}?.querySelector('.silence__again')");
    browser.until("the way back", &again).await?;
    browser.photograph("silenced-finding").await?;

    // The other page lists it apart, and until when.
    other
        .until(
            "one that is silenced",
            "/1 silenced/.test(document.querySelector('.attention__silenced')?.innerText)",
        )
        .await?;
    other.until("no row of it", &format!("!{ROW}")).await?;
    other.eval("(document.querySelector('.attention__silenced').click(), true)").await?;
    other.until("its end", &format!("/until .*\\d\\d:\\d\\d/.test({ROW}?.innerText)")).await?;
    other.eval(&format!("({again}.click(), true)")).await?;
    let is_listed =
        format!("!document.querySelector('.attention__silenced') && {ROW}?.querySelector('.silence__open')");
    other.until("it listed again", &is_listed).await?;
    browser.until("it listed on the first page, too", &is_listed).await?;
    for page in [&browser, &other] {
        let complaints = page.complaints().await?;
        ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    }
    Ok(())
}
