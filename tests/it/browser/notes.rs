//! Notes on the page: made at a moment of a graph, seen in every graph, edited, deleted, and in the report.

use anyhow::{Result, ensure};
use nodeglass_tests::browser::{Browser, Scheme};
use nodeglass_tests::relay::TestRelay;
use serde_json::json;

/// A right-click at a share of the width of the first graph.
fn right_click(share: f64) -> String {
    format!(
        "(stage => {{ const area = stage.getBoundingClientRect(); stage.dispatchEvent(new MouseEvent('contextmenu', \
         {{ bubbles: true, cancelable: true, clientX: area.left + area.width * {share}, clientY: area.top + 5 }})); \
         return true }})(document.querySelector('.heat-map .stage'))"
    )
}

/// Whether an element contains a text, as an expression for [`Browser::until`].
fn contains(css: &str, text: &str) -> String {
    format!("document.querySelector({css:?})?.innerText.includes({text:?})")
}

/// Replaces the text of the form, as its user would by typing, and saves it.
async fn fill(browser: &Browser, text: &str) -> Result<()> {
    browser.until("the form", "document.activeElement?.matches('.note-form input')").await?;
    browser.eval("(document.activeElement.select(), true)").await?;
    browser.write(text).await?;
    browser.click(".note-form button[type=submit]").await?;
    browser.until("no form", NO_FORM).await
}

const NO_FORM: &str = "!document.querySelector('.note-form')";
const ESCAPE: char = '\u{e00c}';

/// Types a time into the form, as an expression.
fn set_time(time: &str) -> String {
    format!(
        "(input => {{ input.value = {time:?}; input.dispatchEvent(new Event('input')); return true }})\
         (document.querySelector('.note-form__time input'))"
    )
}

/// The button of a note in the list, by the beginning of its accessible name.
fn button(name: &str) -> String {
    format!(
        "[...document.querySelectorAll('.notes button')].find(it => it.getAttribute('aria-label').startsWith({name:?}))"
    )
}

