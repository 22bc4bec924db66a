//! Tests of the state machine on a virtual clock.

use super::environment::{Environment, Moment};
use super::{Engine, Timeouts};
use crate::driver_thread::{DriverStatus, ReadRequest};
use crate::hello;
use crate::host::HostReadings;
use crate::sampler::HandoverState;
use crate::source::{Absent, GpuProcessList, Inventory, Report};
use nodeglass_protocol::probe::{
    Control, GpuFacts, GpuSample, PING_TIMEOUT_MS, ProbeLine, ProbeResponse, ProbeUsage, Sample,
    SourceVersions, SpoolNote, SpoolNotes,
};
use nodeglass_protocol::request::ProbeRequest;
use nodeglass_protocol::{GpuUuid, JobId, Vendor};
use std::time::Duration;

/// Time of the start, in ms since 1970: not a multiple of any interval.
const START_MS: u64 = 1_767_225_600_123;

/// Why a driver call does not return.
#[derive(Clone, Copy, PartialEq)]
enum Hang {
    /// The driver hangs.
    Driver,
    /// A call for one GPU hangs, and so does the first one of each replacement.
    EachGpu,
    /// Many calls are slow, none of which hangs.
    Slow,
}

/// A node with one GPU whose clock is moved by hand.
struct TestNode {
    elapsed: Duration,
    /// Start of the driver call that has not returned.
    hung_at: Option<Duration>,
    hang: Hang,
    requests: u32,
    has_room: bool,
    is_cut_off: bool,
    lines: Vec<ProbeLine>,
    /// How often new notes were requested.
    note_requests: u32,
}

impl TestNode {
    fn offer(&mut self, line: &[u8]) -> bool {
        if self.has_room {
            self.lines.push(serde_json::from_slice(line).unwrap());
        }
        self.has_room
    }
}

impl Environment for TestNode {
    fn now(&self) -> Moment {
        let ms = self.elapsed.as_millis() as u64;
        Moment {
            elapsed: self.elapsed,
            mono_ns: (ms + 60_000) * 1_000_000,
            wall_ns: (START_MS + ms) * 1_000_000,
        }
    }

    fn is_cut_off(&self) -> bool {
        self.is_cut_off
    }

    fn check_driver(&mut self, source: usize, limit: Duration) -> DriverStatus {
        match (self.driver_call_duration(source), self.hang) {
            (Some(duration), Hang::Driver) if duration >= limit => DriverStatus::Hung { duration },
            (Some(since), Hang::EachGpu) if since >= limit => {
                self.hung_at = Some(self.elapsed);
                DriverStatus::Replaced
            }
            _ => DriverStatus::Responsive,
        }
    }

    fn request_readings(&mut self, _: usize, _: ReadRequest) -> bool {
        self.requests += 1;
        true
    }

    fn driver_call_duration(&self, _: usize) -> Option<Duration> {
        let call_duration = self.elapsed - self.hung_at?;
        let slowest = Duration::from_millis(900);
        Some(if self.hang == Hang::Slow { call_duration.min(slowest) } else { call_duration })
    }

    fn set_inventory(&mut self, _: usize, _: Option<&Inventory>) {}

    fn read_host(&mut self) -> HostReadings {
        HostReadings::default()
    }

    fn read_usage(&self) -> Option<ProbeUsage> {
        Some(ProbeUsage { cpu_ms: self.elapsed.as_millis() as u64 / 100, rss_bytes: 9 << 20 })
    }

    fn look_up_processes(&mut self, _: GpuProcessList) {}

    fn lookup_duration(&self) -> Option<Duration> {
        None
    }

    fn respond(&mut self, _: u32, _: ProbeRequest) -> Option<ProbeResponse> {
        None
    }

    fn print(&mut self, line: &ProbeLine) {
        self.lines.push(line.clone());
    }

    fn offer_sample(&mut self, line: Vec<u8>) -> bool {
        self.offer(&line)
    }

    fn offer_readings(&mut self, line: Vec<u8>) -> bool {
        self.offer(&line)
    }

    fn read_notes(&mut self, _: &[JobId]) {
        self.note_requests += 1;
    }

    fn offer_notes(&mut self, notes: &ProbeLine) -> bool {
        if self.has_room {
            self.print(notes);
        }
        self.has_room
    }

    fn offer_heartbeat(&mut self, heartbeat: &ProbeLine) -> bool {
        self.print(heartbeat);
        true
    }
}

