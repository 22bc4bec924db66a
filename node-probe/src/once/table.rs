//! A report as a terminal table: one row per GPU, their processes, the host, and notes on missing
//! values.

use super::NodeReport;
use nodeglass_protocol::field::{Field, Vendors};
use nodeglass_protocol::gpu::{FactReading, Problem};
use nodeglass_protocol::probe::{
    GpuFacts, GpuHealth, GpuSample, HostSample, ProcessSample, SourceState, SourceStatus,
};
use nodeglass_protocol::{GpuField, Reading, Text, Vendor};
use nodeglass_rules::text::shortened;
use nodeglass_rules::throttle::{self, reason};
use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    fs::File,
    io::IsTerminal,
};

/// Width without a terminal.
const DEFAULT_WIDTH: usize = 120;
/// Indent of wrapped lines.
const INDENT: &str = "   ";
/// Narrower terminals get truncated lines.
const MIN_WIDTH: usize = 40;
/// Mark of an unsupported reading.
const UNSUPPORTED: &str = "–";
/// Mark of a failed reading.
const FAILED: &str = "!";
/// Mark of a reading that was not taken.
const NOT_YET: &str = "…";

/// Style of the table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// Width in columns.
    pub width: usize,
    /// Whether to use colours, which only repeat what the text states.
    pub colour: bool,
}

impl Style {
    /// Style for an output: the width is the terminal's or `COLUMNS`; no colour if `NO_COLOR` is set
    /// or it is not a terminal.
    pub fn of(output: &File) -> Self {
        let columns = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
        let terminal = || rustix::termios::tcgetwinsize(output).ok().map(|size| usize::from(size.ws_col));
        let width = columns.or_else(terminal).filter(|width| *width > 0).unwrap_or(DEFAULT_WIDTH);
        let is_plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty())
            || std::env::var_os("TERM").is_some_and(|term| term == "dumb");
        Self { width: width.max(MIN_WIDTH), colour: !is_plain && output.is_terminal() }
    }
}

/// Renders the table.
pub fn of(report: &NodeReport, style: &Style) -> String {
    let mut page = Page { style: *style, ..Page::default() };
    page.title(report);
    page.gpus(report);
    page.processes(report);
    page.host(&report.sample.host, report.hello.cpus);
    page.notes();
    page.text
}

/// Severity of a cell.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Tone {
    #[default]
    Plain,
    Dim,
    Warn,
    Alarm,
}

/// A table cell.
#[derive(Clone, Debug, Default)]
struct Cell {
    text: String,
    tone: Tone,
    /// Whether it spans all following columns.
    spans: bool,
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self { text, ..Self::default() }
    }
}

/// A column with its title, alignment and the minimum terminal width for which it is shown.
struct Column {
    title: &'static str,
    is_right: bool,
    from_width: usize,
}

const fn column(title: &'static str, is_right: bool, from_width: usize) -> Column {
    Column { title, is_right, from_width }
}

/// Positions of the columns whose titles depend on the vendor.
const UTIL: usize = 2;
const CORE_CLOCK: usize = 6;

/// The last column takes the remaining width.
const GPU_COLUMNS: [Column; 9] = [
    column("GPU", true, 0),
    column("Model", false, 0),
    column("Util", true, 0),
    column("Memory", true, 0),
    column("Temp", true, 0),
    column("Power", true, 60),
    column("SM clock", true, 90),
    column("Mem clock", true, 105),
    column("State", false, 0),
];
const PROCESS_COLUMNS: [Column; 7] = [
    column("GPU", true, 0),
    column("PID", true, 0),
    column("User", false, 0),
    column("Memory", true, 0),
    column("SM", true, 70),
    column("Job", false, 90),
    column("Command", false, 0),
];

/// The index of a GPU, after its vendor unless that is NVIDIA.
fn place(facts: &GpuFacts) -> String {
    match facts.vendor {
        Vendor::Unknown | Vendor::Nvidia => facts.index.to_string(),
        Vendor::Amd | Vendor::Intel | Vendor::Tpu => facts.label(),
    }
}

/// Subject of a reading.
#[derive(Clone, Copy)]
enum Subject {
    Node,
    Gpu(Vendor, u32),
    Process(u32),
}

