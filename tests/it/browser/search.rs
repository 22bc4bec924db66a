//! Search and steps: the matches of a log, the palette of everything, and jobs that SLURM does not list.

use anyhow::{Context as _, Result, ensure};
use nodeglass_tests::{Browser, TestRelay, http};
use serde_json::{Value, json};

const ENTER: char = '\u{E007}';
const ESCAPE: char = '\u{E00C}';
const CONTROL: char = '\u{E009}';

/// The text of the palette's selected entry.
const SELECTED: &str = "document.querySelector('.palette [aria-selected=true]')?.innerText";

/// Starts a browser on the overview of the demo.
async fn overview() -> Result<Option<(Browser, TestRelay)>> {
    let Some(browser) = Browser::start().await? else { return Ok(None) };
    let relay = TestRelay::demo()?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("what needs attention", "document.querySelector('.attention__line')").await?;
    Ok(Some((browser, relay)))
}

/// Types into the palette what replaces what was typed before.
async fn find(browser: &Browser, typed: &str) -> Result<()> {
    browser.press(ESCAPE).await?;
    browser.until("no palette", "!document.querySelector('dialog[open]')").await?;
    browser.press_with(CONTROL, 'k').await?;
    browser.until("the palette", "document.activeElement.matches('.palette input')").await?;
    browser.write(typed).await
}

#[tokio::test]
async fn n_goes_down_the_matches_of_a_log_and_without_a_search_on_to_the_next_problem() -> Result<()> {
    let Some((browser, relay)) = overview().await? else { return Ok(()) };
    browser.open(&relay.link().path("/job/48377/logs")).await?;
    let lines = "document.querySelectorAll('.log').length > 20";
    browser.until("lines", lines).await?;
    browser.press('/').await?;
    browser.until("the search", "document.activeElement.matches('.logs__bar input')").await?;
    browser.write("step").await?;
    let found = "document.querySelector('.logs__found').innerText";
    // A running job logs more matches meanwhile.
    let at_end = format!("/^(\\d+) of /.test({found}) && parseInt({found}) > 3");
    browser.until("the newest match", &at_end).await?;
    browser.eval("(document.activeElement.blur(), true)").await?;
    let position =
        "(text => parseInt(text.replace(',', '')))(document.querySelector('.logs__found').innerText)";
    let newest = browser.eval(position).await?.as_i64().unwrap_or_default();
    browser.press('N').await?;
    browser.until("the match above", &format!("{position} === {}", newest - 1)).await?;
    browser.press('N').await?;
    browser.until("the one above that", &format!("{position} === {}", newest - 2)).await?;
    browser.press('n').await?;
    browser.until("the match below", &format!("{position} === {}", newest - 1)).await?;
    let below = "document.querySelector('.log.is-here').getBoundingClientRect().top";
    let before = browser.eval("document.querySelector('.log.is-here').id").await?;
    browser.press('N').await?;
    let is_above = format!(
        "document.querySelector('.log.is-here').compareDocumentPosition(document.getElementById({before})) & 4"
    );
    browser.until("a line above it", &format!("{below} && ({is_above})")).await?;

    browser.press('/').await?;
    browser.press(ESCAPE).await?;
    browser.until("no search", "document.querySelector('.logs__bar input').value === '' && !document.activeElement.matches('input')").await?;
    browser.press('?').await?;
    browser.until("the help", "document.querySelector('dialog[open]')").await?;
    ensure!(browser.eval("location.pathname").await? == json!("/job/48377/logs"), "n left the log");
    let keys = browser.text().await?;
    ensure!(
        keys.contains("next problem that needs attention; in a log, first the next match or error"),
        "{keys}"
    );
    browser.press(ESCAPE).await?;
    browser.until("no help", "!document.querySelector('dialog[open]')").await?;
    // The log has no error, or few.
    for _ in 0..5 {
        browser.press('n').await?;
    }
    browser.until("the next problem", "location.pathname !== '/job/48377/logs'").await?;
    Ok(())
}

/// A job that runs out of memory soon after the start of the relay, on a node that has no other one.
const OUT_OF_MEMORY: &str = r#"
cluster = "quiet"
user = "alice"
seed = 1

[[node]]
name = "q1"
model = "h100"
gpus = 2
cpus = 64
mem_gib = 512

[[job]]
id = 101
name = "train"
partition = "gpu"
submitted = "-3m"
start = "-2m"
end = "15s"
ends_as = "OUT_OF_MEMORY"
limit = "2h"
nodes = "q1"
behaviour = "training"
memory_pct = 97
args = "python3 train.py"
"#;

