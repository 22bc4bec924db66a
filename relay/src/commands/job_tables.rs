//! Tables of many jobs, for `relay history` and `relay me`.

use crate::commands::job_columns::{COLUMNS, Column, Value};
use nodeglass_api::Timestamp;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_protocol::report::{Usage, UsageSums};
use nodeglass_report::{NodeFault, Report, aligned};
use nodeglass_rules::gpu_hours::GpuHours;
use nodeglass_rules::number::{ColumnFormat, carbon, energy_unit, money};
use nodeglass_rules::{csv, text};

/// Maximum length of the name of a job or project, in characters; the report has them whole.
const MAX_NAME: usize = 28;

/// Jobs, one a line; `time` converts s since 1970.
pub(super) fn list(reports: &[Report], time: impl Fn(u64) -> LocalTime) -> String {
    if reports.is_empty() {
        return "No jobs in this time.\n".to_owned();
    }
    let header =
        ["Job", "Name", "State", "Started", "Run time", "GPUs", "GPU h", "Unused", "Util.", "Observed"];
    let unix_s = nodeglass_platform::clock::Clock::wall_ms() / 1_000;
    let (now, now_s) = (time(unix_s), unix_s.cast_signed());
    let hours = ColumnFormat::of(reports.iter().map(|report| report.totals.gpu_hours_allocated));
    let unused = ColumnFormat::of(reports.iter().map(|report| report.totals.gpu_hours_unused));
    let row = |report: &Report| {
        let state = match (report.is_final, report.state.as_str()) {
            (true, "") => "ended",
            (false, _) if report.is_outdated(now_s) => "unknown",
            (_, state) => state,
        };
        let start_s = report.start_s.and_then(|start_s| u64::try_from(start_s).ok());
        vec![
            report.label.to_string(),
            text::shortened(report.name.as_str(), MAX_NAME),
            state.to_owned(),
            start_s.map_or_else(dash, |start_s| time(start_s).seen_from(&now)),
            text::exact_span(report.elapsed_s),
            report.totals.gpus.to_string(),
            hours.write(report.totals.gpu_hours_allocated),
            unused.write(report.totals.gpu_hours_unused),
            report.totals.util_pct.map_or_else(dash, |util| format!("{util:.0} %")),
            format!("{:.0} %", report.observed_pct),
        ]
    };
    table(&header, reports.iter().map(row), 4)
}

/// Jobs as comma-separated values: plain numbers in the units of their headers, and times as in the HTTP API, such as
/// `2026-11-25T06:07:25Z`; empty if unknown.
pub(super) fn csv(reports: &[Report]) -> String {
    let mut out = COLUMNS.map(|column| column.name).join(",");
    out.push('\n');
    for report in reports {
        let cell = |column: &Column| match (column.read)(report) {
            Some(Value::Text(text)) => csv::cell(&text),
            Some(Value::Whole(number)) => number.to_string(),
            Some(Value::Time(at_s)) => {
                Timestamp::from_secs(at_s).map_or_else(String::new, |at| at.to_string())
            }
            Some(Value::Number(number)) => number.to_string(),
            Some(Value::Flag(flag)) => flag.to_string(),
            None => String::new(),
        };
        out.push_str(&COLUMNS.iter().map(cell).collect::<Vec<_>>().join(","));
        out.push('\n');
    }
    out
}

