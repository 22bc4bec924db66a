//! The report of a job, computed from its sums.

use super::JobRecord;
use super::totals::{GpuTotals, Integral, NodeTotals, THROTTLE_REASONS};
use nodeglass_protocol::Text;
use nodeglass_protocol::finding::{Finding, FindingKind};
use nodeglass_protocol::job::{JobState, TimeLimit};
use nodeglass_protocol::report::{Cost, GpuReport, Report, Throttled, Totals, UTIL_BINS};
use nodeglass_rules::gpu_hours::GpuHours;
use nodeglass_rules::health::slurm_state;
use nodeglass_rules::run::{REQUEUED, run_time_until};
use nodeglass_rules::throttle::REASONS;
use std::ops::{Add, Range};

/// Milliseconds of an hour.
const HOUR_MS: f64 = 3_600_000.0;
/// Joules of a kilowatt-hour.
const KWH_J: f64 = 3_600_000.0;

/// The report of a job's sums, without advice.
pub(super) fn without_advice(record: &JobRecord) -> Report {
    let JobRecord { job, nodes, accounting, .. } = record;
    let has_left = record.is_final && !matches!(job.state, JobState::Ended(_));
    let state = if has_left { Text::default() } else { slurm_state(&job.state).into() };
    // Of a job that only left the list, accounting alone knows state and end; and of a requeued one, the reason.
    let stated = accounting.as_ref().filter(|_| has_left || record.is_final && state.as_str() == REQUEUED);
    let ended_s = stated.map(|stated| stated.ended_s).or(job.ended);
    let until_s = ended_s.unwrap_or(record.at_s);
    // Accounting also knows how long it was suspended.
    let counted_s = accounting.as_ref().filter(|_| record.is_final).and_then(|stated| stated.elapsed_s);
    let elapsed_s = counted_s.or_else(|| run_time_until(job, until_s)).unwrap_or(0);
    let gpus = nodes.iter().flat_map(|node| node.gpus.iter().map(|gpu| gpu_report(node, gpu))).collect();
    let node_count = job.node_count.max(u32::try_from(nodes.len()).unwrap_or(u32::MAX));
    let totals = totals_of(record, elapsed_s);
    Report {
        job: job.id,
        label: job.label.clone(),
        name: job.name.clone(),
        user: job.user.clone(),
        account: job.account.clone(),
        partition: job.partition.clone(),
        state: stated.map_or(state, |stated| stated.state.clone()),
        exit: job.exit.clone(),
        application: record.application.as_deref().map(Text::new),
        is_final: record.is_final,
        at_s: record.at_s,
        start_s: job.start,
        ended_s,
        elapsed_s,
        limit_s: match job.limit {
            TimeLimit::Seconds(limit_s) => Some(limit_s),
            TimeLimit::Unknown | TimeLimit::Unlimited => None,
        },
        nodes: nodes.iter().map(|node| node.node.clone()).collect(),
        node_count,
        observed_pct: observed_pct(record, &totals, elapsed_s, node_count),
        totals,
        accounting: accounting.clone(),
        gpus,
        advice: Vec::new(),
        notes: Vec::new(),
        lacks_notes: false,
        findings: record.findings.clone(),
    }
}

/// The part of the run of which something is known: of its GPUs, or of its nodes if it has none.
fn observed_pct(record: &JobRecord, totals: &Totals, elapsed_s: u64, node_count: u32) -> f64 {
    if totals.gpus > 0 {
        return GpuHours::from(totals).observed_pct().unwrap_or(0.0);
    }
    share(record.observed_ms() as f64, elapsed_s as f64 * 1_000.0 * f64::from(node_count))
}

