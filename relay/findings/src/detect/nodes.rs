//! Problems of nodes: unreachable, a driver that hangs or is missing, memory and disks that are full.

use super::growth::Growth;
use crate::input::DetectorInput;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingKind, FindingSeverity};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{Link, NodePicture};
use nodeglass_protocol::{HostField, JobField, NodeName};
use nodeglass_rules::node_check::NodeCheck;
use nodeglass_rules::{ownership, text};

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
        if !input.is_examined(node) {
            continue;
        }
        if matches!(node.head.link, Link::Connecting { failures: 1.. }) {
            // Another attempt says nothing new of why the last one failed.
            let kinds = [FindingKind::NodeUnreachable, FindingKind::LoginRefused];
            found.unknown(&kinds, &node.name.to_string());
        }
        let mut problems: Vec<Detection> = link(input, node, jobs).into_iter().collect();
        if input.is_current(node) {
            problems.extend(host(input, node));
        } else {
            let kinds = [
                FindingKind::HostMemory,
                FindingKind::Swapping,
                FindingKind::DiskFull,
                FindingKind::ClockSkew,
            ];
            found.unknown(&kinds, &node.name.to_string());
        }
        for mut problem in problems {
            problem.jobs = jobs.iter().map(|job| job.id).collect();
            problem.nodes = vec![node.name.clone()];
            problem.since = problem.since.or_else(|| Some(input.seen_now(node)));
            found.add(problem);
        }
    }
}

/// A problem of a node, and what it is in a few words.
fn problem(kind: FindingKind, node: &NodePicture, title: String, reason: String) -> Detection {
    Detection { reason, ..Detection::new(kind, node.name.to_string(), title) }
}

/// Returns why a node, or its GPUs, cannot be read.
fn link(input: &DetectorInput<'_>, node: &NodePicture, jobs: &[&Job]) -> Option<Detection> {
    let name = &node.name;
    let unreachable = |title: String, reason: String| {
        let since = node.sampled_at_ms.map(|at_ms| (at_ms, false));
        Detection { since, ..problem(FindingKind::NodeUnreachable, node, title, reason) }
    };
    let is_of_jobs = !jobs.is_empty();
    match &node.head.link {
        Link::Silent => {
            let silent = unreachable(format!("{name} does not respond"), format!("{name} not responding"));
            Some(Detection { advice: Some(advice_on(name, "", is_of_jobs)), ..silent })
        }
        Link::Down { reason, .. } => {
            let down = unreachable(format!("{name} cannot be reached"), format!("{name} unreachable"));
            let advice = Some(advice_on(name, reason.as_str(), is_of_jobs));
            Some(Detection { evidence: vec![reason.to_string()], advice, ..down })
        }
        // Many sites admit a user only to the nodes of own jobs.
        Link::Refused { .. }
            if jobs.iter().all(|job| job.user.as_str() != input.user) && !jobs.is_empty() =>
        {
            None
        }
        Link::Refused { reason, advice } => {
            let refused = match input.refused_logins.is_some_and(|nodes| nodes.contains(name)) {
                true => Detection {
                    kind: FindingKind::LoginRefused,
                    ..unreachable(format!("{name} cannot be logged in to"), format!("{name} without login"))
                },
                false => unreachable(
                    format!("{name} refused the connection"),
                    format!("{name} refuses connections"),
                ),
            };
            let advice = match advice.as_str() {
                "" => advice_on(name, reason.as_str(), is_of_jobs),
                advice => text::capitalised(advice),
            };
            Some(Detection { evidence: vec![reason.to_string()], advice: Some(advice), ..refused })
        }
        Link::Live | Link::Late => unreadable_gpus(input, node, jobs),
        Link::Waiting | Link::Connecting { .. } | Link::Ended => None,
    }
}

/// Returns what to do about a node that cannot be reached, by the reason that the launcher states. SLURM knows nothing of
/// a machine that only a list names.
fn advice_on(name: &NodeName, reason: &str, is_of_jobs: bool) -> String {
    let port = reason.split_once(" port ").and_then(|(_, rest)| rest.split_once(':')).map(|(port, _)| port);
    let check = match port {
        _ if reason.contains(" was not found") && is_of_jobs => NodeCheck::Name,
        _ if reason.contains(" was not found") => NodeCheck::Spelling,
        Some(_) if reason.to_ascii_lowercase().contains("refused") => NodeCheck::Sshd,
        _ if is_of_jobs => NodeCheck::SlurmState,
        _ => NodeCheck::Power,
    };
    let at =
        port.filter(|_| check == NodeCheck::Sshd).map_or_else(String::new, |port| format!(" at port {port}"));
    let check = check.text(&[name]);
    format!("{check}{at}; the relay retries by itself, and shows the last known values until then")
}

/// Returns why the GPUs of a node that is connected cannot be read.
fn unreadable_gpus(input: &DetectorInput<'_>, node: &NodePicture, jobs: &[&Job]) -> Option<Detection> {
    let name = &node.name;
    if let Some(stuck_ms) = node.head.driver_stuck_ms {
        let library = node.head.vendor().library();
        let title = format!("{library} on {name} does not respond");
        let reason = format!("{library} hangs on {name}");
        let since = Some((input.now.relay_ms.saturating_sub(stuck_ms), false));
        return Some(Detection { since, ..problem(FindingKind::DriverHang, node, title, reason) });
    }
    let why = node.head.no_gpu.as_ref()?;
    jobs.iter().any(|job| ownership::has_gpus_on(job, name)).then(|| {
        let title = format!("No GPU can be read on {name}");
        let reason = format!("no GPU on {name}");
        let evidence = vec![why.to_string()];
        Detection { evidence, ..problem(FindingKind::NoGpu, node, title, reason) }
    })
}

