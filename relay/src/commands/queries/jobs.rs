//! `relay jobs`: jobs with what their GPUs do.

use super::{Answer, clock, or_dash, table_with, unknown_in_list};
use nodeglass_api::{Job, JobProgress, JobTotals, Snapshot};
use nodeglass_config::JobsArgs;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_rules::text::{gib, grouped, shortened};

/// The columns. In a narrow terminal, those of the highest rank are left out first.
const COLUMNS: [(&str, u8); 14] = [
    ("JOBID", 0),
    ("ID", 9),
    ("NAME", 0),
    ("USER", 5),
    ("STATE", 0),
    ("TIME", 3),
    ("LEFT", 2),
    ("PROGRESS", 6),
    ("NODES", 7),
    ("GPUS", 1),
    ("UTIL", 0),
    ("MEM GiB", 8),
    ("WATTS", 8),
    ("NODELIST(REASON)", 4),
];
/// Number of columns of text at the beginning.
const TEXTS: usize = 5;
/// Mark of a sum that is not of all GPUs of the job.
const PARTIAL: &str = "*";
/// Longest name that is shown, in characters.
const MAX_NAME: usize = 28;

/// The table in lines of `width`, or as wide as it is; or JSON. `now_s` is the time that the list of jobs describes, in s
/// since 1970.
///
/// # Errors
/// JSON cannot be written.
pub fn answer(
    snapshot: &Snapshot,
    args: &JobsArgs,
    now_s: u64,
    width: Option<usize>,
) -> anyhow::Result<Answer> {
    let JobsArgs { list: args, hide_ended } = args;
    if let Some(answer) = unknown_in_list(snapshot, args) {
        return answer.into_json_list(args.json);
    }
    let is_selected = |job: &&Job| {
        args.node.as_ref().is_none_or(|node| job.nodes.iter().any(|name| name == node.as_str()))
            && args.job.as_ref().is_none_or(|named| named.selects(*job))
            && args.login.as_ref().is_none_or(|user| *user == job.user)
            && !(*hide_ended && job.has_ended())
    };
    let jobs: Vec<&Job> = snapshot.jobs.iter().filter(is_selected).collect();
    if args.json {
        return Answer::json(&jobs);
    }
    if jobs.is_empty() {
        return Ok(Answer { notice: Some("no jobs".to_owned()), ..Answer::default() });
    }
    let notice = partial_sums(&jobs);
    let rows = jobs.into_iter().map(|job| row(job, now_s)).collect();
    Ok(fitted(rows, width.unwrap_or(usize::MAX)).with_notice(notice))
}

/// The table, without the columns for which there is no room.
fn fitted(rows: Vec<Vec<String>>, width: usize) -> Answer {
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    loop {
        let header: Vec<&str> = shown.iter().map(|at| COLUMNS[*at].0).collect();
        let cells = rows.iter().map(|row| shown.iter().map(|at| row[*at].clone()).collect()).collect();
        let is_number = |column: usize| (TEXTS..COLUMNS.len() - 1).contains(&shown[column]);
        let text = table_with(&header, cells, is_number);
        let is_too_wide = text.lines().any(|line| line.chars().count() > width);
        let last = shown.iter().copied().max_by_key(|at| COLUMNS[*at].1).filter(|at| COLUMNS[*at].1 > 0);
        match last.filter(|_| is_too_wide) {
            Some(last) => shown.retain(|at| *at != last),
            None => {
                let left_out = (0..COLUMNS.len()).filter(|at| !shown.contains(at));
                let names: Vec<&str> = left_out.map(|at| COLUMNS[at].0).collect();
                let notice = (!names.is_empty()).then(|| {
                    format!("no room for {}: a wider terminal, a pipe, or --json", names.join(", "))
                });
                return Answer::text(text).with_notice(notice);
            }
        }
    }
}

/// Number of the GPUs in the sums of a job, and of all its GPUs, unless the sums are of all, or there are none.
fn partial(job: &Job) -> Option<(u32, u32)> {
    let JobTotals { gpus: read, util_pct, power_w, mem_used_bytes, .. } = job.totals;
    let has_sums = util_pct.is_some() || power_w.is_some() || mem_used_bytes.is_some();
    job.gpu_count.filter(|all| has_sums && (1..*all).contains(&read)).map(|all| (read, all))
}

/// Explains the mark of sums that are not of all GPUs.
fn partial_sums(jobs: &[&Job]) -> Option<String> {
    let partial: Vec<_> = jobs.iter().filter_map(|job| Some((&job.label, partial(job)?))).collect();
    match partial.as_slice() {
        [] => None,
        [(label, (read, all))] => Some(format!("{PARTIAL} of {read} of the {all} GPUs of job {label}")),
        several => Some(format!("{PARTIAL} of a part of the GPUs of {} jobs", several.len())),
    }
}

fn row(job: &Job, now_s: u64) -> Vec<String> {
    let mark = if partial(job).is_some() { PARTIAL } else { "" };
    let elapsed = job.run_time_s(now_s);
    let left = elapsed.zip(job.time_limit_s).filter(|_| job.is_active);
    let totals = &job.totals;
    let memory = totals.mem_used_bytes.zip(totals.mem_total_bytes);
    let place = match &job.reason {
        Some(reason) if !job.is_active => format!("({reason})"),
        _ => nodeglass_hostlist::compress(job.nodes.iter().map(String::as_str)),
    };
    vec![
        job.label.clone(),
        job.id.to_string(),
        shortened(&job.name, MAX_NAME),
        job.user.clone(),
        job.state.clone(),
        elapsed.map_or_else(String::new, clock),
        left.map_or_else(String::new, |(elapsed, limit)| clock(limit.saturating_sub(elapsed))),
        job.progress.as_ref().map_or_else(String::new, |progress| progress_text(progress, now_s)),
        job.node_count.to_string(),
        or_dash(job.gpu_count),
        totals.util_pct.map_or_else(String::new, |pct| format!("{pct:.0} %{mark}")),
        memory.map_or_else(String::new, |(used, total)| format!("{}/{}{mark}", gib(used), gib(total))),
        or_dash(totals.power_w.map(|watts| format!("{}{mark}", grouped(watts)))),
        place,
    ]
}

/// Returns its progress, and the latest time of its end: `42 % · ends ≈ 14:30`, or `42 % · part ends ≈ 14:30` of a bar that
/// may count only a part of the run.
fn progress_text(progress: &JobProgress, now_s: u64) -> String {
    let (latest_at, verb) = match progress.latest_end_at {
        Some(end_at) => (Some(end_at), "ends"),
        None => (progress.part_latest_end_at, "part ends"),
    };
    let end = latest_at.map(|end| {
        let end = LocalTime::of(end.as_millis() / 1_000);
        format!(" · {verb} ≈ {}", end.seen_from(&LocalTime::of(now_s)))
    });
    let done = match (progress.pct, progress.epoch) {
        (Some(pct), _) => format!("{:.0} %", pct.floor()),
        (None, Some(epoch)) => format!("epoch {:.0}: {:.0} %", epoch.number, (100.0 * epoch.ratio()).floor()),
        (None, None) => format!("{} {:.0}", progress.label, progress.done),
    };
    format!("{done}{}", end.unwrap_or_default())
}
