//! Every reading and fact of a GPU reaches its sheet: after a change, the sheet shows the new value.

use anyhow::{Context, Result, bail};
use nodeglass_tests::{Browser, Machine, TIMEOUT};
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// UUID of the GPU whose readings change.
const H100: &str = "GPU-11111111-2222-3333-4444-555555555555";
/// UUID of a GPU that retires pages.
const T4: &str = "GPU-66666666-7777-8888-9999-aaaaaaaaaaaa";

/// A compared line: the group's title, the label, then the value (or its text) as a regular expression, before and
/// after the change.
type Line = (&'static str, &'static str, &'static str, &'static str);

/// Every reading of a Hopper GPU, with the values of [`before`] and of [`after`].
#[rustfmt::skip]
const READINGS: &[Line] = &[
    ("How busy it really is", "Utilisation", "^41 %", "^83 %"),
    ("How busy it really is", "SM active", "^37 %", "^71 %"),
    ("How busy it really is", "SM occupancy", "^21 %", "^29 %"),
    ("How busy it really is", "Tensor cores", "^17 %", "^44 %"),
    ("How busy it really is", "DRAM bandwidth", "^26 %", "^53 %"),
    ("How busy it really is", "FP64", "^3 %", "^7 %"),
    ("How busy it really is", "FP32", "^11 %", "^19 %"),
    ("How busy it really is", "FP16", "^5 %", "^9 %"),
    ("How busy it really is", "Graphics", "^39 %", "^78 %"),
    ("How busy it really is", "Memory utilisation", "^12 %", "^34 %"),
    ("Memory", "Used", "^20 GiB of 79.6 GiB", "^40 GiB of 79.6 GiB"),
    ("Memory", "Reserved", "^512 MiB", "^768 MiB"),
    ("Memory", "BAR1", "^6 MiB of 128 GiB", "^9 MiB of 128 GiB"),
    ("Power", "Draw", "^310 W", "^655 W"),
    ("Power", "Instantaneous", "^333 W", "^690 W"),
    ("Power", "Current limit", "^680 W", "^600 W.*lower than"),
    ("Power", "Energy", "^1(\\.[01]\\d?)? kWh", "^5(\\.[01]\\d?)? kWh"),
    ("Temperature", "Core", "^51 °C", "^◆ 86 °C"),
    ("Temperature", "Memory", "^58 °C", "^◆ 94 °C"),
    ("Temperature", "Fan", "^40 %", "^65 %"),
    ("Clocks", "SM", "^1,410 of 1,980 MHz", "^1,755 of 1,980 MHz"),
    ("Clocks", "Memory", "^1,313 of 2,619 MHz", "^2,619 of 2,619 MHz"),
    ("Clocks", "Graphics", "^1,425 of 1,990 MHz", "^1,770 of 1,990 MHz"),
    ("Clocks", "Video", "^1,200 of 1,700 MHz", "^1,500 of 1,700 MHz"),
    ("Clocks", "Performance state", "^P2", "^P0"),
    ("Clocks", "Held by power limit", "^\\d+ %", "^\\d+ %"),
    ("Throttling", "Power limit", "^active for", "^inactive"),
    ("Throttling", "Too hot \\(hardware\\)", "", "^◆ active for.*too hot"),
    ("Other engines", "Encoder", "^1 %", "^14 %"),
    ("Other engines", "Decoder", "^2 %", "^24 %"),
    ("Other engines", "JPEG", "^4 %", "^34 %"),
    ("Other engines", "Optical flow", "^6 %", "^46 %"),
    ("Links", "PCIe link", "^generation 5 ×16", "^◆ generation 3 ×8.*fewer lanes"),
    ("Links", "PCIe replays", "^2 retransmissions", "^1,234 retransmissions"),
    ("Links", "PCIe received", "^2 GiB/s", "^8 GiB/s"),
    ("Links", "PCIe sent", "^1 GiB/s", "^4 GiB/s"),
    ("Links", "NVLink received", "^(9|10)(\\.\\d)? GiB/s", "^(4[6-9]|50)(\\.\\d)? GiB/s"),
    ("Links", "NVLink sent", "^(19|20)(\\.\\d)? GiB/s", "^(8\\d|90)(\\.\\d)? GiB/s"),
    ("NVLinks", "Link 3", "^↓ .*MiB/s", "^◆ down"),
    ("NVLinks", "Link 4", "^↓ .*MiB/s", "^◆ ↓.* errors"),
    ("Memory errors", "Uncorrected, since driver load", "^0$", "^◆ 2.*may be wrong"),
    ("Memory errors", "Corrected, since driver load", "^3$", "^1,003$"),
    ("Memory errors", "Uncorrected, lifetime", "^1$", "^4$"),
    ("Memory errors", "Corrected, lifetime", "^12$", "^2,012$"),
    ("Memory errors", "Rows remapped, uncorrected", "^0$", "^◆ 5$"),
    ("Memory errors", "Rows remapped, corrected", "^1$", "^6$"),
    ("Memory errors", "Row remap pending", "^no", "^◆ yes.*next reset"),
    ("Memory errors", "Row remap failed", "^no", "^▲ yes.*must be replaced"),
    ("Events", ".*", "", "▲ Xid 79"),
];

