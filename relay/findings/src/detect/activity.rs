//! Jobs whose GPUs do no useful work: unused, idle, without a process, or waiting in a hang.

use super::{activity_name, bottleneck, held, mostly_idle, of_job, whose};
use crate::input::{DetectorInput, JobGpu, JobGpus, locations};
use crate::job_log::JobLog;
use crate::series::{LONG_STEP_MS, NodeSeries, STEP_MS, WAITING_SM_PCT, activity, waiting_power};
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::GpuField;
use nodeglass_protocol::finding::FindingKind;
use nodeglass_protocol::picture::ProcessGap;
use std::collections::BTreeMap;

/// Number of steps after which GPUs count as idle: recorded jobs that load data or evaluate pause for much less.
const IDLE_STEPS: usize = 60;
/// Number of steps in a minute.
const STEPS_PER_MINUTE: usize = (60_000 / STEP_MS) as usize;
/// Utilisation in % from which a GPU seems busy.
const BUSY_PCT: f32 = 95.0;
/// Activity of memory and tensor cores in % that a GPU which only waits does not reach.
const WAITING_PCT: f32 = 10.0;
/// Traffic of a link in bytes a second that a waiting GPU does not reach.
const WAITING_RATE: f32 = 50e6;
/// Change of memory in use, in bytes, that a waiting GPU does not reach.
const WAITING_MEMORY: f32 = 256e6;
/// Minimum number of steps for which some GPUs must wait for others that do nothing: rank 0 may save for minutes.
const PARTIAL_HANG_STEPS: usize = 30;
/// Maximum time in ms from when some GPUs stop until the others wait for them: less than a step and its collective.
const STOPPED_WITHIN_MS: u64 = 120_000;
/// Time in ms after the start of a hang within which the last lines of the program appear in the log.
const LAST_LINES_MS: u64 = 30_000;
/// Time in ms after which NCCL's watchdog may report a hang (the heartbeat by default after eight minutes).
const WATCHDOG_MS: u64 = 300_000;
/// Number of times that the log must grow after these last lines to show that the program goes on: in a hang, only the
/// watchdog writes, and less often.
const GROWTHS: usize = 3;
/// Use of its CPUs in % of one core per GPU above which a job computes on the host: compilation, data preparation.
const BUSY_CORES_PCT: u64 = 600;
/// Mean utilisation in % that half of the other GPUs of a job must have for an idle one to count as unused.
const OTHERS_PCT: f32 = 20.0;

pub(super) fn detect(input: &DetectorInput<'_>, job: &JobGpus<'_>, found: &mut Detections) {
    const KINDS: [FindingKind; 5] = [
        FindingKind::UnusedGpus,
        FindingKind::IdleGpus,
        FindingKind::MostlyIdle,
        FindingKind::NoProcess,
        FindingKind::CollectiveHang,
    ];
    if job.units.is_empty() || !job.is_complete {
        found.unknown(&KINDS, &job.job.id.to_string());
        found.unknown(&bottleneck::KINDS, &job.job.id.to_string());
        return;
    }
    // A GPU that waits in a hang seems busy. Without a process, GPUs are idle as well, until that is certain.
    // Readings of a GPU that jobs share do not show what one of them does; that it is idle holds for all.
    let is_shared = job.units.iter().any(|unit| unit.gpu.owners.len() > 1);
    if is_shared {
        found.unknown(&[FindingKind::CollectiveHang, FindingKind::MostlyIdle], &job.job.id.to_string());
        found.unknown(&bottleneck::KINDS, &job.job.id.to_string());
    }
    let hang = if is_shared { None } else { hang(input, job, found) };
    let seen = match hang {
        Some(hang) => [Some(hang), None],
        None => [no_process(job), idle(input, job)],
    };
    if !is_shared && seen.iter().all(Option::is_none) {
        bottleneck::detect(input, job, found);
    }
    let [stopped, idle] = seen;
    let mostly = if is_shared || stopped.is_some() { None } else { mostly_idle::detect(input, job) };
    // One of them states what an hour costs: the one that is listed already.
    let is_listed = input.lasted_until_ms(&[FindingKind::MostlyIdle], job.job.id) == Some(u64::MAX);
    let idle = if is_listed { mostly.or(idle) } else { idle.or(mostly) };
    let idle = if stopped.is_some() { idle } else { idle.or_else(|| never_used(input, job)) };
    found.seen.extend(stopped.into_iter().chain(idle));
}

