//! Numbers samples, encodes them as deltas, and derives process, health and event lines from them.

use crate::{
    host::HostReadings,
    output, process,
    ring::{Ring, RingEntry},
    source::bound,
};
use nodeglass_protocol::probe::delta::{ProcessReadingsDiff, SampleDiff};
use nodeglass_protocol::probe::{
    Event, GpuGap, GpuHealth, GpuLinkRates, GpuSample, HealthReport, LinkRates, MAX_WHOLE, ProbeLine,
    ProcessList, ProcessSample, Sample,
};
use nodeglass_protocol::{GpuUuid, Text};
use std::collections::HashMap;

/// Maximum time between two process lists without change.
const LIST_INTERVAL_NS: u64 = 10_000_000_000;
/// Number of entries per additional interval between unchanged lists, because long lists are
/// expensive.
const LONG_LIST: usize = 512;
/// Maximum number of such intervals.
const MAX_LIST_INTERVALS: usize = 6;
/// Number of entries that always fit [`MAX_WHOLE`], however long their texts are.
const ALWAYS_FIT: usize = 512;
/// Maximum size of an entry's readings in JSON: nine numbers or failure reasons.
const READINGS_BYTES: usize = 9 * 48;
/// Maximum size of a gap in JSON.
const GAP_BYTES: usize = 700;
/// Maximum size of the devices of jobs in JSON.
const DEVICES_BYTES: usize = 96 << 10;
/// Maximum time between two health reports without change.
const HEALTH_INTERVAL_NS: u64 = 60_000_000_000;

/// One sample in this many is complete, so that decoding can start there.
const FULL_SAMPLE_EVERY: u32 = 30;

/// Start time of a sample by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` in ms.
    pub wall_ms: u64,
}

/// State that a probe hands over to its successor.
#[derive(Debug)]
pub struct HandoverState {
    /// Id of the sample stream.
    pub stream: u64,
    /// Sequence number of the next sample.
    pub next_seq: u64,
    /// The samples of the last ten minutes.
    pub ring: Ring,
    /// The GPUs at the positions of the readings in these samples; empty if unknown.
    pub gpus: Vec<GpuUuid>,
}

impl HandoverState {
    /// The beginning of a stream.
    pub fn new(stream: u64) -> Self {
        Self { stream, next_seq: 1, ring: Ring::default(), gpus: Vec::new() }
    }
}

/// Process line to be printed.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcessUpdate {
    /// Facts and readings of all processes; must not be dropped.
    List(ProbeLine),
    /// Encoded readings of the processes in the last list; may be dropped, because the next ones
    /// are newer.
    Readings(Vec<u8>),
}

/// Produces one stream of samples.
#[derive(Debug)]
pub struct Sampler {
    state: HandoverState,
    /// The last sample that was sent, and the number of deltas left before the next complete one.
    previous: Option<(Sample, u32)>,
    /// The last process list that was sent.
    sent: Option<ProcessList>,
    health: Option<(u64, Vec<GpuHealth>)>,
    uuids: Vec<GpuUuid>,
    faults: Vec<Option<Text>>,
}

impl Sampler {
    /// Starts a stream, or continues the stream of another probe.
    pub fn new(state: HandoverState) -> Self {
        let (uuids, faults) = (Vec::new(), Vec::new());
        Self { state, previous: None, sent: None, health: None, uuids, faults }
    }

    /// Id of the stream.
    pub fn stream(&self) -> u64 {
        self.state.stream
    }

    /// Sequence number of the next sample.
    pub fn next_seq(&self) -> u64 {
        self.state.next_seq
    }

    /// The samples of the last ten minutes.
    pub fn ring(&self) -> &Ring {
        &self.state.ring
    }

    /// The state with which another sampler can continue the stream.
    pub fn state(&self) -> &HandoverState {
        &self.state
    }

    /// Ends the stream here; another sampler can continue it.
    pub fn into_state(self) -> HandoverState {
        self.state
    }

