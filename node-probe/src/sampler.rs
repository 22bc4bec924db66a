//! Readings become numbered samples, and what is news among them becomes lines of its own.

use crate::{
    host::HostReadings,
    output,
    process::{self, bound},
    ring::{Ring, RingEntry},
};
use nodeglass_protocol::probe::delta::{ProcessReadingsDiff, SampleDiff};
use nodeglass_protocol::probe::{
    Event, GpuGap, GpuHealth, GpuLinkRates, GpuSample, HealthReport, LinkRates, MAX_WHOLE, ProbeLine,
    ProcessList, ProcessSample, Sample,
};
use nodeglass_protocol::{GpuUuid, Text};
use std::collections::HashMap;

/// A process list is sent again after this long even if nothing changed.
const LIST_INTERVAL_NS: u64 = 10_000_000_000;
/// A list is sent again this much later for each so many entries: a long one costs more and says the same.
const LONG_LIST: usize = 512;
/// But at most so many times later.
const MAX_LIST_INTERVALS: usize = 6;
/// So many entries fit [`MAX_WHOLE`] however long their texts are.
const ALWAYS_FIT: usize = 512;
/// The readings of an entry in JSON, at most: nine numbers, or why they failed.
const READINGS_BYTES: usize = 9 * 48;
/// A gap in JSON, at most.
const GAP_BYTES: usize = 700;
/// So is health after this long.
const HEALTH_INTERVAL_NS: u64 = 60_000_000_000;

/// So many samples, and one is told as a whole: whoever reads the ring can begin there.
const FULL_SAMPLE_EVERY: u32 = 30;

/// When a sample was begun, by both clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stamp {
    /// `CLOCK_BOOTTIME` in ns.
    pub mono_ns: u64,
    /// `CLOCK_REALTIME` in ms.
    pub wall_ms: u64,
}

/// What is printed of the processes.
#[derive(Clone, Debug, PartialEq)]
pub enum ProcessUpdate {
    /// Who they are and what they do; must not be lost.
    List(ProbeLine),
    /// A line of what those of the last list do; the next one is as good.
    Readings(Vec<u8>),
}

/// One unbroken row of samples.
#[derive(Debug)]
pub struct Sampler {
    stream: u64,
    next_seq: u64,
    ring: Ring,
    /// The last sample that was told, and how many are told as differences before the next whole one.
    previous: Option<(Sample, u32)>,
    /// The process list that was sent last.
    sent: Option<ProcessList>,
    health: Option<(u64, Vec<GpuHealth>)>,
    uuids: Vec<GpuUuid>,
    faults: Vec<Option<Text>>,
}

impl Sampler {
    /// Begins a row, or goes on with one that another probe began.
    pub fn new(stream: u64, next_seq: u64, ring: Ring) -> Self {
        let (uuids, faults) = (Vec::new(), Vec::new());
        Self { stream, next_seq, ring, previous: None, sent: None, health: None, uuids, faults }
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
    pub fn set_gpus(&mut self, uuids: Vec<GpuUuid>) {
        let before = std::mem::take(&mut self.uuids).into_iter().zip(std::mem::take(&mut self.faults));
        let mut before: HashMap<_, _> = before.collect();
        // What was told of a GPU is not told again because another one came.
        self.faults = uuids.iter().map(|uuid| before.remove(uuid).flatten()).collect();
        self.health = None;
        self.previous = None;
        self.uuids = uuids;
    }

    /// Numbers what was read.
    pub fn sample(
        &mut self,
        at: Stamp,
        interval_ms: u32,
        gpus: Vec<GpuSample>,
        host: HostReadings,
    ) -> Sample {
        let seq = self.next_seq;
        self.next_seq += 1;
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

    /// The line of a sample, which is also kept for whoever missed it: what is new since the last one, or all of it.
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
            // After half a sample there is nothing that differences could be told from.
            let ProbeLine::Sample(sample) = whole else { unreachable!("it was made above") };
            self.previous = fits.then_some((*sample, FULL_SAMPLE_EVERY - 1));
        }
        self.ring.push(RingEntry { seq, mono_ns, is_full: !is_diff, line: bytes.as_slice().into() });
        bytes
    }

    /// The next sample is told as a whole: whoever reads may not have the last one.
    pub fn force_full_sample(&mut self) {
        self.previous = None;
    }

