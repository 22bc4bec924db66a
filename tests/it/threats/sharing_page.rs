//! Two browsers, an owner's and a guest's: shares are created, viewed and revoked on the page itself.

use crate::browser::accessible::{Rules, violations};
use anyhow::{Context, Result, ensure};
use nodeglass_tests::browser::Scheme;
use nodeglass_tests::other_user::{self, NOBODY, Tunnel};
use nodeglass_tests::relay::Link;
use nodeglass_tests::skip::skip;
use nodeglass_tests::{Browser, TestRelay, test_tools};
use std::time::{Duration, Instant};

const ENTER: char = '\u{E007}';
const TAB: char = '\u{E004}';
const ESCAPE: char = '\u{E00C}';
const SPACE: char = ' ';

/// The job of the demo that is shared here, and one that is not.
const SHARED: &str = "/job/48213";
const OTHER: &str = "/job/48402";
/// A job that has two of a node's eight GPUs, and that node.
const SMALL: &str = "48420";
const ITS_NODE: &str = "/job/48420/node/gpu-h12";

/// The text of the topmost dialog.
const SHEET: &str = "document.querySelector('dialog[open]')?.innerText";
/// The link in it.
const LINK: &str =
    "[...document.querySelectorAll('.sharing code')].find(code => code.innerText.includes('#s='))?.innerText";
/// Everything in a tab's storage.
const KEPT: &str = "Object.entries(sessionStorage).concat(Object.entries(localStorage)).join(' ')";
/// The text of the page that explains why the share is gone.
const GATE: &str = "document.querySelector('.gate')?.innerText";

/// Opens the owner's link at a path.
async fn open_owner(browser: &Browser, relay: &TestRelay, place: &str) -> Result<()> {
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path(place)).await?;
    browser.until("the page", "document.querySelector('[role=grid] tbody [aria-rowindex]')").await
}

/// Creates a share of the current view with the form's defaults, and returns its link.
async fn share(browser: &Browser) -> Result<String> {
    browser.press('s').await?;
    browser.until("the form", "document.querySelector('dialog[open] form.share')").await?;
    browser.click("form.share button[type=submit]").await?;
    browser.until("the link", LINK).await?;
    let link = browser.eval(LINK).await?;
    Ok(link.as_str().context("a link")?.to_owned())
}

/// Opens a share's link in a separate browser, and waits for the shared job.
async fn open_guest(browser: &Browser, link: &str) -> Result<()> {
    browser.resize(1440, 900).await?;
    browser.open(link).await?;
    browser.until("the banner", "document.querySelector('.guest')").await?;
    browser.until("numbers", "/\\d\\s?%/.test(document.querySelector('.main')?.innerText)").await
}

/// Clicks the first element of a selector whose text matches.
async fn click_on(browser: &Browser, css: &str, words: &str) -> Result<()> {
    let found = format!("[...document.querySelectorAll({css:?})].find(one => /{words}/.test(one.innerText))");
    browser.until(words, &found).await?;
    browser.client().execute(&format!("{found}.focus(); {found}.click()"), Vec::new()).await?;
    Ok(())
}