/// A job of which GPUs wait in a collective that never completes: all of them, or most of them for some that do nothing.
///
/// With a single GPU it cannot be distinguished from small kernels in a loop; a hang needs a peer to wait for.
fn hang(input: &DetectorInput<'_>, job: &JobGpus<'_>, found: &mut Detections) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    // Checkpoints of up to 58 s look the same.
    let steps = input.thresholds.hang_minutes as usize * STEPS_PER_MINUTE;
    let (waiting, others): (Vec<JobGpu<'_>>, Vec<JobGpu<'_>>) =
        job.units.iter().copied().partition(|unit| waits(unit, steps, now_ms));
    let is_alone = waiting.len() < 2 && !(waiting.len() == 1 && others.len() == 1);
    if is_alone || waiting.len() < others.len() {
        return None;
    }
    if !others.is_empty() {
        // Rank 0 may save, or evaluate on the host, for some minutes.
        let steps = (2 * steps).clamp(PARTIAL_HANG_STEPS, IDLE_STEPS);
        let idle_pct = input.thresholds.idle_pct as f32;
        let is_still = |unit: &JobGpu<'_>| does_nothing(unit, idle_pct, steps, now_ms);
        if !others.iter().all(is_still) || !waiting.iter().all(|unit| waits(unit, steps, now_ms)) {
            return None;
        }
    }
    let (since_ms, or_earlier) =
        waiting.iter().filter_map(|unit| waiting_since(unit, now_ms)).max_by_key(|since| since.0)?;
    // The others stopped when these began to wait: a GPU that the program left unused before is none that they wait for.
    let stopped_then = |unit: &JobGpu<'_>| {
        unit.series.used_ms().is_some_and(|used_ms| used_ms.abs_diff(since_ms) <= STOPPED_WITHIN_MS)
    };
    if !input.was_hung(job.job.id) && !others.iter().all(stopped_then) {
        return None;
    }
    let log = input.logs.get(&job.job.id).filter(|log| log.is_read);
    let window_ms = steps as u64 * STEP_MS;
    if log.is_some_and(|log| goes_on(log, since_ms, or_earlier, window_ms, now_ms)) {
        return None;
    }
    if job.cores_busy().is_some_and(|pct| pct > BUSY_CORES_PCT) {
        // Compilation and loading of data occupy the host.
        return None;
    }
    if !input.was_hung(job.job.id) && !is_certain_to_wait(job, &waiting, log, now_ms) {
        found.unknown(&[FindingKind::CollectiveHang], &job.job.id.to_string());
        return None;
    }
    let silent_log = log.filter(|log| quiet_ms(log, now_ms) >= window_ms);
    let since = Some((since_ms, or_earlier));
    Some(Detection { since, ..hung(job, &waiting, &others, silent_log, steps, now_ms) })
}

/// Returns whether GPUs that seem to wait do so. Small kernels in a loop look the same, but not in a job that worked before,
/// or that writes nothing either.
fn is_certain_to_wait(job: &JobGpus<'_>, waiting: &[JobGpu<'_>], log: Option<&JobLog>, now_ms: u64) -> bool {
    let has_worked = |unit: &JobGpu<'_>| unit.series.worked_ms().is_some_and(|at_ms| at_ms > job.started_ms);
    let is_silent = || log.is_some_and(|log| quiet_ms(log, now_ms) >= IDLE_STEPS as u64 * STEP_MS);
    job.units.iter().any(has_worked)
        || is_silent() && waiting.iter().all(|unit| waits(unit, IDLE_STEPS, now_ms))
}

