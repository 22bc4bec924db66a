//! `relay list`: GPUs by node, free or used, with who uses them since when; nvgpu's table.

use super::{Answer, age, ago, or_dash, table, unknown_in_list};
use nodeglass_api::{Gpu, Job, Node, Process, Snapshot, Timestamp};
use nodeglass_config::ListArgs;
use nodeglass_protocol::{GpuField, ProcessField};
use nodeglass_rules::text::{count, gib, process_name};
use std::collections::BTreeSet;

const HEADER: [&str; 10] =
    ["GPU", "STATUS", "TYPE", "UTIL", "MEM GiB", "TEMP", "MHz", "USERS", "SINCE", "PIDS  COMMAND"];

/// The table, or JSON.
///
/// # Errors
/// JSON cannot be written.
pub fn answer(snapshot: &Snapshot, args: &ListArgs) -> anyhow::Result<Answer> {
    if let Some(answer) = unknown_in_list(snapshot, args) {
        return answer.into_json_list(args.json);
    }
    let jobs = args.job.as_ref().map(|named| named.ids(&snapshot.jobs));
    let gpus = snapshot.gpus.iter().filter(|gpu| is_selected(gpu, snapshot, args, jobs.as_ref()));
    let gpus: Vec<&Gpu> = gpus.collect();
    match args.json {
        true => Answer::json(&gpus),
        false => Ok(text(snapshot, &gpus, args, age::now_ms(snapshot))),
    }
}

/// Returns whether the GPUs of a node without GPUs would be listed.
fn is_missed(node: &Node, snapshot: &Snapshot, args: &ListArgs) -> bool {
    let is_of_job = |job: &Job| {
        args.job.as_ref().is_none_or(|named| named.selects(job))
            && args.login.as_ref().is_none_or(|user| job.user == *user)
    };
    let has_job =
        || snapshot.jobs.iter().any(|job| job.is_active && job.nodes.contains(&node.name) && is_of_job(job));
    node.gpus.is_empty()
        && args.node.as_ref().is_none_or(|name| name.as_str() == node.name)
        && (args.job.is_none() && args.login.is_none() || has_job())
}

fn is_selected(gpu: &Gpu, snapshot: &Snapshot, args: &ListArgs, jobs: Option<&BTreeSet<u32>>) -> bool {
    let of_user = |user: &String| {
        let jobs = snapshot.jobs.iter().filter(|job| job.user == *user).map(|job| job.id);
        let mut own = jobs.filter(|id| gpu.jobs.iter().any(|job| job.job == *id));
        own.next().is_some() || holders(gpu, snapshot).any(|process| process.user.as_ref() == Some(user))
    };
    args.node.as_ref().is_none_or(|node| node.as_str() == gpu.node)
        && jobs.is_none_or(|ids| gpu.jobs.iter().any(|job| ids.contains(&job.job)))
        && args.login.as_ref().is_none_or(of_user)
}

/// The processes on a GPU.
pub(super) fn holders<'a>(gpu: &'a Gpu, snapshot: &'a Snapshot) -> impl Iterator<Item = &'a Process> {
    snapshot.processes.iter().filter(|process| process.gpu == gpu.uuid && process.node == gpu.node)
}

/// Returns how many processes of a GPU are not listed, as a sentence; `None` if all are.
pub(super) fn unlisted(gpu: &Gpu, snapshot: &Snapshot) -> Option<String> {
    let listed = holders(gpu, snapshot).count();
    let more = (gpu.processes? as usize).checked_sub(listed).filter(|more| *more > 0)?;
    Some(match listed {
        0 => count(more, "process is not listed", "processes are not listed"),
        _ => count(more, "more process is not listed", "more processes are not listed"),
    })
}

fn text(snapshot: &Snapshot, gpus: &[&Gpu], args: &ListArgs, now_ms: u64) -> Answer {
    let mut out = String::new();
    let nodes: Vec<&Node> = snapshot.nodes.iter().collect();
    for node in &nodes {
        let own: Vec<&&Gpu> = gpus.iter().filter(|gpu| gpu.node == node.name).collect();
        if own.is_empty() {
            continue;
        }
        if nodes.len() > 1 {
            let gap = if out.is_empty() { "" } else { "\n" };
            out += &format!("{gap}{}{}\n", node.name, state(node));
        } else if !node.connection.is_current() {
            out += &format!("{}{}\n", node.name, state(node));
        }
        out += &table(&HEADER, own.iter().map(|gpu| row(gpu, snapshot, now_ms)).collect(), 3);
    }
    let missing = nodes.iter().filter(|node| is_missed(node, snapshot, args)).map(|node| {
        let why = node.no_gpu.as_ref().or(node.reason.as_ref());
        format!("{}: {}", node.name, why.map_or_else(|| node.connection.name().to_owned(), Clone::clone))
    });
    let missing: Vec<String> = missing.collect();
    if out.is_empty() {
        let why = match (missing.is_empty(), snapshot.gpus.is_empty()) {
            (true, true) => "no GPUs: no running job, and no listed machine".to_owned(),
            (true, false) => "no GPU matches".to_owned(),
            (false, _) => missing.join("\n"),
        };
        return Answer { notice: Some(why), ..Answer::default() };
    }
    Answer { text: out, notice: (!missing.is_empty()).then(|| missing.join("\n")), code: 0 }
}