#[tokio::test]
async fn a_failure_opens_the_log_at_its_evidence_after_its_node_was_left() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let scenario = folder.path().join("oom.toml");
    std::fs::write(&scenario, OUT_OF_MEMORY)?;
    let relay = TestRelay::start(&["--scenario", scenario.to_str().context("a path")?])?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    let evidence =
        "[...document.querySelectorAll('.attention__line')].some(line => /oom.kill/i.test(line.innerText))";
    browser.until("the failure with its evidence", evidence).await?;
    browser.press('n').await?;
    browser.until("its logs", "location.pathname === '/job/101/logs'").await?;
    browser
        .until(
            "the line in standard error",
            "/oom.kill/i.test(document.querySelector('.log.is-here')?.innerText)",
        )
        .await?;
    let shown = "document.querySelector('.logs__bar button[aria-pressed=true]').innerText";
    ensure!(browser.eval(&format!("{shown}.startsWith('stderr')")).await? == json!(true));
    ensure!(browser.eval("document.querySelector('.logs .notice') === null").await? == json!(true));
    Ok(())
}

#[tokio::test]
async fn n_and_its_capital_go_from_problem_to_problem_also_from_a_gpus_sheet() -> Result<()> {
    let Some((browser, _relay)) = overview().await? else { return Ok(()) };
    let sheet = "document.querySelector('dialog[open]')?.getAttribute('aria-label') === 'GPU'";
    // A relay that has just started finds them one after the other.
    browser
        .until("several problems", "document.querySelectorAll('.attention .attention__line').length > 2")
        .await?;
    for _ in 0..12 {
        if browser.eval(sheet).await? == json!(true) {
            break;
        }
        let before = browser.eval("location.href").await?;
        browser.press('n').await?;
        browser.until("another problem", &format!("location.href !== {before}")).await?;
        browser.until("its page", "document.querySelector('main .head h1')").await?;
    }
    browser.until("the sheet of a GPU with a problem", sheet).await?;
    let here = browser.eval("location.href").await?;
    browser.press('n').await?;
    browser.until("the next problem", &format!("location.href !== {here}")).await?;
    browser.press('N').await?;
    browser.until("the one before", &format!("location.href === {here}")).await?;
    Ok(())
}