/// The detection of a hang, without its start.
fn hung(
    job: &JobGpus<'_>,
    waiting: &[JobGpu<'_>],
    others: &[JobGpu<'_>],
    silent_log: Option<&JobLog>,
    steps: usize,
    now_ms: u64,
) -> Detection {
    let count = waiting.len();
    let title = match others {
        [] => format!("Looks hung: {count} GPUs report full utilisation, but draw little power"),
        _ => format!(
            "Looks hung: {count} of {} GPUs wait at full utilisation for {}",
            job.units.len(),
            locations(others)
        ),
    };
    let mut detection = of_job(FindingKind::CollectiveHang, job, &job.units, GpuField::Power, title);
    let shows_activity = waiting.iter().all(|unit| unit.value(GpuField::SmActive).is_some());
    detection.confidence_pct = if shows_activity { 95 } else { 80 };
    detection.reason = "looks hung".to_owned();
    let mean = |field| {
        let known: Vec<f32> =
            waiting.iter().filter_map(|unit| unit.series.mean(field, steps, now_ms)).collect();
        (!known.is_empty()).then(|| known.iter().sum::<f32>() / known.len() as f32)
    };
    let limits = waiting.iter().filter_map(|unit| unit.value(GpuField::PowerLimit));
    let limit: u64 = limits.fold(0, u64::saturating_add) / count.max(1) as u64;
    let which = if others.is_empty() { "on every GPU" } else { "on the GPUs that wait" };
    let idle = others.iter().filter_map(|unit| unit.series.mean(GpuField::Util, steps, now_ms));
    let stated = [
        mean(GpuField::Util).map(|util| format!("utilisation {util:.0} % {which}")),
        idle.reduce(f32::max).map(|util| format!("{util:.0} % on the others")),
        mean(GpuField::Power).map(|power| format!("power {power:.0} W of {limit} W")),
        mean(GpuField::SmActive).map(|active| format!("SM activity {active:.0} %")),
        job.cores_busy().map(|pct| format!("CPU use {:.1} cores per GPU", pct as f64 / 100.0)),
        silent_log.map(|log| {
            let span = |since_ms: u64| nodeglass_rules::text::span(now_ms.saturating_sub(since_ms) / 1_000);
            match log.grown_ms.or(log.written_ms) {
                Some(at_ms) => format!("no log output for {}", span(at_ms)),
                None => format!("no log output since the relay began to read it {} ago", span(log.since_ms)),
            }
        }),
    ];
    detection.evidence = stated.into_iter().flatten().collect();
    detection.wasted_gpus = job.units.len();
    detection
}

/// Returns for how long a log was seen not to grow, in ms. The time of its file is by another clock, and proves nothing.
fn quiet_ms(log: &JobLog, now_ms: u64) -> u64 {
    now_ms.saturating_sub(log.grown_ms.unwrap_or(log.since_ms))
}

/// Returns whether the log shows that a program continues although its GPUs have waited since `since_ms`, or longer: it
/// states progress, or grows. When a hang begins, the other ranks may still write, and NCCL's watchdog does after some
/// minutes.
fn goes_on(log: &JobLog, since_ms: u64, or_earlier: bool, window_ms: u64, now_ms: u64) -> bool {
    let progress = log.progress.as_ref().filter(|progress| progress.rate.is_some());
    if progress.is_some_and(|progress| progress.advanced_ms + window_ms > now_ms) {
        return true;
    }
    let later_ms = log.growths_ms.iter().filter(|at_ms| **at_ms > since_ms + LAST_LINES_MS);
    let before_watchdog = later_ms.clone().any(|at_ms| *at_ms < since_ms + WATCHDOG_MS);
    (before_watchdog && !or_earlier) || later_ms.count() >= GROWTHS
}

/// Returns whether a GPU did nothing in the last steps, while others wait.
fn does_nothing(unit: &JobGpu<'_>, idle_pct: f32, steps: usize, now_ms: u64) -> bool {
    let range = |field| unit.series.range(field, steps, now_ms);
    let is_flat = range(GpuField::MemUsed).is_none_or(|(low, high)| high - low < WAITING_MEMORY);
    range(GpuField::Util).is_some_and(|(_, high)| high <= idle_pct) && is_flat
}

/// Returns whether a GPU reports full utilisation at the power of a busy-wait in each of the last steps, and no counter
/// contradicts it.
fn waits(unit: &JobGpu<'_>, steps: usize, now_ms: u64) -> bool {
    let range = |field| unit.series.range(field, steps, now_ms);
    let Some(most_w) = waiting_power(unit.gpu) else { return false };
    let (Some(util), Some(power)) = (range(GpuField::Util), range(GpuField::Power)) else { return false };
    let stays_below = |field, most: f32| range(field).is_none_or(|(_, high)| high < most);
    let is_flat = range(GpuField::MemUsed).is_none_or(|(low, high)| high - low < WAITING_MEMORY);
    util.0 >= BUSY_PCT
        && power.1 <= most_w
        && is_flat
        && stays_below(GpuField::SmActive, WAITING_SM_PCT)
        && [GpuField::DramActive, GpuField::TensorActive]
            .into_iter()
            .all(|field| stays_below(field, WAITING_PCT))
        && [GpuField::PcieRx, GpuField::PcieTx, GpuField::NvlinkRx, GpuField::NvlinkTx]
            .into_iter()
            .all(|field| stays_below(field, WAITING_RATE))
}

/// Returns since when a GPU has reported full utilisation at the power of a busy-wait. A GPU that loads is not busy.
fn waiting_since(unit: &JobGpu<'_>, now_ms: u64) -> Option<(u64, bool)> {
    let most_w = waiting_power(unit.gpu)?;
    let rows = |field| unit.series.of(field, IDLE_STEPS, now_ms).collect::<BTreeMap<u64, f32>>();
    let (util, active) = (rows(GpuField::Util), rows(GpuField::SmActive));
    let waits = |at_ms: u64, power: f32| {
        power <= most_w
            && util.get(&at_ms).is_none_or(|util| *util >= BUSY_PCT)
            && active.get(&at_ms).is_none_or(|active| *active < WAITING_SM_PCT)
    };
    run_start(unit.series.of(GpuField::Power, IDLE_STEPS, now_ms), waits)
}

/// Returns the start of the newest run of steps that hold, and whether it may have begun earlier.
fn run_start(
    steps: impl Iterator<Item = (u64, f32)>,
    holds: impl Fn(u64, f32) -> bool,
) -> Option<(u64, bool)> {
    let mut start = None;
    for (at_ms, value) in steps {
        if !holds(at_ms, value) {
            return start.map(|at_ms| (at_ms, false));
        }
        start = Some(at_ms);
    }
    start.map(|at_ms| (at_ms, true))
}

/// GPUs without work: all of them, or some while others work.
fn idle(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let window_ms = IDLE_STEPS as u64 * STEP_MS;
    if job.started_ms + window_ms > now_ms {
        return None;
    }
    let idle_pct = input.thresholds.idle_pct as f32;
    let is_idle = |unit: &JobGpu<'_>| is_idle(unit, idle_pct, now_ms);
    let idle: Vec<JobGpu<'_>> = job.units.iter().copied().filter(is_idle).collect();
    let (count, all) = (idle.len(), job.units.len());
    let has_used = |unit: &JobGpu<'_>| unit.series.used_ms().is_some_and(|used_ms| used_ms > job.started_ms);
    // A job that was not read from its start on has usually worked.
    let is_read_from_start = |unit: &JobGpu<'_>| {
        let first_ms = input.series.get(&unit.node.name).and_then(NodeSeries::first_ms);
        first_ms.is_some_and(|first_ms| first_ms <= job.started_ms + window_ms)
    };
    let is_whole_run = job.units.iter().all(is_read_from_start);
    // An interactive job uses its GPUs now and then; which of them it needs is not known. A program that keeps some of them
    // busy, however little, does not need those that it never used.
    let is_program = is_whole_run && job.started_ms + 3 * window_ms <= now_ms && !idle.iter().any(has_used);
    let is_used = |unit: &&JobGpu<'_>| {
        let mean = unit.series.mean(activity(unit.gpu), IDLE_STEPS, now_ms);
        let busy =
            unit.series.of(activity(unit.gpu), IDLE_STEPS, now_ms).filter(|(_, active)| *active > idle_pct);
        mean.is_some_and(|active| active >= OTHERS_PCT) || is_program && 2 * busy.count() >= IDLE_STEPS
    };
    let used = job.units.iter().filter(is_used).count();
    if count == 0 || count < all && 2 * used < all - count {
        return None;
    }
    let has_worked = job.units.iter().any(has_used) || !is_whole_run;
    let kind = if has_worked && count == all { FindingKind::IdleGpus } else { FindingKind::UnusedGpus };
    let title = match count == all {
        true => format!("{} idle", whose(count, all)),
        false => {
            let others = if all - count == 1 { "other works" } else { "others work" };
            format!("{} idle while the {others}: {}", whose(count, all), locations(&idle))
        }
    };
    let mut detection = of_job(kind, job, &idle, GpuField::Util, title);
    detection.reason = if count == all { "idle".to_owned() } else { format!("{count} of {all} GPUs idle") };
    detection.evidence.extend(idle_evidence(&idle, now_ms));
    if count == all {
        let job = &job.job.label;
        detection.advice =
            Some(format!("See the log; if the work is done, release the GPUs with scancel {job}"));
    } else if idle.iter().any(has_used) {
        detection.advice = Some("See in the log whether the ranks on these GPUs still run".to_owned());
    }
    // Of several that idle, the last to become idle counts.
    let since = idle.iter().filter_map(|unit| idle_since(unit, idle_pct, now_ms)).max_by_key(|since| since.0);
    detection.since = Some(since.unwrap_or((now_ms.saturating_sub(window_ms), true)));
    detection.wasted_gpus = count;
    Some(detection)
}

