//! `relay ps`: processes on GPUs.

use super::list::{command, gpu_mem, seconds_since, unlisted};
use super::{Answer, age, clock, or_dash, table, unknown_in_list};
use nodeglass_api::{Gpu, Process, RunState, Snapshot};
use nodeglass_config::ListArgs;
use nodeglass_protocol::ProcessField;
use nodeglass_rules::text::gib;

const HEADER: [&str; 12] =
    ["NODE", "GPU", "PID", "USER", "JOB", "RANK", "GPU GiB", "SM %", "CPU %", "RAM GiB", "TIME", "COMMAND"];

/// The table, or JSON.
///
/// # Errors
/// JSON cannot be written.
pub fn answer(snapshot: &Snapshot, args: &ListArgs) -> anyhow::Result<Answer> {
    if let Some(answer) = unknown_in_list(snapshot, args) {
        return answer.into_json_list(args.json);
    }
    let jobs = args.job.as_ref().map(|named| named.ids(&snapshot.jobs));
    let is_selected = |process: &&Process| {
        args.node.as_ref().is_none_or(|node| process.node == node.as_str())
            && jobs.as_ref().is_none_or(|ids| process.job.is_some_and(|id| ids.contains(&id)))
            && args.login.as_ref().is_none_or(|user| process.user.as_ref() == Some(user))
    };
    let processes: Vec<&Process> = snapshot.processes.iter().filter(is_selected).collect();
    if args.json {
        return Answer::json(&processes);
    }
    let is_shown = |gpu: &&Gpu| {
        args.node.as_ref().is_none_or(|node| gpu.node == node.as_str())
            && jobs.as_ref().is_none_or(|ids| gpu.jobs.iter().any(|job| ids.contains(&job.job)))
    };
    let gpus = snapshot.gpus.iter().filter(is_shown);
    let unlisted =
        gpus.filter_map(|gpu| Some(format!("{}:{}: {}", gpu.node, gpu.index, unlisted(gpu, snapshot)?)));
    let unlisted: Vec<String> = unlisted.collect();
    let unlisted = (!unlisted.is_empty()).then(|| unlisted.join("\n"));
    if processes.is_empty() {
        let none = "no processes on GPUs".to_owned();
        return Ok(Answer { notice: Some(unlisted.unwrap_or(none)), ..Answer::default() });
    }
    let now_ms = age::now_ms(snapshot);
    let rows = processes.into_iter().map(|process| row(process, now_ms)).collect();
    Ok(Answer::text(table(&HEADER, rows, 1)).with_notice(unlisted))
}

fn row(process: &Process, now_ms: u64) -> Vec<String> {
    let value = |field| process.readings.value(field);
    let state = match process.state {
        Some(RunState::Uninterruptible) => " (D: cannot be killed)",
        Some(RunState::Zombie) => " (zombie)",
        Some(RunState::Stopped) => " (stopped)",
        Some(RunState::Alive) | None => "",
    };
    vec![
        process.node.clone(),
        or_dash(process.gpu_index),
        process.pid.to_string(),
        process.user.clone().unwrap_or_else(|| "?".to_owned()),
        or_dash(process.job),
        or_dash(process.rank.map(|rank| rank.global)),
        gpu_mem(process),
        or_dash(value(ProcessField::Sm)),
        or_dash(value(ProcessField::Cpu)),
        value(ProcessField::Rss).map_or_else(String::new, gib),
        process.started_at.map_or_else(String::new, |at| clock(seconds_since(at, now_ms))),
        format!("{}{state}", command(process)),
    ]
}