/// States when the memory of a node will be exhausted, where no limit of a job protects it.
fn memory_forecast(input: &DetectorInput<'_>, node: &NodePicture) -> Option<Detection> {
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
    let reason = format!("{} memory growing", node.name);
    let growing = problem(FindingKind::HostMemory, node, title, reason);
    Some(Detection { evidence: vec![growth.text(), in_use, forecast.text()], ..growing })
}

/// Returns that the clock of a node differs from the login node's, if it matters.
fn clock_skew(input: &DetectorInput<'_>, node: &NodePicture) -> Option<Detection> {
    let series = input.series.get(&node.name)?;
    let ahead_ms = series.clock_ahead_ms()?.saturating_sub(input.now.wall_ahead_ms);
    let least_ms = u64::from(input.thresholds.clock_skew_seconds) * 1_000;
    (ahead_ms.unsigned_abs() >= least_ms).then(|| {
        let (name, ahead_s) = (&node.name, ahead_ms.saturating_add(ahead_ms.signum() * 500) / 1_000);
        let side = if ahead_s > 0 { "ahead of" } else { "behind" };
        let span = text::span(ahead_s.unsigned_abs());
        let severity = match ahead_s.unsigned_abs() {
            REFUSED_SKEW_S.. => FindingSeverity::Error,
            _ => FindingSeverity::Warning,
        };
        let title = format!("The clock of {name} is {span} {side} the login node's");
        Detection { severity, ..problem(FindingKind::ClockSkew, node, title, format!("{name} clock skew")) }
    })
}

/// Returns a part of the host in %, and the values behind it.
fn share(node: &NodePicture, used: HostField, total: HostField) -> Option<(u64, u64, u64)> {
    let (used, total) = (node.host.value(used)?, node.host.value(total)?);
    (total > 0).then(|| (used.saturating_mul(100) / total, used, total))
}

fn gib_of(used: u64, total: u64) -> String {
    format!("{} of {} GiB", text::gib(used), text::gib(total))
}

/// Returns the problems of a node's memory, disks and clock.
fn host(input: &DetectorInput<'_>, node: &NodePicture) -> impl Iterator<Item = Detection> {
    [
        full_memory(input, node),
        memory_forecast(input, node),
        clock_skew(input, node),
        swapping(node),
        full_disks(input, node),
    ]
    .into_iter()
    .flatten()
}

fn full_memory(input: &DetectorInput<'_>, node: &NodePicture) -> Option<Detection> {
    let (pct, used, total) = share(node, HostField::MemUsed, HostField::MemTotal)?;
    (pct >= u64::from(input.thresholds.host_memory_pct)).then(|| {
        let title = format!("The memory of {} is almost exhausted: {}", node.name, gib_of(used, total));
        let reason = format!("{} memory almost full", node.name);
        let full = problem(FindingKind::HostMemory, node, title, reason);
        Detection { evidence: vec![format!("{pct} % in use")], ..full }
    })
}

fn swapping(node: &NodePicture) -> Option<Detection> {
    let waiting_pct = node.host.value(HostField::PsiMem).filter(|pct| *pct >= WAITING_PCT)?;
    let swap = node.host.value(HostField::SwapUsed).filter(|bytes| *bytes >= SWAP_BYTES)?;
    let title = format!("{} swaps: {} GiB", node.name, text::gib(swap));
    let reason = format!("{} swapping", node.name);
    let evidence = vec![format!("processes wait for memory {waiting_pct} % of the time")];
    let swapping = problem(FindingKind::Swapping, node, title, reason);
    Some(Detection { evidence, ..swapping })
}

fn full_disks(input: &DetectorInput<'_>, node: &NodePicture) -> Option<Detection> {
    let scratch = node.head.facts.as_ref().and_then(|facts| facts.scratch.as_ref());
    let disks = [
        ("/dev/shm", HostField::ShmUsed, HostField::ShmTotal),
        ("/tmp", HostField::TmpUsed, HostField::TmpTotal),
        (scratch.map_or("scratch", |path| path.as_str()), HostField::ScratchUsed, HostField::ScratchTotal),
    ];
    let full = disks.into_iter().filter_map(|(path, used, total)| {
        let (pct, used, total) = share(node, used, total)?;
        (pct >= u64::from(input.thresholds.disk_pct))
            .then(|| format!("{path} {pct} % full ({})", gib_of(used, total)))
    });
    let evidence: Vec<String> = full.collect();
    let title = format!("{}: {}", node.name, evidence.first()?);
    let reason = format!("{} disk full", node.name);
    Some(Detection { evidence, ..problem(FindingKind::DiskFull, node, title, reason) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_advice_about_an_unreachable_node_follows_its_cause() {
        let advice = |reason, is_of_jobs| advice_on(&NodeName::new("gpu7").unwrap(), reason, is_of_jobs);
        let unknown =
            "the name gpu7 was not found: failed to lookup address information: Name or service not known";
        assert!(advice(unknown, false).starts_with("Check the spelling of gpu7 in the list of machines"));
        assert!(
            advice(unknown, true)
                .starts_with("Check whether the relay's machine knows the name (getent hosts gpu7)")
        );
        let refused = "could not connect to 10.0.0.7 port 18209: Connection refused (os error 111)";
        assert!(advice(refused, false).starts_with("Check whether sshd runs on gpu7 at port 18209;"));
        let silent = "could not connect to gpu7 port 22: no response within 8 s";
        assert!(advice(silent, true).starts_with("Check whether the node is up (sinfo -R -n gpu7);"));
        for reason in ["", silent, refused, unknown] {
            assert!(!advice(reason, false).contains("sinfo"), "SLURM does not know {reason}");
        }
    }
}