    /// Applies a new inventory, which redefines positions. Samples whose readings are at the positions of other GPUs are
    /// dropped from the ring: a replay would show them as readings of the GPUs that have these positions now.
    pub fn set_gpus(&mut self, uuids: Vec<GpuUuid>) {
        let before = std::mem::take(&mut self.uuids).into_iter().zip(std::mem::take(&mut self.faults));
        let mut before: HashMap<_, _> = before.collect();
        // Faults that were already reported are not reported again.
        self.faults = uuids.iter().map(|uuid| before.remove(uuid).flatten()).collect();
        self.health = None;
        self.previous = None;
        let known = &mut self.state.gpus;
        if uuids.iter().zip(known.iter()).any(|(new, old)| new != old) {
            self.state.ring = Ring::default();
            known.clone_from(&uuids);
        } else if uuids.len() > known.len() {
            known.clone_from(&uuids);
        }
        self.uuids = uuids;
    }

    /// Skips the sequence numbers of samples that were not taken.
    pub fn skip(&mut self, count: u64) {
        self.state.next_seq += count;
    }

    /// Assigns a sequence number to a sample.
    pub fn sample(
        &mut self,
        at: Stamp,
        interval_ms: u32,
        gpus: Vec<GpuSample>,
        host: HostReadings,
    ) -> Sample {
        let seq = self.state.next_seq;
        self.state.next_seq += 1;
        Sample {
            seq,
            mono_ns: at.mono_ns,
            wall_ms: at.wall_ms,
            interval_ms,
            replay: false,
            since: None,
            gpus,
            host: host.host,
            cores: host.cores,
            jobs: host.jobs,
        }
    }

    /// Encodes a sample as a delta or in full, and stores the line in the ring.
    pub fn line(&mut self, sample: Sample) -> Vec<u8> {
        let (seq, mono_ns) = (sample.seq, sample.mono_ns);
        let mut bytes = Vec::with_capacity(4 << 10);
        let before =
            self.previous.take().filter(|(before, left)| *left > 0 && before.gpus.len() == sample.gpus.len());
        let is_diff = before.as_ref().is_some_and(|(before, _)| {
            let since = SampleDiff { now: &sample, before };
            output::write(&ProbeLine::<_>::Sample(Box::new(since)), &mut bytes)
        });
        if is_diff {
            self.previous = before.map(|(_, left)| (sample, left - 1));
        } else {
            let whole = ProbeLine::Sample(Box::new(sample));
            let fits = output::encode(&whole, &mut bytes);
            // A truncated sample cannot be the base of a delta.
            let ProbeLine::Sample(sample) = whole else { unreachable!("it was made above") };
            self.previous = fits.then_some((*sample, FULL_SAMPLE_EVERY - 1));
        }
        self.state.ring.push(RingEntry { seq, mono_ns, is_full: !is_diff, line: bytes.as_slice().into() });
        bytes
    }

    /// Makes the next sample complete, because the reader may not have the last one.
    pub fn force_full_sample(&mut self) {
        self.previous = None;
    }

    /// Returns the list if it changed or was not sent for a while, otherwise the current readings.
    pub fn processes(&mut self, mut now: ProcessList) -> Option<ProcessUpdate> {
        limit(&mut now);
        let stale = |sent: &ProcessList| {
            // Long lists are expensive, so they are repeated less often.
            let intervals = (sent.processes.len() / LONG_LIST).clamp(1, MAX_LIST_INTERVALS);
            now.mono_ns.saturating_sub(sent.mono_ns) >= LIST_INTERVAL_NS * intervals as u64
        };
        let differs = |sent: &ProcessList| {
            (&sent.gaps, &sent.job_devices) != (&now.gaps, &now.job_devices)
                || process::facts_changed(&sent.processes, &now.processes)
        };
        let listed = self.sent.as_ref().filter(|sent| !stale(sent) && !differs(sent));
        let Some(listed) = listed else {
            self.sent = Some(now.clone());
            return Some(ProcessUpdate::List(ProbeLine::Processes(now)));
        };
        if now.processes.is_empty() {
            return None;
        }
        let mut bytes = Vec::new();
        let (list_ns, listed) = (listed.mono_ns, &listed.processes);
        let readings = ProcessReadingsDiff { list_ns, now: &now.processes, listed };
        output::write(&ProbeLine::<Sample, _>::ProcessReadings(readings), &mut bytes)
            .then_some(ProcessUpdate::Readings(bytes))
    }

    /// Returns the last list that was sent, with a new time and new gaps.
    pub fn last_processes(&self, mono_ns: u64, gaps: Vec<GpuGap>) -> ProcessList {
        let (processes, job_devices) = match &self.sent {
            Some(sent) => (sent.processes.clone(), sent.job_devices.clone()),
            None => Default::default(),
        };
        ProcessList { mono_ns, processes, gaps, job_devices }
    }

