//! Problems of GPUs: flags, errors of their memory, Xids, lost ones, memory that nobody holds, stuck processes. Those of
//! the same kind and the same jobs are one finding.

mod sentence;

use crate::input::DetectorInput;
use crate::tracker::{Detection, Detections};
use nodeglass_protocol::finding::{FindingGpu, FindingKind, FindingSeverity, FindingTrait};
use nodeglass_protocol::job::Job;
use nodeglass_protocol::picture::{GpuEvent, GpuPicture, NodePicture};
use nodeglass_protocol::process::ProcessState;
use nodeglass_protocol::unattributed::MIN_BYTES;
use nodeglass_protocol::{GpuField, GpuUuid, ProcessField};
use nodeglass_rules::flags::{self, FlagKind};
use nodeglass_rules::throttle::{self, reason};
use nodeglass_rules::{ownership, xid};
use std::collections::BTreeMap;

/// Time for which a process must be a zombie or uninterruptible, in ms: checkpoints to a shared file system take a
/// while.
const STUCK_MS: u64 = 120_000;

/// One GPU with a problem.
struct AffectedGpu<'a> {
    node: &'a NodePicture,
    gpu: &'a GpuPicture,
    severity: FindingSeverity,
    since: Option<(u64, bool)>,
    /// The number of the event that shows it, if any.
    xid: Option<u64>,
    /// When an Xid of this number occurred, in ms of the relay's clock.
    occurred_ms: Vec<u64>,
    /// Whether no uncorrected memory error is known to have occurred while its jobs ran.
    has_old_errors: bool,
}

/// GPUs with the same problem that belong to the same jobs.
struct Group<'a> {
    kind: FindingKind,
    /// The number of an Xid, else 0.
    xid: u64,
    /// The subject: the job, or the node if several jobs share GPUs, or on a machine without a job.
    subject: String,
    jobs: Vec<&'a Job>,
    gpus: Vec<AffectedGpu<'a>>,
}

type Groups<'a> = BTreeMap<(FindingKind, u64, String), Group<'a>>;

pub(super) fn detect(input: &DetectorInput<'_>, found: &mut Detections) {
    let mut groups = Groups::new();
    for node in input.nodes.values() {
        let here = input.jobs_on(node);
        if !input.is_examined(node) {
            continue;
        }
        for gpu in node.gpus.iter().filter(|gpu| !ownership::is_part_of_lost(node, gpu)) {
            let owners: Vec<&Job> =
                here.iter().copied().filter(|job| ownership::has_part(node, gpu, job.id)).collect();
            // Of a listed machine, GPUs without a job matter as well. Elsewhere, one that is lost does: its node needs a
            // reboot, and the page marks it.
            if !owners.is_empty() || here.is_empty() || input.is_listed(node) || gpu.fault.is_some() {
                examine(input, node, gpu, &owners, &mut groups);
            }
        }
    }
    found.seen.extend(groups.values().map(|group| detection(input, group)));
}

fn examine<'a>(
    input: &DetectorInput<'a>,
    node: &'a NodePicture,
    gpu: &'a GpuPicture,
    owners: &[&'a Job],
    groups: &mut Groups<'a>,
) {
    let events: Vec<&GpuEvent> =
        node.head.events.iter().filter(|event| event.gpu.as_ref() == Some(&gpu.facts.uuid)).collect();
    let xids: Vec<(&GpuEvent, u64)> = events.iter().filter_map(|event| Some((*event, event.xid?))).collect();
    // An error that a count still has occurred when it did, however long ago.
    let uncorrected_ms = uncorrected_ms(input, node, gpu, owners, &xids);
    let is_recent = |(event, _): &(&GpuEvent, u64)| xid::is_recent(event.at_ms, input.now.relay_ms);
    let recent: Vec<(&GpuEvent, u64)> = xids.iter().copied().filter(is_recent).collect();
    let is_lost = gpu.fault.is_some();
    let mut problems = Problems { input, node, gpu, owners, uncorrected_ms, groups };
    // What a lost GPU of no job here reported before concerns no job.
    if !is_lost || !owners.is_empty() || input.jobs_on(node).is_empty() {
        problems.add_xids(&recent, &xids);
        problems.add_memory_errors(&recent);
    }
    if is_lost {
        // That the driver hangs is one problem of the node, not one of each GPU.
        if node.head.driver_stuck_ms.is_none() {
            problems.add_lost(&events);
        }
        return;
    }
    problems.add_flags(&recent);
    if !input.is_current(node) {
        return;
    }
    if held_bytes(gpu).is_some() {
        problems.add_usual(FindingKind::HeldMemory, None);
    }
    if stuck_process(input, node, &gpu.facts.uuid).is_some() {
        problems.add_usual(FindingKind::StuckProcess, None);
    }
}