impl Subject {
    fn plural(self) -> &'static str {
        match self {
            Self::Node => "nodes",
            Self::Gpu(..) => "GPUs",
            Self::Process(_) => "processes",
        }
    }
}

#[derive(Default)]
struct Page {
    style: Style,
    text: String,
    /// Legend of the marks for missing readings.
    signs: BTreeSet<&'static str>,
    /// Failed readings, grouped by reason: first subject, reading, reason and count.
    failures: BTreeMap<(&'static str, &'static str, String), (usize, Subject)>,
}

impl Page {
    /// Appends a line, wrapped if it is too long.
    fn line(&mut self, line: &str) {
        for part in wrapped(line, self.style.width) {
            self.text.push_str(&part);
            self.text.push('\n');
        }
    }

    fn title(&mut self, report: &NodeReport) {
        let hello = &report.hello;
        let drivers: Vec<_> = hello.sources.iter().map(|source| self.driver(source)).collect();
        let line = format!("{}  {}", hello.host, drivers.join("; "));
        self.line(&line);
    }

    /// Versions of a source, or why it is unavailable.
    fn driver(&mut self, source: &SourceState) -> String {
        let (vendor, platform) = (source.vendor.name(), source.vendor.platform());
        match &source.status {
            SourceStatus::Ready(versions) => format!(
                "{vendor} driver {}, {platform} {}",
                self.shown(Subject::Node, "driver version", &versions.driver, ToString::to_string),
                self.shown(Subject::Node, "platform version", &versions.platform, ToString::to_string)
            ),
            SourceStatus::Absent { reason } | SourceStatus::Confined { reason } => reason.to_string(),
        }
    }

    /// Formats a reading; a missing one adds a note.
    fn shown<T>(
        &mut self,
        subject: Subject,
        what: &'static str,
        reading: &Reading<T>,
        text: impl FnOnce(&T) -> String,
    ) -> String {
        match reading {
            Reading::Value(value) => text(value),
            Reading::Unsupported => {
                self.signs.insert("–  not supported by this GPU, driver or host");
                UNSUPPORTED.into()
            }
            Reading::NotYet => {
                self.signs.insert("…  not read yet");
                NOT_YET.into()
            }
            Reading::Failed(why) => {
                let key = (subject.plural(), what, why.to_string());
                self.failures.entry(key).or_insert((0, subject)).0 += 1;
                FAILED.into()
            }
        }
    }

    fn gpus(&mut self, report: &NodeReport) {
        let gpus: Vec<_> = report.hello.gpus.iter().zip(&report.sample.gpus).collect();
        if gpus.is_empty() {
            return;
        }
        let health = report.health.iter().map(Some).chain(std::iter::repeat(None));
        let rows: Vec<_> =
            gpus.into_iter().zip(health).map(|((facts, gpu), health)| self.gpu(facts, gpu, health)).collect();
        self.text.push('\n');
        let vendors: Vendors = report.hello.gpus.iter().map(|gpu| gpu.vendor).collect();
        let mut columns = GPU_COLUMNS;
        columns[UTIL].title = match vendors {
            Vendors::One(Vendor::Tpu) => GpuField::Util.metric().wording(vendors).short,
            _ => columns[UTIL].title,
        };
        columns[CORE_CLOCK].title = GpuField::SmClock.metric().wording(vendors).title;
        self.table(&columns, &rows);
    }