    /// GPUs and instances of the last inventory.
    pub fn uuids(&self) -> &[GpuUuid] {
        &self.uuids
    }

    /// Returns a health line if health changed or was not sent for a while. If only link rates
    /// changed, the line contains only those.
    pub fn health(&mut self, mono_ns: u64, now: Vec<GpuHealth>) -> Option<ProbeLine> {
        let stale = |at: u64| mono_ns.saturating_sub(at) >= HEALTH_INTERVAL_NS;
        let Some((_, last)) =
            self.health.as_mut().filter(|(at, last)| !stale(*at) && last.len() == now.len())
        else {
            return Some(self.full_health(mono_ns, now));
        };
        let rates: Vec<_> = now.iter().map(GpuLinkRates::of).collect();
        let mut moved = false;
        for (last, rates) in last.iter_mut().zip(&rates) {
            moved |= rates.clone().apply(last);
        }
        if *last != now {
            return Some(self.full_health(mono_ns, now));
        }
        moved.then_some(ProbeLine::LinkRates(LinkRates { gpus: rates }))
    }

    fn full_health(&mut self, mono_ns: u64, now: Vec<GpuHealth>) -> ProbeLine {
        self.health = Some((mono_ns, now.clone()));
        ProbeLine::Health(HealthReport { gpus: now })
    }

    /// Returns events for GPUs that stopped or resumed responding since the last sample.
    pub fn fault_events(&mut self, sample: &Sample) -> Vec<Event> {
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
                None => format!("{uuid}: responds again").into(),
            };
            events.push(Event { mono_ns: sample.mono_ns, gpu: Some(uuid.clone()), xid: None, text });
            before.clone_from(&gpu.fault);
        }
        events
    }
}

/// Removes the last entries of each GPU until the line fits [`MAX_WHOLE`], and records the gaps.
///
/// The selection depends only on facts, so it is stable while the list is unchanged.
fn limit(list: &mut ProcessList) {
    if list.processes.len() <= ALWAYS_FIT {
        return;
    }
    let size = |process: &ProcessSample| {
        serde_json::to_vec(&process.facts).map_or(0, |json| json.len()) + READINGS_BYTES
    };
    let same_gpu = |a: &ProcessSample, b: &ProcessSample| a.facts.gpu == b.facts.gpu;
    let by_gpu: Vec<Vec<usize>> =
        list.processes.chunk_by(same_gpu).map(|chunk| chunk.iter().map(size).collect()).collect();
    let room = MAX_WHOLE.saturating_sub(DEVICES_BYTES + GAP_BYTES * (list.gaps.len() + by_gpu.len() + 1));
    let mut most = list.processes.len();
    let cap = loop {
        let cap = bound::fair_cap(by_gpu.iter().map(Vec::len), most);
        let bytes: usize = by_gpu.iter().flat_map(|sizes| sizes.iter().take(cap)).sum();
        if bytes <= room || most == 0 {
            break cap;
        }
        most -= most.div_ceil(16);
    };
    bound::cut(&mut list.processes, &mut list.gaps, cap, |process| &process.facts.gpu);
}

#[cfg(test)]
mod tests {
    use super::*;
    use nodeglass_protocol::Reading;
    use nodeglass_protocol::gpu::NvLink;
    use nodeglass_protocol::probe::{ProcessFacts, ProcessGap, ProcessKind, ProcessReadings};

    fn sampler() -> Sampler {
        Sampler::new(HandoverState { next_seq: 10, ..HandoverState::new(1) })
    }

    fn read(sampler: &mut Sampler, fault: Option<&str>) -> Sample {
        let gpu = GpuSample { fault: fault.map(Text::from), ..GpuSample::default() };
        sampler.sample(Stamp::default(), 1_000, vec![gpu], HostReadings::default())
    }

    #[test]
    fn sequence_numbers_continue_after_a_handover() {
        let mut sampler = sampler();
        assert_eq!(read(&mut sampler, None).seq, 10);
        assert_eq!(read(&mut sampler, None).seq, 11);
    }

