//! A table of more rows than a screen holds draws those that can be seen, wherever one scrolls and however large the window is.

use anyhow::{Result, ensure};
use nodeglass_tests::{Browser, TestRelay};
use serde_json::json;

/// The long table. It grows with the page, which alone scrolls.
const BOX: &str = "document.querySelector('.grid--gpus-of-job .grid__box')";

/// Whether each row of which a pixel can be seen is there with its figures, the rows are in order, not all 512 are drawn, and head and
/// sums stay in view.
const FILLED: &str = "(() => { \
    const box = document.querySelector('.grid--gpus-of-job .grid__box'), edge = box.getBoundingClientRect(); \
    const head = box.querySelector('thead th').getBoundingClientRect(), foot = box.querySelector('tfoot td').getBoundingClientRect(); \
    const main = box.closest('main').getBoundingClientRect(); \
    const top = Math.max(edge.top, main.top) + head.height, bottom = Math.min(edge.bottom, main.bottom) - foot.height; \
    const rows = [...box.querySelectorAll('tbody tr[aria-rowindex]')]; \
    const at = row => Number(row.getAttribute('aria-rowindex')), place = row => row.getBoundingClientRect(); \
    const seen = rows.filter(row => place(row).bottom > top && place(row).top < bottom); \
    return seen.length > 0 && bottom - top > 200 && rows.length < 200 && box.scrollHeight <= box.clientHeight + 1 \
        && Math.abs(head.bottom - top) <= 2 && Math.abs(foot.top - bottom) <= 2 \
        && place(seen[0]).top <= top + 1 && place(seen.at(-1)).bottom >= bottom - 1 \
        && rows.every((row, n) => at(row) === at(rows[0]) + n) \
        && seen.every(row => /\\d/.test(row.querySelector('.c-util .num')?.textContent) && Math.round(place(row).height) === 26); })()";

/// Scrolls the page so that this part of the long table, of 1, is above the viewport.
async fn scroll(browser: &Browser, share: f64) -> Result<()> {
    let scrolled = format!(
        "(() => {{ const main = document.querySelector('main'), view = main.getBoundingClientRect(), \
         place = {BOX}.getBoundingClientRect(); \
         main.scrollTop += place.top - view.top + (place.height - view.height) * {share}; }})()"
    );
    browser.eval(&scrolled).await.map(drop)
}

/// The row in the middle of what is drawn.
async fn middle(browser: &Browser) -> Result<Option<i64>> {
    let row = "(rows => Number(rows[rows.length >> 1].getAttribute('aria-rowindex')))";
    let rows = format!("[...{BOX}.querySelectorAll('tbody tr[aria-rowindex]')]");
    Ok(browser.eval(&format!("{row}({rows})")).await?.as_i64())
}

#[tokio::test]
async fn a_long_table_renders_all_visible_rows_at_any_scroll_position_and_size() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::start(&["--scenario", "large"])?;
    browser.resize(1_440, 700).await?;
    browser.open(&relay.link().url).await?;
    browser.until("the list of jobs", "document.querySelector('a[href*=\"/job/\"]')").await?;
    browser.open(&relay.link().path("/job/90210")).await?;
    let rows = format!("{BOX}?.querySelector('table').getAttribute('aria-rowcount') === '513'");
    browser.until("512 GPUs", &rows).await?;
    let mut before = None;
    for share in [0.0, 0.3, 0.31, 1.0, 0.5] {
        scroll(&browser, share).await?;
        browser.until(&format!("rows at {share} of the way"), FILLED).await?;
        let middle = middle(&browser).await?;
        ensure!(middle != before || share == 0.31, "{middle:?} is in the middle before and after {share}");
        before = middle;
    }
    for (width, height) in [(1_440, 2_000), (900, 600), (1_900, 1_400)] {
        browser.resize(width, height).await?;
        scroll(&browser, 0.5).await?;
        browser.until(&format!("rows in {height} px"), FILLED).await?;
    }
    // What is seen goes on being written.
    let texts =
        format!("[...{BOX}.querySelectorAll('.c-power .num')].map(figure => figure.textContent).join()");
    let first = browser.eval(&texts).await?;
    browser.until("other figures", &format!("{texts} !== {}", json!(first))).await
}