    fn gpu(&mut self, facts: &GpuFacts, gpu: &GpuSample, health: Option<&GpuHealth>) -> Vec<Cell> {
        let place = if facts.mig_parent.is_some() { "MIG".to_owned() } else { place(facts) };
        let subject = Subject::Gpu(facts.vendor, facts.index);
        let short = |name: &Text| name.as_str().trim_start_matches("NVIDIA ").to_owned();
        if let Some(fault) = &gpu.fault {
            let mut row = vec![Cell::default(); GPU_COLUMNS.len()];
            (row[0].text, row[1].text) = (place, facts.name.value().map(short).unwrap_or_default());
            row[2] = Cell { text: fault.to_string(), tone: Tone::Alarm, spans: true };
            return row;
        }
        let model = self.shown(subject, "model", &facts.name, short);
        let mut cell = |what: &'static str, reading: &Reading<u64>, text: &dyn Fn(u64) -> String| {
            let text = self.shown(subject, what, reading, |value| text(*value));
            let tone = match reading {
                Reading::Value(_) => Tone::Plain,
                Reading::Failed(_) => Tone::Warn,
                Reading::Unsupported | Reading::NotYet => Tone::Dim,
            };
            Cell { text, tone, spans: false }
        };
        let mut temperature = cell("temperature", &gpu.temp_c, &|degrees| format!("{degrees} °C"));
        let hot = facts.temp_slowdown_c.value().zip(gpu.temp_c.value());
        if hot.is_some_and(|(limit, now)| *now + 3 >= u64::from(*limit)) {
            temperature.tone = Tone::Warn;
        }
        let limit = gpu.power_limit_mw.value().map_or(String::new(), |limit| format!("/{}", watts(*limit)));
        let total = gpu.mem_total_bytes.value().map_or(String::new(), |total| format!("/{}", gib(*total)));
        vec![
            place.into(),
            model.into(),
            cell("utilisation", &gpu.util_pct, &|share| format!("{share} %")),
            cell("memory", &gpu.mem_used_bytes, &|used| format!("{}{total} GiB", gib(used))),
            temperature,
            cell("power", &gpu.power_mw, &|power| format!("{}{limit} W", watts(power))),
            cell("SM clock", &gpu.sm_clock_mhz, &|clock| format!("{clock} MHz")),
            cell("memory clock", &gpu.mem_clock_mhz, &|clock| format!("{clock} MHz")),
            state(gpu, health),
        ]
    }

    fn processes(&mut self, report: &NodeReport) {
        if report.sample.gpus.is_empty() {
            return;
        }
        // The processes of an unreadable GPU are unknown.
        let unread = report.sample.gpus.iter().filter(|gpu| gpu.fault.is_some()).count();
        let missing = report.missing_processes();
        if report.processes.is_empty() && missing.is_empty() && unread == report.sample.gpus.len() {
            return;
        }
        self.text.push('\n');
        missing.iter().for_each(|line| self.line(line));
        if report.processes.is_empty() {
            match (missing.is_empty(), unread) {
                (true, 0) => self.line("No processes on the GPUs."),
                (true, _) => self.line("No processes on the GPUs that can be read."),
                (false, _) => {}
            }
            return;
        }
        let rows: Vec<_> = report.processes.iter().map(|process| self.process(report, process)).collect();
        self.table(&PROCESS_COLUMNS, &rows);
    }

    fn process(&mut self, report: &NodeReport, process: &ProcessSample) -> Vec<Cell> {
        let ProcessSample { facts, now } = process;
        let gpu = report.hello.gpus.iter().find(|gpu| gpu.uuid == facts.gpu);
        let subject = Subject::Process(facts.pid);
        let command = match (&facts.args, &facts.command) {
            (Reading::Value(args), _) if !args.is_empty() => args.to_string(),
            (_, command) => self.shown(subject, "command", command, ToString::to_string),
        };
        let user = match &facts.user {
            // Its identity cannot be determined any more.
            Reading::NotYet if matches!(facts.command, Reading::Failed(_)) => FAILED.to_owned(),
            user => self.shown(subject, "user", user, ToString::to_string),
        };
        let memory = |bytes: &u64| format!("{} GiB", gib(*bytes));
        vec![
            gpu.map_or_else(|| "?".to_owned(), place).into(),
            facts.pid.to_string().into(),
            user.into(),
            self.shown(subject, "memory", &now.gpu_mem_bytes, memory).into(),
            self.shown(subject, "utilisation", &now.sm_pct, |share| format!("{share} %")).into(),
            facts.job.as_ref().map_or_else(String::new, ToString::to_string).into(),
            command.into(),
        ]
    }

    fn host(&mut self, host: &HostSample, cpus: u32) {
        let mut parts = vec![format!("{cpus} CPUs")];
        let mut part = |reading: &Reading<u64>, text: &dyn Fn(u64) -> String| {
            parts.extend(reading.value().map(|value| text(*value)));
        };
        part(&host.cpu_pct, &|share| format!("{share} % busy"));
        part(&host.load1_centi, &|load| format!("load {}.{:02}", load / 100, load % 100));
        let of =
            |total: &Reading<u64>| total.value().map_or(String::new(), |total| format!("/{}", gib(*total)));
        part(&host.mem_used_bytes, &|used| format!("memory {}{} GiB", gib(used), of(&host.mem_total_bytes)));
        let swap = host.swap_used_bytes.clone();
        if swap.value().is_some_and(|used| *used > 0) {
            part(&swap, &|used| format!("swap {}{} GiB", gib(used), of(&host.swap_total_bytes)));
        }
        part(&host.net_rx_bytes_s, &|rate| format!("network in {}", rate_of(rate)));
        part(&host.net_tx_bytes_s, &|rate| format!("out {}", rate_of(rate)));
        let line = format!("Host  {}", parts.join(", "));
        self.text.push('\n');
        self.line(&line);
    }

    fn notes(&mut self) {
        let failures = std::mem::take(&mut self.failures);
        let failed = failures.into_iter().map(|((plural, what, why), (count, first))| match first {
            Subject::Gpu(vendor, index) if count == 1 => {
                format!("{FAILED}  {} {what}: {why}", vendor.device_label(index))
            }
            Subject::Process(pid) if count == 1 => format!("{FAILED}  process {pid} {what}: {why}"),
            Subject::Node => format!("{FAILED}  {what}: {why}"),
            Subject::Gpu(..) | Subject::Process(_) => format!("{FAILED}  {what} of {count} {plural}: {why}"),
        });
        let signs = std::mem::take(&mut self.signs).into_iter().map(str::to_owned);
        let notes: Vec<_> = failed.chain(signs).collect();
        if !notes.is_empty() {
            self.text.push('\n');
        }
        notes.iter().for_each(|note| self.line(note));
    }

    /// Pads columns to their content; the last one takes the rest and is truncated.
    fn table(&mut self, columns: &[Column], rows: &[Vec<Cell>]) {
        let shown: Vec<_> =
            (0..columns.len()).filter(|at| columns[*at].from_width <= self.style.width).collect();
        let width = |at: &usize| {
            let cells = rows.iter().map(|row| &row[*at]).filter(|cell| !cell.spans);
            let cells = cells.map(|cell| cell.text.chars().count());
            cells.chain([columns[*at].title.chars().count()]).max().unwrap_or(0)
        };
        let widths: Vec<_> = shown.iter().map(width).collect();
        let title = |at: &usize| Cell { text: columns[*at].title.into(), tone: Tone::Dim, spans: false };
        let titles: Vec<_> = shown.iter().map(title).collect();
        let body = rows.iter().map(|row| shown.iter().map(|at| row[*at].clone()).collect());
        for row in std::iter::once(titles).chain(body) {
            let mut line = Line { left: self.style.width, colour: self.style.colour, text: String::new() };
            for (position, (cell, at)) in row.iter().zip(&shown).enumerate() {
                let is_last = cell.spans || position + 1 == shown.len();
                line.cell(cell, widths[position], columns[*at].is_right && !cell.spans, is_last);
                if cell.spans {
                    break;
                }
            }
            self.text.push_str(line.text.trim_end());
            self.text.push('\n');
        }
    }
}

