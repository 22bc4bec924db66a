//! Jobs whose GPUs do no useful work: idle for minutes, or busy-waiting in a hang.

use super::{Cost, Item, Now, Since, Spark, job_name, jobs_on};
use crate::domain::health::{Freshness, freshness};
use crate::domain::severity::Severity;
use crate::domain::{ownership, text};
use nodeglass_protocol::job::{Job, JobState};
use nodeglass_protocol::picture::{GpuPicture, NodePicture};
use nodeglass_protocol::trace::Trace;
use nodeglass_protocol::{Cell, GpuField};

/// A job is idle if its GPUs did almost nothing for this long, in ms, whether or not they worked before.
pub const IDLE_MS: u64 = 300_000;
/// Mean utilisation in % up to which a GPU counts as idle: a notebook that runs a cell now and then.
const IDLE_PCT: u64 = 5;
/// A job looks hung if its GPUs seem busy at the power of waiting for this long, in ms.
const HUNG_MS: u64 = 120_000;
/// Without a history of power, how long it must stay low, in ms: longer than between two steps of work.
const CONFIRM_MS: u64 = 15_000;
/// Utilisation in % from which a GPU seems busy.
const BUSY_PCT: u32 = 95;
/// What a waiting GPU draws at most, as a fraction of its limit: a third. Real work draws more, also where it
/// is bound by memory.
const WAITING_POWER: u32 = 3;
/// Use of SMs, tensor cores or memory in % that a GPU which only waits does not reach.
const WORKING_PCT: u64 = 25;

/// One GPU of a job.
struct Unit<'a> {
    node: &'a NodePicture,
    position: usize,
    gpu: &'a GpuPicture,
}

impl Unit<'_> {
    fn trace(&self, field: GpuField) -> Option<&Trace> {
        self.node.history.as_ref()?.gpu(self.position, field)
    }
}

/// Returns the item of a job that is idle or looks hung. Nothing is known of one with a GPU without current
/// readings.
pub fn problem(job: &Job, jobs: &[Job], nodes: &[NodePicture], now: Now) -> Option<Item> {
    if job.state != JobState::Running {
        return None;
    }
    let mut units = Vec::new();
    for node in job.nodes.iter().map(|name| nodes.iter().find(|node| node.name == *name)) {
        let node = node.filter(|node| freshness(node, now.relay_ms) == Freshness::Fresh)?;
        if node.head.driver_stuck_ms.is_some() {
            return None;
        }
        // Where ownership is unknown, a GPU may be another job's.
        let is_shared = jobs_on(node, jobs).len() > 1;
        for (position, gpu) in node.gpus.iter().enumerate() {
            if !ownership::counts(node, gpu, Some(job.id)) || is_shared && gpu.owners.is_empty() {
                continue;
            }
            if gpu.fault.is_some() {
                return None;
            }
            units.push(Unit { node, position, gpu });
        }
    }
    let started_ms = job.start.map_or(0, |start| now.relay_ms_at(start));
    hung(job, &units, now).or_else(|| idle(job, &units, started_ms, now))
}

