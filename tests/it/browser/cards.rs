//! Readings that a GPU or its driver lacks are named, other GPUs are not affected, and nothing
//! unknown is shown as zero.

use super::readings::open_node;
use anyhow::{Result, ensure};
use nodeglass_tests::{Browser, Machine, TestRelay};
use serde_json::{Value, json};

/// The text of a GPU's row; empty if there is none.
fn row(number: usize) -> String {
    format!(
        "(document.querySelectorAll('.grid--gpus tbody tr:not(.grid__space)')[{number}]?.innerText ?? '')"
    )
}

/// A JavaScript expression: whether a text of the page matches.
fn text_matches(text: &str, wish: &str) -> String {
    format!("/{wish}/i.test({text})")
}

const PAGE: &str = "document.body.innerText";
const SHEET: &str = "(document.querySelector('dialog')?.innerText ?? '')";

/// Opens the sheet of a GPU by its UUID.
async fn open_sheet(browser: &Browser, machine: &Machine, node: &str, uuid: &str) -> Result<()> {
    browser.open(&machine.relay().link().path(&format!("{node}?gpu={uuid}"))).await?;
    browser.until("its sheet", "document.querySelectorAll('dialog .fact').length > 20").await
}

/// Waits until the sheet's text matches all of these regular expressions.
async fn wait_for_sheet(browser: &Browser, wishes: &[&str]) -> Result<()> {
    for wish in wishes {
        browser.until(&format!("“{wish}” in the sheet"), &text_matches(SHEET, wish)).await?;
    }
    Ok(())
}

/// Waits until no fact in the sheet is zero, except for allowed ones.
async fn until_no_zero(browser: &Browser, may: &[&str]) -> Result<()> {
    let may = json!(may);
    let zeros = format!(
        "[...document.querySelectorAll('dialog .fact')] \
            .filter(fact => /^0( |$)/.test(fact.querySelector('b').textContent)) \
            .filter(fact => !{may}.includes(fact.querySelector('dt').textContent))"
    );
    browser.until("sheet without a zero", &format!("{zeros}.length === 0")).await
}

#[tokio::test]
async fn a_lost_gpu_is_reported_and_the_others_continue() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let state = |lost: bool, util: u32| {
        json!({ "gpus": [
            { "card": "h100", "uuid": "GPU-a", "util": 77, "lost": lost },
            { "card": "h100", "uuid": "GPU-b", "util": util },
        ] })
    };
    let machine = Machine::start(&state(false, 41))?;
    let node = open_node(&browser, &machine).await?;
    browser
        .until("both cards", &format!("{} && {}", text_matches(&row(0), "77"), text_matches(&row(1), "41")))
        .await?;
    machine.set(&state(true, 63))?;
    browser.until("the loss", &text_matches(&row(0), "lost")).await?;
    browser.until("the neighbour's new value", &text_matches(&row(1), "63")).await?;
    browser.until("no old value", &format!("!{}", text_matches(&row(0), "77"))).await?;
    open_sheet(&browser, &machine, &node, "GPU-a").await?;
    wait_for_sheet(&browser, &["Cannot be read", "lost"]).await?;
    until_no_zero(&browser, &["NVML index", "NUMA node"]).await?;
    machine.set(&state(false, 41))?;
    browser.until("its return", &format!("!{}", text_matches(SHEET, "Cannot be read"))).await
}