/// Facts of the same GPU, with values that differ from the model's defaults.
#[rustfmt::skip]
const FACTS: &[(&str, &str, &str)] = &[
    ("Power", "Default limit", "^690 W"),
    ("Power", "Minimum limit", "^210 W"),
    ("Power", "Maximum limit", "^710 W"),
    ("Temperature", "Throttles at", "^88 °C"),
    ("Temperature", "Shuts down at", "^93 °C"),
    ("Temperature", "Core, maximum operating", "^84 °C"),
    ("Temperature", "Memory, maximum operating", "^96 °C"),
    ("Links", "PCIe link, maximum", "^generation 5 ×16"),
    ("Modes", "Compute mode", "(?i)exclusive"),
    ("Modes", "Persistence", "^off"),
    ("Modes", "ECC", "^on"),
    ("Modes", "MIG", "^off"),
    ("Modes", "Confidential computing", "^off"),
    ("Jobs", "", "No known job owns it"),
    ("Identity", "Model", "H100 of the test"),
    ("Identity", "UUID", "^GPU-11111111-2222"),
    ("Identity", "Serial number", "^987654$"),
    ("Identity", "NVML index", "^0$"),
    ("Identity", "Device file", "^/dev/nvidia5"),
    ("Identity", "PCI address", "(?i)4a:00"),
    ("Identity", "Architecture", "(?i)hopper"),
    ("Identity", "Compute capability", "^9.0"),
    ("Identity", "CUDA cores", "^16,384$"),
    ("Identity", "NUMA node", "^1$"),
    ("Identity", "Nearest CPUs", "\\d"),
    ("Identity", "VBIOS", "^96.00.77.00.07"),
    ("Identity", "Driver", "^550.54.15"),
    ("Identity", "CUDA \\(driver\\)", "^12.4"),
];

/// Retired pages of a GPU before Ampere.
const PAGES: &[Line] = &[
    ("Memory errors", "Pages retired, uncorrected", "^0$", "^1$"),
    ("Memory errors", "Pages retired, corrected", "^1$", "^3$"),
    ("Memory errors", "Page retirement pending", "^no", "^◆ yes.*reboot"),
];

#[tokio::test]
async fn every_changed_reading_updates_in_the_gpu_sheet() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start(&before())?;
    let node = open_node(&browser, &machine).await?;
    let sheet = |uuid: &str| machine.relay().link().path(&format!("{node}?gpu={uuid}"));
    browser.open(&sheet(H100)).await?;
    let old = READINGS.iter().map(|(group, label, old, _)| (*group, *label, *old));
    expect(&browser, old.chain(FACTS.iter().copied())).await?;
    machine.set(&after())?;
    expect(&browser, READINGS.iter().map(|(group, label, _, new)| (*group, *label, *new))).await
}