/// A probe whose source has just been opened.
fn probe() -> Engine<TestNode> {
    probe_of(&[Vendor::Nvidia])
}

/// A probe with several sources, the first of which has just been opened.
fn probe_of(vendors: &[Vendor]) -> Engine<TestNode> {
    let node = TestNode {
        elapsed: Duration::ZERO,
        hung_at: None,
        hang: Hang::Driver,
        requests: 0,
        has_room: true,
        is_cut_off: false,
        lines: Vec::new(),
        note_requests: 0,
    };
    let hello = hello::of_this_node(7, Vec::new());
    let mut probe = Engine::new(node, vendors, hello, HandoverState::new(7), Timeouts::default());
    let gpus = vec![GpuFacts::new(GpuUuid::new("GPU-1"), 0)];
    let inventory = Inventory { versions: SourceVersions::default(), gpus, topology: Vec::new() };
    probe.handle_report(0, Report::Opened(inventory));
    probe
}

/// Runs a probe until `to_ms`; its driver responds at once unless it hangs. Returns the reason to
/// exit, if there is one.
fn run(probe: &mut Engine<TestNode>, to_ms: u64) -> Option<&'static str> {
    let to = Duration::from_millis(to_ms);
    loop {
        let wake = probe.next_deadline().max(probe.environment().elapsed);
        probe.environment_mut().elapsed = wake.min(to);
        if wake > to {
            return None;
        }
        if let Some(why) = probe.run_due_tasks() {
            return Some(why);
        }
        if probe.environment().hung_at.is_none() && std::mem::take(&mut probe.environment_mut().requests) > 0
        {
            let gpus = vec![GpuSample::default()];
            probe.handle_report(0, Report::Read { gpus, processes: None, driver_events: Vec::new() });
        }
    }
}

/// Takes the samples that were printed.
fn samples(probe: &mut Engine<TestNode>) -> Vec<Sample> {
    let lines = std::mem::take(&mut probe.environment_mut().lines);
    let sample = |line| if let ProbeLine::Sample(sample) = line { Some(*sample) } else { None };
    lines.into_iter().filter_map(sample).collect()
}

/// Numbers and times, in ms since the start of the minute, of the samples that were printed.
fn ticks(probe: &mut Engine<TestNode>) -> Vec<(u64, u64)> {
    samples(probe).iter().map(|sample| (sample.seq, sample.wall_ms % 60_000)).collect()
}

fn set_interval(probe: &mut Engine<TestNode>, ms: u32) {
    assert_eq!(probe.handle_control(Control::Interval { ms, phase_ms: 0 }), None);
}

#[test]
fn numbers_have_no_gap_when_the_interval_changes() {
    let mut probe = probe();
    run(&mut probe, 3_077);
    // The first one is not aligned, so that it is available at once.
    assert_eq!(ticks(&mut probe), [(1, 123), (2, 1_000), (3, 2_000), (4, 3_000)]);
    set_interval(&mut probe, 5_000);
    run(&mut probe, 9_977);
    assert_eq!(ticks(&mut probe), [(5, 5_000), (6, 10_000)]);
    set_interval(&mut probe, 500);
    run(&mut probe, 10_877);
    assert_eq!(ticks(&mut probe), [(7, 10_500), (8, 11_000)]);
}

#[test]
fn a_source_that_stays_absent_does_not_drop_the_sample_of_another() {
    let mut probe = probe_of(&[Vendor::Nvidia, Vendor::Amd]);
    probe.handle_report(1, Report::Absent(Absent::no_device()));
    assert_eq!(probe.run_due_tasks(), None);
    // It retries between the request and the response of the other.
    probe.handle_report(1, Report::Absent(Absent::no_device()));
    let gpus = vec![GpuSample::default()];
    probe.handle_report(0, Report::Read { gpus, processes: None, driver_events: Vec::new() });
    assert_eq!(samples(&mut probe).len(), 1);
}

#[test]
fn the_last_interval_before_a_sample_wins() {
    let mut probe = probe();
    run(&mut probe, 2_377);
    set_interval(&mut probe, 10_000);
    run(&mut probe, 2_477);
    set_interval(&mut probe, 1_000);
    run(&mut probe, 3_900);
    assert_eq!(ticks(&mut probe), [(1, 123), (2, 1_000), (3, 2_000), (4, 3_000), (5, 4_000)]);
}

