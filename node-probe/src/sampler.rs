//! Readings become numbered samples, and what is news among them becomes lines of its own.

use crate::{
    host::Look,
    process,
    ring::{Kept, Ring},
};
use nodeglass_protocol::probe::{
    Event, GpuHealth, GpuSample, HealthReport, ProbeLine, ProcessList, ProcessSample, ProcessVitals, Sample,
};
use nodeglass_protocol::{GpuUuid, Text};
use std::collections::HashMap;

/// A process list is sent again after this long even if nothing changed.
const PROCESSES_RESENT_NS: u64 = 10_000_000_000;
/// So is health after this long.
const HEALTH_RESENT_NS: u64 = 60_000_000_000;

/// When a sample was begun, by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` in ms.
    pub wall_ms: u64,
}

/// One unbroken row of samples.
#[derive(Debug)]
pub struct Sampler {
    stream: u64,
    next_seq: u64,
    ring: Ring,
    sent: Option<(u64, Vec<ProcessSample>)>,
    health: Option<(u64, Vec<GpuHealth>)>,
    uuids: Vec<GpuUuid>,
    faults: Vec<Option<Text>>,
}

impl Sampler {
    /// Begins a row, or goes on with one that another probe began.
    pub fn new(stream: u64, next_seq: u64, ring: Ring) -> Self {
        Self { stream, next_seq, ring, sent: None, health: None, uuids: Vec::new(), faults: Vec::new() }
    }

    /// The name of the row.
    pub fn stream(&self) -> u64 {
        self.stream
    }

    /// The number that the next sample gets.
    pub fn next_seq(&self) -> u64 {
        self.next_seq
    }

    /// The last ten minutes.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Takes note of a new inventory: positions mean other GPUs from now on.
    pub fn reseat(&mut self, uuids: Vec<GpuUuid>) {
        let before = std::mem::take(&mut self.uuids).into_iter().zip(std::mem::take(&mut self.faults));
        let mut before: HashMap<_, _> = before.collect();
        // What was told of a GPU is not told again because another one came.
        self.faults = uuids.iter().map(|uuid| before.remove(uuid).flatten()).collect();
        self.health = None;
        self.uuids = uuids;
    }

    /// Numbers what was read.
    pub fn sample(&mut self, at: Stamp, interval_ms: u32, gpus: Vec<GpuSample>, host: Look) -> Sample {
        let seq = self.next_seq;
        self.next_seq += 1;
        Sample {
            seq,
            mono_ns: at.mono_ns,
            wall_ms: at.wall_ms,
            interval_ms,
            replay: false,
            gpus,
            host: host.host,
            cores: host.cores,
            jobs: host.jobs,
        }
    }

    /// Keeps a printed sample for whoever missed it.
    pub fn keep(&mut self, sample: &Sample, line: &[u8]) {
        self.ring.push(Kept { seq: sample.seq, mono_ns: sample.mono_ns, line: line.into() });
    }

    /// The line of the processes: the list if it is another one or was not sent for a while, otherwise what they do now.
    pub fn processes(&mut self, mono_ns: u64, now: Vec<ProcessSample>) -> Option<ProbeLine> {
        let stale = |at: u64| mono_ns.saturating_sub(at) >= PROCESSES_RESENT_NS;
        let due =
            self.sent.as_ref().is_none_or(|(at, last)| stale(*at) || process::worth_sending(last, &now));
        if due {
            self.sent = Some((mono_ns, now.clone()));
            return Some(ProbeLine::Processes(ProcessList { processes: now }));
        }
        let now: Vec<_> = now.into_iter().map(|process| process.now).collect();
        (!now.is_empty()).then_some(ProbeLine::ProcessVitals(ProcessVitals { now }))
    }

    /// Health if it is worth a line: it changed, or it was not sent for a while.
    pub fn health(&mut self, mono_ns: u64, now: Vec<GpuHealth>) -> Option<HealthReport> {
        let stale = |at: u64| mono_ns.saturating_sub(at) >= HEALTH_RESENT_NS;
        let due = self.health.as_ref().is_none_or(|(at, last)| stale(*at) || *last != now);
        due.then(|| {
            self.health = Some((mono_ns, now.clone()));
            HealthReport { gpus: now }
        })
    }