#[tokio::test]
async fn a_gpu_before_ampere_reports_its_retired_pages() -> Result<()> {
    let Some(browser) = Browser::start().await? else { return Ok(()) };
    let machine = Machine::start(&turing(&[7], &[], false))?;
    let node = open_node(&browser, &machine).await?;
    browser.open(&machine.relay().link().path(&format!("{node}?gpu={T4}"))).await?;
    expect(&browser, PAGES.iter().map(|(group, label, old, _)| (*group, *label, *old))).await?;
    machine.set(&turing(&[7, 8, 9], &[11], true))?;
    expect(&browser, PAGES.iter().map(|(group, label, _, new)| (*group, *label, *new))).await
}

/// Opens the link, and returns the path of the only node.
pub async fn open_node(browser: &Browser, machine: &Machine) -> Result<String> {
    browser.resize(1440, 900).await?;
    browser.open(&machine.relay().link().url).await?;
    let link = "(document.querySelector('a[href*=\"/node/\"]')?.getAttribute('href') \
        ?? (location.pathname.startsWith('/node/') ? location.pathname : null))";
    browser.until("the node", link).await?;
    let path = browser.eval(link).await?;
    let path = path.as_str().context("a path")?;
    Ok(path.split('?').next().unwrap_or_default().to_owned())
}

/// The content of the open sheet: for each group its title, and the label and text of each fact.
const OPEN_FACTS: &str = "[...document.querySelectorAll('dialog .facts')].map(group => [\
    group.firstElementChild.textContent, \
    [['', group.querySelector('.facts__note').textContent], \
     ...[...group.querySelectorAll('.fact')].map(fact => [fact.querySelector('dt').textContent, \
        fact.querySelector('b').textContent + ' ' + fact.querySelector('small').textContent].map(text => text.trim()))]])";