/// A line under construction, with the remaining width.
struct Line {
    left: usize,
    colour: bool,
    text: String,
}

impl Line {
    fn cell(&mut self, cell: &Cell, width: usize, is_right: bool, is_last: bool) {
        let gap = if self.text.is_empty() { 0 } else { 2 };
        let room = self.left.saturating_sub(gap);
        if room == 0 {
            return;
        }
        let text = shortened(&cell.text, room);
        let length = text.chars().count();
        let padding = width.min(room).saturating_sub(length);
        let (before, after) = if is_right { (padding, 0) } else { (0, padding) };
        let after = if is_last { 0 } else { after };
        self.text.push_str(&" ".repeat(gap + before));
        self.text.push_str(&painted(&text, cell.tone, self.colour));
        self.text.push_str(&" ".repeat(after));
        self.left -= (gap + before + length + after).min(self.left);
    }
}

fn painted(text: &str, tone: Tone, colour: bool) -> String {
    let code = match tone {
        _ if !colour || text.is_empty() => return text.to_owned(),
        Tone::Plain => return text.to_owned(),
        Tone::Dim => "2",
        Tone::Warn => "33",
        Tone::Alarm => "1;31",
    };
    format!("\u{1b}[{code}m{text}\u{1b}[0m")
}

/// Wraps a line at words to at most `width` characters; further lines are indented.
fn wrapped(line: &str, width: usize) -> Vec<String> {
    let mut parts: Vec<String> = Vec::new();
    let mut rest = line;
    while rest.chars().count() + if parts.is_empty() { 0 } else { INDENT.len() } > width {
        let room = width - if parts.is_empty() { 0 } else { INDENT.len() };
        let end = rest.char_indices().nth(room).map_or(rest.len(), |(end, _)| end);
        // A word longer than the line is broken anywhere.
        let fits = rest.char_indices().nth(room + 1).map_or(rest, |(end, _)| &rest[..end]);
        let at = fits.rfind(' ').filter(|at| *at > 0).unwrap_or(end);
        parts.push(indented(parts.is_empty(), &rest[..at]));
        rest = rest[at..].trim_start();
    }
    parts.push(indented(parts.is_empty(), rest));
    parts
}