fn state(node: &Node) -> String {
    match (node.connection.is_current(), &node.reason) {
        (true, _) => String::new(),
        (false, Some(reason)) => format!("  {}: {reason}", node.connection.name()),
        (false, None) => format!("  {}", node.connection.name()),
    }
}

fn row(gpu: &Gpu, snapshot: &Snapshot, now_ms: u64) -> Vec<String> {
    let processes: Vec<&Process> = holders(gpu, snapshot).collect();
    let value = |field| gpu.readings.value(field);
    let mut users: BTreeSet<&str> =
        processes.iter().map(|process| process.user.as_deref().unwrap_or("?")).collect();
    let since = processes.iter().filter_map(|process| process.started_at).min();
    let pids: Vec<String> = processes.iter().map(|process| process.pid.to_string()).collect();
    let commands: BTreeSet<String> = processes.iter().map(|process| command(process)).collect();
    let mut held = format!("{}  {}", pids.join(","), commands.into_iter().collect::<Vec<_>>().join(","));
    let unlisted = unlisted(gpu, snapshot);
    if processes.is_empty() && unlisted.is_none() && !gpu.jobs.is_empty() {
        let jobs = snapshot.jobs.iter().filter(|job| gpu.jobs.iter().any(|own| own.job == job.id));
        users.extend(jobs.map(|job| job.user.as_str()));
        let ids: Vec<_> = gpu.jobs.iter().map(|own| own.job.to_string()).collect();
        held = format!("no process of job {}", ids.join(","));
    }
    if let Some(unlisted) = unlisted {
        held += &format!("  ({unlisted})");
    }
    let used = value(GpuField::MemUsed).zip(value(GpuField::MemTotal));
    vec![
        gpu.index.to_string(),
        status(gpu, &processes).to_owned(),
        model(gpu),
        value(GpuField::Util).map_or_else(String::new, |pct| format!("{pct} %")),
        used.map_or_else(String::new, |(used, total)| format!("{}/{}", gib(used), gib(total))),
        or_dash(value(GpuField::Temp)),
        or_dash(value(GpuField::SmClock)),
        users.into_iter().collect::<Vec<_>>().join(","),
        since.map_or_else(String::new, |at| ago(seconds_since(at, now_ms))),
        gpu.fault.clone().unwrap_or_else(|| held.trim().to_owned()),
    ]
}

pub(super) fn seconds_since(at: Timestamp, now_ms: u64) -> u64 {
    now_ms.saturating_sub(at.as_millis()) / 1_000
}

/// `[ ]` free, `[~]` used, `[!]` used by an unknown holder, or not known.
fn status(gpu: &Gpu, processes: &[&Process]) -> &'static str {
    let is_unknown = processes.iter().any(|process| process.user.is_none());
    let is_read = gpu.connection.is_current() && gpu.fault.is_none();
    match () {
        () if !is_read || is_unknown || gpu.has_unknown_holder() => "[!]",
        () if gpu.is_free() => "[ ]",
        () if !gpu.jobs.is_empty() || gpu.is_divided() || gpu.processes.is_some_and(|held| held > 0) => "[~]",
        () => "[!]",
    }
}

pub(super) fn model(gpu: &Gpu) -> String {
    let name = gpu.name.as_deref().unwrap_or(&gpu.vendor);
    let name = name.strip_prefix("NVIDIA ").unwrap_or(name);
    match gpu.mig.as_ref().and_then(|mig| mig.profile.as_deref()) {
        Some(profile) if !name.contains(profile) => format!("{name} {profile}"),
        _ => name.to_owned(),
    }
}

/// Returns what a user calls a process.
pub(super) fn command(process: &Process) -> String {
    process_name(process.args.as_deref(), process.command.as_deref()).unwrap_or_else(|| "?".to_owned())
}

/// Memory of a process on its GPU, in GiB.
pub(super) fn gpu_mem(process: &Process) -> String {
    process.readings.value(ProcessField::GpuMem).map_or_else(String::new, gib)
}