/// Waits until the sheet matches; an empty expectation matches anything.
async fn expect<'a>(
    browser: &Browser,
    lines: impl Iterator<Item = (&'a str, &'a str, &'a str)>,
) -> Result<()> {
    let lines: Vec<_> = lines.filter(|(_, _, value)| !value.is_empty()).collect();
    let start = Instant::now();
    loop {
        let found = browser.eval(&missing(&lines)).await?;
        let missing = found.as_array().context("a list")?;
        if missing.is_empty() {
            return Ok(());
        }
        if start.elapsed() > TIMEOUT {
            bail!("the sheet lacks:\n{}", serde_json::to_string_pretty(missing)?);
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// An expression for the lines that are missing, each with the text that is there instead.
fn missing(lines: &[(&str, &str, &str)]) -> String {
    let lines = json!(lines);
    format!(
        "(groups => {lines}.map(([group, label, value]) => {{ \
            const facts = groups.filter(([title]) => title === group).flatMap(([, facts]) => facts); \
            const found = facts.filter(([name]) => new RegExp('^' + label + '$').test(name)).map(([, text]) => text); \
            const wish = new RegExp(value.replace('(?i)', ''), value.startsWith('(?i)') ? 'i' : ''); \
            return found.some(text => wish.test(text)) ? null : {{ group, label, value, found }}; \
        }}).filter(line => line))({OPEN_FACTS})"
    )
}

fn before() -> Value {
    let mut card = hopper();
    merge(
        &mut card,
        json!({
            "util": 41, "mem_util": 12, "mem_used_mib": 20_480, "mem_reserved_mib": 512,
            "gpm": { "graphics": 39.0, "sm": 37.0, "occupancy": 21.0, "tensor": 17.0, "dram": 26.0,
                "fp64": 3.0, "fp32": 11.0, "fp16": 5.0 },
            "power_mw": 310_000, "power_limit_mw": 680_000,
            "power": { "average": 310_000, "instant": 333_000, "energy_mj": 3_650_000_000_u64 },
            "temp": 51, "thermal": { "mem": 58 }, "fan": 40,
            "sm_clock": 1_410, "mem_clock": 1_313, "clocks": { "graphics": 1_425, "video": 1_200 },
            "p_state": 2, "throttle": 4,
            "engines": { "encoder": 1, "decoder": 2, "jpeg": 4, "ofa": 6 },
            "pcie": { "generation": [5, 5, 5], "width": [16, 16], "replays": [2, 0],
                "rx_kib_s": 2_097_152, "tx_kib_s": 1_048_576, "bar1_mib": [131_072, 6] },
            "nvlink": { "rx_kib_s": 10_485_760, "tx_kib_s": 20_971_520 },
            "ecc_uncorrected": 0, "ecc_corrected": 3,
            "ecc": { "aggregate_uncorrected": 1, "aggregate_corrected": 12 },
            "remapped": { "corrected": 1, "uncorrected": 0 },
        }),
    );
    json!({ "gpus": [card] })
}

fn after() -> Value {
    let mut errors = vec![json!([0, 0, 0, 0, 0]); 4];
    errors.push(json!([0, 0, 7, 0, 0]));
    let mut card = hopper();
    merge(
        &mut card,
        json!({
            "util": 83, "mem_util": 34, "mem_used_mib": 40_960, "mem_reserved_mib": 768,
            "gpm": { "graphics": 78.0, "sm": 71.0, "occupancy": 29.0, "tensor": 44.0, "dram": 53.0,
                "fp64": 7.0, "fp32": 19.0, "fp16": 9.0 },
            "power_mw": 655_000, "power_limit_mw": 600_000,
            "power": { "average": 655_000, "instant": 690_000, "energy_mj": 18_050_000_000_u64 },
            "temp": 86, "thermal": { "mem": 94 }, "fan": 65,
            "sm_clock": 1_755, "mem_clock": 2_619, "clocks": { "graphics": 1_770, "video": 1_500 },
            "p_state": 0, "throttle": 0x40,
            "engines": { "encoder": 14, "decoder": 24, "jpeg": 34, "ofa": 46 },
            "pcie": { "generation": [3, 5, 5], "width": [8, 16], "replays": [1_234, 0],
                "rx_kib_s": 8_388_608, "tx_kib_s": 4_194_304, "bar1_mib": [131_072, 9] },
            "nvlink": { "rx_kib_s": 52_428_800, "tx_kib_s": 94_371_840, "down": [3], "errors": errors },
            "ecc_uncorrected": 2, "ecc_corrected": 1_003,
            "ecc": { "aggregate_uncorrected": 4, "aggregate_corrected": 2_012 },
            "remapped": { "corrected": 6, "uncorrected": 5, "pending": true, "failed": true },
            "xids": [79],
        }),
    );
    json!({ "gpus": [card] })
}

/// The state that does not change.
fn hopper() -> Value {
    json!({
        "card": "h100", "uuid": H100, "name": "NVIDIA H100 of the test", "minor": 5, "bus": 0x4a,
        "board": { "serial": "987654", "vbios": "96.00.77.00.07", "cores": 16_384, "socket": 1,
            "persistence": false, "compute_mode": 3 },
        "temp_slowdown": 88, "thermal": { "shutdown": 93, "gpu_max": 84, "mem_max": 96 },
        "power": { "default": 690_000, "min": 210_000, "max": 710_000 },
        "clocks": { "graphics_max": 1_990, "video_max": 1_700 },
    })
}

fn turing(single_bit: &[u64], double_bit: &[u64], pending: bool) -> Value {
    let retired = json!({ "single_bit": single_bit, "double_bit": double_bit, "pending": [pending, false] });
    json!({ "gpus": [{ "card": "t4", "uuid": T4, "retired": retired }] })
}

/// Adds the keys of `more`, group by group.
fn merge(to: &mut Value, more: Value) {
    match (to, more) {
        (Value::Object(to), Value::Object(more)) => {
            more.into_iter().for_each(|(key, value)| merge(to.entry(key).or_insert(Value::Null), value));
        }
        (to, more) => *to = more,
    }
}