#[tokio::test]
async fn a_note_is_made_at_a_graph_edited_reported_shared_and_deleted() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::start(&["--demo", "--read-only"])?;
    browser.resize(1440, 1000).await?;
    browser.prefer(Scheme::Dark).await?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48213")).await?;
    browser.until("both graphs", "document.querySelectorAll('.main .stage canvas').length >= 2").await?;
    let open = "(document.querySelector('.time-bar .menu > .btn').click(), true)";
    browser.eval(open).await?;
    browser.until("the item", &contains(".time-bar", "Add note")).await?;
    browser.eval(open).await?;

    // By a click into the graph, with a keyboard shortcut, and by another program.
    browser.eval(&right_click(0.4)).await?;
    browser
        .until(
            "the moment",
            "/job 48213/.test(document.querySelector('.note-form').innerText) \
             && / min ago/.test(document.querySelector('.note-form__time').innerText) \
             && /^\\d{4}-\\d\\d-\\d\\d \\d\\d:\\d\\d:\\d\\d$/.test(document.querySelector('.note-form__time input').value)",
        )
        .await?;
    browser.photograph("note-form").await?;
    // Cancel and Escape add no note, nor does an invalid time.
    browser.write("never mind").await?;
    browser.click(".note-form button[type=button]").await?;
    browser.until("no form after Cancel", NO_FORM).await?;
    browser.press('m').await?;
    browser.until("the form again", "document.activeElement?.matches('.note-form input')").await?;
    browser.write("never mind").await?;
    browser.press(ESCAPE).await?;
    browser.until("no form after Escape", NO_FORM).await?;
    ensure!(browser.eval("document.querySelector('.stage__note')").await?.is_null(), "something was noted");
    browser.eval(&right_click(0.4)).await?;
    browser.until("the form", "document.activeElement?.matches('.note-form input')").await?;
    browser.eval(&set_time("noon")).await?;
    browser.click(".note-form button[type=submit]").await?;
    browser.until("a complaint", &contains(".note-form .gate__wrong", "Enter a time such as")).await?;
    browser.press(ESCAPE).await?;
    browser.until("no form", NO_FORM).await?;
    browser.eval(&right_click(0.4)).await?;
    fill(&browser, "learning rate lowered").await?;
    let marks = "document.querySelectorAll('.stage__note').length";
    browser.until("a mark in both graphs", &format!("{marks} === 2")).await?;
    browser.until("its label", &contains(".heat-map .stage__label", "learning rate lowered")).await?;
    // About two fifths of the way, as transforms have it.
    let place = "parseFloat(document.querySelector('.heat-map .stage__note').style.transform.slice(11))";
    ensure!(
        browser.eval(&format!("{place} > 36 && {place} < 42")).await? == json!(true),
        "{:?}",
        browser.eval(place).await?
    );
    browser.press('m').await?;
    fill(&browser, "checkpoint reached").await?;
    relay.run(&["note", "epoch 3", "--job", "48213", "--at", "2m"])?;
    browser.until("three marks", &format!("{marks} === 6")).await?;

    // The tooltip names a note that is pointed at.
    let point = "(stage => { const area = stage.getBoundingClientRect(); stage.dispatchEvent(new PointerEvent('pointermove', \
         { bubbles: true, clientX: area.left + area.width * 0.395, clientY: area.top + 40 })); return true })\
         (document.querySelector('.heat-map .stage'))";
    let pointed = format!("({point}, {})", contains(".tip", "learning rate lowered"));
    browser.until("the note in the tooltip", &pointed).await?;
    browser.photograph("notes-dark").await?;

    // The list, newest first; each button is named after its note.
    browser.until("the list", "document.querySelectorAll('.notes li').length === 3").await?;
    let edit = "[...document.querySelectorAll('.notes button')].find(it => it.getAttribute('aria-label') === 'Edit note of job 48213: epoch 3')";
    browser.eval(&format!("({edit}.scrollIntoView(), {edit}.focus(), {edit}.click(), true)")).await?;
    fill(&browser, "epoch 3 begins").await?;
    browser.until("the edited note", &contains(".notes", "epoch 3 begins")).await?;
    browser.photograph("notes-list").await?;

    // A note is moved by its time, here before the others.
    let moved = button("Edit note of job 48213: checkpoint reached");
    let time_of = "document.querySelector('.note-form__time input').value";
    browser.eval(&format!("({moved}.click(), true)")).await?;
    browser.until("the form", "document.querySelector('.note-form__time input')").await?;
    let earlier = "(() => { const at = new Date(document.querySelector('.note-form__time input').value.replace(' ', 'T')); \
         at.setMinutes(at.getMinutes() - 9); const two = number => String(number).padStart(2, '0'); \
         return `${at.getFullYear()}-${two(at.getMonth() + 1)}-${two(at.getDate())} \
${two(at.getHours())}:${two(at.getMinutes())}:${two(at.getSeconds())}` })()";
    let earlier = browser.eval(earlier).await?;
    let earlier = earlier.as_str().unwrap_or_default();
    ensure!(browser.eval(time_of).await? != json!(earlier));
    browser.eval(&set_time(earlier)).await?;
    browser.click(".note-form button[type=submit]").await?;
    browser.until("no form", NO_FORM).await?;
    let oldest = "document.querySelector('.notes li:last-child')";
    browser.until("the moved note", &format!("{oldest}.innerText.includes('checkpoint reached')")).await?;

    // A note that is changed or deleted elsewhere while it is edited: what was typed can be added anew.
    browser.eval(&format!("({}.click(), true)", button("Edit note of job 48213: checkpoint"))).await?;
    browser.until("the form", "document.activeElement?.matches('.note-form input')").await?;
    browser.write(" twice").await?;
    let listed = relay.run(&["note", "--list", "--job", "48213"])?;
    let line = listed.lines().find(|line| line.contains("checkpoint reached")).unwrap_or_default();
    let id = line.split_whitespace().find(|word| word.len() > 9 && word.parse::<u64>().is_ok());
    let id = id.unwrap_or_default();
    relay.run(&["note", "--edit", id, "checkpoint lost"])?;
    browser.until("the other text", &contains(".note-form__meanwhile", "“checkpoint lost”")).await?;
    browser.until("what saving does", &contains(".note-form [type=submit]", "Replace note")).await?;
    relay.run(&["note", "--delete", id])?;
    browser.until("what happened", &contains(".note-form__meanwhile", "was deleted in the meantime")).await?;
    browser.until("the offer", &contains(".note-form [type=submit]", "Add as new note")).await?;
    browser.photograph("note-deleted").await?;
    browser.click(".note-form button[type=submit]").await?;
    browser.until("no form", NO_FORM).await?;
    browser.until("the new note", &contains(".notes", "checkpoint reached twice")).await?;

    // A note of the whole cluster says so, before it is deleted from every graph.
    relay.run(&["note", "power outage", "--cluster"])?;
    let of_cluster = button("Delete note of the whole cluster: power outage");
    browser.until("a note of the cluster", &of_cluster).await?;
    browser
        .until("its mark in the list", &contains(".notes", "of the whole cluster, added by relay note"))
        .await?;
    browser.eval(&format!("({of_cluster}.click(), true)")).await?;
    browser
        .until(
            "the question",
            &contains("dialog[open]", "Delete the note “power outage” of the whole cluster?"),
        )
        .await?;
    browser.photograph("note-delete").await?;
    browser.click("dialog[open] .btn--danger").await?;
    browser.until("three notes", "document.querySelectorAll('.notes li').length === 3").await?;
    browser.prefer(Scheme::Light).await?;
    browser.eval("(document.querySelector('.main').scrollTo(0, 0), true)").await?;
    browser.photograph("notes-light").await?;

    // The report has them, on paper, too.
    browser.click(".tabs a[href*='/report']").await?;
    for text in ["3 notes", "learning rate lowered", "checkpoint reached twice", "epoch 3 begins"] {
        browser.until(text, &contains(".report", text)).await?;
    }
    browser.photograph("notes-report").await?;
    browser.devtools("Emulation.setEmulatedMedia", json!({ "media": "print" })).await?;
    browser.until("the notes on paper", &contains(".report", "epoch 3 begins")).await?;
    browser.photograph("notes-report-print").await?;
    browser.devtools("Emulation.setEmulatedMedia", json!({ "media": "" })).await?;

    // A guest sees them and cannot change them.
    let made = relay.run(&["share", "create", "--job", "48213"])?;
    let link = made.split_whitespace().find(|word| word.contains("#s=")).unwrap_or_default();
    let guest = Browser::start().await?;
    if let Some(guest) = &guest {
        guest.open(link).await?;
        guest.until("the notes", "document.querySelectorAll('.notes li').length === 3").await?;
        let buttons = "document.querySelectorAll('.notes button').length";
        ensure!(guest.eval(buttons).await? == json!(0), "a guest is offered changes");
        guest.eval(open).await?;
        guest.until("the menu", &contains(".time-bar .menu__body", "Zoom out")).await?;
        ensure!(!guest.text().await?.contains("Add note"));
        guest.eval(open).await?;
        guest.eval(&right_click(0.5)).await?;
        ensure!(guest.eval("document.querySelector('.note-form')").await?.is_null());
    }

    browser.click(".tabs a[href$='/job/48213']").await?;
    let delete = "[...document.querySelectorAll('.notes button')].find(it => it.getAttribute('aria-label') === 'Delete note of job 48213: epoch 3 begins')";
    browser.until("the list again", delete).await?;
    browser.eval(&format!("({delete}.click(), true)")).await?;
    browser
        .until("the question", &contains("dialog[open]", "Delete the note “epoch 3 begins” of job 48213?"))
        .await?;
    browser.click("dialog[open] .btn--danger").await?;
    browser.until("two notes", "document.querySelectorAll('.notes li').length === 2").await?;
    if let Some(guest) = &guest {
        guest.until("two notes", "document.querySelectorAll('.notes li').length === 2").await?;
    }
    browser.resize(390, 844).await?;
    let narrow = "innerWidth < 500 && document.querySelector('nav.jobs').getBoundingClientRect().right <= 0";
    browser.until("a narrow page", narrow).await?;
    browser.eval("(document.querySelector('.notes').scrollIntoView(), true)").await?;
    browser.photograph("notes-narrow").await?;
    ensure!(browser.complaints().await?.is_empty(), "{:?}", browser.complaints().await?);
    Ok(())
}
