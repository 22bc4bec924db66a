//! The first screen at the sizes of laptops and phones, and the focus after a key.

use anyhow::{Result, ensure};
use nodeglass_tests::{Browser, TIMEOUT, TestRelay};
use std::time::Instant;

const ESCAPE: char = '\u{E00C}';
const CONTROL: char = '\u{E009}';

/// Sizes of a large and a small laptop, and of a phone.
const SIZES: [(u32, u32); 3] = [(1_440, 900), (1_024, 768), (390, 844)];

/// Whether the first screen has rows of running jobs above the heat map, none of them below the sums, and ended jobs are
/// folded in table and list.
const OVERVIEW: &str = "(() => { \
    const place = element => element?.getBoundingClientRect() ?? {}, main = place(document.querySelector('main')); \
    const rows = [...document.querySelectorAll('.grid--jobs tbody tr[aria-rowindex]')]; \
    const sums = place(document.querySelector('.grid--jobs tfoot')); \
    const covered = rows.filter(row => place(row).bottom > sums.top + 1 && place(row).top < sums.bottom - 1); \
    const fold = document.querySelector('.grid--jobs .grid__unfold'); \
    const list = [...document.querySelectorAll('.jobs__fold')].find(fold => / ended/.test(fold.textContent)); \
    return rows.length >= 6 && covered.length === 0 && / ended/.test(fold?.textContent) \
        && place(document.querySelector('.heat-map')).top < main.bottom - 40 \
        && list?.getAttribute('aria-expanded') === 'false'; })()";

/// Whether all tabs are whole and within their line, and nodes that need attention have one.
const TABS: &str = "(() => { \
    const line = document.querySelector('.tabs-line')?.getBoundingClientRect() ?? {}; \
    const tabs = [...document.querySelectorAll('.tabs a')]; \
    const bad = [...document.querySelectorAll('.tabs--nodes :is(.dot--attention, .dot--bad)')]; \
    return tabs.length > 5 && bad.length > 0 && document.querySelector('.tabs--nodes')?.textContent.includes('gpu-h05') \
        && [...tabs, ...document.querySelectorAll('.tabs-line .menu')].every(it => { \
            const place = it.getBoundingClientRect(); \
            return place.left >= line.left - 1 && place.right <= line.right + 1 && it.scrollWidth <= it.clientWidth + 1; }); })()";

async fn open(browser: &Browser, relay: &TestRelay) -> Result<()> {
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelectorAll('.jobs a.job').length > 3").await
}

#[tokio::test]
async fn jobs_and_heat_map_share_the_first_screen_of_a_laptop() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open(&browser, &relay).await?;
    for (width, height) in &SIZES[..2] {
        browser.resize(*width, *height).await?;
        browser.open(&relay.link().path("/")).await?;
        browser.until(&format!("both at {width} × {height}"), OVERVIEW).await?;
        browser.photograph(&format!("first-screen-{width}")).await?;
    }
    browser.click(".grid--jobs .grid__unfold").await?;
    let rows = "document.querySelectorAll('.grid--jobs tbody tr[aria-rowindex]').length";
    browser.until("all jobs", &format!("location.search.includes('shown=all') && {rows} > 20")).await?;
    browser.eval("[...document.querySelectorAll('.jobs__fold')].find(fold => / ended/.test(fold.textContent)).click()").await?;
    browser.until("the jobs that ended", "document.querySelectorAll('.jobs .dot--ended').length > 0").await
}

#[tokio::test]
async fn no_tab_of_a_node_is_cut_off() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open(&browser, &relay).await?;
    for (width, height) in SIZES {
        browser.resize(width, height).await?;
        browser.open(&relay.link().path("/job/48213")).await?;
        browser.until(&format!("whole tabs at {width} px"), TABS).await?;
        browser.photograph(&format!("tabs-{width}")).await?;
    }
    // Where a tab is missing, the list has the node.
    let picker = "document.querySelector('.tabs-line .menu .btn')";
    ensure!(
        browser.eval(&format!("/^8 nodes/.test({picker}?.textContent)")).await? == true,
        "no list of nodes"
    );
    Ok(())
}