/// Collects the problems of a GPU.
struct Problems<'a, 'g> {
    input: &'g DetectorInput<'a>,
    node: &'a NodePicture,
    gpu: &'a GpuPicture,
    owners: &'g [&'a Job],
    /// See [`uncorrected_ms`].
    uncorrected_ms: Option<u64>,
    groups: &'g mut Groups<'a>,
}

impl<'a> Problems<'a, '_> {
    /// Adds a problem to its group. `xid` is the number of the event that shows it.
    fn add(
        &mut self,
        kind: FindingKind,
        severity: FindingSeverity,
        since: Option<(u64, bool)>,
        xid: Option<u64>,
    ) -> &mut Group<'a> {
        let subject = match self.owners {
            [job] => job.id.to_string(),
            // Jobs that share GPUs, and machines without any, have one per node.
            _ => self.node.name.to_string(),
        };
        let since = since.or_else(|| Some(self.input.seen_now(self.node)));
        let number = xid.filter(|_| kind == FindingKind::Xid).unwrap_or_default();
        let group = self.groups.entry((kind, number, subject.clone())).or_insert_with(|| Group {
            kind,
            xid: number,
            subject,
            jobs: Vec::new(),
            gpus: Vec::new(),
        });
        for job in self.owners {
            if group.jobs.iter().all(|known| known.id != job.id) {
                group.jobs.push(job);
            }
        }
        // Several flags of a GPU are one problem.
        match group.gpus.last_mut().filter(|affected| affected.gpu.facts.uuid == self.gpu.facts.uuid) {
            Some(affected) => affected.severity = affected.severity.max(severity),
            None => {
                let (node, gpu, has_old_errors) = (self.node, self.gpu, self.uncorrected_ms.is_none());
                let occurred_ms = Vec::new();
                group.gpus.push(AffectedGpu { node, gpu, severity, since, xid, occurred_ms, has_old_errors });
            }
        }
        group
    }

    /// Adds a problem that is as severe as its kind usually is.
    fn add_usual(&mut self, kind: FindingKind, since: Option<(u64, bool)>) {
        self.add(kind, kind.severity(), since, None);
    }

    /// Adds that the GPU cannot be read, since the latest event that states it.
    fn add_lost(&mut self, events: &[&GpuEvent]) {
        let lost = events.iter().rev().find(|event| event.xid.is_none_or(|number| number == 79));
        let since = lost.map(|event| (event.at_ms, false));
        let is_unused = self.owners.is_empty() && !self.input.jobs_on(self.node).is_empty();
        let severity = if is_unused { FindingSeverity::Warning } else { FindingKind::GpuLost.severity() };
        self.add(FindingKind::GpuLost, severity, since, None);
    }

    /// Adds the recent Xids that are not errors of the memory, each number once, with all of the same number that its jobs
    /// had.
    fn add_xids(&mut self, recent: &[(&GpuEvent, u64)], xids: &[(&GpuEvent, u64)]) {
        let (now, owners) = (self.input.now, self.owners);
        let has_started = |event: &GpuEvent| {
            owners.iter().all(|job| job.start.is_none_or(|start| now.to_relay_ms(start) <= event.at_ms))
        };
        for (at, (event, number)) in recent.iter().enumerate() {
            let is_latest = recent[at + 1..].iter().all(|(_, later)| later != number);
            // The program that caused it may have ended.
            let is_program_error =
                xid::meaning(*number).is_some_and(|(_, is_program_error)| is_program_error);
            if is_latest && !xid::is_memory_error(*number) && (!is_program_error || has_started(event)) {
                let since = Some((event.at_ms, false));
                let group = self.add(FindingKind::Xid, xid::severity(*number).into(), since, Some(*number));
                let same = |(other, known): &&(&GpuEvent, u64)| {
                    known == number && (has_started(other) || !has_started(event))
                };
                if let Some(affected) = group.gpus.last_mut() {
                    affected.occurred_ms = xids.iter().filter(same).map(|(event, _)| event.at_ms).collect();
                }
            }
        }
    }

    /// Adds the latest error of the GPU's memory: a warning if it occurred before the jobs began.
    fn add_memory_errors(&mut self, recent: &[(&GpuEvent, u64)]) {
        if let Some((event, number)) = latest_memory_error(recent) {
            let since = Some((event.at_ms, false));
            let severity = FindingSeverity::from(xid::severity(number));
            let most = if self.uncorrected_ms.is_some() { severity } else { FindingSeverity::Warning };
            self.add(FindingKind::MemoryErrors, severity.min(most), since, Some(number));
        }
    }

    /// Adds what the flags of the GPU show. Errors of its memory may be the same problem as an Xid.
    fn add_flags(&mut self, recent: &[(&GpuEvent, u64)]) {
        let (node, gpu) = (self.node, self.gpu);
        let memory_error = latest_memory_error(recent);
        for flag in flags::for_gpu(node, gpu).iter().filter(|flag| flag.severity.needs_attention()) {
            let Some(kind) = flag_kind(flag.kind) else { continue };
            if !self.input.is_current(node) && kind.is(FindingTrait::LowersClock) {
                continue;
            }
            let since = match kind {
                FindingKind::MemoryErrors => match (memory_error, self.uncorrected_ms) {
                    (Some((event, _)), _) => Some((event.at_ms, false)),
                    (None, Some(at_ms)) if flag.kind == FlagKind::EccUncorrected => Some((at_ms, false)),
                    (None, None) if flag.kind == FlagKind::EccUncorrected => {
                        Some((self.input.now.relay_ms, true))
                    }
                    _ => None,
                },
                _ => throttled_since(node, gpu, kind),
            };
            let xid = memory_error.filter(|_| kind == FindingKind::MemoryErrors).map(|(_, number)| number);
            let severity = match flag.kind {
                FlagKind::EccUncorrected if self.uncorrected_ms.is_some() => FindingSeverity::Error,
                _ => flag.severity.into(),
            };
            self.add(kind, severity, since, xid);
        }
    }
}