#[tokio::test]
async fn columns_that_no_gpu_supports_are_hidden_and_can_be_chosen() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let state = |temp: Value| {
        json!({ "gpus": [
            { "card": "h100", "util": 77, "temp": temp, "power_mw": null },
            { "card": "h100", "util": 41, "temp": null, "power_mw": null },
        ] })
    };
    let machine = Machine::start(&state(Value::Null))?;
    open_node(&browser, &machine).await?;
    let head = "(document.querySelector('.grid--gpus thead')?.innerText ?? '')";
    let shows = |title: &str| text_matches(head, title);
    let hidden = format!("{} && !{} && !{}", shows("Utilisation"), shows("Power"), shows("°C"));
    browser.until("the columns with values", &format!("{hidden} && {}", text_matches(&row(0), "77"))).await?;
    machine.set(&state(json!(55)))?;
    browser.until("the temperature", &format!("{} && !{}", shows("°C"), shows("Power"))).await?;
    machine.set(&state(Value::Null))?;
    browser.until("its gap", &format!("!{} && {}", text_matches(&row(0), "55"), shows("°C"))).await?;
    browser.eval("document.querySelector('.grid--gpus .menu > .btn').click()").await?;
    let item = "[...document.querySelectorAll('.menu__list li')].find(item => /^Power W/.test(item.innerText.trim()))";
    browser.until("its mark", &format!("/no values here/.test(({item})?.innerText ?? '')")).await?;
    browser.eval(&format!("({item}).querySelector('input').click()")).await?;
    browser.until("the chosen column", &shows("Power")).await
}

#[tokio::test]
async fn a_failed_process_list_is_reported_and_its_processes_stay() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let pid = std::process::id();
    let state = |code: u32, each: u32| {
        let errors =
            if code == 0 { json!({}) } else { json!({"nvmlDeviceGetComputeRunningProcesses_v3": code}) };
        let crowd: Vec<_> = (0..each).map(|n| json!({"pid": 4_000_000 + n, "mem_mib": 1})).collect();
        json!({ "gpus": [
            { "card": "h100", "uuid": "GPU-a", "processes": [{ "pid": pid, "mem_mib": 777 }], "errors": errors },
            { "card": "h100", "uuid": "GPU-b", "processes": crowd },
        ] })
    };
    let machine = Machine::start(&state(0, 0))?;
    open_node(&browser, &machine).await?;
    let table = "(document.querySelector('.grid--processes')?.innerText ?? '')";
    let shown = text_matches(table, &format!("\\b{pid}\\b"));
    browser.until("the process", &shown).await?;
    machine.set(&state(4, 0))?;
    let why = text_matches(table, "process list of this GPU could not be read: ");
    browser.until("the reason and the process", &format!("{why} && {shown}")).await?;
    machine.set(&state(0, 5_000))?;
    browser.until("the reason gone", &format!("!{why}")).await?;
    // 4,096 entries, one of which belongs to the other GPU.
    browser
        .until("how many more", &text_matches(table, "905 more processes of this GPU are not listed"))
        .await
}

#[tokio::test]
async fn a_gpu_lost_at_enumeration_does_not_hide_the_others() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start(&json!({ "gpus": [
        { "card": "h100", "lost_at_enumeration": true },
        { "card": "h100", "uuid": "GPU-b", "util": 41 },
    ] }))?;
    open_node(&browser, &machine).await?;
    browser.until("the loss", &text_matches(PAGE, "lost")).await?;
    browser
        .until(
            "the neighbour",
            &format!("{} || {}", text_matches(&row(0), "41"), text_matches(&row(1), "41")),
        )
        .await
}

#[tokio::test]
async fn a_hanging_gpu_or_driver_is_reported_until_it_responds() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let state = |hang: Value| json!({ "hang_ms": hang, "gpus": [{ "card": "a100-80g", "uuid": "GPU-a", "util": 41 }] });
    let machine = Machine::start(&state(json!({})))?;
    open_node(&browser, &machine).await?;
    browser.until("the card", &text_matches(&row(0), "41")).await?;
    let hang = text_matches(&row(0), "no answer from the driver since");
    machine.set(&state(json!({ "nvmlDeviceGetPowerUsage": 8_000 })))?;
    browser.until("the GPU's hang", &hang).await?;
    machine.set(&state(json!({})))?;
    browser
        .until("the end of the GPU's hang", &format!("!{hang} && {}", text_matches(&row(0), "41")))
        .await?;
    // The list of GPUs is read twice a minute: the hang must last until a busy machine has shown it.
    machine.set(&state(json!({ "nvmlDeviceGetCount_v2": 15_000 })))?;
    browser.until("the driver's hang", &text_matches(PAGE, "driver hangs.*has not returned")).await?;
    machine.set(&state(json!({})))?;
    browser.until("the end of the driver's hang", &format!("!{}", text_matches(PAGE, "driver hangs"))).await
}