/// GPU hours and waste of each week and project, and the jobs that wasted most.
pub(super) fn usage(usage: &Usage, time: impl Fn(u64) -> LocalTime) -> String {
    let days = usage.days;
    if usage.total.jobs == 0 {
        return format!("No jobs in the last {days} days.\n");
    }
    let weeks = usage.weeks.iter().map(|week| {
        // Noon, so that a change of the clocks does not move the date.
        let noon_s = u64::try_from(week.monday_s).unwrap_or(0) + 43_200;
        (time(noon_s).date(), &week.sums)
    });
    let projects = usage
        .projects
        .iter()
        .map(|project| (text::shortened(project.project.as_str(), MAX_NAME), &project.sums));
    let hours = ColumnFormat::of(usage.wasteful.iter().map(|job| job.gpu_hours_unused));
    let jobs = usage.wasteful.iter().map(|job| {
        let util = job.util_pct.map_or_else(dash, |util| format!("{util:.0} %"));
        let unused = hours.write(job.gpu_hours_unused);
        vec![job.label.to_string(), text::shortened(job.name.as_str(), MAX_NAME), unused, util]
    });
    let mut out = format!("Your jobs of the last {days} days\n{}\n", GpuHours::from(&usage.total).sentence());
    if usage.total.jobs_unobserved > 0 {
        let unobserved = text::count(usage.total.jobs_unobserved as usize, "job was", "jobs were");
        out.push_str(&format!("{unobserved} not observed\n"));
    }
    out.extend(usage.incomplete.iter().map(|why| format!("{why}\n")));
    let costs = usage.total.costs.iter().map(|cost| money(cost.amount, cost.currency.as_str()));
    let costs = costs.collect::<Vec<_>>().join(" and ");
    if !costs.is_empty() {
        out.push_str(&format!("All hours cost {costs}\n"));
    }
    out.extend(usage.total.co2_kg.map(|kg| format!("The observed ones emitted {} of CO₂\n", carbon(kg))));
    out.push('\n');
    out.push_str(&sums("Started in the week of", &weeks.collect::<Vec<_>>()));
    out.push('\n');
    out.push_str(&sums("Project", &projects.collect::<Vec<_>>()));
    if !usage.wasteful.is_empty() {
        out.push_str("\nJobs with the most unused GPU hours\n");
        out.push_str(&table(&["Job", "Name", "Unused", "Util."], jobs, 2));
    }
    out
}

/// Faults of nodes, one a line.
pub(super) fn faults(faults: &[NodeFault], time: impl Fn(u64) -> LocalTime) -> String {
    if faults.is_empty() {
        return "No node faults in this time.\n".to_owned();
    }
    let now = time(nodeglass_platform::clock::Clock::wall_ms() / 1_000);
    let clock = |at_ms: u64| time(at_ms / 1_000).seen_from(&now);
    let row = |fault: &NodeFault| {
        let last = if fault.is_active { "now".to_owned() } else { clock(fault.last_ms) };
        let lasted = if fault.kind.is_event() { dash() } else { text::span(fault.lasted_s) };
        vec![
            fault.node.to_string(),
            fault.gpu.map_or_else(dash, |gpu| format!("GPU {gpu}")),
            fault.kind.name().to_owned(),
            fault.severity.name().to_owned(),
            clock(fault.first_ms),
            last,
            fault.times.to_string(),
            lasted,
            fault.jobs.to_string(),
        ]
    };
    let header = ["Node", "GPU", "Fault", "Severity", "First", "Last", "Times", "Lasted", "Jobs"];
    table(&header, faults.iter().map(row), 6)
}

/// A table of sums in GPU hours and energies, with the first column `first`.
fn sums(first: &str, rows: &[(String, &UsageSums)]) -> String {
    let parts = |sums: &UsageSums| {
        [
            sums.gpu_hours_observed,
            sums.gpu_hours_used,
            sums.gpu_hours_slowed,
            sums.gpu_hours_unused,
            sums.gpu_hours_idle,
            sums.gpu_hours_hung,
        ]
    };
    let allocated = ColumnFormat::of(rows.iter().map(|(_, sums)| sums.gpu_hours_allocated));
    let part = ColumnFormat::of(rows.iter().flat_map(|(_, sums)| parts(sums)));
    let kwh = || rows.iter().filter_map(|(_, sums)| sums.energy_kwh);
    let (unit, factor) = energy_unit(kwh());
    let energy = ColumnFormat::of(kwh().map(|kwh| kwh * factor));
    let row = |(name, sums): &(String, &UsageSums)| {
        let mut row =
            vec![name.clone(), text::grouped(sums.jobs.into()), allocated.write(sums.gpu_hours_allocated)];
        row.extend(parts(sums).map(|hours| part.write(hours)));
        row.push(sums.energy_kwh.map_or_else(dash, |kwh| energy.write(kwh * factor)));
        row
    };
    let header = [
        first,
        "Jobs",
        "GPU h",
        "Observed",
        "Used",
        "Slowed",
        "Unused",
        "Idle",
        "Hung",
        &format!("Energy {unit}"),
    ];
    table(&header, rows.iter().map(row), 1)
}

