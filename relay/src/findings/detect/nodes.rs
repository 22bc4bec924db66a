//! Problems of nodes: unreachable, a driver that hangs or is missing, memory and disks that are full.

use super::growth::Growth;
use crate::findings::input::DetectorInput;
use crate::findings::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::job::{GpuSet, Job};
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::{HostField, JobField};
use nodeglass_rules::text;

/// Swap in use, in bytes, from which on it matters.
const SWAP_BYTES: u64 = 1 << 30;
/// Share of the time in % in which processes wait for memory, from which on swapping matters.
const WAITING_PCT: u64 = 10;

/// Difference of clocks in s from which munge, by which SLURM authenticates, refuses credentials by default
/// (`--ttl`).
const REFUSED_SKEW_S: u64 = 300;

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    for node in input.nodes.values().filter(|node| node.head.link != Link::Ended) {
        let jobs = input.jobs_on(node);
        if jobs.is_empty() && !input.jobs.is_empty() {
            continue;
        }
        let mut add = |kind, severity, title, reason, evidence, since: Option<(u64, bool)>| {
            let mut detection = Detection::new(kind, node.name.to_string(), severity, title);
            detection.jobs = jobs.iter().map(|job| job.id).collect();
            detection.nodes = vec![node.name.clone()];
            (detection.reason, detection.evidence) = (reason, evidence);
            detection.since = since.or_else(|| Some(input.seen_now(node)));
            found.add(detection);
        };
        link(input, node, jobs, &mut add);
        if input.is_current(node) {
            host(input, node, &mut add);
        } else {
            let kinds = [
                FindingKind::HostMemory,
                FindingKind::Swapping,
                FindingKind::DiskFull,
                FindingKind::ClockSkew,
            ];
            found.unknown(&kinds, &node.name.to_string());
        }
    }
}

type Add<'a> = dyn FnMut(FindingKind, FindingSeverity, String, String, Vec<String>, Option<(u64, bool)>) + 'a;

fn link(input: &DetectorInput<'_>, node: &NodePicture, jobs: &[&Job], add: &mut Add<'_>) {
    let (name, error) = (&node.name, FindingSeverity::Error);
    let sampled = node.sampled_at_ms.map(|at_ms| (at_ms, false));
    let mut unreachable = |title: String, reason: String, evidence: Vec<String>| {
        add(FindingKind::NodeUnreachable, error, title, reason, evidence, sampled);
    };
    match &node.head.link {
        Link::Silent => {
            unreachable(format!("{name} does not answer"), format!("{name} not responding"), Vec::new())
        }
        Link::Down { reason, .. } => {
            unreachable(
                format!("{name} cannot be reached"),
                format!("{name} unreachable"),
                vec![reason.to_string()],
            );
        }
        Link::Connecting { failures: 1.. } => {
            unreachable(format!("{name} cannot be reached"), format!("{name} unreachable"), Vec::new());
        }
        // Many sites admit a user only to the nodes of own jobs.
        Link::Refused { .. }
            if jobs.iter().all(|job| job.user.as_str() != input.user) && !jobs.is_empty() => {}
        Link::Refused { reason, advice } => {
            let evidence = [reason, advice].into_iter().filter(|text| !text.as_str().is_empty());
            let evidence = evidence.map(ToString::to_string).collect();
            unreachable(
                format!("{name} refused the connection"),
                format!("{name} refuses connections"),
                evidence,
            );
        }
        Link::Live | Link::Late => {
            if let Some(stuck_ms) = node.head.driver_stuck_ms {
                let library = node.head.vendor().library();
                let since = Some((input.now.relay_ms.saturating_sub(stuck_ms), false));
                let title = format!("{library} on {name} does not answer");
                add(
                    FindingKind::DriverHang,
                    error,
                    title,
                    format!("{library} hangs on {name}"),
                    Vec::new(),
                    since,
                );
            } else if let Some(why) = &node.head.no_gpu
                && lacks_gpus(node, jobs)
            {
                let title = format!("No GPU can be read on {name}");
                let reason = format!("no GPU on {name}");
                add(FindingKind::NoGpu, error, title, reason, vec![why.to_string()], None);
            }
        }
        Link::Waiting | Link::Connecting { failures: 0 } | Link::Ended => {}
    }
}

/// Returns whether a job has GPUs on a node on which none can be read.
fn lacks_gpus(node: &NodePicture, jobs: &[&Job]) -> bool {
    jobs.iter().any(|job| match job.gpus_on(&node.name) {
        Some(GpuSet::Indices(indices)) => !indices.is_empty(),
        Some(GpuSet::Count(count)) => *count > 0,
        Some(GpuSet::Unknown) | None => job.gpu_count.is_some_and(|count| count > 0) && job.gpus.is_empty(),
    })
}

