//! axe finds no accessibility violation on any page, in both themes, wide and on a phone.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::relay::TestRelay;
use nodeglass_tests::test_tools;
use serde_json::Value;

/// The tested pages, and the keys that lead to each from the demo's start.
const PAGES: &[(&str, &str)] = &[
    ("all jobs", "/"),
    ("a job", "JOB"),
    ("its processes", "JOB/processes"),
    ("its logs", "JOB/logs"),
    ("its report", "JOB/report"),
    ("what is known of it", "JOB/about"),
    ("usage", "/usage"),
    ("the audit log", "/audit"),
    ("a comparison", "/compare/48213-48220"),
    ("one of its nodes", "NODE"),
];

/// Sheets and dialogs, by the page below and what opens them.
const ON_TOP: &[(&str, &str, &str)] = &[
    ("the keys", "JOB", "press('?')"),
    ("the settings", "JOB", "press('S')"),
    ("the sheet of sharing", "JOB", "press('s')"),
    ("the command palette", "JOB", "press('k', true)"),
    ("a GPU's sheet", "NODE", "row()"),
    ("a process's sheet", "JOB/processes", "row()"),
];
/// The kinds of input in [`ON_TOP`]: a key of the page, or a click on the first row of the first table.
const WORDS: &str = "const press = (key, ctrlKey) => document.body.dispatchEvent(new KeyboardEvent('keydown', { key, ctrlKey, \
    bubbles: true, cancelable: true })), row = () => document.querySelector('[role=grid] tbody [aria-rowindex]').click();";

/// The rules of axe that a page is checked against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rules {
    /// All of WCAG 2 A and AA, and of best practice.
    All,
    /// Rules about contrast, for a page that was checked against all rules in the other theme.
    Contrast,
}

impl Rules {
    /// The rules for a theme, if pages are shown in the dark one first.
    pub(crate) fn of(scheme: Scheme) -> Self {
        match scheme {
            Scheme::Dark => Self::All,
            Scheme::Light => Self::Contrast,
        }
    }
}

/// Runs axe in the page and returns its violations, one per line.
pub(crate) async fn violations(browser: &Browser, axe: &str, rules: Rules) -> Result<Vec<String>> {
    browser
        .client()
        .execute(&format!("if (!window.axe) {{ {axe}\n }}"), Vec::new())
        .await
        .context("load axe")?;
    let only =
        if rules == Rules::Contrast { "runOnly: ['color-contrast', 'link-in-text-block'], " } else { "" };
    let script = "const done = arguments[arguments.length - 1]; \
        axe.run(document, { ONLY resultTypes: ['violations'] }).then(result => done(result.violations.map(v => \
        `${v.id} (${v.impact}): ${v.help}: ` + v.nodes.slice(0, 3).map(n => n.html.slice(0, 160) + ' ' + \
        (n.any.concat(n.all).map(c => c.message).join('; '))).join(' | '))), error => done([String(error)]));";
    let found = browser
        .client()
        .execute_async(&script.replace("ONLY ", only), Vec::new())
        .await
        .context("run axe")?;
    let lines = found.as_array().context("a list")?;
    Ok(lines.iter().filter_map(Value::as_str).map(str::to_owned).collect())
}

#[tokio::test]
async fn axe_finds_no_violation_on_any_page() -> Result<()> {
    let Some(axe) = test_tools::axe() else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let axe = std::fs::read_to_string(axe)?;
    let relay = TestRelay::demo()?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    let job = super::open_first_job(&browser).await?;
    browser.until("a node", "document.querySelector('a[href*=\"/node/\"]')").await?;
    let node = browser.eval("document.querySelector('a[href*=\"/node/\"]').getAttribute('href')").await?;
    let node = node.as_str().context("a path")?.to_owned();
    let mut found = Vec::new();
    let pages = PAGES.iter().map(|(name, path)| (name, path, None));
    let on_top = ON_TOP.iter().map(|(name, path, open)| (name, path, Some(open)));
    for (name, path, open) in pages.chain(on_top) {
        let path = path.replace("JOB", &job).replace("NODE", &node);
        for (width, height) in [(1440, 900), (390, 844)] {
            browser.resize(width, height).await?;
            browser.prefer(Scheme::Dark).await?;
            browser.open(&relay.link().path(&path)).await?;
            match open {
                Some(open) => {
                    let row = "document.querySelector('[role=grid] tbody [aria-rowindex]')";
                    browser.until("a row", row).await?;
                    browser.client().execute(&format!("{WORDS} {open}"), Vec::new()).await?;
                    let is_open = "document.querySelector('dialog[open]')?.innerText.length > 20";
                    browser.until(name, is_open).await?;
                }
                None => {
                    let is_shown = "document.querySelector('main') && /\\d/.test(document.body.innerText)";
                    browser.until("the page", is_shown).await?;
                }
            }
            for scheme in [Scheme::Dark, Scheme::Light] {
                browser.prefer(scheme).await?;
                for line in violations(&browser, &axe, Rules::of(scheme)).await? {
                    found.push(format!("{name}, {width} pixels, {}: {line}", scheme.name()));
                }
            }
        }
    }
    ensure!(found.is_empty(), "axe found {}:\n{}", found.len(), found.join("\n"));
    Ok(())
}

/// A check that never fails would show nothing.
#[tokio::test]
async fn axe_reports_an_image_without_alternative_text() -> Result<()> {
    let Some(axe) = test_tools::axe() else { return Ok(()) };
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    browser.until("the page", "document.querySelector('main')").await?;
    browser.client().execute("document.querySelector('main').append(new Image(9, 9))", Vec::new()).await?;
    let found = violations(&browser, &std::fs::read_to_string(axe)?, Rules::All).await?;
    ensure!(found.iter().any(|line| line.starts_with("image-alt")), "{found:#?}");
    Ok(())
}