fn indented(is_first: bool, part: &str) -> String {
    if is_first { part.to_owned() } else { format!("{INDENT}{part}") }
}

/// Returns the problems of a GPU and the reasons that lower its clocks, the most severe first.
fn state(gpu: &GpuSample, health: Option<&GpuHealth>) -> Cell {
    let errors = gpu.ecc_uncorrected.value().filter(|errors| **errors > 0);
    let errors = errors.map(|errors| (Tone::Alarm, format!("{errors} uncorrected memory errors")));
    let problems = health.into_iter().flat_map(|health| {
        let set = GpuHealth::readings()
            .iter()
            .filter(|row| matches!(row.reading(health), FactReading::Flag(Reading::Value(true))));
        set.filter_map(|row| match row.problem? {
            Problem::Error(_) => Some((Tone::Alarm, row.title.to_lowercase())),
            Problem::Warning(_) => Some((Tone::Warn, row.title.to_lowercase())),
        })
    });
    let reasons = gpu.throttle_reasons.value().copied().unwrap_or(0);
    let is_set = |bits: u32| reasons & u64::from(bits) != 0;
    // Hardware slowdown is also set together with its specific reasons.
    let is_specific = is_set(reason::HW_THERMAL | reason::HW_POWER_BRAKE);
    let named = throttle::REASONS.iter().filter(|reason| is_set(reason.bit));
    let named = named.filter(|reason| reason.bit != reason::HW_SLOWDOWN || !is_specific);
    let named = named.map(|reason| {
        let tone = if reason.is_normal { Tone::Plain } else { Tone::Alarm };
        (tone, reason.name.to_owned())
    });
    let mut flags: Vec<(Tone, String)> = errors.into_iter().chain(problems).chain(named).collect();
    flags.sort_by_key(|(tone, _)| Reverse(*tone));
    let tone = flags.first().map(|(tone, _)| *tone).unwrap_or_default();
    let texts: Vec<_> = flags.into_iter().map(|(_, text)| text).collect();
    Cell { text: texts.join(", "), tone, spans: false }
}

/// Formats bytes in GiB, with one decimal below 100.
fn gib(bytes: u64) -> String {
    let gib = bytes as f64 / f64::from(1 << 30);
    if gib < 99.95 { format!("{gib:.1}") } else { format!("{gib:.0}") }
}

fn watts(milliwatts: u64) -> u64 {
    (milliwatts + 500) / 1_000
}

/// Formats a data rate with a suitable unit.
fn rate_of(bytes_s: u64) -> String {
    match bytes_s {
        0..1_000_000 => format!("{:.0} kB/s", bytes_s as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.1} MB/s", bytes_s as f64 / 1e6),
        _ => format!("{:.1} GB/s", bytes_s as f64 / 1e9),
    }
}