#[test]
fn an_absurd_interval_is_bounded() {
    let mut probe = probe();
    set_interval(&mut probe, 0);
    assert_eq!(probe.schedule().0, 500);
    set_interval(&mut probe, u32::MAX);
    assert_eq!(probe.schedule().0, 60_000);
}

#[test]
fn a_probe_exits_when_the_relay_falls_silent() {
    let mut probe = probe();
    assert_eq!(run(&mut probe, PING_TIMEOUT_MS - 1), None);
    probe.handle_control(Control::Ping);
    assert_eq!(run(&mut probe, 2 * PING_TIMEOUT_MS - 2), None);
    assert_eq!(run(&mut probe, 2 * PING_TIMEOUT_MS), Some("no message from the relay"));
}

#[test]
fn f01_a_probe_whose_node_has_no_network_keeps_its_samples_for_the_return() {
    let mut probe = probe();
    probe.environment_mut().is_cut_off = true;
    assert_eq!(run(&mut probe, 4 * PING_TIMEOUT_MS), None, "the relay may be there");
    probe.environment_mut().is_cut_off = false;
    assert_eq!(run(&mut probe, 5 * PING_TIMEOUT_MS - 2_000), None, "time to be found again");
    assert_eq!(run(&mut probe, 5 * PING_TIMEOUT_MS), Some("no message from the relay"));
    // The ring holds ten minutes.
    let mut probe = self::probe();
    probe.environment_mut().is_cut_off = true;
    assert_eq!(run(&mut probe, 600_000), None);
    assert_eq!(run(&mut probe, 600_000 + PING_TIMEOUT_MS), Some("no message from the relay"));
}

#[test]
fn a_replay_waits_until_the_pipe_has_room() {
    let mut probe = probe();
    run(&mut probe, 20_000);
    samples(&mut probe);
    probe.environment_mut().has_room = false;
    probe.handle_control(Control::Backfill { stream: 7, after_seq: 0 });
    run(&mut probe, 25_000);
    assert_eq!(samples(&mut probe), []);
    probe.environment_mut().has_room = true;
    run(&mut probe, 25_200);
    let replayed = samples(&mut probe).into_iter().filter(|sample| sample.replay);
    // Those taken since the request are not part of it.
    assert!(replayed.map(|sample| sample.seq).eq(1..=21));
}

#[test]
fn the_host_is_sampled_while_the_driver_hangs() {
    let mut probe = probe();
    run(&mut probe, 2_000);
    samples(&mut probe);
    probe.environment_mut().hung_at = Some(Duration::from_millis(2_000));
    run(&mut probe, 10_000);
    let hung = samples(&mut probe);
    assert!(hung.len() >= 4, "{}", hung.len());
    let faults = |sample: &Sample| sample.gpus.first().map(|gpu| gpu.fault.is_some());
    // Later samples omit what has not changed.
    assert_eq!(faults(&hung[0]), Some(true));
    assert!(hung[1..].iter().all(|sample| faults(sample) != Some(false)));
    probe.environment_mut().hung_at = None;
    run(&mut probe, 12_000);
    assert!(samples(&mut probe).iter().any(|sample| faults(sample) == Some(false)));
}

/// Lets the driver of a probe not return from `from_ms` to `to_ms`; returns the lines from then on,
/// one second longer, and the time of the last sample before.
fn lines_during(hang: Hang, from_ms: u64, to_ms: u64) -> (Vec<ProbeLine>, u64) {
    let mut probe = probe();
    run(&mut probe, from_ms);
    let before_ms = samples(&mut probe).last().unwrap().wall_ms;
    probe.environment_mut().hang = hang;
    probe.environment_mut().hung_at = Some(Duration::from_millis(from_ms));
    run(&mut probe, to_ms);
    probe.environment_mut().hung_at = None;
    run(&mut probe, to_ms + 1_000);
    (std::mem::take(&mut probe.environment_mut().lines), before_ms)
}

/// The longest time between two samples in ms.
fn longest_gap_ms(lines: &[ProbeLine], before_ms: u64) -> u64 {
    let times = lines.iter().filter_map(|line| match line {
        ProbeLine::Sample(sample) => Some(sample.wall_ms),
        _ => None,
    });
    let (mut last_ms, mut longest_ms) = (before_ms, 0);
    for time_ms in times {
        longest_ms = longest_ms.max(time_ms - last_ms);
        last_ms = time_ms;
    }
    longest_ms
}