#[tokio::test]
async fn a_failing_driver_reports_why_and_no_gpu_is_invented() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    for (init, pattern) in [(4, "permission"), (9, "not loaded"), (18, "mismatch|version")] {
        let machine = Machine::start(&json!({ "init": init, "gpus": [{ "card": "h100" }] }))?;
        open_node(&browser, &machine).await?;
        browser.until(pattern, &text_matches(PAGE, &format!("No GPUs:.*({pattern})"))).await?;
        let rows = browser
            .eval("document.querySelectorAll('.grid--gpus tbody tr:not(.grid__space)').length")
            .await?;
        ensure!(rows == 0, "{rows} cards are shown of a driver that refuses");
    }
    Ok(())
}

#[tokio::test]
async fn a_reading_without_permission_fails_and_the_others_continue() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start(&json!({ "gpus": [{
        "card": "a100-80g", "uuid": "GPU-a", "util": 41, "temp": 57,
        "errors": { "nvmlDeviceGetUtilizationRates": 4, "nvmlDeviceGetSerial": 4 },
    }] }))?;
    let node = open_node(&browser, &machine).await?;
    open_sheet(&browser, &machine, &node, "GPU-a").await?;
    wait_for_sheet(
        &browser,
        &["Utilisation\\s+(reading failed|failed)", "Serial number\\s+failed:.*permission", "Core\\s+57 °C"],
    )
    .await
}

#[tokio::test]
async fn unsupported_readings_of_each_card_are_named_and_never_zero() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start(&json!({ "gpus": [
        { "card": "gb10", "uuid": "GPU-gb10", "util": 41, "temp": 45, "power": { "energy_mj": 360_000_000 },
            "processes": [{ "pid": 1, "mem_mib": 2_048 }] },
        { "card": "gh200", "uuid": "GPU-gh200", "util": 42 },
        { "card": "a100-80g", "uuid": "GPU-a100", "util": 43 },
    ] }))?;
    let node = open_node(&browser, &machine).await?;
    open_sheet(&browser, &machine, &node, "GPU-gb10").await?;
    wait_for_sheet(
        &browser,
        &[
            "shares its memory with the host",
            "Utilisation\\s+41 %",
            "Used\\s+2 GiB",
            "reports only whether a kernel was running",
            "Not supported\\s+.*SM active",
            "Not supported\\s+.*Power limit",
            "Not supported\\s+.*NVLink received",
            "Not supported\\s+.*Uncorrected ECC errors",
        ],
    )
    .await?;
    let shares = [
        "Encoder",
        "Decoder",
        "JPEG",
        "Optical flow",
        "NVML index",
        "Memory utilisation",
        "Held by power limit",
        "Held by temperature",
        "NUMA node",
    ];
    until_no_zero(&browser, &shares).await?;
    open_sheet(&browser, &machine, &node, "GPU-gh200").await?;
    wait_for_sheet(
        &browser,
        &["Utilisation\\s+42 %", "SM active\\s+3[78] %", "Used\\s+.* of 95.6 GiB", "Not supported\\s+.*BAR1"],
    )
    .await?;
    open_sheet(&browser, &machine, &node, "GPU-a100").await?;
    wait_for_sheet(
        &browser,
        &["Utilisation\\s+43 %", "from Hopper on", "Not supported\\s+.*SM active.*Tensor cores"],
    )
    .await
}