/// Returns the item of a job that looks hung: every GPU seems fully busy, and none draws the power of work.
///
/// With a single GPU it cannot be distinguished from small kernels in a loop; a hang needs a peer to wait for.
fn hung(job: &Job, units: &[Unit<'_>], now: Now) -> Option<Item> {
    if units.len() < 2 || !units.iter().all(|unit| seems_to_wait(unit.gpu)) {
        return None;
    }
    let later = |a: Since, b: Since| if b.at_ms > a.at_ms { b } else { a };
    let busy = units.iter().map(busy_since).collect::<Option<Vec<_>>>()?.into_iter().reduce(later)?;
    let waiting = units.iter().map(waiting_since).collect::<Option<Vec<_>>>();
    let waiting = waiting.and_then(|starts| starts.into_iter().reduce(later));
    // The overview has no history of power: that it stays low is seen by watching it for a moment.
    let since = waiting.map(|waiting| later(busy, waiting));
    if since.unwrap_or(busy).at_ms + HUNG_MS > now.relay_ms {
        return None;
    }
    let sum = |field| units.iter().filter_map(|unit| unit.gpu.row.value(field)).sum::<u64>();
    let count = units.len() as u64;
    let (power, limit) = (sum(GpuField::Power) / count, sum(GpuField::PowerLimit) / count);
    let mut item = Item::for_job("hung", job, Severity::Error);
    item.title = format!(
        "Looks hung: {count} GPUs report {} % but draw {power} of {limit} W",
        sum(GpuField::Util) / count
    );
    item.detail =
        "Busy-waiting, as in a stuck collective: see its log and the Python stacks of its processes"
            .to_owned();
    item.reason = "looks hung".to_owned();
    item.since = since;
    item.confirm_ms = if since.is_some() { 0 } else { CONFIRM_MS };
    item.cost = Some(Cost { gpus: units.len(), label: "lost" });
    item.impact = units.len();
    item.nodes.clone_from(&job.nodes);
    item.spark = Some(spark(&units[0], GpuField::Power));
    Some(item)
}

/// Returns whether a GPU seems busy now at the power of waiting, and no other reading contradicts it.
fn seems_to_wait(gpu: &GpuPicture) -> bool {
    let value = |field| gpu.row.value(field);
    let (Some(util), Some(power), Some(limit)) =
        (value(GpuField::Util), value(GpuField::Power), value(GpuField::PowerLimit))
    else {
        return false;
    };
    let works = [GpuField::SmActive, GpuField::DramActive, GpuField::TensorActive, GpuField::MemUtil]
        .into_iter()
        .any(|field| value(field).is_some_and(|percent| percent >= WORKING_PCT));
    util >= BUSY_PCT.into() && power * u64::from(WAITING_POWER) <= limit && !works
}

/// Returns since when a GPU seems busy without a break; `None` without a history.
fn busy_since(unit: &Unit<'_>) -> Option<Since> {
    run_start(unit.trace(GpuField::Util)?, |util| util >= BUSY_PCT)
}

/// Returns since when a GPU draws the power of waiting without a break; `None` without a history.
fn waiting_since(unit: &Unit<'_>) -> Option<Since> {
    let limit = unit.gpu.row.get(GpuField::PowerLimit).value()?;
    run_start(unit.trace(GpuField::Power)?, |power| power * WAITING_POWER <= limit)
}

/// Returns the start of the last run of values that hold, whether or not the trace shows what was before. Gaps
/// neither hold nor end it.
fn run_start(trace: &Trace, holds: impl Fn(u32) -> bool) -> Option<Since> {
    let mut start = None;
    let mut or_earlier = true;
    for (at_ms, cell) in trace.points() {
        let Some(value) = cell.and_then(Cell::value) else { continue };
        if !holds(value) {
            (start, or_earlier) = (None, false);
        } else if start.is_none() {
            start = Some(at_ms);
        }
    }
    start.map(|at_ms| Since { at_ms, or_earlier })
}

/// Returns the item of a job with idle GPUs: all of them, or some while others work.
fn idle(job: &Job, units: &[Unit<'_>], started_ms: u64, now: Now) -> Option<Item> {
    let from_ms = started_ms.max(now.relay_ms.saturating_sub(IDLE_MS));
    if units.is_empty() || from_ms + IDLE_MS > now.relay_ms {
        return None;
    }
    // A GPU that does not report its utilisation, such as one divided by MIG, may be busy.
    let now_pct: Vec<u64> =
        units.iter().map(|unit| unit.gpu.row.value(GpuField::Util)).collect::<Option<_>>()?;
    // The traces are read only if a GPU is idle at the moment; mostly none is.
    if now_pct.iter().all(|now_pct| *now_pct > IDLE_PCT) {
        return None;
    }
    let mut starts = Vec::new();
    for unit in units {
        if let Some(start) = idle_since(unit.trace(GpuField::Util)?, started_ms, now.relay_ms) {
            starts.push((unit, start));
        }
    }
    let (first, _) = starts.first()?;
    // Of several that idle, the last to become idle counts.
    let since = starts.iter().map(|(_, start)| *start).max_by_key(|start| start.at_ms)?;
    let (idle, all) = (starts.len(), units.len());
    let spent = text::span(now.relay_ms.saturating_sub(since.at_ms) / 1_000);
    let least = if since.or_earlier { "at least " } else { "" };
    let held: u64 = starts.iter().filter_map(|(unit, _)| unit.gpu.row.value(GpuField::MemUsed)).sum();
    let held = if held >= 1 << 30 { format!(", {} GiB held", text::gib(held)) } else { String::new() };
    let mut item = Item::for_job("idle", job, Severity::Warning);
    let whose = match (idle, all) {
        (1, 1) => "GPU".to_owned(),
        (2, 2) => "Both GPUs".to_owned(),
        (idle, all) if idle == all => format!("All {all} GPUs"),
        (idle, all) => format!("{idle} of {all} GPUs"),
    };
    item.title = format!("{whose} idle for {least}{spent}{held}");
    item.detail = if idle == all {
        format!(
            "Almost no kernel ran; release {} with scancel {}",
            if all == 1 { "it" } else { "them" },
            job.label
        )
    } else {
        let names: Vec<String> = starts
            .iter()
            .take(4)
            .map(|(unit, _)| format!("{} {}", unit.node.name, unit.gpu.facts.label()))
            .collect();
        let more =
            if idle > names.len() { format!(" and {} more", idle - names.len()) } else { String::new() };
        format!("{}{more}: almost no kernel ran while others of {} work", names.join(", "), job_name(job))
    };
    item.reason = if idle == all { format!("idle {spent}") } else { format!("{idle} of {all} GPUs idle") };
    item.since = Some(since);
    item.cost = Some(Cost { gpus: idle, label: "idle" });
    item.impact = idle;
    item.nodes.clone_from(&job.nodes);
    item.spark = Some(spark(first, GpuField::Util));
    Some(item)
}

/// Returns since when a GPU has been idle, if it was for at least [`IDLE_MS`] since `started_ms`: on average, so
/// that a moment of work does not hide an hour of idleness.
fn idle_since(trace: &Trace, started_ms: u64, now_ms: u64) -> Option<Since> {
    let slots: Vec<(u64, u32)> = trace
        .since(started_ms)
        .filter(|(at_ms, _)| *at_ms >= started_ms)
        .filter_map(|(at_ms, cell)| Some((at_ms, cell.and_then(Cell::value)?)))
        .collect();
    let (mut sum, mut count, mut start) = (0u64, 0u64, None);
    for (at, (at_ms, util)) in slots.iter().enumerate().rev() {
        sum += u64::from(*util);
        count += 1;
        let is_recent = at_ms + IDLE_MS > now_ms;
        if sum <= IDLE_PCT * count {
            // An idle second, so that work at the very start is not counted.
            if u64::from(*util) <= IDLE_PCT {
                start = Some((at, *at_ms));
            }
        } else if !is_recent {
            break;
        }
    }
    let (at, at_ms) = start.filter(|(_, at_ms)| at_ms + IDLE_MS <= now_ms)?;
    // The job may have been idle from its start on, which is known exactly.
    let reaches_start = at_ms <= started_ms + Trace::STEP_MS;
    Some(Since { at_ms, or_earlier: at == 0 && !reaches_start })
}

fn spark(unit: &Unit<'_>, field: GpuField) -> Spark {
    Spark { node: unit.node.name.clone(), gpu: unit.gpu.facts.uuid.clone(), field }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{NOW, job, node, with_history};
    use super::super::{Item, items};
    use super::*;

    fn only(job: &Job, node: NodePicture) -> Option<Item> {
        let mut found = items(std::slice::from_ref(job), &[node], NOW);
        assert!(found.len() <= 1, "{found:?}");
        found.pop()
    }

    fn after(history: &[((u32, u32), usize)]) -> Option<Item> {
        let seconds: Vec<_> = history.iter().flat_map(|(now, count)| vec![*now; *count]).collect();
        only(&job(1, "n1"), with_history(node("n1", &[1, 1]), &seconds))
    }

    #[test]
    fn a_job_that_is_busy_at_the_power_of_waiting_looks_hung() {
        let item = after(&[((98, 650), 300), ((100, 148), 200)]).unwrap();
        assert_eq!((item.key.as_str(), item.severity), ("hung/1", Severity::Error));
        assert_eq!(item.title, "Looks hung: 2 GPUs report 100 % but draw 148 of 700 W");
        assert_eq!(item.since, Some(Since { at_ms: NOW.relay_ms - 200_000, or_earlier: false }));
        assert!(after(&[((98, 650), 300), ((100, 148), 100)]).is_none(), "not for long enough");
    }

    #[test]
    fn work_that_is_bound_by_memory_is_no_hang() {
        assert!(after(&[((100, 320), 400)]).is_none(), "it draws almost half of the limit");
        for field in [GpuField::MemUtil, GpuField::DramActive, GpuField::SmActive, GpuField::TensorActive] {
            let mut node = with_history(node("n1", &[1, 1]), &[(100, 220); 400]);
            node.gpus[1].row.set(field, Cell::steps(60));
            assert_eq!(only(&job(1, "n1"), node), None, "{field:?}");
        }
    }

    #[test]
    fn a_single_gpu_or_one_that_dips_is_no_hang() {
        let single = with_history(node("n1", &[1]), &[(100, 148); 400]);
        assert_eq!(only(&job(1, "n1"), single), None);
        assert_eq!(after(&[((100, 148), 300), ((60, 148), 5), ((100, 148), 60)]), None);
        assert_eq!(after(&[((100, 148), 300), ((100, 500), 5), ((100, 148), 60)]), None);
    }

    #[test]
    fn without_the_history_of_power_a_hang_must_be_confirmed() {
        let mut node = with_history(node("n1", &[1, 1]), &[(100, 148); 400]);
        node.history = node.history.map(|history| {
            let mut bare = nodeglass_protocol::picture::History::default();
            for (gpu, traces) in history.gpus.iter().enumerate() {
                bare.gpus.resize_with(gpu + 1, Default::default);
                *bare.gpus[gpu].entry(0, GpuField::Util) = traces.get(GpuField::Util).unwrap().clone();
            }
            bare
        });
        let item = only(&job(1, "n1"), node.clone()).unwrap();
        assert_eq!((item.confirm_ms, item.since), (CONFIRM_MS, None));
        node.gpus[0].row.set(GpuField::Power, Cell::steps(500));
        assert_eq!(only(&job(1, "n1"), node), None);
    }

    #[test]
    fn a_job_that_stopped_working_is_idle_after_five_minutes() {
        assert_eq!(after(&[((90, 600), 200), ((0, 80), 290)]), None);
        let item = after(&[((90, 600), 200), ((0, 80), 360)]).unwrap();
        assert_eq!((item.severity, item.reason.as_str()), (Severity::Warning, "idle 6 min"));
        assert_eq!(item.title, "Both GPUs idle for 6 min");
        assert!(!item.since.unwrap().or_earlier);
    }

    #[test]
    fn a_job_that_never_worked_is_idle_too() {
        let item = after(&[((0, 80), 600)]).unwrap();
        assert_eq!(item.title, "Both GPUs idle for at least 10 min");
        let mut young = job(1, "n1");
        young.start = Some(NOW.wall_s - 400);
        let idle = with_history(node("n1", &[1]), &[(0, 80); 600]);
        assert_eq!(only(&young, idle.clone()).unwrap().title, "GPU idle for 6 min", "since it started");
        young.start = Some(NOW.wall_s - 200);
        assert_eq!(only(&young, idle), None, "the time before belongs to another job");
    }

    #[test]
    fn a_cell_of_a_notebook_does_not_hide_hours_of_idleness() {
        let item = after(&[((0, 80), 400), ((60, 200), 8), ((0, 80), 192)]).unwrap();
        assert_eq!(item.reason, "idle 10 min");
        assert_eq!(after(&[((0, 80), 300), ((60, 200), 100), ((0, 80), 200)]), None);
    }

    #[test]
    fn some_idle_gpus_of_a_working_job_are_named() {
        let mut node = with_history(node("n1", &[1, 1]), &[(0, 80); 600]);
        let busy = with_history(super::super::tests::node("n1", &[1, 1]), &[(97, 650); 600]);
        node.gpus[0] = busy.gpus[0].clone();
        let (history, other) = (node.history.as_mut().unwrap(), busy.history.unwrap());
        history.gpus[0] = other.gpus[0].clone();
        let item = only(&job(1, "n1"), node).unwrap();
        assert_eq!((item.reason.as_str(), item.cost.unwrap().gpus), ("1 of 2 GPUs idle", 1));
        assert!(item.detail.starts_with("n1 GPU 1: "), "{}", item.detail);
    }

    #[test]
    fn a_job_with_unknown_gpus_is_neither_idle_nor_hung() {
        let idle = with_history(node("n1", &[1, 1]), &[(0, 80); 600]);
        let mut silent = idle.clone();
        silent.sampled_at_ms = Some(NOW.relay_ms - 60_000);
        assert_eq!(only(&job(1, "n1"), silent), None);
        let mut unsupported = idle.clone();
        unsupported.gpus[1].row.set(GpuField::Util, Cell::UNSUPPORTED);
        assert_eq!(only(&job(1, "n1"), unsupported), None);
        let mut wide = job(1, "n1");
        wide.nodes.push("n2".parse().unwrap());
        assert_eq!(only(&wide, idle.clone()), None, "nothing is known of the other node");
        let suspended = Job { state: JobState::Suspended, ..job(1, "n1") };
        assert_eq!(only(&suspended, idle), None);
    }
}