fn totals_of(record: &JobRecord, elapsed_s: u64) -> Totals {
    let JobRecord { job, nodes, factors, .. } = record;
    let gpus: Vec<&GpuTotals> = nodes.iter().flat_map(|node| &node.gpus).collect();
    let count = job.gpu_count.unwrap_or(u32::try_from(gpus.len()).unwrap_or(u32::MAX));
    let allocated_h = record.resized.gpu_seconds(count, elapsed_s) as f64 / 3_600.0;
    let util = integral(gpus.iter().map(|gpu| &gpu.util));
    let power = integral(gpus.iter().map(|gpu| &gpu.power));
    let energy_kwh = power.total().map(|joules| joules / KWH_J);
    let cost = factors.gpu_hour.as_ref().filter(|_| count > 0);
    // `sum` of nothing is -0.0, which is written as such.
    let hours = |of: fn(&GpuTotals) -> u64| gpus.iter().fold(0.0, |ms, gpu| ms + of(gpu) as f64) / HOUR_MS;
    let of_gpus = |of: fn(&GpuTotals) -> &Integral| integral(gpus.iter().map(|gpu| of(gpu))).total();
    let of_nodes = |of: fn(&NodeTotals) -> &Integral| integral(nodes.iter().map(of)).total();
    // A GPU that waits in a collective operation reads 100 %.
    let busy_h = util.sum / 100.0 / HOUR_MS;
    let lost = LostHours::of(record);
    let hung_h = lost.hung.min(busy_h);
    let used_h = (busy_h - hung_h).max(0.0);
    let spent = GpuHours {
        allocated: allocated_h,
        observed: hours(|gpu| gpu.observed_ms),
        used: used_h,
        slowed: lost.slowed.min(used_h),
        // MIG instances without GPM report neither utilisation nor SM activity, which is not the same as none.
        unused: (hours(|gpu| gpu.util.known_ms) - used_h).max(0.0),
        idle: hours(|gpu| gpu.idle_ms),
        hung: hung_h,
    };
    let mut bins_ms = [0; UTIL_BINS];
    let mut throttle_ms = [0; THROTTLE_REASONS];
    for gpu in &gpus {
        bins_ms.iter_mut().zip(gpu.util_bins_ms).for_each(add);
        throttle_ms.iter_mut().zip(gpu.throttle_ms).for_each(add);
    }
    Totals {
        gpus: count,
        gpu_hours_allocated: spent.allocated,
        gpu_hours_observed: spent.observed,
        gpu_hours_used: spent.used,
        gpu_hours_hung: spent.hung,
        gpu_hours_slowed: spent.slowed,
        gpu_hours_idle: spent.idle,
        gpu_hours_unused: spent.unused,
        util_pct: util.mean(),
        util_distribution_pct: distribution(&bins_ms),
        energy_kwh,
        energy_known_pct: share(power.known_ms as f64, allocated_h * HOUR_MS),
        usage_known_pct: usage_known_pct(record, &gpus, allocated_h, elapsed_s),
        sm_clock_mhz: integral(gpus.iter().map(|gpu| &gpu.sm_clock)).mean(),
        gpu_mem_peak_bytes: gpus.iter().filter_map(|gpu| gpu.observed_mem_peak()).max(),
        gpu_mem_total_bytes: gpus.iter().filter_map(|gpu| gpu.mem_total_bytes).max(),
        throttled: throttled(&throttle_ms),
        xids: gpus.iter().map(|gpu| gpu.xids).fold(0, u32::saturating_add),
        ecc_uncorrected: sum(gpus.iter().map(|gpu| gpu.ecc_uncorrected.increase)),
        ecc_corrected: sum(gpus.iter().map(|gpu| gpu.ecc_corrected.increase)),
        pcie_rx_bytes: of_gpus(|gpu| &gpu.pcie_rx),
        pcie_tx_bytes: of_gpus(|gpu| &gpu.pcie_tx),
        link_rx_bytes: of_gpus(|gpu| &gpu.link_rx),
        link_tx_bytes: of_gpus(|gpu| &gpu.link_tx),
        nodes_net_rx_bytes: of_nodes(|node| &node.net_rx),
        nodes_net_tx_bytes: of_nodes(|node| &node.net_tx),
        nodes_disk_read_bytes: of_nodes(|node| &node.disk_read),
        nodes_disk_write_bytes: of_nodes(|node| &node.disk_write),
        cpus_used: fold(nodes.iter().map(|node| node.cpu.mean().map(|pct| pct / 100.0))),
        cpus_peak: fold(nodes.iter().map(|node| node.cpu_peak_pct.map(|pct| pct as f64 / 100.0))),
        cpus_allocated: job.cpus,
        mem_peak_bytes: sum(nodes.iter().map(NodeTotals::observed_mem_peak)),
        mem_requested_bytes: job.mem_bytes,
        oom_kills: sum(nodes.iter().map(|node| node.oom_kills.increase)),
        cost: cost.map(|hour| Cost { amount: hour.amount * allocated_h, currency: hour.currency.clone() }),
        co2_kg: energy_kwh.zip(factors.co2_g_per_kwh).map(|(kwh, g)| kwh * g / 1_000.0),
    }
}

/// The share of a run for which each reading is known that no probe keeps, in %: of the one that is known least.
fn usage_known_pct(record: &JobRecord, gpus: &[&GpuTotals], allocated_h: f64, elapsed_s: u64) -> f64 {
    let known_pct = |part: Integral, hours: f64| {
        (part.known_ms > 0).then(|| share(part.known_ms as f64, hours * HOUR_MS))
    };
    let nodes_h = elapsed_s as f64 / 3_600.0 * f64::from(record.job.node_count);
    let on_gpus =
        |of: fn(&GpuTotals) -> &Integral| known_pct(integral(gpus.iter().map(|gpu| of(gpu))), allocated_h);
    let on_nodes =
        |of: fn(&NodeTotals) -> &Integral| known_pct(integral(record.nodes.iter().map(of)), nodes_h);
    let known = [
        on_gpus(|gpu| &gpu.pcie_rx),
        on_gpus(|gpu| &gpu.link_rx),
        on_nodes(|node| &node.net_rx),
        on_nodes(|node| &node.disk_read),
        on_nodes(|node| &node.cpu),
    ];
    known.into_iter().flatten().fold(100.0, f64::min)
}

