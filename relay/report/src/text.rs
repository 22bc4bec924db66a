//! Reports as text for a terminal and as Markdown for a ticket.

use super::units::aligned;
use super::{Accounting, GpuReport, Report, Totals};
use nodeglass_protocol::Text;
use nodeglass_protocol::finding::Finding;
use nodeglass_protocol::note::Note;
use nodeglass_rules::attention::{Folded, fold_run};
use nodeglass_rules::gpu_hours::{GpuHours, USAGE_KNOWN_PCT};
use nodeglass_rules::number::{carbon, energy, money, percent, precise};
use nodeglass_rules::text::{bytes, count, exact_span as duration};
use std::fmt::Write as _;

/// Formats a moment, in s since 1970, in the time zone of the reader.
pub type FormatTime<'a> = &'a dyn Fn(u64) -> String;

/// A report as text. `note` is a sentence about where it comes from, if that is not obvious.
pub fn text(report: &Report, note: Option<&str>, clock: FormatTime<'_>) -> String {
    let mut out = format!("{}\n", heading(report));
    if let Some(note) = note {
        let _ = writeln!(out, "{note}");
    }
    out.push('\n');
    let facts = facts(report);
    let width = facts.iter().map(|(name, _)| name.chars().count()).max().unwrap_or(0);
    for (name, value) in &facts {
        let _ = writeln!(out, "  {name:width$}  {value}");
    }
    if !report.gpus.is_empty() {
        out.push('\n');
        out.push_str(&aligned(&gpu_table(report), 1));
    }
    if !report.advice.is_empty() {
        out.push_str("\nAdvice\n");
        for advice in &report.advice {
            let _ = writeln!(out, "  {}", advice.text);
            if let Some(line) = &advice.sbatch {
                let _ = writeln!(out, "    {line}");
            }
        }
    }
    for (title, entries) in timed(report, clock) {
        let _ = writeln!(out, "\n{title}");
        let width = entries.iter().map(|entry| entry.time.chars().count()).max().unwrap_or(0);
        for Entry { time, text, lines } in entries {
            let _ = writeln!(out, "  {time:>width$}  {text}");
            for line in lines {
                let _ = writeln!(out, "  {:width$}  {line}", "");
            }
        }
    }
    if report.lacks_notes {
        let _ = write!(out, "\n{LACKS_NOTES}\n");
    }
    out
}

/// The statement that notes may be missing.
const LACKS_NOTES: &str = "Notes may be missing.";

/// A report as Markdown.
pub fn markdown(report: &Report, note: Option<&str>, clock: FormatTime<'_>) -> String {
    let mut out = format!("## {}\n\n", escaped(&heading(report)));
    if let Some(note) = note {
        let _ = writeln!(out, "{}\n", escaped(note));
    }
    out.push_str("| | |\n|---|---|\n");
    for (name, value) in facts(report) {
        let _ = writeln!(out, "| {name} | {} |", escaped(&value));
    }
    if !report.gpus.is_empty() {
        let table = gpu_table(report);
        out.push('\n');
        for (row, cells) in table.iter().enumerate() {
            let cells: Vec<_> = cells.iter().map(|cell| escaped(cell)).collect();
            let _ = writeln!(out, "| {} |", cells.join(" | "));
            if row == 0 {
                let _ = writeln!(out, "|---|{}", "---:|".repeat(cells.len() - 1));
            }
        }
    }
    if !report.advice.is_empty() {
        out.push_str("\n### Advice\n\n");
        for advice in &report.advice {
            let line = advice.sbatch.as_ref().map_or(String::new(), |line| format!(" `{line}`"));
            let _ = writeln!(out, "* {}{line}", escaped(advice.text.as_str()));
        }
    }
    for (title, entries) in timed(report, clock) {
        let _ = write!(out, "\n### {title}\n\n");
        for Entry { time, text, lines } in entries {
            let _ = writeln!(out, "* {time}: {}", escaped(&text));
            for line in lines {
                let _ = writeln!(out, "  * {}", escaped(&line));
            }
        }
    }
    if report.lacks_notes {
        let _ = write!(out, "\n{LACKS_NOTES}\n");
    }
    out
}

/// A finding or a note of a report.
struct Entry {
    time: String,
    text: String,
    /// The places of the processes when a finding began, a line for each group.
    lines: Vec<String>,
}

/// Returns the findings and the notes, each with its title, unless there are none.
fn timed(report: &Report, clock: FormatTime<'_>) -> impl Iterator<Item = (&'static str, Vec<Entry>)> {
    let time = |at_ms: u64| format!("{}, {}", clock(at_ms / 1_000), time_of(at_ms, report));
    let finding = |entry: Folded<'_>| Entry {
        time: time(entry.since().at_ms),
        text: finding_text(&entry),
        lines: entry.finding.capture.iter().flat_map(|capture| capture.lines()).collect(),
    };
    let note = |note: &Note| Entry { time: time(note.at_ms), text: note_text(note), lines: Vec::new() };
    let parts = [
        ("Findings", fold_run(&report.findings).into_iter().map(finding).collect::<Vec<_>>()),
        ("Notes", report.notes.iter().map(note).collect()),
    ];
    parts.into_iter().filter(|(_, entries)| !entries.is_empty())
}