/// GPUs that are not used for the time of the mean of [`mostly_idle`] while others of the job are, however little: a
/// notebook that needs one of its two GPUs.
fn never_used(input: &DetectorInput<'_>, job: &JobGpus<'_>) -> Option<Detection> {
    let now_ms = input.now.relay_ms;
    let minutes = u64::from(input.thresholds.mostly_idle_minutes);
    let from_ms = (now_ms / LONG_STEP_MS * LONG_STEP_MS).checked_sub(minutes * LONG_STEP_MS)?;
    if job.started_ms > from_ms {
        return None;
    }
    let is_unused = |unit: &JobGpu<'_>| {
        unit.series.used_ms().is_none_or(|used_ms| used_ms <= from_ms)
            && unit.series.active_minutes(from_ms, now_ms).count() as u64 * 5 >= minutes * 4
            && mostly_idle::is_idle(input, unit, from_ms)
    };
    let (unused, others): (Vec<JobGpu<'_>>, Vec<JobGpu<'_>>) =
        job.units.iter().partition(|unit| is_unused(unit));
    let is_used = |unit: &JobGpu<'_>| unit.series.used_ms().is_some_and(|used_ms| used_ms > from_ms);
    if unused.is_empty() || !others.iter().any(is_used) {
        return None;
    }
    let (count, all) = (unused.len(), job.units.len());
    let title = format!("{} not used while others are: {}", whose(count, all), locations(&unused));
    let mut detection = of_job(FindingKind::UnusedGpus, job, &unused, GpuField::Util, title);
    detection.reason = format!("{count} of {all} GPUs not used");
    let name = unused.first().map_or("utilisation", activity_name);
    let window = nodeglass_rules::text::span(minutes * LONG_STEP_MS / 1_000);
    detection
        .evidence
        .push(format!("{name} of at most {} % in each minute of {window}", input.thresholds.idle_pct));
    detection.evidence.extend(held(&unused));
    // Of several, the last to be used counts.
    let since = |unit: &JobGpu<'_>| {
        let first_ms = unit.series.active_minutes(0, now_ms).last().map_or(from_ms, |(at_ms, _)| at_ms);
        let is_start = first_ms <= job.started_ms + 2 * LONG_STEP_MS;
        unit.series.used_ms().map_or((first_ms.max(job.started_ms), !is_start), |used_ms| (used_ms, false))
    };
    detection.since = unused.iter().map(since).max_by_key(|since| since.0);
    detection.wasted_gpus = count;
    Some(detection)
}