/// Returns when the last uncorrected memory error of a GPU occurred, in ms of the relay's clock, if that was while its
/// jobs ran: NVML counts since the driver was loaded, and errors of earlier jobs say nothing about the results of these.
fn uncorrected_ms(
    input: &DetectorInput<'_>,
    node: &NodePicture,
    gpu: &GpuPicture,
    owners: &[&Job],
    xids: &[(&GpuEvent, u64)],
) -> Option<u64> {
    let series = input.series.get(&node.name);
    let grown_ms = series.and_then(|series| series.uncorrected_grown_ms(&gpu.facts.uuid));
    let at_ms = latest_memory_error(xids).map(|(event, _)| event.at_ms).max(grown_ms)?;
    let had_begun = |job: &&Job| job.start.is_none_or(|start| input.now.to_relay_ms(start) <= at_ms);
    owners.iter().all(had_begun).then_some(at_ms)
}

/// Returns the latest event about the GPU's memory, and its number.
fn latest_memory_error<'a>(xids: &[(&'a GpuEvent, u64)]) -> Option<(&'a GpuEvent, u64)> {
    xids.iter().rev().find(|(_, number)| xid::is_memory_error(*number)).copied()
}

/// The finding that a flag of a GPU shows, if any.
fn flag_kind(flag: FlagKind) -> Option<FindingKind> {
    match flag {
        FlagKind::Thermal => Some(FindingKind::Thermal),
        FlagKind::PowerBrake => Some(FindingKind::PowerBrake),
        FlagKind::Slowdown => Some(FindingKind::Slowdown),
        FlagKind::NvLinkDown => Some(FindingKind::NvlinkDown),
        FlagKind::PcieNarrow => Some(FindingKind::PcieNarrow),
        FlagKind::Unlicensed => Some(FindingKind::Unlicensed),
        FlagKind::EccUncorrected
        | FlagKind::RemapFailed
        | FlagKind::RemapPending
        | FlagKind::RetirePending => Some(FindingKind::MemoryErrors),
        FlagKind::PowerCap | FlagKind::EccCorrected | FlagKind::Other => None,
    }
}