/// A time, in ms since 1970, from the start of the job on: `after 2 h 05 min`.
fn time_of(at_ms: u64, report: &Report) -> String {
    let at_s = i64::try_from(at_ms / 1_000).unwrap_or(i64::MAX);
    match report.start_s.map(|start_s| at_s.saturating_sub(start_s)) {
        None | Some(..0) => "before the start".to_owned(),
        Some(after_s) => format!("after {}", duration(after_s.unsigned_abs())),
    }
}

/// Returns a finding with its duration, which an event does not have: `GPU 3 is too hot, for 12 min`.
fn finding_text(entry: &Folded<'_>) -> String {
    let Finding { kind, title, evidence, .. } = entry.finding;
    match entry.ended_ms() {
        // Its evidence states how often it occurred before.
        _ if kind.is_event() => {
            evidence.iter().fold(title.to_string(), |text, line| format!("{text}, {line}"))
        }
        Some(ended_ms) => {
            let lasted_s = ended_ms.saturating_sub(entry.since().at_ms) / 1_000;
            format!("{title}, for {}", duration(lasted_s))
        }
        None => format!("{title}, until now"),
    }
}

/// The text of a note, with the node or rank that it is of.
fn note_text(note: &Note) -> String {
    note.origin().map_or_else(|| note.text.to_string(), |origin| format!("{} ({origin})", note.text))
}

fn heading(report: &Report) -> String {
    let state = match (report.state.as_str(), report.is_final) {
        ("", true) => "ended",
        (state, _) => state,
    };
    let exit = report.exit.as_ref().map_or(String::new(), |exit| format!(", exit code {exit}"));
    format!("Job {} {} · {} · {state}{exit}", report.label, report.name, report.user)
}

/// The facts that are known, by name.
fn facts(report: &Report) -> Vec<(&'static str, String)> {
    let totals = &report.totals;
    let mut facts = vec![("Partition", report.partition.to_string())];
    let mut add = |name, value: Option<String>| facts.extend(value.map(|value| (name, value)));
    add("Account", report.account.as_ref().map(Text::to_string));
    add("Application", report.application.as_ref().map(Text::to_string));
    add("Nodes", Some(report.node_count.to_string()));
    let limit = report.limit_s.map_or(String::new(), |limit_s| format!(" of {}", duration(limit_s)));
    add("Run time", Some(format!("{}{limit}", duration(report.elapsed_s))));
    if totals.gpus == 0 {
        add("Observed", Some(format!("{} of the run", percent(report.observed_pct))));
    } else {
        add("GPUs", Some(totals.gpus.to_string()));
        add("GPU hours", Some(gpu_hours(report)));
        let measure = if report.has_sm_activity() { " (SM activity of MIG instances)" } else { "" };
        add("Utilisation", totals.util_pct.map(|util| format!("{} on average{measure}", percent(util))));
        add("Distribution", totals.util_distribution_pct.as_ref().map(distribution));
        let mem = totals.gpu_mem_peak_bytes.map(|peak| of(peak as f64, totals.gpu_mem_total_bytes));
        add("GPU memory", mem.map(|mem| format!("at most {mem} of one GPU")));
        let known = |amount| of_known_power(amount, totals.energy_known_pct);
        add("Energy", totals.energy_kwh.map(|kwh| known(energy(kwh))));
        add("CO₂", totals.co2_kg.map(|kg| known(carbon(kg))));
        let cost = totals.cost.as_ref().map(|cost| money(cost.amount, cost.currency.as_str()));
        add("Cost", cost.map(|cost| format!("{cost} for all allocated GPU hours")));
    }
    add(
        "Host memory",
        totals.mem_peak_bytes.map(|peak| format!("at most {}", of(peak as f64, totals.mem_requested_bytes))),
    );
    let allocated = totals.cpus_allocated.map_or(String::new(), |cpus| format!(" of {cpus}"));
    add("CPUs", totals.cpus_used.map(|used| format!("{}{allocated} on average", precise(used))));
    add("PCIe", moved(totals.pcie_rx_bytes, totals.pcie_tx_bytes, ["received", "sent"]));
    add("GPU links", moved(totals.link_rx_bytes, totals.link_tx_bytes, ["received", "sent"]));
    add(
        "Network",
        moved(totals.nodes_net_rx_bytes, totals.nodes_net_tx_bytes, ["received", "sent by its nodes"]),
    );
    add(
        "Disks",
        moved(totals.nodes_disk_read_bytes, totals.nodes_disk_write_bytes, ["read", "written on its nodes"]),
    );
    add("Coverage", usage_known(totals));
    let throttled = totals.throttled.iter();
    let throttled: Vec<_> =
        throttled.map(|one| format!("{} {}", one.reason, duration(one.seconds.round() as u64))).collect();
    add("Throttled", (!throttled.is_empty()).then(|| throttled.join(", ")));
    add("Faults", faults(totals));
    add("Accounting", report.accounting.as_ref().map(accounting));
    facts
}