#[tokio::test]
async fn t09_a_guest_sees_the_shared_job_and_nothing_else() -> Result<()> {
    let Some(owner) = Browser::start().await? else { return Ok(()) };
    let Some(guest) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_owner(&owner, &relay, SHARED).await?;
    let link = share(&owner).await?;
    ensure!(!link.contains(&relay.link().key.reveal()), "a share's link does not hold the owner's key");
    let sheet = owner.eval(SHEET).await?.to_string();
    for part in ["ssh -L", "read-only", "job 48213", "or with the job"] {
        ensure!(sheet.contains(part), "the sheet does not contain {part:?}: {sheet}");
    }

    open_guest(&guest, &link).await?;
    guest.until("the job at once", &format!("location.pathname === {SHARED:?} && !location.hash")).await?;
    let banner = guest.eval("document.querySelector('.guest')?.innerText").await?.to_string();
    for part in ["Shared by", "job 48213 only", "read-only", "ends "] {
        ensure!(banner.contains(part), "the banner does not contain {part:?}: {banner}");
    }
    guest.click(".guest summary").await?;
    guest
        .until(
            "what is hidden",
            "/Hidden: process arguments.*logs/.test(document.querySelector('.guest')?.innerText)",
        )
        .await?;
    // No list of a single job, no logs, no shares or actions, and no other job.
    let seen = |css: &str| {
        format!("[...document.querySelectorAll({css:?})].some(one => one.getClientRects().length)")
    };
    ensure!(guest.eval(&seen(".jobs")).await? == false, "a list of one job takes its room");
    let tabs = guest.eval("document.querySelector('.tabs').innerText").await?.to_string();
    ensure!(tabs.contains("Processes") && !tabs.contains("Logs"), "{tabs}");
    let share =
        "[...document.querySelectorAll('button')].some(one => /^Share( |$)/.test(one.innerText.trim()))";
    ensure!(owner.eval(share).await? == true, "the owner has a button to share");
    ensure!(guest.eval(share).await? == false, "a guest has one, too");
    guest.press('s').await?;
    ensure!(guest.eval("!!document.querySelector('dialog[open]')").await? == false, "its key does nothing");
    guest.press('?').await?;
    guest.until("the help", "document.querySelector('dialog[open]')").await?;
    ensure!(
        guest.eval(&format!("/share what|interrupt/i.test({SHEET})")).await? == false,
        "keys of the owner's"
    );
    guest.press(ESCAPE).await?;
    guest.open(&relay.link().path(&format!("{SHARED}/about"))).await?;
    guest.until("what SLURM says", "document.querySelectorAll('.fact').length > 5").await?;
    let about = guest.eval("document.querySelector('.main')?.innerText").await?.to_string();
    for part in ["scancel", "Cancel", "Requeue", "srun", "Working directory", "Share"] {
        ensure!(!about.contains(part), "a guest is offered {part:?}: {about}");
    }
    guest.open(&relay.link().path(&format!("{SHARED}/logs"))).await?;
    guest.until("no logs", "/Logs are not shared/.test(document.querySelector('.main')?.innerText)").await?;
    guest.open(&relay.link().path(&format!("{SHARED}/processes"))).await?;
    guest.until("processes", "document.querySelectorAll('.grid tbody tr[aria-rowindex]').length > 4").await?;
    guest
        .client()
        .execute("document.querySelector('.grid tbody tr[aria-rowindex]').click()", Vec::new())
        .await?;
    guest.until("a process's sheet", &format!("/Identity|IDENTITY/.test({SHEET})")).await?;
    let sheet = guest.eval(SHEET).await?.to_string();
    for part in ["nvironment", "Interrupt", "py-spy", "Asking", "amily"] {
        ensure!(!sheet.contains(part), "a guest is offered {part:?}: {sheet}");
    }
    // Pages of the owner's alone have no headings here either.
    for path in ["/usage", "/audit"] {
        guest.open(&relay.link().path(path)).await?;
        guest
            .until(
                "whose page it is",
                "/^Only \\S+ can see this page/.test(document.querySelector('.main')?.innerText)",
            )
            .await?;
        let shown = guest.eval("document.querySelector('.main').innerText").await?.to_string();
        ensure!(!shown.contains("My usage") && !shown.contains("Period"), "{path}: {shown}");
    }
    guest.photograph("guest-audit").await?;
    guest.open(&relay.link().path(OTHER)).await?;
    guest
        .until("no other job", "/is not shared with you/.test(document.querySelector('.main')?.innerText)")
        .await?;
    let all = guest.eval("document.documentElement.outerHTML").await?.to_string();
    ensure!(!all.contains("dpo-llama3"), "the name of another job");
    let kept = guest.eval(KEPT).await?.to_string();
    ensure!(
        kept.contains("s=") && !kept.contains("k="),
        "a guest's tab keeps the share's key: {}",
        kept.len()
    );
    see_small_job(&relay, &guest).await?;
    for browser in [&owner, &guest] {
        let complaints = browser.complaints().await?;
        ensure!(complaints.is_empty(), "the browser complains: {complaints:#?}");
    }
    Ok(())
}

