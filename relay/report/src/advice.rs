//! Advice for the next submission, each with its numbers and the line that would have fitted.

use super::totals::{GpuTotals, NodeTotals};
use super::{Advice, Report};
use nodeglass_protocol::Text;
use nodeglass_rules::text::{bytes, exact_span as duration};

/// Minimum run time for advice, in s; a job that ran out of memory gets advice about memory in any case.
const MIN_ELAPSED_S: u64 = 600;
/// Minimum observed part of a run for advice about GPUs, in %.
const MIN_OBSERVED_PCT: f64 = 50.0;
/// Minimum part of a run with known CPUs and memory for advice to request less of them, in %: a peak in the rest of it would
/// end the next run.
const MIN_USAGE_KNOWN_PCT: f64 = 90.0;
/// A GPU is unused if it was idle for this share of the time, in %.
const UNUSED_PCT: f64 = 95.0;
/// Unused memory up to this size causes no advice, in bytes.
const SPARE_MEM_BYTES: u64 = 4 << 30;
/// Unused CPUs up to this number cause no advice.
const SPARE_CPUS: f64 = 4.0;
/// Step of advised time limits, in s.
const LIMIT_STEP_S: u64 = 900;
/// Minimum unused time below the limit for advice, in s.
const SPARE_LIMIT_S: u64 = 3_600;

/// The advice that follows from a report.
pub(super) fn of(report: &Report, nodes: &[NodeTotals]) -> Vec<Advice> {
    let more_memory = more_memory(report);
    if report.elapsed_s < MIN_ELAPSED_S {
        return more_memory.into_iter().collect();
    }
    let gpus = gpus(nodes).filter(|_| report.observed_pct >= MIN_OBSERVED_PCT);
    let are_peaks_known = report.totals.usage_known_pct >= MIN_USAGE_KNOWN_PCT;
    let less_memory = || memory(report, nodes).filter(|_| are_peaks_known);
    let memory = more_memory.or_else(less_memory);
    let cpus = cpus(report).filter(|_| are_peaks_known);
    [gpus, memory, cpus, time(report)].into_iter().flatten().collect()
}

/// Advises half as much memory again, if the kernel killed processes of the job at its limit.
fn more_memory(report: &Report) -> Option<Advice> {
    let was_killed =
        report.state.as_str() == "OUT_OF_MEMORY" || report.totals.oom_kills.is_some_and(|kills| kills > 0);
    let requested =
        report.totals.mem_requested_bytes.filter(|_| was_killed)? / u64::from(report.node_count.max(1));
    let more_gib = requested.saturating_add(requested / 2).div_ceil(1 << 30);
    Some(advice(
        format!("Processes of the job were killed at its limit of {} of memory per node.", bytes(requested)),
        format!("#SBATCH --mem={more_gib}G"),
    ))
}

fn gpus(nodes: &[NodeTotals]) -> Option<Advice> {
    let is_unused = |gpu: &GpuTotals| {
        gpu.util.known_ms > 0 && 100.0 * gpu.idle_ms as f64 >= UNUSED_PCT * gpu.util.known_ms as f64
    };
    let used_on = |node: &&NodeTotals| node.gpus.iter().filter(|gpu| !is_unused(gpu)).count();
    let all: usize = nodes.iter().map(|node| node.gpus.len()).sum();
    let used: usize = nodes.iter().map(|node| used_on(&node)).sum();
    let unused = all - used;
    if unused == 0 {
        return None;
    }
    let of_all = if unused == 1 && all == 1 {
        "The GPU was".to_owned()
    } else {
        format!("{unused} of {all} GPUs were")
    };
    let text = format!("{of_all} idle for {UNUSED_PCT:.0} % of the time or more.");
    let nodes_used = nodes.iter().filter(|node| used_on(node) > 0).count();
    let per_node = nodes.iter().map(|node| used_on(&node)).max().unwrap_or(0);
    let sbatch = match (used, nodes_used) {
        (0, _) => return Some(Advice { text: format!("{text} Request none.").into(), sbatch: None }),
        (used, 1) => format!("#SBATCH --nodes=1 --gpus={used}"),
        _ => format!("#SBATCH --nodes={nodes_used} --gpus-per-node={per_node}"),
    };
    Some(advice(text, sbatch))
}

fn memory(report: &Report, nodes: &[NodeTotals]) -> Option<Advice> {
    let requested = report.totals.mem_requested_bytes? / u64::from(report.node_count.max(1));
    let peak = nodes.iter().filter_map(|node| node.mem_peak_bytes).max()?;
    if requested < peak.saturating_mul(2) || requested - peak < SPARE_MEM_BYTES {
        return None;
    }
    // A fifth more than the peak, in whole GiB.
    let fits_gib = peak.saturating_add(peak / 5).div_ceil(1 << 30);
    let (peak, requested) = (bytes(peak), bytes(requested));
    Some(advice(
        format!("The job used at most {peak} of the {requested} of memory requested per node."),
        format!("#SBATCH --mem={fits_gib}G"),
    ))
}

fn cpus(report: &Report) -> Option<Advice> {
    let (peak, allocated) = (report.totals.cpus_peak?, f64::from(report.totals.cpus_allocated?));
    if report.node_count != 1 || allocated < 2.0 * peak || allocated - peak < SPARE_CPUS {
        return None;
    }
    let fits = peak.ceil().max(1.0);
    Some(advice(
        format!("The job used at most {peak:.1} of {allocated:.0} CPUs."),
        format!("#SBATCH --ntasks=1 --cpus-per-task={fits:.0}"),
    ))
}

/// Advises on the time limit of a job that ended by itself: a cancelled or failed job may need its whole limit.
fn time(report: &Report) -> Option<Advice> {
    let (limit_s, elapsed_s) = (report.limit_s?, report.elapsed_s);
    let is_complete = report.is_final && report.state.as_str() == "COMPLETED";
    if !is_complete || limit_s < elapsed_s.saturating_mul(2) || limit_s - elapsed_s < SPARE_LIMIT_S {
        return None;
    }
    let fits_s = elapsed_s.saturating_add(elapsed_s / 4);
    let fits_s = fits_s.checked_next_multiple_of(LIMIT_STEP_S).unwrap_or(limit_s);
    let (days, rest_s) = (fits_s / 86_400, fits_s % 86_400);
    let days = if days > 0 { format!("{days}-") } else { String::new() };
    Some(advice(
        format!("The job ran for {} of a limit of {}.", duration(elapsed_s), duration(limit_s)),
        format!("#SBATCH --time={days}{:02}:{:02}:00", rest_s / 3_600, rest_s % 3_600 / 60),
    ))
}

fn advice(text: String, sbatch: String) -> Advice {
    Advice { text: Text::new(text), sbatch: Some(Text::new(sbatch)) }
}