#[tokio::test]
async fn findings_ranks_and_commands_are_found_by_their_words_from_anywhere() -> Result<()> {
    let Some((browser, _relay)) = overview().await? else { return Ok(()) };
    find(&browser, "").await?;
    // Before anything is typed, they are listed with the pages.
    let hints = "[...document.querySelectorAll('#palette-list small')].map(hint => hint.innerText)";
    let is_listed =
        format!("(hints => hints.includes('page') && hints.some(hint => /^key /.test(hint)))({hints})");
    browser.until("pages and commands", &is_listed).await?;
    browser.until("the worst finding", &format!("/hung|lost|error|cannot|slower/i.test({SELECTED})")).await?;
    find(&browser, "rank 35 llama3").await?;
    browser.until("a rank of a job", &format!("/rank 35 of llama3-8b-pretrain/i.test({SELECTED})")).await?;
    find(&browser, "silence").await?;
    browser.until("what can be silenced", &format!("/silence for 1 h: .+/i.test({SELECTED})")).await?;
    // No letters that are scattered through a text.
    find(&browser, "hgz").await?;
    browser.until("nothing", "/No matches/.test(document.querySelector('.palette__none').innerText)").await?;
    find(&browser, "slower peers").await?;
    browser.until("a finding", &format!("/slower than its peers/.test({SELECTED})")).await?;
    browser.press(ENTER).await?;
    browser
        .until(
            "where it shows",
            "location.pathname.startsWith('/job/48213') && document.querySelector('.head h1')",
        )
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_pid_is_found_on_any_node_and_leads_to_its_process() -> Result<()> {
    let Some((browser, relay)) = overview().await? else { return Ok(()) };
    let (authority, bearer) =
        (relay.link().authority.clone(), format!("Bearer {}", relay.link().key.reveal()));
    let path = "/api/v1/processes?job=48402&limit=1&fields=pid,node";
    let request = move || http::get(&authority, path, &[("Authorization", &bearer)]);
    let reply = tokio::task::spawn_blocking(request).await??;
    let processes: Value = serde_json::from_str(&reply.body).with_context(|| reply.head)?;
    let process = &processes["processes"][0];
    let (pid, node) =
        (process["pid"].as_u64().context("a pid")?, process["node"].as_str().context("a node")?);
    find(&browser, &pid.to_string()).await?;
    let list = "[...document.querySelectorAll('#palette-list li')].map(entry => entry.innerText)";
    let only =
        format!("(all => all.length === 1 && /^pid {pid} .*process on {node}$/s.test(all[0]))({list})");
    browser.until("the process alone", &only).await?;
    browser.press(ENTER).await?;
    let shown =
        format!("location.pathname === '/job/48402/processes' && location.search.includes('pid={node}')");
    browser.until("the processes of its job", &shown).await?;
    let sheet = format!("document.querySelector('dialog[open]')?.innerText.includes('{pid}')");
    browser.until("its sheet", &sheet).await?;
    // No process has it.
    find(&browser, "3999999999").await?;
    browser.until("nothing", "/No matches/.test(document.querySelector('.palette__none').innerText)").await
}

#[tokio::test]
async fn an_unknown_job_is_the_same_page_by_number_and_by_label() -> Result<()> {
    let Some((browser, relay)) = overview().await? else { return Ok(()) };
    let main = "document.querySelector('main')?.innerText";
    let unknown = [
        ("/job/99999999", "99999999"),
        ("/job/48440_77", "48440_77"),
        ("/compare/48213-48440_77", "48440_77"),
    ];
    for (path, label) in unknown {
        browser.open(&relay.link().path(path)).await?;
        let words = format!(
            "SLURM does not list job {label}. It may have ended long ago, or belong to someone else."
        );
        browser.until(&words, &format!("{main}?.includes({words:?}) && /report/.test({main})")).await?;
        let title = browser.eval("document.querySelector('main h1').innerText").await?;
        ensure!(title == json!(format!("Job {label}")), "{title}");
        ensure!(browser.eval("document.querySelectorAll('main .empty').length").await? == json!(1));
    }
    // The address states its number; the number of a label is known from the summary of all jobs alone.
    browser.open(&relay.link().path("/job/99999999")).await?;
    browser
        .until("its report", "document.querySelector('main .empty a[href$=\"/job/99999999/report\"]')")
        .await?;
    Ok(())
}

#[tokio::test]
async fn the_number_of_an_array_shows_all_of_its_tasks() -> Result<()> {
    let Some((browser, relay)) = overview().await? else { return Ok(()) };
    browser.open(&relay.link().path("/job/48440")).await?;
    let rows = "[...document.querySelectorAll('.grid--jobs tbody tr[aria-rowindex] a')]";
    let head = "document.querySelector('main .head')?.innerText";
    // Each running task has an entry of the list, the others are one.
    browser
        .until(
            "its tasks by state",
            &format!("/^lm-eval-sweep\\s+Array 48440\\s+\\d+ running\\s+\\d+ waiting/.test({head}) && {rows}.length > 8"),
        )
        .await?;
    // Each is named by its number, as they have one name.
    ensure!(
        browser.eval(&format!("{rows}.every(link => /^48440_[\\d[]/.test(link.innerText.trim()))")).await?
            == json!(true)
    );
    browser.photograph("array").await?;
    ensure!(browser.eval("location.pathname").await? == json!("/job/48440"));
    // From a task, there is a way back.
    let task = browser.eval(&format!("{rows}[0].getAttribute('href')")).await?;
    ensure!(task != json!("/job/48440"), "{task}");
    browser.eval(&format!("({rows}[0].click(), true)")).await?;
    browser
        .until("a task", &format!("location.pathname === {task} && /Job 48440_\\d+/.test({head})"))
        .await?;
    browser.click("main .meta a[href$='/job/48440']").await?;
    browser.until("the array", &format!("/Array 48440/.test({head}) && !/Job 48440_/.test({head})")).await?;
    browser.eval("(history.back(), true)").await?;
    browser.until("the task again", &format!("/Job 48440_\\d+/.test({head})")).await?;
    // The tasks that wait have the number of the array, and a page of their own.
    browser.open(&relay.link().path("/job/48440/about")).await?;
    browser.until("those that wait", &format!("/Job 48440_\\[/.test({head})")).await?;
    Ok(())
}

#[tokio::test]
async fn a_finding_is_copied_as_a_message_and_its_job_submitted_without_the_node() -> Result<()> {
    let Some((browser, relay)) = overview().await? else { return Ok(()) };
    browser.open(&relay.link().path("/job/48213")).await?;
    let taken = "window.taken = []; Object.defineProperty(navigator, 'clipboard', { value: { writeText: text => { taken.push(text); return Promise.resolve(); } }, configurable: true })";
    browser.until("an unfolded finding", "document.querySelector('.finding-tools .command')").await?;
    browser.eval(&format!("(() => {{ {taken}; return true; }})()")).await?;
    let command = browser.eval("document.querySelector('.finding-tools .command').innerText").await?;
    let command = command.as_str().unwrap_or_default();
    ensure!(command.starts_with("sbatch --exclude=gpu-h0"), "{command}");
    browser.click(".finding-tools > .btn").await?;
    let text = browser.eval("taken[0]").await?;
    let text = text.as_str().unwrap_or_default();
    for part in ["Job 48213 (llama3-8b-pretrain, user alice): ", "Nodes: gpu-h0", "When: ", "/job/48213"] {
        ensure!(text.contains(part), "{part} is missing in {text}");
    }
    ensure!(!text.contains('#'), "the key is in {text}");
    // Above what is read, one line says it.
    browser.click(".tabs a[href*='/logs']").await?;
    browser
        .until(
            "one line",
            "document.querySelector('.attention-line') && !document.querySelector('main .attention')",
        )
        .await?;
    browser.click(".attention-line").await?;
    browser.until("the list", "document.querySelector('main .attention__line')").await?;
    Ok(())
}