/// GPU hours that findings state as lost although the GPUs were busy, since the first sample.
struct LostHours {
    /// In collective hangs.
    hung: f64,
    /// To GPUs slower than their peers, outside of hangs.
    slowed: f64,
}

impl LostHours {
    fn of(record: &JobRecord) -> Self {
        let ms = |wall_s: i64| u64::try_from(wall_s).unwrap_or(0).saturating_mul(1_000);
        let (at_ms, from_ms) = (ms(record.at_s), record.observed_from_s.map_or(0, ms));
        let of = |kind| record.findings.iter().filter(move |finding| finding.kind == kind);
        let span = |finding: &Finding, from_ms: u64| {
            let from_ms = finding.since_ms.max(from_ms);
            from_ms..finding.ended_ms.unwrap_or(at_ms).max(from_ms)
        };
        let length = |span: &Range<u64>| span.end.saturating_sub(span.start);
        // A finding states its cost as a whole: of that, the share of its time counts.
        let cost = |finding: &Finding, counted_ms: u64| {
            let all_ms = length(&span(finding, 0));
            finding.wasted_gpu_hours(at_ms) * (share(counted_ms as f64, all_ms as f64) / 100.0)
        };
        let hangs: Vec<_> = of(FindingKind::CollectiveHang).map(|hang| (hang, span(hang, from_ms))).collect();
        let outside_of_hangs_ms = |slow: &Range<u64>| {
            let both =
                hangs.iter().map(|(_, hang)| length(&(slow.start.max(hang.start)..slow.end.min(hang.end))));
            both.fold(length(slow), u64::saturating_sub)
        };
        let slow = of(FindingKind::Straggler);
        Self {
            hung: hangs.iter().map(|(hang, span)| cost(hang, length(span))).fold(0.0, Add::add),
            slowed: slow
                .map(|slow| cost(slow, outside_of_hangs_ms(&span(slow, from_ms))))
                .fold(0.0, Add::add),
        }
    }
}

fn gpu_report(node: &NodeTotals, gpu: &GpuTotals) -> GpuReport {
    GpuReport {
        node: node.node.clone(),
        index: gpu.index,
        uuid: gpu.uuid.clone(),
        model: gpu.model.as_deref().map(Text::new),
        observed_s: gpu.observed_ms as f64 / 1_000.0,
        util_pct: gpu.util.mean(),
        util_distribution_pct: distribution(&gpu.util_bins_ms),
        idle_s: (gpu.util.known_ms > 0).then(|| gpu.idle_ms as f64 / 1_000.0),
        energy_kwh: gpu.power.total().map(|joules| joules / KWH_J),
        sm_clock_mhz: gpu.sm_clock.mean(),
        mem_peak_bytes: gpu.observed_mem_peak(),
        mem_total_bytes: gpu.mem_total_bytes,
        throttled: throttled(&gpu.throttle_ms),
        xids: gpu.xids,
        ecc_uncorrected: gpu.ecc_uncorrected.increase,
        ecc_corrected: gpu.ecc_corrected.increase,
        fault_s: gpu.fault_ms as f64 / 1_000.0,
    }
}

/// Sums do not overflow: a node, or a file, may state any number.
fn add((sum, part): (&mut u64, u64)) {
    *sum = sum.saturating_add(part);
}

fn integral<'a>(parts: impl Iterator<Item = &'a Integral>) -> Integral {
    parts.fold(Integral::default(), |all, part| Integral {
        known_ms: all.known_ms.saturating_add(part.known_ms),
        sum: all.sum + part.sum,
    })
}

fn sum(parts: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    parts.flatten().fold(None, |all: Option<u64>, part| Some(all.unwrap_or(0).saturating_add(part)))
}

fn fold(parts: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    parts.flatten().fold(None, |all: Option<f64>, part| Some(all.unwrap_or(0.0) + part))
}

/// A part in % of a whole, at most 100: the clocks of SLURM and of the relay differ by moments.
fn share(part: f64, whole: f64) -> f64 {
    if whole > 0.0 { (100.0 * part / whole).min(100.0) } else { 0.0 }
}

fn distribution(bins_ms: &[u64; UTIL_BINS]) -> Option<[f64; UTIL_BINS]> {
    let all: f64 = bins_ms.iter().map(|bin_ms| *bin_ms as f64).sum();
    (all > 0.0).then(|| bins_ms.map(|bin_ms| 100.0 * bin_ms as f64 / all))
}

fn throttled(held_ms: &[u64; THROTTLE_REASONS]) -> Vec<Throttled> {
    let reasons = REASONS.iter().zip(held_ms).filter(|(_, held_ms)| **held_ms > 0);
    reasons
        .map(|(reason, held_ms)| Throttled { reason: reason.name.into(), seconds: *held_ms as f64 / 1_000.0 })
        .collect()
}
