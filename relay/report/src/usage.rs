//! Usage and waste of many jobs, by week and project.

use nodeglass_protocol::Text;
use nodeglass_protocol::report::{JobUsage, ProjectUsage, Report, Usage, UsageSums, WeekUsage};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of jobs among the most wasteful ones.
const MAX_WASTEFUL: usize = 10;
/// Maximum number of jobs listed one by one.
const MAX_LISTED: usize = 500;
/// Maximum number of projects.
const MAX_PROJECTS: usize = 200;
/// Seconds of a week, which begins on Monday; 1970 began on a Thursday.
const WEEK_S: i64 = 7 * 86_400;
const MONDAY_S: i64 = 4 * 86_400;

/// Sums up the jobs of the last `days`, and lists the newest first. `utc_offset_s` is that of the time zone whose weeks these are,
/// at a time in s since 1970.
pub fn usage(reports: &[Report], days: u32, utc_offset_s: impl Fn(i64) -> i64) -> Usage {
    // The Monday as if it was in UTC, and as it is.
    let week = |report: &Report| {
        let start_s = report.start_s.unwrap_or(0);
        let offset_s = utc_offset_s(start_s);
        let monday_s = (start_s.saturating_add(offset_s) - MONDAY_S).div_euclid(WEEK_S) * WEEK_S + MONDAY_S;
        (monday_s, monday_s - offset_s)
    };
    let mut total = UsageSums::default();
    let mut weeks: BTreeMap<i64, (i64, UsageSums)> = BTreeMap::new();
    let mut projects: BTreeMap<Text, UsageSums> = BTreeMap::new();
    for report in reports {
        total.add(report);
        let (monday, monday_s) = week(report);
        weeks.entry(monday).or_insert_with(|| (monday_s, UsageSums::default())).1.add(report);
        projects.entry(project(report)).or_default().add(report);
    }
    let weeks = weeks.into_values().rev();
    let mut projects: Vec<_> =
        projects.into_iter().map(|(project, sums)| ProjectUsage { project, sums }).collect();
    projects.sort_by(|one, other| other.sums.gpu_hours_unused.total_cmp(&one.sums.gpu_hours_unused));
    projects.truncate(MAX_PROJECTS);
    let mut wasteful: Vec<&Report> =
        reports.iter().filter(|report| report.totals.gpu_hours_unused > 0.0).collect();
    let mut newest: Vec<&Report> = reports.iter().collect();
    newest.sort_by_key(|report| Reverse(report.start_s));
    wasteful.sort_by(|one, other| other.totals.gpu_hours_unused.total_cmp(&one.totals.gpu_hours_unused));
    Usage {
        days,
        total,
        weeks: weeks.map(|(monday_s, sums)| WeekUsage { monday_s, sums }).collect(),
        projects,
        wasteful: wasteful.into_iter().take(MAX_WASTEFUL).map(job).collect(),
        jobs: newest.into_iter().take(MAX_LISTED).map(job).collect(),
        incomplete: None,
    }
}

fn job(report: &Report) -> JobUsage {
    JobUsage {
        job: report.job,
        label: report.label.clone(),
        name: report.name.clone(),
        state: report.state.clone(),
        is_final: report.is_final,
        start_s: report.start_s,
        elapsed_s: report.elapsed_s,
        gpus: report.totals.gpus,
        gpu_hours_allocated: report.totals.gpu_hours_allocated,
        gpu_hours_observed: report.totals.gpu_hours_observed,
        gpu_hours_used: report.totals.gpu_hours_used,
        gpu_hours_unused: report.totals.gpu_hours_unused,
        gpu_hours_hung: report.totals.gpu_hours_hung,
        gpu_hours_slowed: report.totals.gpu_hours_slowed,
        util_pct: report.totals.util_pct,
        observed_pct: report.observed_pct,
    }
}

/// The account, or the job's name without the numbers at its end: `train` of `train-17`.
fn project(report: &Report) -> Text {
    if let Some(account) = report.account.clone().filter(|account| !account.as_str().is_empty()) {
        return account;
    }
    let name = report.name.as_str();
    let stem = name.trim_end_matches(|letter: char| letter.is_ascii_digit() || "-_.".contains(letter));
    Text::new(if stem.is_empty() { name } else { stem })
}