#[tokio::test]
async fn back_after_a_zoom_shows_the_time_before_it() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open(&browser, &relay).await?;
    browser.click("a.job[href$='/job/48213']").await?;
    let bar = |text: &str| format!("/{text}/.test(document.querySelector('.heat-map .time-bar')?.innerText)");
    browser.until("the job", &bar("^Live . last 10 min")).await?;
    let (metric, values) = (
        "document.querySelector('.heat-map select')",
        "document.querySelector('.heat-map__states').innerText",
    );
    let power = format!(
        "({metric}.value = 'power_w', {metric}.dispatchEvent(new Event('change', {{ bubbles: true }})))"
    );
    browser.eval(&power).await?;
    browser.until("the power of each node", &format!("/^\\d+ W/.test({values})")).await?;
    let live = browser.eval(values).await?;
    browser.until("the power now", &format!("{values} !== {live}")).await?;
    let drag = "(() => { const stage = document.querySelector('.heat-map .stage'), area = stage.getBoundingClientRect(); \
        for (const [type, share] of [['pointerdown', 0.5], ['pointermove', 0.6], ['pointermove', 0.75], ['pointerup', 0.75]]) \
            stage.dispatchEvent(new PointerEvent(type, { bubbles: true, pointerId: 1, pointerType: 'mouse', \
                clientX: area.left + area.width * share, clientY: area.top + 20 })); })()";
    browser.eval(drag).await?;
    browser
        .until("the selected time", &format!("{} && location.search.includes('r=')", bar("^Paused")))
        .await?;
    // Neither the clock nor an update moves it.
    let (address, shown) =
        (browser.eval("location.search").await?, "document.querySelector('.foot').innerText");
    let age = browser.eval(shown).await?;
    browser.until("an update", &format!("{shown} !== {age}")).await?;
    ensure!(browser.eval("location.search").await? == address, "the selected time moved");
    // Live values change with each update, and those of the end stay once they have arrived.
    let start = Instant::now();
    loop {
        let (age, at_end) = (browser.eval(shown).await?, browser.eval(values).await?);
        browser.until("another update", &format!("{shown} !== {age}")).await?;
        if browser.eval(values).await? == at_end {
            break;
        }
        ensure!(start.elapsed() < TIMEOUT, "values beside a paused graph are those of its end");
    }
    browser.eval("history.back()").await?;
    let before = format!("location.pathname === '/job/48213' && {}", bar("^Live . last 10 min"));
    browser.until("the job as it was", &before).await
}

#[tokio::test]
async fn the_focus_never_gets_lost() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open(&browser, &relay).await?;
    let in_content = "document.activeElement.id === 'main'";
    browser.press('j').await?;
    browser.until("the focus after a key", in_content).await?;
    browser.press('?').await?;
    browser.until("the help", "document.querySelector('dialog[open]')").await?;
    browser.press(ESCAPE).await?;
    browser.until("the focus after the help", in_content).await?;
    browser.press_with(CONTROL, 'k').await?;
    browser.until("the search", "document.activeElement.matches('dialog[open] input')").await?;
    browser.press(ESCAPE).await?;
    browser.until("the focus after the search", in_content).await?;
    browser.until("a table", "document.querySelector('.grid tbody tr[aria-rowindex]')").await?;
    browser.press('/').await?;
    browser.until("the filter", "document.activeElement.matches('.grid__filter')").await?;
    browser.press(ESCAPE).await?;
    browser.until("the focus on the table", "document.activeElement.matches('.grid table')").await?;
    browser.click(".top [title^=Settings]").await?;
    browser.until("the settings", "document.querySelector('dialog[open]')").await?;
    browser.press(ESCAPE).await?;
    browser
        .until("the focus on what opened them", "document.activeElement.matches('.top [title^=Settings]')")
        .await?;
    browser.click(".heat-map .time-bar .menu > .btn").await?;
    browser.until("the menu", "document.querySelector('.menu__body')").await?;
    browser.press(ESCAPE).await?;
    browser.until("the focus on its button", "document.activeElement.matches('.time-bar .menu > .btn')").await
}
