//! Reports on the page: of a job that ended, of two side by side, and of everything that was used.

use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::relay::TestRelay;
use serde_json::json;

/// Keys as WebDriver names them.
const END: char = '\u{e010}';
const LEFT: char = '\u{e012}';
const ESCAPE: char = '\u{e00c}';

/// Two runs of one training that end after the relay's start, the second one with an idle GPU.
const RUNS: &str = r#"
cluster = "quiet"
user = "alice"
seed = 1
still = true

[[node]]
name = "q[1-2]"
model = "h100"
gpus = 4
cpus = 64
mem_gib = 512

[[job]]
id = 101
name = "train-1"
account = "lab"
partition = "gpu"
submitted = "-1m"
start = "-5s"
end = "20s"
limit = "2h"
nodes = "q1"
gpus = [0, 1]
behaviour = "steady"
memory_pct = 50
args = "python3 -m torch.distributed.run train.py"

[[job]]
id = 102
name = "train-2"
account = "lab"
partition = "gpu"
submitted = "-1m"
start = "-5s"
end = "25s"
limit = "2h"
nodes = "q2"
gpus = [0, 1, 2]
behaviour = "idle_gpu"
memory_pct = 20
args = "python3 -m torch.distributed.run train.py"
"#;

/// Whether the main part of the page contains a text, as an expression for [`Browser::until`].
fn main_contains(text: &str) -> String {
    format!("document.querySelector('main')?.innerText.includes({text:?})")
}