/// Returns the observed GPU hours and their use; for a job that no relay watched, its allocation.
fn gpu_hours(report: &Report) -> String {
    let hours = GpuHours::from(&report.totals);
    match hours.observed > 0.0 {
        true => hours.sentence(),
        false => format!("{} allocated, not observed", precise(hours.allocated)),
    }
}

/// An energy, with the share of the GPU time for which the power is known unless it is all of it.
fn of_known_power(amount: String, known_pct: f64) -> String {
    match known_pct {
        99.5.. => amount,
        known => format!("{amount} over the {} of the GPU time with known power", percent(known)),
    }
}

/// Tenths of the scale that occurred: `0–10 %: 25 %, 90–100 %: 75 %` of the time.
fn distribution(bins: &[f64; 10]) -> String {
    let occurred = bins.iter().enumerate().filter(|(_, share)| **share >= 0.5);
    let bins: Vec<_> =
        occurred.map(|(bin, share)| format!("{}–{}: {share:.0} %", bin * 10, bin * 10 + 10)).collect();
    bins.join(", ")
}

fn moved(one: Option<f64>, other: Option<f64>, words: [&str; 2]) -> Option<String> {
    let parts = [one, other].into_iter().zip(words);
    let parts: Vec<_> = parts
        .filter_map(|(amount, word)| Some(format!("{} {word}", bytes(amount?.max(0.0) as u64))))
        .collect();
    (!parts.is_empty()).then(|| parts.join(", "))
}

/// Returns the part of the run that traffic, CPUs and host memory are of, unless that is nearly all of it.
fn usage_known(totals: &Totals) -> Option<String> {
    let known = totals.usage_known_pct;
    (known < USAGE_KNOWN_PCT)
        .then(|| format!("traffic, CPUs and host memory are known for {} of the run", percent(known)))
}

fn faults(totals: &Totals) -> Option<String> {
    let counts = [
        (u64::from(totals.xids), "Xid error", "Xid errors"),
        (totals.ecc_uncorrected.unwrap_or(0), "uncorrected ECC error", "uncorrected ECC errors"),
        (totals.ecc_corrected.unwrap_or(0), "corrected ECC error", "corrected ECC errors"),
        (
            totals.oom_kills.unwrap_or(0),
            "process killed at the memory limit",
            "processes killed at the memory limit",
        ),
    ];
    let counted = counts.into_iter().filter(|(number, ..)| *number > 0);
    let counted: Vec<_> = counted.map(|(number, one, many)| count(number as usize, one, many)).collect();
    (!counted.is_empty()).then(|| counted.join(", "))
}

/// Returns the statement of SLURM's accounting: `FAILED, exit code 3, MaxRSS 209 MiB`.
fn accounting(stated: &Accounting) -> String {
    let Accounting { state, exit_code, signal, step_exit_code, max_rss_bytes, reason, .. } = stated;
    let mut parts = vec![state.to_string(), format!("exit code {exit_code}")];
    parts.extend(signal.map(|signal| format!("signal {signal}")));
    // Steps that succeeded are not listed.
    parts.extend(step_exit_code.filter(|code| *code > 0).map(|code| format!("exit code {code} of a step")));
    parts.extend(max_rss_bytes.map(|peak| format!("MaxRSS {} of one task", bytes(peak))));
    parts.extend(reason.as_ref().map(|reason| format!("reason {reason}")));
    parts.join(", ")
}

fn gpu_table(report: &Report) -> Vec<Vec<String>> {
    let header = ["GPU", "Observed", "Util.", "Idle", "Peak memory", "Energy", "Xid"];
    let dash = || "–".to_owned();
    let row = |gpu: &GpuReport| {
        vec![
            format!("{}:{}", gpu.node, gpu.index),
            duration(gpu.observed_s.round() as u64),
            gpu.util_pct.map_or_else(dash, percent),
            gpu.idle_s.map_or_else(dash, |idle_s| duration(idle_s.round() as u64)),
            gpu.mem_peak_bytes.map_or_else(dash, |peak| of(peak as f64, gpu.mem_total_bytes)),
            gpu.energy_kwh.map_or_else(dash, energy),
            gpu.xids.to_string(),
        ]
    };
    [header.map(str::to_owned).to_vec()].into_iter().chain(report.gpus.iter().map(row)).collect()
}

fn of(part: f64, whole: Option<u64>) -> String {
    let whole = whole.map_or(String::new(), |whole| format!(" of {}", bytes(whole)));
    format!("{}{whole}", bytes(part.max(0.0) as u64))
}

/// Text that has no meaning in Markdown.
fn escaped(text: &str) -> String {
    let is_special = |letter| matches!(letter, '|' | '*' | '_' | '`' | '<' | '[' | '\\' | '#' | '&' | '~');
    text.chars().flat_map(|letter| is_special(letter).then_some('\\').into_iter().chain([letter])).collect()
}