#[tokio::test]
async fn a_vgpu_without_a_license_is_a_warning_that_says_what_it_costs() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let guest = |uuid: &str, licensed: bool| {
        json!({ "name": "GRID A100-20C", "uuid": uuid, "board": { "virtualization": 2 }, "util": 12,
            "license": { "licensed": licensed, "expires": [2030, 12, 31, 13, 5, 0] } })
    };
    let machine =
        Machine::start(&json!({ "gpus": [guest("GPU-licensed", true), guest("GPU-without", false)] }))?;
    let node = open_node(&browser, &machine).await?;
    browser.until("the flag of the second GPU", &format!("/no license/.test({})", row(1))).await?;
    browser.until("none of the first GPU", &format!("!/no license/.test({})", row(0))).await?;
    open_sheet(&browser, &machine, &node, "GPU-licensed").await?;
    wait_for_sheet(&browser, &["vGPU license\\s+licensed until 2030-12-31 13:05:00 GMT"]).await?;
    open_sheet(&browser, &machine, &node, "GPU-without").await?;
    let cost = "vGPU license\\s+◆ not licensed.*Server: the driver lowers the performance over time";
    wait_for_sheet(&browser, &["vGPU of this virtual machine", cost]).await?;
    browser.photograph("vgpu-unlicensed").await.map(drop)
}

#[tokio::test]
async fn each_mig_instance_is_shown_with_its_share() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start(&json!({ "gpus": [{
        "card": "h100", "uuid": "GPU-a", "mig": [
            { "gi": 1, "profile": "3g.40gb", "uuid": "MIG-one", "util": 60, "mem_used_mib": 10_240 },
            { "gi": 2, "profile": "1g.10gb", "uuid": "MIG-two", "util": 0, "mem_used_mib": 2_048 },
        ],
    }] }))?;
    let node = open_node(&browser, &machine).await?;
    browser
        .until(
            "both instances",
            &format!("{} && {}", text_matches(PAGE, "3g\\.40gb"), text_matches(PAGE, "1g\\.10gb")),
        )
        .await?;
    open_sheet(&browser, &machine, &node, "MIG-one").await?;
    wait_for_sheet(
        &browser,
        &[
            "GPU instance 1, compute instance 0",
            "Profile\\s+3g\\.40gb",
            "Used\\s+10 GiB of",
            "Part of\\s+GPU-a",
            "Not supported\\s+.*Utilisation",
        ],
    )
    .await
}

#[tokio::test]
async fn graphs_of_an_instance_without_a_utilisation_show_its_memory() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let relay = TestRelay::demo()?;
    browser.open(&relay.link().url).await?;
    browser.until("a list of jobs", "document.querySelector('.jobs a.job')").await?;
    browser.open(&relay.link().path("/job/48501")).await?;
    let metric = "document.querySelector('.heat-map select')";
    browser.until("memory by default", &format!("{metric}?.value === 'memory_gib'")).await?;
    browser
        .until("its size", "/^Memory [\\d.]+ GiB/.test(document.querySelector('.graph__title').innerText)")
        .await?;
    let select = format!(
        "({metric}.value = 'util_pct', {metric}.dispatchEvent(new Event('change', {{ bubbles: true }})))"
    );
    browser.eval(&select).await?;
    browser.until("why there is none", &text_matches(PAGE, "Not supported by this device")).await
}

#[tokio::test]
async fn an_old_driver_shows_its_readings_and_names_the_unsupported_ones() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start_with_driver(
        (440, 0),
        &json!({ "driver": "440.33.01", "gpus": [{
            "card": "a100-80g", "uuid": "GPU-a", "util": 41, "temp": 57, "mem_used_mib": 20_480, "power_mw": 310_000,
        }] }),
    )?;
    let node = open_node(&browser, &machine).await?;
    open_sheet(&browser, &machine, &node, "GPU-a").await?;
    wait_for_sheet(
        &browser,
        &[
            "Utilisation\\s+41 %",
            "Used\\s+20(\\.\\d)? GiB",
            "Draw\\s+310 W",
            "Core\\s+57 °C",
            "Driver\\s+440\\.33\\.01",
            "Not supported\\s+.*Reserved",
        ],
    )
    .await
}