    #[test]
    fn a_replay_has_no_readings_of_a_gpu_that_had_the_position_of_another() {
        let mut sampler = sampler();
        let mut replayed = |gpus: &[&str]| {
            sampler.set_gpus(gpus.iter().copied().map(GpuUuid::new).collect());
            let gpus = vec![GpuSample::default(); gpus.len()];
            let sample = sampler.sample(Stamp::default(), 1_000, gpus, HostReadings::default());
            sampler.line(sample);
            sampler.ring().iter().map(|entry| entry.seq).collect::<Vec<_>>()
        };
        assert_eq!(replayed(&["A", "B"]), [10]);
        assert_eq!(replayed(&[]), [10, 11], "the driver is unloaded");
        assert_eq!(replayed(&["A", "B", "C"]), [10, 11, 12]);
        assert_eq!(replayed(&["A", "B"]), [10, 11, 12, 13], "the last one is gone");
        assert_eq!(replayed(&["A", "B", "D"]), [14], "another one has its position");
        assert_eq!(replayed(&["B", "D"]), [15], "the positions moved");
        let successor = Sampler::new(sampler.into_state());
        assert_eq!(successor.state().gpus, ["B", "D"].map(GpuUuid::new));
    }

    #[test]
    fn a_lost_gpu_is_reported_once_and_its_recovery_once() {
        let mut sampler = sampler();
        sampler.set_gpus(vec![GpuUuid::new("GPU-1")]);
        let mut reported = Vec::new();
        for fault in [None, Some("GPU is lost"), Some("GPU is lost"), None, None] {
            let sample = read(&mut sampler, fault);
            reported.extend(sampler.fault_events(&sample).into_iter().map(|event| event.text.to_string()));
        }
        assert_eq!(reported, ["GPU-1: GPU is lost", "GPU-1: responds again"]);
    }