/// For a host that other jobs use as well, the page shows the usage of the shared job, and says
/// that the rest is not shared.
async fn see_small_job(relay: &TestRelay, guest: &Browser) -> Result<()> {
    let output = relay.run(&["share", "create", "--job", SMALL])?;
    let link = output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))?;
    open_guest(guest, &link.url).await?;
    guest.open(&relay.link().path(ITS_NODE)).await?;
    let main = "document.querySelector('.main')?.innerText";
    guest.until("what the job uses", &format!("/\\d of \\d+ CPUs busy/.test({main})")).await?;
    let shown = guest.eval(main).await?.to_string();
    ensure!(shown.contains("is not shared with you"), "nothing says why so little is shown: {shown}");
    for part in ["Uptime", "/tmp", "InfiniBand", "pressure"] {
        ensure!(!shown.contains(part), "{part} of the host is shown: {shown}");
    }
    ensure!(guest.eval("!!document.querySelector('.cores')").await? == false, "its CPUs one by one");
    Ok(())
}

#[tokio::test]
async fn t09_a_guest_of_an_array_sees_its_tasks_and_no_other_job() -> Result<()> {
    let Some(owner) = Browser::start().await? else { return Ok(()) };
    let Some(guest) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_owner(&owner, &relay, "/job/48440").await?;
    let link = share(&owner).await?;
    let sheet = owner.eval(SHEET).await?.to_string();
    for part in ["Shared: array 48440", "shares array 48440 with you", "or with the last task of the array"] {
        ensure!(sheet.contains(part), "the sheet does not contain {part:?}: {sheet}");
    }
    owner.press(ESCAPE).await?;
    let listed = relay.run(&["share", "list"])?;
    ensure!(listed.contains(" array 48440 "), "{listed}");
    open_guest(&guest, &link).await?;
    let banner = guest.eval("document.querySelector('.guest')?.innerText").await?.to_string();
    ensure!(banner.contains("array 48440 only"), "{banner}");
    guest.open(&relay.link().path("/job/48440")).await?;
    let rows = "[...document.querySelectorAll('.grid--jobs tbody tr[aria-rowindex] a')]";
    guest.until("its tasks", &format!("{rows}.length > 4")).await?;
    let text = guest.eval("document.body.innerText").await?.to_string();
    ensure!(text.contains("lm-eval-sweep") && !text.contains("48213") && !text.contains("llama3"), "{text}");
    guest.open(&relay.link().path(SHARED)).await?;
    guest.until("nothing of another job", "/48213/.test(document.querySelector('.main')?.innerText)").await?;
    let text = guest.eval("document.body.innerText").await?.to_string();
    ensure!(!text.contains("llama3"), "{text}");
    Ok(())
}

