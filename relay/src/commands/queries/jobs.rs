//! `relay jobs`: jobs with what their GPUs do.

use super::{Answer, clock, or_dash, table, unknown_in_list};
use nodeglass_api::{Job, JobProgress, Snapshot};
use nodeglass_config::JobsArgs;
use nodeglass_platform::local_time::LocalTime;
use nodeglass_rules::text::{gib, grouped, shortened};

const HEADER: [&str; 14] = [
    "JOBID",
    "ID",
    "NAME",
    "USER",
    "STATE",
    "TIME",
    "LEFT",
    "PROGRESS",
    "NODES",
    "GPUS",
    "UTIL",
    "MEM GiB",
    "WATTS",
    "NODELIST(REASON)",
];
/// Longest name that is shown, in characters.
const MAX_NAME: usize = 28;

/// The table, or JSON. `now_s` is the time that the list of jobs describes, in s since 1970.
///
/// # Errors
/// JSON cannot be written.
pub fn answer(snapshot: &Snapshot, args: &JobsArgs, now_s: u64) -> anyhow::Result<Answer> {
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
    Ok(Answer::text(table(&HEADER, jobs.into_iter().map(|job| row(job, now_s)).collect(), 5)))
}

fn row(job: &Job, now_s: u64) -> Vec<String> {
    let started_s = job.started_at.map(|at| at.as_millis() / 1_000);
    let until_s = job.ended_at.map_or(now_s, |at| at.as_millis() / 1_000);
    let elapsed = started_s.filter(|_| job.is_active || job.ended_at.is_some());
    let elapsed = elapsed.map(|started| until_s.saturating_sub(started));
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
        totals.util_pct.map_or_else(String::new, |pct| format!("{pct:.0} %")),
        memory.map_or_else(String::new, |(used, total)| format!("{}/{}", gib(used), gib(total))),
        or_dash(totals.power_w.map(grouped)),
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