    #[test]
    fn a_lost_gpu_is_reported_once_across_inventory_changes() {
        let mut sampler = sampler();
        let mut reported = 0;
        for uuids in [vec!["GPU-1"], vec!["GPU-1", "GPU-2"]] {
            sampler.set_gpus(uuids.into_iter().map(GpuUuid::new).collect());
            let sample = read(&mut sampler, Some("GPU is lost"));
            reported += sampler.fault_events(&sample).len();
        }
        assert_eq!(reported, 1);
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
    fn changed_link_rates_are_sent_without_the_rest_of_health() {
        let mut sampler = sampler();
        let mut sent = |rate: u64, replays: u64| {
            let link = NvLink { rx_mib_s: Reading::Value(rate), ..NvLink::default() };
            let health = GpuHealth {
                pcie_replays: Reading::Value(replays),
                nvlinks: vec![link; 2],
                ..GpuHealth::default()
            };
            sampler.health(0, vec![health])
        };
        assert!(matches!(sent(7, 0), Some(ProbeLine::Health(_))));
        assert_eq!(sent(7, 0), None);
        let Some(ProbeLine::LinkRates(rates)) = sent(8, 0) else { panic!("the rates are others") };
        assert_eq!(rates.gpus[0].rx_mib_s, [Reading::Value(8), Reading::Value(8)]);
        assert!(matches!(sent(9, 1), Some(ProbeLine::Health(_))));
        assert_eq!(sent(9, 1), None);
    }

    /// Returns whether the line of the next sample is complete.
    fn is_full(sampler: &mut Sampler, utils: &[u64]) -> bool {
        let gpu = |util: &u64| GpuSample { util_pct: Reading::Value(*util), ..GpuSample::default() };
        let gpus = utils.iter().map(gpu).collect();
        let sample = sampler.sample(Stamp::default(), 1_000, gpus, HostReadings::default());
        let (before, line) = (sample.seq - 1, sampler.line(sample));
        match serde_json::from_slice(&line).unwrap() {
            ProbeLine::<Sample>::Sample(sample) => {
                assert!(sample.since.is_none_or(|since| since == before));
                sample.since.is_none()
            }
            other => unreachable!("a sample became {other:?}"),
        }
    }

    #[test]
    fn complete_samples_are_sent_first_on_demand_and_periodically() {
        let mut sampler = sampler();
        let of_thirty: Vec<_> = (0..31).map(|_| is_full(&mut sampler, &[1])).collect();
        assert_eq!(of_thirty.iter().filter(|whole| **whole).count(), 2);
        assert!(of_thirty[0] && of_thirty[30]);
        sampler.force_full_sample();
        assert!(is_full(&mut sampler, &[1]) && !is_full(&mut sampler, &[1]));
        assert!(is_full(&mut sampler, &[1, 2]) && !is_full(&mut sampler, &[1, 2]));
        sampler.set_gpus(Vec::new());
        assert!(is_full(&mut sampler, &[1, 2]));
    }

    #[test]
    fn lists_are_sent_on_change_and_every_ten_seconds_and_readings_otherwise() {
        let mut sampler = sampler();
        let process = |pid: u32, mib: u64| ProcessSample {
            facts: ProcessFacts::new(GpuUuid::new("GPU-1"), pid, ProcessKind::default()),
            now: ProcessReadings { gpu_mem_bytes: Reading::Value(mib << 20), ..ProcessReadings::default() },
        };
        let list = |second: u64, processes| ProcessList {
            mono_ns: second * 1_000_000_000,
            processes,
            ..ProcessList::default()
        };
        let mut sent =
            |second: u64, processes: Vec<ProcessSample>| match sampler.processes(list(second, processes)) {
                Some(ProcessUpdate::List(ProbeLine::Processes(list))) => {
                    format!("{} listed", list.processes.len())
                }
                Some(ProcessUpdate::Readings(line)) => String::from_utf8(line).unwrap(),
                other => format!("{other:?}"),
            };
        assert_eq!(sent(0, vec![process(1, 5)]), "1 listed");
        assert_eq!(
            sent(2, vec![process(1, 6)]),
            "{\"process_readings\":{\"list_ns\":0,\"sparse\":true,\"now\":[{\"gpu_mem_bytes\":6291456}]}}\n"
        );
        assert_eq!(sent(4, vec![process(1, 6), process(2, 6)]), "2 listed");
        assert_eq!(sent(6, vec![process(2, 7)]), "1 listed");
        assert_eq!(
            sent(15, vec![process(2, 7)]),
            "{\"process_readings\":{\"list_ns\":6000000000,\"sparse\":true,\"now\":[{}]}}\n"
        );
        assert_eq!(sent(16, vec![process(2, 8)]), "1 listed");
        assert_eq!(sent(18, Vec::new()), "0 listed");
        assert_eq!(sent(20, Vec::new()), "None");
    }

    #[test]
    fn oversized_lists_are_truncated_deterministically_with_a_count() {
        let facts = |gpu: &str, pid| ProcessFacts {
            args: Reading::Value("\"".repeat(250).into()),
            cwd: Reading::Value("\"".repeat(250).into()),
            command: Reading::Value("\"".repeat(250).into()),
            ..ProcessFacts::new(GpuUuid::new(gpu), pid, ProcessKind::default())
        };
        let process = |(gpu, pid)| ProcessSample { facts: facts(gpu, pid), now: ProcessReadings::default() };
        let all = (1..=3_000).map(|pid| ("A", pid)).chain((1..=10).map(|pid| ("B", pid)));
        let list = |mono_ns| ProcessList {
            mono_ns,
            processes: all.clone().map(process).collect(),
            ..ProcessList::default()
        };
        let mut sampler = sampler();
        let Some(ProcessUpdate::List(line)) = sampler.processes(list(1)) else {
            panic!("it is the first list")
        };
        let mut bytes = Vec::new();
        assert!(output::write(&line, &mut bytes));
        let ProbeLine::Processes(sent) = line else { panic!("it is a list") };
        assert!(
            sent.processes.len() > 1_000
                && sent.processes.iter().filter(|one| one.facts.gpu.as_str() == "B").count() == 10
        );
        let more = 3_010 - sent.processes.len() as u32;
        assert_eq!(sent.gaps, [GpuGap { gpu: GpuUuid::new("A"), gap: ProcessGap::More(more) }]);
        assert!(matches!(sampler.processes(list(2)), Some(ProcessUpdate::Readings(_))));
    }

    #[test]
    fn a_list_is_sent_when_a_gap_appears_or_disappears() {
        let mut sampler = sampler();
        let gap = GpuGap { gpu: GpuUuid::new("A"), gap: ProcessGap::Failed("unknown error".into()) };
        let mut sent = |mono_ns, gaps| {
            matches!(
                sampler.processes(ProcessList { mono_ns, gaps, ..ProcessList::default() }),
                Some(ProcessUpdate::List(_))
            )
        };
        let reported = [vec![], vec![gap.clone()], vec![gap], vec![]].map(|gaps| sent(1, gaps));
        assert_eq!(reported, [true, true, false, true]);
    }
}