#[tokio::test]
async fn t10_a_revoked_share_clears_the_guests_page() -> Result<()> {
    let Some(owner) = Browser::start().await? else { return Ok(()) };
    let Some(guest) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_owner(&owner, &relay, SHARED).await?;
    ensure!(owner.eval("!!document.querySelector('.top__watching')").await? == false, "no guest yet");
    let link = share(&owner).await?;
    open_guest(&guest, &link).await?;
    owner.until("who looks, in the sheet", &format!("/◉ .+ since \\d+:\\d+/.test({SHEET})")).await?;
    owner.press(ESCAPE).await?;
    owner
        .until("who looks, above", "/1 watching/.test(document.querySelector('.top__watching')?.innerText)")
        .await?;
    owner.click(".top__watching").await?;
    owner.until("the list", "document.activeElement.innerText === 'Shares and viewers'").await?;
    click_on(&owner, ".share-entry button", "^Show link").await?;
    owner.until("the same link again", &format!("{LINK} === {link:?}")).await?;
    click_on(&owner, ".share-entry button", "^Revoke$").await?;
    owner
        .until("the question", "/Revoke now/.test(document.querySelector('.share-entry')?.innerText)")
        .await?;
    ensure!(guest.eval("!!document.querySelector('.guest')").await? == true, "one press changes nothing");
    click_on(&owner, ".share-entry button", "^Revoke now").await?;
    let pressed = Instant::now();
    guest.until("its end", &format!("/revoked this link/.test({GATE})")).await?;
    // Including the interval of polling the page.
    println!("the guest's page said so after {:?}", pressed.elapsed());
    owner.until("an empty list", &format!("/Nothing is shared/.test({SHEET})")).await?;
    owner.until("no guest in the top bar", "!document.querySelector('.top__watching')").await?;
    read_audit_log(&owner).await?;
    let left = guest.eval("document.documentElement.outerHTML").await?.to_string();
    for trace in ["gpu-h01", "llama3", "NVIDIA", "H100"] {
        ensure!(!left.contains(trace), "{trace} is still there: {left}");
    }
    let secret = link.rsplit('.').next().context("a key")?;
    ensure!(!guest.eval(KEPT).await?.to_string().contains(secret), "the key is still there");
    // Neither a reload nor the link itself restores it, and no other key replaces it.
    guest.client().refresh().await?;
    guest
        .until("who ended it", &format!("/revoked this link/.test({GATE}) && !/relay link/.test({GATE})"))
        .await?;
    guest.open(&link).await?;
    guest.until("its end", &format!("/does not exist any more|revoked this link/.test({GATE})")).await?;
    Ok(())
}

/// From the sheet, the owner reads who viewed what, and filters it.
async fn read_audit_log(owner: &Browser) -> Result<()> {
    click_on(owner, "dialog[open] a", "^Audit log").await?;
    let rows = "[...document.querySelectorAll('.audit tbody tr')].map(row => row.innerText)";
    owner.until("the page", "document.querySelector('h1')?.innerText === 'Audit log'").await?;
    owner.until("its records", &format!("{rows}.length >= 3")).await?;
    let all = owner.eval(rows).await?.to_string();
    for part in ["View", "job 48213", "create share", "revoke share", "✓ the share was revoked"] {
        ensure!(all.contains(part), "{part} is missing: {all}");
    }
    ensure!(!all.contains("still open"), "the view has ended: {all}");
    println!("{}", owner.photograph("audit-log").await?.display());
    click_on(owner, ".audit__filters button", "^Actions$").await?;
    owner
        .until(
            "actions only",
            &format!("{rows}.every(row => !row.includes('View')) && /kind=actions/.test(location.search)"),
        )
        .await?;
    click_on(owner, ".audit__filters button", "^Views$").await?;
    owner.until("views only", &format!("{rows}.length === 1 && {rows}[0].includes('View')")).await
}

/// A cluster whose one job ends soon after the relay starts.
const SHORT_LIVED: &str = r#"
cluster = "brief"
user = "alice"
still = true
[[node]]
name = "brief-1"
model = "h100"
gpus = 1
[[job]]
id = 7
name = "soon over"
partition = "gpu"
submitted = "-20m"
start = "-10m"
end = "45s"
limit = "1h"
nodes = "brief-1"
"#;

#[tokio::test]
async fn t10_a_share_that_ends_with_its_job_clears_the_guests_page() -> Result<()> {
    let Some(owner) = Browser::start().await? else { return Ok(()) };
    let Some(guest) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("brief.toml");
    std::fs::write(&file, SHORT_LIVED)?;
    let relay = TestRelay::start(&["--demo", "--scenario", file.to_str().context("a plain path")?])?;
    open_owner(&owner, &relay, "/job/7").await?;
    let link = share(&owner).await?;
    open_guest(&guest, &link).await?;
    guest.until("its end", &format!("/This share has expired/.test({GATE})")).await?;
    let left = guest.eval("document.documentElement.outerHTML").await?.to_string();
    ensure!(!left.contains("brief-1") && !left.contains("soon over"), "the job is still there: {left}");
    let secret = link.rsplit('.').next().context("a key")?;
    ensure!(!guest.eval(KEPT).await?.to_string().contains(secret), "the key is still there");
    owner.until("an empty list", &format!("/Nothing is shared/.test({SHEET})")).await?;
    owner.until("the job's last picture", "/ended/i.test(document.querySelector('.main')?.innerText)").await
}