/// Returns how much memory of a GPU no visible process holds, if it is enough to report.
fn held_bytes(gpu: &GpuPicture) -> Option<u64> {
    gpu.row.value(GpuField::MemUnattributed).filter(|bytes| *bytes >= MIN_BYTES)
}

/// Returns the first process on a GPU that has been a zombie or uninterruptible for two minutes: `pid 4711 is a zombie`.
fn stuck_process(input: &DetectorInput<'_>, node: &NodePicture, uuid: &GpuUuid) -> Option<String> {
    let series = input.series.get(&node.name)?;
    node.processes.iter().filter(|process| process.facts.gpu == *uuid).find_map(|process| {
        let pid = process.facts.pid;
        let state = ProcessState::of_number(process.row.value(ProcessField::State)?);
        let stuck_ms = input.now.relay_ms.saturating_sub(series.stuck_since_ms(pid)?);
        match state {
            _ if stuck_ms < STUCK_MS => None,
            ProcessState::Zombie => Some(format!("pid {pid} is a zombie")),
            ProcessState::Uninterruptible => Some(format!("pid {pid} is in uninterruptible sleep")),
            ProcessState::Alive | ProcessState::Stopped => None,
        }
    })
}

/// Returns since when a throttle reason applies, if the history shows its start.
fn throttled_since(node: &NodePicture, gpu: &GpuPicture, kind: FindingKind) -> Option<(u64, bool)> {
    let bits = match kind {
        FindingKind::Thermal => reason::SW_THERMAL | reason::HW_THERMAL,
        FindingKind::PowerBrake => reason::HW_POWER_BRAKE,
        FindingKind::Slowdown => reason::HW_SLOWDOWN,
        _ => return None,
    };
    let position = node.gpus.iter().position(|known| known.facts.uuid == gpu.facts.uuid)?;
    throttle::start(node.history.as_ref()?.gpu(position, GpuField::Throttle)?, bits)
}

fn detection(input: &DetectorInput<'_>, group: &Group<'_>) -> Detection {
    let Group { kind, xid, subject, jobs, gpus } = group;
    let worst = gpus.iter().map(|affected| affected.severity).max().unwrap_or(FindingSeverity::Warning);
    let subject = if *kind == FindingKind::Xid { format!("{subject}/{xid}") } else { subject.clone() };
    let sentence = sentence::of(input, group);
    let mut detection = Detection::new(*kind, subject, sentence.title);
    detection.severity = worst;
    (detection.evidence, detection.advice) = (sentence.evidence, sentence.advice);
    detection.reason = sentence.reason;
    detection.jobs = jobs.iter().map(|job| job.id).collect();
    detection.nodes = gpus.iter().map(|affected| affected.node.name.clone()).collect();
    detection.nodes.dedup();
    let field = match kind {
        kind if kind.is(FindingTrait::LowersClock) => Some(GpuField::SmClock),
        FindingKind::HeldMemory => Some(GpuField::MemUsed),
        FindingKind::GpuLost => Some(GpuField::Util),
        _ => None,
    };
    detection.gpus = gpus
        .iter()
        .map(|affected| FindingGpu::new(&affected.node.name, &affected.gpu.facts.uuid, field))
        .collect();
    let starts = gpus.iter().filter_map(|affected| affected.since);
    detection.since = match kind.is_event() {
        true => starts.max_by_key(|(at_ms, _)| *at_ms),
        false => starts.min_by_key(|(at_ms, _)| *at_ms),
    };
    if *kind == FindingKind::GpuLost {
        detection.wasted_gpus = gpus.len();
    }
    detection
}

#[cfg(test)]
mod tests;