fn events(lines: &[ProbeLine]) -> Vec<&str> {
    let events = lines.iter().filter_map(|line| match line {
        ProbeLine::Event(event) => Some(event.text.as_str()),
        _ => None,
    });
    events.collect()
}

#[test]
fn the_calls_of_all_gpus_hang_as_one_driver() {
    let (lines, before_ms) = lines_during(Hang::EachGpu, 2_000, 20_000);
    assert!(longest_gap_ms(&lines, before_ms) < 5_000, "{}", longest_gap_ms(&lines, before_ms));
    let stated = events(&lines);
    let [hung, back] = &stated[..] else { panic!("{stated:?}") };
    assert!(hung.starts_with("the NVIDIA driver has not responded since 00:00:03 "), "{hung}");
    assert!(back.starts_with("the NVIDIA driver responds again after 18 s"), "{back}");
    let stuck_ms: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            ProbeLine::Heartbeat(heartbeat) => heartbeat.driver_stuck_ms,
            _ => None,
        })
        .collect();
    assert!(stuck_ms.is_sorted() && stuck_ms.last() > Some(&15_000), "{stuck_ms:?}");
}

#[test]
fn slow_calls_that_each_return_hide_neither_the_host_nor_the_driver() {
    let (lines, before_ms) = lines_during(Hang::Slow, 2_000, 9_500);
    assert!(longest_gap_ms(&lines, before_ms) < 5_000, "{}", longest_gap_ms(&lines, before_ms));
    assert_eq!(events(&lines), [""; 0]);
    let is_faulty = |line: &ProbeLine| matches!(line, ProbeLine::Sample(sample) if sample.gpus.iter().any(|gpu| gpu.fault.is_some()));
    assert!(!lines.iter().any(is_faulty));
    // The late response is a sample of its own, beside that of the host at the same tick.
    let times: Vec<_> = lines
        .iter()
        .filter_map(|line| match line {
            ProbeLine::Sample(sample) => Some(sample.wall_ms),
            _ => None,
        })
        .collect();
    assert!(times.windows(2).any(|pair| pair[0] == pair[1]), "{times:?}");
}

#[test]
fn a_probe_states_what_it_uses_after_its_first_sample_and_once_a_minute() {
    let mut probe = probe();
    for to_ms in [20_000, 40_000, 60_000, 80_000, 100_000, 120_000, 140_000] {
        probe.handle_control(Control::Ping);
        run(&mut probe, to_ms);
    }
    let lines = std::mem::take(&mut probe.environment_mut().lines);
    let first = lines.iter().position(|line| matches!(line, ProbeLine::Usage(_)));
    let sampled = lines.iter().position(|line| matches!(line, ProbeLine::Sample(_)));
    assert!(sampled.is_some() && sampled < first);
    let used = lines.iter().filter_map(|line| match line {
        ProbeLine::Usage(usage) => Some(usage.cpu_ms),
        _ => None,
    });
    assert_eq!(used.collect::<Vec<_>>(), [8, 598, 1_188]);
}

#[test]
fn notes_that_find_no_room_are_offered_again_before_further_ones_are_read() {
    let mut probe = probe();
    run(&mut probe, 10_000);
    assert_eq!(probe.environment().note_requests, 0, "no job is named");
    probe.handle_control(Control::Notes { jobs: vec![JobId(17)] });
    run(&mut probe, 14_000);
    let requested = probe.environment().note_requests;
    assert_eq!(requested, 2, "every other second");
    let line = |text: &str| SpoolNote {
        job: JobId(17),
        suffix: "".into(),
        offset: 0,
        mono_ns: 0,
        text: text.into(),
    };
    let batch = |text: &str| SpoolNotes { notes: vec![line(text)], problems: None };
    probe.environment_mut().has_room = false;
    probe.handle_notes(batch("a"));
    probe.handle_control(Control::Ping);
    run(&mut probe, 18_000);
    assert_eq!(probe.environment().note_requests, requested);
    probe.environment_mut().has_room = true;
    probe.environment_mut().lines.clear();
    run(&mut probe, 20_000);
    let sent = |line: &ProbeLine| matches!(line, ProbeLine::Notes(notes) if *notes == batch("a"));
    assert_eq!(probe.environment().lines.iter().filter(|line| sent(line)).count(), 1);
    assert!(probe.environment().note_requests > requested);
}