#[tokio::test]
async fn t09_a_tab_stays_the_owners_or_a_guests() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_owner(&browser, &relay, SHARED).await?;
    let link = share(&browser).await?;
    let owners = browser.client().window().await?;
    // A guest's tab in the owner's browser, beside a tab that could pass on the owner's key.
    let guests = browser.client().new_window(true).await?.handle;
    browser.client().switch_to_window(guests.clone()).await?;
    open_guest(&browser, &link).await?;
    browser.client().refresh().await?;
    browser.until("a guest still", "document.querySelector('.guest')").await?;
    ensure!(!browser.eval(KEPT).await?.to_string().contains("k="), "no owner's key in a guest's tab");
    // A truncated link leaves a tab without a key, also if other tabs have one.
    let cut = browser.client().new_window(true).await?.handle;
    browser.client().switch_to_window(cut).await?;
    browser.open(&link[..link.len() - 3]).await?;
    browser.until("the gate", &format!("/is incomplete/.test({GATE})")).await?;
    browser.client().refresh().await?;
    browser.until("the gate still", &format!("/is incomplete/.test({GATE})")).await?;
    // An invalid one is refused with an explanation.
    let made_up = format!("{}0", &link[..link.len() - 1]).replace("#s=", "#s=zz");
    browser.open(&relay.link().path("/")).await?;
    browser.open(&made_up).await?;
    browser.until("the refusal", &format!("/does not exist any more/.test({GATE})")).await?;
    // The link, pasted into the form.
    browser.click("input.field").await?;
    browser.write(&link).await?;
    browser.press(ENTER).await?;
    browser.until("a guest", "document.querySelector('.guest')").await?;
    // A link opened in a tab that has a page replaces it.
    browser
        .client()
        .execute(&format!("location.hash = '#k={}'", relay.link().key.reveal()), Vec::new())
        .await?;
    browser
        .until("the owner", "!document.querySelector('.guest') && document.querySelector('.jobs a.job')")
        .await?;
    ensure!(!browser.eval(KEPT).await?.to_string().contains("s="), "one key a tab");
    // A tab without a key prefers the owner's key to a guest's.
    let fresh = browser.client().new_window(true).await?.handle;
    browser.client().switch_to_window(fresh).await?;
    browser.open(&relay.link().path("/")).await?;
    browser
        .until("the owner", "document.querySelector('.jobs a.job') && !document.querySelector('.guest')")
        .await?;
    browser.client().switch_to_window(guests).await?;
    browser.until("a guest still", "document.querySelector('.guest')").await?;
    browser.client().switch_to_window(owners).await?;
    browser.until("the owner still", "!document.querySelector('.guest')").await
}

/// Skips a test if this process cannot switch to another user.
fn alone() -> bool {
    let why = other_user::why_not();
    why.iter().for_each(|why| skip(why));
    why.is_some()
}

#[tokio::test]
async fn t02_a_link_for_another_user_is_refused_with_a_reason() -> Result<()> {
    if alone() {
        return Ok(());
    }
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    let tunnel = Tunnel::open(NOBODY, &relay.link().authority).await?;
    let there = |link: &Link| link.at(&tunnel.authority()).url;
    let made = |args: &[&str]| {
        let output = relay.run(&[&["share", "create", "--job", "48213"], args].concat())?;
        output.lines().find_map(Link::find).with_context(|| format!("no link in {output}"))
    };
    browser.resize(1440, 900).await?;
    browser.open(&there(relay.link())).await?;
    browser
        .until(
            "whose it is",
            &format!("/the relay's owner only[^]*this connection belongs to nobody/.test({GATE})"),
        )
        .await?;
    browser.open(&there(&made(&["--to", "root"])?)).await?;
    browser.until("for whom it is", &format!("/This link is for root only/.test({GATE})")).await?;
    let shown = browser.eval("document.documentElement.outerHTML").await?.to_string();
    ensure!(!shown.contains("llama3") && !shown.contains("gpu-h0"), "something is shown: {shown}");
    // A link for anyone is open to user nobody as well, and the owner sees the viewer's name.
    open_guest(&browser, &there(&made(&[])?)).await?;
    let Some(owner) = Browser::start().await? else { return Ok(()) };
    open_owner(&owner, &relay, SHARED).await?;
    owner.click(".top__watching").await?;
    owner.until("the viewer", &format!("/◉ nobody since/.test({SHEET})")).await
}