    /// What is printed of the processes: the list if it is another one or was not sent for a while, otherwise what they do now.
    pub fn processes(&mut self, mut now: ProcessList) -> Option<ProcessUpdate> {
        limit(&mut now);
        let stale = |sent: &ProcessList| {
            // A long list costs more, and says the same.
            let intervals = (sent.processes.len() / LONG_LIST).clamp(1, MAX_LIST_INTERVALS);
            now.mono_ns.saturating_sub(sent.mono_ns) >= LIST_INTERVAL_NS * intervals as u64
        };
        let differs = |sent: &ProcessList| {
            sent.gaps != now.gaps || process::facts_changed(&sent.processes, &now.processes)
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

    /// The process list that was sent last, of now and with what is missing of it now.
    pub fn last_processes(&self, mono_ns: u64, gaps: Vec<GpuGap>) -> ProcessList {
        let processes = self.sent.as_ref().map(|sent| sent.processes.clone()).unwrap_or_default();
        ProcessList { mono_ns, processes, gaps }
    }

    /// The GPUs and instances of the last inventory.
    pub fn uuids(&self) -> &[GpuUuid] {
        &self.uuids
    }

    /// Health if it is worth a line: it changed, or it was not sent for a while. Of health that only carries
    /// more or less than before, no more than that.
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

    /// GPUs that stopped answering or answer again since the last sample.
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
                None => format!("{uuid}: answers again").into(),
            };
            events.push(Event { mono_ns: sample.mono_ns, gpu: Some(uuid.clone()), xid: None, text });
            before.clone_from(&gpu.fault);
        }
        events
    }
}

/// Leaves so many entries out of a list, of each GPU the last ones, that its line fits [`MAX_WHOLE`], and notes it.
///
/// Which these are depends on facts alone, so that they are the same ones as long as the list is the same.
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
    let room = MAX_WHOLE.saturating_sub(GAP_BYTES * (list.gaps.len() + by_gpu.len() + 1));
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
        Sampler::new(1, 10, Ring::default())
    }

    fn read(sampler: &mut Sampler, fault: Option<&str>) -> Sample {
        let gpu = GpuSample { fault: fault.map(Text::from), ..GpuSample::default() };
        sampler.sample(Stamp::default(), 1_000, vec![gpu], HostReadings::default())
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
        sampler.set_gpus(vec![GpuUuid::new("GPU-1")]);
        let mut reported = Vec::new();
        for fault in [None, Some("GPU is lost"), Some("GPU is lost"), None, None] {
            let sample = read(&mut sampler, fault);
            reported.extend(sampler.fault_events(&sample).into_iter().map(|event| event.text.to_string()));
        }
        assert_eq!(reported, ["GPU-1: GPU is lost", "GPU-1: answers again"]);
    }

    #[test]
    fn a_gpu_that_is_lost_while_another_one_comes_is_told_once() {
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
    fn links_that_carry_more_or_less_are_told_by_that_alone() {
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

    /// Whether the next sample's line tells all of it.
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
    fn a_sample_is_told_as_a_whole_at_first_when_it_must_be_and_now_and_then() {
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
    fn a_list_is_sent_when_somebody_comes_or_goes_and_every_ten_seconds_and_vitals_otherwise() {
        let mut sampler = sampler();
        let process = |pid: u32, mib: u64| ProcessSample {
            facts: ProcessFacts::new(GpuUuid::new("GPU-1"), pid, ProcessKind::default()),
            now: ProcessReadings { gpu_mem_bytes: Reading::Value(mib << 20), ..ProcessReadings::default() },
        };
        let list = |second: u64, processes| ProcessList {
            mono_ns: second * 1_000_000_000,
            processes,
            gaps: Vec::new(),
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
            "{\"process_vitals\":{\"list_ns\":0,\"sparse\":true,\"now\":[{\"gpu_mem_bytes\":6291456}]}}\n"
        );
        assert_eq!(sent(4, vec![process(1, 6), process(2, 6)]), "2 listed");
        assert_eq!(sent(6, vec![process(2, 7)]), "1 listed");
        assert_eq!(
            sent(15, vec![process(2, 7)]),
            "{\"process_vitals\":{\"list_ns\":6000000000,\"sparse\":true,\"now\":[{}]}}\n"
        );
        assert_eq!(sent(16, vec![process(2, 8)]), "1 listed");
        assert_eq!(sent(18, Vec::new()), "0 listed");
        assert_eq!(sent(20, Vec::new()), "None");
    }

    #[test]
    fn a_list_too_long_for_any_line_is_cut_alike_each_time_and_says_by_how_many() {
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
            gaps: Vec::new(),
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
    fn a_gap_is_news_when_it_opens_and_when_it_closes() {
        let mut sampler = sampler();
        let gap = GpuGap { gpu: GpuUuid::new("A"), gap: ProcessGap::Failed("unknown error".into()) };
        let mut sent = |mono_ns, gaps| {
            matches!(
                sampler.processes(ProcessList { mono_ns, processes: Vec::new(), gaps }),
                Some(ProcessUpdate::List(_))
            )
        };
        let reported = [vec![], vec![gap.clone()], vec![gap], vec![]].map(|gaps| sent(1, gaps));
        assert_eq!(reported, [true, true, false, true]);
    }
}