    /// GPUs that stopped answering or answer again since the last sample.
    pub fn turns(&mut self, sample: &Sample) -> Vec<Event> {
        let mut events = Vec::new();
        for (position, gpu) in sample.gpus.iter().enumerate() {
            let (Some(uuid), Some(before)) = (self.uuids.get(position), self.faults.get_mut(position)) else {
                break;
            };
            if *before == gpu.fault {
                continue;
            }
            let text = match &gpu.fault {
                Some(fault) => format!("{uuid}: {fault}").into(),
                None => format!("{uuid}: answers again").into(),
            };
            events.push(Event { mono_ns: sample.mono_ns, gpu: Some(uuid.clone()), xid: None, text });
            before.clone_from(&gpu.fault);
        }
        events
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Reading;
    use nodeglass_protocol::probe::{ProcessFacts, ProcessKind, ProcessReadings};

    fn sampler() -> Sampler {
        Sampler::new(1, 10, Ring::default())
    }

    fn read(sampler: &mut Sampler, fault: Option<&str>) -> Sample {
        let gpu = GpuSample { fault: fault.map(Text::from), ..GpuSample::default() };
        sampler.sample(Stamp::default(), 1_000, vec![gpu], Look::default())
    }

    #[test]
    fn numbers_go_on_where_another_probe_stopped() {
        let mut sampler = sampler();
        assert_eq!(read(&mut sampler, None).seq, 10);
        assert_eq!(read(&mut sampler, None).seq, 11);
    }

    #[test]
    fn a_lost_gpu_is_told_once_and_its_return_once() {
        let mut sampler = sampler();
        sampler.reseat(vec![GpuUuid::new("GPU-1")]);
        let mut told = Vec::new();
        for fault in [None, Some("GPU is lost"), Some("GPU is lost"), None, None] {
            let sample = read(&mut sampler, fault);
            told.extend(sampler.turns(&sample).into_iter().map(|event| event.text.to_string()));
        }
        assert_eq!(told, ["GPU-1: GPU is lost", "GPU-1: answers again"]);
    }

    #[test]
    fn a_gpu_that_is_lost_while_another_one_comes_is_told_once() {
        let mut sampler = sampler();
        let mut told = 0;
        for uuids in [vec!["GPU-1"], vec!["GPU-1", "GPU-2"]] {
            sampler.reseat(uuids.into_iter().map(GpuUuid::new).collect());
            let sample = read(&mut sampler, Some("GPU is lost"));
            told += sampler.turns(&sample).len();
        }
        assert_eq!(told, 1);
    }

    #[test]
    fn health_is_sent_when_it_changes_and_every_minute() {
        let mut sampler = sampler();
        let mut sent = |second: u64, replays: u64| {
            let health = GpuHealth { pcie_replays: Reading::Value(replays), ..GpuHealth::default() };
            sampler.health(second * 1_000_000_000, vec![health]).is_some()
        };
        let looks = [(0, 0), (5, 0), (10, 1), (65, 1), (70, 1), (75, 1)].map(|(second, n)| sent(second, n));
        assert_eq!(looks, [true, false, true, false, true, false]);
    }

    #[test]
    fn a_list_is_sent_when_somebody_comes_or_goes_and_every_ten_seconds_and_vitals_otherwise() {
        let mut sampler = sampler();
        let process = |pid: u32, memory: u64| ProcessSample {
            facts: ProcessFacts::new(GpuUuid::new("GPU-1"), pid, ProcessKind::default()),
            now: ProcessReadings { gpu_mem_bytes: Reading::Value(memory), ..ProcessReadings::default() },
        };
        let mut sent = |second: u64, processes: Vec<ProcessSample>| match sampler
            .processes(second * 1_000_000_000, processes)
        {
            Some(ProbeLine::Processes(list)) => format!("{} listed", list.processes.len()),
            Some(ProbeLine::ProcessVitals(vitals)) => format!("{:?}", vitals.now[0].gpu_mem_bytes),
            other => format!("{other:?}"),
        };
        assert_eq!(sent(0, vec![process(1, 5)]), "1 listed");
        assert_eq!(sent(2, vec![process(1, 6)]), "Value(6)");
        assert_eq!(sent(4, vec![process(1, 6), process(2, 6)]), "2 listed");
        assert_eq!(sent(6, vec![process(2, 7)]), "1 listed");
        assert_eq!(sent(15, vec![process(2, 8)]), "Value(8)");
        assert_eq!(sent(16, vec![process(2, 8)]), "1 listed");
        assert_eq!(sent(18, Vec::new()), "0 listed");
        assert_eq!(sent(20, Vec::new()), "None");
    }
}