/// Presses Tab until the expression is true for the focused element.
async fn tab_to(browser: &Browser, what: &str, is_expected: &str) -> Result<()> {
    for _ in 0..60 {
        if browser.eval(&format!("!!({is_expected})")).await? == true {
            return Ok(());
        }
        browser.press(TAB).await?;
    }
    anyhow::bail!("Tab does not lead to {what}")
}

#[tokio::test]
async fn a_share_is_created_and_revoked_by_keyboard_alone() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelectorAll('.jobs a.job').length > 3").await?;
    // Without a job in view, none is chosen, so that none is shared by accident.
    browser.press('s').await?;
    browser.until("the choice", "document.activeElement.matches('select[name=scope]')").await?;
    browser
        .until(
            "no choice, and every running job",
            "document.activeElement.value === '' && document.activeElement.length > 10
             && document.activeElement.options[1].text.startsWith('everything')",
        )
        .await?;
    tab_to(&browser, "the button", "document.activeElement.matches('button[type=submit]')").await?;
    browser.press(ENTER).await?;
    browser
        .until("the missing choice", "document.activeElement.matches('select[name=scope]:invalid')")
        .await?;
    browser.press(ESCAPE).await?;
    // Which job is first in the list depends on what needs attention at the moment.
    browser.open(&relay.link().path(SHARED)).await?;
    browser.until("its nodes", "document.querySelectorAll('a[href*=\"/node/\"]').length > 3").await?;
    browser.press('s').await?;
    browser.until("the first choice", "document.activeElement.matches('input[name=scope]')").await?;
    ensure!(
        browser
            .eval(
                "document.activeElement.checked && /48213/.test(document.activeElement.parentNode.innerText)"
            )
            .await?
            == true,
        "the least is chosen first"
    );
    tab_to(&browser, "what is hidden", "document.activeElement.matches('input[name=logs]')").await?;
    browser.press(SPACE).await?;
    tab_to(&browser, "for whom", "document.activeElement.matches('input[name=to]')").await?;
    browser.write("root").await?;
    tab_to(&browser, "the label", "document.activeElement.matches('input[name=label]')").await?;
    browser.write("look at S").await?;
    tab_to(&browser, "the button", "document.activeElement.matches('button[type=submit]')").await?;
    browser.press(ENTER).await?;
    browser.until("the link", LINK).await?;
    browser.until("the focus on it", "/Shared: job 48213/.test(document.activeElement.innerText)").await?;
    let entry = "document.querySelector('.share-entry')?.innerText";
    browser
        .until(
            "its terms",
            &format!("/look at S/.test({entry}) && /only for root/.test({entry}) && !/logs/.test({entry})"),
        )
        .await?;
    let revoke = "/^Revoke/.test(document.activeElement.innerText)";
    tab_to(&browser, "the way back", revoke).await?;
    browser.press(ENTER).await?;
    browser.until("the question", "document.activeElement.innerText === 'Revoke now'").await?;
    // Focusing another element does not confirm.
    browser.press(TAB).await?;
    browser.until("no question", "!/Revoke now/.test(document.querySelector('.shares')?.innerText)").await?;
    tab_to(&browser, "the way back", revoke).await?;
    browser.press(ENTER).await?;
    browser.press(ENTER).await?;
    browser
        .until(
            "its end",
            &format!("/Revoked: job 48213/.test({SHEET}) && !document.querySelector('.share-entry')"),
        )
        .await?;
    browser
        .until("the focus at the list", "document.activeElement.innerText === 'Shares and viewers'")
        .await?;
    browser.press(ESCAPE).await?;
    browser.until("the page", "!document.querySelector('dialog[open]')").await
}