fn table(header: &[&str], rows: impl Iterator<Item = Vec<String>>, texts: usize) -> String {
    let header = header.iter().map(|name| (*name).to_owned()).collect();
    aligned(&[header].into_iter().chain(rows).collect::<Vec<_>>(), texts)
}

pub(super) fn or_empty(value: Option<impl ToString>) -> String {
    value.map_or_else(String::new, |value| value.to_string())
}

fn dash() -> String {
    "–".to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::JobId;
    use nodeglass_protocol::job::{Job, JobState};
    use nodeglass_report::JobRecord;

    /// A job on one GPU from Monday 2024-01-01 that ran for an hour, of which nothing was observed.
    fn report(id: u32, name: &str, account: Option<&str>, day: i64) -> Report {
        let start = 1_704_067_200 + day * 86_400;
        let job = Job {
            name: name.into(),
            account: account.map(Into::into),
            start: Some(start),
            ended: Some(start + 3_600),
            gpu_count: Some(1),
            ..Job::new(JobId(id), "alice".into(), JobState::Ended("COMPLETED".into()))
        };
        JobRecord { is_final: true, ..JobRecord::of(job, 0) }.report()
    }

    #[test]
    fn usage_is_summed_by_week_and_by_project() {
        let mut reports = vec![
            report(3, "train-12", None, 8),
            report(2, "train-11", None, 6),
            report(1, "fold", Some("bio"), 0),
        ];
        let totals = &mut reports[1].totals;
        (totals.gpu_hours_observed, totals.gpu_hours_used, totals.gpu_hours_unused) = (1.0, 0.25, 0.75);
        (totals.gpu_hours_idle, totals.gpu_hours_hung, totals.gpu_hours_slowed) = (0.25, 0.4, 0.1);
        let text = usage(&nodeglass_report::usage(&reports, 30, |_| 0), LocalTime::utc);
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
        let has = |row: &[&str]| rows.iter().any(|found| found.ends_with(row) || found.starts_with(row));
        assert!(
            has(&["2024-01-08", "1", "1.00", "0.00"])
                && has(&["2024-01-01", "2", "2.00", "1.00", "0.25", "0.10", "0.75"]),
            "{text}"
        );
        assert!(
            has(&["train", "2", "2.00", "1.00", "0.25", "0.10", "0.75"]) && has(&["bio", "1", "1.00"]),
            "{text}"
        );
        assert!(
            text.contains("\n1 of 3 GPU hours were observed (33 %): 0.25 used (0.1 of them lost to slow GPUs), 0.75 unused (0.25 idle, 0.4 lost to hangs, 0.1 partly busy)\n2 jobs were not observed"),
            "{text}"
        );
        assert!(has(&["2", "train-11", "0.75"]) && !has(&["3", "train-12"]), "{text}");
    }

    #[test]
    fn values_with_separators_are_quoted_and_formulas_are_text() {
        let out = csv(&[report(1, "=a,\"b\"", None, 0), report(2, "＝cmd()", None, 0)]);
        assert!(
            out.lines().nth(2).unwrap().contains(",\"'＝cmd()\","),
            "full-width signs begin formulas, too"
        );
        let line = out.lines().nth(1).unwrap();
        assert!(
            line.starts_with("1,1,\"'=a,\"\"b\"\"\",alice,,,COMPLETED,,,true,2024-01-01T00:00:00Z,2024-01-01T01:00:00Z,3600,,"),
            "{line}"
        );
    }

    #[test]
    fn a_job_that_runs_has_its_state_while_it_is_observed() {
        let at_s = (nodeglass_platform::clock::Clock::wall_ms() / 1_000).cast_signed();
        let running =
            Report { is_final: false, state: "RUNNING".into(), at_s, ..report(1, "train", None, 0) };
        assert!(list(std::slice::from_ref(&running), LocalTime::utc).contains(" RUNNING "));
        let outdated = Report { at_s: at_s - 86_400, ..running };
        assert!(list(&[outdated], LocalTime::utc).contains(" unknown "));
    }

    #[test]
    fn without_jobs_there_is_a_sentence() {
        assert_eq!(list(&[], LocalTime::utc), "No jobs in this time.\n");
        assert_eq!(
            usage(&nodeglass_report::usage(&[], 7, |_| 0), LocalTime::utc),
            "No jobs in the last 7 days.\n"
        );
    }
}