#[tokio::test]
async fn reports_of_ended_jobs_are_read_printed_and_compared() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let scenario = folder.path().join("runs.toml");
    std::fs::write(&scenario, RUNS)?;
    let relay = TestRelay::start(&["--scenario", scenario.to_str().context("a path")?])?;
    browser.resize(1440, 1000).await?;
    browser.prefer(Scheme::Dark).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    // A note that both jobs have aligns their curves.
    for job in ["101", "102"] {
        relay.run(&["note", "epoch 1", "--job", job])?;
    }
    browser.open(&relay.link().path("/job/101")).await?;
    browser.until("the tabs", "document.querySelector('.tabs a[href*=\"/report\"]')").await?;
    browser.click(".tabs a[href*='/report']").await?;
    browser.until("the report of a running job", &main_contains("is still running")).await?;
    browser.until("the final report", &main_contains("The job has ended")).await?;
    // SLURM states the end to the second, so that a sample after it may count.
    browser
        .until("a mean", "/\\b(4[5-9]|50)(\\.\\d)? %/.test(document.querySelector('main').innerText)")
        .await?;
    for text in ["Mean utilisation", "GPU hours", "PyTorch", "q1 GPU 0", "q1 GPU 1"] {
        browser.until(text, &main_contains(text)).await?;
    }
    // What the integral of a constant utilisation must be.
    let share = "document.querySelector('.hours__legend li:first-child span:last-child').innerText";
    ensure!(
        browser.eval(&format!("parseInt({share}) > 20 && parseInt({share}) <= 50")).await? == json!(true)
    );
    browser.photograph("report-dark").await?;
    browser.prefer(Scheme::Light).await?;
    browser.photograph("report-light").await?;
    browser.resize(390, 844).await?;
    browser
        .until(
            "a narrow page",
            "innerWidth < 500 && document.querySelector('nav.jobs').getBoundingClientRect().right <= 0",
        )
        .await?;
    browser.photograph("report-narrow").await?;
    let overflow = "document.querySelector('main').scrollWidth <= document.querySelector('main').clientWidth";
    ensure!(browser.eval(overflow).await? == json!(true), "the narrow page scrolls sideways");
    browser.resize(1440, 1000).await?;

    // On paper: the report with a title of its own, and nothing else.
    browser.devtools("Emulation.setEmulatedMedia", json!({ "media": "print" })).await?;
    let shown = |css: &str| format!("document.querySelector({css:?}).getClientRects().length");
    ensure!(browser.eval(&shown(".report__title")).await? == json!(1));
    for css in [".top", "nav.jobs", ".foot", ".tabs-line", ".report__do"] {
        ensure!(browser.eval(&shown(css)).await? == json!(0), "{css} is printed");
    }
    browser.photograph("report-print").await?;
    browser.devtools("Emulation.setEmulatedMedia", json!({ "media": "" })).await?;

    browser.prefer(Scheme::Dark).await?;
    browser.click(".report__compare a").await?;
    browser
        .until("both jobs", &format!("{} && {}", main_contains("train-1"), main_contains("train-2")))
        .await?;
    browser.until("their curves", "document.querySelectorAll('.curves path[d^=M]').length === 2").await?;
    browser.until("a difference", "/[+−]\\d+ %/.test(document.querySelector('.compare').innerText)").await?;
    browser.until("the sentence", &main_contains("102 took")).await?;
    browser.photograph("compare").await?;
    browser.until("the choice", "document.querySelectorAll('.curves__align option').length === 2").await?;
    let drawn = "[...document.querySelectorAll('.curves path')].map((path) => path.getAttribute('d') + path.getAttribute('transform')).join()";
    let from_start = browser.eval(drawn).await?;
    browser.eval("(select => { select.value = 'epoch 1'; select.dispatchEvent(new Event('change')) })(document.querySelector('.curves__align select'))").await?;
    browser
        .until("the note", "document.querySelector('.curves__moments').innerText.includes('epoch 1')")
        .await?;
    browser
        .until(
            "their curves from there",
            &format!(
                "document.querySelectorAll('.curves path[d^=M]').length === 2 && {drawn} !== {from_start}"
            ),
        )
        .await?;
    browser.photograph("compare-at-note").await?;
    // The arrow keys read the graph, and do not leave the page.
    let at = browser.eval("location.pathname").await?;
    browser.eval("(document.querySelector('.curves').focus(), true)").await?;
    browser.press(END).await?;
    let readout = "document.querySelector('.curves__readout').innerText";
    browser.until("what the end has", &format!("/^\\+\\d.* · 101: .* · 102: /.test({readout})")).await?;
    // The last reading, and not the edge of the graph, where there is none.
    ensure!(browser.eval(&format!("/\\d %/.test({readout})")).await? == json!(true), "no reading at the end");
    let hairline = "parseFloat(document.querySelector('.curves__cursor').style.left)";
    let end = browser.eval(hairline).await?;
    browser.press(LEFT).await?;
    browser.until("the hairline", &format!("{hairline} < {end} && {hairline} > {end} - 2")).await?;
    ensure!(browser.eval("location.pathname").await? == at);

    browser.eval("(select => { select.value = ''; select.dispatchEvent(new Event('change')) })(document.querySelector('.curves__align select'))").await?;

    // Another time of the same job: its first half, whose end is then changed as with the keyboard.
    let select = "document.querySelector('.parts__add select')";
    let choose = format!(
        "(() => {{ const select = {select}; select.selectedIndex = 1; select.dispatchEvent(new Event('change')); return true; }})()"
    );
    browser.eval(&choose).await?;
    browser.until("a part in the address", "/@\\d+\\.\\.\\d+$/.test(location.pathname)").await?;
    browser.until("three curves", "document.querySelectorAll('.curves path[d^=M]').length === 3").await?;
    let figures = "document.querySelectorAll('.parts tbody tr').length === 3 \
                   && [...document.querySelectorAll('.parts tbody td.num')].every((cell) => cell.innerText.trim() !== '–')";
    browser.until("figures of each", figures).await?;
    let before = browser.eval("location.pathname").await?;
    // A time applies with Enter, not while it is typed.
    let shorten = "(() => { const input = document.querySelectorAll('.parts__time input')[5]; \
                   input.focus(); const at = new Date(input.value.replace(' ', 'T')); \
                   at.setSeconds(at.getSeconds() - 5); \
                   const two = (number) => String(number).padStart(2, '0'); \
                   input.value = `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} ` \
                       + `${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}`; \
                   input.dispatchEvent(new Event('input')); \
                   const unchanged = location.pathname; \
                   input.dispatchEvent(new KeyboardEvent('keydown', { key: 'Enter', bubbles: true })); \
                   return unchanged; })()";
    ensure!(browser.eval(shorten).await? == before, "it was applied while it was typed");
    browser.until("a shorter part", &format!("location.pathname !== {before}")).await?;
    ensure!(
        browser.eval("document.activeElement === document.querySelectorAll('.parts__time input')[5]").await?
            == json!(true),
        "the input keeps the focus"
    );
    browser.photograph("compare-parts").await?;
    // A part of a run does not take its job from the figures.
    let columns = "document.querySelectorAll('.compare thead th').length === 3";
    browser
        .until("the figures of both jobs", &format!("{columns} && {}", main_contains("whole runs")))
        .await?;
    // A time that is none stays with what is wrong, until Escape brings the old one back.
    let input = "document.querySelectorAll('.parts__time input')[4]";
    let at = browser.eval(&format!("{input}.value")).await?;
    browser.eval(&format!("({input}.focus(), {input}.value = 'noon', {input}.blur(), true)")).await?;
    browser
        .until(
            "what is wrong",
            "document.querySelectorAll('.parts__wrong')[2].innerText.startsWith('Enter a time')",
        )
        .await?;
    ensure!(browser.eval(&format!("{input}.getAttribute('aria-invalid')")).await? == json!("true"));
    browser.eval(&format!("({input}.focus(), true)")).await?;
    browser.press(ESCAPE).await?;
    browser.until("the time before", &format!("{input}.value === {at}")).await?;
    browser
        .until(
            "no complaint",
            "[...document.querySelectorAll('.parts__wrong')].every((wrong) => !wrong.innerText)",
        )
        .await?;
    browser.click(".parts tbody tr:last-child button[title^=Remove]").await?;
    browser.until("two rows", "document.querySelectorAll('.parts tbody tr').length === 2").await?;
    // From a zoomed graph of a job.
    browser.open(&relay.link().path("/job/101?r=60")).await?;
    browser.until("the way to it", "[...document.querySelectorAll('.time-bar button')].some((button) => button.innerText === 'Compare')").await?;
    let compare = "[...document.querySelectorAll('.time-bar button')].find((button) => button.innerText === 'Compare').click()";
    browser.eval(&format!("({compare}, true)")).await?;
    browser.until("one part", "/^\\/compare\\/101@/.test(location.pathname) && document.querySelectorAll('.parts tbody tr').length === 1").await?;
    browser.photograph("compare-one").await?;

    // An unknown job says what is missing, and leads on.
    browser.open(&relay.link().path("/compare/999")).await?;
    browser.until("what is missing", &main_contains("There is no report of job 999")).await?;
    browser.until("a way out", "document.querySelector('.empty a.link') && document.querySelectorAll('.parts__add option').length === 3").await?;
    browser.eval(&choose).await?;
    browser.until("the chosen job", "/^\\/compare\\/10[12]$/.test(location.pathname)").await?;
    // The overview and a job lead to a comparison.
    browser.open(&relay.link().path("/job/101")).await?;
    browser.until("the way from a job", "document.querySelector('.head a[href$=\"/compare/101\"]')").await?;
    browser.open(&relay.link().path("/")).await?;
    browser
        .until("the way from the overview", "document.querySelector('.head__links a[href$=\"/compare/\"]')")
        .await?;
    browser.click(".head__links a[href*=compare]").await?;
    browser.until("a comparison that begins empty", &main_contains("Choose the first job")).await?;
    ensure!(browser.eval("document.querySelectorAll('.compare td').length").await? == json!(0));
    browser.open(&relay.link().path("/")).await?;
    browser.until("the way to it", "document.querySelector('.head__links a[href*=usage]')").await?;
    browser.click(".head__links a[href*='usage']").await?;
    browser.until("both jobs", &format!("{} && {}", main_contains("train-1"), main_contains("lab"))).await?;
    // What was not observed is neither used nor unused.
    browser.until("what was observed", &main_contains("GPU hours were observed")).await?;
    let heads =
        "[...document.querySelectorAll('.usage__both th')].map((head) => head.innerText.trim()).join()";
    browser.until("its column", &format!("/Unused,No data,Energy k?Wh/.test({heads})")).await?;
    browser.photograph("usage").await?;
    ensure!(browser.complaints().await?.is_empty(), "{:?}", browser.complaints().await?);
    Ok(())
}