#[tokio::test]
async fn a_refused_share_is_explained_in_the_form_without_losing_input() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    open_owner(&browser, &relay, SHARED).await?;
    browser.press('s').await?;
    browser.until("the form", "document.querySelector('dialog[open] form.share')").await?;
    browser.click("input[name=to]").await?;
    browser.write("no-such-user").await?;
    browser.click("form.share button[type=submit]").await?;
    browser
        .until("why", "document.querySelector('form.share [role=alert]')?.innerText.includes('no-such-user')")
        .await?;
    browser.until("what was typed", "document.querySelector('input[name=to]').value === 'no-such-user'").await
}

/// Screenshots of every state, in both themes, wide and on a phone; axe finds no violation in any of them.
#[tokio::test]
async fn axe_finds_no_violation_in_any_sharing_state() -> Result<()> {
    let Some(owner) = Browser::start().await? else { return Ok(()) };
    let Some(guest) = Browser::start().await? else { return Ok(()) };
    let axe = test_tools::axe().map(std::fs::read_to_string).transpose()?;
    let relay = TestRelay::demo()?;
    open_owner(&owner, &relay, SHARED).await?;
    let mut found = Vec::new();
    owner.press('s').await?;
    owner.until("the form", "document.querySelector('dialog[open] form.share')").await?;
    look(&owner, "share-form", axe.as_deref(), &mut found).await?;
    owner.press(ESCAPE).await?;
    let link = share(&owner).await?;
    open_guest(&guest, &link).await?;
    owner.until("the viewer", &format!("/◉ .+ since/.test({SHEET})")).await?;
    look(&owner, "share", axe.as_deref(), &mut found).await?;
    owner.press(ESCAPE).await?;
    look(&owner, "watched", axe.as_deref(), &mut found).await?;
    look(&guest, "guest", axe.as_deref(), &mut found).await?;
    guest.click(".guest summary").await?;
    look(&guest, "guest-more", axe.as_deref(), &mut found).await?;
    owner.click(".top__watching").await?;
    click_on(&owner, ".share-entry button", "^Revoke$").await?;
    click_on(&owner, ".share-entry button", "^Revoke now").await?;
    guest.until("its end", &format!("/revoked this link/.test({GATE})")).await?;
    look(&guest, "share-revoked", axe.as_deref(), &mut found).await?;
    ensure!(found.is_empty(), "axe found {}:\n{}", found.len(), found.join("\n"));
    Ok(())
}

async fn look(browser: &Browser, name: &str, axe: Option<&str>, found: &mut Vec<String>) -> Result<()> {
    for (suffix, width, height) in [("", 1440, 900), ("-phone", 390, 844)] {
        for scheme in [Scheme::Dark, Scheme::Light] {
            browser.resize(width, height).await?;
            browser.prefer(scheme).await?;
            // Graphs are painted in the new theme with their next step.
            tokio::time::sleep(Duration::from_secs(1)).await;
            let picture = format!("{name}-{}{suffix}", scheme.name());
            browser.photograph(&picture).await?;
            let wide = "document.documentElement.scrollWidth > innerWidth || \
                [...document.querySelectorAll('.top > *')].some(one => one.getBoundingClientRect().right > innerWidth)";
            let wide = browser.eval(wide).await?;
            ensure!(wide == false, "{picture} is wider than {width} pixels");
            if let Some(axe) = axe {
                let lines = violations(browser, axe, Rules::of(scheme)).await?;
                found.extend(lines.into_iter().map(|line| format!("{picture}: {line}")));
            }
        }
    }
    browser.resize(1440, 900).await
}