/// States when the memory of a node will be exhausted, where no limit of a job protects it.
fn memory_forecast(input: &DetectorInput<'_>, node: &NodePicture) -> Option<(String, Vec<String>)> {
    let total = node.host.value(HostField::MemTotal)?;
    let used = node.host.value(HostField::MemUsed)?;
    let is_limited = node.job_usage.iter().any(|usage| usage.row.value(JobField::MemLimit).is_some());
    // What is almost exhausted needs no forecast.
    if is_limited || used.saturating_mul(100) >= total.saturating_mul(input.thresholds.host_memory_pct.into())
    {
        return None;
    }
    let starts = input.jobs_on(node).iter().filter_map(|job| job.start);
    let started_ms = starts.map(|start| input.now.to_relay_ms(start)).max().unwrap_or(0);
    let peaks = input.series.get(&node.name)?.host().peaks();
    let growth = Growth::of(peaks, input.thresholds.forecast_minutes, started_ms, input.now.relay_ms)?;
    let forecast = growth.reaches(total as f64, input.thresholds.forecast_hours)?;
    let title = format!("The memory of {} will be exhausted in about {}", node.name, forecast.likely);
    let in_use = format!("{} of {} GiB in use", text::gib(used), text::gib(total));
    Some((title, vec![growth.text(), in_use, forecast.text()]))
}

/// Returns by how many seconds the clock of a node is ahead of the login node's, if it matters, and since when that
/// has been visible.
fn clock_skew(input: &DetectorInput<'_>, node: &NodePicture) -> Option<(i64, Option<(u64, bool)>)> {
    let series = input.series.get(&node.name)?;
    let ahead_ms = series.clock_ahead_ms()?.saturating_sub(input.now.wall_ahead_ms);
    let least_ms = u64::from(input.thresholds.clock_skew_seconds) * 1_000;
    (ahead_ms.unsigned_abs() >= least_ms)
        .then(|| (ahead_ms.saturating_add(ahead_ms.signum() * 500) / 1_000, Some(input.seen_now(node))))
}

fn host(input: &DetectorInput<'_>, node: &NodePicture, add: &mut Add<'_>) {
    let (name, value) = (&node.name, |field| node.host.value(field));
    let share = |used, total| {
        let (used, total) = (value(used)?, value(total)?);
        (total > 0).then(|| (used.saturating_mul(100) / total, used, total))
    };
    let amount = |used: u64, total: u64| format!("{} of {} GiB", text::gib(used), text::gib(total));
    if let Some((pct, used, total)) = share(HostField::MemUsed, HostField::MemTotal)
        && pct >= u64::from(input.thresholds.host_memory_pct)
    {
        let title = format!("The memory of {name} is almost exhausted: {}", amount(used, total));
        let evidence = vec![format!("{pct} % in use")];
        add(
            FindingKind::HostMemory,
            FindingSeverity::Warning,
            title,
            format!("{name} memory almost full"),
            evidence,
            None,
        );
    }
    if let Some((title, evidence)) = memory_forecast(input, node) {
        let reason = format!("{name} memory growing");
        add(FindingKind::HostMemory, FindingSeverity::Warning, title, reason, evidence, None);
    }
    if let Some((ahead_s, since)) = clock_skew(input, node) {
        let side = if ahead_s > 0 { "ahead of" } else { "behind" };
        let span = text::span(ahead_s.unsigned_abs());
        let title = format!("The clock of {name} is {span} {side} the login node's");
        let severity = match ahead_s.unsigned_abs() {
            REFUSED_SKEW_S.. => FindingSeverity::Error,
            _ => FindingSeverity::Warning,
        };
        add(FindingKind::ClockSkew, severity, title, format!("{name} clock skew"), Vec::new(), since);
    }
    let waits = value(HostField::PsiMem).is_some_and(|pct| pct >= WAITING_PCT);
    if let Some(swap) = value(HostField::SwapUsed).filter(|bytes| *bytes >= SWAP_BYTES)
        && waits
    {
        let title = format!("{name} swaps: {} GiB", text::gib(swap));
        let psi = value(HostField::PsiMem).unwrap_or_default();
        let evidence = vec![format!("processes wait for memory {psi} % of the time")];
        add(
            FindingKind::Swapping,
            FindingSeverity::Warning,
            title,
            format!("{name} swapping"),
            evidence,
            None,
        );
    }
    let scratch = node.head.facts.as_ref().and_then(|facts| facts.scratch.as_ref());
    let disks = [
        ("/dev/shm", HostField::ShmUsed, HostField::ShmTotal),
        ("/tmp", HostField::TmpUsed, HostField::TmpTotal),
        (scratch.map_or("scratch", |path| path.as_str()), HostField::ScratchUsed, HostField::ScratchTotal),
    ];
    let full: Vec<String> = disks
        .into_iter()
        .filter_map(|(path, used, total)| {
            let (pct, used, total) = share(used, total)?;
            (pct >= u64::from(input.thresholds.disk_pct))
                .then(|| format!("{path} {pct} % full ({})", amount(used, total)))
        })
        .collect();
    if let Some(first) = full.first() {
        let title = format!("{name}: {first}");
        add(
            FindingKind::DiskFull,
            FindingSeverity::Warning,
            title,
            format!("{name} disk full"),
            full.clone(),
            None,
        );
    }
}