/// Returns since when a GPU is idle, and whether it may have been earlier.
fn idle_since(unit: &JobGpu<'_>, idle_pct: f32, now_ms: u64) -> Option<(u64, bool)> {
    let steps = unit.series.of(activity(unit.gpu), IDLE_STEPS, now_ms);
    let (at_ms, _) = run_start(steps, |_, active| active <= idle_pct)?;
    // The steps before are not examined, but the end of the last work is known.
    let is_start = unit.series.used_ms().is_some_and(|used_ms| used_ms.abs_diff(at_ms) <= 2 * STEP_MS);
    Some((at_ms, !is_start))
}

fn idle_evidence(idle: &[JobGpu<'_>], now_ms: u64) -> impl Iterator<Item = String> {
    let active = idle.first().map(|first| {
        let name = activity_name(first);
        let active = first.series.mean(activity(first.gpu), IDLE_STEPS, now_ms).unwrap_or(0.0);
        format!("{name} {active:.1} % on average over ten minutes")
    });
    active.into_iter().chain(held(idle))
}

fn is_idle(unit: &JobGpu<'_>, idle_pct: f32, now_ms: u64) -> bool {
    // A notebook runs a cell now and then: it is in use.
    unit.series.range(activity(unit.gpu), IDLE_STEPS, now_ms).is_some_and(|(_, most)| most <= idle_pct)
}

/// No process on any GPU of the job, although the lists of processes could be read.
fn no_process(job: &JobGpus<'_>) -> Option<Detection> {
    let lists_are_read = job.units.iter().all(|unit| {
        !unit.gpu.gaps.iter().any(|gap| matches!(gap, ProcessGap::Failed(_) | ProcessGap::Unsupported))
    });
    let has_process = |unit: &JobGpu<'_>| {
        let parts =
            unit.node.gpus.iter().filter(|part| part.facts.mig_parent.as_ref() == Some(&unit.gpu.facts.uuid));
        let uuids: Vec<_> = parts.map(|part| &part.facts.uuid).chain([&unit.gpu.facts.uuid]).collect();
        unit.node.processes.iter().any(|process| uuids.contains(&&process.facts.gpu))
    };
    if !lists_are_read || job.units.iter().any(has_process) {
        return None;
    }
    // Work without a visible process is another pid namespace's.
    if job.units.iter().any(|unit| unit.value(activity(unit.gpu)).is_none_or(|active| active > 0)) {
        return None;
    }
    let count = job.units.len();
    let title = format!(
        "No process on {}",
        if count == 1 { "the GPU".to_owned() } else { format!("any of {count} GPUs") }
    );
    let mut detection = of_job(FindingKind::NoProcess, job, &job.units, GpuField::MemUsed, title);
    detection.reason = "no process on its GPUs".to_owned();
    detection.wasted_gpus = count;
    Some(detection)
}
